"""Invisible edges that keep clusters from overlapping, based on estimated `dot` ranks.

`dot` puts two clusters side by side if they share a rank. In a backward graph, the weight gradients
of a layer extend a few ranks into the next layer, so the layers of a deep model would form a
staircase, many screens wide. If two neighbours share only a few ranks, invisible edges push the
later cluster down.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Hashable, Iterable, Iterator, Mapping, Sequence
from itertools import pairwise
from typing import NamedTuple

from ...graph.diff import UnionFind
from ...graph.equality import reachable

BoxEdge = tuple[str, str]
"""An edge of the drawing, as the keys of its tail box and its head box."""


class NodeRanks:
    """Estimated rank of each box that has an edge, 0 at the top.

    A box with users is as low as the users allow, just above the first user. A box without users is
    as high as the operands allow.

    Attributes:
        of: rank of each box. A box on or below a cycle has no rank.
        heads: heads of each box's edges, with the minimum number of ranks that the edge spans.
        in_degree: number of edges into each box; 0 or absent for a source.
    """

    def __init__(self, edges: Iterable[BoxEdge]):
        self.heads: defaultdict[str, list[tuple[str, int]]] = defaultdict(list)
        self.in_degree: Counter[str] = Counter()
        self.of: dict[str, int] = {}
        for tail, head in edges:
            self.add(tail, head)
        self.update()

    def add(self, tail: str, head: str, length: int = 1) -> None:
        """Add an edge. Ranks change at the next `update`.

        Args:
            tail: key of the upper box.
            head: key of the lower box.
            length: minimum number of ranks that the edge spans, like Graphviz's `minlen`.
        """
        self.heads[tail].append((head, length))
        self.in_degree[head] += 1

    def update(self) -> None:
        """Compute the ranks from the current edges."""
        unplaced_operands = Counter(self.in_degree)
        order = [box for box in self.heads if not unplaced_operands[box]]
        highest = dict.fromkeys(order, 0)
        for box in order:
            for head, length in self.heads.get(box, ()):
                highest[head] = max(highest.get(head, 0), highest[box] + length)
                unplaced_operands[head] -= 1
                if not unplaced_operands[head]:
                    order.append(head)
        # Second pass, bottom-up: move each box with users down to its first user.
        self.of = {box: highest[box] for box in order}
        for box in reversed(order):
            below = [
                self.of[head] - length
                for head, length in self.heads.get(box, ())
                if head in self.of
            ]
            if below:
                self.of[box] = min(below)

    def reachable(self, start: str, deepest: int) -> set[str]:
        """Return `start` and the boxes reachable from it, down to rank `deepest`."""

        def heads_of(box: str) -> list[str]:
            heads = (head for head, _ in self.heads.get(box, ()))
            return [head for head in heads if self.of.get(head, deepest + 1) <= deepest]

        return reachable([start], heads_of)


NEIGHBOURS = 4
"""Number of preceding clusters that a cluster is compared with."""
OVERLAP = 0.5
"""Maximum overlap of two clusters in sequence, as a share of the shorter cluster."""
MAX_ENDS = 6
"""Maximum number of boxes per cluster or group that get invisible edges."""
GAP = 2
"""Ranks from a cluster's last box to the next cluster's first box.

