"""Finding the user's line at which a Python value changes."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Callable, Iterator, Sequence
from types import FrameType
from typing import Any

from ..convert.source_lines import Line, described, is_user_file, line_of


class LineTracer:
    """Looks at some values after each line of the user's code, while it traces.

    Args:
        probes: each gives something that differs where the value does.
    """

    def __init__(self, probes: Sequence[Callable[[], Any]]):
        self._probes = probes
        self._found: dict[int, Line] = {}
        self._marks: list[Any] = []
        self._last: Line | None = None

    @contextlib.contextmanager
    def tracing(self) -> Iterator[None]:
        """Trace what runs inside, in this thread. A debugger's or coverage's tracer waits."""
        self._marks = [probe() for probe in self._probes]
        before = sys.gettrace()
        sys.settrace(self._enter)
        try:
            yield
        finally:
            sys.settrace(before)
            self._look()

    def line(self, number: int) -> str:
        """Where a value changed first, as a part of a sentence; "" if that is not known."""
        line = self._found.get(number)
        return "" if line is None else f", at {described(line)}"

    def _enter(self, frame: FrameType, _event: str, _arg: Any) -> Any:
        if not is_user_file(frame.f_code.co_filename):
            return None
        self._look()
        self._last = line_of(frame)
        return self._step

    def _step(self, frame: FrameType, event: str, _arg: Any) -> Any:
        self._look()
        caller: FrameType | None = frame
        if event == "return":  # the line of the caller goes on
            caller = frame.f_back
            while caller is not None and not is_user_file(caller.f_code.co_filename):
                caller = caller.f_back
        if caller is not None:
            self._last = line_of(caller)
        return self._step

    def _look(self) -> None:
        for number, probe in enumerate(self._probes):
            mark = probe()
            if mark != self._marks[number]:
                self._marks[number] = mark
                if self._last is not None:
                    self._found.setdefault(number, self._last)
