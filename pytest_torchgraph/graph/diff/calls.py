"""The calls of a shared module or function: an edit of it is one edit wherever it is called.

Within one module path, or one line of the user's code, a call has no name of its own. So nodes of
the call are known by their place in the flow of values: two nodes have the same place where all
that they depend on within the module, and all that depends on them there, is equal.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable, Iterable, Mapping

from ..equality.numbered_graph import NumberedGraph
from .findings import Change, Finding, ops_of
from .keys import call_form, result_form, without_derived
from .origins import Key, Occurrence, Origins
from .paths import holds

METHODS = ("forward", "__call__", "<module>", "<lambda>")
"""Functions of which each class has its own: that an edit is on a line of one of these tells no
more than its module."""


OUTSIDE = ("outside",)
"""A value or a user outside of the call."""


class CallKeys:
    """The keys of findings that may be in calls of one module or function.

    Args:
        findings: one of each edit that is known so far; only what two of these have in common may
            be a shared module or line.
        origins: where their changes come from.
    """

    def __init__(self, findings: Iterable[Finding], origins: Origins):
        self.origins = origins
        findings = list(findings)
        self.modules = Counter(finding.module for finding in findings)
        self.lines = Counter(line for f in findings if (line := _lines(f)) is not None)
        self._colours: dict[tuple[int, str], dict[int, Hashable]] = {}
        self._ids: dict[Hashable, int] = {}

    def key(self, finding: Finding) -> Hashable:
        """What two findings in calls of one module or function have in common."""
        alone = ("alone", id(finding))
        if finding.summary or finding.of_graph or not self._is_certain(finding):
            return alone
        lines = _lines(finding)
        if lines is not None and self.lines[lines] > 1:
            return "line", lines, self._form(finding, None)
        if finding.module and self.modules[finding.module] > 1:
            return "module", finding.module, self._form(finding, finding.module)
        return alone

    def _is_certain(self, finding: Finding) -> bool:
        """Whether all that an edit takes from outside is what it took there before."""
        changes = without_derived(finding.changes)
        if not all(map(self.origins.knows, changes)):
            return False
        own = self.origins.own(changes)
        for change in changes:
            old, new = self.origins.of(change)
            if change.kind == "rewired":
                return False
            if old is None or new is None:
                continue
            for p, q in zip(
                old.flat.operands[old.number], new.flat.operands[new.number], strict=False
            ):
                kept = old.matching.forward[p] == q
                if not kept and old.at(p).key not in own and new.at(q).key not in own:
                    return False
        return True

    def _form(self, finding: Finding, module: str | None) -> Hashable:
        changes = without_derived(finding.changes)
        own = self.origins.own(changes)
        return tuple(self._change(change, module, own) for change in changes)

    def _change(self, change: Change, module: str | None, own: Mapping[Key, int]) -> Hashable:
        both = change.before is not None and change.after is not None
        return (
            change.kind,
            *(
                self._side(node, change if both else None, module, own)
                for node in self.origins.nodes(change)
            ),
        )

    def _side(
        self,
        node: Occurrence,
        change: Change | None,
        module: str | None,
        own: Mapping[Key, int],
    ) -> Hashable:
        flat, i = node.flat, node.number
        path = flat.nodes[i].module
        return (
            flat.graph.kind,
            call_form(flat, i, ()),
            path if module is not None else "",
            result_form(flat, i, change),
            tuple(self._value(node.at(p), module, own) for p in flat.operands[i][: flat.arity[i]]),
            self._uses(node, module, own),
        )

    def _uses(self, node: Occurrence, module: str | None, own: Mapping[Key, int]) -> Hashable:
        """The users of a node; those outside by their ops, where others use its operands there."""
        flat = node.flat
        uses = {
            (self._value(node.at(user), module, own), slot) for user, slot in flat.uses(node.number)
        }
        inside = [use for use in uses if use[0] != OUTSIDE]
        operands = flat.operands[node.number][: flat.arity[node.number]]
        taken = [
            node.at(p) for p in operands if self._value(node.at(p), module, own)[0] == "inside"
        ]
        some = any(
            self._value(node.at(user), module, own) == OUTSIDE
            for value in taken
            for user, _ in flat.uses(value.number)
        )
        ops = {
            (flat.nodes[user].op, slot)
            for user, slot in flat.uses(node.number)
            if self._value(node.at(user), module, own) == OUTSIDE
        }
        outside = [(OUTSIDE, *sorted(ops if some else ()))] if ops else []
        return tuple(sorted([*inside, *outside], key=repr))

    def _value(
        self, node: Occurrence, module: str | None, own: Mapping[Key, int]
    ) -> tuple[Hashable, ...]:
        if (number := own.get(node.key)) is not None:
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
        """For each node of a module its place in there, equal in all calls that are alike."""
        known = self._colours.get((id(flat), module))
        if known is None:
            inside = [i for i, n in enumerate(flat.nodes) if n.is_call and holds(module, n.module)]
            past: dict[int, int] = {}
            for i in inside:
                operands = flat.operands[i][: flat.arity[i]]
                form = (
                    flat.nodes[i].module,
                    flat.labels[i],
                    *(past.get(p, _from_outside(flat, p)) for p in operands),
                )
                past[i] = self._ids.setdefault(form, len(self._ids))
            future: dict[int, int] = {}
            for i in reversed(inside):
                users = sorted(
                    (future[u], slot) if u in future else (-1, 0) for u, slot in flat.users[i]
                )
                form = (flat.nodes[i].module, flat.labels[i], "future", *users)
                future[i] = self._ids.setdefault(form, len(self._ids))
            known = self._colours[id(flat), module] = {i: (past[i], future[i]) for i in inside}
        return known


def _from_outside(flat: NumberedGraph, i: int) -> Hashable:
    node = flat.nodes[i]
    return node.name if node.op in ("parameter", "buffer") else "outside"


def _lines(finding: Finding) -> Hashable | None:
    """The lines of the user's code that an edit is on; None where these are not all known.

    Lines of a method say no more than the module that it belongs to.
    """
    lines = []
    for change in ops_of(finding.changes):
        source = change.node.source
        if source is None:
            return None
        path = change.node.module if source.function.rpartition(".")[2] in METHODS else ""
        lines.append((source.file, source.line, path))
    return tuple(lines) or None
