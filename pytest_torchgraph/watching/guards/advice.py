"""Failed guards as values, with the remedy for each."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from ...convert.placeholders import STACK_VALUE
from ...convert.source_lines import is_user_file, original_name, relative
from ...graph.events import StackFrame
from ...graph.model import Source
from .descriptions import mask_run_details, simplify_guard, sizes_in
from .observation import GuardObservation
from .read import IN_TORCH, GuardLine, parse_comment

if TYPE_CHECKING:
    from ..observe import SizeFixed

_SIZE = re.compile(r"size of dim (\d+)")
_FLOAT = re.compile(r"-?(?:\d+\.\d*(?:e[-+]?\d+)?|\d+e[-+]?\d+|inf|nan)")
_INT = re.compile(r"-?\d+")
_SYMBOL = r'\b{}_?: "Sym\('
"""A symbolic int input in a graph that Dynamo printed."""
_FIXED = re.compile(r" == \d+\Z")
_FROM_2_ON = re.compile(r"2 <= [\w.]+")
"""The guard of an int that is a size; torch specializes on 0 and 1."""
_STATE = re.compile(r"len\(.*\.state\[list\(dict\.keys\(")
"""The guard on the number of values that an optimizer keeps for a parameter."""
_CACHE_MISS = "Cache miss due to "
"""Prefix of compiled autograd's reason for a capture. `FailedGuard.words` contains all of it."""
_SEPARATELY = "each compiles separately: use one of them, or warm up with each"
_REMEDIES = (
    ("torch.inference_mode", "make both in the same mode, and call in the same mode"),
    ("conjugated view", "call {}.resolve_conj() before each call"),
    ("negated view", "call {}.resolve_neg() before each call"),
    ("transform of torch.func", "compile the transformed function instead, torch.compile(vmap(f))"),
    (": requires_grad was ", _SEPARATELY),
    (": dtype was ", _SEPARATELY),
    (": was a ", _SEPARATELY),
    ("global state: ", _SEPARATELY),
)
"""Words of failed guards, with the remedy, in which `{}` is the tensor."""
_FEW = 3
"""Largest group of guards, equal except for the old value, that is still listed one by one."""


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
    others: Collection[GuardObservation] = (),
    graphs: Sequence[str] = (),
    fixed: Sequence[Mapping[str, SizeFixed]] = (),
) -> FailedGuard:
    """Describe a failed guard.

    Args:
        observation: the details of the guard.
        others: the details of the failed guards of the other earlier compilations.
        graphs: the graphs of the new compilation, as Dynamo prints them.
        fixed: the fixed sizes of each compilation, by source; the guard's own compilation first.
    """
    text, check = observation.text, observation.check
    lines = text.stack or text.lines
    size = _SIZE.search(check.words)
    source = f"{check.subject}.size()[{size[1]}]" if size else check.subject
    fixes = [compilation.get(source) for compilation in fixed]
    fix = next(filter(None, fixes), None)
    if fix is not None and fix is fixes[0]:
        lines = fix.stack or lines
    user_lines = [line for line in lines if is_user_file(line.file)]
    hints = [hint for hint in text.hints if not hint.startswith(("type ", "(unknown "))]
    remedy = _find_remedy(observation, others, graphs, fix)
    return FailedGuard(
        text.compile_id,
        observation.words,
        mask_run_details(observation.guard or text.check),
        check.was,
        check.now or observation.now,
        _to_source(user_lines[-1]) if user_lines else None,
        tuple(map(_to_stack_frame, lines)),
        "\n".join([*hints, remedy] if remedy else hints),
    )


