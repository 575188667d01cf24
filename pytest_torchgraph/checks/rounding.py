"""Tolerances of a comparison with eager, and differences that rounding explains."""

from __future__ import annotations

import contextlib
import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import torch

from .. import torch_private
from .subject import EagerComparison, StepResult

_ALIKE = 10
"""Maximum distance of the captured run from float64, in multiples of eager's distance.

It is more than 1, because eager's distance is only one sample of the possible rounding errors.
"""
_ROUNDING = 10_000
"""Maximum distance from float64 that rounding can cause, in resolutions of the largest value.

Without this limit, a step that computes something else in float64 would look like rounding, because
both runs are equally far from the float64 run.
"""
_BEYOND = 100
"""Multiple of eager's distance that reordering the same operations cannot reach."""


@dataclass(frozen=True, eq=False)
class Unequal:
    """A difference between the captured run and the eager run.

    Attributes:
        problem: description for the message.
        what: kind of value: "outputs", "gradients", "state" or "layout".
        name: name of the value.
        eager, captured: the two values; `None` if only one run produced the value.
    """

    problem: str
    what: str = "outputs"
    name: str = ""
    eager: torch.Tensor | None = None
    captured: torch.Tensor | None = None


def size_lines(unequal: Unequal) -> Iterator[str]:
    """Yield a line about the size of a difference, if both values are known."""
    sizes = _sizes(unequal)
    # The error is 0 if the types differ, or only the tensors inside a tensor subclass.
    if sizes is None or unequal.eager is None or not sizes[0]:
        return
    largest_error, scale, resolution = sizes
    name = str(unequal.eager.dtype).removeprefix("torch.")
    yield (
        f"Largest difference: {largest_error:.3g}. This is {largest_error / scale:.2g} of the "
        f"largest value ({scale:.6g}), or {largest_error / scale / resolution:,.3g} times the "
        f"resolution of {name} ({resolution:.2g})."
    )


def explain_rounding(
    unequal: Unequal, comparison: EagerComparison, expected: StepResult
) -> Iterator[str]:
    """Yield a line about rounding, with a tolerance if rounding explains the difference.

    If possible, the step runs once more in float64. If the difference is rounding, the eager run
    and the captured run are about equally far from the float64 run. This is valid only if all eager
    runs of the step are equal.
    """
    eager, captured, sizes = unequal.eager, unequal.captured, _sizes(unequal)
    if eager is None or captured is None or sizes is None:
        return
    largest_error, scale, resolution = sizes
    exact = _in_float64(unequal, comparison)
    if exact is None or exact.shape != eager.shape:
        return
    eager_error, captured_error = _distance(eager, exact), _distance(captured, exact)
    # Otherwise (also for NaN), the float64 run drew other random numbers or took another branch.
    if not eager_error + captured_error < 100 * largest_error:
        return
    verdict = (
        f"Compared with the same step in float64, the eager run is off by {eager_error:.3g}, and "
        f"the captured run is off by {captured_error:.3g}"
    )
    is_small = max(eager_error, captured_error) <= _ROUNDING * resolution * scale
    # As far from float64 as eager is, up to chance.
    if captured_error <= _ALIKE * eager_error and is_small:
        advice = f"Use a tolerance: assert_matches_eager(atol={_round_up(largest_error)})."
        # Do not recommend a tolerance above every value, which would also accept zeros.
        if hidden_group := _hidden_by(float(_round_up(largest_error)), expected):
            advice = (
                f"No tolerance helps, because it would exceed all {hidden_group}: scale the "
                "loss_fn so that outputs and gradients have similar sizes."
            )
        yield (
            f"{verdict}: compiled code rounds in a different order, with at most {_ALIKE} times "
            f"the error of the eager run. {advice}"
        )
    elif captured_error >= _BEYOND * eager_error:
        yield f"{verdict}: more than a different rounding order explains."
    else:
        yield f"{verdict}."


def _hidden_by(atol: float, expected: StepResult) -> str:
    """Return "outputs" or "gradients" if none of their values exceeds a tolerance, else ""."""
    for group, tensors in (("outputs", expected.outputs), ("gradients", expected.grads)):
        floats = [t for t in tensors.values() if _has_rounding(t, t) or t.dtype is torch.float64]
        if floats and all(not t.numel() or largest_value(t) <= atol for t in floats):
            return group
    return ""


def _sizes(unequal: Unequal) -> tuple[float, float, float] | None:
    """Return the largest difference, the largest value and the resolution of its dtype.

    Returns:
        `None` if a value is missing, cannot round, is zero everywhere, or is not finite.
    """
    eager, captured = unequal.eager, unequal.captured
    if eager is None or captured is None or not _has_rounding(eager, captured):
        return None
    largest_error, scale = _distance(captured, eager), largest_value(eager)
    if not (math.isfinite(largest_error) and math.isfinite(scale)) or not scale:
        return None
    return largest_error, scale, torch.finfo(eager.dtype).eps


def largest_difference(eager: StepResult, captured: StepResult) -> float:
    """Return the largest difference of any value that may round.

    It is 0 if one is not finite: nothing is then said about rounding.

    Values that only one result has are left out.
    """
    sizes = [0.0]
    for left, right in (
        (eager.outputs, captured.outputs),
        (eager.grads, captured.grads),
        (eager.state, captured.state),
    ):
        for name in left.keys() & right.keys():
            if _has_rounding(left[name], right[name]):
                sizes.append(_distance(left[name], right[name]))
    return max(sizes) if all(map(math.isfinite, sizes)) else 0.0


