"""What ran in the frames of the user's code that Dynamo gave up on."""

from __future__ import annotations

import re
import sys
from dataclasses import dataclass
from types import CodeType, FrameType
from typing import Any

from .. import torch_private
from .roots import Roots
from .sources import is_user_file, relative
from .step import Step
from .world import preserved

_RESUMED = re.compile(r"torch_dynamo_resume_in_(.+)_at_(\d+)")


@dataclass(frozen=True)
class Skipped:
    """A frame that Dynamo gave up on, or the rest of one behind a graph break.

    Attributes:
        name, file, line: of its code object.
        reason: Dynamo's words.
    """

    name: str
    file: str
    line: int
    reason: str

    def is_of(self, code: CodeType) -> bool:
        """Whether this was (a part of) a frame of that code."""
        resumed = _RESUMED.fullmatch(self.name)
        if code.co_filename != self.file or code.co_name != (resumed[1] if resumed else self.name):
            return False
        if resumed is None:
            return code.co_firstlineno == self.line
        return any(line == int(resumed[2]) for _, _, line in code.co_lines())


def lost(skipped: list[Skipped], step: Step) -> str:
    """The first of these frames that runs operations itself, in words; "" if none does.

    Frames that a skipped one calls are compiled by themselves, so one that only calls others, as a
    decorator does, loses nothing. Dynamo tells nothing of what a skipped frame runs: the target is
    called once more, eagerly, to see which frames its operations come from.
    """
    watch = _Watch()
    with preserved(Roots(step.target, step.args, step.kwargs)), watch:
        step.target(*step.args, **step.kwargs)
    for frame in skipped:
        codes = [code for code in watch.ops if frame.is_of(code)]
        ops = list(dict.fromkeys(op for code in codes for op in watch.ops[code]))
        if ops:
            more = f" and {len(ops) - 3} more" if ops[3:] else ""
            return (
                f"{frame.name} at {relative(frame.file)}:{frame.line}, which runs "
                f"{', '.join(ops[:3])}{more}: {frame.reason.strip()}"
            )
    return ""


class _Watch(torch_private.TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Notes the ops that run, each by the innermost frame of the user's code.

    Code of torch.nn counts as its caller's: Dynamo compiles it only together with that.
    """

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.ops: dict[CodeType, list[str]] = {}

    @classmethod
    def ignore_compile_internals(cls) -> bool:
        """Without this Dynamo would never again compile a frame that ran under the mode."""
        return True

    def __torch_dispatch__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Any = None
    ) -> Any:
        frame: FrameType | None = sys._getframe(1)
        while frame is not None and not is_user_file(frame.f_code.co_filename):
            frame = frame.f_back
        if frame is not None:
            self.ops.setdefault(frame.f_code, []).append(str(func))
        return func(*args, **(kwargs or {}))
