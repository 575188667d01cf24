"""Failed guards: observed while torch reports why it recompiles, and their remedies."""

from __future__ import annotations

import contextlib
import inspect
import json
import re
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from types import FunctionType, MethodType
from typing import TYPE_CHECKING, Any, NamedTuple

import torch

from .. import torch_private
from ..convert.placeholders import STACK_VALUE
from ..convert.source_lines import is_user_file, original_name, relative
from ..graph.events import StackFrame
from ..graph.model import Source
from ..words import grouped
from .guard_text import (
    BACKEND,
    IN_TORCH,
    Check,
    GuardLine,
    GuardText,
    check_of,
    complete_path,
    describe_source,
    parse,
    parse_comment,
    tidy,
    without_scope,
)
from .guard_values import (
    UNKNOWN,
    attribute,
    backend_in_words,
    describe_type,
    describe_value,
    read,
    read_parts,
    user_function,
)

if TYPE_CHECKING:
    from .observe import SizeFixed

_DTYPES: dict[Any, torch.dtype] = {
    5: torch.float16,
    6: torch.float32,
    7: torch.float64,
    15: torch.bfloat16,
}
"""Dtypes by torch's numbers, which are in the guard on the global state; not complete."""

_ADVICE = re.compile("If this is unexpected, .*")
"""torch's advice if the backend differs."""
_CELL = re.compile(r"([\w.\[\]']+)\.__closure__\[(\d+)\]\.cell_contents")
"""Source of a closure variable."""
_NO_GUARD = GuardText("", "")
"""Stands for a guard that was not found."""


class GuardObservation(NamedTuple):
    """Observations about a failed guard; plain text, no object of the user's.

    Attributes:
        text: torch's text, parsed; includes the guard's lines even if torch's reason lacks them.
        check: the check of the guard.
        words: description of the failed guard.
        name: the checked value as the user writes it, for example `x` for `args[0]`; "" if unknown.
        guard: the guard as torch wrote it when it was created, "" if that is the reason itself.
        is_static: True if a fixed size was requested, for example with `dynamic=False`.
        is_late: True if the first compilation of the code had no guard on this tensor.
    """

    text: GuardText
    check: Check
    words: str
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
    return GuardObservation(text, check, _describe(check, subject), check.source)


def _describe(check: Check, subject: str) -> str:
    """Describe a failed guard.

    Args:
        check: the check.
        subject: the checked value in words, for checks whose words lack it.
    """
    if check.words:
        values = check.words.format(was=check.was, now=check.now or "different now")
        return f"{subject}: {values}"
    text = f"guard failed: {check.text}" if check.text else "torch does not name the failed guard"
    return f"{text} ({check.now})" if check.now else text


def _observe_in_entry(text: GuardText, miss: torch_private.CacheMiss) -> GuardObservation:
    """Observe a failed guard with the earlier compilation's guards and the current values."""
    entry = miss.entry(text.compile_id)
    # torch before 2.11 reports a different backend with an empty check
    if not text.check or text.check.startswith(BACKEND):
        return _observe_backends(text, entry, miss)
    names = {"G": miss.globals, **miss.locals}
    guards = [*torch_private.leaf_guards(entry)]
    check = check_of(text.check)
    if check.text.startswith("_has_dynamo_dim_marking"):
        # This text does not name the tensor: it is the first one that has marks now.
        texts = [text for guard in guards for text in guard.texts]
        marks = [check_of(parse(without_scope(t)).check) for t in texts if "_dynamo_" in t]
        check = next((mark for mark in marks if read(mark.read, names) is not UNKNOWN), check)
    # The reason for a tensor contains no line, but the guard of the earlier compilation does.
    guard = _NO_GUARD if text.lines else _find_guard(check.source, guards)
    lines = map(complete_path, (*text.lines, *guard.lines))
    name = _as_written(check.source, miss, names)
    subject = describe_source(name)
    if "cell_contents" in check.source or check.source in miss.code.co_freevars:
        subject = subject.replace("argument", "closure variable")
    check = check._replace(now=check.now or _describe_new_value(check, names, guards))
    # `mark_static` stores this attribute in the tensor.
    static = read(f"{check.source}._dynamo_static_indices", names)
    # Dynamo puts new entries first, so the last one is of the first compilation.
    early_guards = torch_private.leaf_guards(miss.entries[-1])
    early = {without_scope(g.source) for g in early_guards if g.kind == "TENSOR_MATCH"}
    return GuardObservation(
        text._replace(lines=tuple(lines), hints=(*text.hints, *guard.hints)),
        check,
        _as_written(_describe(check, subject), miss, names),
        name,
        # For other guards, the reason is the guard itself.
        guard.check * text.check.startswith(("tensor '", "expected type of '")),
        static is not UNKNOWN or attribute(miss.backend, "dynamic") is False,
        check.source not in early,
    )


