"""Group the nodes that differ between two graphs by the edit that they belong to."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Mapping, Sequence, Set
from dataclasses import dataclass, field

from ..equality import NumberedGraph, reachable
from .correspondence import Correspondence
from .derived import join_derived
from .differing import NodeComparer
from .match import match_graphs
from .moves import find_moves
from .neighbours import join_copies, join_neighbours
from .node_changes import Join, NodeChange, NodeChangeKind, NodeChanges, NodeKey
from .rules import CALL, MOVED, MOVED_MODULE, RENAMED, SIDE_EFFECT

ASSERTION = "aten._assert_tensor_metadata.default"
KIND_ORDER: dict[NodeChangeKind, int] = {"changed": 0, "added": 1, "rewired": 2, "removed": 3}
"""Sort order of the changes of one edit, primary change first."""
DERIVED_ORDER = len(KIND_ORDER)
"""Sort order of a node that differs only in an inherited shape or dtype.

Minor parts come even later; see `sort_key`. An inserted pooling changes the sizes of every later
node, but the insertion is the edit."""


@dataclass
class GroupedChanges:
    """The nodes that differ between two graphs, a group for each edit.

    Attributes:
        matching: the correspondence of the nodes of the two graphs.
        groups: the changes of each edit.
        follows: for each group, the changes between these two graphs that only follow from it.
        changes: the changes with the rules that joined them.
    """

    matching: Correspondence
    changes: NodeChanges
    groups: list[list[NodeChange]] = field(default_factory=list)
    follows: list[list[NodeChange]] = field(default_factory=list)

    def names(self) -> dict[str, str]:
        """Return a map from old to new names of matched nodes."""
        a, b = self.matching.a.nodes, self.matching.b.nodes
        return {a[i].name: b[j].name for i, j in enumerate(self.matching.forward) if j != -1}


def group_changes(a: NumberedGraph, b: NumberedGraph, names: Mapping[str, str]) -> GroupedChanges:
    """Match two graphs and group what differs.

    Args:
        a, b: the old and the new graph.
        names: maps inputs of `a` to the corresponding inputs of `b`, by name, as far as known.
    """
    changes = NodeChanges(match_graphs(a, b, names))
    comparer = NodeComparer(changes)
    comparer.compare_nodes()
    join_neighbours(changes)
    join_copies(changes)
    derived = join_derived(changes)
    if a.nodes and b.nodes:
        comparer.compare_outputs()
    groups, follows = separate_moves(changes, _Grouper(changes, derived).sort_groups())
    attach_renamed(changes, comparer.renamed, groups, follows)
    return GroupedChanges(changes.m, changes, groups, follows)


class _Grouper:
    """Collects the changes of each edit, primary change first.

    Attributes:
        changes: the changes of the two graphs.
        a, b: the graphs.
        derived: old numbers of the nodes that differ only in an inherited shape or dtype.
        saved_only_a, saved_only_b: nodes that a forward computes only for its backward.
    """

    def __init__(self, changes: NodeChanges, derived: Set[int]):
        self.changes = changes
        self.a = changes.a
        self.b = changes.b
        self.derived = derived
        self.saved_only_a = _saved_only_nodes(self.a)
        self.saved_only_b = _saved_only_nodes(self.b)

    def sort_groups(self) -> list[list[NodeChange]]:
        self.join_calls()
        groups = self.absorb_followers(self.changes.group_by_edit())
        for group in groups.values():
            group.sort(key=self.sort_key)
        return sorted(groups.values(), key=lambda group: min(map(self.position_of, group)))

    def join_calls(self) -> None:
        """Join the nodes added or removed in one call of a torch function.

        `torch.einsum` reshapes both factors and the result of a product. `@` also reshapes them,
        but with different ops, and the ops in between are common to both. Changed constants do not
        join nodes, because they may be several edits of one call.
        """
        sides = (False, self.a), (True, self.b)
        nodes = (
            flat.nodes[part.after if is_new else part.before]
            for part in self.changes.by_key.values()
            for is_new, flat in sides
            if (part.after if is_new else part.before) != -1
        )
        # Graphs from files have no sources. Skip the grouping, which takes a pass over all parts.
        if not any(node.source and node.source.call for node in nodes):
            return
        first: dict[tuple[bool, str], NodeKey] = {}
        for root, group in self.changes.group_by_edit().items():
            ops = [part for part in group if self.is_edited_op(part)]
            if all(part.kind in ("changed", "rewired") for part in ops):
                continue
            for is_new, flat in sides:
                numbers = [part.after if is_new else part.before for part in ops]
                sources = [flat.nodes[i].source for i in numbers if i != -1]
                calls = {source.call if source else "" for source in sources}
                if len(calls) == 1 and (call := calls.pop()):
                    self.changes.join(CALL, first.setdefault((is_new, call), root), root)

    def is_edited_op(self, part: NodeChange) -> bool:
        node = self.a.nodes[part.before] if part.after == -1 else self.b.nodes[part.after]
        minor = not node.is_call or node.op in ("operator.getitem", ASSERTION)
        return not minor and part.before not in self.derived

    def absorb_followers(
        self, groups: dict[NodeKey, list[NodeChange]]
    ) -> dict[NodeKey, list[NodeChange]]:
        """Merge each group that only follows from an edit into the nearest edit.

        Such groups consist of these parts:

        - a `getitem` of an output of a matched op, which is newly used or no longer used;
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
                self.changes.joins.append(Join(SIDE_EFFECT, key, nearest[1]))
        return edits

    def is_follower(self, part: NodeChange) -> bool:
        """Return True if a part only follows from another edit; see `absorb_followers`."""
        if part.kind not in ("added", "removed"):
            return False
        is_removed = part.after == -1
        flat, number = (self.a, part.before) if is_removed else (self.b, part.after)
        partner = self.changes.m.forward if is_removed else self.changes.m.backward
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
        order = DERIVED_ORDER if part.before in self.derived else KIND_ORDER[part.kind]
        return minor, order, self.position_of(part)

    def position_of(self, part: NodeChange) -> float:
        """Return the position of a part as a share of its graph, comparable between old and new."""
        if part.after != -1:
            return part.after / len(self.b.nodes)
        return part.before / len(self.a.nodes)


