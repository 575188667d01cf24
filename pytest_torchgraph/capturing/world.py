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
    versions = [(name, p, _version(p), p.data_ptr()) for name, p in parameters]
    grads = [(leaf, leaf.grad) for leaf in roots.leaves()]
    buffers = _Buffers(roots)
    arguments = [(tensor, _version(tensor), tensor.detach().clone()) for tensor in _inputs(roots)]
    with _random_state(), torch_private.counters_restored():
        try:
            for leaf, _ in grads:
                leaf.grad = None
            yield
        finally:
            for leaf, grad in grads:
                leaf.grad = grad
            buffers.restore()
            for tensor, version, value in arguments:
                _restore(tensor, version, value)
    changed = [
        name
        for name, p, version, where in versions
        if _version(p) != version or p.data_ptr() != where
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


def _version(tensor: torch.Tensor) -> int:
    """The in-place version; inference tensors have none."""
    return -1 if tensor.is_inference() else tensor._version


def _restore(tensor: torch.Tensor, version: int, value: torch.Tensor) -> None:
    if version != -1 and _version(tensor) == version:
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
                        self.values.append((buffer, _version(buffer), value))

    def restore(self) -> None:
        for module, name, buffer in self.slots:
            if module._buffers.get(name) is not buffer:
                module._buffers[name] = buffer
        for buffer, version, value in self.values:
            _restore(buffer, version, value)


@contextlib.contextmanager
def _random_state() -> Iterator[None]:
    python = random.getstate()
    numpy = sys.modules.get("numpy.random")
    legacy = numpy.get_state() if numpy is not None else None
    host = torch.get_rng_state()
    started = torch.cuda.is_initialized()  # type: ignore[no-untyped-call]
    cuda = torch.cuda.get_rng_state_all() if started else None
    try:
        yield
    finally:
        random.setstate(python)
        if numpy is not None:
            numpy.set_state(legacy)
        torch.set_rng_state(host)
        if cuda is not None:
            torch.cuda.set_rng_state_all(cuda)