def _has_rounding(*tensors: torch.Tensor) -> bool:
    """Return True if tensors have one shape and a dtype below float64, which is the reference."""
    return len({tensor.shape for tensor in tensors}) == 1 and all(
        tensor.is_floating_point()
        and tensor.layout is torch.strided
        and not tensor.is_nested
        and tensor.dtype is not torch.float64
        and tensor.numel() > 0
        for tensor in tensors
    )


def _in_float64(unequal: Unequal, comparison: EagerComparison) -> torch.Tensor | None:
    """Return the value from a float64 run of the step, or `None` if it cannot run in float64."""
    with contextlib.suppress(Exception):  # for example a kernel without float64, or a dtype check
        outcome: StepResult = comparison.in_float64()
        values = {"outputs": outcome.outputs, "gradients": outcome.grads, "state": outcome.state}
        return values[unequal.what].get(unequal.name)
    return None


def _distance(left: torch.Tensor, right: torch.Tensor) -> float:
    """Return the largest absolute difference, computed in float64."""
    return largest_value(left.double() - right.double())


def largest_value(tensor: torch.Tensor) -> float:
    """Return the largest absolute value."""
    values = dense(tensor.values() if tensor.is_nested else tensor)
    # An 8-bit float has no `abs`, and a complex number loses a part as `double`.
    return float((values if values.is_complex() else values.double()).abs().max())


def dense(tensor: torch.Tensor) -> torch.Tensor:
    """Return a sparse tensor as a strided one."""
    return tensor if tensor.layout is torch.strided else tensor.to_dense()


def _round_up(value: float) -> str:
    """Return a slightly larger round number."""
    digit = 10.0 ** math.floor(math.log10(value))  # 0.001 for 0.0042, which gives 0.007
    return f"{math.ceil(1.5 * value / digit) * digit:.1g}"


Tolerance = float | Mapping[Any, Any] | None
"""A number; a mapping by device type, by dtype, or by device type and then dtype; or `None` for
torch's defaults by dtype.
"""


def tolerances(
    rtol: Tolerance, atol: Tolerance, tensor: torch.Tensor
) -> tuple[float | None, float | None]:
    """Return the relative and absolute tolerance for a tensor, both `None` for torch's defaults.

    Raises:
        TypeError: if a tolerance is neither a number nor a mapping.
        ValueError: if a mapping by device type lacks the tensor's device type, or if a number is
            negative or infinite.
    """
    relative, allowed = _tolerance_for(rtol, tensor, "rtol"), _tolerance_for(atol, tensor, "atol")
    if (relative is None) != (allowed is None):
        default_rtol, default_atol = torch_private.get("default_tolerances")(tensor.dtype)
        relative = default_rtol if relative is None else relative
        allowed = default_atol if allowed is None else allowed
    return relative, allowed


def absolute(rtol: Tolerance, atol: Tolerance, tensor: torch.Tensor) -> float:
    """Return the largest value for which zero is within the tolerance."""
    relative, allowed = tolerances(rtol, atol, tensor)
    if relative is None or allowed is None:
        relative, allowed = torch_private.get("default_tolerances")(tensor.dtype)
    # The relative tolerance is a share of the value itself: from 1 on, it includes zero.
    return math.inf if relative >= 1 else float(allowed)


def is_all_nan(tensor: torch.Tensor) -> bool:
    """Return True if all values of a non-empty tensor are NaN."""
    if tensor.is_nested or tensor.is_quantized or tensor.layout is not torch.strided:
        return False
    return bool(tensor.numel() and tensor.isnan().all())


def _tolerance_for(value: Any, tensor: torch.Tensor, name: str) -> float | None:
    """Return one tolerance for a tensor, `None` for torch's default.

    Args:
        value: the tolerance as given, see `Tolerance`.
        tensor: the tensor.
        name: "rtol" or "atol", for messages.

    Raises:
        TypeError, ValueError: see `tolerances`.
    """
    if isinstance(value, Mapping):
        dtype, device = str(tensor.dtype).removeprefix("torch."), tensor.device.type
        # A dtype decides before the device. The value for a device may be a mapping by dtype.
        for key in (tensor.dtype, dtype, str(tensor.dtype), device):
            if key in value:
                return _tolerance_for(value[key], tensor, name)
        # A mapping by device must name each device. A dtype that is missing has torch's default.
        by_dtype = {key for key in value if isinstance(key, torch.dtype) or _is_dtype(key)}
        devices = [key for key in value if key not in by_dtype]
        if devices:
            raise ValueError(
                f"missing {name} for device {device!r} (given: {', '.join(map(repr, devices))})"
            )
        return None
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise TypeError(
            f"{name}={value!r} is not a valid tolerance: pass a number, or a mapping from dtype or "
            "device to numbers"
        )
    if not value >= 0:  # also NaN
        raise ValueError(f"{name}={value!r} is not a valid tolerance: pass a number of at least 0")
    if math.isinf(value):
        raise ValueError(
            f"{name}={value!r} allows any difference, so nothing is checked: pass a finite number"
        )
    return float(value)


def _is_dtype(key: Any) -> bool:
    """Return True for the name of a dtype, with or without `torch.`."""
    name = str(key).removeprefix("torch.")
    return isinstance(getattr(torch, name, None), torch.dtype)
