"""The matching of two captures: which graphs and nodes correspond, also those that are equal."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from ..equality.equal import pairing
from ..equality.numbered_graph import NumberedGraph
from ..model import Graph
from .correspondence import Correspondence
from .corresponding import Pair
from .findings import Change
from .group import NodeChange, matched_bodies

Matched = tuple[Graph | None, Graph | None, Mapping[str, str]]
"""Two graphs that correspond, of which one is `None` if it came or went, and for the names of the
old graph's nodes those of their partners; no two have one partner."""

Key = tuple[int, bool, int]
"""A node of several matchings: the matching's `id`, whether it is of the new graph, its number."""


@dataclass(frozen=True, slots=True)
class Occurrence:
    """A changed node, in one of the two graphs of a matching.

    Attributes:
        matching: the matching of the two graphs.
        is_new: whether the node is the new graph's.
        number: the number of the node in its graph.
    """

    matching: Correspondence
    is_new: bool
    number: int

    @property
    def flat(self) -> NumberedGraph:
        """The graph that the node is in."""
        return self.matching.b if self.is_new else self.matching.a

    @property
    def key(self) -> Key:
        """What tells this node from every other one of these graphs."""
        return id(self.matching), self.is_new, self.number

    def at(self, number: int) -> Occurrence:
        """Another node of the same graph."""
        return Occurrence(self.matching, self.is_new, number)

    def partner(self, number: int) -> Occurrence | None:
        """The node of the other graph that corresponds to a node of this one, if any does."""
        other = (self.matching.backward if self.is_new else self.matching.forward)[number]
        return None if other == -1 else Occurrence(self.matching, not self.is_new, other)


class Origins:
    """The occurrences of the nodes of changes, and the graphs that were compared.

    The changes that were added must stay alive: they are known by identity.

    Attributes:
        pairs: the graphs that were compared, in their canonical form, in order.
        matchings: those of graphs that differ, and of bodies of higher-order ops that differ.
    """

    def __init__(self) -> None:
        self.pairs: list[Pair] = []
        self.matchings: list[Correspondence] = []
        self._found: dict[int, tuple[Correspondence, NodeChange]] = {}

    def add(self, change: Change, matching: Correspondence, part: NodeChange) -> None:
        """Remember where a change comes from."""
        self._found[id(change)] = matching, part

    def knows(self, change: Change) -> bool:
        """Whether it is known where a change comes from."""
        return id(change) in self._found

    def of(self, change: Change) -> tuple[Occurrence | None, Occurrence | None]:
        """The old and the new node of a change; None where there is none, or it is not known."""
        if id(change) not in self._found:
            return None, None
        matching, part = self._found[id(change)]
        return (
            None if part.before == -1 else Occurrence(matching, False, part.before),
            None if part.after == -1 else Occurrence(matching, True, part.after),
        )

    def own(self, changes: Iterable[Change]) -> dict[Key, int]:
        """For each node of these changes, the number of its change."""
        return {node.key: k for k, change in enumerate(changes) for node in self.nodes(change)}

    def nodes(self, change: Change) -> Iterator[Occurrence]:
        """The nodes of a change that there are, the old one first."""
        return (node for node in self.of(change) if node is not None)

    def position(self, change: Change) -> float:
        """Where a change stands, as a share of its graph: comparable between old and new."""
        for node in reversed([*self.nodes(change)]):
            return node.number / len(node.flat.nodes)
        return 1.0

    def matched(self, pairs: Iterable[Pair] | None = None) -> Iterator[Matched]:
        """Yield graphs that were compared, each followed by the bodies of its higher-order ops.

        A body that corresponds to none is left out, and each body is yielded once at most.

        Args:
            pairs: some of `pairs`; `None` for all.
        """
        matchings = {(id(m.a.graph), id(m.b.graph)): m for m in self.matchings}
        taken: set[int] = set()

        def walk(before: Graph, after: Graph) -> Iterator[Matched]:
            matching = matchings.get((id(before), id(after)))
            partner: Sequence[int] = (
                (pairing(before, after) or ()) if matching is None else matching.forward
            )
            both = zip(before.nodes, partner, strict=False)
            yield before, after, {node.name: after.nodes[j].name for node, j in both if j != -1}
            for old, new in matched_bodies(before, after, partner):
                if taken.isdisjoint((id(old), id(new))):
                    taken.update((id(old), id(new)))
                    yield from walk(old, new)

        for before, after in self.pairs if pairs is None else pairs:
            if before is None or after is None:
                yield before, after, {}
            else:
                yield from walk(before, after)
