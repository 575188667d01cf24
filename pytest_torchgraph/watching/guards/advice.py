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
from .descriptions import tidy
from .observation import GuardObservation
from .read import IN_TORCH, GuardLine, GuardText, parse_comment

if TYPE_CHECKING:
    from ..observe import SizeFixed

_SIZE = re.compile(r"tensor '.*' size mismatch at index (\d+)")
_FLOAT = re.compile(r"-?(?:\d+\.\d*(?:e[-+]?\d+)?|\d+e[-+]?\d+|inf|nan)")
_INT = re.compile(r"-?\d+")
_FIXED = re.compile(r"\.(?:size|stride)\(\)\[.* == \d+\Z")
"""The guard of a size that was dynamic and was fixed."""
_SYMBOL = r'\b{}_?: "Sym\('
"""A symbolic int input in a graph that Dynamo printed."""
_CACHE_MISS = "Cache miss due to "
"""Prefix of compiled autograd's reason for a capture. `FailedGuard.words` contains all of it."""
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
    ("is marked by ", "mark it before the first call too"),
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
    text, source = observation.text, observation.check.source
    size = _SIZE.match(text.check)
    checked = f"{source}.size()[{size[1]}]" if size else source
    fixes = [compilation.get(checked) for compilation in fixed]
    fix = next(filter(None, fixes), None)
    lines = text.stack or text.lines
    if fix is not None and fix is fixes[0]:
        lines = fix.stack or lines
    user_lines = [line for line in lines if is_user_file(line.file)]
    # torch's remarks on the type of a value, and on its name.
    hints = [h for h in text.hints if not h.startswith(("type ", "(unknown ", 'guard on "'))]
    remedy = _find_remedy(observation, others, graphs, fix)
    if remedy == _SEPARATELY and hints:
        remedy = ""
    return FailedGuard(
        text.compile_id,
        observation.words,
        tidy(observation.guard or text.check),
        observation.check.was,
        observation.now,
        _to_source(user_lines[-1]) if user_lines else None,
        tuple(map(_to_stack_frame, lines)),
        "\n".join(filter(None, [*hints, remedy])),
    )


def _find_remedy(
    observation: GuardObservation,
    others: Collection[GuardObservation],
    graphs: Sequence[str],
    fix: SizeFixed | None,
) -> str:
    """Return a remedy that is not among torch's hints, "" if there is none."""
    text, check, name = observation.text, observation.check, observation.name
    values = check.was, observation.now
    if fix is not None:
        return _describe_fix(fix, observation)
    for pattern, remedy in _REMEDIES:
        if any(re.search(pattern, where) for where in (observation.words, text.check)):
            return remedy.format(name)
    # A float that only torch's modules use cannot be a tensor.
    lines = text.stack[-1:] or text.lines
    is_users = "param_groups" in name or any(is_user_file(line.file) for line in lines)
    if is_users and all(map(_FLOAT.fullmatch, values)):
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
    size = _SIZE.match(text.check)
    is_fixed = any(_is_fixed(other.text) for other in others)
    if size is None or is_fixed or observation.is_static:
        return _SEPARATELY
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


def _is_fixed(text: GuardText) -> bool:
    """Return True if torch's own lowering, rather than the user's code, fixed a dynamic size."""
    lines = text.stack or text.lines
    return bool(_FIXED.search(text.check)) and not any(is_user_file(line.file) for line in lines)


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
    size = _SIZE.match(observation.text.check)
    name = f"{f'dim {size[1]} of ' if size else ''}{observation.name}"
    when = "" if str(fix.id) == observation.text.compile_id else f" (in compilation {fix.id})"
    what, one = ("size", "pad the input to one size") if size else ("value", "use one value")
    return (
        f"{name} {fixed_at(fix)}{when}\nonly code that works for every {what} compiles once: "
        f"change that line, {one}, or warm up with each {what}"
    )


def _to_source(line: GuardLine) -> Source:
    return Source(relative(line.file), line.line, line.code, original_name(line.function))


def _to_stack_frame(line: GuardLine) -> StackFrame:
    return StackFrame(relative(line.file), line.line, original_name(line.function), line.code)


def reasons(guards: Sequence[FailedGuard]) -> str:
    """Summarize the changes in one line."""
    summaries = []
    for guard, *earlier in _group_alike(guards):
        values = ", ".join(other.was for other in earlier if other.was != guard.was)
        summaries.append(guard.words + f" (was {values} in earlier compilations)" * bool(values))
    return "; ".join(summaries) or "torch does not name the failed guard"


def details(guards: Sequence[FailedGuard]) -> Iterator[str]:
    """Yield lines with the text, the origin and the remedies of each guard, without repetition."""
    lines = [
        f"guard of {', '.join(guard.compile_id for guard in group)}: {group[0].guard}"
        for group in _group_alike(guards)
        if group[0].guard and not group[0].guard.startswith(_CACHE_MISS)
    ]
    for guard in guards:
        if guard.stack:
            # The user's line, else the last frame.
            user = guard.source
            is_user = [user and (user.file, user.line) == (f.file, f.line) for f in guard.stack]
            index = is_user.index(True) if True in is_user else -1
            lines.append(f"made at {guard.stack[index]}")
            lines += [f"through {frame}" for frame in guard.stack[index:][1:]]
            lines += [f"from {frame}" for frame in guard.stack[:index][::-1]]
    for line in (line for guard in guards for line in guard.hint.splitlines()):
        lines.append(line if line.startswith(IN_TORCH) else f"hint: {line}")
    return (f"    {line}" for line in dict.fromkeys(lines))


def _group_alike(guards: Sequence[FailedGuard]) -> Iterable[list[FailedGuard]]:
    """Group guards that differ only in the old value."""
    groups: dict[str, list[FailedGuard]] = {}
    for guard in guards:
        groups.setdefault(guard.words.replace(f"was {guard.was}, ", ""), []).append(guard)
    return groups.values()
