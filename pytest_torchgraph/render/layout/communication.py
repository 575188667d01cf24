"""What boxes say of collectives: their groups and sizes, and what runs until one is waited for."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from ...errors import CaptureError
from ...graph.collective_table import format_bytes
from ...graph.collectives import Collective, awaited, collectives_of
from ...graph.model import Graph
from ...words import counted
from .fold import FoldedGraph

NOT_OVERLAPPED = "not overlapped"
"""The note of a wait for a collective beside which nothing computes."""


def collective_lines(folded: FoldedGraph) -> Mapping[str, list[str]]:
    """Lines for the boxes of collectives and of the first wait for each, by names of nodes.

    There are none where a graph of torch functions does not say what it sends. What overlaps is not
    said of a graph that inductor lowers: it orders collectives later, when it writes code.
    """
    own: dict[str, list[Collective]] = {}
    for each in _own(folded.graph):
        own.setdefault(each.node.name, []).append(each)
    lines = {name: list(_sent(parts)) for name, parts in own.items()}
    if folded.graph.level == "post_grad":
        return lines
    waited: set[str] = set()
    for name, wait in folded.nodes.items():
        for start in awaited(folded.graph, wait.node):
            if start in own and start not in waited:
                waited.add(start)
                lines.setdefault(name, []).append(_overlap(own[start][0]))
    return lines


def _own(graph: Graph) -> Iterator[Collective]:
    """The collectives of a graph without those of its bodies."""
    try:
        found = collectives_of((graph,))
    except CaptureError:
        return
    yield from (each for each in found if graph.by_name.get(each.node.name) is each.node)


def _sent(parts: list[Collective]) -> Iterator[str]:
    for each in parts:
        kind = f"{each.kind} " if len(parts) > 1 else ""
        if each.group:
            yield f"{kind}over {each.group}, {format_bytes(each)} B"


def _overlap(each: Collective) -> str:
    return NOT_OVERLAPPED if each.exposed else f"overlaps {counted(len(each.overlap), 'op')}"
