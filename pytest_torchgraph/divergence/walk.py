"""The walk over two steps that finds differing nodes: judged, then proven by replays."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import torch

from .judge import Judge, Judgement, Suspects
from .pairs import PairedValues, anchors, partners
from .valued import Key, ValuedStep
from .values import Budget, is_close, is_dense

MOST_FINDINGS = 5
_MOST_TRIALS = 25


@dataclass
class Walk:
    """The outcome of a walk.

    Attributes:
        accepted: differing nodes, in program order: replacing their values with eager's makes more
            nodes agree.
        settled: True if the step reproduces eager's results with eager's values at all of these.
        rejected: number of candidates that did not make more nodes agree.
        precision: pairs of one formula with less exact results than eager's.
        agreeing: maps nodes of the other step to eager nodes with the same value, at the start.
        trials: number of replays.
    """

    accepted: list[Judgement] = field(default_factory=list)
    settled: bool = False
    rejected: int = 0
    precision: list[Judgement] = field(default_factory=list)
    agreeing: Mapping[Key, Key] = field(default_factory=dict)
    trials: int = 0


def walk(eager: ValuedStep, other: ValuedStep, budget: Budget) -> Walk:
    """Find the first nodes where a step differs from an eager step.

    Args:
        eager, other: the two steps, with the values of their nodes.
        budget: the limits.

    Raises:
        NotFollowedError: if a limit is reached.
    """
    paired, values = partners(eager, other), PairedValues(eager)
    outcome, now = Walk(), other
    instead: dict[Key, Any] = {}
    agreeing = anchors(values, now, paired, budget)
    outcome.agreeing = agreeing
    while len(outcome.accepted) < MOST_FINDINGS:
        judge, of_anchors = _judged(values, now, agreeing, paired, instead, budget)
        if not instead:
            outcome.precision = [v for v in of_anchors if v.kind == "precision"]
        strong = [v for v in of_anchors if v.is_strong]
        strong += Suspects(judge, paired, budget).judged(instead)
        strong.sort(key=lambda verdict: other.place.get(verdict.key, 0))
        for verdict in strong[:_MOST_TRIALS]:
            value = _as(eager.value(verdict.eager), now.value(verdict.key))
            trial = {**instead, verdict.key: value}
            step = now.replayed(trial, budget)
            outcome.trials += 1
            then = anchors(values, step, paired, budget)
            # The replaced value agrees trivially, so it counts on neither side.
            gained = _count(then, trial) - _count(agreeing, trial)
            if gained > 0 or _is_returned_only(now, verdict.key):
                outcome.accepted.append(verdict)
                instead, now, agreeing = trial, step, then
                break
        else:
            outcome.rejected = len(strong)
            break
    if outcome.accepted:
        outcome.settled = agrees_at_end(eager, now)
    return outcome


def _judged(
    eager: PairedValues,
    now: ValuedStep,
    agreeing: Mapping[Key, Key],
    paired: Mapping[Key, Key],
    instead: Mapping[Key, Any],
    budget: Budget,
) -> tuple[Judge, list[Judgement]]:
    """Judge the anchors, and discard anchors that are close by chance.

    The variance of already normalised values is as close to 1 as its root is. Closeness proposes
    this pair; only the matcher can confirm it.
    """
    kept = dict(agreeing)
    while True:
        judge = Judge(eager, now, kept, budget)
        verdicts = [verdict for verdict in judge.of_anchors() if verdict.key not in instead]
        chance = [v for v in verdicts if v.is_strong and paired.get(v.key) != v.eager]
        if not chance:
            return judge, verdicts
        for verdict in chance:
            del kept[verdict.key]


def _as(value: torch.Tensor, like: Any) -> torch.Tensor:
    return value.to(like.dtype) if isinstance(like, torch.Tensor) else value


def _count(agreeing: Mapping[Key, Key], without: Mapping[Key, Any]) -> int:
    return sum(key not in without for key in agreeing)


def _is_returned_only(step: ValuedStep, key: Key) -> bool:
    """Return True if no node uses a value, so that it can only be judged by itself."""
    return all(user.op == "output" for user in step.fx(key).users)


def agrees_at_end(eager: ValuedStep, other: ValuedStep) -> bool:
    """Return True if all returned values of a step are among eager's values."""
    compared = 0
    for number, valued in enumerate(other.graphs):
        for node in valued.graph.outputs:
            value = other.value((number, node.name))
            if not is_dense(value):
                continue
            compared += 1
            if not any(
                is_dense(v := eager.value(key)) and is_close(v, value)
                for key in [*eager.order, *eager.inputs()]
                if eager.value(key) is not None
            ):
                return False
    return compared > 0
