"""Costs of edits: attribute the cost difference of two captures to the findings that cause it.

Every difference is attributed to some finding, so the costs of the findings sum up to the cost
difference of the captures. If several findings may be the cause, none of them gets a figure.

`FindingIndex` maps nodes and pairs of graphs to findings; FLOPs are in `flop_costs`.
"""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import cached_property, partial

from ...ops.matching import FLOP_LEVELS, SAVING_LEVELS, Level
from ..cost import (
    Cost,
    changed_recomputation,
    find_base,
    owners_of_saved,
    recomputed_nodes,
    storage_bytes_if_known,
    with_savers,
)
from ..equality import reachable, runs_differ
from ..higher_order import SAVING_STATE, executed
from ..model import Graph, Node, Ref, is_projection
from .correspondence import Correspondence
from .findings import MODEL, Finding, Recomputations, nodes_of_changes, ops_of
from .origins import Origins, Pair
from .paths import abridged, instances_of

SAVED_DIFFER = "different values are saved for the backward"
"""Part of the summary of a forward that only saves other values."""
Side = tuple[bool, int]
"""A node of a matching: True for the new graph, and the node's number."""


class FindingIndex:
    """The findings of one difference, by node and by pair of graphs.

    Args:
        findings: all findings; other classes refer to them by number.
        origins: the origins of the changes.

    Attributes:
        count: number of findings.
        pairs: the compared graphs.
        matchings: the matchings of differing graphs and bodies.
        levels: for each finding, the levels of its graphs.
    """

    def __init__(self, findings: Sequence[Finding], origins: Origins):
        self.count = len(findings)
        self.pairs: Sequence[Pair] = origins.pairs
        self.matchings: Sequence[Correspondence] = origins.matchings
        self.levels: list[set[Level]] = [set() for _ in findings]
        self._by_graphs = {(id(m.a.graph), id(m.b.graph)): m for m in origins.matchings}
        self._nodes: dict[int, dict[Side, int]] = {id(m): {} for m in origins.matchings}
        self._graphs: dict[tuple[int, int], int] = {}
        ends = {(id(m.a.nodes[-1]), id(m.b.nodes[-1])): m for m in origins.matchings}
        for number, finding in enumerate(findings):
            for place in finding.places:
                for change in (*place.changes, *place.consequences):
                    key = id(change.before), id(change.after)
                    occurrences = [*origins.nodes(change)]
                    for node in occurrences:
                        self._add(number, node.matching, (node.is_new, node.number))
                    if finding.of_graph or (not occurrences and id(None) in key):
                        self._graphs[key] = number
                    elif not occurrences and (matching := ends.get(key)) is not None:
                        self._add(number, matching, (False, len(matching.a.nodes) - 1))
        for pair in self.pairs:
            for number in self.of_graphs(pair):
                self.levels[number] |= {graph.level for graph in pair if graph is not None}

    def _add(self, number: int, matching: Correspondence, node: Side) -> None:
        self._nodes[id(matching)][node] = number
        self.levels[number] |= {matching.a.graph.level, matching.b.graph.level}

    def matching(self, old: Graph, new: Graph) -> Correspondence | None:
        """Return the matching of two graphs, or two bodies; `None` if they are equal."""
        return self._by_graphs.get((id(old), id(new)))

    def of_graphs(self, pair: Pair) -> set[int]:
        """Return the finding about a whole graph (added, removed or run count), as a set."""
        old, new = (None if graph is None else graph.nodes[-1] for graph in pair)
        number = self._graphs.get((id(old), id(new)))
        return set() if number is None else {number}

    def nodes(self, matching: Correspondence) -> Collection[Side]:
        """Return the nodes of a matching that are in some finding."""
        return self._nodes[id(matching)].keys()

    def within(self, matching: Correspondence) -> set[int]:
        """Return the findings that contain a node of a matching."""
        return set(self._nodes[id(matching)].values())

    def of_node(self, matching: Correspondence, node: Side) -> set[int]:
        """Return the findings that contain a node or its partner. There is rarely more than one."""
        nodes = self._nodes[id(matching)]
        is_new, number = node
        partner = (matching.backward if is_new else matching.forward)[number]
        node_and_partner = (node, (not is_new, partner))
        return {nodes[candidate] for candidate in node_and_partner if candidate in nodes}

    def of_nodes(self, matching: Correspondence, nodes: Iterable[Side]) -> set[int]:
        """Return the findings that contain any of the nodes, or their partners."""
        numbers: set[int] = set()
        for node in nodes:
            numbers |= self.of_node(matching, node)
        return numbers


