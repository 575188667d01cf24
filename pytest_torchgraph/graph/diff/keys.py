"""The key of an edit. Findings with equal keys are one edit in two places or in two calls.

A key describes everything that an edit did, relative to its module instance (see `paths`). So it is
equal in every layer of one class. It contains for each changed node, before and after:

- kind, op or role, constants, effects, and the module relative to the instance;
- dtype, layout and shape if they differ from the partner's. A node without a partner has only
  dtype and layout, so that an edit is the same at a different size;
- each operand and each user. It is a node of the edit, a node of the instance by its relative name,
  or a value from outside by its *role*. The role consists of the other users of the value in the
  instance. For example, the inputs of the first and of the second layer have the same role,
  although an embedding produces the first input and a layer produces the second.

If the instance is unknown, full names are used, so that the same edit in two graphs is one edit.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Mapping, Sequence

from ...words import grouped
from .findings import Change, Finding
from .key_forms import call_form, name_form, place_form, result_form, without_derived
from .origins import Key, Occurrence, Origins, take_same_operands
from .paths import holds, instances_of, path_of

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
        if finding.summary or unknown:
            return "alone", id(finding)
        changes = without_derived(changes)
        around = (instances_of(path_of(change.node)) for change in changes)
        # The first node that is in an instance determines the instances around the edit.
        instances = next(filter(None, around), ())
        edit_nodes = self.origins.number_nodes(changes)
        if len(changes) > 1 and instances:
            # The last layer of a list has a different user than the other layers. Its edit would be
            # a finding of its own.
            changes = [c for c in changes if not self._is_user_outside(c, instances[0], edit_nodes)]
            edit_nodes = self.origins.number_nodes(changes)
        # A list may have another name in the new graph. Without the old name, an edit of its class
        # would be one finding for each layer.
        before = instances_before(changes, instances)
        return tuple(self._form(change, (before, instances), edit_nodes) for change in changes)

    def _is_user_outside(
        self, change: Change, instance: str, edit_nodes: Mapping[Key, int]
    ) -> bool:
        """Return True if a node outside an instance changed only its operands, due to the edit.

        The form of the value already records that it is used outside. The users themselves depend
        on the surroundings of the instance. For example, the last layer of a list has a different
        user than the other layers.
        """
        if change.kind != "rewired" or holds(instance, path_of(change.node)):
            return False
        old, new = self.origins.of(change)
        assert old is not None
        assert new is not None
        return take_same_operands(old, new, edit_nodes)

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
        end = flat.arity[i] + len(flat.nodes[i].after)
        if change.kind == "rewired":
            end = len(flat.operands[i])
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

        If no user is left, return the users of the value's partner in the other graph.
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
            flat = value.flat
            cached = self._users[value.key] = grouped(
                (instance, (user, slot))
                for user, slot in flat.users[value.number]
                for instance in instances_of(path_of(flat.nodes[user]))
            )
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


def instances_before(changes: Iterable[Change], instances: tuple[str, ...]) -> tuple[str, ...]:
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
