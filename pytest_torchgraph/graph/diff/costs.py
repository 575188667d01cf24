"""What edits cost: how the costs of two captures differ, put to the findings that are the cause.

All that differs is put to some finding, so that their costs sum up to the difference of the
captures' own. Where it cannot be told to which of several, none of these has a figure.

- `bearers`: which findings a node, or a pair of graphs, belongs to.
- `flop_costs`, `saved_costs`: the two figures.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import replace
from functools import partial

from ...ops.levels import FLOP_LEVELS, SAVING_LEVELS
from ..cost.cost import Cost
from .bearers import Bearers
from .findings import Finding
from .origins import Origins
from .saved_costs import saved_by_finding


def with_costs(findings: Sequence[Finding], origins: Origins) -> list[Finding]:
    """The findings, each with its cost, which is computed when the first is asked for.

    Args:
        findings: all of one difference.
        origins: where their changes come from.
    """
    costs = _Costs(findings, origins)
    return [
        replace(finding, costs=partial(costs.of, number)) for number, finding in enumerate(findings)
    ]


class _Costs:
    """The costs of all findings of one difference.

    Args:
        findings: the findings.
        origins: where their changes come from; they are let go when the costs are known.
    """

    def __init__(self, findings: Sequence[Finding], origins: Origins):
        self._open: tuple[Sequence[Finding], Origins] | None = findings, origins
        self._known: list[Cost] = []

    def of(self, number: int) -> Cost:
        """The cost of a finding."""
        if self._open is not None:
            self._known = costs_of(*self._open)
            self._open = None
        return self._known[number]


def costs_of(findings: Sequence[Finding], origins: Origins) -> list[Cost]:
    """What findings cost, in their order; FLOPs only where torch is loaded."""
    bearers = Bearers(findings, origins)
    saved = saved_by_finding(bearers)
    flops: list[int | None] = [None] * len(findings)
    if "torch" in sys.modules:
        from .flop_costs import flops_by_finding

        flops = flops_by_finding(bearers)
    return [
        Cost(
            flops[number] if levels and levels <= FLOP_LEVELS else None,
            saved[number] if levels and levels <= SAVING_LEVELS else None,
        )
        for number, levels in enumerate(bearers.levels)
    ]
