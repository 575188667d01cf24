"""Group the nodes that differ between two graphs by the edit that they belong to."""

from __future__ import annotations

import re
from bisect import bisect_left
from collections.abc import Iterator, Mapping, Set

from ...ops.views import is_view
from ..equality import NumberedGraph, reachable
from .constants import SizePair, constants_follow, iter_changed_sizes, quantizes
from .correspondence import REACH
from .differing import Join, NodeChange, NodeChanges, NodeKey, have_same_result
from .findings import SIDES, ChangeKind
from .match import match_graphs
from .moves import find_moves
from .paths import are_siblings, holds
from .rules import (
    CALL,
    COPY,
    MOVED,
    MOVED_MODULE,
    QUANTIZER,
    READS,
    RENAMED,
    SIDE_EFFECT,
    SIZE,
    SUMMED_SIZE,
)

ASSERTION = "aten._assert_tensor_metadata.default"
MINOR_OPS = ("operator.getitem", ASSERTION)
"""Ops that say little about an edit: projections, and assertions of torch.export."""
CLONE = "aten.clone.default"
KIND_ORDER: dict[ChangeKind, int] = {"changed": 0, "added": 1, "rewired": 2, "removed": 3}
"""Sort order of the changes of one edit, primary change first."""
DERIVED_ORDER = len(KIND_ORDER)
"""Sort order of a node that differs only in an inherited shape or dtype.

Minor parts come even later; see `_sort_key`. An inserted pooling changes the sizes of every later
node, but the insertion is the edit."""
_RESHAPES = re.compile(r"(?:reshape|flatten)(?:_\d+)?$")
_PRODUCTS = re.compile(
    r"\.(?:mm|addmm|bmm|baddbmm|matmul|linear|einsum|convolution|conv(?:_transpose)?\dd"
    r"|_?scaled_dot_product_\w+)(?:\.|$)"
)
"""Names of ops that sum over a size that two of their operands have in common."""

Groups = list[list[NodeChange]]
"""Changes, a list for each edit."""


def group_changes(
    a: NumberedGraph, b: NumberedGraph, names: Mapping[str, str]
) -> tuple[NodeChanges, Groups, Groups]:
    """Match two graphs and group what differs.

    Args:
        a, b: the old and the new graph.
        names: maps inputs of `a` to the corresponding inputs of `b`, by name, as far as known.

    Returns:
        The changes, with the rules that joined them; the changes of each edit; and for each edit,
        the changes between these two graphs that only follow from it.
    """
    changes = NodeChanges(match_graphs(a, b, names))
    changes.compare_nodes()
    _join_neighbours(changes)
    _join_lines(changes)
    _join_copies(changes)
    derived = _DerivedNodes(changes).join_all()
    # After all other nodes: the output also counts as changed if no other node differs.
    if a.nodes and b.nodes:
        changes.compare_outputs()
    _join_calls(changes, derived)
    groups, followers = _separate_followers(changes)
    for group in groups:
        group.sort(key=lambda part: _sort_key(changes, derived, part))
    groups.sort(key=lambda group: min(map(changes.position_of, group)))
    groups, follows = _separate_moves(changes, groups)
    for group, cause in followers:
        edits = zip(groups, follows, strict=True)
        next(others for parts, others in edits if cause in (*parts, *others)).extend(group)
    _attach_renamed(changes, groups, follows)
    return changes, groups, follows


# -- connected nodes -------------------------------------------------------------------------------