def _as_written(text: str, miss: torch_private.CacheMiss, names: Mapping[str, Any]) -> str:
    """Write the sources in a text as the code does: `model` for the cell of a closure.

    Items of `*args` and `**kwargs` get the names of the parameters, if a wrapper can call only one
    function.
    """

    def name_cell(cell: re.Match[str]) -> str:
        # `__closure__` has the variables in the order of `co_freevars`.
        name = read(f"{cell[1]}.__code__.co_freevars[{cell[2]}]", names)
        return name if isinstance(name, str) else cell[0]

    # The names of `*args` and `**kwargs` in the code.
    _, args, kwargs = inspect.getargs(miss.code)
    text = re.sub(rf"\b{kwargs}\['(\w+)'\]", r"\1", _CELL.sub(name_cell, text))
    values = [miss.locals.get(name) for name in miss.code.co_freevars]
    calls = [inspect.getattr_static(type(value), "forward", value) for value in values]
    functions = [call for call in calls if issubclass(type(call), FunctionType | MethodType)]
    if len(functions) == 1:
        parameters = inspect.getargs(user_function(functions[0]).__code__).args
        for number, parameter in enumerate(name for name in parameters if name != "self"):
            text = re.sub(rf"\b{args}\[{number}\]", parameter, text)
    return text


def _find_guard(source: str, guards: Iterable[torch_private.LeafGuard]) -> GuardText:
    """Find the guard for a reason without a line.

    If there is none, return another guard of the same value, or of a part of it, created where that
    value was first used.
    """
    parts = (f"{source}[", f"list(dict.keys({source}))")
    # The first guard of each rank: 0 for the tensor guard of the value, 1 for another guard of the
    # value, 2 for a guard of a part.
    found: dict[int, GuardText] = {}
    for guard in guards:
        place, text = without_scope(guard.source), parse(without_scope(guard.texts[0]))
        if place == source and text.lines:
            found.setdefault(guard.kind != "TENSOR_MATCH", text)
        elif place.startswith(parts) and text.lines:
            found.setdefault(2, text)
    return found[min(found)] if found and source else _NO_GUARD


def _describe_new_value(
    check: Check, names: Mapping[str, Any], guards: Iterable[torch_private.LeafGuard]
) -> str:
    """Describe the current value of a guard's subject; "" if it cannot be read."""
    if check.read:
        return describe_value(read(check.read, names))
    # "GLOBAL_STATE changed: autocast" names the changed parts of the process state. In most other
    # texts, `kind` is the whole text.
    kind, _, state = check.text.partition(" changed: ")
    if kind == "GLOBAL_STATE":
        texts = [guard.texts[0] for guard in guards if guard.kind == kind]
        before = json.loads("".join(texts).partition(" against ")[2] or "{}")
        return "; ".join(_describe_state(name, before) for name in state.split())
    if kind == "check_torch_function_mode_stack()":
        modes = torch_private.torch_function_modes()
        return f"now {', '.join(describe_type(type(mode)) for mode in modes) or 'none'}"
    # An expression for which there are no words: describe what is in it.
    parts = read_parts(kind, names).items()
    return ", ".join(f"{part} is {describe_value(value)}" for part, value in parts)


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
    # A flag that changed had the opposite value. Before torch 2.11, "autocast" is many values.
    if was is None and isinstance(now, bool) and name != "autocast":
        was = not now
    return f"is {now}" if was is None else f"was {was}, is {now}"


def _observe_backends(
    text: GuardText, entry: Any, miss: torch_private.CacheMiss
) -> GuardObservation:
    """Find the two `torch.compile` objects that wrap one function."""
    text = text._replace(check=BACKEND, hints=tuple(_ADVICE.findall(text.check)))
    was = backend_in_words(getattr(entry, "backend", None))
    now = backend_in_words(miss.backend)
    words = f"compiled through {was}, called through {now}"
    # Equal descriptions, but the guard failed: the backends are two objects.
    words += ", whose backends are two objects" * (was == now)
    return GuardObservation(text, Check(BACKEND, was=was, now=now), words)


