"""The state that a step may disturb: saved before, restored after.

Gradients, buffers, arguments, random number generators, grad mode and default dtype, and the marks
that Dynamo leaves on tensors. Parameters are checked, not restored.
"""

from __future__ import annotations

import contextlib
import random
import sys
from collections.abc import Iterator, Sequence
from typing import Any

import torch
from torch.nn.parameter import is_lazy

from ... import torch_private
from ...errors import CaptureError
from .accelerators import DeviceGenerators
from .named_tensors import NamedTensors

LARGE = 2**20
"""Of tensors with more bytes than this only a part is summed up, to see whether they changed."""
LINE = 64
"""Bytes that are summed up at a time: a cache line, since reading less of one is no faster."""
EVERY = 17
"""Of so many lines one is summed up. Odd, so that the columns of a matrix whose rows are a power of
two long take turns."""

WATCH_THE_STEP = (
    "A whole training step can be watched as it is: `with graph_capture.watch() as seen: step(x)`."
)
"""What to do with a step that has its backward or its optimizer in it."""


class SavedState:
    """The state that a step may disturb: gradients, buffers, arguments, modes, generators.

    Values are compared, not only their version counters: `.data`, numpy and some kernels write
    without counting.
    """

    def __init__(self, named: NamedTensors):
        self.grads: dict[int, tuple[torch.Tensor, torch.Tensor | None]] = {}
        self.parameters = [(name, p, _fingerprint(p)) for name, p in named.all_parameters]
        self.arguments = [_Saved(tensor) for tensor in _inputs(named)]
        self.slots = [(module, dict(module._buffers)) for _, module in named.all_modules]
        self.buffers = [_Saved(buffer) for buffer in named.all_buffers if not is_lazy(buffer)]
        self.marks = [(tensor, _marks(tensor)) for tensor in named.all_tensors()]
        self.random = RandomState(named.generators)
        self.modes = (torch.is_grad_enabled(), torch.get_default_dtype())
        for leaf in named.leaves():
            self.set_aside(leaf)

    def set_aside(self, leaf: torch.Tensor) -> None:
        """Take a leaf's gradient away until the end, so that the step starts without one."""
        if id(leaf) not in self.grads:
            self.grads[id(leaf)] = (leaf, leaf.grad)
            leaf.grad = None

    def replaced_buffers(self) -> list[torch.Tensor]:
        """The tensors that modules hold now in place of buffers that they had."""
        return [
            now
            for module, before in self.slots
            for name, now in module._buffers.items()
            if now is not None and now is not before.get(name)
        ]

    def restore(self) -> None:
        """Give everything its former value."""
        for leaf, grad in self.grads.values():
            leaf.grad = grad
        for module, before in self.slots:
            if module._buffers.keys() != before.keys() or any(
                module._buffers[name] is not buffer for name, buffer in before.items()
            ):
                module._buffers.clear()
                module._buffers.update(before)
        for saved in (*self.buffers, *self.arguments):
            saved.restore()
        for tensor, marks in self.marks:
            for name in _marks(tensor):
                if name not in marks:
                    delattr(tensor, name)
        self.random.restore()
        torch.set_grad_enabled(self.modes[0])
        torch.set_default_dtype(self.modes[1])

    def changed_parameters(self) -> list[str]:
        """The names of parameters that have another value, or another storage, than before."""
        return [name for name, p, before in self.parameters if _fingerprint(p) != before]


@contextlib.contextmanager
def preserve_state(named: NamedTensors) -> Iterator[SavedState]:
    """Put everything back that the step disturbs, whatever happens inside.

    Raises:
        CaptureError: if the target changed its parameters, which is not undone.
    """
    with torch_private.counters_restored():
        saved = SavedState(named)
        torch.clear_autocast_cache()  # a cast that an earlier call cached would be in no graph
        try:
            yield saved
        finally:
            torch.clear_autocast_cache()
            saved.restore()
    changed = saved.changed_parameters()
    if changed:
        raise CaptureError(parameters_changed(changed))


def parameters_changed(names: Sequence[str]) -> str:
    """Why a target that changed these parameters is refused, and what to do."""
    shown = ", ".join(names[:3]) + (f" and {len(names) - 3} more" if names[3:] else "")
    return (
        f"the target changed its parameters ({shown}), as an optimizer does, so a second run would "
        "see another model. Leave the optimizer step and the backward out of the target, and "
        f"return the loss: the backward is run by itself. {WATCH_THE_STEP}"
    )


