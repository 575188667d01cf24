"""The nodes that differ between two matched graphs, and the edits that they belong to."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

from ...words import grouped, listed
from ..model import Node
from ..select import ancestors
from ..text import format_name, format_result
from .align import longest_increasing
from .correspondence import Correspondence
from .findings import SIDES, SIGNS, ChangeKind, digest
from .match import align_outputs, nameless_label
from .paths import are_siblings
from .rules import EXCHANGED, OPERAND, SLOT
from .union_find import UnionFind

NodeKey = tuple[int, int]
"""Key of a node: (0, number) for an old node and its partner, (1, number) for an added node."""

MAX_NAMES = 6
"""Maximum number of nodes to name that follow another one."""


class Join(NamedTuple):
    """Two nodes that belong to one edit.

    Attributes:
        rule: the rule; see `rules`.
        node, other: the nodes.
        reader: name of a node that takes both; "" if the rule needs none.
    """

    rule: str
    node: NodeKey
    other: NodeKey
    reader: str = ""


@dataclass(frozen=True, slots=True)
class NodeChange:
    """One differing node.

    Attributes:
        kind: the kind of change.
        before, after: number of the node in the old and in the new graph; -1 if it is missing.
    """

    kind: ChangeKind
    before: int
    after: int

    @property
    def sides(self) -> list[tuple[int, int]]:
        """The node in each graph that has it: 0 for the old graph or 1, and its number."""
        return [(side, i) for side, i in enumerate((self.before, self.after)) if i != -1]

    @property
    def key(self) -> NodeKey:
        """The key of the node."""
        return self.sides[0]


class NodeChanges:
    """The changes of two matched graphs, and the edit that each change belongs to.

    `compare_nodes` and `compare_outputs` find the changes (see `flag`) and join some of them; the
    other joins are made in `group`. Sides are 0 for the old graph and 1 for the new graph.

    Attributes:
        m: the correspondence of the nodes.
        a, b: the graphs.
        by_key: the change of each differing node.
        replaced: nodes without a partner that have the same slot and result as a node of the other
            graph without a partner.
        renamed: maps the old number of each call whose module differs only in its name to the
            change of an operand, from which the new name follows.
        joins: the joined nodes.
        orders: the nodes that a node must follow, before and after, if they differ: effects, and
            beginnings of regions. A printed node shows only writes, which are left out.
        followers: the kept nodes that follow an added or removed node, as texts.
        taken_instead: the first reader of each old value that now takes another value, by the two.
    """

    def __init__(self, matching: Correspondence):
        self.m = matching
        self.a, self.b = matching.flats
        self.by_key: dict[NodeKey, NodeChange] = {}
        self.replaced: set[NodeKey] = set()
        self.renamed: dict[int, NodeChange] = {}
        self.joins: list[Join] = []
        self.orders: dict[NodeKey, tuple[list[str], list[str]]] = {}
        self.followers: dict[NodeKey, list[str]] = {}
        self.taken_instead: dict[tuple[int, int], NodeKey] = {}
        self._edits = UnionFind[NodeKey]()

    # -- nodes and their changes -------------------------------------------------------------------

    def key_of(self, side: int, number: int) -> NodeKey:
        """Return the key of a node of the old graph (0) or of the new graph (1)."""
        partner = self.m.backward[number] if side else -1
        return (side, number) if partner == -1 else (0, partner)

    def operand_keys(self, i: int, j: int) -> list[NodeKey]:
        """Return the keys of the operands of a new node and of its old partner."""
        return [
            *(self.key_of(1, q) for q in self.b.operands[j]),
            *((0, p) for p in self.a.operands[i]),
        ]

    def node_of(self, key: NodeKey) -> Node:
        """Return a node, in the new graph if it is there."""
        side, number = key
        if side == 0 and self.m.forward[number] != -1:
            return self.b.nodes[self.m.forward[number]]
        return self.m.flats[side].nodes[number]

    def kind_of(self, key: NodeKey) -> str:
        """Return the kind of change of a node; "" if the node does not differ."""
        change = self.by_key.get(key)
        return change.kind if change else ""

    def sign_of(self, key: NodeKey) -> str:
        """Return the sign of a node's change; "" if the node does not differ."""
        change = self.by_key.get(key)
        return SIGNS[change.kind] if change else ""

    def position_of(self, change: NodeChange) -> float:
        """Return the position of a change as a share of its graph. Old and new are comparable.

        It is the position in the new graph, except for a removed node.
        """
        side, number = change.sides[-1]
        return number / len(self.m.flats[side].nodes)

    def order_lines(self, edit: Iterable[NodeChange]) -> Iterator[str]:
        """Yield a line for each node of an edit that follows other effects, or is followed."""
        for part in edit if self.orders or self.followers else ():
            name = f"%{format_name(self.node_of(part.key).name)}"
            if followers := self.followers.get(part.key):
                # The digest makes the line different if any other name is.
                rest = f" ({digest('followers', *followers)})" if len(followers) > MAX_NAMES else ""
                yield f"{name} is followed by {listed(followers, MAX_NAMES)}{rest}"
            old, new = (listed(side) or "nothing" for side in self.orders.get(part.key, ((), ())))
            if old != new:
                before = "" if part.kind == "added" else f", before: {old}"
                yield f"{name} follows {new}{before}"

    def flag(self, kind: ChangeKind, i: int, j: int) -> None:
        """Record the change of a node, unless a change of this node is recorded already."""
        change = NodeChange(kind, i, j)
        self.by_key.setdefault(change.key, change)

    def join(self, rule: str, key: NodeKey, other: NodeKey, reader: str = "") -> None:
        """Record that two nodes belong to one edit, and by which rule; see `Join`.

        Two nodes that belong to one edit already keep their first rule.
        """
        if self._edits.join(key, other):
            self.joins.append(Join(rule, key, other, reader))

    def edit_of(self, key: NodeKey) -> NodeKey:
        """Return the key that identifies the edit of a node."""
        return self._edits.find(key)

    def group_by_edit(self) -> dict[NodeKey, list[NodeChange]]:
        """Return the changes of each edit, by a key that identifies the edit."""
        return grouped((self._edits.find(key), change) for key, change in self.by_key.items())

    # -- which nodes differ ------------------------------------------------------------------------

    def compare_nodes(self) -> None:
        """Record all nodes that differ, except the output.

        Join an added and a removed node that fill the same slot of a user. Also join a rewired node
        to its added or removed operand.
        """
        renamed: list[int] = []
        # The first flag of a node stays: a changed node does not become a rewired one.
        for i, node in enumerate(self.a.nodes):
            j = self.m.forward[i]
            if j == -1:
                self.flag("removed", i, -1)
            # Plain labels do not depend on bodies. A difference inside a body is reported there, so
            # the call itself counts as unchanged.
            elif self.a.plain[i] != self.b.plain[j] and node.kind != "output":
                if self.is_renamed(i, j):
                    renamed.append(i)
                else:
                    self.flag("changed", i, j)
        for j, i in enumerate(self.m.backward):
            if i == -1:
                self.flag("added", -1, j)
        for i in renamed:
            # Quantizers name a module after the op whose result it takes, so the new name is a
            # consequence of an edit of its operand.
            keys = self.operand_keys(i, self.m.forward[i])
            cause = next((self.by_key[key] for key in keys if key in self.by_key), None)
            if cause is None:
                self.flag("changed", i, self.m.forward[i])
            else:
                self.renamed[i] = cause
        self.compare_inputs()
        for i, j in enumerate(self.m.forward):
            if j != -1:
                self.compare_edges(i, j)
        self.compare_regions()

    def compare_edges(self, i: int, j: int) -> None:
        """Flag a matched node as rewired if an operand, or the order of effects, differs."""
        node, other = self.a.nodes[i], self.b.nodes[j]
        # `compare_inputs` and `compare_outputs` compare these nodes by order and number.
        if node.kind in ("output", "placeholder"):
            return
        changed = (0, i) in self.by_key
        arity = min(self.a.arity[i], self.b.arity[j])
        slots = zip(self.a.operands[i][:arity], self.b.operands[j][:arity], strict=True)
        for p, q in slots:
            # Two nodes that fill the same slot replace each other, even if their user changed. If
            # their results are equal, the new op is an edit apart from its new neighbours; see
            # `_is_separate_edit` in `group`.
            if self.join_replaced(p, q, other) and have_same_result(
                self.a.nodes[p], self.b.nodes[q]
            ):
                self.replaced |= {(0, p), (1, q)}
            # A changed node is an edit already. Its operands are shown with it.
            if not changed and not self.m.edge_agrees(p, q):
                self.flag("rewired", i, j)
                self.join_to_operands(i, p, q)
                # Two values that take each other's place are one edit, whoever reads them.
                taken = p, self.m.backward[q]
                self.taken_instead.setdefault(taken, (0, i))
                if taken[::-1] in self.taken_instead:
                    self.join(EXCHANGED, (0, i), self.taken_instead[taken[::-1]])
        # The operands after the arguments only order effects.
        orders = self.a.operands[i][self.a.arity[i] :], self.b.operands[j][self.b.arity[j] :]
        if not any(orders):
            return
        old = _unprinted(self.a.nodes, node, orders[0])
        new = _unprinted(self.b.nodes, other, orders[1])
        if not self.order_agrees(orders):
            self.flag("rewired", i, j)
            self.orders[0, i] = old, new
        # By side: what the node follows in place of a removed node, or of an added one.
        notes = (
            f" (now follows {listed(new)})" * bool(new),
            f" (followed {listed(old)})" * bool(old),
        )
        for key in self.unmatched(orders):
            text = f"%{format_name(other.name)}{notes[key[0]]}"
            self.followers.setdefault(key, []).append(text)

    def unmatched(self, sides: Iterable[Sequence[int]]) -> list[NodeKey]:
        """Return the keys of those old and new nodes that have no partner."""
        return [
            (side, number)
            for side, numbers in enumerate(sides)
            for number in numbers
            if self.m.partners[side][number] == -1
        ]

    def compare_regions(self) -> None:
        """Record the beginnings of the regions that added and removed nodes are in."""
        for key, change in self.by_key.items():
            if change.kind not in SIDES:
                continue
            side, i = key
            flat = self.m.flats[side]
            # Of the operands that only order, those without effects begin regions.
            starts = [p for p in flat.operands[i][flat.arity[i] :] if not flat.nodes[p].effects]
            if starts and (names := _unprinted(flat.nodes, flat.nodes[i], starts)):
                self.orders[key] = ([], names) if side else (names, [])

    def join_replaced(self, p: int, q: int, reader: Node) -> bool:
        """Join two operands in one slot if neither has a partner. Return True if so."""
        is_replaced = len(self.unmatched(([p], [q]))) == 2 and not self.are_apart((0, p), (1, q))
        if is_replaced:
            self.join(SLOT, (0, p), (1, q), reader.name)
        return is_replaced

    def are_apart(self, *keys: NodeKey) -> bool:
        """Return True if one of two nodes is set apart, and one is in a kept sibling module.

        After the last layer lost its residual, the result of a new layer is in the slot of its
        sum. Accepting the new layer must not accept the lost residual.
        """
        apart = {number in self.m.unmatchable[side] for side, number in keys}
        paths = [self.node_of(key).module for key in keys]
        kept = self.kept_modules.intersection(paths)
        return len(apart) > 1 and bool(kept) and are_siblings(*paths)

    @cached_property
    def kept_modules(self) -> set[str]:
        """The modules of nodes that have a partner, and the modules around these."""
        modules = {self.a.nodes[i].module for i, j in enumerate(self.m.forward) if j != -1}
        return {path for module in modules for path in ancestors(module)}

    def join_to_operands(self, i: int, p: int, q: int) -> None:
        """Join a rewired node to the node that was added or removed at its operand."""
        for key in self.unmatched(([p], [q])):
            self.join(OPERAND, (0, i), key)

    def order_agrees(self, orders: tuple[Sequence[int], Sequence[int]]) -> bool:
        """Return True if two partners follow the same effects, or another edit changed the order.

        Args:
            orders: the nodes that the old and the new node must follow.
        """
        sources = [
            {source for p in order for source in self.m.sources(side, p)}
            for side, order in enumerate(orders)
        ]
        # If a write was added or removed, the write is the edit. The new order follows from it.
        return sources[0] == sources[1] or bool(self.unmatched(orders))

    # -- inputs and outputs ----------------------------------------------------------------------

    def compare_inputs(self) -> None:
        """Flag the inputs that moved to a different position.

        What a known forward saved has no order.
        """
        inputs_a, inputs_b = (
            [i for i in g.inputs if g.nodes[i].op != "saved" or g.graph.saver is None]
            for g in (self.a, self.b)
        )
        position_b = {j: y for y, j in enumerate(inputs_b)}
        pairs = [
            (x, position_b[self.m.forward[i]])
            for x, i in enumerate(inputs_a)
            if self.m.forward[i] in position_b
        ]
        # The inputs outside the longest increasing sequence are the smallest set of inputs that
        # explains the new order.
        in_order = {x for x, _ in longest_increasing(pairs)}
        for x, y in pairs:
            if x not in in_order:
                self.flag("rewired", inputs_a[x], inputs_b[y])

    def compare_outputs(self) -> None:
        """Flag the output if it returns different values, or a different number of values."""
        i, j = len(self.a.nodes) - 1, len(self.b.nodes) - 1
        if self.m.forward[i] != j:
            return
        returned_a, returned_b = self.a.returned, self.b.returned
        # If the number of outputs is unchanged, each keeps its slot, even if op and module changed.
        slots_a, slots_b = [*range(len(returned_a))], [*range(len(returned_b))]
        if slots_a != slots_b:
            slots_a, slots_b = align_outputs(self.a, self.b)
        # The slots cover all operands of the output, and the returned values come first: hence
        # `strict=False` below.
        operand_of_slot = dict(zip(slots_b, self.b.operands[j], strict=False))
        shared = operand_of_slot.keys() & slots_a
        pairs = [
            (p, operand_of_slot[s])
            for s, p in zip(slots_a, returned_a, strict=False)
            if s in shared
        ]
        for p, q in pairs:
            self.join_replaced(p, q, self.b.nodes[j])
            if not self.m.edge_agrees(p, q):
                are_kept = not self.unmatched(([p], [q]))
                # A backward that returns two gradients exchanged is wrong, although it only takes
                # other operands.
                of_inputs = are_kept and self.a.graph.kind == "backward"
                self.flag("changed" if of_inputs else "rewired", i, j)
                self.join_to_operands(i, p, q)
        # If only one graph returns a value, the output changed. If the value itself was added or
        # removed, the value is the edit.
        alone = [
            [p for s, p in zip(slots, returned, strict=False) if s not in shared]
            for slots, returned in ((slots_a, returned_a), (slots_b, returned_b))
        ]
        if len(self.unmatched(alone)) < sum(map(len, alone)):
            self.flag("changed", i, j)
        # A label has a sign for each value, and the constants. If another label has the same
        # length, as many values and `None`s have other positions, as gradients of other inputs do.
        labels = self.a.labels[i], self.b.labels[j]
        if labels[0] != labels[1] and len(labels[0]) == len(labels[1]) and not any(alone):
            self.flag("changed", i, j)
        # If the graphs differ but none of their nodes does, the target returned something else, or
        # the forward saves other values.
        if not self.by_key and (
            labels[0] != labels[1]
            or [self.m.forward[p] for p in self.a.operands[i]] != self.b.operands[j]
        ):
            self.flag("changed", i, j)

    # -- names of called modules -------------------------------------------------------------------

    def is_renamed(self, i: int, j: int) -> bool:
        """Return True if two nodes call modules that differ only in their names.

        Return False if either name also occurs in the other graph: then the user called a different
        module.
        """
        node, other = self.a.nodes[i], self.b.nodes[j]
        is_call = node.kind == other.kind == "call_module"
        if not is_call or nameless_label(self.a, i) != nameless_label(self.b, j):
            return False
        targets_a, targets_b = self.targets
        return node.target not in targets_b and other.target not in targets_a

    @cached_property
    def targets(self) -> tuple[set[str], set[str]]:
        """The names of the modules and attributes of the old and of the new graph."""
        targets_a, targets_b = ({node.target for node in flat.nodes} for flat in self.m.flats)
        return targets_a, targets_b


def _unprinted(nodes: Sequence[Node], node: Node, order: Iterable[int]) -> list[str]:
    """Return the names of the nodes that a node must follow, and that its text does not have."""
    printed = {ref.name for ref in node.after}
    return [f"%{format_name(nodes[k].name)}" for k in order if nodes[k].name not in printed]


def have_same_result(node: Node, other: Node) -> bool:
    """Return True if dtype and shape of two nodes are equal."""
    if node.result == other.result:
        return True
    return format_result(node.result) == format_result(other.result)
