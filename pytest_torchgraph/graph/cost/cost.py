"""`Cost`: what some ops cost, as two figures."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Cost:
    """What some ops cost, or what an edit costs: after minus before.

    Attributes:
        flops: floating-point operations (see `Graph.flops`); None where they are not known.
        saved_bytes: the bytes that are kept for the backward (see `Capture.saved_bytes`); None
            where that is not known.
    """

    flops: int | None
    saved_bytes: int | None


UNKNOWN = Cost(None, None)
"""The cost of which nothing is known."""


def sum_of(costs: Iterable[Cost]) -> Cost:
    """The sum of costs; a figure that is not known of one of them is not known of the sum."""
    flops: int | None = 0
    saved: int | None = 0
    for cost in costs:
        flops = None if flops is None or cost.flops is None else flops + cost.flops
        saved = None if saved is None or cost.saved_bytes is None else saved + cost.saved_bytes
    return Cost(flops, saved)
