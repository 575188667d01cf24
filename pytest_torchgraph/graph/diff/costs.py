"""Costs of edits: attribute the cost difference of two captures to the findings that cause it.

Every difference is attributed to some finding, so the costs of the findings sum up to the cost
difference of the captures. If several findings may be the cause, none of them gets a figure.

`attach_costs` gives each finding a function that computes all costs at the first access
(`compute_costs`). `FindingIndex` maps nodes and pairs of graphs to findings, and a `Ledger` adds up
one figure of each finding: saved bytes here (`_SavedBytes`), FLOPs in `flop_costs`.

`name_checkpoints` does not compute costs: it merges findings that only a checkpoint explains.
"""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import cached_property, partial
from typing import Any

from ...ops.matching import FLOP_LEVELS, SAVING_LEVELS, Level
from ...words import grouped
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
from ..module_paths import common_path
from .correspondence import Correspondence
from .findings import MODEL, Change, Finding, Recomputations, nodes_of_changes, ops_of
from .gradients import SAVED_DIFFER
from .origins import Occurrence, Origins, Pair
from .paths import abridged, instances_of


class FindingIndex:
    """The findings of one difference, by node and by pair of graphs.

    Args:
        findings: all findings; other classes refer to them by number.
        origins: the origins of the changes.

    Attributes:
        origins: see the arguments.
        levels: for each finding, the levels of its graphs.
        of_matching: the finding of each node, by side and number, for each matching by `id`.
    """

    def __init__(self, findings: Sequence[Finding], origins: Origins):
        self.origins = origins
        self.levels: list[set[Level]] = [set() for _ in findings]
        self.of_matching: dict[int, dict[tuple[int, int], int]] = {
            id(m): {} for m in origins.matchings
        }
        self._matchings = {(id(m.a.graph), id(m.b.graph)): m for m in origins.matchings}
        self._graphs: dict[tuple[int, int], int] = {}
        for number, finding in enumerate(findings):
            for place in finding.places:
                for change in (*place.changes, *place.consequences):
                    nodes = [*origins.nodes(change)]
                    for node in nodes:
                        self.of_matching[id(node.matching)][node.is_new, node.number] = number
                        self.levels[number] |= {flat.graph.level for flat in node.matching.flats}
                    # Besides findings about whole graphs, also ops of an added or removed graph,
                    # whose nodes are in no matching. `of_graphs` looks up the output of a graph.
                    key = id(change.before), id(change.after)
                    if finding.of_graph or (not nodes and id(None) in key):
                        self._graphs[key] = number
        for pair in origins.pairs:
            for number in self.of_graphs(pair):
                self.levels[number] |= {graph.level for graph in pair if graph is not None}

    def matching(self, old: Graph, new: Graph) -> Correspondence | None:
        """Return the matching of two graphs, or two bodies; `None` if they are equal."""
        return self._matchings.get((id(old), id(new)))

    def of_graphs(self, pair: Pair) -> set[int]:
        """Return the finding about a whole graph (added, removed or run count), as a set."""
        # The output stands for a whole graph.
        old, new = (None if graph is None else graph.nodes[-1] for graph in pair)
        number = self._graphs.get((id(old), id(new)))
        return set() if number is None else {number}

    def within(self, matching: Correspondence) -> set[int]:
        """Return the findings that contain a node of a matching."""
        return set(self.of_matching[id(matching)].values())

    def of_nodes(self, nodes: Iterable[Occurrence]) -> set[int]:
        """Return the findings that contain any of these nodes."""
        found = (
            self.of_matching[id(node.matching)].get((node.is_new, node.number)) for node in nodes
        )
        return {number for number in found if number is not None}


