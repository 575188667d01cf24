"""Details of failed guards, observed while torch reports why it recompiles."""

from __future__ import annotations

import contextlib
import enum
import inspect
import json
import linecache
import re
import reprlib
from collections.abc import Iterable, Mapping
from functools import partial
from types import BuiltinFunctionType, CodeType, FunctionType, MethodType, ModuleType
from typing import Any, NamedTuple

import torch

from ... import torch_private
from ...convert.source_lines import relative
from ...words import counted
from .descriptions import BACKEND, Check, check_of, describe_source
from .read import (
    UNKNOWN,
    GuardLine,
    GuardText,
    attribute,
    length,
    parse,
    read,
    read_parts,
    user_function,
    without_scope,
)

_MARKS = {
    "_dynamo_dynamic_indices": "mark_dynamic",
    "_dynamo_weak_dynamic_indices": "maybe_mark_dynamic",
    "_dynamo_static_indices": "mark_static",
    "_dynamo_unbacked_indices": "mark_unbacked",
    "_dynamo_strict_unbacked_indices": "mark_unbacked(strict=True)",
}
_ADVICE = "If this is unexpected, "
"""Prefix of torch's advice if the backend differs."""
_DTYPES: dict[Any, torch.dtype] = {
    5: torch.float16,
    6: torch.float32,
    7: torch.float64,
    15: torch.bfloat16,
}
"""Dtypes by torch's numbers, which are in the guard on the global state; not complete."""

_CELL = re.compile(r"([\w.\[\]']+)\.__closure__\[(\d+)\]\.cell_contents")
"""Source of a closure variable."""
_ITEM = re.compile(r"\b(\w+)\[(?:(\d+)|'(\w+)')\]")


_NO_GUARD = GuardText("", "")


class GuardObservation(NamedTuple):
    """Observations about a failed guard; plain text, no object of the user's.

    Attributes:
        text: torch's text, parsed; includes the guard's lines even if torch's reason lacks them.
        check: the check of the guard.
        words: description of the failed guard.
        now: the new value, "" if unknown.
        name: the checked value as the user writes it, for example `x` for `args[0]`; "" if unknown.
        guard: the guard as torch wrote it when it was created, "" if that is the reason itself.
        is_static: True if a fixed size was requested, for example with `dynamic=False`.
        is_late: True if the first compilation of the code had no guard on this tensor.
    """

    text: GuardText
    check: Check
    words: str
    now: str = ""
    name: str = ""
    guard: str = ""
    is_static: bool = False
    is_late: bool = False


def observe_guard(reason: str, miss: torch_private.CacheMiss | None) -> GuardObservation:
    """Observe all details of a failed guard.

    Args:
        reason: torch's reason.
        miss: the cache miss that torch is reporting, `None` if unknown.
    """
    text = parse(reason)
    if miss is not None:
        with contextlib.suppress(Exception):  # a torch release may store its guards differently
            return _observe_in_entry(text, miss)
    check = check_of(text.check)
    subject = describe_source(check.source)
    return GuardObservation(text, check, _describe(check, subject, check.now), check.now)


def _describe(check: Check, subject: str, now: str) -> str:
    """Describe a failed guard."""
    if check.words:
        values = check.words.format(was=check.was, now=now or "different now")
        return f"{subject}: {values}"
    text = f"guard failed: {check.text}" if check.text else "torch does not name the failed guard"
    return f"{text} ({now})" if now else text


def _observe_in_entry(text: GuardText, miss: torch_private.CacheMiss) -> GuardObservation:
    entry, first = miss.entry(text.compile_id), miss.entries[-1]
    # torch before 2.11 reports a different backend with an empty check
    if not text.check or text.check.startswith(BACKEND):
        return _observe_backends(text, entry, miss)
    names = {"G": miss.globals, **miss.locals}
    guards = [*torch_private.leaf_guards(entry)]
    check = _find_marked(check_of(text.check), names, guards)
    # The reason for a tensor contains no line, but the guard of the earlier compilation does.
    guard = _NO_GUARD if text.lines else _find_guard(check.source, guards)
    lines = [_complete_path(line, miss.code) for line in (*text.lines, *guard.lines)]
    name = _as_written(check.source, miss, names)
    subject = describe_source(name)
    if "cell_contents" in check.source or check.source in miss.code.co_freevars:
        subject = subject.replace("argument", "closure variable")
    now = check.now or _describe_new_value(check, names, guards)
    marks = attribute(read(check.source, names), "_dynamo_static_indices")
    early_guards = torch_private.leaf_guards(first)
    early = {without_scope(g.source) for g in early_guards if g.kind == "TENSOR_MATCH"}
    return GuardObservation(
        text._replace(lines=tuple(lines), hints=(*text.hints, *guard.hints)),
        check,
        _as_written(_describe(check, subject, now), miss, names),
        now,
        name,
        guard.check * text.check.startswith(("tensor '", "expected type of '")),
        marks is not UNKNOWN or attribute(miss.backend, "dynamic") is False,
        entry is not first and check.source not in early,
    )


