"""A capture whose graphs are given as text."""

from __future__ import annotations

from pytest_torchgraph import Collective, Cost, Graph


class Captured:
    """The part of a capture that `capture_data` reads. It needs no torch."""

    via = "aot"
    breaks = ()
    recompiles = ()
    recomputed = ()
    rank = None

    def __init__(self, *program: Graph) -> None:
        self.program = program

    @property
    def collectives(self) -> tuple[Collective, ...]:
        return tuple(collective for graph in self.program for collective in graph.collectives)

    def by_module(self, depth: int | None = None) -> dict[str, Cost]:
        from pytest_torchgraph.graph import by_module

        return by_module(self.program, depth)
