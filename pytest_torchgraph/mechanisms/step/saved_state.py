"""The state that a step may disturb: saved before, restored after.

Parameters, gradients, buffers, arguments, what optimizers keep, random number generators, grad mode
and default dtype, and the marks that torch.compile leaves on tensors and modules.
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
from ...errors import CaptureError, add_note
from ...words import listed
from .accelerators import DeviceGenerators
from .named_tensors import NamedTensors
from .optimizers import SteppedOptimizers
from .python_state import PythonState
from .saved_tensor import LARGE, SavedTensor, storage_of

WATCH_THE_STEP = (
    "A whole training step can be watched as it is: `with graph_capture.watch() as seen: step(x)`."
)
"""What to do with a step that has its backward or its optimizer in it."""
_COMPILED = "_is_torch_compile"
"""What `torch.compile(module)` leaves in the `__dict__` of the module itself; Dynamo reads it."""


class SavedState:
    """The state that a step may disturb.

    Args:
        named: the tensors and modules of the target.
        sees_writes: True if `before_write` is called before each op that may write, so that large
            parameters need not be copied beforehand: of a step that runs eagerly that takes a
            tenth of the time.

    Attributes:
        unwritten: parameters that are not copied yet, by the number of their storage.
        random: the state of the random number generators.
        python: the attributes of the modules, which are looked at and not put back.
        optimizers: the optimizers that have stepped.
    """

    def __init__(self, named: NamedTensors, *, sees_writes: bool = False):
        self.grads: dict[int, tuple[torch.Tensor, torch.Tensor | None, SavedTensor | None]] = {}
        parameters = [(name, p) for name, p in named.all_parameters if not is_lazy(p)]
        self.lazy = [(name, p) for name, p in named.all_parameters if is_lazy(p)]
        self.unwritten: dict[int, list[SavedTensor]] = {}
        self.parameters = [
            (name, self._later(p) if sees_writes and p.nbytes > LARGE else SavedTensor(p))
            for name, p in parameters
        ]
        self.arguments = [SavedTensor(tensor) for tensor in _inputs(named)]
        self.slots = [(module, dict(module._buffers)) for _, module in named.all_modules]
        self.parameter_slots = [
            (module, dict(module._parameters))
            for _, module in named.all_modules
            if module._parameters
        ]
        self.buffers = [SavedTensor(buffer) for buffer in named.all_buffers if not is_lazy(buffer)]
        self.marks = [(tensor, _marks(tensor)) for tensor in named.all_tensors()]
        self.uncompiled = [
            module for _, module in named.all_modules if _COMPILED not in vars(module)
        ]
        self.random = RandomState(named.generators)
        self.modes = (torch.is_grad_enabled(), torch.get_default_dtype())
        self.python = PythonState(named)
        self.optimizers = SteppedOptimizers({id(p) for _, p in parameters})
        for leaf in named.leaves():
            self.set_aside(leaf)

    def _later(self, parameter: torch.Tensor) -> SavedTensor:
        """Save a parameter without a copy, until something may write to its memory."""
        storage = storage_of(parameter)
        saved = SavedTensor(parameter, copied=storage == 0)
        self.unwritten.setdefault(storage, []).append(saved)
        return saved

    def before_write(self, *values: Any) -> None:
        """Copy what has not been copied and shares memory with one of these tensors."""
        for value in values:
            if isinstance(value, torch.Tensor):
                for saved in self.unwritten.pop(storage_of(value), ()):
                    saved.copy()
            elif isinstance(value, list | tuple):
                self.before_write(*value)

    def copy_all(self) -> None:
        """Copy what has not been copied: from now on not each write is seen."""
        for some in self.unwritten.values():
            for saved in some:
                saved.copy()
        self.unwritten.clear()

    def set_aside(self, leaf: torch.Tensor) -> None:
        """Take a leaf's gradient away until the end, so that the step starts without one."""
        if id(leaf) not in self.grads:
            grad = leaf.grad
            self.grads[id(leaf)] = (leaf, grad, None if grad is None else SavedTensor(grad))
            leaf.grad = None

    def replaced_buffers(self) -> list[torch.Tensor]:
        """The tensors that modules hold now in place of buffers that they had."""
        return [
            now
            for module, before in self.slots
            for name, now in module._buffers.items()
            if now is not None and now is not before.get(name)
        ]

    def changed_parameters(self) -> list[str]:
        """The names of parameters that have another value, or another storage, than before."""
        changed = [name for name, saved in self.parameters if saved.looks_changed()]
        changed += [name for name, parameter in self.lazy if not is_lazy(parameter)]
        return changed + self.optimizers.changed_parameters()

    def restore(self, *, parameters: bool = True, keep: bool = False) -> None:
        """Give everything its former value.

        Args:
            parameters: False leaves parameters alone, which are known to be unchanged.
            keep: keep the values of buffers and arguments that are replaced, for `left`.
        """
        for leaf, grad, saved in self.grads.values():
            leaf.grad = grad
            if saved is not None and (parameters or saved.looks_changed()):
                saved.restore()
        slots = [(module._buffers, before) for module, before in self.slots]
        if parameters:
            slots += [(module._parameters, before) for module, before in self.parameter_slots]  # type: ignore[misc]
        for now, before in slots:
            if now.keys() != before.keys() or any(
                now[name] is not tensor for name, tensor in before.items()
            ):
                now.clear()
                now.update(before)
        for saved in (*self.buffers, *self.arguments):
            saved.restore(keep=keep)
        if parameters:
            for _, saved in self.parameters:
                saved.restore()
        self.optimizers.restore()
        for tensor, marks in self.marks:
            for name in _marks(tensor):
                if name not in marks:
                    delattr(tensor, name)
        for module in self.uncompiled:
            vars(module).pop(_COMPILED, None)
        self.random.restore()
        torch.set_grad_enabled(self.modes[0])
        torch.set_default_dtype(self.modes[1])

    def restored(self) -> list[torch.Tensor]:
        """The buffers and arguments, which get their former values."""
        return [saved.tensor for saved in (*self.buffers, *self.arguments)]

    def stays(self) -> str:
        """Say what the target has changed and `restore` did not put back, "" for nothing."""
        said = []
        changes = self.python.changes()
        if changes:
            shown = listed(map(str, changes))
            said.append(f"The target has changed Python values, which are not put back: {shown}")
        lost = [name for name, saved in self.parameters if saved.is_lost]
        if lost:
            said.append(
                f"Not put back: {', '.join(lost[:5])}, which something wrote to that is no op, "
                "such as numpy"
            )
        return ". ".join(said)

    def left(self) -> dict[int, torch.Tensor]:
        """The values that buffers and arguments had at the end, by id, if they were others."""
        saved = (*self.buffers, *self.arguments)
        return {id(each.tensor): each.left for each in saved if each.left is not None}

    def release(self) -> None:
        """Forget the copies: a capture keeps its step, and this with it."""
        self.parameters, self.buffers, self.arguments = [], [], []
        self.grads, self.marks, self.unwritten = {}, [], {}


