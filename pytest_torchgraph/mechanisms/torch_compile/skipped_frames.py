"""Regions of the target that Dynamo left to the interpreter, and the refusal of those that compute.

The kinds: a frame that was skipped (`SkippedFrame`), the rest of a function behind a graph break
from which Dynamo cannot resume (`AfterBreak`), a call of torch's own Python code with a break in it
(`TorchFrame`), and functions that were being called at a break (`CalledAtBreak`). A capture that
records what runs eagerly has it in graphs, and refuses none of them.
"""

from __future__ import annotations

import dis
import itertools
import linecache
import sys
from collections.abc import Sequence, Set
from dataclasses import dataclass
from types import CodeType, FrameType
from typing import Any, NamedTuple, Protocol

from ... import torch_private
from ...convert.source_lines import is_torch_file, is_user_file, relative, resumed
from ...errors import CaptureError
from ...words import listed
from ..step.invocation import Invocation
from ..step.saved_state import preserve_state

_ADVICE = (
    "\nChange that code, capture the rest without it, or use via='dispatch', which sees what runs."
)
RECORDED_BY_AOT = (
    "\nvia='aot' captures what runs eagerly beside compiled graphs too, in capture.eager."
)
"""Advice where something was compiled; where nothing was, via='aot' refuses as well."""
_CHECKPOINT = ("utils", "checkpoint.py")
_Place = tuple[str, int, str, str]
"""File, line, function and code of a frame."""


class ExecutedOp(NamedTuple):
    """An op that ran.

    Attributes:
        name: of the op.
        code, offset, line: where the innermost frame of the user's code was; None and 0 where there
            is none.
        through: file and function of the frames of torch's that this one had called.
        checkpointed: whether torch.utils.checkpoint was running.
    """

    name: str
    code: CodeType | None
    offset: int
    line: int
    through: frozenset[tuple[str, str]]
    checkpointed: bool = False


class UncompiledRegion(Protocol):
    """A region of code that ran eagerly, though the target was compiled."""

    def has(self, op: ExecutedOp) -> bool:
        """True for an op that ran in it, and not in a callee that was compiled by itself."""
        ...

    def describe(self, ops: Sequence[ExecutedOp]) -> str:
        """The refusal in words: what happened, where and why.

        Args:
            ops: what ran there.
        """
        ...


@dataclass(frozen=True)
class SkippedFrame:
    """A frame that Dynamo gave up on, or the rest of one behind a graph break.

    Attributes:
        name, file, line: of its code object.
        broke_in, broke_at, reason: as in `AfterBreak`.
    """

    name: str
    file: str
    line: int
    broke_in: str
    broke_at: int
    reason: str

    def has(self, op: ExecutedOp) -> bool:
        """True for an op of a frame of this code, behind the break where it is the rest of one."""
        behind = resumed(self.name)[1]
        return _is_of(op.code, self.name, self.file, self.line) and (
            behind is None or op.offset >= begin_of(op.code, behind)
        )

    def describe(self, ops: Sequence[ExecutedOp]) -> str:
        """The refusal in words: what happened, where and why."""
        code = linecache.getline(self.broke_in, self.broke_at).strip()
        return (
            "Dynamo gave up on a frame of the target and ran it eagerly, so its operations are in "
            f"no graph. {resumed(self.name)[0]} at {relative(self.file)}:{self.line}, which runs "
            f"{_names(ops)}. It broke at {relative(self.broke_in)}:{self.broke_at}: {code}\n"
            f"{self.reason}"
        )


