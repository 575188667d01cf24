"""How much a result may differ from the eager one: by dtype, by device."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import torch

from .. import torch_private

Tolerance = float | Mapping[Any, Any] | None
"""A number; a mapping by device type, by dtype, or by device type and then dtype; None for torch's
own by dtype."""


def tolerances(
    rtol: Tolerance, atol: Tolerance, tensor: torch.Tensor
) -> tuple[float | None, float | None]:
    """The relative and the absolute tolerance for a tensor, both None for torch's own.

    Raises:
        TypeError: for what is no number and no mapping.
        ValueError: for a mapping by device type without the tensor's, or a number that is negative
            or infinite.
    """
    found = _for(rtol, tensor, "rtol"), _for(atol, tensor, "atol")
    if found.count(None) != 1:
        return found
    default = torch_private.get("default_tolerances")(tensor.dtype)
    relative, absolute = (
        own if own is not None else torchs for own, torchs in zip(found, default, strict=True)
    )
    return relative, absolute


def absolute(rtol: Tolerance, atol: Tolerance, tensor: torch.Tensor) -> float:
    """Return the size up to which zero in the place of a value is within the tolerance."""
    relative, allowed = tolerances(rtol, atol, tensor)
    if relative is None or allowed is None:
        relative, allowed = torch_private.get("default_tolerances")(tensor.dtype)
    return math.inf if relative >= 1 else float(allowed)


def is_all_nan(tensor: torch.Tensor) -> bool:
    """True for a tensor that has values, all of them NaN."""
    if tensor.is_nested or tensor.layout is not torch.strided or not tensor.numel():
        return False
    return bool(tensor.isnan().all())


def _for(value: Any, tensor: torch.Tensor, name: str) -> float | None:
    if isinstance(value, Mapping):
        dtype, device = str(tensor.dtype).removeprefix("torch."), tensor.device.type
        for key in (tensor.dtype, dtype, str(tensor.dtype), device):
            if key in value:
                return _for(value[key], tensor, name)
        by_dtype = {key for key in value if isinstance(key, torch.dtype) or _is_dtype(key)}
        devices = [key for key in value if key not in by_dtype]
        if devices:
            raise ValueError(
                f"no {name} is given for device {device!r}, on which this was captured; there is "
                f"one for {', '.join(map(repr, devices))}"
            )
        return None
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise TypeError(f"{name}={value!r} is no tolerance: a number, or a mapping of numbers")
    if not value >= 0:
        raise ValueError(f"{name}={value!r} allows nothing at all")
    if math.isinf(value):
        raise ValueError(f"{name}={value!r} allows anything, so nothing would be compared")
    return float(value)


def _is_dtype(key: Any) -> bool:
    name = str(key).removeprefix("torch.")
    return isinstance(getattr(torch, name, None), torch.dtype)
