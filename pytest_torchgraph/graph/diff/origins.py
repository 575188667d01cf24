"""The matching of two captures: the correspondence of their graphs and nodes.

Graphs are paired with graphs of the same kind, and eager graphs with eager graphs (`pair_graphs`).
`Origins` keeps the matchings of their nodes; from then on, a changed node is an `Occurrence` in a
matching.
"""

from __future__ import annotations

from collections.abc import Callable, Container, Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import pairwise, zip_longest

from ..equality import EquivalenceClasses, NumberedGraph, pairing
from ..higher_order import body_names
from ..model import Graph, Node
from ..step import InlinedStep
from .align import align_items
from .correspondence import Correspondence
from .differing import NodeChange, NodeChanges, NodeKey
from .findings import SIGNS, Change, Finding, nodes_of_changes
from .instances import Instances
from .rules import FOLLOWS, Reason

Pair = tuple[Graph | None, Graph | None]
"""A graph and its corresponding graph; `None` for a missing graph."""
KINDS = ("forward", "inference", "joint", "update", "backward")
"""The kinds of graphs, in the order of comparison."""
MAX_PAIRS = 10_000
"""Maximum number of pairs of eager graphs in one gap to compare for similarity.

A gap with more pairs, about a hundred graphs on either side, is paired in order."""
MIN_SIMILARITY = 0.01
"""Similarity of two graphs without a common op. It is positive, so that such graphs are paired."""


def pair_graphs(
    before: Sequence[Graph], after: Sequence[Graph], classes: EquivalenceClasses
) -> Iterator[Pair]:
    """Yield corresponding graphs: forward graphs first, and compiled graphs first in each kind.

    If each side has a single graph, the two are paired regardless of their kinds.

    Args:
        before, after: the graphs.
        classes: classes of graphs with equal dataflow.
    """
    if len(before) == len(after) == 1:
        yield before[0], after[0]
        return
    for kind in KINDS:
        for eager in (False, True):
            old = [graph for graph in before if (graph.kind, graph.eager) == (kind, eager)]
            new = [graph for graph in after if (graph.kind, graph.eager) == (kind, eager)]
            yield from _pair_eager(old, new, classes) if eager else _pair_compiled(old, new)


def _pair_compiled(old: Sequence[Graph], new: Sequence[Graph]) -> Iterator[Pair]:
    """Pair graphs in order. If one side has more, pair graphs with equal op counts first."""
    if len(old) == len(new):
        yield from zip(old, new, strict=True)
        return
    yield from _pair_aligned(old, new, _op_counts, zip_longest)


def _pair_eager(
    old: Sequence[Graph], new: Sequence[Graph], classes: EquivalenceClasses
) -> Iterator[Pair]:
    """Pair graphs with equal dataflow, then with equal op counts, then the most similar graphs.

    Eager graphs are many and small, and their names are numbers. An added or removed graph must not
    shift the pairs of all later graphs.
    """
    pair_rest = partial(_pair_aligned, token=_op_counts, pair_rest=_pair_most_similar)
    yield from _pair_aligned(old, new, classes.number, pair_rest)


def _pair_aligned(
    old: Sequence[Graph],
    new: Sequence[Graph],
    token: Callable[[Graph], Hashable],
    pair_rest: Callable[[Sequence[Graph], Sequence[Graph]], Iterator[Pair]],
) -> Iterator[Pair]:
    """Pair graphs with equal tokens, in order, and pair the graphs in between by `pair_rest`."""
    anchors = sorted(align_items([token(graph) for graph in old], [token(graph) for graph in new]))
    for (x0, y0), (x1, y1) in pairwise([(-1, -1), *anchors, (len(old), len(new))]):
        yield from pair_rest(old[x0 + 1 : x1], new[y0 + 1 : y1])
        if x1 < len(old):  # not at the end, which only bounds the last gap
            yield old[x1], new[y1]


def _pair_most_similar(old: Sequence[Graph], new: Sequence[Graph]) -> Iterator[Pair]:
    """Yield the pairs, in order on both sides, with the most ops in common."""
    if not old or not new or len(old) * len(new) > MAX_PAIRS:
        yield from zip_longest(old, new)
        return
    # `best[x][y]`: the total similarity of the best pairing of `old[x:]` and `new[y:]`.
    best = [[0.0] * (len(new) + 1) for _ in range(len(old) + 1)]
    similarities = [[_similarity(a, b) for b in new] for a in old]
    for x in range(len(old) - 1, -1, -1):
        for y in range(len(new) - 1, -1, -1):
            score_if_paired = best[x + 1][y + 1] + similarities[x][y]
            best[x][y] = max(score_if_paired, best[x + 1][y], best[x][y + 1])
    x = y = 0
    while x < len(old) and y < len(new):
        if best[x][y] == best[x + 1][y + 1] + similarities[x][y]:
            yield old[x], new[y]
            x, y = x + 1, y + 1
        elif best[x][y] == best[x + 1][y]:
            yield old[x], None
            x += 1
        else:
            yield None, new[y]
            y += 1
    yield from zip_longest(old[x:], new[y:])