class Ledger:
    """One figure of each finding.

    Attributes:
        figures: one figure for each finding, by number; `None` if unknown.
    """

    def __init__(self, count: int):
        self.figures: list[int | None] = [0] * count

    def add(self, findings: Collection[int], amount: int | None, times: int) -> None:
        """Attribute an amount to the finding that causes it.

        Args:
            findings: the candidates; empty if any finding may be the cause. Unless there is exactly
                one candidate, the figures of all candidates become `None`.
            amount: the amount; `None` if unknown.
            times: how often it counts; negative for an amount that only the old graphs have.
        """
        if amount == 0:
            return
        for number in findings or range(len(self.figures)):
            figure = self.figures[number]
            unknown = amount is None or figure is None or len(findings) != 1
            self.figures[number] = None if unknown else figure + amount * times  # type: ignore[operator]

    def add_pairs(
        self,
        index: FindingIndex,
        pairs: Iterable[Pair],
        amounts_of: Callable[[Graph], Iterable[int | None]],
        add_matching: Callable[[Correspondence, int], None],
    ) -> None:
        """Attribute the amounts of pairs of graphs.

        Args:
            index: the findings.
            pairs: the pairs.
            amounts_of: returns the amounts of one run of a whole graph. They count if a graph was
                added or removed, and if its run count changed.
            add_matching: attributes the differences of two graphs, given their run count.
        """
        for old, new in pairs:
            if old is None or new is None:
                whole = [(g, g.runs * (-1 if new is None else 1)) for g in (old, new) if g]
            else:
                if (matching := index.matching(old, new)) is not None:
                    add_matching(matching, new.runs)
                whole = [(old, new.runs - old.runs)] if runs_differ(old, new) else []
            for graph, times in whole:
                for amount in amounts_of(graph):
                    self.add(index.of_graphs((old, new)), amount, times)


def name_checkpoints(
    findings: list[Finding], before: Sequence[Graph], after: Sequence[Graph]
) -> list[Finding]:
    """Merge the findings of added or removed checkpoints, and name the recomputed modules."""
    merged = [finding for finding in findings if _is_checkpoint(finding)]
    old, new = (recomputed_nodes(graphs) if merged else [] for graphs in (before, after))
    parts = []
    for words, nodes, others in (("recomputed", new, old), ("no longer recomputed", old, new)):
        known = {node.module for node in others}
        # A file does not record why an op is recomputed.
        own = [n for n in nodes if n.by in ("checkpoint", "") and n.module not in known]
        lines = {f" at {n.source.checkpoint}" for n in own if n.source and n.source.checkpoint}
        if own:
            paths = abridged((*instances_of(n.module), n.module or MODEL)[0] for n in own)
            by = f" (checkpoint{', '.join(sorted(lines))})" if own[0].by else ""
            parts.append(f"{words} in {paths}{by}")
    if not parts:
        return findings
    places = tuple(place for finding in merged for place in finding.places)
    named = replace(merged[0], places=places, summary="; ".join(parts))
    return [named, *(finding for finding in findings if finding not in merged)]


def _is_checkpoint(finding: Finding) -> bool:
    """Return True if only the saved values differ, or a random op also saves the random state."""
    nodes = nodes_of_changes(ops_of(finding.changes))
    saves_state = any(node.op == SAVING_STATE for node in nodes)
    is_one_op = len({executed(node).op for node in nodes}) == 1
    return SAVED_DIFFER in finding.summary or (saves_state and is_one_op)


def attach_costs(
    findings: Sequence[Finding], origins: Origins, before: Sequence[Graph], after: Sequence[Graph]
) -> list[Finding]:
    """Return the findings with their costs. The first access to any cost computes all costs.

    Args:
        findings: all findings of one difference.
        origins: the origins of their changes.
        before, after: the graphs.
    """
    costs = _LazyCosts(findings, origins, before, after)
    return [
        replace(
            finding,
            costs=partial(costs.of, number),
            recomputations=partial(costs.recomputed_by, number),
        )
        for number, finding in enumerate(findings)
    ]


