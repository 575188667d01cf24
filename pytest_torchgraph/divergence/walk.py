"""Walk over two steps: find the nodes that differ, and prove them by replays."""

from __future__ import annotations

import heapq
import itertools
from collections.abc import Container, Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import torch

from ..graph.equality import reachable
from ..ops.views import is_view
from .judge import Judge, Judgement, Suspects, operand_of_view
from .pairs import PairedValues, Region, find_anchors, pair_nodes
from .valued import Key, ValuedStep
from .values import Budget, is_dense, is_same

MOST_FINDINGS = 5
"""Maximum number of differing nodes that a walk accepts."""
_MOST_TRIALS = 25
"""Maximum number of candidates that are tried for one of them. Each costs a replay."""


@dataclass
class Walk:
    """The outcome of a walk.

    Attributes:
        accepted: differing nodes, in program order. Putting in eager's values for them makes more
            nodes agree.
        settled: True if the step reproduces eager's results once all accepted nodes have eager's
            values.
        rejected: number of candidates for which eager's values do not make more nodes agree.
    """

    accepted: list[Judgement] = field(default_factory=list)
    settled: bool = False
    rejected: int = 0


def walk(eager: ValuedStep, other: ValuedStep, returned: Mapping[Key, Key], budget: Budget) -> Walk:
    """Find the first nodes at which a step differs from an eager step.

    A candidate is a node whose value differs by more than rounding. In a trial, the step is
    replayed with eager's value for the candidate. If more nodes agree then, the candidate is
    accepted, its value stays replaced, and the search continues with what still differs.

    Args:
        eager, other: the two steps, with the values of their nodes.
        returned: see `find_anchors`.
        budget: the limits.

    Raises:
        NotFollowedError: if a limit is reached.
    """
    paired, values = pair_nodes(eager, other), PairedValues(eager)
    for key, eager_key in returned.items():
        # Of several equal ops, the matcher may have paired another one with the output: swap the
        # partners.
        for k in [k for k, partner in paired.items() if partner == eager_key]:
            paired[k] = paired.get(key, eager_key)
        paired[key] = eager_key
    outcome, current_step = Walk(), other
    replacements: dict[Key, Any] = {}
    judged: dict[Any, Judgement | None] = {}
    agreeing = find_anchors(values, current_step, paired, returned, budget)

    def count_corresponding(pairs: Mapping[Key, Key], without: Container[Key]) -> int:
        """Count the agreeing pairs whose nodes correspond.

        If a trial puts in a value that eager computes later, nodes of one layer agree with eager
        nodes of another layer. These pairs must not count.
        """
        return sum(
            key not in without and _may_correspond(values, other, paired, key, eager_key)
            for key, eager_key in pairs.items()
        )

    while len(outcome.accepted) < MOST_FINDINGS:
        judge, anchor_verdicts = _judge_agreeing(
            values, current_step, agreeing, paired, replacements, budget, judged
        )
        strong: Iterable[Judgement] = (v for v in anchor_verdicts if v.is_strong)
        # Once all results agree, the values that still differ have no effect on them.
        if not outcome.settled:
            # Judge lazily: after the first accepted value, most of the later values agree.
            suspects = Suspects(judge, paired, returned, budget).judged(replacements)
            strong = heapq.merge(strong, suspects, key=lambda v: other.position_of.get(v.key, 0))
        trials = 0
        for trials, verdict in enumerate(itertools.islice(strong, _MOST_TRIALS), 1):  # noqa: B007
            verdict = _strip_shared_nodes(_strip_views(verdict, judge), judge)
            value = _cast_like(eager.value(verdict.eager), current_step.value(verdict.key))
            trial = {**replacements, verdict.key: value}
            # Run again only what the replaced value reaches. Together with lazy judging, this takes
            # a sixth of the time for a 12-layer BERT.
            step = current_step.replayed(trial, budget)
            trial_agreeing = find_anchors(values, step, paired, returned, budget, agreeing)
            # The replaced values and their views agree trivially, so they count on neither side.
            trivial = {view for key in trial for view in _views(current_step, key)}
            agreed = count_corresponding(agreeing, trivial)
            agree_now = count_corresponding(trial_agreeing, trivial)
            if agree_now > agreed or _is_only_returned(current_step, verdict.key):
                outcome.accepted.append(verdict)
                replacements, current_step, agreeing = trial, step, trial_agreeing
                break
        else:  # no trial was accepted: the walk ends
            outcome.rejected = trials
            break
        if tangents := _find_tangents(values, current_step, replacements):
            replacements |= tangents
            current_step = current_step.replayed(replacements, budget)
            agreeing = find_anchors(values, current_step, paired, returned, budget, agreeing)
        outcome.settled = (
            _agrees_at_end(values, current_step) and agreeing.keys() >= returned.keys()
        )
    return outcome


def _find_tangents(
    eager: PairedValues, current_step: ValuedStep, replacements: Mapping[Key, Any]
) -> dict[Key, torch.Tensor]:
    """Return eager's gradients of the loss, once the outputs of the forward agree.

    No graph contains the loss, so a replay cannot compute these inputs of the backward again.
    """
    if not _agrees_at_end(eager, current_step, "forward"):
        return {}
    named = {key[1]: eager.step.value(key) for key in eager.step.inputs()}
    return {
        key: value
        for key in current_step.inputs()
        if key not in replacements and is_dense(value := named.get(key[1]))
        if is_dense(current := current_step.value(key)) and not is_same(current, value)
    }


