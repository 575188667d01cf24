"""Compute the identities of findings: the tokens of `Finding.identity`."""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Mapping, Sequence
from dataclasses import replace
from functools import cached_property

from ...words import is_index
from ..census import calls
from ..model import Arg, Graph, Node, Ref, map_arg
from ..module_paths import OwnModule, common_path
from ..text import format_node
from .constants import fixed_constants
from .findings import Finding, Identity, Place, digest, ops_of
from .keys import METHODS, EditKeys, result_form, without_derived
from .origins import Origins, take_same_operands
from .paths import holds, path_of

ATEN = "aten."
COPIES = ("_to_copy", "index_copy", "_foreach_copy")
"""Ops whose `_copy` is part of the name. On other ops, `_copy` marks the form without an alias."""

MAX_EDITS = 32
"""Maximum number of `edits` tokens of a finding."""


def identify_findings(
    findings: Iterable[Finding], before: Sequence[Graph], after: Sequence[Graph], origins: Origins
) -> list[Finding]:
    """Return the findings, each with its identity.

    Args:
        findings: the findings of one comparison.
        before, after: all graphs of the two captures.
        origins: the origins of the changes.
    """
    identities = _Identities(before, after, origins)
    return [replace(finding, identity=identities.of(finding)) for finding in findings]


