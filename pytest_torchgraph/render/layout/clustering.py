"""Grouping of drawables into boxes, to keep a drawing small enough to read.

The input is the drawables in graph order, each with its path in the tree of clusters. Clusters are
opened from the outside in until the drawing would become too large. A closed cluster is one box.
Without clusters, or with too many siblings, consecutive drawables form blocks.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from ...graph.equality import reachable
from .scene import ClusterPath, Segment

FANOUT = 32
"""Maximum children of a cluster before it is divided into blocks of consecutive children."""
TINY = 2
"""Maximum drawables of a cluster that is opened whenever there is room.

Its closed box would hardly take less space.
"""


class Unit(NamedTuple):
    """The content of one box: a single drawable, or a group of several folded into it.

    Attributes:
        cluster: the cluster that contains the box.
        members: numbers of the drawables, in graph order.
        inside: the outermost closed clusters in the box; empty for a single drawable.
        cut: (part number, number of parts) if a group was split to break a cycle.
    """

    cluster: ClusterPath
    members: tuple[int, ...]
    inside: tuple[Segment, ...] = ()
    cut: tuple[int, int] = (1, 1)

    @property
    def is_group(self) -> bool:
        """True if several drawables are folded into the box."""
        return len(self.members) > 1


@dataclass(slots=True, eq=False)
class _TreeNode:
    """A cluster or a block in the tree of clusters; the leaves are the numbers of drawables.

    Attributes:
        segment: last segment of the cluster's path; `None` for the root and for blocks.
        cluster: path of the cluster, or of the cluster that contains the block.
        parent: parent node; `None` for the root.
        children: nodes and drawables, in graph order.
    """

    segment: Segment | None
    cluster: ClusterPath
    parent: _TreeNode | None
    children: list[int | _TreeNode] = field(default_factory=list)

    def leaves(self) -> Iterator[int]:
        """Yield the numbers of all drawables in the subtree, in graph order."""
        pending: list[int | _TreeNode] = [self]
        while pending:
            child = pending.pop()
            if isinstance(child, int):
                yield child
            else:
                pending.extend(reversed(child.children))

    def walk(self) -> Iterator[_TreeNode]:
        """Yield all nodes of the subtree, beginning with this node."""
        yield self
        for child in _child_nodes([self]):
            yield from child.walk()

    def is_tiny(self) -> bool:
        """Return True if the subtree is a chain of nodes that ends in at most `TINY` drawables."""
        node = self
        while len(node.children) == 1 and isinstance(node.children[0], _TreeNode):
            node = node.children[0]
        return len(node.children) <= TINY and all(isinstance(child, int) for child in node.children)


class Clustering:
    """The tree of clusters, and the choice of the clusters to open.

    Args:
        clusters: cluster of each drawable, in graph order.
    """

    def __init__(self, clusters: Sequence[ClusterPath]):
        self._root = _TreeNode(None, (), None)
        self._parents = [self._root] * len(clusters)
        nodes: dict[ClusterPath, _TreeNode] = {(): self._root}
        for number, cluster in enumerate(clusters):
            self._node_at(cluster, nodes).children.append(number)
        for node in list(nodes.values()):
            self._cut_into_blocks(node)
        for node in self._root.walk():
            for child in node.children:
                if isinstance(child, int):
                    self._parents[child] = node

    def _node_at(self, cluster: ClusterPath, nodes: dict[ClusterPath, _TreeNode]) -> _TreeNode:
        """Return the tree node of a cluster, creating it and its ancestors if necessary."""
        length = len(cluster)
        while cluster[:length] not in nodes:
            length -= 1
        node = nodes[cluster[:length]]
        for end in range(length + 1, len(cluster) + 1):
            nested = _TreeNode(cluster[end - 1], cluster[:end], node)
            nodes[nested.cluster] = nested
            node.children.append(nested)
            node = nested
        return node

    def _cut_into_blocks(self, node: _TreeNode) -> None:
        if len(node.children) <= FANOUT:
            return
        # Rounded up, so that there are at most `FANOUT` blocks. A block that is too large is
        # divided further.
        size = -(-len(node.children) // FANOUT)
        blocks = []
        for start in range(0, len(node.children), size):
            block = _TreeNode(None, node.cluster, node, node.children[start : start + size])
            for child in block.children:
                if isinstance(child, _TreeNode):
                    child.parent = block
            self._cut_into_blocks(block)
            blocks.append(block)
        node.children = [*blocks]

    # -- choosing ----------------------------------------------------------------------------------

    def units(
        self, limit: int | None, focus: Sequence[int] = (), *, compact: bool = False
    ) -> list[Unit]:
        """Return the contents of the boxes to draw, in graph order.

        Args:
            limit: maximum number of boxes; `None` for one box per drawable. The first drawable in
                `focus` always gets its own box, even if that exceeds the limit.
            focus: drawables to show in their own boxes, the most important first. Drawables that
                do not fit stay in groups.
            compact: True to open only clusters that contain `focus`, and to fold consecutive other
                drawables and closed clusters into one box. By default, as many clusters are opened
                as fit.
        """
        if limit is None:
            open_nodes = dict.fromkeys(self._root.walk())
            return self._units(open_nodes, range(len(self._parents)), compact=False)

        # Every further drawable opens clusters or divides boxes, so the number of boxes only grows.
        def count(length: int) -> int:
            prefix = focus[:length]
            return self._count(self._nodes_to_open(prefix), set(prefix), compact)

        fitting = bisect_right(range(1, len(focus) + 1), limit, key=count)
        fitting_focus = focus[: max(fitting, 1)]
        open_nodes = self._nodes_to_open(fitting_focus)
        if not compact:
            self._open_what_fits(open_nodes, limit)
        return self._units(open_nodes, set(fitting_focus), compact)

    def _nodes_to_open(self, focus: Iterable[int]) -> dict[_TreeNode, None]:
        """Return the nodes to open to make the drawables visible."""
        open_nodes: dict[_TreeNode, None] = {self._root: None}
        for number in focus:
            node: _TreeNode | None = self._parents[number]
            while node is not None and node not in open_nodes:
                open_nodes[node] = None
                node = node.parent
        return open_nodes

    def _open_what_fits(self, open_nodes: dict[_TreeNode, None], limit: int) -> None:
        """Open all clusters depth by depth while they fit, then the tiny clusters."""
        count = self._count(open_nodes, set(), compact=False)
        closed = [node for node in _child_nodes(open_nodes) if node not in open_nodes]
        while closed:
            # Opening a cluster replaces its box by one box per child.
            added = sum(len(node.children) - 1 for node in closed)
            if count + added > limit:
                break
            count += added
            open_nodes.update(dict.fromkeys(closed))
            closed = _child_nodes(closed)
        for node in closed:
            # Adding `limit` boxes never fits, because there is at least one box already. So a
            # cluster that is not tiny stays closed.
            added = len(list(node.leaves())) - 1 if node.is_tiny() else limit
            if count + added <= limit:
                count += added
                open_nodes.update(dict.fromkeys(node.walk()))

    # -- the boxes that result ---------------------------------------------------------------------

    def _boxes_by_cluster(
        self, open_nodes: Collection[_TreeNode], focus: Collection[int], compact: bool
    ) -> Iterator[tuple[_TreeNode, list[list[int | _TreeNode]]]]:
        """Yield each open cluster with its boxes, each a list of drawables and closed nodes."""
        pending = [self._root]
        while pending:
            node = pending.pop()
            boxes: list[list[int | _TreeNode]] = []
            mergeable = False
            inline = list(reversed(node.children))
            while inline:
                child = inline.pop()
                if isinstance(child, _TreeNode) and child in open_nodes:
                    if child.segment is None:
                        inline.extend(reversed(child.children))
                    else:
                        pending.append(child)
                        mergeable = False
                    continue
                if mergeable and child not in focus:
                    boxes[-1].append(child)
                else:
                    boxes.append([child])
                mergeable = compact and child not in focus
            yield node, boxes

    def _count(
        self, open_nodes: Collection[_TreeNode], focus: Collection[int], compact: bool
    ) -> int:
        return sum(len(boxes) for _, boxes in self._boxes_by_cluster(open_nodes, focus, compact))

    def _units(
        self, open_nodes: Collection[_TreeNode], focus: Collection[int], compact: bool
    ) -> list[Unit]:
        units = []
        for node, boxes in self._boxes_by_cluster(open_nodes, focus, compact):
            for box in boxes:
                members = tuple(
                    leaf
                    for child in box
                    for leaf in ((child,) if isinstance(child, int) else child.leaves())
                )
                if len(members) == 1:
                    units.append(Unit(self._parents[members[0]].cluster, members))
                else:
                    units.append(Unit(node.cluster, members, tuple(_segments(box))))
        return sorted(units, key=lambda unit: min(unit.members))


def _child_nodes(nodes: Iterable[_TreeNode]) -> list[_TreeNode]:
    return [child for node in nodes for child in node.children if isinstance(child, _TreeNode)]


def _segments(box: Iterable[int | _TreeNode]) -> Iterator[Segment]:
    """Yield the closed clusters of a box. A chain of only children yields its innermost cluster."""
    for child in box:
        if isinstance(child, int):
            continue
        if child.segment is None:
            yield from _segments(child.children)
        else:
            while len(child.children) == 1 and isinstance(child.children[0], _TreeNode):
                child = child.children[0]
            assert child.segment is not None
            yield child.segment


# -- cycles ----------------------------------------------------------------------------------------


def break_cycles(units: Sequence[Unit], edges: Iterable[tuple[int, int]], limit: int) -> list[Unit]:
    """Split each box on a cycle into several boxes.

    A box is on a cycle if a value leaves the box and a result computed from it comes back. Such a
    box would have to be both above and below the boxes in between, so some edges would run upwards.

    Args:
        units: contents of the boxes.
        edges: data flow between drawables, as pairs of numbers.
        limit: maximum number of boxes. If splitting exceeds it, no box is split.
    """
    unit_of = {member: number for number, unit in enumerate(units) for member in unit.members}
    heads: dict[int, set[int]] = {}
    for tail, head in edges:
        if unit_of[tail] != unit_of[head]:
            heads.setdefault(unit_of[tail], set()).add(unit_of[head])
    runs: dict[int, list[list[int]]] = {}
    for cycle in _cycles(heads):
        _cut_into_runs(cycle, units, unit_of, runs)
    if len(units) + sum(len(parts) - 1 for parts in runs.values()) > limit:
        return list(units)
    cut: list[Unit] = []
    for number, unit in enumerate(units):
        parts = runs.get(number, [list(unit.members)])
        cut += [
            unit._replace(members=tuple(part), cut=(part_number, len(parts)))
            for part_number, part in enumerate(parts, 1)
        ]
    return sorted(cut, key=lambda unit: min(unit.members))


def _cut_into_runs(
    cycle: Iterable[int],
    units: Sequence[Unit],
    unit_of: Mapping[int, int],
    runs: dict[int, list[list[int]]],
) -> None:
    """Split the units of a cycle into `runs`, wherever a member of another unit is in between."""
    previous_unit = -1
    # In graph order a value precedes its users, so runs in this order cannot form a cycle.
    for member in sorted(member for number in cycle for member in units[number].members):
        number = unit_of[member]
        parts = runs.setdefault(number, [])
        if number != previous_unit:
            parts.append([])
        parts[-1].append(member)
        previous_unit = number


def _cycles(heads: Mapping[int, Collection[int]]) -> Iterator[set[int]]:
    """Yield the strongly connected components with more than one node, in a directed graph.

    Kosaraju's algorithm, iterative because a long chain would exceed the recursion limit.

    Args:
        heads: successors of each node.
    """
    tails: defaultdict[int, list[int]] = defaultdict(list)
    for tail in heads:
        for head in heads[tail]:
            tails[head].append(tail)
    visited: set[int] = set()
    finished: list[int] = []
    for start in heads:
        path = [] if start in visited else [(start, iter(heads[start]))]
        visited.add(start)
        while path:
            node, successors = path[-1]
            unvisited = next((head for head in successors if head not in visited), None)
            if unvisited is None:
                finished.append(node)
                path.pop()
            else:
                visited.add(unvisited)
                path.append((unvisited, iter(heads.get(unvisited, ()))))
    assigned: set[int] = set()
    for node in reversed(finished):
        if node not in assigned:
            component = reachable([node], lambda n: [t for t in tails[n] if t not in assigned])
            assigned.update(component)
            if len(component) > 1:
                yield component
