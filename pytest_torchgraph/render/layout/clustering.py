"""Which drawables share a box, so that a drawing stays small enough to be read.

The drawables come in the order of the graph, each with its path in the tree of clusters. Clusters
are opened from the outside in until the drawing would become too large; a cluster that stays closed
is one box. Where there are no clusters, or too many side by side, drawables that follow each other
form blocks.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from .scene import ClusterPath, Segment

FANOUT = 32
"""A cluster with more children than this is cut into blocks of children that follow each other."""
TINY = 2
"""A cluster of at most so many drawables is opened as long as there is room: its closed box would
hardly take less."""


class Unit(NamedTuple):
    """The content of one box: a single drawable, or a group of several folded into it.

    Attributes:
        cluster: the cluster that the box is in.
        members: the drawables, by number, in the order of the graph.
        inside: the outermost clusters that are closed in it; none for a single drawable.
        cut: (which, of how many), where one closed cluster had to become several boxes.
    """

    cluster: ClusterPath
    members: tuple[int, ...]
    inside: tuple[Segment, ...] = ()
    cut: tuple[int, int] = (1, 1)

    @property
    def is_group(self) -> bool:
        """Whether several drawables are folded into the box."""
        return len(self.members) > 1


@dataclass(slots=True, eq=False)
class _TreeNode:
    """A cluster or a block in the tree of clusters; the leaves are the numbers of drawables.

    Attributes:
        segment: the last step of the cluster's path; None for the root and for blocks.
        cluster: the path of the cluster, or of the cluster that the block is in.
        parent: the node above it; None for the root.
        children: nodes and drawables, in the order of the graph.
    """

    segment: Segment | None
    cluster: ClusterPath
    parent: _TreeNode | None
    children: list[int | _TreeNode] = field(default_factory=list)

    def leaves(self) -> Iterator[int]:
        """The numbers of the drawables below, in the order of the graph."""
        todo: list[int | _TreeNode] = [self]
        while todo:
            child = todo.pop()
            if isinstance(child, int):
                yield child
            else:
                todo.extend(reversed(child.children))

    def is_tiny(self) -> bool:
        """Whether at most `TINY` drawables and nothing else are in it, however deep."""
        node = self
        while len(node.children) == 1 and isinstance(node.children[0], _TreeNode):
            node = node.children[0]
        return len(node.children) <= TINY and all(isinstance(child, int) for child in node.children)


class Clustering:
    """The tree of clusters, and the choice of those that are opened.

    Args:
        clusters: the cluster of each drawable, in the order of the graph.
    """

    def __init__(self, clusters: Sequence[ClusterPath]):
        self._root = _TreeNode(None, (), None)
        self._parents = [self._root] * len(clusters)
        nodes: dict[ClusterPath, _TreeNode] = {(): self._root}
        for number, cluster in enumerate(clusters):
            self._node_at(cluster, nodes).children.append(number)
        for node in list(nodes.values()):
            self._cut_into_blocks(node)
        for node in self._walk():
            for child in node.children:
                if isinstance(child, int):
                    self._parents[child] = node

    def _node_at(self, cluster: ClusterPath, nodes: dict[ClusterPath, _TreeNode]) -> _TreeNode:
        """The tree node of a cluster, made with those around it where it is new."""
        length = len(cluster)
        while cluster[:length] not in nodes:
            length -= 1
        node = nodes[cluster[:length]]
        for end in range(length + 1, len(cluster) + 1):
            inner = _TreeNode(cluster[end - 1], cluster[:end], node)
            nodes[inner.cluster] = inner
            node.children.append(inner)
            node = inner
        return node

    def _cut_into_blocks(self, node: _TreeNode) -> None:
        if len(node.children) <= FANOUT:
            return
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

    def _walk(self) -> Iterator[_TreeNode]:
        todo = [self._root]
        while todo:
            node = todo.pop()
            yield node
            todo += _child_nodes([node])

    # -- choosing ----------------------------------------------------------------------------------

    def units(
        self, limit: int | None, focus: Sequence[int] = (), *, compact: bool = False
    ) -> list[Unit]:
        """The contents of the boxes to draw, in the order of the graph.

        Args:
            limit: how many boxes at most; None for one to each drawable. One drawable of `focus`
                gets its box even where that alone needs more.
            focus: the drawables that are to have boxes of their own, the most important first. If
                not all of them fit, the rest is left to groups.
            compact: whether to open only what leads to `focus`, and to fold the drawables and
                closed clusters beside it that follow each other into one box. By default as much
                is opened as there is room for.
        """
        if limit is None:
            opened = dict.fromkeys(self._walk())
            return self._units(opened, range(len(self._parents)), compact=False)
        low, high = 0, len(focus)
        while low < high:
            middle = (low + high + 1) // 2
            chosen = focus[:middle]
            if self._count(self._towards(chosen), set(chosen), compact) <= limit:
                low = middle
            else:
                high = middle - 1
        kept = focus[: max(low, 1)]
        opened = self._towards(kept)
        if not compact:
            self._open_more(opened, limit)
        return self._units(opened, set(kept), compact)

    def _towards(self, focus: Iterable[int]) -> dict[_TreeNode, None]:
        """The nodes to open so that these drawables are in no closed one."""
        opened: dict[_TreeNode, None] = {self._root: None}
        for number in focus:
            node: _TreeNode | None = self._parents[number]
            while node is not None and node not in opened:
                opened[node] = None
                node = node.parent
        return opened

    def _open_more(self, opened: dict[_TreeNode, None], limit: int) -> None:
        """Open all of one depth, then all of the next, while everything fits; then tiny ones."""
        count = self._count(opened, set(), compact=False)
        closed = [node for node in _child_nodes(opened) if node not in opened]
        while closed:
            more = sum(len(node.children) - 1 for node in closed)
            if count + more > limit:
                break
            count += more
            opened.update(dict.fromkeys(closed))
            closed = _child_nodes(closed)
        for node in closed:
            more = len(list(node.leaves())) - 1 if node.is_tiny() else limit
            if count + more <= limit:
                count += more
                opened[node] = None
                inner = _child_nodes([node])
                while inner:
                    opened.update(dict.fromkeys(inner))
                    inner = _child_nodes(inner)

    # -- the boxes that result ---------------------------------------------------------------------

    def _boxes_by_cluster(
        self, opened: Collection[_TreeNode], focus: Collection[int], compact: bool
    ) -> Iterator[tuple[_TreeNode, list[list[int | _TreeNode]]]]:
        """Each open cluster with its boxes, a box as the drawables and closed nodes in it."""
        todo = [self._root]
        while todo:
            node = todo.pop()
            boxes: list[list[int | _TreeNode]] = []
            mergeable = False
            inline = list(reversed(node.children))
            while inline:
                child = inline.pop()
                if isinstance(child, _TreeNode) and child in opened:
                    if child.segment is None:
                        inline.extend(reversed(child.children))
                    else:
                        todo.append(child)
                        mergeable = False
                    continue
                if mergeable and child not in focus:
                    boxes[-1].append(child)
                else:
                    boxes.append([child])
                mergeable = compact and child not in focus
            yield node, boxes

    def _count(self, opened: Collection[_TreeNode], focus: Collection[int], compact: bool) -> int:
        return sum(len(boxes) for _, boxes in self._boxes_by_cluster(opened, focus, compact))

    def _units(
        self, opened: Collection[_TreeNode], focus: Collection[int], compact: bool
    ) -> list[Unit]:
        units = []
        for node, boxes in self._boxes_by_cluster(opened, focus, compact):
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
    """The closed clusters of a box; of clusters that hold nothing but another the innermost."""
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
    """The boxes, with those on a cycle cut into several.

    Data that leave a box and enter it again would have to flow up: the box would be above and
    below what is between.

    Args:
        units: the contents of the boxes.
        edges: between which drawables, by number, data flow.
        limit: how many boxes there may be; if cutting gives more, all boxes are left as they are.
    """
    unit_of = {member: number for number, unit in enumerate(units) for member in unit.members}
    heads: dict[int, set[int]] = {}
    for tail, head in edges:
        if unit_of[tail] != unit_of[head]:
            heads.setdefault(unit_of[tail], set()).add(unit_of[head])
    runs: dict[int, list[list[int]]] = {}
    for cycle in _Components(heads):
        _cut_into_runs(cycle, units, unit_of, runs)
    if len(units) + sum(len(parts) - 1 for parts in runs.values()) > limit:
        return list(units)
    cut: list[Unit] = []
    for number, unit in enumerate(units):
        parts = runs.get(number, [list(unit.members)])
        cut += [
            unit._replace(members=tuple(part), cut=(which, len(parts)))
            for which, part in enumerate(parts, 1)
        ]
    return sorted(cut, key=lambda unit: min(unit.members))


def _cut_into_runs(
    cycle: Iterable[int],
    units: Sequence[Unit],
    unit_of: Mapping[int, int],
    runs: dict[int, list[list[int]]],
) -> None:
    """Cut the units of a cycle, into `runs`, wherever a member of another one comes between."""
    last = -1
    for member in sorted(member for number in cycle for member in units[number].members):
        number = unit_of[member]
        parts = runs.setdefault(number, [])
        if number != last:
            parts.append([])
        parts[-1].append(member)
        last = number


class _Components:
    """The strongly connected components of a directed graph with more than one node.

    Tarjan's algorithm, with a path in place of recursion, which a long chain would exhaust.

    Args:
        heads: the nodes that edges lead to, for each node that edges leave.
    """

    def __init__(self, heads: Mapping[int, Collection[int]]):
        self._heads = heads
        self._index: dict[int, int] = {}
        """When each node was discovered."""
        self._low: dict[int, int] = {}
        """The earliest index of an open node that is known to be reachable from each node."""
        self._open: dict[int, None] = {}
        """Discovered nodes whose component is not complete, in the order of discovery."""
        self._path: list[tuple[int, Iterator[int]]] = []
        """The nodes from the start to the current one, each with the heads still to be followed."""

    def __iter__(self) -> Iterator[list[int]]:
        for start in self._heads:
            if start not in self._index:
                self._discover(start)
                yield from self._explore()

    def _discover(self, node: int) -> None:
        self._index[node] = self._low[node] = len(self._index)
        self._open[node] = None
        self._path.append((node, iter(self._heads.get(node, ()))))

    def _explore(self) -> Iterator[list[int]]:
        """Follow the path until it is empty."""
        while self._path:
            node, heads = self._path[-1]
            if self._advance(node, heads):
                continue
            self._path.pop()
            if self._path:
                above = self._path[-1][0]
                self._low[above] = min(self._low[above], self._low[node])
            if self._low[node] == self._index[node]:
                members = self._close(node)
                if len(members) > 1:
                    yield members

    def _advance(self, node: int, heads: Iterator[int]) -> bool:
        """Make the path one node longer; False where no head of `node` is left to discover."""
        for head in heads:
            if head not in self._index:
                self._discover(head)
                return True
            if head in self._open:
                self._low[node] = min(self._low[node], self._index[head])
        return False

    def _close(self, first: int) -> list[int]:
        """Complete the component whose first discovered node is `first`."""
        members: list[int] = []
        while not members or members[-1] != first:
            members.append(self._open.popitem()[0])
        return members
