"""The optimizers that step while a target runs, put back to what they were before."""

from __future__ import annotations

import contextlib
import copy
import gc
from collections.abc import Iterator
from typing import Any

import torch
from torch.optim.optimizer import Optimizer, register_optimizer_step_pre_hook

from ... import torch_private
from .saved_tensor import SavedTensor

_open: list[SteppedOptimizers] = []
"""Those that are to be noted when an optimizer steps, the innermost last."""


class SteppedOptimizers:
    """State and settings of each optimizer as they were before its first step.

    A capture rarely meets an optimizer, so nothing is looked for beforehand.

    Args:
        parameters: ids of the parameters that are saved already.
    """

    def __init__(self, parameters: set[int]):
        self._known = parameters
        self._saved: dict[int, _SavedOptimizer] = {}

    @contextlib.contextmanager
    def noted(self) -> Iterator[None]:
        """Note each optimizer that steps inside."""
        handle = register_optimizer_step_pre_hook(_before_step)
        _open.append(self)
        try:
            yield
        finally:
            _open.remove(self)
            handle.remove()

    def note(self, optimizer: Optimizer) -> None:
        """Save an optimizer that is about to step, unless it has stepped before."""
        if id(optimizer) not in self._saved:
            # Copies are no ops of the target, and torch.export's modes would make fake ones.
            with torch_private.get("without_modes")():
                self._saved[id(optimizer)] = _SavedOptimizer(optimizer, self._known)

    def changed_parameters(self) -> list[str]:
        """Names of the parameters that no module of the target has and that were changed."""
        return [
            f"parameter {number} of {type(saved.optimizer).__name__}"
            for saved in self._saved.values()
            for number, parameter in saved.parameters
            if parameter.looks_changed()
        ]

    def restore(self) -> None:
        """Give each optimizer its former state."""
        for saved in self._saved.values():
            saved.restore()


class _SavedOptimizer:
    """One optimizer: its state, its groups, its attributes, and parameters of nobody else."""

    def __init__(self, optimizer: Optimizer, known: set[int]):
        self.optimizer = optimizer
        self.groups = [(group, _saved(group)) for group in optimizer.param_groups]
        self.state = {key: (value, _saved(value)) for key, value in optimizer.state.items()}
        self.attributes = {
            name: value
            for name, value in vars(optimizer).items()
            if name not in ("state", "param_groups")
        }
        parameters = (p for group in optimizer.param_groups for p in group["params"])
        self.parameters = [
            (number, SavedTensor(p)) for number, p in enumerate(parameters) if id(p) not in known
        ]

    def restore(self) -> None:
        optimizer = self.optimizer
        optimizer.param_groups[:] = [_restored(*group) for group in self.groups]
        optimizer.state.clear()
        optimizer.state.update({key: _restored(*saved) for key, saved in self.state.items()})
        for name in vars(optimizer).keys() - self.attributes.keys() - {"state", "param_groups"}:
            delattr(optimizer, name)
        vars(optimizer).update(self.attributes)
        for _, parameter in self.parameters:
            parameter.restore()


def _saved(values: Any) -> Any:
    """Copy the state of a parameter, or a group: tensors with their values, lists and dicts."""
    if isinstance(values, torch.nn.Parameter):
        return values
    if isinstance(values, torch.Tensor):
        return SavedTensor(values)
    if isinstance(values, dict):
        return {key: _saved(value) for key, value in values.items()}
    if isinstance(values, list):
        return [_saved(value) for value in values]
    return copy.copy(values)


def _restored(now: Any, saved: Any) -> Any:
    """Give a value that `_saved` copied back, in the same object where that can be changed."""
    if isinstance(saved, SavedTensor):
        saved.restore()
        return saved.tensor
    if isinstance(saved, dict):
        values = {key: _restored(now.get(key), value) for key, value in saved.items()}
        now = now if isinstance(now, dict) else {}
        now.clear()
        now.update(values)
        return now
    if isinstance(saved, list):
        return [_restored(None, value) for value in saved]
    return saved


def _before_step(optimizer: Optimizer, _args: Any, _kwargs: Any) -> None:
    """Called by torch before each step; Dynamo traces into it where it compiles the step."""
    if torch.compiler.is_compiling():
        note_all()
    else:
        for opened in _open:
            opened.note(optimizer)


def note_all() -> None:
    """Note all optimizers that there are.

    Dynamo runs this while it traces, where an optimizer is no argument that it can pass: already
    tracing a step makes the state that the step needs.
    """
    # `isinstance` would ask weak proxies, which raise if what they stand for is gone.
    alive = [value for value in gc.get_objects() if issubclass(type(value), Optimizer)]
    for opened in _open:
        for optimizer in alive:
            opened.note(optimizer)