@dataclass(frozen=True)
class AfterBreak:
    """The rest of a function, behind a graph break from which Dynamo cannot resume.

    Attributes:
        name, file, line: of the code object.
        begin: the line from which on nothing is compiled, where the last whole statement ended.
        broke_in, broke_at: file and line of the break.
        reason: kind and reason of the break.
    """

    name: str
    file: str
    line: int
    begin: int
    broke_in: str
    broke_at: int
    reason: str

    def has(self, op: ExecutedOp) -> bool:
        """True for an op of a frame of this code, from that line on."""
        of = _is_of(op.code, self.name, self.file, self.line)
        return of and op.offset >= begin_of(op.code, self.begin)

    def describe(self, ops: Sequence[ExecutedOp]) -> str:
        """The refusal in words: what happened, where and why."""
        code = linecache.getline(self.broke_in, self.broke_at).strip()
        return (
            "Dynamo could not resume behind a graph break, and ran the rest of the function "
            f"eagerly, so its operations are in no graph. {resumed(self.name)[0]} at "
            f"{relative(self.file)}:{self.begin} and behind, which runs {_names(ops)}. It broke at "
            f"{relative(self.broke_in)}:{self.broke_at}: {code}\n{self.reason}"
        )


@dataclass(frozen=True)
class TorchFrame:
    """A call of Python code of torch's, inside which Dynamo broke the graph.

    Attributes:
        name, file, line: the place of the call; all of it ran eagerly, but for what it calls of the
            user's code.
        within: file and function of what is called.
        broke_in, broke_at, reason: as in `AfterBreak`.
    """

    name: str
    file: str
    line: int
    within: tuple[str, str]
    broke_in: str
    broke_at: int
    reason: str

    def has(self, op: ExecutedOp) -> bool:
        """True for an op of torch's code that was called there."""
        code = op.code
        if code is None or (code.co_filename, code.co_name) != (self.file, resumed(self.name)[0]):
            return False
        return op.line == self.line and self.within in op.through

    def describe(self, ops: Sequence[ExecutedOp]) -> str:
        """The refusal in words: what happened, where and why."""
        code = linecache.getline(self.broke_in, self.broke_at).strip()
        file, function = self.within
        return (
            "Dynamo broke the graph inside torch's own code, which it compiles only together with "
            "the code that calls it, so what torch's code runs there is in no graph. "
            f"{function} at {relative(file)}, called at {relative(self.file)}:{self.line}, runs "
            f"{_names(ops)}. It broke at {relative(self.broke_in)}:{self.broke_at}: {code}\n"
            f"{self.reason}"
        )


@dataclass(frozen=True)
class CalledAtBreak:
    """The functions that a compiled one called where the graph broke, inside the last of them.

    Dynamo compiles each of them by itself when the call is made, but not where torch switches it
    off around the call, as `torch.utils.checkpoint` does outside of a graph.

    Attributes:
        stack: at the break.
        tried: name, file and line of each code object that Dynamo has tried to compile, in the end.
        reason: kind and reason of the break.
    """

    stack: tuple[_Place, ...]
    tried: Set[tuple[str, str, int]]
    reason: str

    def has(self, op: ExecutedOp) -> bool:
        """True for an op of one of the functions of which Dynamo compiled nothing."""
        code = op.code
        if code is None or any(_is_of(code, *each) for each in self.tried):
            return False
        lines = {line for _, _, line in code.co_lines()}
        return any(
            (file, resumed(name)[0]) == (code.co_filename, code.co_name) and line in lines
            for file, line, name, _ in self.untried
        )

    @property
    def untried(self) -> Sequence[_Place]:
        """The user's frames below the one that was compiled whose name no compilation has."""
        names = {(file, name) for name, file, _ in self.tried}
        below = itertools.dropwhile(lambda each: (each[0], each[2]) not in names, self.stack)
        return [each for each in below if is_user_file(each[0]) and (each[0], each[2]) not in names]

    def describe(self, ops: Sequence[ExecutedOp]) -> str:
        """The refusal in words: what happened, where and why."""
        users = [frame for frame in self.stack if is_user_file(frame[0])]
        file, line, name, _ = (users or self.stack)[-1]
        place = f"{relative(file)}:{line} in {resumed(name)[0]}"
        code = linecache.getline(file, line).strip()
        by_itself = "Dynamo did not compile it by itself"
        if any(op.checkpointed for op in ops):
            by_itself = "torch.utils.checkpoint switches Dynamo off around the call"
        return (
            "A function that the target calls ran eagerly, because a graph break in it keeps it "
            f"out of its caller's graph, and {by_itself}. So its operations are in no graph. It "
            f"runs {_names(ops)}. It broke at {place}: {code}\n"
            f"{self.reason}"
        )


