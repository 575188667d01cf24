"""`Cost`: the cost of some ops."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Cost:
    """The cost of some ops, or of an edit: after minus before.

    Attributes:
        flops: floating-point operations (see `Graph.flops`); `None` if unknown.
        saved_bytes: bytes saved for the backward (see `Capture.saved_bytes`); `None` if unknown.
        recomputed_flops: FLOPs of forward ops that the backward runs again (see
            `Capture.recomputed`); `None` if the backward runs no op again, and for an edit.
    """

    flops: int | None
    saved_bytes: int | None
    recomputed_flops: int | None = None

    def __repr__(self) -> str:
        again = self.recomputed_flops
        rest = "" if again is None else f", recomputed_flops={again}"
        return f"Cost(flops={self.flops}, saved_bytes={self.saved_bytes}{rest})"


UNKNOWN = Cost(None, None)
"""A cost with unknown figures."""


def sum_of(costs: Iterable[Cost]) -> Cost:
    """Return the sum of costs. A figure that is `None` in any cost is `None` in the sum."""
    flops: int | None = 0
    saved: int | None = 0
    for cost in costs:
        flops = None if flops is None or cost.flops is None else flops + cost.flops
        saved = None if saved is None or cost.saved_bytes is None else saved + cost.saved_bytes
    return Cost(flops, saved)
