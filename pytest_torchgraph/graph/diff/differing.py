"""Find the nodes that differ between two matched graphs."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import cached_property

from ...words import listed
from ..model import Node
from ..text import format_name
from .align import longest_increasing
from .match import align_outputs, nameless_label
from .node_changes import NodeChange, NodeChanges, have_same_result
from .rules import OPERAND, SLOT


class NodeComparer:
    """Compares two matched graphs and records the changes.

    Attributes:
        changes: the changes so far.
        renamed: maps the old number of each call whose module differs only in its name to the
            change of an operand, from which the new name follows.
    """

    def __init__(self, changes: NodeChanges):
        self.changes = changes
        self.m = changes.m
        self.a = changes.a
        self.b = changes.b
        self.renamed: dict[int, NodeChange] = {}

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
                self.changes.flag("removed", i, -1)
            # Plain labels do not depend on bodies. A difference inside a body is reported there, so
            # the call itself counts as unchanged.
            elif self.a.plain[i] != self.b.plain[j] and node.kind != "output":
                if self.is_renamed(i, j):
                    renamed.append(i)
                else:
                    self.changes.flag("changed", i, j)
        for j, i in enumerate(self.m.backward):
            if i == -1:
                self.changes.flag("added", -1, j)
        for i in renamed:
            self.compare_names(i, self.m.forward[i])
        self.compare_inputs()
        for i, j in enumerate(self.m.forward):
            if j != -1:
                self.compare_edges(i, j)
        self.compare_regions()

    def compare_edges(self, i: int, j: int) -> None:
        """Flag a matched node as rewired if an operand, or the order of effects, differs."""
        node = self.a.nodes[i]
        changed = ("a", i) in self.changes.by_key
        # `compare_inputs` and `compare_outputs` compare these nodes by order and number.
        if node.kind in ("output", "placeholder"):
            return
        arity = min(self.a.arity[i], self.b.arity[j])
        slots = list(zip(self.a.operands[i][:arity], self.b.operands[j][:arity], strict=True))
        order_a = self.a.operands[i][self.a.arity[i] :]
        order_b = self.b.operands[j][self.b.arity[j] :]
        for p, q in slots:
            # Two nodes that fill the same slot replace each other, even if their user changed.
            if self.m.forward[p] == -1 and self.m.backward[q] == -1:
                keys = self.changes.key_of_old(p), self.changes.key_of_new(q)
                self.changes.join(SLOT, *keys, self.b.nodes[j].name)
                # One op took the place of another op. This may separate it from new neighbours; see
                # `neighbours`.
                if have_same_result(self.a.nodes[p], self.b.nodes[q]):
                    self.changes.replaced |= {("a", p), ("b", q)}
            # A changed node is an edit already. Its operands are shown with it.
            if changed or self.m.edge_agrees(p, q):
                continue
            self.changes.flag("rewired", i, j)
            self.join_to_operands(i, p, q)
        if not (order_a or order_b):
            return
        old = _unprinted(self.a.nodes, node, order_a)
        new = _unprinted(self.b.nodes, self.b.nodes[j], order_b)
        if not self.order_agrees(order_a, order_b):
            self.changes.flag("rewired", i, j)
            self.changes.orders["a", i] = old, new
        name = f"%{format_name(self.b.nodes[j].name)}"
        for p in order_a:
            if self.m.forward[p] == -1:
                now = f" (now follows {listed(new)})" if new else ""
                self.changes.followers.setdefault(("a", p), []).append(name + now)
        for q in order_b:
            if self.m.backward[q] == -1:
                before = f" (followed {listed(old)})" if old else ""
                self.changes.followers.setdefault(("b", q), []).append(name + before)

    def compare_regions(self) -> None:
        """Record the beginnings of the regions that added and removed nodes are in."""
        for key, change in self.changes.by_key.items():
            if change.kind not in ("added", "removed"):
                continue
            flat, i = (self.b, change.after) if change.kind == "added" else (self.a, change.before)
            starts = [p for p in flat.operands[i][flat.arity[i] :] if not flat.nodes[p].effects]
            if starts and (names := _unprinted(flat.nodes, flat.nodes[i], starts)):
                self.changes.orders[key] = ([], names) if change.kind == "added" else (names, [])

    def join_to_operands(self, i: int, p: int, q: int) -> None:
        """Join a rewired node to the node that was added or removed at its operand."""
        if self.m.forward[p] == -1:
            self.changes.join(OPERAND, ("a", i), self.changes.key_of_old(p))
        if self.m.backward[q] == -1:
            self.changes.join(OPERAND, ("a", i), self.changes.key_of_new(q))

    def order_agrees(self, order_a: list[int], order_b: list[int]) -> bool:
        """Return True if two partners follow the same effects, or another edit changed the order.

        Args:
            order_a, order_b: the nodes that the old and the new node must follow.
        """
        sources_a = {source for p in order_a for source in self.m.sources_a(p)}
        sources_b = {source for q in order_b for source in self.m.sources_b(q)}
        return (
            sources_a == sources_b
            # If a write was added or removed, the write is the edit. The new order follows from it.
            or any(self.m.forward[p] == -1 for p in order_a)
            or any(self.m.backward[q] == -1 for q in order_b)
        )

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
                self.changes.flag("rewired", inputs_a[x], inputs_b[y])

    def compare_outputs(self) -> None:
        """Flag the output if it returns different values, or a different number of values."""
        i, j = len(self.a.nodes) - 1, len(self.b.nodes) - 1
        if self.m.forward[i] != j:
            return
        returned_a, returned_b = self.a.returned, self.b.returned
        # If the number of outputs is unchanged, each keeps its slot, even if op and module changed.
        if len(returned_a) == len(returned_b):
            pairs = list(zip(returned_a, returned_b, strict=True))
            only_a: list[int] = []
            only_b: list[int] = []
        else:
            # Corresponding operands have equal slots. The slots cover all operands of the output,
            # and the returned values come first: hence `strict=False` below.
            slots_a, slots_b = align_outputs(self.a, self.b)
            operand_of_slot = dict(zip(slots_b, self.b.operands[j], strict=True))
            pairs = [
                (p, operand_of_slot[s])
                for s, p in zip(slots_a, returned_a, strict=False)
                if s in operand_of_slot
            ]
            aligned = {s for s in slots_a if s in operand_of_slot}
            only_a = [p for s, p in zip(slots_a, returned_a, strict=False) if s not in aligned]
            only_b = [q for s, q in zip(slots_b, returned_b, strict=False) if s not in aligned]
        for p, q in pairs:
            if self.m.forward[p] == -1 and self.m.backward[q] == -1:
                keys = self.changes.key_of_old(p), self.changes.key_of_new(q)
                self.changes.join(SLOT, *keys, self.b.nodes[j].name)
            if not self.m.edge_agrees(p, q):
                are_kept = self.m.forward[p] != -1 and self.m.backward[q] != -1
                of_inputs = are_kept and self.a.graph.kind == "backward"
                self.changes.flag("changed" if of_inputs else "rewired", i, j)
                self.join_to_operands(i, p, q)
        # If only one graph returns a value, the output changed. If the value itself was added or
        # removed, the value is the edit.
        kept = [self.m.forward[p] != -1 for p in only_a]
        if any(kept) or any(self.m.backward[q] != -1 for q in only_b):
            self.changes.flag("changed", i, j)
        # With as many values and as many `None`s, these have other positions, as gradients of other
        # inputs have.
        labels = self.a.labels[i], self.b.labels[j]
        if labels[0] != labels[1] and len(labels[0]) == len(labels[1]) and not (only_a or only_b):
            self.changes.flag("changed", i, j)
        # If the graphs differ but none of their nodes does, the target returned something else, or
        # the forward saves other values.
        if not self.changes.by_key and (
            self.a.labels[i] != self.b.labels[j]
            or [self.m.forward[p] for p in self.a.operands[i]] != self.b.operands[j]
        ):
            self.changes.flag("changed", i, j)

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
        targets_a, targets_b = ({node.target for node in flat.nodes} for flat in (self.a, self.b))
        return targets_a, targets_b

    def compare_names(self, i: int, j: int) -> None:
        """Record a renamed module as a consequence of an edit of its operand, or else as an edit.

        Quantizers name a module after the op whose result it takes.
        """
        keys = [
            *map(self.changes.key_of_new, self.b.operands[j]),
            *map(self.changes.key_of_old, self.a.operands[i]),
        ]
        cause = next((self.changes.by_key[key] for key in keys if key in self.changes.by_key), None)
        if cause is None:
            self.changes.flag("changed", i, j)
        else:
            self.renamed[i] = cause


def _unprinted(nodes: Sequence[Node], node: Node, order: Iterable[int]) -> list[str]:
    """Return the names of the nodes that a node must follow, and that its text does not have."""
    printed = {ref.name for ref in node.after}
    return [f"%{format_name(nodes[k].name)}" for k in order if nodes[k].name not in printed]
