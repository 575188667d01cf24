"""Two graphs laid over each other: what is in both becomes one, the rest is marked.

A difference names only the nodes that differ. To draw their surroundings the nodes that do not
differ must be known to be the same: after the differing ones are taken out, equal ops in the same
module correspond in their order, whatever they are called.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Hashable, Iterable, Iterator
from typing import NamedTuple

from ..graph.diff.report import Change, ChangeKind, PairDiff
from ..graph.model import Graph, Node
from .layout.fold import Box, Folded
from .look.change_marks import Mark
from .look.labels import value_label

EMPTY = Graph(())


class Item(NamedTuple):
    """Something to draw: a box of the new graph, or one that only the old graph has."""

    is_new: bool
    name: str


class Edge(NamedTuple):
    """A value flowing between two items."""

    tail: Item
    path: tuple[int, ...]
    head: Item


class Overlay:
    """The two graphs of a `PairDiff`.

    Attributes:
        marks: the items that differ.
        edges: every edge, with its label in the old and in the new graph; None where it is not.
        positions: where each item is in the order of the new graph.
        items_of: the item that shows a node which differs, by `id(node)`.
    """

    def __init__(self, pair: PairDiff, changes: Iterable[Change] = ()):
        """Lay a pair of graphs over each other; `changes` are further ones, of any graph."""
        self.pair = pair
        self._further = list(changes)
        self.old = Folded(pair.before or EMPTY)
        self.new = Folded(pair.after or EMPTY)
        self.marks: dict[Item, Mark] = {}
        self.items_of: dict[int, Item] = {}
        self._partner = self._pairing()
        self._mark_boxes()
        self._mark_folded()
        self.edges = self._edges()
        self.positions = self._positions()
        self.above: defaultdict[Item, list[Item]] = defaultdict(list)
        self.below: defaultdict[Item, list[Item]] = defaultdict(list)
        for edge in self.edges:
            self.below[edge.tail].append(edge.head)
            self.above[edge.head].append(edge.tail)
        self._own: defaultdict[str, list[Item]] = defaultdict(list)
        for item in self.positions:
            self._own[self.box(item).node.module].append(item)
        self._sizes: Counter[str] = Counter()
        for path, items in self._own.items():
            while path:
                self._sizes[path] += len(items)
                path = path.rpartition(".")[0]

    def is_small(self, path: str, most: int) -> bool:
        """Whether at most so many items are in a module and the modules in it."""
        return self._sizes[path] <= most

    def members(self, path: str) -> list[Item]:
        """The items in a module and the modules in it; none outside of any module."""
        if not path:
            return []
        return [
            item
            for module, items in self._own.items()
            if module == path or module.startswith(f"{path}.")
            for item in items
        ]

    def box(self, item: Item) -> Box:
        """The box of an item."""
        return (self.new if item.is_new else self.old).boxes[item.name]

    def item(self, name: str, *, is_new: bool) -> Item:
        """The item that a node of one of the graphs became."""
        if is_new:
            return Item(True, name)
        partner = self._partner.get(name)
        return Item(False, name) if partner is None else Item(True, partner)

    # -- which nodes are the same ------------------------------------------------------------------

    def _pairing(self) -> dict[str, str]:
        """The boxes of the old graph that are in the new one, by name."""
        pair = self.pair
        both = (*pair.changed, *pair.rewired)
        partner = {
            a.name: b.name for a, b in both if a.name in self.old.boxes and b.name in self.new.boxes
        }
        gone = {id(node) for node in (*pair.removed, *(a for a, _ in both))}
        come = {id(node) for node in (*pair.added, *(b for _, b in both))}
        left = [box.node for box in self.old.boxes.values() if id(box.node) not in gone]
        right = [box.node for box in self.new.boxes.values() if id(box.node) not in come]
        keys: tuple[Callable[[Node], Hashable], ...] = (
            lambda node: (node.kind == "placeholder" or node.op, node.module, value_label(node)),
            lambda node: (node.kind == "placeholder" or node.op, value_label(node)),
            lambda node: node.op,
        )
        for key in keys:
            waiting: defaultdict[Hashable, list[Node]] = defaultdict(list)
            for node in reversed(right):
                waiting[key(node)].append(node)
            for node in left:
                if waiting[key(node)]:
                    partner[node.name] = waiting[key(node)].pop().name
            taken = set(partner.values())
            left = [node for node in left if node.name not in partner]
            right = [node for node in right if node.name not in taken]
        return partner

    # -- marks -------------------------------------------------------------------------------------

    def _changes(self) -> Iterator[tuple[ChangeKind, Node | None, Node | None]]:
        for node in self.pair.added:
            yield "added", None, node
        for node in self.pair.removed:
            yield "removed", node, None
        for before, after in self.pair.changed:
            yield "changed", before, after
        for before, after in self.pair.rewired:
            yield "rewired", before, after
        listed = (*self.pair.added, *self.pair.removed)
        known = {id(node) for node in listed}
        known |= {id(b) for pairs in (self.pair.changed, self.pair.rewired) for _, b in pairs}
        own = {id(box.node) for folded in (self.old, self.new) for box in folded.boxes.values()}
        for change in self._further:
            if id(change.node) in own and id(change.node) not in known:
                yield change.kind, change.before, change.after

    def _mark_boxes(self) -> None:
        for kind, before, after in self._changes():
            if after is not None and after.name in self.new.boxes:
                item = Item(True, after.name)
            elif after is None and before is not None and before.name in self.old.boxes:
                item = Item(False, before.name)
            else:
                continue
            mark = self.marks[item] = Mark(kind, before, after)
            if kind == "changed" and after is not None and after.kind == "output":
                mark.lines += self._saved_lines()
            self._note(item, before, after)

    def _saved_lines(self) -> Iterator[tuple[ChangeKind, str]]:
        """What is saved for backward in only one of the two graphs."""
        old = {
            (self.item(value.producer.name, is_new=False), value.path): value
            for value in self.old.saved
        }
        new = {(Item(True, value.producer.name), value.path): value for value in self.new.saved}
        for key, value in new.items():
            if key not in old:
                yield "added", f"save {value.producer.name} {value.edge_label}"
        for key, value in old.items():
            if key not in new:
                yield "removed", f"save {value.producer.name} {value.edge_label}"

    def _mark_folded(self) -> None:
        """Parameters and projections that differ mark the box that shows them."""
        for kind, before, after in self._changes():
            node = after or before
            assert node is not None
            if id(node) in self.items_of:
                continue
            folded = self.old if after is None else self.new
            box = folded.folded_into(node)
            if box is None:
                continue
            item = self.item(box.node.name, is_new=after is not None)
            mark = self.marks.setdefault(item, Mark("changed", None, None))
            if mark.kind not in ("added", "removed"):
                text = _folded_text(folded, node)
                if kind == "changed" and before is not None and after is not None:
                    was, now = value_label(before), value_label(after)
                    text = f"{text.removesuffix(now)}{was} \N{RIGHTWARDS ARROW} {now}"
                mark.lines.append((kind, text))
            self._note(item, before, after)

    def _note(self, item: Item, before: Node | None, after: Node | None) -> None:
        for node in (before, after):
            if node is not None:
                self.items_of[id(node)] = item

    # -- edges and positions -----------------------------------------------------------------------

    def _edges(self) -> dict[Edge, tuple[str | None, str | None]]:
        edges: dict[Edge, tuple[str | None, str | None]] = {}
        for box in self.new.boxes.values():
            for value in box.operands:
                edge = Edge(Item(True, value.producer.name), value.path, Item(True, box.node.name))
                edges[edge] = (None, value.edge_label)
        for box in self.old.boxes.values():
            head = self.item(box.node.name, is_new=False)
            for value in box.operands:
                tail = self.item(value.producer.name, is_new=False)
                edge = Edge(tail, value.path, head)
                edges[edge] = (value.edge_label, edges.get(edge, (None, None))[1])
        for edge, (before, after) in list(edges.items()):
            if edge.tail in self.marks or edge.head in self.marks:
                continue
            if after is None:
                del edges[edge]
            elif before is None:
                edges[edge] = (after, after)  # what goes around a removed node is nothing new
        return edges

    def _positions(self) -> dict[Item, tuple[int, int]]:
        positions = {Item(True, name): (box.position, 0) for name, box in self.new.boxes.items()}
        last = 0
        for name, box in self.old.boxes.items():
            item = self.item(name, is_new=False)
            if item.is_new:
                last = positions[item][0]
            else:
                positions[item] = (last, box.position + 1)
        return positions

    # -- surroundings ------------------------------------------------------------------------------

    def around(self, item: Item, most: int) -> Iterable[Item]:
        """The neighbours of an item, at most so many in each direction, the nearest first."""
        if self.box(item).node.kind == "output":
            return ()
        above = sorted(set(self.above[item]), key=self.positions.__getitem__, reverse=True)
        below = sorted(set(self.below[item]), key=self.positions.__getitem__)
        return (*above[:most], *below[:most])


def _folded_text(folded: Folded, node: Node) -> str:
    value = folded.value(node.name)
    if value is not None:
        return f"result {value.edge_label}"
    return f"{node.target or node.name} {value_label(node)}".strip()
