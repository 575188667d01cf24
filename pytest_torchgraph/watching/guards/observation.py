"""Details of failed guards, observed while torch reports why it recompiles."""

from __future__ import annotations

import contextlib
import enum
import functools
import inspect
import json
import linecache
import re
import sys
from collections.abc import Iterable, Iterator
from dataclasses import replace
from types import BuiltinFunctionType, CodeType, FunctionType, MethodType, ModuleType
from typing import Any, NamedTuple

import torch

from ... import torch_private
from ...convert.source_lines import is_torch_file, relative, torch_file
from ...words import counted
from .descriptions import BACKEND, Check, check_of, describe_source, marked, size_in_words, sizes_in
from .read import (
    UNKNOWN,
    GuardLine,
    GuardText,
    attribute,
    length,
    own_attributes,
    parse,
    read,
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
_AUTOCAST = ("cpu", "cuda", "xpu", "mps")
_ADVICE = "If this is unexpected, "
"""Prefix of torch's advice if the backend differs."""
_DTYPES = {5: torch.float16, 6: torch.float32, 7: torch.float64, 15: torch.bfloat16}
"""Dtypes by torch's numbers, which are in the guard on the global state; not complete."""

_CELL = re.compile(r"(.+)\.__closure__\[(\d+)\]\.cell_contents")
"""Source of a closure variable."""
_ITEM = re.compile(r"\b(\w+)\[(?:(\d+)|'(\w+)')\](?=([.\[])?)")


class GuardObservation(NamedTuple):
    """Observations about a failed guard; plain text, no object of the user's.

    Attributes:
        text: torch's text, parsed; includes the guard's lines even if torch's reason lacks them.
        check: the check of the guard.
        now: the new value, "" if unknown.
        guard: the guard as torch wrote it when it was created, "" if that is the reason itself.
        is_static: True if a fixed size was requested, for example with `dynamic=False`.
        name: the checked value as the user writes it, for example `x` for `args[0]`; "" if unknown.
        is_late: True if the first compilation of the code had no guard on this tensor.
    """

    text: GuardText
    check: Check
    now: str = ""
    guard: str = ""
    is_static: bool = False
    name: str = ""
    is_late: bool = False

    @property
    def words(self) -> str:
        """Description of the failed guard."""
        return self.check.in_words(self.now)


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
    return GuardObservation(text, check_of(text.check))


def _observe_in_entry(guard_text: GuardText, miss: torch_private.CacheMiss) -> GuardObservation:
    entry = miss.entry(guard_text.compile_id)
    if not guard_text.check:  # torch before 2.11 reports a different backend with an empty check
        guard_text = guard_text._replace(check=BACKEND)
    if guard_text.check.startswith(BACKEND):
        return _observe_backends(guard_text, entry, miss)
    check = check_of(guard_text.check)
    if check.reads == "marks" and not check.subject:
        # torch does not say which tensor is marked.
        check = _name_marked_tensor(check, torch_private.leaf_guards(entry), miss)
    # The reason for a tensor contains no line, but the guard of the earlier compilation does.
    guards = () if guard_text.lines else torch_private.leaf_guards(entry)
    own_guard, is_exact = _find_guard(guard_text, check, guards)
    if own_guard is not None:
        guard_text = guard_text._replace(
            lines=own_guard.lines, hints=(*guard_text.hints, *own_guard.hints)
        )
    guard_text = guard_text._replace(
        lines=tuple(_complete_path(line, guard_text, miss) for line in guard_text.lines)
    )
    name_in_source = _read_closure_name(check.subject, miss)
    if name_in_source:  # torch 2.13 adds a hint that only repeats this name
        check = _rename_subject(check, name_in_source)
        guard_text = guard_text._replace(
            hints=tuple(h for h in guard_text.hints if not h.startswith('guard on "'))
        )
    for name in miss.code.co_freevars:
        words = check.words.replace(f"argument {name}:", f"variable {name} of the closure:")
        check = replace(check, words=words)
    if torch.is_grad_enabled():  # and it was at the compilation; so the calls were outside the mode
        check = replace(check, words=check.words.replace("made or used", "made"))
    check = replace(
        check,
        words=_name_parameters(check.words, miss),
        unknown=_name_parameters(check.unknown, miss),
    )
    guard_check = own_guard.check if own_guard is not None and is_exact else ""
    return GuardObservation(
        guard_text,
        check,
        _name_parameters(_describe_new_value(check, entry, miss), miss),
        guard_check,
        _is_static(check, miss),
        _name_parameters(check.subject, miss).removeprefix("argument "),
        entry is not miss.entries[-1]
        and not any(
            guard.kind == "TENSOR_MATCH" and without_scope(guard.source) == check.subject
            for guard in torch_private.leaf_guards(miss.entries[-1])
        ),
    )


def _name_parameters(text: str, miss: torch_private.CacheMiss) -> str:
    """Replace items of `*args` and `**kwargs` by the names of the wrapped function's parameters."""
    _, args, kwargs = inspect.getargs(miss.code)

    def name_item(item: re.Match[str]) -> str:
        owner, index, key, rest = item.groups()
        names = [key] if owner == kwargs else _read_parameters(miss) if owner == args else []
        name = "".join(names[int(index or 0) :][:1])
        return f"{'' if rest else 'argument '}{name}" if name else item[0]

    return _ITEM.sub(name_item, text)


def _read_parameters(miss: torch_private.CacheMiss) -> list[str]:
    """Return the positional parameters of the only function that a wrapper could call."""
    values = [miss.locals.get(name) for name in miss.code.co_freevars]
    modules = [v for v in values if isinstance(v, torch.nn.Module)]
    values += [MethodType(type(module).forward, module) for module in modules]
    functions = [v for v in values if isinstance(v, FunctionType | MethodType)]
    if len(functions) != 1:
        return []
    code = user_function(functions[0]).__code__
    return inspect.getargs(code).args[isinstance(functions[0], MethodType) :]


def _read_closure_name(source: str, miss: torch_private.CacheMiss) -> str:
    """Return a closure source as written in the code, for example `model.scale`; "" for others."""
    cell = _CELL.match(source)
    if cell is None:
        return ""
    code = attribute(read(cell[1], miss.locals, miss.globals), "__code__")
    names = code.co_freevars if isinstance(code, CodeType) else ()
    number = int(cell[2])
    return names[number] + source[cell.end() :] if number < len(names) else ""


def _rename_subject(check: Check, written: str) -> Check:
    """Replace the source in a check's words by the expression in the code."""
    before, after = describe_source(check.subject), describe_source(written)
    if written.isidentifier():
        after = f"variable {written} of a closure"
    return replace(
        check,
        words=check.words.replace(before, after),
        unknown=check.unknown.replace(before, after),
    )


def _is_static(check: Check, miss: torch_private.CacheMiss) -> bool:
    """Return True if a fixed size was requested."""
    marks = own_attributes(read(check.subject, miss.locals, miss.globals))
    return "_dynamo_static_indices" in marks or attribute(miss.backend, "dynamic") is False


def _find_guard(
    text: GuardText, check: Check, guards: Iterable[torch_private.LeafGuard]
) -> tuple[GuardText | None, bool]:
    """Find the guard for a reason without a line.

    Returns:
        The guard, and True if it is the guard that failed. Otherwise it is another guard of the
        same value, or of a part of it, created where that value was first used.
    """
    subject = check.subject
    if not subject:
        return None, False
    is_tensor = text.check.startswith(("tensor '", "expected type of '"))
    same_value = part_of_value = None
    for guard in guards:
        source = without_scope(guard.source)
        if source == subject:
            parsed = parse(without_scope(guard.texts[0]))
            if guard.kind == "TENSOR_MATCH" and is_tensor:
                return parsed, True
            # Another guard of the same value was created where the value was first used.
            same_value = same_value or (parsed if parsed.lines else None)
        elif part_of_value is None and source.startswith(
            (f"{subject}[", f"list(dict.keys({subject}))")
        ):
            parsed = parse(without_scope(guard.texts[0]))
            part_of_value = parsed if parsed.lines else None
    return same_value or part_of_value, False


def _name_marked_tensor(
    check: Check, guards: Iterable[torch_private.LeafGuard], miss: torch_private.CacheMiss
) -> Check:
    """Add the marked tensor to the check, because torch does not name it."""
    for guard in guards:
        source = without_scope(guard.source)
        if guard.kind == "DIMENSION_DYNAMIC_MARKING_GUARD" and any(_describe_marks(source, miss)):
            return marked(source)
    return check


def _describe_new_value(check: Check, entry: Any, miss: torch_private.CacheMiss) -> str:
    """Describe the current value of a guard's subject; "" if it cannot be read."""
    if check.now or not check.reads:
        return ""
    if check.reads == "state":
        names = check.subject.split()
        states = ((name, _describe_state(name, entry)) for name in names)
        return "; ".join(f"{name} {now}" if names[1:] else now for name, now in states if now)
    if check.reads == "modes":
        modes = torch_private.torch_function_modes()
        return ", ".join(describe_type(type(mode)) for mode in modes) or "none"
    if check.reads == "marks":
        return "; ".join(_describe_marks(check.subject, miss))
    if check.reads == "sizes":
        return ", ".join(_describe_sizes(check.subject, miss))
    value = read(check.subject, miss.locals, miss.globals)
    if value is UNKNOWN:
        return ""
    match check.reads:
        case "length":
            return describe_value(length(value))
        case "type":
            return describe_type(type(value))
        case "keys":
            keys = list(dict.keys(value)) if isinstance(value, dict) else []
            return ", ".join(map(describe_value, keys[:5])) or "none"
    return describe_value(value)


def _describe_sizes(text: str, miss: torch_private.CacheMiss) -> Iterator[str]:
    for source, kind, dim in sizes_in(text):
        tensor = read(source, miss.locals, miss.globals)
        sizes = _read_shape(tensor, kind)
        if dim < len(sizes):
            yield f"{size_in_words(source, kind, dim)} is {sizes[dim]}"


def _read_shape(tensor: Any, kind: str) -> tuple[Any, ...]:
    """Return the sizes or strides of a tensor of torch's own types, empty for other types."""
    is_plain = type(tensor) in (torch.Tensor, torch.nn.Parameter)
    return torch_private.shape_of(tensor, kind) if is_plain else ()


def _describe_marks(source: str, miss: torch_private.CacheMiss) -> Iterator[str]:
    # `mark_dynamic` and similar functions store the dims as attributes of the tensor.
    attributes = own_attributes(read(source, miss.locals, miss.globals))
    for name, function in _MARKS.items():
        dims = attributes.get(name)
        if isinstance(dims, set) and dims:
            yield f"dim {', '.join(map(str, sorted(dims)))} is marked by {function}"


def _describe_state(name: str, entry: Any) -> str:
    """Describe the current and the earlier value of a part of the process state."""
    if name in ("default_dtype", "num_threads"):
        was: Any = _read_old_state(entry).get(name)
        now: Any = torch.get_num_threads()
        if name == "default_dtype":
            was, now = _DTYPES.get(was), torch.get_default_dtype()
        return f"{f'was {was}, ' * (was is not None)}is {now}"
    if name == "autocast":  # torch before 2.11
        enabled_devices = ", ".join(
            device for device in _AUTOCAST if torch.is_autocast_enabled(device)
        )
        return f"is True on {enabled_devices}" if enabled_devices else "is False"
    if name == "grad_mode":
        now = torch.is_grad_enabled()
    elif name == "deterministic_algorithms":
        now = torch.are_deterministic_algorithms_enabled()
    elif name.startswith("autocast("):
        device, _, part = name.removeprefix("autocast(").partition(")_")
        if part == "dtype":
            return f"is {torch.get_autocast_dtype(device)}"
        now = torch.is_autocast_enabled(device)
    else:
        return ""
    # The guard failed, so the earlier value is the opposite of the current one.
    return f"was {not now}, is {now}"


def _read_old_state(entry: Any) -> dict[str, Any]:
    """Return the process state that a compilation was made for, as far as torch keeps it."""
    for guard in torch_private.leaf_guards(entry):
        if guard.kind == "GLOBAL_STATE":
            _, separator, state = guard.texts[0].partition(" against ")
            try:
                return dict(json.loads(state)) if separator else {}
            except ValueError:
                return {}
    return {}


def _observe_backends(
    text: GuardText, entry: Any, miss: torch_private.CacheMiss
) -> GuardObservation:
    """Find the two `torch.compile` objects that wrap one function."""
    _, separator, advice = text.check.partition(_ADVICE)
    text = text._replace(check=BACKEND, hints=(_ADVICE + advice,) if separator else ())
    check = check_of(BACKEND)
    was, now = backend_in_words(getattr(entry, "backend", None)), backend_in_words(miss.backend)
    if was:
        words = f"{check.words}: it was compiled through {{was}} and is called through {{now}}"
        # Equal descriptions, but the guard failed: the backends are two objects.
        if was == now:
            words += ", whose backends are two objects"
        return GuardObservation(text, replace(check, words=words, was=was, now=now))
    return GuardObservation(text, replace(check, words=f"{check.words}, which is {{now}}", now=now))


def _complete_path(line: GuardLine, text: GuardText, miss: torch_private.CacheMiss) -> GuardLine:
    """Complete the file path of a line, because torch may write only its end."""
    in_stack = [frame for frame in text.stack if frame.line == line.line]
    stack_files = [frame.file for frame in in_stack if frame.file.endswith(line.file)]
    for file in [*stack_files, torch_file(line.file), *_list_candidate_files(line.file, miss)]:
        if not line.code or linecache.getline(file, line.line).strip() == line.code:
            return line._replace(file=file)
    return line


def _list_candidate_files(end: str, miss: torch_private.CacheMiss) -> Iterator[str]:
    """Yield files with paths that end in `end`: the file of the code, then those of modules."""
    if miss.code.co_filename.endswith(end):
        yield miss.code.co_filename
    # A copy, because another thread may import a module meanwhile.
    for module in list(sys.modules.values()):
        file = getattr(module, "__dict__", {}).get("__file__")
        if isinstance(file, str) and file.endswith(end) and not is_torch_file(file):
            yield file


_MAX_CHARACTERS = 60
"""Maximum number of characters shown of a value."""
_TORCH_VALUES = (torch.dtype, torch.device, torch.layout, torch.memory_format, torch.Size)
_BRACKETS: dict[Any, Any] = {list: "[]", tuple: "()", set: ("{", "}")}
_PLAIN_TYPES = (int, float, bool, str, complex, type(None))
_MAX_ITEMS = 5
"""Maximum number of container items written out, if all are plain values."""
_MAX_BITS = 200
"""Size in bits above which a number is not written out."""


_ADDRESS = re.compile(r" at 0x[0-9a-f]+")


def describe_value(value: Any) -> str:
    """Return a short text for a value, "" for `UNKNOWN`."""
    if value is UNKNOWN:
        return ""
    kind = type(value)
    # Call methods of the built-in types only, because a subclass may override them with user code.
    if isinstance(value, int) and int.bit_length(value) > _MAX_BITS:
        return f"an int of {int.bit_length(value)} bits"
    if isinstance(value, enum.Enum):
        return f"{kind.__qualname__}.{own_attributes(value).get('_name_')}"
    if isinstance(value, str):
        size = str.__len__(value)
        start = str.__getitem__(value, slice(_MAX_CHARACTERS))
        return str.__repr__(start) + (f"... ({size} long)" if size > _MAX_CHARACTERS else "")
    for number in (int, float):  # includes subclasses such as numpy's
        if isinstance(value, number) and kind is not bool:
            return number.__repr__(value)
    if kind in (bool, complex, type(None)) or kind in _TORCH_VALUES:
        return repr(value)
    if isinstance(value, type):
        return describe_type(value)
    return _describe_callable(value) or _describe_object(value)


def describe_type(kind: type) -> str:
    """Return the full name of a type; for a built-in type only its name."""
    name: str = type.__getattribute__(kind, "__qualname__")
    module = attribute(kind, "__module__")
    if not isinstance(module, str) or module == "builtins":
        return name
    return "torch.Tensor" if kind is torch.Tensor else f"{module}.{name}"


def backend_in_words(backend: Any) -> str:
    """Describe the backend and options as a call of `torch.compile`.

    Args:
        backend: torch's wrapper, or the callable itself.
    """
    if backend is None:
        return ""
    attributes = own_attributes(backend)
    name = attribute(backend, "compiler_name")
    if not isinstance(name, str):
        return describe_value(backend)
    name = _ADDRESS.sub("", name)
    function = attributes.get("compiler_fn")
    location = (
        f" ({_format_location(function.__code__)})" if isinstance(function, FunctionType) else ""
    )
    options = [
        f"backend={name!r}{'' if location.startswith(' (torch/') else location}",
        f"dynamic={describe_value(attributes.get('dynamic'))}",
    ]
    keywords = attributes.get("kwargs") or {}
    options += [f"{key}={_describe_option(value)}" for key, value in keywords.items()]
    config = attributes.get("config")  # inductor merges mode and options into this
    options += [f"options={_describe_option(config)}"] * bool(config)
    return f"torch.compile({', '.join(options)})"


def _describe_option(value: Any) -> str:
    if type(value) is not dict:
        return describe_value(value)
    items = (f"{describe_value(key)}: {describe_value(item)}" for key, item in value.items())
    return "{" + ", ".join(items) + "}"


def _describe_callable(value: Any) -> str:
    if isinstance(value, MethodType):
        return _describe_callable(value.__func__)
    if isinstance(value, functools.partial):
        return f"functools.partial of {describe_value(value.func)}"
    if isinstance(value, FunctionType):
        return f"{value.__qualname__} ({_format_location(value.__code__)})"
    if isinstance(value, CodeType):
        return f"{value.co_name} ({_format_location(value)})"
    if isinstance(value, ModuleType):
        return f"the module {vars(value).get('__name__')}"
    if isinstance(value, BuiltinFunctionType):
        name = value.__name__
        of_torch = vars(torch).get(name) is value
        return f"torch.{name}" if of_torch else f"the built-in function {name}"
    return ""


def _describe_object(value: Any) -> str:
    kind = type(value)
    if kind in (torch.Tensor, torch.nn.Parameter):
        return f"a {describe_type(kind)}"
    if (
        kind in _BRACKETS
        and 0 < len(value) <= _MAX_ITEMS
        and all(type(item) in _PLAIN_TYPES for item in value)
    ):
        items = [describe_value(item) for item in value]
        first, last = _BRACKETS[kind]
        comma = "," * (kind is tuple and len(items) == 1)
        return f"{first}{', '.join(sorted(items) if kind is set else items)}{comma}{last}"
    items = length(value)
    if items is UNKNOWN:
        return f"a {describe_type(kind)}"
    return f"a {describe_type(kind)} of {counted(items, 'item')}"


def _format_location(code: CodeType) -> str:
    return f"{relative(code.co_filename)}:{code.co_firstlineno}"
