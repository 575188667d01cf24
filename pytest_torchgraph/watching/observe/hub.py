"""The observers: what is put into torch while at least one watch is open.

Four sources, none of which changes what the watched code does: the structured trace; the entry of
every compiled callable; the frames that Dynamo leaves alone; its guard hook, which tells a frame
that was served from the cache. All of them are process-wide, so every thread is seen. Nothing
remains when the last watch is closed, but for the counters that compiled autograd's cache holds.
"""

from __future__ import annotations

import contextlib
import threading
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from typing import Any

from ... import torch_private
from ...errors import TorchGraphError
from .entries import Regions
from .events import CompileId, Event, Finished, GraphBreakEvent, Printed, Started
from .executions import Executions
from .recorder import EventRecorder, State
from .structured_trace import NAMES, read

_PACKAGE = __package__.partition(".")[0]
RUN_WHILE_COMPILING = (f"{_PACKAGE}.watching", f"{_PACKAGE}.convert")
"""Our packages whose code observers run; with compiled autograd that is inside compiled code."""


class Hub:
    """Hands what happens to every open recorder."""

    def __init__(self) -> None:
        self._lock = threading.RLock()
        self._open: list[EventRecorder] = []
        self._installed = contextlib.ExitStack()
        self._executions = Executions()
        self._regions = Regions()
        self._stack: list[tuple[str, int, str, str]] = []
        self._module = ""

    # -- for watches -----------------------------------------------------------------------------

    def open(self, recorder: EventRecorder) -> None:
        """Let a recorder see what happens from now on."""
        with self._lock:
            if not self._open:
                self._install()
            if recorder.open(self._state()):
                self._open.append(recorder)

    def close(self, recorder: EventRecorder) -> None:
        """Let it see no more."""
        with self._lock:
            if recorder.close(self._state()):
                self._open.remove(recorder)
                recorder.disabled = torch_private.compile_is_disabled() or recorder.disabled
                if not self._open:
                    self._installed.close()

    def look(self, recorder: EventRecorder) -> State | None:
        """The state at this moment, None for a recorder that is closed."""
        with self._lock:
            if not recorder.is_open:
                return None
            recorder.disabled = torch_private.compile_is_disabled() or recorder.disabled
            return self._state()

    @property
    def watching(self) -> bool:
        """Whether any watch of the user's is open."""
        return any(not recorder.passive for recorder in self._open)

    @contextlib.contextmanager
    def recording(self, recorder: EventRecorder | None) -> Iterator[None]:
        """Let a recorder see what happens meanwhile; None for nothing."""
        if recorder is None:
            yield
            return
        self.open(recorder)
        try:
            yield
        finally:
            self.close(recorder)

    @contextlib.contextmanager
    def paused(self) -> Iterator[None]:
        """Let no recorder see what happens meanwhile, and leave nothing of it in what they saw."""
        with self._lock:
            paused = list(self._open)
            for recorder in paused:
                self.close(recorder)
        try:
            yield
        finally:
            for recorder in paused:
                self.open(recorder)

    def _state(self) -> State:
        counters = {
            group: Counter(values) for group, values in torch_private.get("counters").items()
        }
        return State(self._executions.counts(), counters, self._regions.snapshot())

    # -- observers -------------------------------------------------------------------------------

    def _install(self) -> None:
        torch_private.leave_alone(*RUN_WHILE_COMPILING)
        self._regions = Regions()
        with contextlib.ExitStack() as stack:
            stack.callback(self._regions.clear)
            stack.callback(self._executions.detach)
            self._executions.attach_compiled()
            stack.enter_context(torch_private.structured_trace(self._record, NAMES))
            stack.enter_context(torch_private.on_entry(self._regions.observer))
            stack.enter_context(torch_private.guard_hook(self._count_hits()))
            with contextlib.suppress(TorchGraphError):  # torch before 2.13 gives no reasons
                stack.enter_context(torch_private.on_skip(self._skipped))
            with contextlib.suppress(TorchGraphError):
                stack.enter_context(torch_private.on_break_stack(self._at_break))
            stack.enter_context(torch_private.on_compiled_autograd_capture(self._captured))
            stack.enter_context(torch_private.compiled_autograd_reasons())
            self._installed = stack.pop_all()

    def _count_hits(self) -> Callable[[bool], Any]:
        """A guard hook that counts how often Dynamo found compiled code, without a Python frame.

        Its answer is taken for true or false, and true keeps what was found. The answer for a find
        counts, in C, how often it is asked that.
        """
        answer = type("Found", (), {"__bool__": staticmethod(self._regions.hit)})()
        return {True: answer, False: True}.__getitem__

    def _record(self, metadata: dict[str, Any], payload: str) -> None:
        try:
            self._take(metadata, payload)
        except Exception as error:  # ours, in the middle of a compilation of the user's
            for recorder in self._open:
                recorder.broken = recorder.broken or error

    def _take(self, metadata: dict[str, Any], payload: str) -> None:
        event = read(metadata, payload)
        if event is None:
            return
        if isinstance(event, GraphBreakEvent):
            event = replace(event, stack=tuple(self._stack), module=self._module)
            self._stack, self._module = [], ""
        elif isinstance(event, Printed) and event.stage == "dynamo":
            event = replace(event, files=torch_private.traced_files())
        elif isinstance(event, Started):
            event = replace(event, region=self._regions.current)
        self._publish(event)
        if isinstance(event, Started):
            self._regions.started(event)
        elif isinstance(event, Finished):
            graphs = self._executions.attach_new(event)
            self._regions.finished(event, has_graph=graphs > 0)

    def _publish(self, event: Event) -> None:
        for recorder in self._open:
            recorder.events.append(event)

    def _skipped(self, reason: str, frame: Any) -> None:
        code = frame.f_code
        self._regions.note(reason, code.co_name, code.co_filename, code.co_firstlineno)

    def _at_break(self, frames: Iterable[Any], module: str) -> None:
        """Dynamo is about to report a break with this stack, in this module."""
        self._module = module
        self._stack = [
            (each.filename or "", each.lineno or 0, each.name, (each.line or "").strip())
            for each in frames
        ]

    def _captured(self, number: int, call: Any) -> Any:
        return self._executions.capture(CompileId(number), call)


HUB = Hub()