def _join_neighbours(changes: NodeChanges) -> None:
    """Join differing nodes to the differing operands that belong to the same edit.

    An added or removed node joins operands of its own kind and changed operands, unless the two are
    separate edits. A changed node always joins added and removed operands. A changed dequantize op
    also joins a changed quantize op: the two have the same constants.
    """
    for key, change in list(changes.by_key.items()):
        for side, number in change.sides if change.kind != "rewired" else ():
            for operand in _value_operands(changes, side, number):
                kind = changes.kind_of(operand)
                if change.kind != "changed":
                    is_edited = kind in (change.kind, "changed")
                    if is_edited and not _is_separate_edit(changes, operand, key):
                        changes.join(READS, key, operand)
                elif kind == SIDES[side]:
                    changes.join(READS, key, operand)
                # A changed node has two sides: the constants are compared once, in the new graph.
                elif side and kind == "changed" and _are_quantizers(changes, key, operand):
                    changes.join(QUANTIZER, key, operand)


def _join_lines(changes: NodeChanges) -> None:
    """Join an added or removed op and a replaced op of one line of code that it reads across an op.

    This concerns graphs that torch printed, in which calls and columns are unknown; otherwise see
    `_join_calls`. A compiler may have made several ops of one call, such as an activation, and
    another activation may have one of these ops as well.
    """
    for key, change in list(changes.by_key.items()):
        source = changes.node_of(key).source
        if source is None or source.call or source.columns or change.kind == "rewired":
            continue
        for side, number in change.sides:
            flat = changes.m.flats[side]
            for kept in flat.operands[number]:
                if changes.kind_of(changes.key_of(side, kept)) or flat.nodes[kept].source != source:
                    continue
                for operand in _value_operands(changes, side, kept):
                    other = changes.node_of(operand)
                    kinds = {change.kind, changes.kind_of(operand)}
                    is_edit = kinds <= {"changed", *SIDES}
                    # Two layers run the same line. Each has a changed op, or the same added op.
                    is_of_layers = kinds == {"changed"} or other.op == changes.node_of(key).op
                    if is_edit and not is_of_layers and other.source == source:
                        changes.join(READS, key, operand)


def _value_operands(changes: NodeChanges, side: int, number: int) -> Iterator[NodeKey]:
    """Yield the operands with which a node shares a value or a storage."""
    # Each random op also has the preceding random op as operand. With such operands, the dropouts
    # of four layers were one edit in one place, and the last layer differed from the others.
    flat = changes.m.flats[side]
    for slot, p in enumerate(flat.operands[number]):
        if not flat.takes_turns(number, slot):
            yield changes.key_of(side, p)


def _are_quantizers(changes: NodeChanges, *keys: NodeKey) -> bool:
    return all(quantizes(changes.node_of(key)) for key in keys)


def _is_separate_edit(changes: NodeChanges, operand: NodeKey, reader: NodeKey) -> bool:
    """Return True if the edit of a value is separate from the edit of a node that reads the value.

    For example, a new norm takes the place of an old norm, and an added gate reads the new norm.
    The norm and the gate are two edits. An exchanged op and an added module next to the op are two
    edits as well. So are the adds of two layers that lost their residual, although each add reads
    the one before: the next layer reads it too.
    """
    side, number = operand
    if side == 0 and number in changes.m.exchanged:
        return True
    module, reading_module = (
        changes.m.flats[side].nodes[number].module for side, number in (operand, reader)
    )
    if holds(module, reading_module) or holds(reading_module, module):
        return False
    if operand in changes.replaced or changes.are_apart(operand, reader):
        return True
    users = changes.m.flats[side].users[number]
    return (
        changes.node_of(operand).op == changes.node_of(reader).op
        and are_siblings(module, reading_module)
        and any(changes.m.partners[side][user] != -1 for user, _ in users)
    )


def _join_copies(changes: NodeChanges) -> None:
    """Join a copy made by `reshape` or `flatten` to the edit that the copied value is a view of.

    These functions copy only if the strides of the operand do not allow a view, so the copy follows
    from the edit. A call of `clone` is an edit of its own.
    """
    for key, change in list(changes.by_key.items()):
        if change.kind not in SIDES or changes.node_of(key).op != CLONE:
            continue
        side, number = key
        flat = changes.m.flats[side]
        if not any(_is_reshaped(changes, side, user) for user, _ in flat.users[number]):
            continue
        # Follow the copied value back through its views.
        for _ in range(REACH):
            number = flat.operands[number][0]
            operand = changes.key_of(side, number)
            if changes.kind_of(operand):
                changes.join(COPY, key, operand)
                break
            if not is_view(flat.nodes[number].op) or not flat.operands[number]:
                break


