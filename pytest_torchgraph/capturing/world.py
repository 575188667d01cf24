"""What a capture must leave as it found it, saved before and put back after."""

from __future__ import annotations

import contextlib
import random
import sys
from collections.abc import Iterator
from typing import Any

import torch

from .. import torch_private
from ..errors import CaptureError
from .roots import Roots


@contextlib.contextmanager
def preserved(roots: Roots) -> Iterator[None]:
    """Put back RNG state, `.grad`, buffers and tensor arguments, whatever happens inside.

    Raises:
        CaptureError: if the target changed its parameters, which is not undone.
    """
    parameters = list(roots.parameters())
    seen = [(name, p, version(p), p.data_ptr()) for name, p in parameters]
    grads = [(leaf, leaf.grad) for leaf in roots.leaves()]
    buffers = _Buffers(roots)
    arguments = [(tensor, version(tensor), tensor.detach().clone()) for tensor in _inputs(roots)]
    with _random_state(), torch_private.counters_restored():
        try:
            for leaf, _ in grads:
                leaf.grad = None
            yield
        finally:
            for leaf, grad in grads:
                leaf.grad = grad
            buffers.restore()
            for tensor, before, value in arguments:
                _restore(tensor, before, value)
    changed = [
        name for name, p, before, where in seen if version(p) != before or p.data_ptr() != where
    ]
    if changed:
        shown = ", ".join(changed[:3]) + (f" and {len(changed) - 3} more" if changed[3:] else "")
        raise CaptureError(
            f"the target changed its parameters ({shown}), so a second capture would see another "
            "model. Leave the optimizer step out of the target; graph_capture runs the backward "
            "pass by itself."
        )


def _inputs(roots: Roots) -> list[torch.Tensor]:
    found: dict[int, torch.Tensor] = {}
    for _, tensor in roots.inputs:
        if not isinstance(tensor, torch.nn.Parameter):
            found.setdefault(id(tensor), tensor)
    return list(found.values())


def version(tensor: torch.Tensor) -> int:
    """The in-place version; inference tensors have none."""
    return -1 if tensor.is_inference() else tensor._version


def _restore(tensor: torch.Tensor, before: int, value: torch.Tensor) -> None:
    if before != -1 and version(tensor) == before:
        return
    with torch.inference_mode(tensor.is_inference()), torch.no_grad():
        tensor.detach().copy_(value)


class _Buffers:
    def __init__(self, roots: Roots):
        self.slots: list[tuple[torch.nn.Module, str, Any]] = []
        self.values: list[tuple[torch.Tensor, int, torch.Tensor]] = []
        seen: set[int] = set()
        for _, root in roots.found:
            for module in root.modules():
                for name, buffer in module._buffers.items():
                    self.slots.append((module, name, buffer))
                    if buffer is not None and id(buffer) not in seen:
                        seen.add(id(buffer))
                        value = buffer.detach().clone()
                        self.values.append((buffer, version(buffer), value))

    def restore(self) -> None:
        for module, name, buffer in self.slots:
            if module._buffers.get(name) is not buffer:
                module._buffers[name] = buffer
        for buffer, before, value in self.values:
            _restore(buffer, before, value)


class RandomState:
    """The state of every random number generator that a model may draw from, at one moment."""

    def __init__(self) -> None:
        self.python = random.getstate()
        self.numpy = sys.modules.get("numpy.random")
        self.legacy = self.numpy.get_state() if self.numpy is not None else None
        self.host = torch.get_rng_state()
        started = torch.cuda.is_initialized()  # type: ignore[no-untyped-call]
        self.cuda = torch.cuda.get_rng_state_all() if started else None

    def put_back(self) -> None:
        """Set the generators to this state."""
        random.setstate(self.python)
        if self.numpy is not None:
            self.numpy.set_state(self.legacy)
        torch.set_rng_state(self.host)
        if self.cuda is not None:
            torch.cuda.set_rng_state_all(self.cuda)


@contextlib.contextmanager
def _random_state() -> Iterator[None]:
    state = RandomState()
    try:
        yield
    finally:
        state.put_back()