def _strip_views(verdict: Judgement, judge: Judge) -> Judgement:
    """Return the judgement of the value that a view reads, if the view is the same on both sides.

    Other views of a wrong value are wrong too. Replacing the value itself corrects all of them.
    """
    other_region, eager_region = verdict.region, verdict.eager_region
    while True:
        keys = (
            operand_of_view(judge.other, verdict.key),
            operand_of_view(judge.eager.step, verdict.eager),
        )
        # A viewed value outside the region agrees.
        if keys[0] is None or keys[1] is None or keys[0] not in other_region.nodes:
            return verdict
        values = judge.other.value(keys[0]), judge.eager.step.value(keys[1])
        if not all(map(is_dense, values)) or values[0].shape != values[1].shape:
            return verdict
        if not judge.is_same_form(verdict.key, verdict.eager):
            return verdict
        other_region = Region(
            other_region.boundary, tuple(k for k in other_region.nodes if k != verdict.key)
        )
        eager_region = Region(
            eager_region.boundary, tuple(k for k in eager_region.nodes if k != verdict.eager)
        )
        verdict = replace(
            verdict, key=keys[0], eager=keys[1], region=other_region, eager_region=eager_region
        )


def _strip_shared_nodes(verdict: Judgement, judge: Judge) -> Judgement:
    """Leave out eager nodes that also feed a value on which both sides agree.

    For example, a dropout mask that the forward used correctly is not missing in the backward.
    """
    eager, missing_nodes = judge.eager.step, set(verdict.eager_region.nodes)

    def is_used_elsewhere(key: Key) -> bool:
        return any(
            user not in missing_nodes and judge.is_shared_before(user, verdict.key)
            for user in eager.users.get(key, ())
        )

    def own_operands(key: Key) -> list[Key]:
        operands = eager.operands(key)
        return [k for k in operands if k in missing_nodes and not is_used_elsewhere(k)]

    needed = reachable([verdict.eager], own_operands)
    nodes = tuple(key for key in verdict.eager_region.nodes if key in needed)
    return replace(verdict, eager_region=Region(verdict.eager_region.boundary, nodes))


def _judge_agreeing(
    eager: PairedValues,
    current_step: ValuedStep,
    agreeing: Mapping[Key, Key],
    paired: Mapping[Key, Key],
    replacements: Mapping[Key, Any],
    budget: Budget,
    judged: dict[Any, Judgement | None],
) -> tuple[Judge, list[Judgement]]:
    """Judge the anchors, and discard the anchors that are close only by chance.

    For example, the variance of normalised values is close to 1, and so is its square root. A pair
    of close values counts only if the matcher also pairs the nodes.

    Returns:
        The judge, with the anchors that are left, and its judgements of them.
    """
    anchors_left = dict(agreeing)
    while True:
        judge = Judge(eager, current_step, anchors_left, budget, judged)
        verdicts = [verdict for verdict in judge.judge_anchors() if verdict.key not in replacements]
        # Without this step, which discards values that are close by chance, two of 23 fault-free
        # subjects had a finding.
        chance = [v for v in verdicts if v.is_strong and paired.get(v.key) != v.eager]
        if not chance:
            return judge, verdicts
        # Judge again: a region that started at one of them now starts earlier.
        for verdict in chance:
            del anchors_left[verdict.key]


def _cast_like(value: torch.Tensor, reference: Any) -> torch.Tensor:
    # A stage may compute in another dtype than eager, which its later ops expect.
    return value.to(reference.dtype) if isinstance(reference, torch.Tensor) else value


def _may_correspond(
    eager: PairedValues, other: ValuedStep, paired: Mapping[Key, Key], key: Key, eager_key: Key
) -> bool:
    """Return True unless the matcher or the modules say that two nodes do not correspond."""
    partner = paired.get(key)
    if partner is not None:
        return eager.first_equal(partner) == eager.first_equal(eager_key)
    modules = other.node(key).module, eager.step.node(eager_key).module
    return modules[0] == modules[1] or not all(modules)


def _views(step: ValuedStep, key: Key) -> set[Key]:
    """Return a node and all views of its value."""
    return reachable(
        [key], lambda k: [user for user in step.users.get(k, ()) if is_view(step.node(user).op)]
    )


def _is_only_returned(step: ValuedStep, key: Key) -> bool:
    """Return True if only views use a value, so that no other value can confirm it."""
    views = _views(step, key)
    return all(user in views for view in views for user in step.users.get(view, ()))


def _agrees_at_end(eager: PairedValues, other: ValuedStep, kind: str = "") -> bool:
    """Return True if each returned value equals a value of the eager run.

    Args:
        eager: the values of the eager step.
        other: the other step.
        kind: the kind of graph to check; "" for all graphs.
    """
    compared = 0
    for number, valued in enumerate(other.graphs):
        if kind and other.kind((number, "")) != kind:
            continue
        for node in valued.graph.outputs:
            value = other.value(other.resolve(number, node.name))
            if not is_dense(value):
                continue
            compared += 1
            if not eager.candidates(value):
                return False
    # A step without a comparable output proves nothing.
    return compared > 0