class _Identities:
    """Computes the identities of the findings of one comparison.

    Args:
        before, after: all graphs of the two captures.
        origins: the origins of the changes.
    """

    def __init__(self, before: Sequence[Graph], after: Sequence[Graph], origins: Origins):
        self.after = after
        self.origins = origins
        self.kinds = {graph.name: graph.kind for graph in (*before, *after)}
        self.keys = EditKeys(origins)
        self._ops_by_kind: dict[str, frozenset[str]] = {}

    def of(self, finding: Finding) -> Identity:
        """Return the identity of a finding. One with a summary has only `edits`."""
        edits = self._edits(finding)[:MAX_EDITS]
        if finding.summary:
            return Identity(edits)
        removed, added = ops_of_edit(finding)
        lines = self._lines(finding)
        columns, constants = self._expression(finding, lines)
        release_ops = [tuple(sorted({*map(_functional_op, ops)})) for ops in (removed, added)]
        # If the new graphs still contain the removed op elsewhere, the user replaced it in one
        # place. A new release or a rewrite replaces an op everywhere.
        everywhere = removed and added and self._new_ops(finding).isdisjoint(removed)
        op = digest("op", constants, removed, added)
        return Identity(
            edits,
            line=digest("line", lines, columns) if lines else "",
            op=op,
            rewrite=digest("rewrite", constants, removed, added) if everywhere else "",
            release=digest("release", constants, *release_ops) if removed or added else "",
            where=where_token(finding.places, op) if removed or added else "",
        )

    def _new_ops(self, finding: Finding) -> frozenset[str]:
        """Return the ops in the new graphs of the finding's kind of graph."""
        # The name of a renamed graph is `old -> new`.
        kind = self.kinds.get(finding.graph.rpartition(" -> ")[2], "forward")
        if kind not in self._ops_by_kind:
            graphs = (graph for graph in self.after if graph.kind == kind)
            self._ops_by_kind[kind] = frozenset(call.op for call in calls(graphs))
        return self._ops_by_kind[kind]

    def _edits(self, finding: Finding) -> tuple[str, ...]:
        """Return the tokens of `Identity.edits`."""
        if finding.modules:
            return (digest("modules", finding.kind, finding.modules, finding.like),)
        if finding.summary:
            return (digest("summary", finding.summary),)
        if not all(map(self.origins.knows, finding.changes)):
            nodes = [
                (
                    change.kind,
                    *(node and format_node(node) for node in (change.before, change.after)),
                )
                for change in finding.changes
            ]
            return (digest("nodes", finding.graph, *nodes),)
        key = self.keys.key(finding)
        # Without these numbers, edits of the first and third module of a sequence in a layer would
        # count as one edit. With the numbers, none of 2,040 random pairs of edits is confused.
        inner = dict.fromkeys(
            _numbers_after_layer(path_of(p.changes[0].node)) for p in finding.places
        )
        # Files of one setting may have other results, because each form is printed.
        setting = setting_of(finding, self.origins)[1:]
        return (
            *((digest("setting", *setting),) if setting else ()),
            *(digest("edit", key, numbers) for numbers in inner),
        )

    def _lines(self, finding: Finding) -> Sequence[Hashable]:
        """Return the lines of code of an edit; empty if one of them is unknown.

        The lines are taken from the new nodes, because the old graphs are often stored ones, which
        have no source lines. If an edit has no new node, its removed nodes stand for the lines.
        """
        lines: list[Hashable] = []
        for change in ops_of(without_derived(finding.changes)):
            node = change.after
            if node is None:
                continue
            if node.source is None:
                return ()
            line = node.source.file, node.source.line, node.source.code.strip()
            is_method = node.source.function.rpartition(".")[2] in METHODS
            # A line of a function with a name of its own identifies the edit, and so does a line of
            # a method that calls the op itself. A line that calls modules needs their paths.
            if not is_method or (node.source.direct and not self._calls_modules(line[:2], node)):
                lines.append((*line, ""))
            elif (owner := self._owner_of(node.module)) is None:
                # The part inside the common module of the line's ops, with `*` for the layer.
                paths = self._paths_of_lines.get(line[:2], ())
                module = common_path(map(_star_layer, paths))
                lines.append((*line, _star_layer(node.module)[len(module) :].removeprefix(".")))
            elif self._own_modules[owner].has_forward:
                # A line of a method may call several torch modules. Their paths relative to the
                # module of the method distinguish them.
                lines.append((*line, _relative_path(_star_layer(node.module), owner)))
            else:  # The name identifies a class without `forward`, such as a `Sequential`.
                lines.append(
                    ("class", self._own_modules[owner].name, 0, _relative_path(node.module, owner))
                )
        return tuple(dict.fromkeys(lines)) or self._removed_nodes(finding)

    def _expression(self, finding: Finding, lines: Sequence[Hashable]) -> tuple[Hashable, Hashable]:
        """Return the columns and the constants of the edit's primary op.

        They distinguish several calls of an op on one line. Only the primary op counts, because how
        many other nodes belong to an edit depends on the code around the line. If the edit is
        identified by a class, columns are left out: they belong to the call of the module, not to
        the op.

        Args:
            finding: the edit.
            lines: see `_lines`.
        """
        for change in ops_of(without_derived(finding.changes)):
            old, new = self.origins.of(change)
            if change.after is None or new is None:
                continue
            constants = [fixed_constants(new.flat, new.number)]
            if old is not None and old.flat.nodes[old.number].op == change.after.op:
                constants.append(fixed_constants(old.flat, old.number))
            source = change.after.source
            is_class = bool(lines) and isinstance(lines[0], tuple) and lines[0][0] == "class"
            return () if source is None or is_class else source.columns, tuple(constants)
        return (), ()

    def _calls_modules(self, line: tuple[str, int], node: Node) -> bool:
        """Return True if a line also runs ops in a module around the node's module.

        The line then belongs to a method of that outer module.
        """
        return any(
            path != node.module and (not path or holds(path, node.module))
            for path in self._paths_of_lines.get(line, ())
        )

    def _removed_nodes(self, finding: Finding) -> Sequence[Hashable]:
        """Return the removed nodes of an edit by class and name; empty if a class is unknown."""
        removed = []
        for change in ops_of(without_derived(finding.changes)):
            node = change.before
            owner = None if node is None else self._owner_of(node.module)
            if node is None or owner is None:
                return ()
            removed.append(
                ("gone", self._own_modules[owner].name, node.name.removeprefix(owner).lstrip("./"))
            )
        return tuple(sorted(removed))

    def _owner_of(self, path: str) -> str | None:
        """Return the innermost module around a path with a class outside torch, or `None`.

        The line of a method belongs to this module.
        """
        while path not in self._own_modules:
            if not path:
                return None
            path = path.rpartition(".")[0]
        return path

    @cached_property
    def _own_modules(self) -> Mapping[str, OwnModule]:
        return {path: module for graph in self.after for path, module in graph.own_modules.items()}

    @cached_property
    def _paths_of_lines(self) -> Mapping[tuple[str, int], set[str]]:
        """Maps each line of code to the modules of its ops."""
        modules: dict[tuple[str, int], set[str]] = {}
        for call in calls(self.after):
            node = call.node
            if node.source is not None:
                line = node.source.file, node.source.line
                modules.setdefault(line, set()).add(node.module)
        return modules


