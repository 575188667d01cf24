"""Whether a captured run differs from the eager one by rounding alone."""

from __future__ import annotations

import contextlib
import math
from collections.abc import Iterator
from dataclasses import dataclass

import torch

from .subject import Comparison, Outcome

_ALIKE = 10
"""How many times as far from float64 as eager a run may be, and be as good: eager's is one sample
of the rounding errors there may be."""
_BEYOND = 100
"""How many times as far is more than another order of the same operations does."""


@dataclass(frozen=True, eq=False)
class Difference:
    """How a captured run differs from the eager one.

    Attributes:
        problem: what is to be said of it.
        is_output: whether the tensor is an output, not a gradient.
        name: its name.
        eager, captured: its values; None where only one run gave it.
    """

    problem: str
    is_output: bool = False
    name: str = ""
    eager: torch.Tensor | None = None
    captured: torch.Tensor | None = None


def explained(found: Difference, comparison: Comparison) -> Iterator[str]:
    """The lines that say how large a difference is, and whether it is rounding.

    The step runs once more in float64, where it can: rounding leaves eager as far from that as the
    captured run.
    """
    eager, captured = found.eager, found.captured
    if eager is None or captured is None or not _has_rounding(eager, captured):
        return
    off, scale = _distance(captured, eager), _largest(eager)
    if not (math.isfinite(off) and math.isfinite(scale)) or not scale:
        return
    resolution = torch.finfo(eager.dtype).eps
    name = str(eager.dtype).removeprefix("torch.")
    yield (
        f"The largest difference, {off:.3g}, is {off / scale:.2g} of the largest value, "
        f"{scale:.6g}: {off / scale / resolution:,.3g} times the resolution of {name} "
        f"({resolution:.2g})."
    )
    exact = _in_float64(found, comparison)
    if exact is None or exact.shape != eager.shape:
        return
    of_eager, of_captured = _distance(eager, exact), _distance(captured, exact)
    if not of_eager + of_captured < 100 * off:  # other random numbers, or another way through
        return
    judged = (
        f"Against the same step in float64 the eager run is off by {of_eager:.3g}, the captured "
        f"run by {of_captured:.3g}"
    )
    if of_captured <= _ALIKE * of_eager:
        yield (
            f"{judged}: compiled code rounds in another order, and is about as exact. A tolerance "
            f"says so: assert_matches_eager(atol={_above(off)})."
        )
    elif of_captured >= _BEYOND * of_eager:
        yield f"{judged}: that is more than rounding in another order."
    else:
        yield f"{judged}."


def _has_rounding(*tensors: torch.Tensor) -> bool:
    return len({each.shape for each in tensors}) == 1 and all(
        each.is_floating_point()
        and each.layout is torch.strided
        and not each.is_nested
        and each.dtype is not torch.float64
        and each.numel() > 0
        for each in tensors
    )


def _in_float64(found: Difference, comparison: Comparison) -> torch.Tensor | None:
    """The tensor as the step gives it in float64, None where it cannot be run so."""
    with contextlib.suppress(Exception):  # a kernel without float64, a check of dtypes, ...
        outcome: Outcome = comparison.in_float64()
        return (outcome.outputs if found.is_output else outcome.grads).get(found.name)
    return None


def _distance(left: torch.Tensor, right: torch.Tensor) -> float:
    return _largest(left.double() - right.double())


def _largest(tensor: torch.Tensor) -> float:
    return float(tensor.double().abs().max())


def _above(value: float) -> str:
    """A round number that is somewhat larger."""
    digit = 10.0 ** math.floor(math.log10(value))
    return f"{math.ceil(1.5 * value / digit) * digit:.1g}"