class _Saved:
    """A tensor and a copy of its value."""

    def __init__(self, tensor: torch.Tensor):
        self.tensor = tensor
        self.value = tensor.detach().clone()
        self.requires_grad = tensor.requires_grad
        self.version = version(tensor)

    def restore(self) -> None:
        tensor, value = self.tensor, self.value
        if tensor.is_leaf and tensor.requires_grad != self.requires_grad:
            tensor.requires_grad_(self.requires_grad)
        with torch.inference_mode(tensor.is_inference()), torch.no_grad():
            if _same_form(tensor, value):
                if not _same_value(tensor, value):
                    tensor.detach().copy_(value)
            else:
                tensor.data = value
        if self.version != -1 and version(tensor) != self.version:
            # A graph that saved the tensor before stays valid: it holds the same value again.
            torch_private.get("set_version_counter")((tensor,), (self.version,))


def _same_form(a: torch.Tensor, b: torch.Tensor) -> bool:
    return a.layout == b.layout and a.dtype == b.dtype and tuple(a.shape) == tuple(b.shape)


def _same_value(a: torch.Tensor, b: torch.Tensor) -> bool:
    if torch_private.is_fake(a) or a.is_meta or a.layout is not torch.strided or a.is_quantized:
        return False
    if a.is_nested:
        return False
    return torch.equal(a.detach(), b)


def _fingerprint(tensor: torch.Tensor) -> tuple[Any, ...]:
    """A fingerprint of a parameter: version, storage, and a sum over its bits."""
    if is_lazy(tensor):
        return ()
    return version(tensor), _storage(tensor), _bits(tensor)


def _bits(tensor: torch.Tensor) -> int:
    """A sum over the bits, of a large tensor over one of `EVERY` lines.

    It is there for writes that count no version, as old optimizers make through `.data`; other ones
    are found by the version. So it need not find every change of a single element.
    """
    if torch_private.is_fake(tensor) or tensor.is_meta or tensor.layout is not torch.strided:
        return 0
    try:
        raw = tensor.detach().contiguous()
        if raw.dim() == 0 or raw.shape[-1] * raw.itemsize % 8:
            raw = raw.view(-1)
        row = raw.shape[-1] * raw.itemsize
        for wide in (torch.int64, torch.int32):  # narrow ones are converted first, 12 times slower
            if row % wide.itemsize == 0:
                raw = raw.view(wide)
                break
        else:
            raw = raw.view(torch.uint8)
        if raw.nbytes > LARGE:
            raw = raw.view(-1)
            line = LINE // raw.itemsize
            block = EVERY * line
            rows = raw[: raw.numel() // block * block].view(-1, block)
            raw = rows[:, :line]
        return int(raw.sum())
    except RuntimeError:  # a dtype or subclass without bits of its own
        return 0


def _marks(tensor: torch.Tensor) -> list[str]:
    """The attributes by which Dynamo notes on a tensor which sizes are dynamic."""
    return [name for name in vars(tensor) if name.startswith("_dynamo")]


def _inputs(named: NamedTensors) -> list[torch.Tensor]:
    found: dict[int, torch.Tensor] = {}
    for _, tensor in named.inputs:
        if not isinstance(tensor, torch.nn.Parameter):
            found.setdefault(id(tensor), tensor)
    return list(found.values())


def _storage(tensor: torch.Tensor) -> int:
    """Which storage a tensor has; unlike its address, fake tensors have one as well."""
    try:
        return int(tensor.untyped_storage()._cdata)
    except (NotImplementedError, RuntimeError):
        return 0


def version(tensor: torch.Tensor) -> int:
    """The in-place version; inference tensors have none."""
    return -1 if is_lazy(tensor) or tensor.is_inference() else tensor._version


class RandomState:
    """The state of every random number generator that a model may draw from, at one moment."""

    def __init__(self, generators: list[torch.Generator] | None = None) -> None:
        self.python = random.getstate()
        self.numpy = sys.modules.get("numpy.random")
        self.legacy = self.numpy.get_state() if self.numpy is not None else None
        self.host = torch.get_rng_state()
        self.devices = DeviceGenerators()
        self.own = [(generator, generator.get_state()) for generator in generators or []]

    def restore(self) -> None:
        """Set the generators to this state."""
        random.setstate(self.python)
        if self.numpy is not None:
            self.numpy.set_state(self.legacy)
        torch.set_rng_state(self.host)
        self.devices.restore()
        for generator, state in self.own:
            generator.set_state(state)
