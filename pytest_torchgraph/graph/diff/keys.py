"""The key of an edit. Findings with equal keys are one edit in two places or in two calls.

A key describes everything that an edit did, relative to its module instance (see `paths`). So it is
equal in every layer of one class. It contains for each changed node, before and after:

- kind, op, constants, effects, and the module relative to the instance;
- dtype and shape if they differ from the partner's. A node without a partner has only the dtype, so
  that an edit is the same at a different size;
- each operand and each user. It is a node of the edit, a node of the instance by its relative name,
  or a value from outside by its *role*. The role consists of the other users of the value in the
  instance. For example, the inputs of the first and of the second layer have the same role,
  although an embedding produces the first input and a layer produces the second.

If the instance is unknown, full names are used, so that the same edit in two graphs is one edit.

Within one module path, or one line of the user's code, calls have no names of their own. So the
place in the data flow identifies the nodes of a call. Two nodes have the same place if their
dependencies within the module are equal, and if the nodes of the module that depend on them are
equal.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable, Iterable, Mapping, Sequence

from ..equality import NumberedGraph
from ..model import Node, Result, TensorMeta
from ..text import format_result
from .findings import Change, Finding, ops_of
from .match import DERIVED, without_target
from .origins import Key, Occurrence, Origins
from .paths import holds, instances_of, path_of, relative_to_instances

Users = Mapping[str, Sequence[tuple[int, int]]]
"""The users of a value and their operand slots, by the instances of the users."""
PLACING = ("inside", "role", "named", "beside")
"""Forms of operands and users that determine the place of a node in its instance."""


class EditKeys:
    """Keys of findings that each have exactly one place.

    Args:
        origins: the origins of their changes.
    """

    def __init__(self, origins: Origins):
        self.origins = origins
        self._users: dict[Key, Users] = {}

    def key(self, finding: Finding) -> Hashable:
        """Return the key of a finding, equal for the same edit in different places."""
        changes: Sequence[Change] = finding.changes
        unknown = not all(map(self.origins.knows, changes))
        if finding.summary or finding.of_graph or unknown:
            return "alone", id(finding)
        changes = without_derived(changes)
        instances = _instances(changes)
        edit_nodes = self.origins.number_nodes(changes)
        if len(changes) > 1 and instances:
            # The last layer of a list has a different user than the other layers. Its edit would be
            # a finding of its own.
            changes = [c for c in changes if not self._is_user_outside(c, instances[0], edit_nodes)]
            edit_nodes = self.origins.number_nodes(changes)
        # A list may have another name in the new graph. Without the old name, an edit of its class
        # was one finding for each layer.
        before = _instances_before(changes, instances)
        return tuple(self._form(change, (before, instances), edit_nodes) for change in changes)

    def _is_user_outside(
        self, change: Change, instance: str, edit_nodes: Mapping[Key, int]
    ) -> bool:
        """Return True if a node outside an instance only reads a different value of the edit now.

        The form of the value already records that it is used outside. The users themselves depend
        on the surroundings of the instance. For example, the last layer of a list has a different
        user than the other layers.
        """
        if change.kind != "rewired" or holds(instance, path_of(change.node)):
            return False
        old, new = self.origins.of(change)
        assert old is not None
        assert new is not None
        slots = zip(old.flat.operands[old.number], new.flat.operands[new.number], strict=False)
        return all(
            old.matching.forward[p] == q
            or old.at(p).key in edit_nodes
            or new.at(q).key in edit_nodes
            for p, q in slots
        )

    # -- forms -----------------------------------------------------------------------------------

    def _form(
        self,
        change: Change,
        instances: tuple[Sequence[str], Sequence[str]],
        edit_nodes: Mapping[Key, int],
    ) -> Hashable:
        old, new = self.origins.of(change)
        graph = (new or old).flat.graph  # type: ignore[union-attr]
        has_partner = old is not None and new is not None
        return (
            change.kind,
            graph.kind,
            None if old is None else self._side(old, change, has_partner, instances[0], edit_nodes),
            None if new is None else self._side(new, change, has_partner, instances[1], edit_nodes),
        )

    def _side(
        self,
        node: Occurrence,
        change: Change,
        has_partner: bool,
        instances: Sequence[str],
        edit_nodes: Mapping[Key, int],
    ) -> Hashable:
        flat, i = node.flat, node.number
        end = None if change.kind == "rewired" else flat.arity[i]
        operands = tuple(
            self._operand(node, slot, p, instances, edit_nodes)
            for slot, p in enumerate(flat.operands[i][:end])
        )
        uses = self._uses(node, instances, edit_nodes)
        placed = any(form[0] in PLACING for form in (*operands, *uses))
        return (
            call_form(flat, i, instances),
            place_form(flat.nodes[i].module, instances),
            result_form(flat, i, change if has_partner else None),
            operands,
            uses,
            () if placed else name_form(flat.nodes[i], instances),
        )

    def _operand(
        self,
        node: Occurrence,
        slot: int,
        p: int,
        instances: Sequence[str],
        edit_nodes: Mapping[Key, int],
    ) -> tuple[Hashable, ...]:
        operand = node.at(p)
        if operand.key in edit_nodes:
            return "own", edit_nodes[operand.key]
        form = name_form(node.flat.nodes[p], instances)
        if form[0] == "inside":
            return form
        if instances:
            # The embedding feeds the first layer, and a layer feeds each later layer. By its role,
            # the operand is the same in layer 0 and in layers 1 to 11.
            role = self._role(operand, instances[0], edit_nodes)
            if role:
                return "role", *role
        other = node.partner(node.number)
        if other is not None:
            partner_operands = other.flat.operands[other.number]
            partner = node.partner(p)
            if (
                partner is not None
                and slot < len(partner_operands)
                and partner_operands[slot] == partner.number
            ):
                return ("as it was",)
        return form

    def _role(
        self, value: Occurrence, instance: str, edit_nodes: Mapping[Key, int]
    ) -> tuple[Hashable, ...]:
        """Return the users of an outside value in an instance, without the nodes of the edit.

        If no user is left, return the users on the other side of the edit.
        """
        for side in (value, value.partner(value.number)):
            if side is not None:
                nodes = side.flat.nodes
                users = sorted(
                    (name_form(nodes[user], (instance,)), slot)
                    for user, slot in self._users_by_instance(side).get(instance, ())
                    if side.at(user).key not in edit_nodes
                )
                if users:
                    return tuple(users)
        return ()

    def _users_by_instance(self, value: Occurrence) -> Users:
        cached = self._users.get(value.key)
        if cached is None:
            users: dict[str, list[tuple[int, int]]] = {}
            flat = value.flat
            for user, slot in flat.users[value.number]:
                for instance in instances_of(path_of(flat.nodes[user])):
                    users.setdefault(instance, []).append((user, slot))
            cached = self._users[value.key] = users
        return cached

    def _uses(
        self, node: Occurrence, instances: Sequence[str], edit_nodes: Mapping[Key, int]
    ) -> tuple[tuple[Hashable, ...], ...]:
        """Return the users of a changed node.

        Users outside the instance are usually not identified. They are identified by their ops if
        other nodes outside still use the operands of the node: an op inserted before all uses is a
        different edit from an op inserted only before the residual. If the node itself is outside
        the instance, its users are identified by name.
        """
        flat = node.flat
        uses: list[tuple[Hashable, ...]] = []
        outside_users: set[tuple[str, int]] = set()
        is_inside = bool(instances) and holds(instances[0], path_of(flat.nodes[node.number]))
        for user, slot in flat.uses(node.number):
            form = name_form(flat.nodes[user], instances)
            if (number := edit_nodes.get(node.at(user).key)) is not None:
                uses.append(("own", number, slot))
            elif form[0] == "inside" or not is_inside:
                uses.append((*form, slot))
            else:
                outside_users.add((flat.nodes[user].op, slot))
        if outside_users:
            is_partial = self._operand_is_used_outside(node, instances[0], edit_nodes)
            uses.append(("outside", *sorted(outside_users)) if is_partial else ("outside",))
        return tuple(sorted(uses, key=repr))

    def _operand_is_used_outside(
        self, node: Occurrence, instance: str, edit_nodes: Mapping[Key, int]
    ) -> bool:
        flat = node.flat
        return any(
            not holds(instance, path_of(flat.nodes[user])) and node.at(user).key not in edit_nodes
            for p in flat.operands[node.number][: flat.arity[node.number]]
            if holds(instance, path_of(flat.nodes[p]))
            for user, _ in flat.uses(p)
        )


def _instances(changes: Iterable[Change]) -> tuple[str, ...]:
    """Return the instances around the first node of an edit that is in an instance."""
    candidates = (instances_of(path_of(change.node)) for change in changes)
    return next((instances for instances in candidates if instances), ())


def _instances_before(changes: Iterable[Change], instances: tuple[str, ...]) -> tuple[str, ...]:
    """Return the old names of the instances of an edit, in case module lists were renamed.

    Args:
        changes: the edit.
        instances: the instances of the edit in the new graph.
    """
    numbers = [instance.rpartition(".")[2] for instance in instances]
    for change in changes:
        if change.before is not None and change.after is not None:
            old = instances_of(path_of(change.before))
            same_numbers = [instance.rpartition(".")[2] for instance in old] == numbers
            if same_numbers and instances_of(path_of(change.after)) == instances:
                return old
    return instances


def name_form(node: Node, instances: Sequence[str]) -> tuple[Hashable, ...]:
    """Return the name of a node relative to the instances, or its full name outside all lists."""
    relative_name = relative_to_instances(node.name, instances)
    if relative_name is None:
        return "named", without_graph(node.name)
    return (
        ("inside", relative_name[2]) if relative_name[:2] == (0, 0) else ("beside", *relative_name)
    )


def without_derived(changes: Sequence[Change]) -> Sequence[Change]:
    """Return the changes without graph outputs, saved values and tangents, which say little.

    If nothing else changed, these changes are the edit and are returned.
    """
    informative = [
        change
        for change in changes
        if change.node.kind != "output"
        and not (change.node.kind == "placeholder" and change.node.op in DERIVED)
    ]
    return informative or changes


def call_form(flat: NumberedGraph, i: int, instances: Sequence[str]) -> Hashable:
    """Return kind, op, constants and effects of a node.

    The path of a module that the node calls is relative to the instance.
    """
    node = flat.nodes[i]
    call = flat.shapeless[i]
    if not node.target:
        return call
    return without_target(node, call), place_form(node.target, instances)


def place_form(path: str, instances: Sequence[str]) -> Hashable:
    """Return a module path relative to the instance of an edit, or the full path outside it."""
    relative_path = relative_to_instances(path, instances)
    return path if relative_path is None else relative_path


def result_form(flat: NumberedGraph, i: int, changed: Change | None) -> Hashable:
    """Return the part of dtype and shape that characterizes an edit.

    Args:
        flat, i: the graph and the node.
        changed: the change, if the node has a partner.
    """
    # The shape of a new value follows from its op, constants and operands.
    if changed is None:
        return _dtypes(flat.nodes[i].result)
    assert changed.before is not None
    assert changed.after is not None
    old_result, new_result = (_result(node) for node in (changed.before, changed.after))
    if old_result == new_result:
        return "same"
    return _changed_sizes(flat.nodes[i].result, changed.before.result, changed.after.result)


def _changed_sizes(result: Result, before: Result, after: Result) -> Hashable:
    """Return dtype and shape of a result, without the sizes that are equal before and after.

    A larger kernel is the same edit in convolutions with other numbers of channels.
    """
    metas = [meta for meta in (result, before, after) if isinstance(meta, TensorMeta)]
    if len(metas) < 3 or len({len(meta.shape) for meta in metas}) > 1:
        return "" if result is None else format_result(result)
    sizes = zip(*(meta.shape for meta in metas), strict=True)
    changed = (str(size) if old != new else "same" for size, old, new in sizes)
    return metas[0].dtype, metas[0].layout, tuple(changed)


def _result(node: Node) -> str:
    return "" if node.result is None else format_result(node.result)


def _dtypes(result: Result) -> Hashable:
    if isinstance(result, TensorMeta):
        return result.dtype
    return tuple(map(_dtypes, result)) if isinstance(result, tuple) else type(result).__name__


def without_graph(name: str) -> str:
    """Return a name without the producing graph: `fc/addmm` for `forward_0:fc/addmm`."""
    before, colon, rest = name.partition(":")
    return rest if colon and before.replace("_", "").isalnum() else name


METHODS = ("forward", "__call__", "<module>", "<lambda>")
"""Names of functions that many classes or files define.

