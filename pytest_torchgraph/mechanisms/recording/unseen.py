"""The refusal of a step of which something ran unseen: in a thread, or inside an op.

A dispatch mode is of one thread. What another one computes is in no record, and shows only where
its result is used.
"""

from __future__ import annotations

import contextlib
import sys
import threading
from collections.abc import Callable, Iterator
from types import FrameType
from typing import Any

from ... import torch_private
from ...convert import source_lines
from ...errors import CaptureError
from .mode import RecordingMode, line_of_target
from .writes import UnseenWrites

_COMPUTE_NOTHING = (
    "tqdm.",
    "torch._inductor.",
    "torch._dynamo.",
)
"""Beginnings of the modules whose threads compute nothing; torch.fx shows its progress by tqdm."""


@contextlib.contextmanager
def threads_started(
    recorder: RecordingMode, ignored: Callable[[], bool] = lambda: False
) -> Iterator[list[str]]:
    """The names of the threads that start inside, as a list that grows.

    From the first one on the recorder follows who writes into the tensors that it knows.

    Not among them are those of tqdm and of torch's compilers. Threads that exist already, and those
    of C++ or of `_thread`, are not noticed.

    Args:
        ignored: asked when a thread starts: whether it is of no concern, as the pools are that
            torch starts while it compiles.
    """
    names: list[str] = []
    before = threading.getprofile()

    def begins(frame: FrameType, event: Any, argument: Any) -> None:
        thread = threading.current_thread()
        if not ignored() and not _module_of(thread).startswith(_COMPUTE_NOTHING):
            names.append(thread.name)
            if recorder.writes is None:
                recorder.writes = UnseenWrites(recorder)
        sys.setprofile(before)  # this thread's; the hook has done its work
        if before is not None:
            before(frame, event, argument)

    threading.setprofile(begins)
    try:
        yield names
    finally:
        # What the target itself set stays.
        if threading.getprofile() is begins:
            threading.setprofile(before)


@contextlib.contextmanager
def precompiled_noted(recorder: RecordingMode) -> Iterator[None]:
    """Note where the target calls what `torch.compiler.precompile.load` gave."""

    def note(module: Any) -> None:
        recorder.precompiled.append(line_of_target())

    with torch_private.on_precompiled_call(note):
        yield


def refuse_unseen(recorder: RecordingMode, threads: list[str]) -> None:
    """Refuse what was recorded where a value came from nowhere.

    A tensor that autograd knows an op for came from an op that was not seen, unless it is known to
    be older. A leaf may be a constant, as a global tensor is; but not where a thread was started
    meanwhile.

    Args:
        threads: names of the threads that were started while it recorded.

    Raises:
        CaptureError: with the place where the value came up.
    """
    started = ", ".join(dict.fromkeys(threads))
    if recorder.writes is not None:
        recorder.writes.look_at_all()
        for write in recorder.writes.found:
            what = (
                f"{write.role} {write.name}" if write.role else "a tensor that the target computed"
            )
            at = "" if write.line is None else f" before {source_lines.described(write.line)}"
            raise CaptureError(
                f"something ran unseen, and would be missing in the graphs: {what} was written to"
                f"{at}, by no op that was recorded. A thread that was started meanwhile "
                f"({started}) may have done it. Write to it in the thread that calls the target"
            )
    for line in recorder.precompiled:
        at = "" if line is None else f" at {source_lines.described(line)}"
        raise CaptureError(
            f"code of torch.compiler.precompile ran{at}: its kernels run unseen, and would be "
            "missing in the graphs. Capture the function that it was made from"
        )
    for stranger in recorder.strangers:
        if stranger.age == "outside":
            method, line = recorder.handed_over[0]
            at = "" if line is None else f" at {source_lines.described(line)}"
            raise CaptureError(
                f"something ran unseen, and would be missing in the graphs: "
                f"{_place(stranger.line)} may hold what another library computed from the tensor "
                f"that .{method}() handed over{at}. Compute it with torch, or before the capture "
                "and pass it as an argument"
            )
        if stranger.age == "before" or (stranger.age == "unknown" and not threads):
            continue
        why = (
            f"A thread that was started meanwhile ({started}) may have computed it"
            if threads
            else "The op that computed it ran before the capture, or in a thread that existed "
            "before"
        )
        raise CaptureError(
            f"something ran unseen, and would be missing in the graphs: {_place(stranger.line)} is "
            "neither a parameter, a buffer or an argument of the target nor the result of an op "
            f"that was recorded. {why}. Compute it in the target itself, in the thread that calls "
            "it, or pass it as an argument"
        )


def _module_of(thread: threading.Thread) -> str:
    """The name of the module whose code a thread runs."""
    runs: Any = thread
    if type(thread) in (threading.Thread, threading.Timer):
        runs = getattr(thread, "_target", None) or getattr(thread, "function", None)
    return str(getattr(runs, "__module__", ""))


def _place(line: source_lines.Line | None) -> str:
    if line is None:
        return "a tensor that the target returned, or keeps,"
    return f"a tensor that comes up at {source_lines.described(line)}"
