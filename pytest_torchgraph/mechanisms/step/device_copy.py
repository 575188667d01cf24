"""Copies of a target and its arguments on another device."""

from __future__ import annotations

import copy
import functools
import inspect
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import torch
import torch.utils._pytree as pytree

from ...errors import CaptureError
from .invocation import Invocation
from .named_tensors import NamedTensors


def to_device(invocation: Invocation, device: torch.device) -> Invocation:
    """An invocation of copies of target and arguments on `device`; the originals stay there.

    What is one tensor has one copy: attention takes other ways where query and key are the same.

    Raises:
        CaptureError: if the device is not there, or the target is a function over a module
            elsewhere, which cannot be copied.
    """
    try:
        torch.empty(0, device=device)
    except (AssertionError, RuntimeError) as error:
        raise CaptureError(f"device={str(device)!r} is not there: {error}") from None

    copies: dict[int, Any] = {}

    def move(value: Any) -> Any:
        if not isinstance(value, torch.Tensor):
            return value
        if id(value) not in copies:
            moved = value.detach().to(device, copy=True)
            copies[id(value)] = moved.requires_grad_() if value.requires_grad else moved
        return copies[id(value)]

    def module(value: torch.nn.Module) -> torch.nn.Module:
        moved = copy.deepcopy(value).to(device)
        for each in (torch.nn.Module.parameters, torch.nn.Module.buffers):
            pairs = zip(each(value), each(moved), strict=True)
            copies.update((id(original), copied) for original, copied in pairs)
        return moved

    target = _moved_target(invocation.target, device, move, module)
    args, kwargs = pytree.tree_map(move, (invocation.args, invocation.kwargs))
    return replace(invocation, target=target, args=args, kwargs=kwargs)


def _moved_target(
    target: Any,
    device: torch.device,
    move: Callable[[Any], Any],
    module: Callable[[torch.nn.Module], torch.nn.Module],
) -> Any:
    if isinstance(target, torch.nn.Module):
        return module(target)
    if isinstance(target, functools.partial):
        function = _moved_target(target.func, device, move, module)
        args, keywords = pytree.tree_map(move, (target.args, target.keywords))
        return functools.partial(function, *args, **keywords)
    if inspect.ismethod(target) and isinstance(target.__self__, torch.nn.Module):
        return getattr(module(target.__self__), target.__name__)
    parameters = NamedTensors(target, (), {}).all_parameters
    elsewhere = {parameter.device.type for _, parameter in parameters} - {device.type}
    if elsewhere:
        raise CaptureError(
            f"device={str(device)!r}: the target is a function over a module on "
            f"{', '.join(sorted(elsewhere))}, which cannot be copied. Pass the module itself, its "
            "bound method, or a functools.partial of it."
        )
    return target