def _similarity(a: Graph, b: Graph) -> float:
    """Return the share of ops that two graphs have in common."""
    total = max(a.op_counts.total(), b.op_counts.total())
    common = sum(min(count, b.op_counts.get(op, 0)) for op, count in a.op_counts.items())
    return MIN_SIMILARITY + (common / total if total else 1.0)


def _op_counts(graph: Graph) -> Hashable:
    """Return the op counts as a token for `_pair_aligned`."""
    return frozenset(graph.op_counts.items())


def pair_bodies(a: Graph, b: Graph, partner: Sequence[int]) -> Iterable[tuple[Graph, Graph]]:
    """Yield the pairs of subgraphs that matched nodes refer to.

    Args:
        a, b: the graphs.
        partner: for each node of `a` the number of its partner in `b`, or -1.
    """
    if not a.subgraphs and not b.subgraphs:
        return
    bodies_a = a.subgraphs_by_name
    bodies_b = b.subgraphs_by_name
    yielded = set()
    for i, j in enumerate(partner):
        if j == -1:
            continue
        # An edit can give a call more bodies, or fewer.
        pairs = zip(body_names(a.nodes[i]), body_names(b.nodes[j]), strict=False)
        for pair in pairs:
            if pair not in yielded and pair[0] in bodies_a and pair[1] in bodies_b:
                yielded.add(pair)
                yield bodies_a[pair[0]], bodies_b[pair[1]]


Matched = tuple[Graph | None, Graph | None, Mapping[str, str]]
"""Two corresponding graphs, and a map from old node names to the names of their partners.

One graph is `None` if the other was added or removed. No two nodes have the same partner."""

Key = tuple[int, bool, int]
"""A node of several matchings: the matching's `id`, True for the new graph, the node's number."""


@dataclass(frozen=True, slots=True)
class Occurrence:
    """A changed node, in one of the two graphs of a matching.

    Attributes:
        matching: the matching of the two graphs.
        is_new: True if the node is in the new graph.
        number: the number of the node in its graph.
    """

    matching: Correspondence
    is_new: bool
    number: int

    @property
    def flat(self) -> NumberedGraph:
        """The graph that contains the node."""
        return self.matching.flats[self.is_new]

    @property
    def key(self) -> Key:
        """A key that is unique among the nodes of these graphs."""
        return id(self.matching), self.is_new, self.number

    def at(self, number: int) -> Occurrence:
        """Return another node of the same graph."""
        return Occurrence(self.matching, self.is_new, number)

    @property
    def node(self) -> Node:
        """The node itself."""
        return self.flat.nodes[self.number]

    def partner(self) -> Occurrence | None:
        """Return the partner of this node in the other graph, or `None`."""
        other = self.matching.partners[self.is_new][self.number]
        return None if other == -1 else Occurrence(self.matching, not self.is_new, other)


def take_same_operands(
    old: Occurrence | None, new: Occurrence | None, edit_nodes: Container[Key]
) -> bool:
    """Return True if two partners take the same values, apart from the nodes of their edit.

    So does a node without a partner.
    """
    if old is None or new is None:
        return True
    operands = old.flat.operands[old.number], new.flat.operands[new.number]
    # The lengths are compared below.
    slots = zip(*operands, strict=False)
    return len(operands[0]) == len(operands[1]) and all(
        old.matching.forward[p] == q or old.at(p).key in edit_nodes or new.at(q).key in edit_nodes
        for p, q in slots
    )