class _LazyCosts:
    """The costs of all findings of one difference.

    Args:
        findings: the findings.
        origins: the origins of their changes; released after the costs are computed.
        before, after: the graphs; released as well.
    """

    def __init__(
        self,
        findings: Sequence[Finding],
        origins: Origins,
        before: Sequence[Graph],
        after: Sequence[Graph],
    ):
        self._pending: tuple[Sequence[Finding], Origins] | None = findings, origins
        self._graphs = before, after
        self._costs: list[Cost] = []
        self._recomputed: list[Recomputations] = []

    def of(self, number: int) -> Cost:
        self._compute()
        return self._costs[number]

    def recomputed_by(self, number: int) -> Recomputations:
        self._compute()
        return self._recomputed[number]

    def _compute(self) -> None:
        if self._pending is not None:
            self._costs = compute_costs(*self._pending)
            self._recomputed = _attribute_recomputations(self._pending[0], *self._graphs)
            self._pending, self._graphs = None, ((), ())


def _attribute_recomputations(
    findings: Sequence[Finding], before: Sequence[Graph], after: Sequence[Graph]
) -> list[Recomputations]:
    """Return the changed recomputations of each finding, by the ops that it changes.

    An op that no finding contains goes to the first finding. For example, an op may stay in the
    backward but no longer be a recomputation.
    """
    changed = changed_recomputation(with_savers(before), with_savers(after))
    by_finding: list[Recomputations] = []
    for finding in findings:
        places = finding.places if changed else ()
        ops = {
            executed(node).op
            for place in places
            for node in nodes_of_changes((*place.changes, *place.consequences))
        }
        by_finding.append(tuple((op, *counts) for op, counts in changed.items() if op in ops))
    unattributed = changed.keys() - {op for entries in by_finding for op, _, _ in entries}
    if unattributed and by_finding:
        by_finding[0] += tuple(
            (op, *counts) for op, counts in changed.items() if op in unattributed
        )
    return by_finding


def compute_costs(findings: Sequence[Finding], origins: Origins) -> list[Cost]:
    """Return the costs of findings, in order. FLOPs are `None` unless torch is loaded."""
    index = FindingIndex(findings, origins)
    saved = _SavedBytes(index).run()
    flops: list[int | None] = [None] * len(findings)
    if "torch" in sys.modules:
        from .flop_costs import flops_by_finding

        flops = flops_by_finding(index)
    return [
        Cost(
            flops[number] if levels and levels <= FLOP_LEVELS else None,
            saved[number] if levels and levels <= SAVING_LEVELS else None,
        )
        for number, levels in enumerate(index.levels)
    ]


