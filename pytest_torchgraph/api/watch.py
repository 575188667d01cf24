"""`watch`: what the user's own `torch.compile` did."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, NoReturn

import torch

from ..graph.text.format import Header
from ..torch_release import need_torch
from ..watching.graphs import PrintedGraphs
from ..watching.observe.hub import HUB
from ..watching.observe.recorder import EventRecorder
from ..watching.record import record_of
from .contents import Contents
from .listeners import notify
from .result import Capture


class Watch:
    """A context manager that gives a `Capture` of everything that is compiled and run inside it.

    It can be entered again, and adds to the same capture then; watches can be nested.

    Args:
        passive: whether a capture may be made inside, which it then does not record.
        warmed_up: whether it is meant to see no first call: `steady` calls its target before.
    """

    def __init__(self, *, passive: bool = False, warmed_up: bool = False) -> None:
        self._warmed_up = warmed_up
        self._recorder = EventRecorder(passive=passive)
        self._last: Contents | None = None
        release = torch.__version__.partition("+")[0]
        self.capture = Capture(self._read, Header("watch", release))

    def __enter__(self) -> Capture:
        HUB.open(self._recorder)
        self._last = None
        return self.capture

    def __exit__(self, *error: object) -> None:
        HUB.close(self._recorder)
        self._last = None
        notify(self.capture)

    if not TYPE_CHECKING:  # else every name would be one that type checkers accept

        def __getattr__(self, name: str) -> NoReturn:
            """Say what to write where a watch is used as the capture that it gives."""
            __tracebackhide__ = True
            if not name.startswith("_") and hasattr(Capture, name):
                raise AttributeError(
                    f"a watch has no {name!r}, but the capture that it gives: write `with "
                    f"graph_capture.watch() as seen:` around the calls, and seen.{name} behind it"
                )
            raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}")

    def __repr__(self) -> str:
        return f"<watch {'open' if self._recorder.is_open else 'closed'}>"

    def _read(self) -> Contents:
        # While it is open, runs are counted without anybody being told of them.
        if self._last is None or self._recorder.is_open:
            record = replace(record_of(self._recorder), warmed_up=self._warmed_up)
            last = None if self._last is None else self._last.record
            if self._last is None or last is None or last.state != record.state:
                self._last = Contents.of_watch(PrintedGraphs(record))
        return self._last


def watch() -> Watch:
    """Watch what the code inside compiles and runs, without touching it.

    `with watch() as capture:` gives a `Capture` of every graph, graph break and recompilation, and
    of how often each compiled graph ran; it can be read while the watch is open. Nothing is reset,
    and no backend, cache, guard or counter changes: what was compiled before is seen to run, and
    has no graph here. All threads are watched.

    Raises:
        UnsupportedTorchError: if torch is older than 2.9.
    """
    need_torch()
    return Watch()