class Ledger:
    """One figure of each finding.

    Args:
        index: the findings.

    Attributes:
        figures: one figure for each finding, by number; `None` if unknown.
    """

    def __init__(self, index: FindingIndex):
        self.index = index
        self.figures: list[int | None] = [0] * len(index.levels)

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
            # An unknown figure stays unknown.
            unknown = amount is None or figure is None or len(findings) != 1
            self.figures[number] = None if unknown else figure + amount * times  # type: ignore[operator]

    def add_pairs(
        self,
        pairs: Iterable[Pair],
        amounts_of: Callable[[Graph], Iterable[int | None]],
        add_matching: Callable[[Correspondence, int], None],
    ) -> None:
        """Attribute the amounts of pairs of graphs.

        Args:
            pairs: the pairs.
            amounts_of: returns the amounts of one run of a whole graph. They count if a graph was
                added or removed, and if its run count changed.
            add_matching: attributes the differences of two graphs, given their run count.
        """
        for old, new in pairs:
            if old is None or new is None:
                whole = [(g, g.runs * (-1 if new is None else 1)) for g in (old, new) if g]
            else:
                # What differs in one run counts for the new runs. Added or removed runs count with
                # the whole old graph.
                if (matching := self.index.matching(old, new)) is not None:
                    add_matching(matching, new.runs)
                whole = [(old, new.runs - old.runs)] if runs_differ(old, new) else []
            for graph, times in whole:
                for amount in amounts_of(graph):
                    self.add(self.index.of_graphs((old, new)), amount, times)


def name_checkpoints(
    findings: list[Finding], before: Sequence[Graph], after: Sequence[Graph]
) -> list[Finding]:
    """Merge the findings of added or removed checkpoints, and name the recomputed modules.

    The merged finding comes first. The findings are returned unchanged if nothing is recomputed
    otherwise.
    """
    merged = [finding for finding in findings if _is_checkpoint(finding)]
    old, new = (recomputed_nodes(graphs) if merged else [] for graphs in (before, after))
    parts = []
    for words, nodes, others in (("recomputed", new, old), ("no longer recomputed", old, new)):
        known = {node.module for node in others}  # recomputed on both sides
        # A file does not record why an op is recomputed.
        own = [n for n in nodes if n.by in ("checkpoint", "") and n.module not in known]
        lines = {f" at {n.source.checkpoint}" for n in own if n.source and n.source.checkpoint}
        if own:
            # Of each layer, the module of all that is recomputed, the same one in all layers: an op
            # that nothing needs is not recomputed, which may be so in one layer alone.
            layers = [(*instances_of(n.module), n.module.partition(".")[0])[0] for n in own]
            inner = (n.module[len(layer) :] for n, layer in zip(own, layers, strict=True))
            inside = common_path(inner)
            paths = abridged(f"{layer}{inside}" or MODEL for layer in layers)
            by = f" (checkpoint{', '.join(sorted(lines))})" if own[0].by else ""
            parts.append(f"{words} in {paths}{by}")
    if not parts:
        return findings
    places = tuple(place for finding in merged for place in finding.places)
    named = replace(merged[0], places=places, summary="; ".join(parts))
    return [named, *(finding for finding in findings if finding not in merged)]


def _is_checkpoint(finding: Finding) -> bool:
    """Return True if only the saved values differ, or a random op also saves the random state.

    If the saved values are results of an op with several, such as the mean of a norm, their
    projections are gone with them.
    """
    if finding.changes and all(map(_is_saved_projection, finding.changes)):
        return True
    nodes = nodes_of_changes(ops_of(finding.changes))
    saves_state = any(node.op == SAVING_STATE for node in nodes)
    is_one_op = len({executed(node).op for node in nodes}) == 1
    return SAVED_DIFFER in finding.summary or (saves_state and is_one_op)