def _is_reshaped(changes: NodeChanges, side: int, number: int) -> bool:
    """Return True if a matched node is the result of a call of `reshape` or `flatten`."""
    partner = changes.m.partners[side][number]
    if partner == -1:
        return False
    flat, other = changes.m.flats[side], changes.m.flats[1 - side]
    sources = flat.nodes[number].source, other.nodes[partner].source
    calls = {_RESHAPES.match(source.call) is not None for source in sources if source}
    return calls == {True}


def _join_calls(changes: NodeChanges, derived: Set[int]) -> None:
    """Join the nodes added or removed in one call of a torch function.

    `torch.einsum` reshapes both factors and the result of a product. `@` also reshapes them, but
    with different ops, and the ops in between are common to both. Changed constants do not join
    nodes, because they may be several edits of one call.
    """
    first: dict[tuple[int, str], NodeKey] = {}
    for root, group in changes.group_by_edit().items():
        ops = [part for part in group if _is_edited_op(changes, derived, part)]
        if not any(part.kind in SIDES for part in ops):
            continue
        for side, flat in enumerate(changes.m.flats):
            numbers = [number for part in ops for at, number in part.sides if at == side]
            sources = [flat.nodes[number].source for number in numbers]
            calls = {source.call if source else "" for source in sources}
            # The first edit of a call gets all its other edits.
            if len(calls) == 1 and (call := calls.pop()):
                changes.join(CALL, first.setdefault((side, call), root), root)


def _is_edited_op(changes: NodeChanges, derived: Set[int], part: NodeChange) -> bool:
    """Return True for an op that is an edit itself, not a projection or a result of a new size."""
    node = changes.node_of(part.key)
    return node.is_call and node.op not in MINOR_OPS and part.before not in derived


# -- what follows from a changed shape or dtype ----------------------------------------------------