@contextlib.contextmanager
def preserve_state(named: NamedTensors, *, sees_writes: bool = False) -> Iterator[SavedState]:
    """Put everything back that the step disturbs, whatever happens inside.

    An exception gets a note about Python attributes of modules that stay changed. The arguments are
    those of `SavedState`.

    Raises:
        CaptureError: if the target changed its parameters.
    """
    with torch_private.counters_restored():
        saved = SavedState(named, sees_writes=sees_writes)
        torch.clear_autocast_cache()  # a cast that an earlier call cached would be in no graph
        changed: list[str] = []
        stays = ""
        failed: BaseException | None = None
        try:
            with saved.optimizers.noted():
                yield saved
            changed = saved.changed_parameters()
        except BaseException as error:
            failed = error
            raise
        finally:
            torch.clear_autocast_cache()
            undo = failed is not None or bool(changed)
            saved.restore(parameters=undo, keep=not undo)
            if undo:
                stays = saved.stays()
                saved.release()
            if isinstance(failed, Exception) and stays not in ("", *_notes(failed)):
                add_note(failed, stays)
    if changed:
        raise CaptureError(" ".join(filter(None, (parameters_changed(changed), stays))))


def parameters_changed(names: Sequence[str]) -> str:
    """Why a target that changed these parameters is refused, and what to do."""
    shown = listed(names, 3)
    return (
        f"the target changed its parameters ({shown}), as an optimizer does, so a second run would "
        "see another model. Leave the optimizer step and the backward out of the target, and "
        "return the loss: the backward is run by itself. Parameters, gradients, buffers and the "
        "optimizer's state have their former values again; what the target did outside of torch, "
        f"such as writing files, is not undone. {WATCH_THE_STEP}"
    )


def _notes(error: BaseException) -> list[str]:
    return list(getattr(error, "__notes__", ()))


def _marks(tensor: torch.Tensor) -> list[str]:
    """The attributes by which Dynamo notes on a tensor which sizes are dynamic."""
    return [name for name in vars(tensor) if name.startswith("_dynamo")]


def _inputs(named: NamedTensors) -> list[torch.Tensor]:
    found: dict[int, torch.Tensor] = {}
    for _, tensor in named.inputs:
        if not isinstance(tensor, torch.nn.Parameter):
            found.setdefault(id(tensor), tensor)
    return list(found.values())


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