_SIZE = re.compile(r"tensor '.*' size mismatch at index (\d+)")
_FLOAT = re.compile(r"-?(?:\d+\.\d*(?:e[-+]?\d+)?|\d+e[-+]?\d+|inf|nan)")
_INT = re.compile(r"-?\d+")
_FIXED = re.compile(r"\.(?:size|stride)\(\)\[.* == \d+\Z")
"""The guard of a size that was dynamic and was fixed."""
_SYMBOL = r'\b{}_?: "Sym\('
"""A symbolic int input in a graph that Dynamo printed."""
_REMEDIES = (
    (
        STACK_VALUE,
        "{} is a value from before a graph break: remove the break; assert_no_graph_breaks() shows "
        "its line",
    ),
    ("torch.inference_mode", "make both in the same mode, and call in the same mode"),
    ("conjugated view", "call {}.resolve_conj() before each call"),
    ("negated view", "call {}.resolve_neg() before each call"),
    (
        "transform of torch.func",
        "compile the transformed function instead, torch.compile(vmap(f))",
    ),
    # torch compares sizes before strides, so the sizes were equal.
    (
        "stride of dim ",
        "call {}.contiguous() before each call (or, for images, with "
        "memory_format=torch.channels_last): then equal sizes have equal strides",
    ),
    (
        r"len\(.*\.state\[list\(dict\.keys\(",
        "an optimizer creates its state in its first step, so the second step recompiles: warm up "
        "with two steps",
    ),
    (" dims are ", "mark the dims of {} before the first call too"),
    # The guard of an int that is a size.
    (
        r"2 <= [\w.]+\Z",
        "a graph compiled for ints of at least 2 does not work for 0 and 1: warm up with 0 and 1 "
        "too",
    ),
)
"""Parts of the description of a guard, or of torch's text, with the remedy for the value `{}`."""
_SEPARATELY = "each compiles separately: use one of them, or warm up with each"


@dataclass(frozen=True)
class FailedGuard:
    """A guard of an earlier compilation that no longer held.

    Attributes:
        compile_id: id of the earlier compilation.
        words: the change, such as `self.calls: was 0, is 1`.
        guard: torch's text of the check, without object ids.
        was: the old value as text; "" if torch does not report it.
        now: the new value, "" if reading it would run the user's code.
        source: the user's line that created the guard; if torch does not report it, the line that
            first used the value. `None` if torch names no line of the user's.
        stack: frames at that line, outermost first, including torch's. The last frame created the
            guard. Before torch 2.13, and for tensors, there is only the last frame.
        hint: advice from torch or this package, and torch's remarks on the line; "" if there is
            none.
    """

    compile_id: str
    words: str
    guard: str
    was: str = ""
    now: str = ""
    source: Source | None = None
    stack: tuple[StackFrame, ...] = ()
    hint: str = ""

    def __str__(self) -> str:
        return "\n".join([f"{self.compile_id}: {self.words}", *details([self])])


def failed_guard(
    observation: GuardObservation,
    failed: Collection[GuardObservation],
    graphs: Sequence[str],
    fixed: Mapping[str, SizeFixed],
) -> FailedGuard:
    """Describe a failed guard.

    Args:
        observation: the details of the guard.
        failed: the details of the failed guards of all earlier compilations.
        graphs: the graphs of the new compilation, as Dynamo prints them.
        fixed: the fixed sizes of all compilations, by source.
    """
    text, source = observation.text, observation.check.source
    size = _SIZE.match(text.check)
    checked = f"{source}.size()[{size[1]}]" if size else source
    fix = fixed.get(checked)
    lines = text.stack or text.lines
    if fix is not None and str(fix.id) == text.compile_id:
        lines = fix.stack or lines
    *_, user = [None, *_of_user(lines)]  # the innermost line of the user's, if there is one
    # torch's remarks on the type of a value, and on its name.
    hints = [h for h in text.hints if not h.startswith(("type ", "(unknown ", 'guard on "'))]
    remedy = _find_remedy(observation, failed, graphs, fix) or _SEPARATELY * (not hints)
    return FailedGuard(
        text.compile_id,
        observation.words,
        tidy(observation.guard or text.check),
        observation.check.was,
        observation.check.now,
        user and Source(user.file, user.line, user.code, user.function),
        tuple(map(_to_stack_frame, lines)),
        "\n".join(filter(None, [*hints, remedy])),
    )