class _SavedBytes:
    def __init__(self, index: FindingIndex):
        self.index = index
        self.ledger = Ledger(index.count)

    def run(self) -> list[int | None]:
        """Return the saved bytes of each finding, after minus before; `None` if unknown."""
        known = [
            pair
            for pair in self.index.pairs
            if all(graph is None or graph.level in SAVING_LEVELS for graph in pair)
        ]
        self.ledger.add_pairs(
            self.index,
            known,
            lambda graph: map(_bytes_if_known, owners_of_saved(graph)),
            self._add_matching,
        )
        return self.ledger.figures

    def _add_matching(self, matching: Correspondence, times: int) -> None:
        """Attribute the difference in saved bytes of a pair of graphs that runs `times` times."""
        a, b = matching.a, matching.b
        old, new = (
            {flat.index[node.name]: node for node in owners_of_saved(flat.graph)} for flat in (a, b)
        )
        for i, node in old.items():
            j = matching.forward[i]
            if j not in new:
                causes = self._find_storage_causes(matching, (False, i))
                self.ledger.add(causes, _bytes_if_known(node), -times)
            elif a.labels[i] != b.labels[j]:
                before, after = _bytes_if_known(node), _bytes_if_known(new[j])
                amount = None if before is None or after is None else after - before
                self.ledger.add(self._find_makers(matching, (False, i)), amount, times)
        for j, node in new.items():
            if matching.backward[j] not in old:
                causes = self._find_storage_causes(matching, (True, j))
                self.ledger.add(causes, _bytes_if_known(node), times)

    # -- causes ----------------------------------------------------------------------------------

    def _find_storage_causes(self, matching: Correspondence, owner: Side) -> set[int]:
        """Return the findings that may cause a storage to be saved on one side only.

        Args:
            matching: the matching of the two graphs.
            owner: the node that allocated the storage.

        Returns:
            Exactly one finding if the cause is known.
        """
        is_new, number = owner
        partner = (matching.backward if is_new else matching.forward)[number]
        makers = self._find_makers(matching, owner)
        if partner == -1 and len(makers) == 1:
            return makers
        sides = [owner] if partner == -1 else [owner, (not is_new, partner)]
        sharing = [
            (side, node) for side, start in sides for node in _find_sharing(matching, side, start)
        ]
        users = [user for side, node in sharing for user in _iter_users(matching, side, node)]
        causes = makers | self.index.of_nodes(matching, users)
        if len(causes) == 1:
            return causes
        later = set().union(*(self._find_backward_users(matching, *node) for node in sharing))
        # If several edits take a value, the value is saved because of the edit whose backward uses
        # it.
        return (causes & later if causes else later) or causes or self.index.within(matching)

    def _find_makers(self, matching: Correspondence, owner: Side) -> set[int]:
        """Return the findings of the op that allocated a storage."""
        is_new, number = owner
        flat = matching.b if is_new else matching.a
        makers = self.index.of_node(matching, owner)
        node = flat.nodes[number]
        if not makers and node.refs:
            producer = flat.index[node.refs[0]]
            if is_projection(node, flat.nodes[producer]):
                return self.index.of_node(matching, (is_new, producer))
        return makers

    def _find_backward_users(self, matching: Correspondence, is_new: bool, number: int) -> set[int]:
        """Return the findings of the backward ops that use a saved value."""
        flat = matching.b if is_new else matching.a
        users: set[int] = set()
        for other, input_number in self._saved_inputs.get((is_new, flat.nodes[number].name), ()):
            users |= self.index.of_nodes(other, _iter_users(other, is_new, input_number))
        return users

    @cached_property
    def _saved_inputs(self) -> Mapping[tuple[bool, str], Sequence[tuple[Correspondence, int]]]:
        """Inputs of changed backward graphs, by side and name.

        Names that several forwards save are left out, because the forward of such an input is
        unknown.
        """
        savers = Counter(
            (is_new, ref.name)
            for pair in self.index.pairs
            for is_new, graph in enumerate(pair)
            if graph is not None
            for ref in {*graph.saved}
        )
        inputs: dict[tuple[bool, str], list[tuple[Correspondence, int]]] = {}
        for matching in self.index.matchings:
            for is_new, flat in ((False, matching.a), (True, matching.b)):
                for number in flat.inputs:
                    node = flat.nodes[number]
                    if node.op == "saved" and savers[is_new, node.name] == 1:
                        inputs.setdefault((is_new, node.name), []).append((matching, number))
        return inputs


def _find_sharing(matching: Correspondence, is_new: bool, owner: int) -> set[int]:
    """Return the nodes of one graph that share the storage of a node: the node and its views."""
    flat = matching.b if is_new else matching.a

    def is_view(node: Node) -> bool:
        base = find_base(flat.graph, Ref(node.name)) if node.is_call else None
        return base is flat.nodes[owner]

    return reachable([owner], lambda i: [u for u, _ in flat.users[i] if is_view(flat.nodes[u])])


def _iter_users(matching: Correspondence, is_new: bool, number: int) -> Iterator[Side]:
    """Yield the ops that use a value of one of the two graphs."""
    flat = matching.b if is_new else matching.a
    return ((is_new, user) for user, _ in flat.users[number] if flat.nodes[user].is_call)


def _bytes_if_known(node: Node) -> int | None:
    """Return the bytes of a node's storage; `None` if unknown."""
    return None if node.result is None else storage_bytes_if_known(node)
