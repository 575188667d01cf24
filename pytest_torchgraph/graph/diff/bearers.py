"""Which findings bear the cost of a node, or of a graph: those that it is a change of."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence

from ...ops.levels import Level
from ..model import Graph
from .correspondence import Correspondence
from .corresponding import Pair
from .findings import Finding
from .origins import Origins

Side = tuple[bool, int]
"""A node of a matching: whether it is of the new graph, and its number."""


class Bearers:
    """The findings of one difference, by what they are about.

    Args:
        findings: all of them; elsewhere they are known by their numbers.
        origins: where their changes come from.

    Attributes:
        count: how many findings there are.
        pairs: the graphs that were compared.
        matchings: those of graphs that differ, and of bodies that do.
        levels: for each finding the levels of the graphs that it is in.
    """

    def __init__(self, findings: Sequence[Finding], origins: Origins):
        self.count = len(findings)
        self.pairs: Sequence[Pair] = origins.pairs
        self.matchings: Sequence[Correspondence] = origins.matchings
        self.levels: list[set[Level]] = [set() for _ in findings]
        self._by_graphs = {(id(m.a.graph), id(m.b.graph)): m for m in origins.matchings}
        self._nodes: dict[int, dict[Side, int]] = {id(m): {} for m in origins.matchings}
        self._graphs: dict[tuple[int, int], int] = {}
        ends = {(id(m.a.nodes[-1]), id(m.b.nodes[-1])): m for m in origins.matchings}
        for number, finding in enumerate(findings):
            for place in finding.places:
                for change in (*place.changes, *place.consequences):
                    key = id(change.before), id(change.after)
                    occurrences = [*origins.nodes(change)]
                    for node in occurrences:
                        self._add(number, node.matching, (node.is_new, node.number))
                    if finding.of_graph or (not occurrences and id(None) in key):
                        self._graphs[key] = number
                    elif not occurrences and (matching := ends.get(key)) is not None:
                        self._add(number, matching, (False, len(matching.a.nodes) - 1))
        for pair in self.pairs:
            for number in self.of_graphs(pair):
                self.levels[number] |= {graph.level for graph in pair if graph is not None}

    def _add(self, number: int, matching: Correspondence, node: Side) -> None:
        self._nodes[id(matching)][node] = number
        self.levels[number] |= {matching.a.graph.level, matching.b.graph.level}

    def matching(self, old: Graph, new: Graph) -> Correspondence | None:
        """The matching of two graphs, or two bodies; None where they are equal."""
        return self._by_graphs.get((id(old), id(new)))

    def of_graphs(self, pair: Pair) -> set[int]:
        """The finding that a graph came, went or ran another number of times, as a set."""
        old, new = (None if graph is None else graph.nodes[-1] for graph in pair)
        number = self._graphs.get((id(old), id(new)))
        return set() if number is None else {number}

    def nodes(self, matching: Correspondence) -> Collection[Side]:
        """The nodes of a matching that are in some finding."""
        return self._nodes[id(matching)].keys()

    def within(self, matching: Correspondence) -> set[int]:
        """The findings that have a node of a matching."""
        return set(self._nodes[id(matching)].values())

    def of_node(self, matching: Correspondence, node: Side) -> set[int]:
        """The findings that have a node, or its partner: at most one but by rare chance."""
        nodes = self._nodes[id(matching)]
        is_new, number = node
        partner = (matching.backward if is_new else matching.forward)[number]
        both = (node, (not is_new, partner))
        return {nodes[each] for each in both if each in nodes}

    def of_nodes(self, matching: Correspondence, nodes: Iterable[Side]) -> set[int]:
        """The findings that have any of some nodes, or their partners."""
        found: set[int] = set()
        for node in nodes:
            found |= self.of_node(matching, node)
        return found


class Ledger:
    """One figure of each finding.

    Attributes:
        figures: by the numbers of the findings; None where it is not known.
    """

    def __init__(self, count: int):
        self.figures: list[int | None] = [0] * count

    def add(self, findings: Collection[int], amount: int | None) -> None:
        """Put an amount to the one finding that bears it.

        Args:
            findings: those that may bear it; none where it may be any. Of several none has a figure
                any more.
            amount: how much; None where it is not known.
        """
        if amount == 0:
            return
        for number in findings or range(len(self.figures)):
            figure = self.figures[number]
            unknown = amount is None or figure is None or len(findings) != 1
            self.figures[number] = None if unknown else figure + amount  # type: ignore[operator]