def _as_written(text: str, miss: torch_private.CacheMiss, names: Mapping[str, Any]) -> str:
    """Write the sources in a text as the code does: `model` for the cell of a closure.

    Items of `*args` and `**kwargs` get the names of the wrapped function's parameters.
    """

    def name_cell(cell: re.Match[str]) -> str:
        name = read(f"{cell[1]}.__code__.co_freevars[{cell[2]}]", names)
        return name if isinstance(name, str) else cell[0]

    def name_item(item: re.Match[str]) -> str:
        owner, index, key = item.groups()
        parameters = [key] if owner == kwargs else _read_parameters(miss) if owner == args else []
        return next(iter(parameters[int(index or 0) :]), item[0])

    _, args, kwargs = inspect.getargs(miss.code)
    return _ITEM.sub(name_item, _CELL.sub(name_cell, text))


def _read_parameters(miss: torch_private.CacheMiss) -> list[str]:
    """Return the positional parameters of the only function that a wrapper could call."""
    values = [miss.locals.get(name) for name in miss.code.co_freevars]
    modules = [value for value in values if isinstance(value, torch.nn.Module)]
    values += [MethodType(type(module).forward, module) for module in modules]
    functions = [value for value in values if isinstance(value, FunctionType | MethodType)]
    if len(functions) != 1:
        return []
    code = user_function(functions[0]).__code__
    return inspect.getargs(code).args[isinstance(functions[0], MethodType) :]


def _find_guard(source: str, guards: Iterable[torch_private.LeafGuard]) -> GuardText:
    """Find the guard for a reason without a line.

    If there is none, return another guard of the same value, or of a part of it, created where that
    value was first used.
    """
    parts = (f"{source}[", f"list(dict.keys({source}))")
    found: list[list[GuardText]] = [[], [], []]
    for guard in guards:
        place, text = without_scope(guard.source), parse(without_scope(guard.texts[0]))
        if source and text.lines and (place == source or place.startswith(parts)):
            found[2 if place != source else guard.kind != "TENSOR_MATCH"].append(text)
    return next(iter(found[0] + found[1] + found[2]), _NO_GUARD)


def _describe_new_value(
    check: Check, names: Mapping[str, Any], guards: Iterable[torch_private.LeafGuard]
) -> str:
    """Describe the current value of a guard's subject; "" if it cannot be read."""
    if check.read:
        return describe_value(read(check.read, names))
    kind, _, state = check.text.partition(" changed: ")
    if kind == "GLOBAL_STATE":
        texts = [guard.texts[0] for guard in guards if guard.kind == kind]
        before = json.loads("".join(texts).partition(" against ")[2] or "{}")
        return "; ".join(_describe_state(name, before) for name in state.split())
    if kind == "check_torch_function_mode_stack()":
        modes = torch_private.torch_function_modes()
        return f"now {', '.join(describe_type(type(mode)) for mode in modes) or 'none'}"
    parts = read_parts(kind, names).items()
    return ", ".join(f"{part} is {describe_value(value)}" for part, value in parts)


def _find_marked(
    check: Check, names: Mapping[str, Any], guards: Iterable[torch_private.LeafGuard]
) -> Check:
    """Find the tensor with a marked dimension, because torch does not name it."""
    if "_dynamo_" not in check.text:
        return check
    for guard in guards:
        for name, function in _MARKS.items():
            source = without_scope(guard.source)
            # `mark_dynamic` and similar functions store the dims as attributes of the tensor.
            dims = attribute(read(source, names), name) if name in guard.texts[0] else UNKNOWN
            if isinstance(dims, set) and dims:
                numbers = ", ".join(map(str, sorted(dims)))
                words = f"dim {numbers} is marked by {function}, and was not before"
                return Check(check.text, source, words)
    return check


