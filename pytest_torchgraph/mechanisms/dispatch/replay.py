"""From what a `DispatchRecorder` wrote down to the forward and the backward graph."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import replace

from ...convert import source_lines
from ...convert.canonical_names import CanonicalNames
from ...graph.model import Graph, Source
from ..recording.mode import LEAF, OpRecord, Value
from ..recording.replay import Replay
from ..recording.section import Section
from .recorder import DispatchRecorder


class DispatchReplay(Replay):
    """Builds the graphs of one recorded step.

    Args:
        recorder, canon: see `Replay`.
        keep_dead: whether ops whose results nothing uses are kept.
    """

    def __init__(self, recorder: DispatchRecorder, canon: CanonicalNames, keep_dead: bool):
        super().__init__(recorder, canon)
        self.forward, self.backward = recorder.forward, recorder.backward
        self.changes = recorder.changes
        self.keep_dead = keep_dead
        self.sequences = [record.sequence for record in recorder.forward]
        self.change_points = [sequence for sequence, _ in recorder.changes]

    def graphs(self, outputs: Sequence[Value], grads: Sequence[Value] | None) -> list[Graph]:
        """The forward (or inference) graph and, where a backward ran, its graph."""
        for record in self.forward:
            self.add(record)
        returned = [self.draft_of(value) for value in outputs]
        keep_dead = self.keep_dead
        writes = self.writes_after()
        if grads is None:
            section = Section(self, 0, returned, writes=writes, keep_dead=keep_dead)
            return [section.graph("inference")]
        self.section = 1
        for record in self.backward:
            self.add(record)
        results = [self.draft_of(value) for value in grads]
        section = Section(self, 1, results, writes=self.writes_after(), keep_dead=keep_dead)
        saved = section.outside()
        forward = Section(self, 0, returned, saved, writes=writes, keep_dead=keep_dead)
        graph = forward.graph("forward")
        section.known = {i: forward.names[i] for i in saved}
        section.reserved = forward.names.values()
        backward = section.graph("backward")
        # A checkpoint drops what its forward computes. A value that only the backward needs is then
        # dead in the forward: only the forward with its dead ops shows that it is computed twice.
        graph = replace(graph, whole=forward.whole(graph))
        known = {i: name for i, name in forward.names.items() if i not in section.known}
        section.known.update(known)
        return [graph, replace(backward, whole=section.whole(backward))]

    def place(self, record: OpRecord) -> tuple[str, Source | None]:
        """Module path and source of an op; in the backward those of the forward op it is for."""
        paths = self.recorder.paths
        if record.line is not None:
            return paths[max(record.path, 0)], source_lines.from_line(*record.line)
        sequence = record.sequence
        if record.path >= 0 or sequence < 0 or sequence >= LEAF:
            return paths[max(record.path, 0)], None
        at = bisect_right(self.change_points, sequence) - 1
        path = paths[self.changes[at][1]] if at >= 0 else ""
        made = bisect_right(self.sequences, sequence)
        line = self.forward[made].line if made < len(self.forward) else None
        return path, None if line is None else source_lines.from_line(*line)
