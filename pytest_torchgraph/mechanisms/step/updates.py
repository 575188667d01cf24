"""The state that a training step may change: what `updates=` names.

Every named object gets a kind, and its tensors get names: `optimizer.state.fc.weight.exp_avg`. The
state is saved before the warm-up and restored bitwise after the step.
"""

from __future__ import annotations

import copy
from collections import Counter, deque
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import torch
from torch.optim import Optimizer
from torch.optim.lr_scheduler import LRScheduler

from ... import torch_private
from ...errors import CaptureError
from .named_tensors import is_generator
from .python_state import state_of
from .saved_tensor import SavedTensor, same_bits

_WITH_STATE = (Optimizer, LRScheduler, torch.amp.GradScaler)
"""Classes of torch whose attributes are their state."""
_DEPTH = 6
"""Maximum nesting depth of tensors in the state of an object."""


class Updates:
    """The objects of `updates=`, by kind and number.

    Attributes:
        objects: each object with its name: `optimizer`, then `optimizer_1`.
        modules: each named module, with the prefix of its parameters' names.
        parameters: each parameter of the named modules and optimizers by id, with its name.
        trained: the parameters of the named modules, with their names.

    Raises:
        TypeError: if `updates` is empty, or contains an object without restorable state.
    """

    def __init__(self, updates: Any):
        objects = updates if isinstance(updates, tuple) else (updates,)
        if not objects:
            raise TypeError(
                "updates=() names nothing: name what the step changes, (model, optimizer)"
            )
        self.objects: list[tuple[str, Any]] = []
        counts: Counter[str] = Counter()
        for value in objects:
            value = torch_private.uncompiled(value) if isinstance(value, torch.nn.Module) else value
            kind = _kind_of(value)
            number = counts[kind]
            counts[kind] += 1
            self.objects.append((f"{kind}_{number}" if number else kind, value))
        self.modules = [
            ("" if name == "module" else name, value)
            for name, value in self.objects
            if isinstance(value, torch.nn.Module)
        ]
        self.parameters: dict[int, tuple[str, torch.Tensor]] = {}
        for prefix, module in self.modules:
            for name, parameter in module.named_parameters(prefix=prefix):
                name = ".".join(part for part in name.split(".") if part != "_orig_mod")
                self.parameters.setdefault(id(parameter), (name, parameter))
        self.trained = list(self.parameters.values())
        for name, optimizer in self.optimizers():
            for place, group in enumerate(optimizer.param_groups):
                for number, parameter in enumerate(group["params"]):
                    path = f"{name}.param_groups.{place}.params.{number}"
                    self.parameters.setdefault(id(parameter), (path, parameter))

    def optimizers(self) -> Iterator[tuple[str, Optimizer]]:
        """Yield the named optimizers."""
        for name, value in self.objects:
            if isinstance(value, Optimizer):
                yield name, value

    def generators(self) -> list[Any]:
        """Return the named random generators."""
        return [value for name, value in self.objects if name.partition("_")[0] == "generator"]

    def covers(self, optimizer: Optimizer) -> bool:
        """Return True if an optimizer, or a wrapper with the same state, is named."""
        return any(own is optimizer or own.state is optimizer.state for _, own in self.optimizers())

    def leaves(self) -> list[torch.Tensor]:
        """Return the parameters that may get gradients."""
        return [parameter for _, parameter in self.parameters.values()]

    def tensors(self) -> Iterator[tuple[str, torch.Tensor]]:
        """Yield the tensors that the objects hold now, without parameters and buffers, by name."""
        for name, value in self.objects:
            if isinstance(value, torch.Tensor):
                yield name, value
            elif isinstance(value, torch.nn.Module) or is_generator(value, torch.Generator):
                continue
            else:
                yield from self._inside(name, _members(value), 0)

    def _inside(self, path: str, value: Any, depth: int) -> Iterator[tuple[str, torch.Tensor]]:
        if isinstance(value, torch.Tensor):
            if id(value) not in self.parameters:
                yield path, value
            return
        items: list[tuple[Any, Any]] = []
        if isinstance(value, Mapping):
            items = [*value.items()]
        elif isinstance(value, list | tuple | deque):
            items = [*enumerate(value)]
        elif isinstance(value, LRScheduler):
            items = [*vars(value).items()]
        for number, (key, item) in enumerate(items if depth < _DEPTH else ()):
            if isinstance(key, torch.Tensor):
                key = self.parameters.get(id(key), (str(number), key))[0]
            elif not isinstance(key, str):
                key = str(number)  # an id of a process
            yield from self._inside(f"{path}.{key.lstrip('_')}", item, depth + 1)

    def step_counts(self) -> list[torch.Tensor]:
        """Return the step counts that torch's optimizers keep on the CPU and read as numbers."""
        counts = []
        for _, optimizer in self.optimizers():
            bases = type(optimizer).__mro__[: type(optimizer).__mro__.index(Optimizer)]
            if not any(base.__module__.startswith("torch.") for base in bases):
                continue
            for group in optimizer.param_groups:
                if group.get("capturable") or group.get("fused"):
                    continue
                for parameter in group["params"]:
                    count = optimizer.state.get(parameter, {}).get("step")
                    if isinstance(count, torch.Tensor) and count.is_cpu:
                        counts.append(count)
        return counts

    def numbers(self) -> Iterator[tuple[str, float]]:
        """Yield the Python numbers in the state, with their names."""
        for name, value in self.objects:
            if isinstance(value, Optimizer):
                for place, group in enumerate(value.param_groups):
                    for key, item in group.items():
                        yield from _numbers(f"{name}.param_groups.{place}.{key}", item)
                for number, (parameter, state) in enumerate(value.state.items()):
                    owner = self.parameters.get(id(parameter), (str(number), parameter))[0]
                    for key, item in state.items():
                        yield from _numbers(f"{name}.state.{owner}.{key}", item)
            elif isinstance(value, LRScheduler | torch.amp.GradScaler):
                for key, item in vars(value).items():
                    yield from _numbers(f"{name}.{key.lstrip('_')}", item)
            elif isinstance(value, torch.Tensor):
                yield from _numbers(name, value)

    def save(self, saved_ids: set[int]) -> tuple[Callable[[], object], list[SavedTensor]]:
        """Save the state of all objects. Return a function that restores it, and the tensors.

        Args:
            saved_ids: ids of the tensors that are saved already.

        Raises:
            CaptureError: if the state of an object does not survive being loaded.
        """
        undo: list[Callable[[], object]] = []
        saved: list[SavedTensor] = []
        seen = {*saved_ids}
        for name, value in self.objects:
            if isinstance(value, torch.nn.Module):
                continue  # `SavedState` saves the tensors of modules
            if is_generator(value, torch.Generator):
                restore, state = state_of(value)
                undo.append(lambda restore=restore, state=state: restore(state))  # type: ignore[misc]
            elif isinstance(value, _WITH_STATE):
                undo.append(_saved(value, saved, seen))
            elif not isinstance(value, torch.Tensor):
                undo.append(_saved_by_dict(name, value))
        for tensor in [*self.leaves(), *(tensor for _, tensor in self.tensors())]:
            if id(tensor) not in seen:
                seen.add(id(tensor))
                saved.append(SavedTensor(tensor))

        def restore_all() -> None:
            for restore_one in undo:
                restore_one()
            for tensor in saved:
                tensor.restore()

        return restore_all, saved