class _DerivedNodes:
    """Nodes that differ because an operand has another shape or dtype.

    Attributes:
        changes: the changes of the two graphs.
        different: nodes of the old graph whose shape or dtype differs from their partner's.
        derived: nodes of the old graph that differ only in sizes or dtypes that follow from an
            operand.
        passed: the operand with the same shapes, for each of these nodes that is another op.
        factors: the changed sizes that a product sums over, each with an operand of this size, by
            the old number of the product or of a view of it.
    """

    def __init__(self, changes: NodeChanges):
        self.changes = changes
        self.a, self.b, self.m = changes.a, changes.b, changes.m
        self.different: set[int] = set()
        self.derived: set[int] = set()
        self.passed: dict[int, int] = {}
        self.factors: dict[int, dict[SizePair, int]] = {}

    def join_all(self) -> set[int]:
        """Join each node that differs only in shape or dtype to the operands that caused it.

        Returns:
            The old numbers of the nodes that differ only in this way.
        """
        for i, j in enumerate(self.m.forward):  # operands before their users
            if j != -1:
                self.join(i, j)
        return self.derived

    def join(self, i: int, j: int) -> None:
        """Join two partners to the operands from which their differences follow."""
        node, other = self.a.nodes[i], self.b.nodes[j]
        same_op = node.op == other.op or node.kind == "placeholder"
        if have_same_result(node, other):
            self.join_factors(i, j)
            # Only changed constants are left to explain.
            if self.changes.kind_of((0, i)) != "changed" or not same_op:
                return
        elif node.result is not None:
            self.different.add(i)
        if not same_op:
            # Another op is an edit beside the new size. Its users have the size of its operand.
            self.pass_through(i, j)
            return
        origins = [(0, self.passed.get(p, p)) for p in self.a.operands[i] if p in self.different]
        # An operand that took the place of another one has no partner to be different from.
        if i in self.different:
            keys = self.changes.operand_keys(i, j)
            origins += [key for key in keys if self.changes.kind_of(key) in SIDES]
        for origin in origins:
            self.changes.join(SIZE, (0, i), origin)
        if origins:
            # A changed stride or epsilon does not follow from sizes. Its node stays an edit, and is
            # sorted before the ops that changed the shape.
            if constants_follow(self.a, i, self.b, j):
                self.derived.add(i)
        else:
            self.join_scale(i, j)

    def pass_through(self, i: int, j: int) -> None:
        """Note the operand that gives a replaced op its size, if there is one."""
        node, other = self.a.nodes[i], self.b.nodes[j]
        for p in self.a.operands[i]:
            q = self.m.forward[p]
            pairs = (node, self.a.nodes[p]), (other, self.b.nodes[q])
            if p in self.different and q != -1 and all(have_same_result(*pair) for pair in pairs):
                self.passed[i] = self.passed.get(p, p)

    def join_factors(self, i: int, j: int) -> None:
        """Join the operands of a product if the size that the product sums over changed in both.

        A wider hidden layer changes the output of one `Linear` and the input of the next. Neither
        can change alone.

        Args:
            i, j: partners with equal results, so no other size of the operands can have changed.
        """
        operands, op = self.a.operands[i], self.a.nodes[i].op
        if self.factors and operands and operands[0] in self.factors and is_view(op):
            self.factors[i] = self.factors[operands[0]]
        if self.different.isdisjoint(operands) or _PRODUCTS.search(op) is None:
            return
        factors: dict[SizePair, int] = {}
        # Equal ops can have more operands in one graph, such as a bias.
        for p, q in zip(operands, self.b.operands[j], strict=False):
            if self.m.forward[p] == q:
                for sizes in iter_changed_sizes(self.a.nodes[p], self.b.nodes[q]):
                    self.changes.join(SUMMED_SIZE, (0, factors.setdefault(sizes, p)), (0, p))
        if factors:
            self.factors[i] = factors

    def join_scale(self, i: int, j: int) -> None:
        """Join a scale of a product to the product's operands if it follows from their size.

        Attention divides its scores by the root of a size that the scores do not have.
        """
        products = [self.factors[p] for p in self.a.operands[i] if p in self.factors]
        sizes = {size for product in products for size in product}
        if sizes and constants_follow(self.a, i, self.b, j, sizes):
            self.derived.add(i)
            for product in products:
                for factor in product.values():
                    self.changes.join(SUMMED_SIZE, (0, i), (0, factor))


# -- what follows from an edit ---------------------------------------------------------------------


def _separate_followers(
    changes: NodeChanges,
) -> tuple[Groups, list[tuple[list[NodeChange], NodeChange]]]:
    """Separate the groups that only follow from an edit, the nearest one, from the edits.

    The joins of these groups are added to `changes`. Such groups consist of these parts:

    - a `getitem` of an output of a matched op, which is newly used or no longer used;
    - nodes that are computed only to be saved: a `detach` by autograd, or a node for which the
      partitioner changed its choice between saving and recomputing;
    - assertions of torch.export on a value before a cast.

    Returns:
        The groups that are edits, and each of the others with a part of its edit.
    """
    saved_only = [_saved_only_nodes(flat) for flat in changes.m.flats]

    def follows(part: NodeChange) -> bool:
        """Return True if a change only follows from an edit; see above."""
        if part.kind not in SIDES:
            return False
        side, number = part.key
        node, operands = changes.node_of(part.key), changes.m.flats[side].operands[number]
        if node.op == "operator.getitem":
            return bool(operands) and changes.m.partners[side][operands[0]] != -1
        # The partitioner chooses the nodes that a forward computes only for its backward, not the
        # user. torch.export asserts the dtype of a value before each cast.
        return node.op == ASSERTION or number in saved_only[side]

    groups = changes.group_by_edit()
    edits = {key: group for key, group in groups.items() if not all(map(follows, group))}
    # If nothing else differs, these parts are the edit.
    if not edits:
        return [*groups.values()], []
    positions = sorted((changes.position_of(group[0]), key) for key, group in edits.items())
    followers = []
    for key, group in groups.items():
        if key not in edits:
            position = changes.position_of(group[0])
            k = bisect_left(positions, (position, key))
            near = positions[max(0, k - 1) : k + 1]  # the edits before and after it
            _, nearest = min(near, key=lambda entry: abs(entry[0] - position))
            followers.append((group, edits[nearest][0]))
            changes.joins.append(Join(SIDE_EFFECT, key, nearest))
    return [*edits.values()], followers