def _find_remedy(
    observation: GuardObservation,
    failed: Collection[GuardObservation],
    graphs: Sequence[str],
    fix: SizeFixed | None,
) -> str:
    """Return a remedy that is not among torch's hints, "" if there is none.

    The first remedy that fits counts: the rest of the code presumes that those above do not fit.
    """
    text, check, name = observation.text, observation.check, observation.name
    values = check.was, check.now
    size = _SIZE.match(text.check)
    # A float is no size: the learning rate of a compiled optimizer is below.
    if fix is not None and not all(map(_FLOAT.fullmatch, values)):
        subject = f"dim {size[1]} of {name}" if size else name
        when = "" if str(fix.id) == text.compile_id else f" (in compilation {fix.id})"
        return (
            f"{subject} {fixed_at(fix)}{when}\nonly code that works for every value compiles once: "
            "change that line, use one value (pad the input to one size), or warm up with each "
            "value"
        )
    for pattern, remedy in _REMEDIES:  # a pattern may be for the words or for torch's text
        if re.search(pattern, f"{observation.words}\n{text.check}"):
            return remedy.format(name)
    # A float that only torch's modules use cannot be a tensor.
    lines = _of_user(text.stack[-1:] or text.lines)
    if ("param_groups" in name or lines) and all(map(_FLOAT.fullmatch, values)):
        return (
            f"keep {name} as a tensor (torch.tensor(...), or a buffer of the module): "
            "torch.compile guards on the value of a float, but not of a tensor; an `if` on the "
            "tensor would break the graph"
        )
    # Dynamo's name for the graph input with this value.
    symbol = re.compile(_SYMBOL.format(re.sub(r"\W+", "_", f"L['{check.source}").strip("_")))
    if all(map(_INT.fullmatch, values)) and any(map(symbol.search, graphs)):
        return (
            "torch.compile makes an int symbolic once it has seen a second value, unless the code "
            "depends on the value: warm up with two values, or compile with dynamic=True"
        )
    if _is_fixed(text):
        return (
            "the compiler specialized this size, so mark_dynamic and dynamic=True do not help: "
            "pad the input to a few sizes, and warm up with each of them"
        )
    is_fixed = any(_is_fixed(other.text) for other in failed)
    if size is None or is_fixed or observation.is_static:
        return ""
    if {"0", "1"}.intersection(values):
        return (
            "sizes 0 and 1 always compile separately: pad the input, or call "
            f"torch._dynamo.decorators.mark_unbacked({name}, {size[1]}) before the first call"
        )
    if ", Parameter, " in observation.guard:
        return (
            "torch.compile fixes the sizes of parameters, also if they are marked: set "
            "torch._dynamo.config.force_parameter_static_shapes = False before the first call"
        )
    if observation.is_late:
        return (
            "the first compilation did not use this tensor, so it cannot be marked in time: "
            "compile with dynamic=True, or keep it at one size (in transformers: StaticCache)"
        )
    return (
        f"call torch._dynamo.mark_dynamic({name}, {size[1]}) before the first call, to compile "
        "once for all sizes of at least 2 (if a line requires one size, torch raises an error that "
        "names it). Also mark other tensors that share the size"
    )


def _of_user(lines: Iterable[GuardLine]) -> list[StackFrame]:
    """Return the lines in the user's files, as frames."""
    return [_to_stack_frame(line) for line in lines if is_user_file(line.file)]


def _is_fixed(text: GuardText) -> bool:
    """Return True if torch's own lowering, rather than the user's code, fixed a dynamic size."""
    return bool(_FIXED.search(text.check)) and not _of_user(text.stack or text.lines)


def fixed_at(fix: SizeFixed) -> str:
    """Return the number of a fixed size, and the user's line that required it."""
    lines = _of_user(fix.stack)
    place = f"at {lines[-1]}" if lines else "by torch's own code"
    return f"was dynamic and was fixed to {fix.value} {place}"


def made_at(line: str) -> str:
    """Return the place that torch names for a guard, as part of a sentence.

    Args:
        line: torch's words, with at least the end of the file's path; "" if no line is known.
    """
    for place in parse_comment(line)[0]:
        return f", made at {_to_stack_frame(complete_path(place))}"
    return ""


def _to_stack_frame(line: GuardLine) -> StackFrame:
    return StackFrame(relative(line.file), line.line, original_name(line.function), line.code)


def reasons(guards: Sequence[FailedGuard]) -> str:
    """Summarize the changes in one line.

    Guards of several compilations that differ only in the old value are named once.
    """
    alike = grouped((guard.words.replace(f"was {guard.was}, ", ""), guard) for guard in guards)
    summaries = []
    for guard, *earlier in alike.values():
        values = ", ".join(other.was for other in earlier if other.was != guard.was)
        summaries.append(guard.words + f" (was {values} in earlier compilations)" * bool(values))
    return "; ".join(summaries) or "torch does not name the failed guard"


def details(guards: Sequence[FailedGuard]) -> Iterator[str]:
    """Yield lines with the text, the origin and the remedies of each guard, without repetition."""
    lines = [f"guard of {guard.compile_id}: {guard.guard}" for guard in guards if guard.guard]
    for guard in guards:
        source = guard.source
        users = [
            f for f in guard.stack if source and (f.file, f.line) == (source.file, source.line)
        ]
        # The user's line first, even if a frame of torch's is the innermost.
        frames = [*dict.fromkeys([*users, *guard.stack[::-1]])]
        lines += [f"made at {frame}" for frame in frames[:1]]
        lines += [f"through {frame}" for frame in frames[1:]]
    for line in (line for guard in guards for line in guard.hint.splitlines()):
        lines.append(line if line.startswith(IN_TORCH) else f"hint: {line}")
    return (f"    {line}" for line in dict.fromkeys(lines))