def _kind_of(value: Any) -> str:
    """Return the kind of an object of `updates=`, which begins the names of its state."""
    if isinstance(value, torch.nn.Module):
        return "module"
    if isinstance(value, torch.Tensor):
        return "tensor"
    if isinstance(value, Optimizer):
        return "optimizer"
    if isinstance(value, LRScheduler):
        return "scheduler"
    if isinstance(value, torch.amp.GradScaler):
        return "scaler"
    if is_generator(value, torch.Generator):
        return "generator"
    methods = (getattr(value, name, None) for name in ("state_dict", "load_state_dict"))
    if all(map(callable, methods)) and not isinstance(value, type):
        return "object"
    raise TypeError(
        f"updates= cannot contain a {type(value).__name__}: name modules, optimizers, schedulers, "
        "gradient scalers, generators, tensors, or objects with state_dict and load_state_dict, as "
        "one object or a tuple"
    )


def _members(value: Any) -> Any:
    """Return what holds the tensors of an object."""
    if isinstance(value, Optimizer):
        groups = [{k: v for k, v in group.items() if k != "params"} for group in value.param_groups]
        return {"state": value.state, "param_groups": groups}
    if isinstance(value, LRScheduler):
        return {k: v for k, v in vars(value).items() if not isinstance(v, Optimizer)}
    return vars(value) if isinstance(value, torch.amp.GradScaler) else value.state_dict()


