"""The key of an edit. Findings with equal keys are one edit in two places or in two calls.

A key describes everything that an edit did, relative to its surroundings. It contains for each
changed node, before and after:

- kind, op or role, constants, effects, and the module relative to the surroundings;
- dtype, layout and shape if they differ from the partner's. A node without a partner has only
  dtype and layout, so that an edit is the same at a different size;
- each operand and each user: a node of the edit, or a form of it in the surroundings.

The surroundings are one of these:

- A module instance (see `paths`). So the key is equal in every layer of one class. A node of the
  instance has its relative name, and a value from outside has its *role*: the other users of the
  value in the instance. For example, the inputs of the first and of the second layer have the same
  role, although an embedding produces the first input and a layer produces the second. If the
  instance is unknown, full names are used, so that the same edit in two graphs is one edit.
- One call of a module that is called several times. Within one module path, calls have no names of
  their own. So the place in the data flow identifies the nodes of a call. Two nodes have the same
  place if their dependencies within the module are equal, and if the nodes of the module that
  depend on them are equal.
- The lines of the user's code, without anything around the edit.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from functools import partial

from ...words import grouped
from ..equality import NumberedGraph
from ..model import Node, Result, TensorMeta
from ..text import format_result
from .differing import have_same_result
from .findings import Change, Finding, ops_of
from .match import DERIVED, without_target
from .moves import OWN_VALUES
from .origins import Key, Occurrence, Origins, take_same_operands
from .paths import holds, instances_of, path_of, relative_to_instances

Form = tuple[Hashable, ...]
"""What is known of a node around an edit."""
OUTSIDE: Form = ("outside",)
"""Form of a value or a user outside the surroundings."""
PLACING = ("inside", "role", "named", "beside")
"""Forms of operands and users that determine the place of a node in its instance."""
METHODS = ("forward", "__call__", "<module>", "<lambda>")
"""Names of functions that many classes or files define.

