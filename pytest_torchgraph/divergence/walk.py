"""The walk over two steps that names what differs: judged, then proven by replays."""

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
        accepted: what differs, in the order of the step: with eager's value there, more agrees.
        settled: True if with eager's values at all of these the step gives eager's results.
        rejected: how many candidates did not make more agree.
        precision: pairs of one formula that is less exact than eager's.
        agreeing: eager's nodes by those of the other step with the same value, at the start.
        trials: how many replays were made.
    """

    accepted: list[Judgement] = field(default_factory=list)
    settled: bool = False
    rejected: int = 0
    precision: list[Judgement] = field(default_factory=list)
    agreeing: Mapping[Key, Key] = field(default_factory=dict)
    trials: int = 0


def walk(eager: ValuedStep, other: ValuedStep, budget: Budget) -> Walk:
    """Find where a step first differs from an eager one.

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
            # The value that was put in agrees by itself, and counts on neither side.
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
    """Judge the anchors; those that are close by chance are none.

    The variance of values that are normalised already is as close to 1 as its root is. Closeness
    proposes such a pair, and only the matcher can say that it is one.
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
    """Return True if nothing follows from a value: it can only be judged by itself."""
    return all(user.op == "output" for user in step.fx(key).users)


def agrees_at_end(eager: ValuedStep, other: ValuedStep) -> bool:
    """Return True if all that a step returns is among eager's values."""
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
