"""Find the changes of the backward that follow from the edits of a forward."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Sequence
from dataclasses import replace
from functools import cached_property

from .correspondence import Correspondence
from .findings import Change, Finding, nodes_of_changes
from .origins import Origins
from .paths import path_of
from .rules import CONNECTED, IN_MODULE, NEAREST, OF_OPERAND, OF_OPERANDS, VALUE

OWN_VALUE = 4.0
"""Score of a change that produces or uses a value of an edit."""
SAME_MODULE = 3.0
"""Score of a change in a module of an edit."""
SURE = 2.0
"""Minimum score to attribute a change regardless of the other changes of its finding.

A change with a lower score goes with the strongest change of its finding."""
TAKEN_BY_SEVERAL = 1.5
"""Score of a change that produces or uses an operand of several edits."""
RULE_OF_SCORE = {
    OWN_VALUE: VALUE,
    SAME_MODULE: IN_MODULE,
    SURE: OF_OPERAND,
    TAKEN_BY_SEVERAL: OF_OPERANDS,
}


def with_consequences(
    findings: Sequence[Finding], backward: Iterable[Finding], origins: Origins
) -> list[Finding]:
    """Return the forward findings, each with the backward changes that follow from it.

    A backward that takes other values is a finding of its own, because no edit has this effect.

    A backward change is attributed to an edit by the first criterion that holds:

    - The change produces or uses a value that the edit changed.
    - It is in a module of the edit.
    - The first of its values that is an operand of any edit is an operand of this edit only.

    If no criterion holds, the change goes with the strongest change of its finding. If that change
    meets no criterion either, it is attributed to the first of several edits with a common operand,
    or to an edit in a module nearby.

    Args:
        findings: the findings of the forward, one place each, at least one.
        backward: the findings of the backward, one place each.
        origins: the origins of the changes.
    """
    reach = _ForwardReach(findings, origins)
    follows: list[list[Change]] = [[] for _ in findings]
    others: list[Finding] = []
    whole = {id(graph) for pair in origins.pairs for graph in pair}
    for finding in backward:
        # The order of a body's inputs is that of its call.
        if all(
            c.kind == "rewired"
            and c.node.kind == "placeholder"
            and not whole.isdisjoint(map(id, c.within))
            for c in finding.changes
        ):
            others.append(finding)
            continue
        changes = (*finding.changes, *finding.consequences)
        scored = [reach.best_edit(change) for change in changes]
        best_overall = max(scored, key=lambda item: (item[0], -item[1]))
        for change, own in zip(changes, scored, strict=True):
            is_own = own[0] >= SURE or own == best_overall
            score, best = own if is_own else best_overall
            rule = RULE_OF_SCORE.get(score, NEAREST) if is_own else CONNECTED
            origins.because(rule, (change,), findings[best].changes[0])
            follows[best].append(change)
    extended: list[Finding] = []
    for finding, following in zip(findings, follows, strict=True):
        place = replace(finding.places[0], consequences=(*finding.consequences, *following))
        extended.append(replace(finding, places=(place,)))
    return extended + others


class _ForwardReach:
    """The values and modules touched by forward findings, to attribute backward changes.

    Args:
        findings: the findings of the forward, one place each.
        origins: the origins of their changes.

    Attributes:
        own_values: for each node of an edit or of its consequences, by name, the first such edit.
            Edits are numbers of findings.
        modules: for each innermost module path, the first edit in the module.
        operands: for each operand of an edit, by name, the score and the first such edit.
        edits_inside: position and number of the edits inside each module, sorted.
        matchings: pairs of graphs with an edit, numbered in order, by `id` of the matching.
    """

    def __init__(self, findings: Sequence[Finding], origins: Origins):
        self.own_values: dict[str, int] = {}
        self.modules: dict[str, int] = {}
        self.operands: dict[str, tuple[float, int]] = {}
        self.edits_inside: dict[str, list[tuple[float, int]]] = {"": []}
        self.matchings: dict[int, tuple[int, Correspondence]] = {}
        for k, finding in enumerate(findings):
            start = (self._position_of(finding.changes[0], origins), k)
            inside = {""}
            for node in nodes_of_changes((*finding.changes, *finding.consequences)):
                self.own_values.setdefault(node.name, k)
                for name in node.refs:
                    is_only_edit = self.operands.setdefault(name, (SURE, k))[1] == k
                    if not is_only_edit:
                        # An operand of several edits says little about the cause of a change, so
                        # the strongest change of the finding decides (see `SURE`).
                        self.operands[name] = TAKEN_BY_SEVERAL, self.operands[name][1]
                path = path_of(node)
                if path:
                    self.modules.setdefault(path, k)
                while path and path not in inside:
                    inside.add(path)
                    path = path.rpartition(".")[0]
            for path in inside:
                self.edits_inside.setdefault(path, []).append(start)
        for starts in self.edits_inside.values():
            starts.sort()

    def _position_of(self, change: Change, origins: Origins) -> float:
        """Return the number of a change's pair of graphs, plus the share of nodes before it."""
        node = next(origins.nodes(change), None)
        if node is None:
            return 0.0
        # Without the number of the pair, shares of nodes would mix the edits of several graphs.
        numbered = len(self.matchings), node.matching
        number, _ = self.matchings.setdefault(id(node.matching), numbered)
        return number + origins.position(change)

    def best_edit(self, change: Change) -> tuple[float, int]:
        """Return the score and the number of the edit that a change most likely follows from.

        Of the change's values that are operands of edits, only the first counts, even if several
        edits use the first and only one edit uses a later one.
        """
        nodes = nodes_of_changes((change,))
        # The strongest criterion comes first. Only the order of the scores matters, and which of
        # them reach `SURE`.
        names = [name for node in nodes for name in (node.name, *node.refs)]
        for name in names:
            if name in self.own_values:
                return OWN_VALUE, self.own_values[name]
        for node in nodes:
            if node.module in self.modules:
                return SAME_MODULE, self.modules[node.module]
        for name in names:
            if name in self.operands:
                return self.operands[name]
        path = nodes[-1].module
        while path not in self.edits_inside:
            path = path.rpartition(".")[0]
        # Part of the module's path that it has in common with an edit: 0 at the top level, below 1.
        share = (path.count(".") + 1) / (nodes[-1].module.count(".") + 2) if path else 0.0
        return share, self._nearest_edit(nodes[-1].module, self.edits_inside[path])

    def _nearest_edit(self, module: str, edits: Sequence[tuple[float, int]]) -> int:
        """Return the edit nearest to a module of the forward."""
        # The first edit would be wrong: with a new tanh at the end of each of twelve layers, the
        # backward of the pooler was listed under layer 0 instead of layer 11.
        position = self.positions.get(module, 0.0)
        k = bisect_left(edits, (position, 0))
        return min(edits[max(0, k - 1) : k + 1], key=lambda edit: abs(edit[0] - position))[1]

    @cached_property
    def positions(self) -> dict[str, float]:
        """Start positions of the modules of the forward, as in `_position_of`."""
        positions: dict[str, float] = {}
        for number, matching in self.matchings.values():
            for flat in (matching.a, matching.b):
                for i, node in enumerate(flat.nodes):
                    positions.setdefault(node.module, number + i / len(flat.nodes))
        return positions