class Origins:
    """The compared graphs, and for each change its nodes in these graphs.

    Changes must stay alive after `add`, because they are looked up by `id`.

    Attributes:
        steps: the inlined steps that were compared; `None` for graphs as they were captured.
        pairs: the compared graphs, in their canonical form, in order.
        matchings: the matchings of differing graphs and of differing bodies of higher-order ops.
        instances: the modules of lists that correspond under other numbers.
    """

    def __init__(self, steps: tuple[InlinedStep, InlinedStep] | None = None) -> None:
        self.steps = steps
        self.pairs: list[Pair] = []
        self.matchings: list[Correspondence] = []
        self.instances = Instances()
        self._found: dict[int, tuple[Correspondence, NodeChange]] = {}
        self._reasons: dict[int, list[Reason]] = {}

    def add(self, change: Change, matching: Correspondence, part: NodeChange) -> None:
        """Record the origin of a change."""
        self._found[id(change)] = matching, part

    def because(
        self, rule: str, changes: Iterable[Change], other: Change | None, shared: str = ""
    ) -> None:
        """Record the rule by which changes belong to an edit. `other` itself gets no reason.

        Args:
            rule: the rule; see `rules`.
            changes: the changes.
            other: a change of the edit; `None` for a graph break.
            shared: see `Reason`.
        """
        for change in changes:
            if change is not other:
                graphs = () if other is None else (change.graph, other.graph)
                reason = Reason(
                    rule,
                    change.node.name,
                    "" if other is None else other.node.name,
                    (SIGNS[change.kind], "" if other is None else SIGNS[other.kind]),
                    graphs if len({*graphs}) > 1 else (),
                    shared,
                )
                self._reasons.setdefault(id(change), []).append(reason)

    def add_joins(self, changes: NodeChanges, made: Mapping[NodeKey, Change]) -> None:
        """Record the joins of two graphs.

        Args:
            changes: the joined nodes.
            made: the change of each differing node.
        """
        of_edit = {changes.edit_of(key): change for key, change in made.items()}
        for rule, key, other, reader in changes.joins:
            # Two changes can be joined through a node that does not differ itself.
            change = made.get(key) or made.get(other) or of_edit.get(changes.edit_of(key))
            if change is not None:
                names = changes.node_of(key).name, changes.node_of(other).name
                signs = changes.sign_of(key), changes.sign_of(other)
                reason = Reason(rule, *names, signs, shared=reader)
                self._reasons.setdefault(id(change), []).append(reason)

    def with_reasons(self, finding: Finding) -> Finding:
        """Return a finding with the reasons of each place."""
        places = []
        for place in finding.places:
            own = {node.name for node in nodes_of_changes(place.changes)}
            others = {node.name for node in nodes_of_changes(place.consequences)} - own
            joined = [
                reason
                for change in place.changes
                for reason in self._reasons.get(id(change), ())
                # What was joined first can turn out to be a consequence.
                if reason.rule not in FOLLOWS and not others.issuperset((reason.node, reason.other))
            ]
            followed = [
                reason
                for change in place.consequences
                for reason in self._reasons.get(id(change), ())
                if reason.rule in FOLLOWS
            ]
            places.append(replace(place, reasons=tuple(dict.fromkeys((*joined, *followed)))))
        return replace(finding, places=tuple(places))

    def graph_of(self, graph: str, before: Node | None, after: Node | None) -> str:
        """Return the name of the captured graph that a changed node comes from.

        Args:
            graph: the name of the compared graph, which may be an inlined one.
            before, after: the node in the old and in the new graph.
        """
        side, node = (0, before) if after is None else (1, after)
        if self.steps is None or node is None:
            return graph
        origin = self.steps[side].origins.get((graph, node.name))
        return graph if origin is None else origin.graph.name

    def knows(self, change: Change) -> bool:
        """Return True if the origin of a change is known."""
        return id(change) in self._found

    def of(self, change: Change) -> tuple[Occurrence | None, Occurrence | None]:
        """Return the old and the new node of a change; `None` for a missing or unknown node."""
        if id(change) not in self._found:
            return None, None
        matching, part = self._found[id(change)]
        return (
            None if part.before == -1 else Occurrence(matching, False, part.before),
            None if part.after == -1 else Occurrence(matching, True, part.after),
        )

    def number_nodes(self, changes: Iterable[Change]) -> dict[Key, int]:
        """Map each node of these changes to the number of its change."""
        return {node.key: k for k, change in enumerate(changes) for node in self.nodes(change)}

    def nodes(self, change: Change) -> Iterator[Occurrence]:
        """Return the existing nodes of a change, old node first."""
        return (node for node in self.of(change) if node is not None)

    def position(self, change: Change) -> float:
        """Return the position of a change as a share of its graph. Old and new are comparable.

        It is the position in the new graph, except for a removed node; 1.0 if unknown.
        """
        for node in reversed([*self.nodes(change)]):
            return node.number / len(node.flat.nodes)
        return 1.0

    def matched(self, pairs: Iterable[Pair] | None = None) -> Iterator[Matched]:
        """Yield compared graphs, each followed by the bodies of its higher-order ops.

        A body without a corresponding body is left out. Each body is yielded at most once.

        Args:
            pairs: some of `pairs`; `None` for all.
        """
        matchings = {(id(m.a.graph), id(m.b.graph)): m for m in self.matchings}
        yielded: set[int] = set()

        def walk(before: Graph, after: Graph) -> Iterator[Matched]:
            matching = matchings.get((id(before), id(after)))
            partner: Sequence[int] = (
                (pairing(before, after) or ()) if matching is None else matching.forward
            )
            # Without a matching the graphs are equal. If they are not, no node has a partner.
            node_pairs = zip(before.nodes, partner, strict=False)
            yield (
                before,
                after,
                {node.name: after.nodes[j].name for node, j in node_pairs if j != -1},
            )
            for old, new in pair_bodies(before, after, partner):
                if yielded.isdisjoint((id(old), id(new))):
                    yielded.update((id(old), id(new)))
                    yield from walk(old, new)

        for before, after in self.pairs if pairs is None else pairs:
            if before is None or after is None:
                yield before, after, {}
            else:
                yield from walk(before, after)
