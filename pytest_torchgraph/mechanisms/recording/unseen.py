"""The refusal of a step of which something ran unseen: in a thread, or inside an op.

A dispatch mode is of one thread. What another one computes is in no record, and shows only where
its result is used.
"""

from __future__ import annotations

import contextlib
import sys
import threading
from collections.abc import Iterator
from types import CodeType, FrameType
from typing import Any

from ...convert import source_lines
from ...errors import CaptureError
from .mode import RecordingMode


@contextlib.contextmanager
def threads_started() -> Iterator[list[str]]:
    """The names of the threads that start inside, as a list that grows.

    Threads that exist already, and those of C++ or of `_thread`, are not noticed.
    """
    names: list[str] = []
    before = threading.getprofile()

    def begins(frame: FrameType, event: Any, argument: Any) -> None:
        names.append(threading.current_thread().name)
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


def refuse_unseen(recorder: RecordingMode, threads: list[str]) -> None:
    """Refuse what was recorded where a value came from nowhere.

    A tensor that autograd knows an op for came from an op that was not seen. One that is a leaf may
    be a constant, as a global tensor is; but not where a thread was started meanwhile.

    Args:
        threads: names of the threads that were started while it recorded.

    Raises:
        CaptureError: with the place where the value came up.
    """
    for stranger in recorder.strangers:
        if stranger.is_leaf and not threads:
            continue
        why = (
            f"a thread was started meanwhile ({', '.join(dict.fromkeys(threads))}), and what it "
            "runs cannot be seen"
            if threads
            else "an op made it that was not seen: one that ran before the capture, or in a thread "
            "that existed before"
        )
        raise CaptureError(
            "something ran unseen, and would be missing in the graphs: a tensor came up"
            f"{_place(stranger.line)} that is no parameter, buffer or argument of the target, and "
            f"the result of no op that was recorded. {why[0].upper()}{why[1:]}. Compute it in the "
            "target itself, or pass it as an argument"
        )


def _place(line: tuple[CodeType, int] | None) -> str:
    if line is None:
        return ""
    code, number = line
    source = source_lines.from_line(code.co_filename, number, code.co_name)
    return f" at {source} in {source.function} ({source.code})"