def _describe_state(name: str, before: Mapping[str, Any]) -> str:
    """Describe a part of the process state.

    Args:
        name: torch's name.
        before: the state of the earlier compilation, as far as torch reports it.
    """
    after = torch_private.global_state()
    was, now = before.get(name), after.get(name)
    if name.startswith("autocast"):
        # Lists with an item for each type of device.
        part = "dtype" if name.endswith("dtype") else "enabled"
        both = [state["autocast_state"][part] for state in (before or after, after)]
        changed = (values for values in zip(*both, strict=True) if values[0] != values[1])
        was, now = next(changed, (None, any(both[1])))
    if name.endswith("dtype"):
        was, now = (_DTYPES.get(value, value) for value in (was, now))
    # A flag that changed had the opposite value.
    was = not now if was is None and isinstance(now, bool) else was
    return f"is {now}" if was is None else f"was {was}, is {now}"


def _observe_backends(
    text: GuardText, entry: Any, miss: torch_private.CacheMiss
) -> GuardObservation:
    """Find the two `torch.compile` objects that wrap one function."""
    _, separator, advice = text.check.partition(_ADVICE)
    text = text._replace(check=BACKEND, hints=(_ADVICE + advice,) if separator else ())
    backend = getattr(entry, "backend", None)
    was = "another torch.compile object" if backend is None else backend_in_words(backend)
    now = backend_in_words(miss.backend)
    words = f"compiled through {was}, called through {now}"
    # Equal descriptions, but the guard failed: the backends are two objects.
    words += ", whose backends are two objects" * (was == now)
    return GuardObservation(text, Check(BACKEND, was=was), words, now)


def _complete_path(line: GuardLine, code: CodeType) -> GuardLine:
    """Complete the file path of a line, because torch may write only its end."""
    # torch read the text of the line through linecache.
    for file in (code.co_filename, *linecache.cache):
        if file.endswith(line.file) and linecache.getline(file, line.line).strip() == line.code:
            return line._replace(file=file)
    return line


_NUMBERS_AND_TEXT: Any = (int, float, str)
_OF_TORCH = (torch.dtype, torch.device, torch.layout, torch.memory_format, torch.Size)
_PLAIN_TYPES = (*_NUMBERS_AND_TEXT, bool, complex, type(None), *_OF_TORCH)
_CONTAINERS = (list, tuple, set, dict)
_SHORT = reprlib.Repr()
_SHORT.maxstring = _SHORT.maxother = 60
_ADDRESS = re.compile(r" at 0x[0-9a-f]+")


def describe_value(value: Any) -> str:
    """Return a short text for a value, "" for `UNKNOWN`."""
    if value is UNKNOWN:
        return ""
    kind = type(value)
    if isinstance(value, enum.Enum):
        return f"{kind.__qualname__}.{attribute(value, '_name_')}"
    for base in _NUMBERS_AND_TEXT:
        if isinstance(value, base) and kind is not bool:
            # The value of an instance of a subclass, such as numpy's, without running its code.
            (value,), kind = base.__getnewargs__(value), base
    items = [*value, *value.values()] if kind is dict else value if kind in _CONTAINERS else [value]
    if all(type(item) in _PLAIN_TYPES for item in items):
        with contextlib.suppress(ValueError):  # a very large int
            return _ADDRESS.sub("", _SHORT.repr(value))
    code = value if kind is CodeType else attribute(value, "__code__")
    if isinstance(code, CodeType):
        return f"{code.co_name} ({relative(code.co_filename)}:{code.co_firstlineno})"
    if isinstance(value, partial):
        return f"functools.partial of {describe_value(value.func)}"
    if isinstance(value, type):
        return describe_type(value)
    if isinstance(value, BuiltinFunctionType | ModuleType):
        name = value.__name__
        return f"torch.{name}" if vars(torch).get(name) is value else name
    size = length(value)
    return f"a {describe_type(kind)}" + ("" if size is UNKNOWN else f" of {counted(size, 'item')}")


def describe_type(kind: type) -> str:
    """Return the full name of a type; for a built-in type only its name."""
    # A metaclass may override the attributes.
    module, name = (type.__getattribute__(kind, f"__{part}__") for part in ("module", "qualname"))
    return f"{module}.{name}".removeprefix("builtins.")


def backend_in_words(backend: Any) -> str:
    """Describe the backend and options as a call of `torch.compile`.

    Args:
        backend: torch's wrapper, or the callable itself.
    """
    name = attribute(backend, "compiler_name")
    if not isinstance(name, str):
        return describe_value(backend)
    options = {
        "backend": _ADDRESS.sub("", name),
        "dynamic": attribute(backend, "dynamic"),
        "options": attribute(backend, "config") or UNKNOWN,  # of inductor, with those of `mode`
    }
    keywords = attribute(backend, "kwargs")
    options.update(keywords if type(keywords) is dict else {})
    parts = (f"{key}={describe_value(v)}" for key, v in options.items() if v is not UNKNOWN)
    return f"torch.compile({', '.join(parts)})"
