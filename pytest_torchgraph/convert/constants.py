"""The values of small constant tensors, which are code and no data: an index list, a mask value."""

from __future__ import annotations

from typing import Any

import torch

from .. import torch_private
from ..graph.model import Arg

MAX_ELEMENTS = 64
"""The most elements of a constant whose value is kept."""
DIGITS = 5
"""The significant digits of floats: further ones differ between machines."""


def value_of_constant(tensor: Any) -> tuple[Arg, ...]:
    """Return the value of a constant tensor as the only item; empty if unknown or too large.

    Fake tensors and tensors on the meta device have no value.
    """
    if type(tensor) not in (torch.Tensor, torch.nn.Parameter) or tensor.device.type == "meta":
        return ()
    if tensor.layout is not torch.strided or tensor.numel() > MAX_ELEMENTS or tensor.is_quantized:
        return ()
    try:
        with torch_private.get("without_modes")():  # while AOTAutograd compiles, all would be fake
            return (rounded(_numbers(tensor.detach())),)
    except (RuntimeError, NotImplementedError):  # a dtype without Python numbers
        return ()


def _numbers(tensor: torch.Tensor) -> Any:
    """Do what `tolist` does, which a capture takes for a host sync of the target's."""
    return tensor.item() if tensor.dim() == 0 else [_numbers(row) for row in tensor.unbind()]


def rounded(value: Any) -> Any:
    """The value with its floats rounded, its lists as tuples."""
    if isinstance(value, list | tuple):
        return tuple(map(rounded, value))
    if isinstance(value, float):
        return float(f"{value:.{DIGITS - 1}e}")
    if isinstance(value, complex):
        return complex(rounded(value.real), rounded(value.imag))
    return value
