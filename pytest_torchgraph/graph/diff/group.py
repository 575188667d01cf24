"""Group the nodes that differ between two matched graphs by the edit that they belong to."""

from __future__ import annotations

import re
from bisect import bisect_left
from collections.abc import Iterable, Mapping, Sequence, Set
from dataclasses import dataclass, field
from functools import cached_property
from typing import Literal

from ...ops.views import is_view
from ..equality import NumberedGraph
from ..model import Arg, Graph, Node, SubgraphRef
from ..text import format_result
from .align import longest_increasing
from .correspondence import REACH, Correspondence
from .match import align_outputs, match_graphs, nameless_label
from .moves import SizePair, constants_follow, find_moves, iter_changed_sizes, quantizes
from .paths import holds

ASSERTION = "aten._assert_tensor_metadata.default"
CLONE = "aten.clone.default"
_RESHAPES = re.compile(r"(?:reshape|flatten)(?:_\d+)?$")
_PRODUCTS = re.compile(
    r"\.(?:mm|addmm|bmm|baddbmm|matmul|linear|einsum|convolution|conv(?:_transpose)?\dd)(?:\.|$)"
)
"""Names of ops that sum over a size that two of their operands have in common."""
NodeChangeKind = Literal["added", "removed", "changed", "rewired"]
ORDER: dict[NodeChangeKind, int] = {"changed": 0, "added": 1, "rewired": 2, "removed": 3}
DERIVED = len(ORDER)
"""Sort order of a node that differs only in an inherited shape or dtype.

An inserted pooling changes the sizes of every later node, but the insertion is the edit."""


@dataclass(frozen=True, slots=True)
class NodeChange:
    """One differing node.

    Attributes:
        kind: the kind of change.
        before, after: number of the node in the old and in the new graph; -1 if it is missing.
    """

    kind: NodeChangeKind
    before: int
    after: int


@dataclass
class GroupedChanges:
    """The nodes that differ between two graphs, a group for each edit.

    Attributes:
        matching: the correspondence of the nodes of the two graphs.
        groups: the changes of each edit.
        follows: for each group, its consequences in the same graph.
    """

    matching: Correspondence
    groups: list[list[NodeChange]] = field(default_factory=list)
    follows: list[list[NodeChange]] = field(default_factory=list)

    def names(self) -> dict[str, str]:
        """Return a map from old to new names of matched nodes."""
        a, b = self.matching.a.nodes, self.matching.b.nodes
        return {a[i].name: b[j].name for i, j in enumerate(self.matching.forward) if j != -1}


def group_changes(
    a: NumberedGraph, b: NumberedGraph, names: Mapping[str, str] | None = None
) -> GroupedChanges:
    """Match two graphs and group what differs."""
    return _Grouper(match_graphs(a, b, names)).run()


def have_same_result(node: Node, other: Node) -> bool:
    """Return True if dtype and shape of two nodes are equal."""
    if node.result == other.result:
        return True
    return format_result(node.result) == format_result(other.result)


def pair_bodies(a: Graph, b: Graph, partner: Sequence[int]) -> Iterable[tuple[Graph, Graph]]:
    """Yield the pairs of subgraphs that matched nodes refer to.

    Args:
        a, b: the graphs.
        partner: for each node of `a` the number of its partner in `b`, or -1.
    """
    if not a.subgraphs and not b.subgraphs:
        return
    bodies_a = {sub.name: sub for sub in a.subgraphs}
    bodies_b = {sub.name: sub for sub in b.subgraphs}
    yielded = set()
    for i, j in enumerate(partner):
        if j == -1:
            continue
        pairs = zip(_subgraphs_of(a.nodes[i]), _subgraphs_of(b.nodes[j]), strict=False)
        for pair in pairs:
            if pair not in yielded and pair[0] in bodies_a and pair[1] in bodies_b:
                yielded.add(pair)
                yield bodies_a[pair[0]], bodies_b[pair[1]]


def _subgraphs_of(node: Node) -> list[str]:
    return list(subgraph_names((node.args, tuple(node.kwargs.values()))))