def _saved_only_nodes(flat: NumberedGraph) -> set[int]:
    """Return the nodes that a forward computes only for its backward."""
    if not flat.graph.saved:
        return set()
    last = len(flat.nodes) - 1
    # The target's results, and the effects that the output follows.
    needed = flat.returned + flat.operands[last][flat.arity[last] :]
    returned = reachable(needed, flat.operands.__getitem__)
    # Dead code is left out, because it is not computed for the backward. Otherwise it would follow
    # from any edit.
    live = flat.live()
    return {i for i in range(last) if live[i] and i not in returned and flat.nodes[i].is_call}


def _sort_key(changes: NodeChanges, derived: Set[int], part: NodeChange) -> tuple[bool, int, float]:
    """Return a sort key, primary part first: an op before its added inputs and projections."""
    node = changes.node_of(part.key)
    is_minor = node.kind == "placeholder" or node.op in MINOR_OPS
    order = DERIVED_ORDER if part.before in derived else KIND_ORDER[part.kind]
    return is_minor, order, changes.position_of(part)


def _separate_moves(changes: NodeChanges, groups: Groups) -> tuple[Groups, Groups]:
    """Separate the consequences of moved units from the edits.

    The nodes of one moved unit become one group. The joins are added to `changes`.

    Returns:
        The groups that are left, and the consequences of each.
    """
    rewired = {
        part.before: k
        for k, group in enumerate(groups)
        if all(part.kind == "rewired" for part in group)
        for part in group
    }
    # A move needs at least two rewired nodes: the moved node and a node that follows from it.
    causes, unit_of = find_moves(changes.m, sorted(rewired)) if len(rewired) > 1 else ({}, {})
    consequences: Groups = [[] for _ in groups]
    remaining: Groups = [[] for _ in groups]
    for k, group in enumerate(groups):
        for part in group:
            i = part.before
            if i in causes:
                consequences[rewired[causes[i]]].append(part)
                changes.joins.append(Join(MOVED, (0, i), (0, causes[i])))
                continue
            unit = unit_of.get(i, i)
            if unit != i:
                changes.joins.append(Join(MOVED_MODULE, (0, i), (0, unit)))
            remaining[rewired.get(unit, k)].append(part)
    edits = [k for k, group in enumerate(remaining) if group]
    return [remaining[k] for k in edits], [consequences[k] for k in edits]


def _attach_renamed(changes: NodeChanges, groups: Groups, follows: Groups) -> None:
    """Append each renamed module to the consequences of the edit that renamed it.

    Args:
        changes: the changes of the two graphs.
        groups: the changes of each edit.
        follows: the consequences of each edit; extended in place.
    """
    for i, cause in changes.renamed.items():
        # A renamed module with a different operand is an edit already.
        if not changes.kind_of((0, i)):
            edits = zip(groups, follows, strict=True)
            others = next(others for group, others in edits if cause in (*group, *others))
            others.append(NodeChange("changed", i, changes.m.forward[i]))
            changes.joins.append(Join(RENAMED, (0, i), cause.key))