def _find_remedy(
    observation: GuardObservation,
    others: Collection[GuardObservation],
    graphs: Sequence[str],
    fix: SizeFixed | None,
) -> str:
    """Return a remedy that is not among torch's hints, "" if there is none."""
    subject = observation.check.subject
    if subject.startswith(STACK_VALUE):
        return (
            f"{subject} is a value from before a graph break: remove the break; "
            "assert_no_graph_breaks() shows its line"
        )
    name = observation.name or subject
    for words, remedy in _REMEDIES:
        if words in observation.words:
            return remedy.format(name)
    if _STATE.search(observation.text.check):
        return (
            "an optimizer creates its state in its first step, so the second step recompiles: "
            "warm up with two steps"
        )
    if _is_float_that_may_be_a_tensor(observation):
        return (
            f"keep {observation.words.partition(': was ')[0]} as a tensor (torch.tensor(...), or a "
            "buffer of the module): torch.compile guards on the value of a float, but not of a "
            "tensor; an `if` on the tensor would break the graph"
        )
    if fix is not None:
        return _describe_fix(fix, observation)
    was_symbol = any(_FROM_2_ON.fullmatch(simplify_guard(other.text.check)) for other in others)
    if (_is_symbol(observation, graphs) and not was_symbol) or (
        not others and _is_int_of_an_argument(observation)
    ):
        return (
            "torch.compile makes an int symbolic once it has seen a second value, unless the code "
            "depends on the value: warm up with two values, or compile with dynamic=True"
        )
    if _FROM_2_ON.fullmatch(simplify_guard(observation.text.check)):
        return (
            "a graph compiled for ints of at least 2 does not work for 0 and 1: warm up with 0 "
            "and 1 too"
        )
    values = {observation.check.was, observation.check.now or observation.now}
    if observation.check.reads == "value" and values == {"True", "False"}:
        return "each value of a bool compiles separately: warm up with both"
    if _is_fixed(observation):
        return (
            "the compiler specialized this size, so mark_dynamic and dynamic=True do not help: "
            "pad the input to a few sizes, and warm up with each of them"
        )
    is_tensor = observation.text.check.startswith("tensor '")
    named = not subject.startswith("___")  # "___": a value passed to a resumed frame
    if is_tensor and named and "stride of dim " in observation.check.words:
        # torch compares sizes before strides, so the sizes were equal.
        return (
            f"call {name}.contiguous() before each call (or, for images, with "
            "memory_format=torch.channels_last): then equal sizes have equal strides"
        )
    size = _SIZE.search(observation.check.words) if is_tensor else None
    if size is not None and named and not observation.is_static:
        if not values.isdisjoint(("0", "1")):
            return (
                "sizes 0 and 1 always compile separately: pad the input, or call "
                f"torch._dynamo.decorators.mark_unbacked({name}, {size[1]}) before the first "
                "call"
            )
        fixed = (
            fixed_size
            for other in others
            if _is_fixed(other)
            for fixed_size in sizes_in(other.text.check)
        )
        if (subject, "size", int(size[1])) in fixed:
            return ""
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
            f"call torch._dynamo.mark_dynamic({name}, {size[1]}) before the first call, to "
            "compile once for all sizes of at least 2 (if a line requires one size, torch raises "
            "an error that names it). Also mark other tensors that share the size"
        )
    return ""


def fixed_at(fix: SizeFixed) -> str:
    """Return the number of a fixed size, and the user's line that required it."""
    lines = [line for line in fix.stack if is_user_file(line.file)]
    place = f"at {_to_stack_frame(lines[-1])}" if lines else "by torch's own code"
    return f"was dynamic and was fixed to {fix.value} {place}"


def made_at(line: str, files: Iterable[str]) -> str:
    """Return the place that torch names for a guard, as part of a sentence.

    Args:
        line: torch's words, with at least the end of the file's path.
        files: the possible files.
    """
    for place in parse_comment(line)[0]:
        file = next((file for file in files if file.endswith(place.file)), place.file)
        return f", made at {_to_stack_frame(place._replace(file=file))}"
    return ", which no line of the code requires"


def _describe_fix(fix: SizeFixed, observation: GuardObservation) -> str:
    size = _SIZE.search(observation.check.words)
    name = f"{f'dim {size[1]} of ' if size else ''}{observation.name or observation.check.subject}"
    when = "" if str(fix.id) == observation.text.compile_id else f" (in compilation {fix.id})"
    what, one = ("size", "pad the input to one size") if size else ("value", "use one value")
    return (
        f"{name} {fixed_at(fix)}{when}\nonly code that works for every {what} compiles once: "
        f"change that line, {one}, or warm up with each {what}"
    )


