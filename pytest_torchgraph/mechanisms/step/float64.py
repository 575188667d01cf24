"""A step in float64: what an eager run and a captured one would give but for rounding."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
import torch.utils._pytree as pytree
from torch.overrides import TorchFunctionMode

from .step import Step

_LESS = (torch.float32, torch.float16, torch.bfloat16)
_TO_LESS = (torch.Tensor.float, torch.Tensor.half, torch.Tensor.bfloat16)


def in_float64(step: Step) -> None:
    """Run a step with each function of torch's in float64, parameters and arguments as they are.

    The gradients of leaves have the dtypes of the leaves, since autograd rounds them at the end.
    """
    with _InFloat64():
        step.run()


class _InFloat64(TorchFunctionMode):
    """Casts the arguments of each function, and the dtypes that are asked for.

    What writes in place into a tensor that is no float64 is left alone: the caller has that tensor.
    """

    def __torch_function__(
        self,
        func: Callable[..., Any],
        types: Sequence[type],
        args: Sequence[Any] = (),
        kwargs: dict[str, Any] | None = None,
    ) -> Any:
        kwargs = kwargs or {}
        name = getattr(func, "__name__", "")
        if name in ("__get__", "__set__") or (name.endswith("_") and _is_less(args[:1])):
            return func(*args, **kwargs)
        if func in _TO_LESS:
            func = torch.Tensor.double
        args, kwargs = pytree.tree_map(_cast, (tuple(args), kwargs))
        return func(*args, **kwargs)


def _is_less(values: Sequence[Any]) -> bool:
    return any(isinstance(each, torch.Tensor) and each.dtype in _LESS for each in values)


def _cast(value: Any) -> Any:
    if isinstance(value, torch.Tensor) and value.dtype in _LESS:
        return value.double()
    if isinstance(value, torch.dtype) and value in _LESS:
        return torch.float64
    return value