One rank in between is free for the next cluster's inputs.
"""


class _RankSpan(NamedTuple):
    """First and last rank of a cluster, and its boxes."""

    first: int
    last: int
    boxes: list[str]


def separating_edges(
    edges: Iterable[BoxEdge], levels: Iterable[Sequence[Sequence[Sequence[str]]]]
) -> list[BoxEdge]:
    """Return invisible edges that keep sibling clusters apart. Each edge must span `GAP` ranks.

    Args:
        edges: drawn edges between boxes.
        levels: groups of sibling clusters at each depth of nesting, innermost first. A cluster is
            a sequence of box keys.
    """
    ranks = NodeRanks(edges)
    separating: list[BoxEdge] = []
    for sibling_groups in levels:
        added = [
            edge
            for siblings in sibling_groups
            for before, after in _stacked_pairs(siblings, ranks.of)
            for edge in _edges_between(before, after, ranks)
        ]
        for tail, head in added:
            ranks.add(tail, head, GAP)
        if added:
            ranks.update()
        separating += added
    return separating


def anchor_edges(
    boxes: Sequence[tuple[str, Sequence[Hashable]]], edges: Iterable[BoxEdge]
) -> list[BoxEdge]:
    """Return invisible edges that tie each connected component to a neighbour in graph order.

    A chain of boxes is a separate component if all its operands are ports or parameters. Without an
    invisible edge, `dot` would put the chain at the top and stretch its cluster down to the other
    boxes of the cluster.

    Args:
        boxes: boxes in graph order, each with its clusters, outermost first. Components with
            different outermost clusters are not connected.
        edges: drawn edges between the boxes.
    """
    components = UnionFind[str]()
    component = components.find
    for tail, head in edges:
        components.join(tail, head)
    sizes = Counter(component(box) for box, _ in boxes)
    ties: list[BoxEdge] = []
    # The second pass goes backwards, for the first boxes of the graph, which have no predecessor.
    for order, forward in ((boxes, True), (boxes[::-1], False)):
        latest_boxes: dict[Hashable, list[str]] = {}
        for box, cluster in order:
            own_component = component(box)
            enclosing = [tuple(cluster[:end]) for end in range(len(cluster), 0, -1)]
            neighbour = next(
                (
                    candidate
                    for path in enclosing
                    for candidate in latest_boxes.get(path, ())
                    if component(candidate) != own_component
                ),
                None,
            )
            if neighbour is not None and sizes[component(neighbour)] >= sizes[own_component]:
                ties.append((neighbour, box) if forward else (box, neighbour))
                sizes[component(neighbour)] += sizes[own_component]
                components.join(box, neighbour)
            for path in enclosing:
                # Keep two boxes: the latest box may be in the same component as the next box.
                latest_boxes[path] = [box, *latest_boxes.get(path, ())[:1]]
    return ties


def stacking_edges(groups: Sequence[Sequence[str]], edges: Iterable[BoxEdge]) -> Iterator[BoxEdge]:
    """Yield invisible edges that stack consecutive groups of boxes without an edge between them.

    Args:
        groups: box keys of each group, from top to bottom.
        edges: drawn edges.
    """
    edges = list(edges)
    group_of = {box: number for number, boxes in enumerate(groups) for box in boxes}
    joined = {
        frozenset((group_of[tail], group_of[head]))
        for tail, head in edges
        if tail in group_of and head in group_of
    }
    grouped = group_of.keys()
    with_users = {tail for tail, head in edges if head in grouped}
    with_operands = {head for tail, head in edges if tail in grouped}
    for number, (before, after) in enumerate(pairwise(groups)):
        if frozenset((number, number + 1)) in joined:
            continue
        ends = [box for box in before if box not in with_users] or [*before[-1:]]
        starts = [box for box in after if box not in with_operands] or [*after[:1]]
        for end in ends[-MAX_ENDS:]:
            for start in starts[:MAX_ENDS]:
                yield end, start


def _edges_between(upper: _RankSpan, lower: _RankSpan, ranks: NodeRanks) -> Iterator[BoxEdge]:
    """Yield edges from the last boxes of a cluster to the first boxes of the next cluster."""
    fed = [box for box in lower.boxes if box in ranks.in_degree]
    fed_from_inside = {head for box in fed for head, _ in ranks.heads.get(box, ())}
    entries = [
        box for box in fed if box not in fed_from_inside and ranks.of[box] < upper.last + GAP
    ] or lower.boxes
    upper_boxes = set(upper.boxes)
    ends = [
        box
        for box in upper.boxes
        if ranks.of[box] > lower.first - GAP
        and upper_boxes.isdisjoint(head for head, _ in ranks.heads.get(box, ()))
    ]
    ends.sort(key=ranks.of.__getitem__, reverse=True)
    for entry in sorted(entries, key=ranks.of.__getitem__)[:MAX_ENDS]:
        below = ranks.reachable(entry, upper.last)
        for end in ends[:MAX_ENDS]:
            if end not in below:  # else the edge would close a cycle
                yield end, entry


def _stacked_pairs(
    siblings: Sequence[Sequence[str]], ranks: Mapping[str, int]
) -> Iterator[tuple[_RankSpan, _RankSpan]]:
    """Yield pairs of sibling clusters, each with the upper cluster first."""
    spans = []
    for cluster in siblings:
        boxes = [box for box in cluster if box in ranks]
        if boxes:
            levels = [ranks[box] for box in boxes]
            spans.append(_RankSpan(min(levels), max(levels), boxes))
    spans.sort(key=lambda span: span[:2])
    for i, after in enumerate(spans):
        for before in spans[max(0, i - NEIGHBOURS) : i]:
            overlap = before.last - after.first + 1
            shorter = min(before.last - before.first, after.last - after.first) + 1
            if -GAP < overlap <= OVERLAP * shorter and before.first < after.first:
                yield before, after
