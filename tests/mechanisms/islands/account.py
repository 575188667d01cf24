"""All ops that one step dispatches, by the corpus' account, and how a capture differs from it."""

from __future__ import annotations

import warnings
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch

from corpus.account import count
from corpus.case import Case

if TYPE_CHECKING:
    from pytest_torchgraph import Capture, Graph


@dataclass
class Everything:
    """The dispatch count of each op, in compiled graphs and eagerly.

    Ops that AOTAutograd runs around its graphs, and AccumulateGrad's handling of a gradient, are
    excluded.
    """

    compiled: Counter[str]
    eager: Counter[str]


def everything(
    target: Callable[..., Any], args: tuple[Any, ...], kwargs: Mapping[str, Any] | None = None
) -> Everything:
    """Count the ops of one forward and backward of a target, compiled up to AOTAutograd.

    The caller restores the state.
    """
    torch._dynamo.reset()
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # Dynamo reads .grad of non-leaf tensors
            counts, _ = count(Case(target, args, dict(kwargs or {})), compiled=True)
    finally:
        torch._dynamo.reset()

    def of(place: str) -> Counter[str]:
        phases = [counts.get(f"{phase} {place}", Counter()) for phase in ("forward", "backward")]
        return sum(phases, Counter())

    return Everything(of("graph"), of("eager"))


def unlike(captured: Capture, account: Everything) -> list[str]:
    """List differences between a capture and the account, compiled and eager."""
    pairs = (
        ("compiled", ops_of(captured.graphs), account.compiled),
        ("eager", ops_of(captured.eager), account.eager),
        ("eager_ops", Counter(eager_op.op for eager_op in captured.eager_ops), account.eager),
    )
    return [
        f"{what}: too many {dict(own - torchs)}, too few {dict(torchs - own)}"
        for what, own, torchs in pairs
        if own != torchs
    ]


def ops_of(graphs: Iterable[Graph]) -> Counter[str]:
    """Count the runs of each op in some graphs."""
    found: Counter[str] = Counter()
    for graph in graphs:
        for op, times in graph.op_counts.items():
            found[op] += times * graph.runs
    return found
