"""Whether a captured run differs from the eager one by rounding alone."""

from __future__ import annotations

import contextlib
import math
from collections.abc import Iterator
from dataclasses import dataclass

import torch

from .subject import EagerComparison, StepResult

_ALIKE = 10
"""How many times as far from float64 as eager a run may be, and be as good: eager's is one sample
of the rounding errors there may be."""
_ROUNDING = 10_000
"""How many times the resolution, of the largest value, a run may be from float64 for that to be
rounding. A step that does something else in float64 is as far from it both times."""
_BEYOND = 100
"""How many times as far is more than another order of the same operations does."""


@dataclass(frozen=True, eq=False)
class Unequal:
    """How a captured run differs from the eager one.

    Attributes:
        problem: what is to be said of it.
        what: what differs: "outputs", "gradients" or "state".
        name: its name.
        eager, captured: its values; None where only one run gave it.
    """

    problem: str
    what: str = "outputs"
    name: str = ""
    eager: torch.Tensor | None = None
    captured: torch.Tensor | None = None


def sized(found: Unequal) -> Iterator[str]:
    """The line that says how large a difference is."""
    sizes = _sizes(found)
    if sizes is None or found.eager is None:
        return
    off, scale, resolution = sizes
    name = str(found.eager.dtype).removeprefix("torch.")
    yield (
        f"The largest difference, {off:.3g}, is {off / scale:.2g} of the largest value, "
        f"{scale:.6g}: {off / scale / resolution:,.3g} times the resolution of {name} "
        f"({resolution:.2g})."
    )


def explained(found: Unequal, comparison: EagerComparison, expected: StepResult) -> Iterator[str]:
    """The lines that say whether a difference is rounding, with the tolerance if it is.

    The step runs once more in float64, where it can: rounding leaves eager as far from that as the
    captured run. It is for a step that does the same each time it runs eagerly.
    """
    eager, captured, sizes = found.eager, found.captured, _sizes(found)
    if eager is None or captured is None or sizes is None:
        return
    off, scale, resolution = sizes
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
    is_small = max(of_eager, of_captured) <= _ROUNDING * resolution * scale
    if of_captured <= _ALIKE * of_eager and is_small:
        advice = f"A tolerance says so: assert_matches_eager(atol={_above(off)})."
        if hidden := _hidden_by(float(_above(off)), expected):
            advice = (
                f"A tolerance for it would be above all {hidden}: scale the loss_fn, so that "
                "outputs and gradients are of a size."
            )
        yield (
            f"{judged}: compiled code rounds in another order, and is about as exact (within "
            f"{_ALIKE} times). {advice}"
        )
    elif of_captured >= _BEYOND * of_eager:
        yield f"{judged}: that is more than rounding in another order."
    else:
        yield f"{judged}."


def _hidden_by(atol: float, expected: StepResult) -> str:
    """Which of outputs and gradients have no value above a tolerance, "" if both do."""
    for what, tensors in (("outputs", expected.outputs), ("gradients", expected.grads)):
        floats = [t for t in tensors.values() if _has_rounding(t, t) or t.dtype is torch.float64]
        if floats and all(not t.numel() or _largest(t) <= atol for t in floats):
            return what
    return ""


def _sizes(found: Unequal) -> tuple[float, float, float] | None:
    """The largest difference, the largest value and the resolution of its dtype."""
    eager, captured = found.eager, found.captured
    if eager is None or captured is None or not _has_rounding(eager, captured):
        return None
    off, scale = _distance(captured, eager), _largest(eager)
    if not (math.isfinite(off) and math.isfinite(scale)) or not scale:
        return None
    return off, scale, torch.finfo(eager.dtype).eps


def _has_rounding(*tensors: torch.Tensor) -> bool:
    return len({each.shape for each in tensors}) == 1 and all(
        each.is_floating_point()
        and each.layout is torch.strided
        and not each.is_nested
        and each.dtype is not torch.float64
        and each.numel() > 0
        for each in tensors
    )


def _in_float64(found: Unequal, comparison: EagerComparison) -> torch.Tensor | None:
    """The tensor as the step gives it in float64, None where it cannot be run so."""
    with contextlib.suppress(Exception):  # a kernel without float64, a check of dtypes, ...
        outcome: StepResult = comparison.in_float64()
        values = {"outputs": outcome.outputs, "gradients": outcome.grads, "state": outcome.state}
        return values[found.what].get(found.name)
    return None


def _distance(left: torch.Tensor, right: torch.Tensor) -> float:
    return _largest(left.double() - right.double())


def _largest(tensor: torch.Tensor) -> float:
    return float(tensor.double().abs().max())


def _above(value: float) -> str:
    """A round number that is somewhat larger."""
    digit = 10.0 ** math.floor(math.log10(value))
    return f"{math.ceil(1.5 * value / digit) * digit:.1g}"