def _is_saved_projection(change: Change) -> bool:
    """Return True for a result of an op with several that only one graph has, and saves."""
    if change.node.op != "operator.getitem":  # also that of a run count, which is in no graph
        return False
    return Ref(change.node.name) in change.within[change.after is not None].saved


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
    """The costs of all findings of one difference, computed at the first access.

    Args:
        findings: the findings.
        origins: the origins of their changes.
        before, after: the graphs. All of these are released after the costs are computed.
    """

    def __init__(
        self,
        findings: Sequence[Finding],
        origins: Origins,
        before: Sequence[Graph],
        after: Sequence[Graph],
    ):
        self._pending: tuple[Any, ...] | None = findings, origins, before, after
        self._costs: list[Cost] = []
        self._recomputed: list[Recomputations] = []

    def of(self, number: int) -> Cost:
        """Return the cost of a finding, by its number."""
        self._compute()
        return self._costs[number]

    def recomputed_by(self, number: int) -> Recomputations:
        """Return the changed recomputations of a finding, by its number."""
        self._compute()
        return self._recomputed[number]

    def _compute(self) -> None:
        if self._pending is not None:
            findings, origins, *graphs = self._pending
            self._costs = compute_costs(findings, origins)
            self._recomputed = _attribute_recomputations(findings, *graphs)
            self._pending = None


def _attribute_recomputations(
    findings: Sequence[Finding], before: Sequence[Graph], after: Sequence[Graph]
) -> list[Recomputations]:
    """Return the changed recomputations of each finding, by the recomputed ops that it changes.

    An op that no finding recomputes goes to the findings that have it otherwise, and one that no
    finding contains to the first finding. For example, an op may stay in the
    backward but no longer be a recomputation.
    """
    changed = changed_recomputation(with_savers(before), with_savers(after))
    if not (changed and findings):
        return [()] * len(findings)
    reruns = {node.name for graphs in (before, after) for node in recomputed_nodes(graphs)}
    own: list[set[str]] = []  # the ops that each finding recomputes
    other: list[set[str]] = []  # and its other ops
    for finding in findings:
        changes = (c for place in finding.places for c in (*place.changes, *place.consequences))
        nodes = nodes_of_changes(changes)
        own.append({executed(node).op for node in nodes if node.name in reruns})
        other.append({executed(node).op for node in nodes})
    by_finding: list[Recomputations] = [()] * len(findings)
    for op, counts in changed.items():
        owners = [n for n, ops in enumerate(own) if op in ops]
        owners = owners or [n for n, ops in enumerate(other) if op in ops] or [0]
        for number in owners:
            by_finding[number] += ((op, *counts),)
    return by_finding


