"""`watch`: what the user's own `torch.compile` did."""

from __future__ import annotations

import torch

from ..capturing.mechanism import numbered
from ..capturing.names import Canon
from ..capturing.result import Capture, Contents
from ..graph.model import Graph, Level
from .graphs import joints_of, kernels, stages_of
from .hub import HUB
from .record import Record, record_of
from .recorder import Recorder


class Watch:
    """A context manager that gives a `Capture` of everything that is compiled and run inside it.

    It can be entered again, and adds to the same capture then; watches can be nested.
    """

    def __init__(self, *, passive: bool = False) -> None:
        self._recorder = Recorder(passive=passive)
        self._last: Contents | None = None
        release = torch.__version__.partition("+")[0]
        self.capture = Capture((), via="watch", torch_release=release, read=self._read)

    def __enter__(self) -> Capture:
        HUB.open(self._recorder)
        self._last = None
        return self.capture

    def __exit__(self, *error: object) -> None:
        HUB.close(self._recorder)
        self._last = None

    def __repr__(self) -> str:
        return f"<watch {'open' if self._recorder.is_open else 'closed'}>"

    def _read(self) -> Contents:
        # While it is open, runs are counted without anybody being told of them.
        if self._last is None or self._recorder.is_open:
            record = record_of(self._recorder)
            if self._last is None or self._last.record.state != record.state:
                self._last = contents_of(record)
        return self._last


def watch() -> Watch:
    """Watch what the code inside compiles and runs, without touching it.

    `with watch() as capture:` gives a `Capture` of every graph, graph break and recompilation, and
    of how often each compiled graph ran; it can be read while the watch is open. Nothing is reset,
    and no backend, cache, guard or counter changes: what was compiled before is seen to run, and
    has no graph here. All threads are watched.
    """
    return Watch()


def contents_of(record: Record) -> Contents:
    """The graphs of what a watch saw."""
    canon = Canon()
    own: list[Graph] = []
    levels: dict[Level, list[Graph]] = {}
    joints: list[Graph] = []
    for compiled in record.compiled:
        stages = stages_of(compiled, record.runs, canon)
        own += stages.own
        joints += joints_of(compiled, canon)
        for level, graphs in stages.levels.items():
            levels.setdefault(level, []).extend(graphs)
    return Contents(
        numbered(own),
        {level: numbered(graphs) for level, graphs in levels.items()},
        numbered(joints),
        kernels(record.compiled),
        record,
    )
