"""The key of an edit in a module or function that is called several times.

Within one module path, or one line of the user's code, calls have no names of their own. So the
place in the data flow identifies the nodes of a call. Two nodes have the same place if their
dependencies within the module are equal, and if the nodes of the module that depend on them are
equal.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter
from collections.abc import Hashable, Iterable, Mapping

from ...words import grouped
from ..equality import NumberedGraph
from .findings import Change, Finding, ops_of
from .key_forms import call_form, result_form, without_derived
from .origins import Key, Occurrence, Origins, take_same_operands

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
        self._calls: dict[int, tuple[dict[str, list[int]], list[str]]] = {}

    def key(self, finding: Finding) -> Hashable:
        """Return a key that is equal for one edit in several calls of a module or function."""
        unique_key = ("alone", id(finding))
        if finding.summary or not self._is_certain(finding):
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
            if old is not None and new is not None and not take_same_operands(old, new, edit_nodes):
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
                for p in flat.operands[i][: flat.arity[i] + len(flat.nodes[i].after)]
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
            module_nodes = self._calls_in(flat, module)
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

    def _calls_in(self, flat: NumberedGraph, module: str) -> list[int]:
        """Return the numbers of the calls in a module, in order."""
        if id(flat) not in self._calls:
            by_path = grouped((node.module, i) for i, node in enumerate(flat.nodes) if node.is_call)
            self._calls[id(flat)] = by_path, sorted(by_path)
        by_path, paths = self._calls[id(flat)]
        # The paths inside begin with the module and a dot or a slash, which precede 0.
        start, end = bisect_left(paths, f"{module}."), bisect_left(paths, f"{module}0")
        return sorted(i for path in (module, *paths[start:end]) for i in by_path.get(path, ()))


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