A line in such a function says no more than the module."""


class EditKeys:
    """Keys of findings that each have exactly one place.

    Args:
        origins: the origins of their changes.
    """

    def __init__(self, origins: Origins):
        self.origins = origins
        self._users: dict[Key, Mapping[str, Sequence[tuple[int, int]]]] = {}  # see `_Instance`
        # The results of `_places_in`, by the `id` of the graph and the module; the numbers of the
        # forms that places consist of; the calls of each module and the sorted modules of a graph,
        # by its `id`.
        self._places: dict[tuple[int, str], Mapping[int, Hashable]] = {}
        self._ids: dict[Hashable, int] = {}
        self._calls: dict[int, tuple[dict[str, list[int]], list[str]]] = {}

    def key(self, finding: Finding) -> Hashable:
        """Return the key of a finding, equal for the same edit in different places.

        A finding with a summary, or with a change of unknown origin, has a key of its own.
        """
        changes: Sequence[Change] = finding.changes
        if finding.summary or not all(map(self.origins.knows, changes)):
            return "alone", id(finding)
        changes = without_derived(changes)
        around = (instances_of(path_of(change.node)) for change in changes)
        # The first node that is in an instance determines the instances around the edit.
        instances = next(filter(None, around), ())
        edit_nodes = self.origins.number_nodes(changes)
        if len(changes) > 1 and instances:
            # The last layer of a list has a different user than the other layers. With that user,
            # its edit would be a finding of its own.
            changes = [c for c in changes if not self._is_user_outside(c, instances[0], edit_nodes)]
            edit_nodes = self.origins.number_nodes(changes)
        # A list may have another name in the old graph. Old nodes are relative to that name.
        # Otherwise, an edit of its class would be one finding for each layer.
        sides = instances_before(changes, instances), instances
        return _Instance(edit_nodes, sides, self._users).form(changes, self.origins)

    def keys_of_calls(self, findings: Sequence[Finding]) -> Iterator[Hashable]:
        """Yield a key of each finding, equal for one edit in several calls.

        Args:
            findings: one finding for each edit so far. A module or line can be shared by calls only
                if two of these findings have it in common.
        """
        lines_of = [*map(_lines_of, findings)]
        lines, modules = Counter(lines_of), Counter(finding.module for finding in findings)
        for finding, own_lines in zip(findings, lines_of, strict=True):
            key: Form = "alone", id(finding)
            places_in: Callable[[NumberedGraph], Mapping[int, Hashable]] | None = None
            module = finding.module
            # Findings on the same lines count as calls of one function, whatever their modules.
            if own_lines is not None and lines[own_lines] > 1:
                key = "line", own_lines
            elif module and modules[module] > 1:
                key, places_in = ("module", module), partial(self._places_in, module)
            changes = without_derived(finding.changes)
            if not finding.summary and key[0] != "alone" and self._is_certain(changes):
                edit_nodes = self.origins.number_nodes(changes)
                key = *key, _OneCall(edit_nodes, places_in).form(changes, self.origins)
            else:
                key = "alone", id(finding)
            yield key

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
        return take_same_operands(*self.origins.of(change), edit_nodes)

    def _is_certain(self, changes: Sequence[Change]) -> bool:
        """Return True if an edit takes the same values from outside as before.

        The key of a call does not contain these values, so it would not show another one.
        """
        if not all(map(self.origins.knows, changes)):
            return False
        edit_nodes = self.origins.number_nodes(changes)
        return all(
            change.kind != "rewired" and take_same_operands(*self.origins.of(change), edit_nodes)
            for change in changes
        )

    # -- places within a module ------------------------------------------------------------------

    def _places_in(self, module: str, flat: NumberedGraph) -> Mapping[int, Hashable]:
        """Return the place of each node of a module, by number. Equal calls have equal places.

        A place consists of two numbers: the node's dependencies within the module, and the nodes of
        the module that depend on it.
        """
        places = self._places.get((id(flat), module))
        if places is None:
            module_nodes = self._calls_in(flat, module)
            past: dict[int, int] = {}
            for i in module_nodes:
                operands = flat.operands[i][: flat.arity[i]]
                form = (
                    flat.nodes[i].module,
                    flat.labels[i],
                    *(past.get(p, _outside_form(flat.nodes[p])) for p in operands),
                )
                past[i] = self._ids.setdefault(form, len(self._ids))
            future: dict[int, int] = {}
            for i in reversed(module_nodes):
                # All users outside the module are alike.
                users = sorted(
                    (future[u], slot) if u in future else (-1, 0) for u, slot in flat.users[i]
                )
                form = (flat.nodes[i].module, flat.labels[i], "future", *users)
                future[i] = self._ids.setdefault(form, len(self._ids))
            places = {i: (past[i], future[i]) for i in module_nodes}
            self._places[id(flat), module] = places
        return places

    def _calls_in(self, flat: NumberedGraph, module: str) -> list[int]:
        """Return the numbers of the calls in a module, in order."""
        if id(flat) not in self._calls:
            by_path = grouped((node.module, i) for i, node in enumerate(flat.nodes) if node.is_call)
            self._calls[id(flat)] = by_path, sorted(by_path)
        by_path, paths = self._calls[id(flat)]
        # The paths inside begin with the module and a dot or a slash, which precede 0.
        start, end = bisect_left(paths, f"{module}."), bisect_left(paths, f"{module}0")
        return sorted(i for path in (module, *paths[start:end]) for i in by_path.get(path, ()))


class _Surroundings:
    """What is around an edit. The base class prints an edit; see `form`.

    Subclasses say how a node around the edit is printed: `_Instance` relative to its layer,
    `_OneCall` by its place in the call. Sides are 0 for the old graph and 1 for the new graph.

    Args:
        edit_nodes: the number of the change of each node of the edit.

    Attributes:
        instances: the instances around the edit in the old and in the new graph, innermost first.
    """

    instances: tuple[Sequence[str], Sequence[str]] = (), ()

    def __init__(self, edit_nodes: Mapping[Key, int]):
        self.edit_nodes = edit_nodes

    def place(self, path: str, side: int) -> Hashable:
        """Return the form of a module path."""
        raise NotImplementedError

    def operand(self, node: Occurrence, slot: int, operand: Occurrence) -> Form:
        """Return the form of an operand that is no node of the edit."""
        raise NotImplementedError

    def user(self, node: Occurrence, user: Occurrence) -> Form:
        """Return the form of a user that is no node of the edit."""
        raise NotImplementedError

    def is_inside(self, node: Occurrence) -> bool:
        """Return True if a node is inside the surroundings."""
        raise NotImplementedError

    def name(self, node: Occurrence) -> Form:
        """Return the form of a changed node whose operands and users do not determine its place."""
        return ()

    def form(self, changes: Iterable[Change], origins: Origins) -> Hashable:
        """Return the form of an edit."""
        return tuple(
            (change.kind, *(self._side(node, change) for node in origins.nodes(change)))
            for change in changes
        )

    def _side(self, node: Occurrence, change: Change) -> Hashable:
        """Return the form of a changed node; see the module docstring for its parts."""
        flat, i, data = node.flat, node.number, node.node
        has_partner = change.before is not None and change.after is not None
        # Preceding effects come after the arguments and `after`. Which effect precedes a node
        # depends on the code around it, so it counts only if the order may be the edit.
        end = None if change.kind == "rewired" else flat.arity[i] + len(data.after)
        operands = []
        for slot, p in enumerate(flat.operands[i][:end]):
            number = self.edit_nodes.get(node.at(p).key)
            is_own = number is not None
            operands.append(("own", number) if is_own else self.operand(node, slot, node.at(p)))
        uses = self._uses(node)
        call: Hashable = data.op, flat.shapeless[i]
        if data.target:
            # The path of a called module is relative to the instance.
            target = place_form(data.target, self.instances[node.is_new])
            call = without_target(data, flat.shapeless[i]), target
        placed = any(form[0] in PLACING for form in (*operands, *uses))
        return (
            flat.graph.kind,
            call,
            self.place(data.module, node.is_new),
            result_form(flat, i, change if has_partner else None),
            tuple(operands),
            uses,
            () if placed else self.name(node),
        )

    def _uses(self, node: Occurrence) -> tuple[Form, ...]:
        """Return the users of a changed node.

        Users outside are usually not identified. They are identified by their ops if other nodes
        outside still use the operands of the node: an op inserted before all uses is a different
        edit from an op inserted only before the residual.
        """
        flat = node.flat
        uses: set[Form] = set()
        outside: set[tuple[str, int]] = set()
        for number, slot in flat.uses(node.number):
            user = node.at(number)
            if user.key in self.edit_nodes:
                uses.add(("own", self.edit_nodes[user.key], slot))
            elif (form := self.user(node, user)) == OUTSIDE:
                outside.add((user.node.op, slot))
            else:
                uses.add((*form, slot))
        if outside:
            is_partial = any(
                node.at(user).key not in self.edit_nodes and not self.is_inside(node.at(user))
                for p in flat.operands[node.number][: flat.arity[node.number]]
                if self.is_inside(node.at(p))
                for user, _ in flat.uses(p)
            )
            uses.add((*OUTSIDE, *sorted(outside if is_partial else ())))
        return tuple(sorted(uses, key=repr))


class _Instance(_Surroundings):
    """A module instance, and the instances around it.

    Args:
        edit_nodes, instances: see `_Surroundings`.
        users: the users of each value and their operand slots, by the instances of the users;
            filled here.
    """

    def __init__(
        self,
        edit_nodes: Mapping[Key, int],
        instances: tuple[Sequence[str], Sequence[str]],
        users: dict[Key, Mapping[str, Sequence[tuple[int, int]]]],
    ):
        super().__init__(edit_nodes)
        self.instances = instances
        self.users = users

    def place(self, path: str, side: int) -> Hashable:
        return place_form(path, self.instances[side])

    def name(self, node: Occurrence) -> Form:
        return _name_form(node.node, self.instances[node.is_new])

    def is_inside(self, node: Occurrence) -> bool:
        around = self.instances[node.is_new]
        return bool(around) and holds(around[0], path_of(node.node))

    def user(self, node: Occurrence, user: Occurrence) -> Form:
        form = self.name(user)
        # If the node itself is outside the instance, its users are identified by name.
        return form if form[0] == "inside" or not self.is_inside(node) else OUTSIDE

    def operand(self, node: Occurrence, slot: int, operand: Occurrence) -> Form:
        form = self.name(operand)
        if form[0] == "inside":
            return form
        # The embedding feeds the first layer, and a layer feeds each later layer. By its role,
        # the operand is the same in layer 0 and in layers 1 to 11.
        if self.instances[node.is_new] and (role := self._role(operand)):
            return "role", *role
        # An operand that did not change says nothing about the edit, whatever its name.
        other, partner = node.partner(), operand.partner()
        if other is not None and partner is not None:
            operands = other.flat.operands[other.number]
            if slot < len(operands) and operands[slot] == partner.number:
                return ("as it was",)
        return form

    def _role(self, value: Occurrence) -> Form:
        """Return the users of an outside value in an instance, without the nodes of the edit.

        If no user is left, return the users of the value's partner in the other graph.
        """
        instance = self.instances[value.is_new][0]
        for side in (value, value.partner()):
            if side is not None:
                users = sorted(
                    (_name_form(side.at(user).node, (instance,)), slot)
                    for user, slot in self._users_by_instance(side).get(instance, ())
                    if side.at(user).key not in self.edit_nodes
                )
                if users:
                    return tuple(users)
        return ()

    def _users_by_instance(self, value: Occurrence) -> Mapping[str, Sequence[tuple[int, int]]]:
        if value.key not in self.users:
            self.users[value.key] = grouped(
                (instance, (user, slot))
                for user, slot in value.flat.users[value.number]
                for instance in instances_of(path_of(value.at(user).node))
            )
        return self.users[value.key]


class _OneCall(_Surroundings):
    """One of several calls of a module, or nothing but lines of code.

    Args:
        edit_nodes: see `_Surroundings`.
        places_in: returns the place of each node of the module in a graph; `None` for lines of
            code.
    """

    def __init__(
        self,
        edit_nodes: Mapping[Key, int],
        places_in: Callable[[NumberedGraph], Mapping[int, Hashable]] | None,
    ):
        super().__init__(edit_nodes)
        self.places_in = places_in

    def place(self, path: str, side: int) -> Hashable:
        return path if self.places_in else ""

    def is_inside(self, node: Occurrence) -> bool:
        return self.places_in is not None and node.number in self.places_in(node.flat)

    def user(self, node: Occurrence, user: Occurrence) -> Form:
        if self.places_in is None or not self.is_inside(user):
            return OUTSIDE
        return "inside", self.places_in(user.flat)[user.number]

    def operand(self, node: Occurrence, slot: int, operand: Occurrence) -> Form:
        value = operand.node
        # All calls have their own values in common, so these can have names.
        if value.op in OWN_VALUES:
            return "named", value.name, value.target
        return self.user(node, operand)


def _outside_form(node: Node) -> Hashable:
    """Return the form of an operand outside a module: calls share parameters, but not values."""
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


def without_derived(changes: Sequence[Change]) -> Sequence[Change]:
    """Return the changes without graph outputs, saved values and tangents, which say little.

    If nothing else changed, these changes are the edit and are returned.
    """
    informative = [
        change
        for change in changes
        if (node := change.node).kind != "output"
        and not (node.kind == "placeholder" and node.op in DERIVED)
    ]
    return informative or changes


# -- forms of parts --------------------------------------------------------------------------------


def _name_form(node: Node, instances: Sequence[str]) -> Form:
    """Return the name of a node relative to the instances, or its full name outside all lists."""
    relative_name = relative_to_instances(node.name, instances)  # index, distance, rest
    if relative_name is None:
        # A name without the producing graph: `fc/addmm` for `forward_0:fc/addmm`.
        before, colon, rest = node.name.partition(":")
        is_of_graph = colon and before.replace("_", "").isalnum()
        return "named", rest if is_of_graph else node.name
    if relative_name[:2] == (0, 0):  # inside the innermost instance
        return "inside", relative_name[2]
    return "beside", *relative_name


def place_form(path: str, instances: Sequence[str]) -> Hashable:
    """Return a module path relative to the instance of an edit, or the full path outside it."""
    relative_path = relative_to_instances(path, instances)
    return path if relative_path is None else relative_path


def result_form(flat: NumberedGraph, i: int, change: Change | None) -> Hashable:
    """Return the part of dtype and shape that characterizes an edit.

    Args:
        flat, i: the graph and the node.
        change: the change of the node and its partner; `None` if the node has no partner.
    """
    # The shape of a new value follows from its op, constants and operands.
    if change is None:
        return _layouts(flat.nodes[i].result)
    assert change.before is not None
    assert change.after is not None
    if have_same_result(change.before, change.after):
        return "same"
    return _changed_sizes(flat.nodes[i].result, change.before.result, change.after.result)


def _changed_sizes(result: Result, before: Result, after: Result) -> Hashable:
    """Return dtype and shape of a result, without the sizes that are equal before and after.

    A larger kernel is the same edit in convolutions with other numbers of channels.

    Args:
        result: the result to print, one of the other two.
        before, after: the old and the new result.
    """
    metas = [meta for meta in (result, before, after) if isinstance(meta, TensorMeta)]
    if len(metas) < 3 or len({len(meta.shape) for meta in metas}) > 1:
        return "" if result is None else format_result(result)
    sizes = zip(*(meta.shape for meta in metas), strict=True)
    changed = (str(size) if old != new else "same" for size, old, new in sizes)
    return metas[0].dtype, metas[0].layout, tuple(changed)


def _layouts(result: Result) -> Hashable:
    """Return dtype and layout of each tensor of a result."""
    if isinstance(result, TensorMeta):
        return result.dtype, result.layout
    return tuple(map(_layouts, result)) if isinstance(result, tuple) else type(result).__name__