def subgraph_names(value: Arg) -> Iterable[str]:
    """Yield the names of the subgraphs that an argument refers to, in order."""
    if isinstance(value, SubgraphRef):
        yield value.name
    elif isinstance(value, tuple | Mapping):
        for item in value.values() if isinstance(value, Mapping) else value:
            yield from subgraph_names(item)


class _Grouper:
    """Flags the differing nodes of two graphs, and joins them into edits by union-find.

    A key is ("a", number) for an old or matched node, and ("b", number) for a new node.

    Attributes:
        m: the correspondence of the nodes.
        a, b: the graphs.
        parent: parent of each key in the union-find forest.
        parts: change of each differing node, by key.
        derived: matched nodes, by their old number, that differ only in sizes or dtypes that follow
            from an operand.
        summed: changed sizes that a product sums over, each with an operand of this size, by old
            number of the product or of a view of it.
        renamed: the change of an operand for each called module that only has another name, by its
            old number.
        replaced: nodes without a partner that have the same slot and result as a node of the other
            graph without a partner.
        saved_only_a, saved_only_b: nodes that a forward computes only for its backward.
    """

    def __init__(self, matching: Correspondence):
        self.m = matching
        self.a = matching.a
        self.b = matching.b
        self.parent: dict[tuple[str, int], tuple[str, int]] = {}
        self.parts: dict[tuple[str, int], NodeChange] = {}
        self.derived: set[int] = set()
        self.summed: dict[int, dict[SizePair, int]] = {}
        self.renamed: dict[int, NodeChange] = {}
        self.replaced: set[tuple[str, int]] = set()
        self.saved_only_a = _saved_only_nodes(self.a)
        self.saved_only_b = _saved_only_nodes(self.b)

    def run(self) -> GroupedChanges:
        renamed: list[int] = []
        # The first flag of a node stays: a changed node does not become a rewired one.
        for i, node in enumerate(self.a.nodes):
            j = self.m.forward[i]
            if j == -1:
                self.flag_change("removed", i, -1)
            # Plain labels do not depend on bodies. A difference in a body is found in the body, and
            # the call did not change.
            elif self.a.plain[i] != self.b.plain[j] and node.kind != "output":
                if self.is_renamed(i, j):
                    renamed.append(i)
                else:
                    self.flag_change("changed", i, j)
        for j, i in enumerate(self.m.backward):
            if i == -1:
                self.flag_change("added", -1, j)
        for i in renamed:
            self.compare_names(i, self.m.forward[i])
        self.compare_inputs()
        for i, j in enumerate(self.m.forward):
            if j != -1:
                self.compare_edges(i, j)
        self.join_neighbours()
        if self.a.nodes and self.b.nodes:
            self.compare_outputs()
        groups, follows = self.separate_moves(self.sort_groups())
        self.attach_renamed(groups, follows)
        return GroupedChanges(self.m, groups, follows)

    # -- called modules with other names ---------------------------------------------------------

    def is_renamed(self, i: int, j: int) -> bool:
        """Return True if two nodes call modules that differ only in their names.

        If both graphs have a module of one of the names, another module is called.
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
            *map(self.key_of_new, self.b.operands[j]),
            *map(self.key_of_old, self.a.operands[i]),
        ]
        cause = next((self.parts[key] for key in keys if key in self.parts), None)
        if cause is None:
            self.flag_change("changed", i, j)
        else:
            self.renamed[i] = cause

    def attach_renamed(
        self, groups: Iterable[list[NodeChange]], follows: Sequence[list[NodeChange]]
    ) -> None:
        """Append each renamed module to the consequences of the group of its cause.

        Args:
            groups: the changes of each edit.
            follows: the consequences of each edit; extended in place.
        """
        if not self.renamed:
            return
        group_of = {
            part: k
            for k, (group, others) in enumerate(zip(groups, follows, strict=True))
            for part in (*group, *others)
        }
        for i, cause in self.renamed.items():
            # A module that takes another value is an edit already.
            if ("a", i) not in self.parts:
                follows[group_of[cause]].append(NodeChange("changed", i, self.m.forward[i]))

    # -- union-find over nodes -------------------------------------------------------------------

    def key_of_old(self, i: int) -> tuple[str, int]:
        return ("a", i)

    def key_of_new(self, j: int) -> tuple[str, int]:
        i = self.m.backward[j]
        return ("b", j) if i == -1 else ("a", i)

    def find_root(self, key: tuple[str, int]) -> tuple[str, int]:
        parent = self.parent.setdefault(key, key)
        while parent != self.parent[parent]:
            self.parent[key] = self.parent[parent]
            key, parent = parent, self.parent[parent]
        return parent

    def join(self, key: tuple[str, int], other: tuple[str, int]) -> None:
        self.parent[self.find_root(key)] = self.find_root(other)

    def flag_change(self, kind: NodeChangeKind, i: int, j: int) -> None:
        """Record the change of a node, unless a change of this node is recorded already."""
        key = ("b", j) if i == -1 else ("a", i)
        self.parts.setdefault(key, NodeChange(kind, i, j))

    # -- edges -----------------------------------------------------------------------------------

    def compare_edges(self, i: int, j: int) -> None:
        """Flag a matched node as rewired if an operand, or the order of effects, differs."""
        node = self.a.nodes[i]
        changed = ("a", i) in self.parts
        # `compare_inputs` and `compare_outputs` compare these nodes by order and number.
        if node.kind in ("output", "placeholder"):
            return
        arity = min(self.a.arity[i], self.b.arity[j])
        slots = list(zip(self.a.operands[i][:arity], self.b.operands[j][:arity], strict=True))
        order_a = self.a.operands[i][self.a.arity[i] :]
        order_b = self.b.operands[j][self.b.arity[j] :]
        for p, q in slots:
            if self.m.forward[p] == -1 and self.m.backward[q] == -1:
                self.join(self.key_of_old(p), self.key_of_new(q))
                # One op took the place of another op. This may separate it from new neighbours; see
                # `is_separate_edit`.
                if have_same_result(self.a.nodes[p], self.b.nodes[q]):
                    self.replaced |= {("a", p), ("b", q)}
            # A changed node is an edit already. Its operands are shown with it.
            if changed or self.m.edge_agrees(p, q):
                continue
            self.flag_change("rewired", i, j)
            self.join_to_operands(i, p, q)
        ordered = bool(order_a or order_b)
        if ordered and not changed and not self.order_agrees(order_a, order_b):
            self.flag_change("rewired", i, j)

    def join_to_operands(self, i: int, p: int, q: int) -> None:
        """Join a rewired node to the node that was added or removed at its operand."""
        if self.m.forward[p] == -1:
            self.join(("a", i), self.key_of_old(p))
        if self.m.backward[q] == -1:
            self.join(("a", i), self.key_of_new(q))

    def order_agrees(self, order_a: list[int], order_b: list[int]) -> bool:
        """Return True if a node follows the same effects as its partner, or the order is no edit.

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
        """Flag the inputs that moved to a different position."""
        position_b = {j: y for y, j in enumerate(self.b.inputs)}
        pairs = [
            (x, position_b[self.m.forward[i]])
            for x, i in enumerate(self.a.inputs)
            if self.m.forward[i] in position_b
        ]
        # The inputs outside the longest increasing sequence are the fewest that can have moved.
        in_order = {x for x, _ in longest_increasing(pairs)}
        for x, y in pairs:
            if x not in in_order:
                self.flag_change("rewired", self.a.inputs[x], self.b.inputs[y])

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
                self.join(self.key_of_old(p), self.key_of_new(q))
            if not self.m.edge_agrees(p, q):
                self.flag_change("rewired", i, j)
                self.join_to_operands(i, p, q)
        # A value that is returned on one side only changes the output, unless the value itself was
        # added or removed. In that case the value is the edit.
        for p in only_a:
            if self.m.forward[p] != -1:
                self.flag_change("changed", i, j)
        for q in only_b:
            if self.m.backward[q] != -1:
                self.flag_change("changed", i, j)
        # If no node differs, but the graphs do, the target returned something else or other values
        # are saved.
        if not self.parts and (
            self.a.labels[i] != self.b.labels[j]
            or [self.m.forward[p] for p in self.a.operands[i]] != self.b.operands[j]
        ):
            self.flag_change("changed", i, j)

    # -- what belongs together -------------------------------------------------------------------

    def join_neighbours(self) -> None:
        """Join differing nodes to differing operands, unless the two are separate edits.

        An added or removed node joins operands of its own kind, and changed operands. A changed
        node joins added and removed operands.
        """
        for (side, number), part in list(self.parts.items()):
            if part.kind in ("removed", "added"):
                flat, key_of = (
                    (self.a, self.key_of_old) if side == "a" else (self.b, self.key_of_new)
                )
                for p in _value_operands(flat, number):
                    key = key_of(p)
                    if self.kind_of(key) in (part.kind, "changed") and not self.is_separate_edit(
                        key, flat.nodes[p].module, flat.nodes[number].module
                    ):
                        self.join((side, number), key)
            elif part.kind == "changed":
                for p in _value_operands(self.a, part.before):
                    if self.kind_of(("a", p)) == "removed":
                        self.join(("a", number), ("a", p))
                for q in _value_operands(self.b, part.after):
                    if self.kind_of(self.key_of_new(q)) == "added" or self.is_dequantized(
                        q, part.after
                    ):
                        self.join(("a", number), self.key_of_new(q))
        self.join_copies()
        self.join_derived()

    def join_copies(self) -> None:
        """Join a copy made by `reshape` to the edit that its operand is a view of.

        `reshape` copies only if the strides of its operand do not allow a view, so the copy follows
        from the edit. A call of `clone` is an edit of its own.
        """
        for key, part in list(self.parts.items()):
            flat = self.a if part.after == -1 else self.b
            number = part.before if part.after == -1 else part.after
            if part.kind not in ("added", "removed") or flat.nodes[number].op != CLONE:
                continue
            if not any(self.is_reshaped(flat, user) for user, _ in flat.users[number]):
                continue
            for _ in range(REACH):
                number = flat.operands[number][0]
                operand = self.key_of_old(number) if flat is self.a else self.key_of_new(number)
                if self.kind_of(operand):
                    self.join(key, operand)
                    break
                if not is_view(flat.nodes[number].op) or not flat.operands[number]:
                    break

    def is_reshaped(self, flat: NumberedGraph, i: int) -> bool:
        """Return True if a matched node is the result of a call of `reshape` or `flatten`."""
        before, after = (i, self.m.forward[i]) if flat is self.a else (self.m.backward[i], i)
        if -1 in (before, after):
            return False
        sources = self.a.nodes[before].source, self.b.nodes[after].source
        calls = {_RESHAPES.match(source.call) is not None for source in sources if source}
        return calls == {True}

    def is_dequantized(self, q: int, user: int) -> bool:
        """Return True if a changed quantize op and its changed dequantize op are one edit.

        The two ops have the same constants.
        """
        changed = self.kind_of(self.key_of_new(q)) == "changed"
        return changed and quantizes(self.b.nodes[q]) and quantizes(self.b.nodes[user])

    def is_separate_edit(self, key: tuple[str, int], module: str, reader: str) -> bool:
        """Return True if the edit of a value is separate from the edit of a node that reads it.

        For example, a new norm takes the place of an old norm, and an added gate reads the new
        norm. The norm and the gate are two edits. So are an exchanged op and a module added next to
        it.

        Args:
            key: the value.
            module, reader: the modules of the value and of the added or removed node that reads it.
        """
        if key[0] == "a" and key[1] in self.m.exchanged:
            return True
        return key in self.replaced and not (holds(module, reader) or holds(reader, module))

    def kind_of(self, key: tuple[str, int]) -> str:
        part = self.parts.get(key)
        return part.kind if part else ""

    def join_derived(self) -> None:
        """Join a node that differs only in shape or dtype to the operands that caused it."""
        different: set[int] = set()
        for i, node in enumerate(self.a.nodes):
            j = self.m.forward[i]
            if j == -1:
                continue
            other = self.b.nodes[j]
            same_op = node.op == other.op or node.kind == "placeholder"
            if have_same_result(node, other):
                self.join_factors(i, j, different)
                if self.kind_of(("a", i)) != "changed" or not same_op:
                    continue
            elif node.result is not None:
                different.add(i)
            if not same_op:
                continue
            origins = [("a", p) for p in self.a.operands[i] if p in different]
            if i in different:
                origins += [("a", p) for p in self.a.operands[i] if self.m.forward[p] == -1]
                origins += [("b", q) for q in self.b.operands[j] if self.m.backward[q] == -1]
            for origin in origins:
                self.join(("a", i), origin)
            # A changed stride or epsilon does not follow from sizes. Its node stays an edit, and is
            # sorted before the ops that changed the shape.
            if origins and constants_follow(self.a, i, self.b, j):
                self.derived.add(i)
            # Attention divides its scores by the root of a size that the scores do not have.
            products = [self.summed[p] for p in self.a.operands[i] if p in self.summed]
            sizes = {size for product in products for size in product}
            if not origins and sizes and constants_follow(self.a, i, self.b, j, sizes):
                self.derived.add(i)
                for product in products:
                    for factor in product.values():
                        self.join(("a", i), ("a", factor))

    def join_factors(self, i: int, j: int, different: Set[int]) -> None:
        """Join the operands of a product if the size that the product sums over changed in both.

        A wider hidden layer changes the output of one `Linear` and the input of the next. Neither
        can change alone.

        Args:
            i, j: partners with equal results, so no other size of the operands can have changed.
            different: the nodes of the old graph whose shape or dtype differs.
        """
        operands, op = self.a.operands[i], self.a.nodes[i].op
        if self.summed and operands and operands[0] in self.summed and is_view(op):
            self.summed[i] = self.summed[operands[0]]
        if different.isdisjoint(operands) or _PRODUCTS.search(op) is None:
            return
        factors: dict[SizePair, int] = {}
        for p, q in zip(operands, self.b.operands[j], strict=False):
            if self.m.forward[p] == q:
                for sizes in iter_changed_sizes(self.a.nodes[p], self.b.nodes[q]):
                    self.join(("a", factors.setdefault(sizes, p)), ("a", p))
        if factors:
            self.summed[i] = factors

    def sort_groups(self) -> list[list[NodeChange]]:
        self.join_calls()
        groups = self.absorb_followers(self.group_by_root())
        for group in groups.values():
            group.sort(key=self.sort_key)
        return sorted(groups.values(), key=lambda group: min(map(self.position_of, group)))

    def group_by_root(self) -> dict[tuple[str, int], list[NodeChange]]:
        groups: dict[tuple[str, int], list[NodeChange]] = {}
        for key, part in self.parts.items():
            groups.setdefault(self.find_root(key), []).append(part)
        return groups

    def join_calls(self) -> None:
        """Join the nodes added or removed in one call of a torch function.

        `torch.einsum` reshapes both factors and the result of a product. `@` also reshapes them,
        but with different ops, and the ops in between are common to both. Changed constants do not
        join nodes, because they may be several edits of one call.
        """
        sides = (False, self.a), (True, self.b)
        nodes = (
            flat.nodes[part.after if is_new else part.before]
            for part in self.parts.values()
            for is_new, flat in sides
            if (part.after if is_new else part.before) != -1
        )
        # Graphs from files have no sources. Skip the grouping, which takes a pass over all parts.
        if not any(node.source and node.source.call for node in nodes):
            return
        first: dict[tuple[bool, str], tuple[str, int]] = {}
        for root, group in self.group_by_root().items():
            ops = [part for part in group if self.is_edited_op(part)]
            if all(part.kind in ("changed", "rewired") for part in ops):
                continue
            for is_new, flat in sides:
                numbers = [part.after if is_new else part.before for part in ops]
                sources = [flat.nodes[i].source for i in numbers if i != -1]
                calls = {source.call if source else "" for source in sources}
                if len(calls) == 1 and (call := calls.pop()):
                    self.join(first.setdefault((is_new, call), root), root)

    def is_edited_op(self, part: NodeChange) -> bool:
        node = self.a.nodes[part.before] if part.after == -1 else self.b.nodes[part.after]
        minor = not node.is_call or node.op in ("operator.getitem", ASSERTION)
        return not minor and part.before not in self.derived

    def absorb_followers(
        self, groups: dict[tuple[str, int], list[NodeChange]]
    ) -> dict[tuple[str, int], list[NodeChange]]:
        """Add groups that only follow from another edit to the nearest edit.

        Such groups consist of these parts:

        - a `getitem` for an output of a matched op, because the output is now used or unused;
        - nodes that are computed only to be saved: a `detach` by autograd, or a node for which the
          partitioner changed its choice between saving and recomputing;
        - assertions of torch.export on a value before a cast.
        """
        edits = {
            key: group for key, group in groups.items() if not all(map(self.is_follower, group))
        }
        # If nothing else differs, these parts are the edit.
        if not edits:
            return groups
        positions = sorted((self.position_of(group[0]), key) for key, group in edits.items())
        for key, group in groups.items():
            if key not in edits:
                position = self.position_of(group[0])
                k = bisect_left(positions, (position, key))
                nearest = min(
                    positions[max(0, k - 1) : k + 1], key=lambda entry: abs(entry[0] - position)
                )
                edits[nearest[1]].extend(group)
        return edits

    def separate_moves(
        self, groups: list[list[NodeChange]]
    ) -> tuple[list[list[NodeChange]], list[list[NodeChange]]]:
        """Return the groups without consequences of moves, and the consequences of each group."""
        rewired = {
            part.before: k
            for k, group in enumerate(groups)
            if all(part.kind == "rewired" for part in group)
            for part in group
        }
        # A move needs at least two rewired nodes: the moved node and a node that follows from it.
        causes, parts = find_moves(self.m, sorted(rewired)) if len(rewired) > 1 else ({}, {})
        consequences: list[list[NodeChange]] = [[] for _ in groups]
        remaining: list[list[NodeChange]] = [[] for _ in groups]
        for k, group in enumerate(groups):
            for part in group:
                i = part.before
                if i in rewired and i in causes:
                    consequences[rewired[causes[i]]].append(part)
                else:
                    remaining[rewired[parts[i]] if i in rewired and i in parts else k].append(part)
        edits = [k for k, group in enumerate(remaining) if group]
        return [remaining[k] for k in edits], [consequences[k] for k in edits]

    def is_follower(self, part: NodeChange) -> bool:
        """Return True if a part only follows from another edit; see `absorb_followers`."""
        if part.kind not in ("added", "removed"):
            return False
        is_removed = part.after == -1
        flat, number = (self.a, part.before) if is_removed else (self.b, part.after)
        partner = self.m.forward if is_removed else self.m.backward
        node = flat.nodes[number]
        if node.op == "operator.getitem":
            operands = flat.operands[number]
            return bool(operands) and partner[operands[0]] != -1
        # The partitioner chooses the nodes that a forward computes only for its backward, not the
        # user. torch.export asserts the dtype of a value before each cast.
        return node.op == ASSERTION or number in (
            self.saved_only_a if is_removed else self.saved_only_b
        )

    def sort_key(self, part: NodeChange) -> tuple[bool, int, float]:
        """Return a sort key, primary part first: an op before its added inputs and projections."""
        node = self.a.nodes[part.before] if part.after == -1 else self.b.nodes[part.after]
        minor = node.kind == "placeholder" or node.op in ("operator.getitem", ASSERTION)
        order = DERIVED if part.before in self.derived else ORDER[part.kind]
        return minor, order, self.position_of(part)

    def position_of(self, part: NodeChange) -> float:
        """Return the position of a part as a share of its graph, comparable between old and new."""
        if part.after != -1:
            return part.after / len(self.b.nodes)
        return part.before / len(self.a.nodes)


def _value_operands(flat: NumberedGraph, i: int) -> Iterable[int]:
    """Return the operands with which a node shares a value or a storage."""
    # Each random op also has the random op before it as operand. These operands joined the dropouts
    # of four layers to one edit in one place, and made the last layer differ from the others.
    return (p for slot, p in enumerate(flat.operands[i]) if not flat.takes_turns(i, slot))


def _saved_only_nodes(flat: NumberedGraph) -> set[int]:
    """Return the nodes that a forward computes only for its backward."""
    if not flat.graph.saved:
        return set()
    returned: set[int] = set()
    last = len(flat.nodes) - 1
    needed = flat.returned + flat.operands[last][flat.arity[last] :]
    while needed:
        i = needed.pop()
        if i not in returned:
            returned.add(i)
            needed.extend(flat.operands[i])
    # Dead code is left out, because it is not computed for the backward. Otherwise it would follow
    # from any edit.
    live = flat.live()
    return {i for i in range(last) if live[i] and i not in returned and flat.nodes[i].is_call}