def separate_moves(
    changes: NodeChanges, groups: list[list[NodeChange]]
) -> tuple[list[list[NodeChange]], list[list[NodeChange]]]:
    """Separate the consequences of moved units from the edits.

    The nodes of one moved unit become one group.

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
    consequences: list[list[NodeChange]] = [[] for _ in groups]
    remaining: list[list[NodeChange]] = [[] for _ in groups]
    for k, group in enumerate(groups):
        for part in group:
            i = part.before
            if i in rewired and i in causes:
                consequences[rewired[causes[i]]].append(part)
                changes.joins.append(Join(MOVED, ("a", i), ("a", causes[i])))
            else:
                moves_with = i in rewired and i in unit_of
                if moves_with and unit_of[i] != i:
                    changes.joins.append(Join(MOVED_MODULE, ("a", i), ("a", unit_of[i])))
                remaining[rewired[unit_of[i]] if moves_with else k].append(part)
    edits = [k for k, group in enumerate(remaining) if group]
    return [remaining[k] for k in edits], [consequences[k] for k in edits]


def attach_renamed(
    changes: NodeChanges,
    renamed: Mapping[int, NodeChange],
    groups: Iterable[list[NodeChange]],
    follows: Sequence[list[NodeChange]],
) -> None:
    """Append each renamed module to the consequences of the edit that renamed it.

    Args:
        changes: the changes of the two graphs.
        renamed: see `NodeComparer`.
        groups: the changes of each edit.
        follows: the consequences of each edit; extended in place.
    """
    if not renamed:
        return
    edit_of = {
        change: k
        for k, (group, others) in enumerate(zip(groups, follows, strict=True))
        for change in (*group, *others)
    }
    for i, cause in renamed.items():
        # A renamed module with a different operand is an edit already.
        if not changes.kind_of(("a", i)):
            follows[edit_of[cause]].append(NodeChange("changed", i, changes.m.forward[i]))
            changes.joins.append(Join(RENAMED, ("a", i), changes.key_of(cause)))


def _saved_only_nodes(flat: NumberedGraph) -> set[int]:
    """Return the nodes that a forward computes only for its backward."""
    if not flat.graph.saved:
        return set()
    last = len(flat.nodes) - 1
    needed = flat.returned + flat.operands[last][flat.arity[last] :]
    returned = reachable(needed, flat.operands.__getitem__)
    # Dead code is left out, because it is not computed for the backward. Otherwise it would follow
    # from any edit.
    live = flat.live()
    return {i for i in range(last) if live[i] and i not in returned and flat.nodes[i].is_call}