def torch_frames(stack: Sequence[_Place], reason: str) -> list[TorchFrame]:
    """The calls of torch's code, the machinery around all code apart, in the stack at a break."""
    found = []
    users: _Place | None = None
    for frame in stack:
        file, function = frame[0], frame[2]
        if is_user_file(file):
            users = frame
        elif users is not None and is_torch_file(file) and not _is_machinery(file):
            in_file, at = stack[-1][:2]
            place = users[2], users[0], users[1]
            found.append(TorchFrame(*place, (file, function), in_file, at, reason))
    return found


def _is_machinery(file: str) -> bool:
    """Whether a file of torch's is around everything, and computes nothing."""
    return is_torch_file(file, "_dynamo") or is_torch_file(file, "nn", "modules", "module.py")


def refuse_uncompiled(
    given_up: Sequence[UncompiledRegion], invocation: Invocation, *, compiled: bool
) -> None:
    """Refuse a capture in which one of these ran operations itself.

    Frames that are called from there are compiled by themselves, so one that only calls others, as
    a decorator does, loses nothing. Dynamo tells nothing of what runs there: the target is called
    once more, eagerly, to see where its operations come from.

    Args:
        given_up: what Dynamo left to the interpreter.
        invocation: the target and its arguments.
        compiled: whether anything else was compiled.

    Raises:
        CaptureError: for the first of them that runs any.
    """
    given_up = [each for each in given_up if not isinstance(each, CalledAtBreak) or each.untried]
    if not given_up:
        return
    watch = _Watch()
    with preserve_state(invocation.named), watch:
        invocation.call()
    for each in given_up:
        ops = [op for op in watch.ops if each.has(op)]
        if ops:
            advice = RECORDED_BY_AOT if compiled else ""
            raise CaptureError(f"{each.describe(ops)}{_ADVICE}{advice}")


def _names(ops: Sequence[ExecutedOp]) -> str:
    return listed(dict.fromkeys(op.name for op in ops), 3)


def _is_of(code: CodeType | None, name: str, file: str, line: int) -> bool:
    """True for the code object of this name and place, or the one that Dynamo resumes in it."""
    name, behind = resumed(name)
    if code is None or (code.co_filename, code.co_name) != (file, name):
        return False
    if behind is None:
        return code.co_firstlineno == line
    return any(line == behind for _, _, line in code.co_lines())


def begin_of(code: CodeType | None, line: int) -> int:
    """The offset from which on code runs that runs at or behind this line.

    In a loop that is where the loop begins.
    """
    assert code is not None
    found = min((start for start, _, at in code.co_lines() if at == line), default=0)
    jumps = [
        (each.offset, each.argval)
        for each in dis.get_instructions(code)
        if each.opcode in _JUMPS and each.argval < each.offset
    ]
    for offset, target in sorted(jumps, reverse=True):
        if target < found <= offset:
            found = target
    return found


_JUMPS = frozenset({*dis.hasjrel, *dis.hasjabs})


class _Watch(torch_private.TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Notes the ops that run, each by the innermost frame of the user's code."""

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.ops: list[ExecutedOp] = []

    @classmethod
    def ignore_compile_internals(cls) -> bool:
        """Without this Dynamo would never again compile a frame that ran under the mode."""
        return True

    def __torch_dispatch__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Any = None
    ) -> Any:
        frame: FrameType | None = sys._getframe(1)
        through = set()
        while frame is not None and not is_user_file(frame.f_code.co_filename):
            through.add((frame.f_code.co_filename, frame.f_code.co_name))
            frame = frame.f_back
        name, called, inner = str(func), frozenset(through), frame
        while frame is not None and not is_torch_file(frame.f_code.co_filename, *_CHECKPOINT):
            frame = frame.f_back
        code = None if inner is None else inner.f_code
        offset, line = (0, 0) if inner is None else (inner.f_lasti, inner.f_lineno)
        self.ops.append(ExecutedOp(name, code, offset, line, called, frame is not None))
        return func(*args, **(kwargs or {}))
