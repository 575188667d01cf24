"""`Cost`: the cost of some ops, as two figures."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Cost:
    """What some ops cost, or what an edit costs: after minus before.

    Attributes:
        flops: floating-point operations (see `Graph.flops`); `None` if unknown.
        saved_bytes: bytes saved for the backward (see `Capture.saved_bytes`); `None` if unknown.
    """

    flops: int | None
    saved_bytes: int | None


UNKNOWN = Cost(None, None)
"""A cost with both figures unknown."""


def sum_of(costs: Iterable[Cost]) -> Cost:
    """Return the sum of costs. A figure that is `None` in any cost is `None` in the sum."""
    flops: int | None = 0
    saved: int | None = 0
    for cost in costs:
        flops = None if flops is None or cost.flops is None else flops + cost.flops
        saved = None if saved is None or cost.saved_bytes is None else saved + cost.saved_bytes
    return Cost(flops, saved)
