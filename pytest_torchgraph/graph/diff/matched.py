"""Which nodes of two captures correspond, by name: also those that do not differ."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from ..equality.equal import pairing
from ..model import Graph
from .correspondence import Correspondence
from .group import matched_bodies
from .origins import Origins


@dataclass(frozen=True, slots=True)
class MatchedGraphs:
    """Two graphs that correspond, or one that has come or gone.

    Attributes:
        before, after: the graphs in their canonical form; at most one of them is None.
        partners: for the names of the old graph's nodes those of their partners in the new graph;
            no two have one partner.
    """

    before: Graph | None
    after: Graph | None
    partners: Mapping[str, str]


def matched_graphs(origins: Origins) -> Iterator[MatchedGraphs]:
    """The graphs that were compared, and the bodies of their higher-order ops behind each pair.

    A body that nothing corresponds to is not among them, and each body is there at most once.

    Args:
        origins: of the comparison.
    """
    matchings = {(id(m.a.graph), id(m.b.graph)): m for m in origins.matchings}
    taken: set[int] = set()
    for before, after in origins.pairs:
        if before is None or after is None:
            yield MatchedGraphs(before, after, {})
        else:
            yield from _matched(before, after, matchings, taken)


def _matched(
    before: Graph,
    after: Graph,
    matchings: Mapping[tuple[int, int], Correspondence],
    taken: set[int],
) -> Iterator[MatchedGraphs]:
    partner = _partner(before, after, matchings)
    names = {
        node.name: after.nodes[j].name
        for node, j in zip(before.nodes, partner, strict=False)
        if j != -1
    }
    yield MatchedGraphs(before, after, names)
    for old, new in matched_bodies(before, after, partner):
        if taken.isdisjoint((id(old), id(new))):
            taken |= {id(old), id(new)}
            yield from _matched(old, new, matchings, taken)


def _partner(
    before: Graph, after: Graph, matchings: Mapping[tuple[int, int], Correspondence]
) -> Sequence[int]:
    """For each node of the old graph the number of its partner, or -1."""
    matching = matchings.get((id(before), id(after)))
    if matching is not None:
        return matching.forward
    return pairing(before, after) or ()
