"""Overlay of two graphs: nodes in both graphs become one node, all others get a change mark.

A difference lists only the nodes that differ. To draw their surroundings, an overlay also matches
the unchanged nodes: equal ops in the same module, in graph order, regardless of their names.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Hashable, Iterable, Iterator
from typing import NamedTuple

from ..graph.diff import Change, ChangeKind, GraphPair
from ..graph.model import Graph, Node
from ..words import grouped
from .layout import DrawnValue, FoldedGraph, FoldedNode, OnlySide
from .look import SIGNS, ChangeMark, ComparedLine, value_label

EMPTY = Graph(())
CORRESPONDENCE: tuple[Callable[[Node], Hashable], ...] = (
    lambda node: (node.kind == "placeholder" or node.op, node.module, value_label(node)),
    lambda node: (node.kind == "placeholder" or node.op, value_label(node)),
    lambda node: node.op,
)
"""Keys for matching unchanged nodes of the two graphs, the strictest first."""


class OverlaidNode(NamedTuple):
    """A drawn node of an overlay.

    Attributes:
        is_new: False for a node that only the old graph has.
        name: name of the node in the new graph, or in the old graph if only the old graph has it.
    """

    is_new: bool
    name: str


class OverlaidEdge(NamedTuple):
    """A value that flows between two nodes of an overlay.

    Attributes:
        tail: the node that produces the value.
        path: position of the value in the tail's result, one index per nested projection.
        head: the node that reads the value.
    """

    tail: OverlaidNode
    path: tuple[int, ...]
    head: OverlaidNode


class Overlay:
    """The two graphs of a `GraphPair` as one graph, for `difference` to draw.

    Args:
        pair: the graphs, and the nodes that differ.
        changes: further changes. Changes of other graphs are ignored.

    Attributes:
        pair: the graphs.
        old, new: the graphs, reduced to the nodes that are drawn.
        change_marks: change marks of the nodes that differ.
        edges: every edge with its labels in the old and in the new graph; `None` if a graph does
            not have the edge.
        bypasses: edges between unmarked nodes that only the new graph has. They bypass a removed
            node, so they are not drawn as added.
        interrupted: edges between unmarked nodes that only the old graph has. An added node
            interrupts them, so they are not drawn.
        positions: position of each node in the order of the new graph.
        node_of: overlaid node that shows a differing node, keyed by `id(node)`.
        operands, users: nodes at the tails and at the heads of each node's edges.
    """

    def __init__(self, pair: GraphPair, changes: Iterable[Change] = ()):
        self.pair = pair
        self._further_changes = list(changes)
        self.old = FoldedGraph(pair.before or EMPTY)
        self.new = FoldedGraph(pair.after or EMPTY)
        self.change_marks: dict[OverlaidNode, ChangeMark] = {}
        self.node_of: dict[int, OverlaidNode] = {}
        self.bypasses: set[OverlaidEdge] = set()
        self.interrupted: set[OverlaidEdge] = set()
        self._partner = self._pairing()
        self._partnered = set(self._partner.values())
        self._mark_drawn()
        self._mark_folded()
        self.edges = self._edges()
        self.positions = self._positions()
        self.operands: defaultdict[OverlaidNode, list[OverlaidNode]] = defaultdict(list)
        self.users: defaultdict[OverlaidNode, list[OverlaidNode]] = defaultdict(list)
        for edge in self.edges:
            self.users[edge.tail].append(edge.head)
            self.operands[edge.head].append(edge.tail)
        self._by_module = grouped((self.folded(node).node.module, node) for node in self.positions)
        self._sizes: Counter[str] = Counter()
        for path, nodes in self._by_module.items():
            while path:
                self._sizes[path] += len(nodes)
                path = path.rpartition(".")[0]

    def is_small(self, path: str, most: int) -> bool:
        """Return True if a module has at most `most` nodes, including its submodules."""
        return self._sizes[path] <= most

    def members(self, path: str) -> list[OverlaidNode]:
        """Return the nodes in a module and its submodules, none for ""."""
        if not path:
            return []
        return [
            node
            for module, nodes in self._by_module.items()
            if module == path or module.startswith(f"{path}.")
            for node in nodes
        ]

    def side(self, node: OverlaidNode) -> OnlySide:
        """Return the only side that has a node, or "" if both sides have it."""
        if not node.is_new:
            return "before"
        return "" if node.name in self._partnered else "after"

    def folded(self, node: OverlaidNode) -> FoldedNode:
        """Return the drawn node of the new or old graph, with the nodes folded into it."""
        return (self.new if node.is_new else self.old).nodes[node.name]

    def overlaid(self, name: str, *, is_new: bool) -> OverlaidNode:
        """Return the overlaid node of a drawn node of the new or of the old graph."""
        if is_new:
            return OverlaidNode(True, name)
        partner = self._partner.get(name)
        return OverlaidNode(False, name) if partner is None else OverlaidNode(True, partner)

    # -- which nodes are the same ------------------------------------------------------------------

    def _pairing(self) -> dict[str, str]:
        """Map each drawn node of the old graph to its match in the new graph, by name."""
        pair = self.pair
        changed_pairs = (*pair.changed, *pair.rewired)
        partner = {
            a.name: b.name
            for a, b in changed_pairs
            if a.name in self.old.nodes and b.name in self.new.nodes
        }
        removed_ids = {id(node) for node in (*pair.removed, *(a for a, _ in changed_pairs))}
        added_ids = {id(node) for node in (*pair.added, *(b for _, b in changed_pairs))}
        unmatched_old = [n.node for n in self.old.nodes.values() if id(n.node) not in removed_ids]
        unmatched_new = [n.node for n in self.new.nodes.values() if id(n.node) not in added_ids]
        for key in CORRESPONDENCE:
            candidates: defaultdict[Hashable, list[Node]] = defaultdict(list)
            for node in reversed(unmatched_new):
                candidates[key(node)].append(node)
            for node in unmatched_old:
                if candidates[key(node)]:
                    partner[node.name] = candidates[key(node)].pop().name
            matched_names = set(partner.values())
            unmatched_old = [node for node in unmatched_old if node.name not in partner]
            unmatched_new = [node for node in unmatched_new if node.name not in matched_names]
        return partner

    # -- change marks ------------------------------------------------------------------------------

    def _changes(self) -> Iterator[tuple[ChangeKind, Node | None, Node | None]]:
        yield from self.pair.changes()
        listed_ids = {id(after or before) for _, before, after in self.pair.changes()}
        drawn_nodes = (*self.old.nodes.values(), *self.new.nodes.values())
        drawn_ids = {id(folded.node) for folded in drawn_nodes}
        for change in self._further_changes:
            if id(change.node) in drawn_ids and id(change.node) not in listed_ids:
                yield change.kind, change.before, change.after

    def _mark_drawn(self) -> None:
        """Add change marks to the drawn nodes that differ."""
        for kind, before, after in self._changes():
            if after is not None and after.name in self.new.nodes:
                node = OverlaidNode(True, after.name)
            elif after is None and before is not None and before.name in self.old.nodes:
                node = OverlaidNode(False, before.name)
            else:
                continue
            mark = self.change_marks[node] = ChangeMark(kind, before, after)
            if kind == "changed" and after is not None and after.kind == "output":
                mark.lines += self._saved_lines()
            self._register(node, before, after)

    def _saved_lines(self) -> Iterator[ComparedLine]:
        """Yield lines for the values that only one of the two graphs saves for backward."""
        old = {self._key(value, is_new=False): value for value in self.old.saved}
        new = {self._key(value, is_new=True): value for value in self.new.saved}
        for key, value in new.items():
            if key not in old:
                yield ComparedLine.only("added", f"save {value.producer.name} {value.edge_label}")
        for key, value in old.items():
            if key not in new:
                yield ComparedLine.only("removed", f"save {value.producer.name} {value.edge_label}")

    def _key(self, value: DrawnValue, *, is_new: bool) -> tuple[OverlaidNode, tuple[int, ...]]:
        return self.overlaid(value.producer.name, is_new=is_new), value.path

    def _mark_folded(self) -> None:
        """Add change marks to the drawn nodes whose parameters or projections differ."""
        for kind, before, after in self._changes():
            node = after or before
            assert node is not None
            if id(node) in self.node_of:
                continue
            graph = self.old if after is None else self.new
            shown_in = graph.folded_into(node)
            if shown_in is None:
                continue
            overlaid = self.overlaid(shown_in.node.name, is_new=after is not None)
            mark = self.change_marks.setdefault(overlaid, ChangeMark("changed", None, None))
            if mark.kind not in ("added", "removed"):
                mark.lines.append(_folded_line(graph, node, kind, before))
            self._register(overlaid, before, after)

    def _register(self, overlaid: OverlaidNode, before: Node | None, after: Node | None) -> None:
        for node in (before, after):
            if node is not None:
                self.node_of[id(node)] = overlaid

    # -- edges and positions -----------------------------------------------------------------------

    def _edges(self) -> dict[OverlaidEdge, tuple[str | None, str | None]]:
        edges: dict[OverlaidEdge, tuple[str | None, str | None]] = {}
        for name, folded in self.new.nodes.items():
            head = self.overlaid(name, is_new=True)
            for value in folded.operands:
                tail, path = self._key(value, is_new=True)
                edges[OverlaidEdge(tail, path, head)] = (None, value.edge_label)
        for name, folded in self.old.nodes.items():
            head = self.overlaid(name, is_new=False)
            for value in folded.operands:
                tail, path = self._key(value, is_new=False)
                edge = OverlaidEdge(tail, path, head)
                edges[edge] = (value.edge_label, edges.get(edge, (None, None))[1])
        for edge, (before, after) in list(edges.items()):
            # An edge between two unmarked nodes differs only because of a node between them.
            if edge.tail in self.change_marks or edge.head in self.change_marks:
                continue
            if after is None:
                del edges[edge]
                self.interrupted.add(edge)
            elif before is None:
                edges[edge] = (after, after)
                self.bypasses.add(edge)
        return edges

    def _positions(self) -> dict[OverlaidNode, tuple[int, int]]:
        """Return the position of each node. A removed node follows its old predecessor."""
        positions = {
            OverlaidNode(True, name): (folded.position, 0)
            for name, folded in self.new.nodes.items()
        }
        last_position = 0
        for name, folded in self.old.nodes.items():
            node = self.overlaid(name, is_new=False)
            if node.is_new:
                last_position = positions[node][0]
            else:
                positions[node] = (last_position, folded.position + 1)
        return positions

    # -- surroundings ------------------------------------------------------------------------------

    def neighbours(self, node: OverlaidNode, most: int) -> Iterable[OverlaidNode]:
        """Return the operands and users of a node, at most `most` of each, nearest first."""
        # The operands of the output node can be anywhere in the graph, so they are no context.
        if self.folded(node).node.kind == "output":
            return ()
        operands = sorted(set(self.operands[node]), key=self.positions.__getitem__, reverse=True)
        users = sorted(set(self.users[node]), key=self.positions.__getitem__)
        return (*operands[:most], *users[:most])


def _folded_line(
    graph: FoldedGraph, node: Node, kind: ChangeKind, before: Node | None
) -> ComparedLine:
    """Return the label line of a differing node that is folded into a box."""
    value = graph.value(node.name)
    text = f"{node.target or node.name} {value_label(node)}".strip()
    if value is not None:
        text = f"result {value.edge_label}"
    if kind == "added" or kind == "removed":
        return ComparedLine.only(kind, text)
    head = f"{SIGNS[kind]} "
    if kind != "changed" or before is None:
        return ComparedLine.same(f"{head}{text}")
    old_label, new_label = value_label(before), value_label(node)
    return ComparedLine.changed(old_label, new_label, head + text.removesuffix(new_label))