def compute_costs(findings: Sequence[Finding], origins: Origins) -> list[Cost]:
    """Return the costs of findings, in order. FLOPs are `None` unless torch is loaded."""
    index = FindingIndex(findings, origins)
    saved = _SavedBytes(index).run()
    flops: list[int | None] = [None] * len(findings)
    # Commands read files without torch, and must not wait for its import.
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
    """Attributes the difference in saved bytes to findings.

    Args:
        index: the findings.
    """

    def __init__(self, index: FindingIndex):
        self.index = index
        self.ledger = Ledger(index)

    def run(self) -> list[int | None]:
        """Return the saved bytes of each finding, after minus before; `None` if unknown."""
        known = [
            pair
            for pair in self.index.origins.pairs
            if all(graph is None or graph.level in SAVING_LEVELS for graph in pair)
        ]
        self.ledger.add_pairs(
            known, lambda graph: map(_bytes_if_known, owners_of_saved(graph)), self._add_matching
        )
        return self.ledger.figures

    def _add_matching(self, matching: Correspondence, times: int) -> None:
        """Attribute the difference in saved bytes of a pair of graphs that runs `times` times."""
        # For each side, the ops that allocated a saved storage, by number.
        owners = [
            {flat.index[node.name]: node for node in owners_of_saved(flat.graph)}
            for flat in matching.flats
        ]
        for is_new, sign in ((False, -times), (True, times)):
            for number, node in owners[is_new].items():
                owner = Occurrence(matching, is_new, number)
                partner = owner.partner()
                amount = _bytes_if_known(node)
                # Saved on this side only; or on both sides with another size, counted once.
                if partner is None or partner.number not in owners[not is_new]:
                    self.ledger.add(self._find_storage_causes(owner), amount, sign)
                elif is_new and matching.a.labels[partner.number] != matching.b.labels[number]:
                    before = _bytes_if_known(partner.node)
                    change = None if amount is None or before is None else amount - before
                    self.ledger.add(self._find_makers(partner), change, times)

    # -- causes ----------------------------------------------------------------------------------

    def _find_storage_causes(self, owner: Occurrence) -> set[int]:
        """Return the findings that may cause a storage to be saved on one side only.

        Args:
            owner: the node that allocated the storage.

        Returns:
            Exactly one finding if the cause is known.
        """
        makers, partner = self._find_makers(owner), owner.partner()
        # An added or removed op saves its own result.
        if partner is None and len(makers) == 1:
            return makers
        # An edited op that uses the value, or a view of it, on either side.
        sharing = [*_find_sharing(owner), *(_find_sharing(partner) if partner else ())]
        causes = makers | self.index.of_nodes(user for node in sharing for user in _users(node))
        if len(causes) == 1:
            return causes
        later = {number for node in sharing for number in self._find_backward_users(node)}
        # If several edits take a value, the value is saved because of the edit whose backward uses
        # it.
        found = (causes & later if causes else later) or causes
        return found or self.index.within(owner.matching)

    def _find_makers(self, owner: Occurrence) -> set[int]:
        """Return the findings of the op that allocated a storage."""
        makers, refs = self.index.of_nodes([owner]), owner.node.refs
        # For a projection without a finding, those of the multi-output op.
        if not makers and refs:
            producer = owner.at(owner.flat.index[refs[0]])
            if is_projection(owner.node, producer.node):
                return self.index.of_nodes([producer])
        return makers

    def _find_backward_users(self, value: Occurrence) -> set[int]:
        """Return the findings of the backward ops that use a saved value."""
        inputs = self._saved_inputs.get((value.is_new, value.node.name), ())
        return self.index.of_nodes(user for node in inputs for user in _users(node))

    @cached_property
    def _saved_inputs(self) -> Mapping[tuple[bool, str], Sequence[Occurrence]]:
        """Inputs of changed backward graphs, by side and name.

        Names that several forwards save are left out, because the forward of such an input is
        unknown.
        """
        savers = Counter(
            (is_new, ref.name)
            for pair in self.index.origins.pairs
            for is_new, graph in enumerate(pair)
            if graph is not None
            for ref in {*graph.saved}
        )
        inputs = (
            Occurrence(matching, bool(is_new), number)
            for matching in self.index.origins.matchings
            for is_new, flat in enumerate(matching.flats)
            for number in flat.inputs
        )
        return grouped(
            ((node.is_new, node.node.name), node)
            for node in inputs
            if node.node.op == "saved" and savers[node.is_new, node.node.name] == 1
        )


def _find_sharing(owner: Occurrence) -> list[Occurrence]:
    """Return the nodes of one graph that share the storage of a node: the node and its views."""
    flat = owner.flat

    def views(number: int) -> Iterator[int]:
        for user, _ in flat.users[number]:
            node = flat.nodes[user]
            if node.is_call and find_base(flat.graph, Ref(node.name)) is owner.node:
                yield user

    return [*map(owner.at, reachable([owner.number], views))]


def _users(value: Occurrence) -> Iterator[Occurrence]:
    """Yield the ops that use a value."""
    users = (value.at(user) for user, _ in value.flat.users[value.number])
    return (user for user in users if user.node.is_call)


def _bytes_if_known(node: Node) -> int | None:
    """Return the bytes of a node's storage; `None` if unknown."""
    return None if node.result is None else storage_bytes_if_known(node)
