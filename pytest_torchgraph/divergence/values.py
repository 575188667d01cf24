"""Comparison of values, and the limits of a search: memory and time."""

from __future__ import annotations

import math
import time
from typing import Any, TypeGuard

import torch
import torch.utils._pytree as pytree

from ..mechanisms.step import LOWER_DTYPES, cast_to_float64

_CLOSE = {torch.bfloat16: 0.03, torch.float16: 0.005, torch.float32: 2e-4}
"""Maximum distance of two runs due to rounding, relative to the largest value, by dtype."""
_SAMPLES = 4096
"""Maximum number of elements that a sketch reads, evenly spaced."""
_WEIGHTS: list[torch.Tensor] = []
"""The weights of a sketch, as the only item once they are needed."""


def is_dense(value: Any) -> TypeGuard[torch.Tensor]:
    """Return True for a strided tensor of real numbers that has elements."""
    return (
        isinstance(value, torch.Tensor)
        and value.layout is torch.strided
        and not value.is_complex()
        and not value.is_nested
        and value.numel() > 0
    )


def copied_value(value: Any) -> Any:
    """Copy the tensors in a value."""
    return pytree.tree_map_only(torch.Tensor, lambda t: t.detach().clone(), value)


def in_double(value: Any) -> Any:
    """Cast the tensors in a value, and dtype arguments, to float64."""
    return pytree.tree_map(cast_to_float64, value)


def jittered(value: Any) -> Any:
    """Cast a value to float64, and change each number by at most half of its resolution."""

    def move(leaf: Any) -> Any:
        if not isinstance(leaf, torch.Tensor) or leaf.dtype not in LOWER_DTYPES:
            return leaf
        # Always the same numbers, so that a judgement does not depend on earlier ones.
        drawn = torch.Generator().manual_seed(leaf.numel())
        share = torch.rand(leaf.shape, generator=drawn, dtype=torch.float64) - 0.5
        return leaf.double() * (1 + share * torch.finfo(leaf.dtype).eps)

    return pytree.tree_map(move, value)


def is_same(left: torch.Tensor, right: torch.Tensor) -> bool:
    """Return True if two tensors have the same dtype, shape and values. NaN equals NaN."""
    if left.dtype != right.dtype or left.shape != right.shape:
        return False
    if torch.equal(left, right):
        return True
    if not left.is_floating_point():
        return False
    return bool(((left == right) | (left.isnan() & right.isnan())).all())


def distance(left: torch.Tensor, right: torch.Tensor) -> float:
    """Return the largest absolute difference, infinity if only one of two numbers is finite."""
    a, b = left.double(), right.double()
    # The difference of two infinities, or two NaNs, is NaN.
    is_equal = (a == b) | (a.isnan() & b.isnan())
    differences = (a - b).abs().masked_fill(is_equal, 0)
    differences = differences.nan_to_num(nan=math.inf, posinf=math.inf)
    return float(differences.max()) if differences.numel() else 0.0


def scale(value: torch.Tensor) -> float:
    """Return the largest finite absolute value, 0 if there is none."""
    sizes = value.double().abs()
    sizes = sizes[sizes.isfinite()]
    return float(sizes.max()) if sizes.numel() else 0.0


def closeness(dtype: torch.dtype) -> float:
    """Return the maximum distance of two runs of one formula, relative to the largest value."""
    return _CLOSE.get(dtype, 1e-7)


def is_close(left: torch.Tensor, right: torch.Tensor) -> bool:
    """Return True if two tensors are equal up to rounding."""
    if left.shape != right.shape:
        return False
    if is_same(left, right):
        return True
    if not (left.is_floating_point() and right.is_floating_point()):
        return left.dtype == right.dtype and bool((left == right).all())
    # The value with fewer bits has rounded more.
    coarse = left.dtype if left.itemsize <= right.itemsize else right.dtype
    return distance(left, right) <= closeness(coarse) * max(scale(left), scale(right))


def is_uniform(value: torch.Tensor) -> bool:
    """Return True if all elements are equal. Two such tensors may agree by chance."""
    return bool((value == value.reshape(-1)[0]).all())


def sketch(value: torch.Tensor) -> tuple[float, float]:
    """Return two numbers that are close for close tensors: a weighted sum and the norm."""
    if not _WEIGHTS:
        drawn = torch.Generator().manual_seed(7)
        _WEIGHTS.append(torch.randn(_SAMPLES, generator=drawn, dtype=torch.float64))
    flat = value.reshape(-1)
    flat = flat[:: max(1, value.numel() // _SAMPLES)][:_SAMPLES].double().nan_to_num(0, 0, 0)
    return float(flat @ _WEIGHTS[0][: flat.numel()]), float(flat.norm())


def format_statistics(value: torch.Tensor) -> str:
    """Return the statistics of a value for a message."""
    numbers = value.double()
    low, high, mean = float(numbers.min()), float(numbers.max()), float(numbers.mean())
    return f"{low:.6g} to {high:.6g}, mean {mean:.6g}"


MOST_BYTES = 2**31
"""Maximum bytes of the values that a search keeps, over all graphs."""


class NotFollowedError(Exception):
    """The search cannot continue. The message is the reason, and completes "because ..."."""


class Budget:
    """The remaining limits of one search, over all its runs.

    Args:
        seconds: time limit of the search; `None` for no limit.
    """

    def __init__(self, seconds: float | None):
        self._seconds = seconds
        self._end = None if seconds is None else time.monotonic() + seconds
        self._bytes = 0

    def check(self) -> None:
        """Raise if the time is up.

        Raises:
            NotFollowedError: if the time is up.
        """
        if self._end is not None and time.monotonic() > self._end:
            raise NotFollowedError(
                f"the time limit (torchgraph_divergence = {self._seconds:g} seconds) was reached"
            )

    def keep(self, size: int) -> None:
        """Count the bytes of a kept value.

        Raises:
            NotFollowedError: if the values are too large.
        """
        self._bytes += size
        if self._bytes > MOST_BYTES:
            raise NotFollowedError(
                f"the values of the graphs need more than {MOST_BYTES / 2**30:g} GiB: try a "
                "smaller input or fewer layers"
            )