A line in such a function says no more than the module."""


OUTSIDE = ("outside",)
"""Form of a value or a user outside the call."""


class CallKeys:
    """The keys of findings that may be in calls of one module or function.

    Args:
        findings: one finding for each edit so far. A module or line can be shared by calls only if
            two of these findings have it in common.
        origins: the origins of their changes.
    """

    def __init__(self, findings: Iterable[Finding], origins: Origins):
        self.origins = origins
        findings = list(findings)
        self.modules = Counter(finding.module for finding in findings)
        self.lines = Counter(line for f in findings if (line := _lines_of(f)) is not None)
        self._colours: dict[tuple[int, str], dict[int, Hashable]] = {}
        self._ids: dict[Hashable, int] = {}

    def key(self, finding: Finding) -> Hashable:
        """Return a key that is equal for one edit in several calls of a module or function."""
        unique_key = ("alone", id(finding))
        if finding.summary or finding.of_graph or not self._is_certain(finding):
            return unique_key
        lines = _lines_of(finding)
        if lines is not None and self.lines[lines] > 1:
            return "line", lines, self._form(finding, None)
        if finding.module and self.modules[finding.module] > 1:
            return "module", finding.module, self._form(finding, finding.module)
        return unique_key

    def _is_certain(self, finding: Finding) -> bool:
        """Return True if the edit takes the same values from outside as before."""
        changes = without_derived(finding.changes)
        if not all(map(self.origins.knows, changes)):
            return False
        edit_nodes = self.origins.number_nodes(changes)
        for change in changes:
            old, new = self.origins.of(change)
            if change.kind == "rewired":
                return False
            if old is None or new is None:
                continue
            for p, q in zip(
                old.flat.operands[old.number], new.flat.operands[new.number], strict=False
            ):
                is_same_value = old.matching.forward[p] == q
                if (
                    not is_same_value
                    and old.at(p).key not in edit_nodes
                    and new.at(q).key not in edit_nodes
                ):
                    return False
        return True

    def _form(self, finding: Finding, module: str | None) -> Hashable:
        changes = without_derived(finding.changes)
        edit_nodes = self.origins.number_nodes(changes)
        return tuple(self._change(change, module, edit_nodes) for change in changes)

    def _change(
        self, change: Change, module: str | None, edit_nodes: Mapping[Key, int]
    ) -> Hashable:
        has_partner = change.before is not None and change.after is not None
        return (
            change.kind,
            *(
                self._side(node, change if has_partner else None, module, edit_nodes)
                for node in self.origins.nodes(change)
            ),
        )

    def _side(
        self,
        node: Occurrence,
        change: Change | None,
        module: str | None,
        edit_nodes: Mapping[Key, int],
    ) -> Hashable:
        flat, i = node.flat, node.number
        path = flat.nodes[i].module
        return (
            flat.graph.kind,
            call_form(flat, i, ()),
            path if module is not None else "",
            result_form(flat, i, change),
            tuple(
                self._value(node.at(p), module, edit_nodes)
                for p in flat.operands[i][: flat.arity[i]]
            ),
            self._uses(node, module, edit_nodes),
        )

    def _uses(
        self, node: Occurrence, module: str | None, edit_nodes: Mapping[Key, int]
    ) -> Hashable:
        """Return the users of a node.

        Outside users are identified by op if the operands have other users outside.
        """
        flat = node.flat
        uses = {
            (self._value(node.at(user), module, edit_nodes), slot)
            for user, slot in flat.uses(node.number)
        }
        inside = [use for use in uses if use[0] != OUTSIDE]
        operands = flat.operands[node.number][: flat.arity[node.number]]
        inside_operands = [
            node.at(p)
            for p in operands
            if self._value(node.at(p), module, edit_nodes)[0] == "inside"
        ]
        is_partial = any(
            self._value(node.at(user), module, edit_nodes) == OUTSIDE
            for value in inside_operands
            for user, _ in flat.uses(value.number)
        )
        ops = {
            (flat.nodes[user].op, slot)
            for user, slot in flat.uses(node.number)
            if self._value(node.at(user), module, edit_nodes) == OUTSIDE
        }
        outside_uses = [(OUTSIDE, *sorted(ops if is_partial else ()))] if ops else []
        return tuple(sorted([*inside, *outside_uses], key=repr))

    def _value(
        self, node: Occurrence, module: str | None, edit_nodes: Mapping[Key, int]
    ) -> tuple[Hashable, ...]:
        if (number := edit_nodes.get(node.key)) is not None:
            return "own", number
        other = node.flat.nodes[node.number]
        if other.op in ("parameter", "buffer", "get_attr"):
            return "named", other.name, other.target
        if module is None:
            return OUTSIDE
        colours = self._colour(node.flat, module)
        return ("inside", colours[node.number]) if node.number in colours else OUTSIDE

    # -- places within a module ------------------------------------------------------------------

    def _colour(self, flat: NumberedGraph, module: str) -> Mapping[int, Hashable]:
        """Return the place of each node of a module. Equal calls have equal places."""
        colours = self._colours.get((id(flat), module))
        if colours is None:
            module_nodes = [
                i for i, n in enumerate(flat.nodes) if n.is_call and holds(module, n.module)
            ]
            past: dict[int, int] = {}
            for i in module_nodes:
                operands = flat.operands[i][: flat.arity[i]]
                form = (
                    flat.nodes[i].module,
                    flat.labels[i],
                    *(past.get(p, _outside_form(flat, p)) for p in operands),
                )
                past[i] = self._ids.setdefault(form, len(self._ids))
            future: dict[int, int] = {}
            for i in reversed(module_nodes):
                users = sorted(
                    (future[u], slot) if u in future else (-1, 0) for u, slot in flat.users[i]
                )
                form = (flat.nodes[i].module, flat.labels[i], "future", *users)
                future[i] = self._ids.setdefault(form, len(self._ids))
            colours = self._colours[id(flat), module] = {
                i: (past[i], future[i]) for i in module_nodes
            }
        return colours


def _outside_form(flat: NumberedGraph, i: int) -> Hashable:
    node = flat.nodes[i]
    return node.name if node.op in ("parameter", "buffer") else "outside"


def _lines_of(finding: Finding) -> Hashable | None:
    """Return the lines of the user's code of an edit, or `None` if one of them is unknown."""
    lines = []
    for change in ops_of(finding.changes):
        source = change.node.source
        if source is None:
            return None
        # A line of a method says no more than the module of the method, so the path is kept.
        path = change.node.module if source.function.rpartition(".")[2] in METHODS else ""
        lines.append((source.file, source.line, source.columns, path))
    return tuple(lines) or None