def _numbers(name: str, value: Any) -> Iterator[tuple[str, float]]:
    if isinstance(value, torch.Tensor) and value.numel() == 1 and not value.is_meta:
        value = value.item()
    if isinstance(value, int | float) and not isinstance(value, bool):
        yield name, value
    elif isinstance(value, list | tuple):
        for number, item in enumerate(value):
            yield from _numbers(f"{name}.{number}", item)


def _saved(value: Any, saved: list[SavedTensor], seen: set[int]) -> Callable[[], Any]:
    """Save a value with all that it holds. Return a function that restores and returns it.

    Containers and objects are refilled, because the user's code may hold them.
    """
    if isinstance(value, torch.Tensor):
        if not isinstance(value, torch.nn.Parameter) and id(value) not in seen:
            seen.add(id(value))
            saved.append(SavedTensor(value))
        return lambda: value
    if isinstance(value, (list, dict, set, deque, *_WITH_STATE)) and id(value) in seen:
        return lambda: value
    seen.add(id(value))
    if isinstance(value, _WITH_STATE):
        attributes = vars(value)
        if isinstance(value, LRScheduler):  # its optimizer is saved if it is named
            seen.update(id(v) for v in attributes.values() if isinstance(v, Optimizer))
        restore_attributes = _saved(attributes, saved, seen)
        return lambda: restore_attributes() and value
    if isinstance(value, dict):
        items = {key: _saved(item, saved, seen) for key, item in value.items()}

        def refill() -> Any:
            restored = {key: restore() for key, restore in items.items()}
            value.clear()
            value.update(restored)
            return value

        return refill
    if isinstance(value, list | deque):
        parts = [_saved(item, saved, seen) for item in value]

        def refill_list() -> Any:
            restored = [restore() for restore in parts]
            value.clear()
            value.extend(restored)
            return value

        return refill_list
    if isinstance(value, tuple) and type(value) is tuple:
        members = [_saved(item, saved, seen) for item in value]
        return lambda: tuple([restore() for restore in members])
    if isinstance(value, set):
        former = copy.copy(value)

        def refill_set() -> Any:
            value.clear()
            value.update(former)
            return value

        return refill_set
    return lambda: value


def _saved_by_dict(name: str, value: Any) -> Callable[[], object]:
    """Save an object by its `state_dict`, once it is known that loading it changes nothing."""
    before = copy.deepcopy(value.state_dict())
    value.load_state_dict(copy.deepcopy(before))
    if not _equal(before, value.state_dict()):
        raise CaptureError(
            f"the state of {type(value).__name__} ({name}) does not survive "
            "load_state_dict(state_dict()), so it could not be restored: correct the two methods, "
            "or leave the object out of the step"
        )
    return lambda: value.load_state_dict(before)


def _equal(a: Any, b: Any) -> bool:
    if isinstance(a, torch.Tensor):
        if not isinstance(b, torch.Tensor):
            return False
        return same_bits(a, b) or (a.dtype == b.dtype and torch.equal(a, b))
    if type(a) is not type(b):
        return False
    if isinstance(a, Mapping):
        return a.keys() == b.keys() and all(_equal(item, b[key]) for key, item in a.items())
    if isinstance(a, list | tuple):
        return len(a) == len(b) and all(map(_equal, a, b))
    return bool(a is b or a == b or (a != a and b != b))
