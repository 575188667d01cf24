"""Find the changes of the backward that follow from the edits of a forward."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import replace
from functools import cached_property
from typing import NamedTuple

from ..model import Node
from .findings import Change, Finding, ops_of, sides_of
from .origins import Origins
from .paths import path_of
from .rules import CONNECTED, IN_MODULE, NEAREST, OF_OP, OF_OPERAND, OF_OPERANDS, ON_LINE, VALUE

OWN_VALUE = 4.0
"""Score of a change that produces or uses a value of an edit."""
SAME_LINE = 3.5
"""Score of a change in a module of an edit, and on a line of this edit only."""
SAME_OP = 3.25
"""Score of a change in a module of several edits, with the op of one, as `elu_backward` has."""
SAME_MODULE = 3.0
"""Score of a change in a module of an edit."""
IN_MODULE_OF_SEVERAL = 1.75
"""Score of a change in a module of several edits."""
SURE = 2.0
"""Minimum score to attribute a change regardless of the other changes of its finding.

A change with a lower score goes with the strongest change of its finding."""
TAKEN_BY_SEVERAL = 1.5
"""Score of a change that produces or uses an operand of several edits."""
RULE_OF_SCORE = {
    OWN_VALUE: VALUE,
    SAME_LINE: ON_LINE,
    SAME_OP: OF_OP,
    SAME_MODULE: IN_MODULE,
    SURE: OF_OPERAND,
    IN_MODULE_OF_SEVERAL: IN_MODULE,
    TAKEN_BY_SEVERAL: OF_OPERANDS,
}
"""The rule that gives each score. Any other score is a share of a module path: `NEAREST`."""


def with_consequences(
    findings: Sequence[Finding], backward: Iterable[Finding], origins: Origins
) -> list[Finding]:
    """Return the forward findings, each with the backward changes that follow from it.

    A backward that takes its inputs in another order is a finding of its own, because no edit of
    the forward has this effect. So is one that lost ops which relate to no edit, as after a
    `detach`; see `_unrelated`.

    A backward change is attributed to an edit by the first criterion that holds:

    - The change produces or uses a value that the edit changed.
    - It is in a module of this edit only, or in one of several edits and on a line of this only.
    - It is in a module of several edits, and its op is the gradient of an op of this edit only.
    - The first of its values that is an operand of any edit is an operand of this edit only.

    If no criterion holds, the change goes with the strongest change of its finding. If that change
    meets no criterion either, it is attributed to the first of several edits with a common operand,
    or to an edit in a module nearby.

    Args:
        findings: the findings of the forward, one place each, at least one.
        backward: the findings of the backward, one place each.
        origins: the origins of the changes.
    """
    backward = [*backward]
    reach = _ForwardReach(findings, origins)
    # A forward that only saves more is no longer recomputed. An edit without any backward may have
    # cut off itself what reads its result.
    may_lose = reach.has_ops or not any(map(_saves_more, backward))
    changes = (change for finding in backward for change in _changes_of(finding))
    related = {id(change): change for change in changes if reach.best_edit(change).score}
    may_lose &= {change.kind for change in ops_of(related.values())} != {"removed"}
    follows: list[list[Change]] = [[] for _ in findings]
    others: list[Finding] = []
    apart: list[Finding] = []
    whole = {id(graph) for pair in origins.pairs for graph in pair}
    for finding in backward:
        # Inputs of a body do not count, because their order is that of the operands of its call.
        if all(
            c.kind == "rewired"
            and c.node.kind == "placeholder"
            and not whole.isdisjoint(map(id, c.within))
            for c in finding.changes
        ):
            others.append(finding)
        else:
            if may_lose and (lost := _unrelated(finding, related)):
                apart.append(_only(finding, lost))
                gone = {*map(id, lost)}
                finding = _only(finding, [c for c in _changes_of(finding) if id(c) not in gone])
            for edit, change in _attribute(finding, reach, origins):
                follows[edit].append(change)
    extended: list[Finding] = []
    for finding, following in zip(findings, follows, strict=True):
        place = replace(finding.places[0], consequences=(*finding.consequences, *following))
        extended.append(replace(finding, places=(place,)))
    if apart and not reach.has_ops:
        # What the backward lost says more than that the forward saves less for it.
        place = apart[0].places[0]
        following = [change for finding in extended for change in finding.consequences]
        place = replace(place, consequences=(*place.consequences, *following))
        extended = [replace(apart.pop(0), places=(place,))]
    return extended + apart + others


def _changes_of(finding: Finding) -> list[Change]:
    """Return the changes and the consequences of a finding of one place."""
    return [*finding.changes, *finding.consequences]


def _only(finding: Finding, changes: Sequence[Change]) -> Finding:
    """Return a finding of one place with some of its changes."""
    primary = {*map(id, finding.changes)}
    own = tuple(change for change in changes if id(change) in primary)
    others = tuple(change for change in changes if id(change) not in primary)
    place = replace(finding.places[0], changes=own or others, consequences=others if own else ())
    return replace(finding, places=(place,))


def _unrelated(finding: Finding, related: Collection[int]) -> list[Change]:
    """Return what a backward lost although it relates to no edit and reads nothing that does.

    The backward of an edit comes after the backward of what reads its result. So if an op of that
    is gone, another edit cut it off, such as a `detach`. [] if there is no such op.

    Args:
        finding: the finding of the backward.
        related: the changes that relate to an edit, by `id`.
    """
    changes = _changes_of(finding)
    own = (change for change in changes if id(change) in related)
    names = {node.name for change in own for _, node in sides_of(change)}
    size = -1
    while len(names) > size:
        size = len(names)
        names |= {c.node.name for c in changes if not names.isdisjoint(c.node.refs)}
    lost = [c for c in changes if c.kind == "removed" and c.node.name not in names]
    return (lost if names else changes) if ops_of(lost) else []


def _saves_more(finding: Finding) -> bool:
    """Return True if a backward takes a value that was not saved."""
    return any(c.kind == "added" and c.node.op == "saved" for c in _changes_of(finding))


def _attribute(
    finding: Finding, reach: _ForwardReach, origins: Origins
) -> Iterator[tuple[int, Change]]:
    """Yield each change of a backward finding, after the number of the edit that it follows from.

    Args:
        finding: the finding of the backward.
        reach: the edits of the forward.
        origins: receives the reasons.
    """
    changes = _changes_of(finding)
    if not changes:
        return
    scored = [reach.best_edit(change) for change in changes]
    strongest = max(scored, key=lambda item: (item.score, -item.edit))
    causes = [own if own.score >= SURE else strongest for own in scored]
    # The change of each node that follows, by the edit, the side and the name.
    produced = {
        (cause.edit, side, node.name): change
        for change, cause in zip(changes, causes, strict=True)
        for side, node in sides_of(change)
    }
    for change, own, best in zip(changes, scored, causes, strict=True):
        # The rule is that of the change's own cause, unless the strongest change decided.
        is_own = own[:2] == best[:2]  # score and edit
        rule = RULE_OF_SCORE.get(best.score, NEAREST) if is_own else CONNECTED
        other, operand = best.change, best.operand if is_own else ""
        # That an op reads another one that follows says more than that both are in a module.
        if rule not in (VALUE, ON_LINE, OF_OP):
            ends = sides_of(change)
            taken = ((best.edit, side, name) for side, node in ends for name in node.refs)
            if (key := next(filter(produced.__contains__, taken), None)) is not None:
                rule, other, operand = CONNECTED, produced[key], ""
        origins.because(rule, (change,), other, operand)
        yield best.edit, change


class _Cause(NamedTuple):
    """What a change of the backward may follow from.

    Attributes:
        score: how sure that is.
        edit: the number of the edit.
        change: a change of the edit.
        operand: name of the operand that both take; "" if that is not the reason.
    """

    score: float
    edit: int
    change: Change
    operand: str = ""


class _ForwardReach:
    """The values and modules touched by forward findings, to attribute backward changes.

    Args:
        findings: the findings of the forward, one place each.
        origins: the origins of their changes.

    Attributes:
        own_values: for each node of an edit or of its consequences, by side and name, the first
            such edit. Edits are numbers of findings.
        modules: for each innermost module path, the edits there, each with its first change.
        lines: the same for each innermost module path, file and line.
        operands: for each operand of an edit, by name, the first such edit.
        ops: for each edit, its changes by the name of their op.
        edits_inside: position and number of the edits inside each module.
    """

    def __init__(self, findings: Sequence[Finding], origins: Origins):
        self.findings = findings
        self._matchings = origins.matchings
        self._numbers = {id(matching): k for k, matching in enumerate(origins.matchings)}
        self.own_values: dict[tuple[int, str], _Cause] = {}
        self.modules: dict[str, dict[int, Change]] = {}
        self.lines: dict[tuple[str, str, int] | None, dict[int, Change]] = {}
        self.operands: dict[str, _Cause] = {}
        self.ops: list[dict[str, Change]] = [{} for _ in findings]
        self.edits_inside: dict[str, list[tuple[float, int]]] = {"": []}
        for k, finding in enumerate(findings):
            # Without the number of the pair, shares of nodes would mix the edits of several graphs.
            first = next(origins.nodes(finding.changes[0]), None)
            number = 0 if first is None else self._numbers[id(first.matching)]
            start = number + (0 if first is None else origins.position(finding.changes[0])), k
            inside = {""}
            changes = (*finding.changes, *finding.consequences)
            ends = ((change, *end) for change in changes for end in sides_of(change))
            for change, side, node in ends:
                self.ops[k].setdefault(_name_of_op(node), change)
                self.own_values.setdefault((side, node.name), _Cause(OWN_VALUE, k, change))
                for name in node.refs:
                    known = self.operands.setdefault(name, _Cause(SURE, k, change))
                    if known.edit != k:
                        # An operand of several edits says little about the cause of a change, so
                        # the strongest change of the finding decides (see `SURE`).
                        self.operands[name] = known._replace(score=TAKEN_BY_SEVERAL)
                path = path_of(node)
                if path:
                    self.modules.setdefault(path, {}).setdefault(k, change)
                if node.source is not None:
                    line = path, node.source.file, node.source.line
                    self.lines.setdefault(line, {}).setdefault(k, change)
                while path and path not in inside:
                    inside.add(path)
                    path = path.rpartition(".")[0]
            for path in inside:
                self.edits_inside.setdefault(path, []).append(start)

    def best_edit(self, change: Change) -> _Cause:
        """Return the edit that a change most likely follows from.

        Of the change's values that are operands of edits, only the first counts, even if several
        edits use the first and only one edit uses a later one.
        """
        nodes = sides_of(change)
        # The strongest criterion comes first. Only the order of the scores matters, and which of
        # them reach `SURE`.
        names = [(side, name) for side, node in nodes for name in (node.name, *node.refs)]
        for value in names:
            if value in self.own_values:
                return self.own_values[value]
        inside: dict[int, Change] = {}  # the edits in the innermost module of the change
        for _, node in nodes:
            edits = self.modules.get(node.module, {})
            source, score = node.source, SAME_MODULE
            line = None if source is None else (node.module, source.file, source.line)
            if line in self.lines:
                edits, score = self.lines[line], SAME_LINE
            if len(edits) == 1:
                return _Cause(score, *next(iter(edits.items())))
            inside = inside or edits
        op = _name_of_op(change.node)
        of_op = [(number, self.ops[number][op]) for number in inside if op in self.ops[number]]
        if len(of_op) == 1:
            return _Cause(SAME_OP, *of_op[0])
        for _, name in names:
            cause = self.operands.get(name)
            if cause is not None and (cause.edit in inside or not inside):
                return cause._replace(operand=name)
        for number, other in inside.items():
            return _Cause(IN_MODULE_OF_SEVERAL, number, other)
        module = change.node.module
        path = module
        while path not in self.edits_inside:
            path = path.rpartition(".")[0]
        # Part of the module's path that it has in common with an edit: 0 at the top level, below 1.
        share = (path.count(".") + 1) / (module.count(".") + 2) if path else 0.0
        # The first edit would be wrong: with a new tanh at the end of each of twelve layers, the
        # backward of the pooler was listed under layer 0 instead of layer 11.
        position = self.positions.get(module, 0.0)
        # Edits of the same kind come first: a lost residual removes a sum of gradients, and another
        # activation beside it removes no op.
        _, nearest = min(
            self.edits_inside[path],
            key=lambda edit: (
                self.findings[edit[1]].kind != change.kind,
                abs(edit[0] - position),
            ),
        )
        return _Cause(share, nearest, self.findings[nearest].changes[0])

    @property
    def has_ops(self) -> bool:
        """True if an op of the forward was edited, rather than only what it saves."""
        return any(name not in ("", "getitem") for names in self.ops for name in names)

    @cached_property
    def positions(self) -> dict[str, float]:
        """Start positions of the modules: the number of a pair, plus the share of nodes before."""
        positions: dict[str, float] = {}
        for number, matching in enumerate(self._matchings):
            for flat in matching.flats:
                for i, node in enumerate(flat.nodes):
                    positions.setdefault(node.module, number + i / len(flat.nodes))
        return positions


def _name_of_op(node: Node) -> str:
    """Return the name of an op without namespace and overload; for a gradient, that of its op.

    `aten.elu_backward.default` and `aten.elu.default` both become `elu`.
    """
    return "".join(node.op.split(".")[1:2]).removesuffix("_backward")