def _star_layer(path: str) -> str:
    """Return a path with `*` in place of its first number, which is the number of a layer."""
    parts = path.split(".")
    for k, part in enumerate(parts):
        if is_index(part):
            return ".".join([*parts[:k], "*", *parts[k + 1 :]])
    return path


def _relative_path(path: str, outer: str) -> str:
    """Return the path of a module relative to an enclosing module."""
    return ".".join(path.split(".")[len(outer.split(".")) if outer else 0 :])


def where_token(places: Iterable[Place], op: str) -> str:
    """Return a token for an edit from its old nodes; "" if a place has no old node.

    The names of added nodes are not used, because they say too little.

    Args:
        places: the places of the edit.
        op: the edit's `Identity.op`.
    """
    nodes = [place.changes[0].before for place in places]
    if None in nodes:
        return ""
    return digest("where", tuple(sorted({node.name for node in nodes if node})), op)


def _numbers_after_layer(path: str) -> tuple[str, ...]:
    """Return the numbers in a path after the first, which is the number of a layer."""
    return tuple(part for part in path.split(".") if is_index(part))[1:]


def ops_of_edit(finding: Finding) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Return the removed and the added ops. Each op is listed once: its number depends on sizes.

    Ops that were both removed and added are left out, unless there are no others.
    """
    removed: set[str] = set()
    added: set[str] = set()
    for change in ops_of(without_derived(finding.changes)):
        before, after = change.before, change.after
        if before is not None and after is not None and before.op == after.op:
            continue
        if before is not None:
            removed.add(before.op)
        if after is not None:
            added.add(after.op)
    if removed != added:  # The ops on both sides only moved within the edit.
        removed, added = removed - added, added - removed
    return tuple(sorted(removed)), tuple(sorted(added))


def setting_of(finding: Finding, origins: Origins) -> tuple[Hashable, ...]:
    """Return the changed result, the op, and the changed numbers, flags and dtypes of an edit.

    If anything else changed in a place of the edit, return ().

    The same change of the same argument is one setting, such as the `eps` of all norms, whichever
    lines of code the calls are on.
    """
    settings = {_changed_setting(place, origins) for place in finding.places if not finding.summary}
    return settings.pop() if len(settings) == 1 else ()


def _changed_setting(place: Place, origins: Origins) -> tuple[Hashable, ...]:
    """Return the changed setting of one place; see `setting_of`."""
    # Whatever else changed in the place, a `getitem` or an input too, would be printed nowhere.
    change = place.changes[0]
    before, after = origins.of(change) if len(place.changes) == 1 else (None, None)
    if before is None or after is None or not take_same_operands(before, after, ()):
        return ()
    nodes = [side.flat.nodes[side.number] for side in (before, after)]
    facts = [
        (node.op, node.target, node.options, [effect.kind for effect in node.effects])
        for node in nodes
    ]
    if facts[0] != facts[1] or not nodes[0].is_call:
        return ()
    old, new = ({**dict(enumerate(node.args)), **node.kwargs} for node in nodes)
    differing: list[Hashable] = []
    for name in {**old, **new}:
        x, y = (_without_refs(side.get(name)) for side in (old, new))
        if repr(x) != repr(y):
            # Sequences are mostly shapes, which are no settings.
            is_value = not any(isinstance(side, tuple | Mapping | slice) for side in (x, y))
            if name not in old or name not in new or not is_value:
                return ()
            differing.append((name, repr(x), repr(y)))
    results = [result_form(side.flat, side.number, change) for side in (before, after)]
    return (tuple(results), nodes[1].op, *differing) if differing else ()


def _without_refs(value: Arg) -> Arg:
    return map_arg(value, lambda leaf: None if isinstance(leaf, Ref) else leaf)


def _functional_op(op: str) -> str:
    """Return an op name without the suffixes of functionalization.

    `fill_` becomes `fill`, and `lift_fresh_copy` becomes `lift_fresh`, so that the graphs of all
    capture mechanisms agree.
    """
    packet, dot, overload = op.removeprefix(ATEN).partition(".")
    if not op.startswith(ATEN):
        return op
    packet = packet.removesuffix("_")
    if packet not in COPIES:
        packet = packet.removesuffix("_copy")
    return f"{ATEN}{packet}{dot}{overload}"