def _is_symbol(observation: GuardObservation, graphs: Sequence[str]) -> bool:
    """Return True if an int, for example in a dict, is a symbol in Dynamo's printed graphs."""
    if observation.check.reads != "value" or _INT.fullmatch(observation.check.was) is None:
        return False
    symbol = re.compile(_SYMBOL.format(_input_name(observation.check.subject)))
    return any(map(symbol.search, graphs))


def _input_name(subject: str) -> str:
    """Return Dynamo's name for the graph input with this value, without its suffix."""
    return re.sub(r"\W+", "_", f"L['{subject}").strip("_")


def _is_fixed(observation: GuardObservation) -> bool:
    """Return True if torch's own lowering, rather than the user's code, fixed a dynamic size."""
    lines = observation.text.stack or observation.text.lines
    return (
        observation.check.reads == "sizes"
        and _FIXED.search(observation.text.check) is not None
        and not any(is_user_file(line.file) for line in lines)
    )


def _is_int_of_an_argument(observation: GuardObservation) -> bool:
    """Return True if an int argument of a call changed."""
    values = (observation.check.was, observation.check.now or observation.now)
    return (
        observation.check.reads == "value"
        and observation.words.startswith("argument ")
        and not observation.is_static
        and all(map(_INT.fullmatch, values))
    )


def _is_float_that_may_be_a_tensor(observation: GuardObservation) -> bool:
    """Return True if a float that the user's code or an optimizer uses changed."""
    check = observation.check
    values = (check.was, check.now or observation.now)
    if check.reads != "value" or not all(map(_FLOAT.fullmatch, values)):
        return False
    if check.subject.startswith("___"):  # a value passed to a resumed frame
        return False
    lines = observation.text.stack[-1:] or observation.text.lines
    return "param_groups" in check.subject or any(is_user_file(line.file) for line in lines)


def _to_source(line: GuardLine) -> Source:
    return Source(relative(line.file), line.line, line.code, original_name(line.function))


def _to_stack_frame(line: GuardLine) -> StackFrame:
    return StackFrame(relative(line.file), line.line, original_name(line.function), line.code)


def reasons(guards: Sequence[FailedGuard]) -> str:
    """Summarize the changes in one line."""
    groups = _group_alike(guards)
    return (
        "; ".join(dict.fromkeys(map(_describe_group, groups)))
        or "torch does not name the failed guard"
    )


def details(guards: Sequence[FailedGuard]) -> Iterator[str]:
    """Yield lines with the text, the origin and the remedies of each guard, without repetition."""
    lines = {
        f"guard of {', '.join(g.compile_id for g in group)}: {simplify_guard(group[0].guard)}": None
        for group in _group_alike(guards)
        if group[0].guard and not group[0].guard.startswith(_CACHE_MISS)
    }
    for guard in guards:
        user_index = _find_user_frame(guard)
        if guard.stack:
            lines[f"made at {guard.stack[user_index]}"] = None
            lines.update({f"through {frame}": None for frame in guard.stack[user_index + 1 :]})
            lines.update({f"from {frame}": None for frame in guard.stack[:user_index][::-1]})
    hints = [line for guard in guards for line in guard.hint.splitlines()]
    lines.update({line if line.startswith(IN_TORCH) else f"hint: {line}": None for line in hints})
    return (f"    {line}" for line in lines)


def _find_user_frame(guard: FailedGuard) -> int:
    """Return the index of the user's line in the stack, else of the last frame."""
    source = guard.source
    for number, frame in enumerate(guard.stack):
        if source is not None and (source.file, source.line) == (frame.file, frame.line):
            return number
    return len(guard.stack) - 1


def _group_alike(guards: Sequence[FailedGuard]) -> list[list[FailedGuard]]:
    """Group guards that differ only in the old value, if there are more than `_FEW`."""
    groups: dict[tuple[str, str], list[FailedGuard]] = {}
    for guard in guards:
        words = guard.words.replace(guard.was, "", 1) if guard.was else guard.words
        groups.setdefault((words, guard.was and guard.now), []).append(guard)
    return [
        part
        for group in groups.values()
        for part in ([group] if len(group) > _FEW else [[guard] for guard in group])
    ]


def _describe_group(group: list[FailedGuard]) -> str:
    earlier = ", ".join(guard.was for guard in group[1:])
    return group[0].words + (f" (was {earlier} in earlier compilations)" if earlier else "")
