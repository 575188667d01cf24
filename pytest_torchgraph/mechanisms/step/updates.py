"""The state that a training step may change: what `updates=` names.

Every named object gets a kind, and its tensors get names: `optimizer.state.fc.weight.exp_avg`. The
state is saved before the warm-up and restored bitwise after the step.
"""

from __future__ import annotations

import copy
from collections import Counter, deque
from collections.abc import Iterator, Mapping
from typing import Any

import torch
from torch.optim import Optimizer
from torch.optim.lr_scheduler import LRScheduler

from ... import torch_private
from ...errors import CaptureError
from ...words import with_article
from .named_tensors import is_generator, without_wrappers
from .saved_tensor import same_bits

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
            if isinstance(value, torch.nn.Module):
                value = torch_private.uncompiled(value)
            kind = _kind_of(value)
            number = counts[kind]
            counts[kind] += 1
            self.objects.append((f"{kind}_{number}" if number else kind, value))
        self.modules = [
            ("" if name == "module" else name, value) for name, value in self.of_kind("module")
        ]
        self.objects += [
            (f"{path}.extra_state".lstrip("."), ExtraState(part))
            for prefix, module in self.modules
            for path, part in module.named_modules(prefix=prefix)
            if type(part).get_extra_state is not torch.nn.Module.get_extra_state
        ]
        self.parameters: dict[int, tuple[str, torch.Tensor]] = {}
        for prefix, module in self.modules:
            for name, parameter in module.named_parameters(prefix=prefix):
                self.parameters.setdefault(id(parameter), (without_wrappers(name), parameter))
        self.trained = list(self.parameters.values())
        for name, optimizer in self.of_kind("optimizer"):
            for place, group in enumerate(optimizer.param_groups):
                for number, parameter in enumerate(group["params"]):
                    path = f"{name}.param_groups.{place}.params.{number}"
                    self.parameters.setdefault(id(parameter), (path, parameter))

    def rename(self, names: Mapping[int, str]) -> None:
        """Give parameters of optimizers the names that they have in modules, by `id`."""
        for key, (name, parameter) in self.parameters.items():
            if name.startswith("optimizer"):
                self.parameters[key] = names.get(key, name), parameter

    def of_kind(self, *kinds: str) -> list[tuple[str, Any]]:
        """Return the objects of some kinds, see `_kind_of`, with their names."""
        return [pair for pair in self.objects if _kind_of(pair[1]) in kinds]

    def covers(self, optimizer: Optimizer) -> bool:
        """Return True if an optimizer, or a wrapper with the same state, is named."""
        return any(own.state is optimizer.state for _, own in self.of_kind("optimizer"))

    def leaves(self) -> list[torch.Tensor]:
        """Return the parameters that may get gradients."""
        return [parameter for _, parameter in self.parameters.values()]

    def tensors(self) -> Iterator[tuple[str, torch.Tensor]]:
        """Yield the tensors that the objects hold now, without parameters and buffers, by name."""
        for name, leaf in self._leaves():
            if isinstance(leaf, torch.Tensor):
                yield name, leaf

    def numbers(self) -> dict[str, float]:
        """Return the numbers in the state, by name."""
        numbers = {}
        for name, leaf in self._leaves():
            if isinstance(leaf, torch.Tensor) and leaf.numel() == 1 and not leaf.is_meta:
                leaf = leaf.item()
            if isinstance(leaf, int | float) and not isinstance(leaf, bool):
                numbers[name] = leaf
        return numbers

    def _leaves(self) -> Iterator[tuple[str, Any]]:
        """Yield the values in the state of the objects, with their names."""
        for name, value in self.of_kind("tensor", "optimizer", "scheduler", "scaler", "object"):
            yield from self._inside(name, _members(value), 0)

    def _inside(self, path: str, value: Any, depth: int) -> Iterator[tuple[str, Any]]:
        """Yield the values inside a value, with their names; not the named parameters."""
        items: Any = ()
        if isinstance(value, Mapping):
            items = value.items()
        elif isinstance(value, list | tuple | deque):
            items = enumerate(value)
        elif isinstance(value, LRScheduler):
            items = _members(value).items()
        elif id(value) not in self.parameters:
            yield path, value
        for number, (key, item) in enumerate(items if depth < _DEPTH else ()):
            if isinstance(key, torch.Tensor):  # the state of an optimizer is keyed by parameter
                key = self.parameters.get(id(key), (str(number), key))[0]
            elif not isinstance(key, str):
                key = str(number)  # an id of a process
            yield from self._inside(f"{path}.{key.lstrip('_')}", item, depth + 1)

    def attributes(self) -> Iterator[dict[str, Any]]:
        """Yield the attributes of schedulers, also of those inside of others, and of scalers."""
        waiting = [value for _, value in self.objects]
        for value in waiting:  # the list grows
            if isinstance(value, LRScheduler | torch.amp.GradScaler):
                yield vars(value)
                for item in vars(value).values():
                    waiting += item if isinstance(item, list | tuple) else ()

    def step_counts(self) -> list[torch.Tensor]:
        """Return the step counts that torch's optimizers keep on the CPU and read as numbers."""
        counts = []
        for _, optimizer in self.of_kind("optimizer"):
            # The classes below `Optimizer`: one of them is torch's.
            mro = type(optimizer).__mro__
            bases = mro[: mro.index(Optimizer)]
            if not any(base.__module__.startswith("torch.") for base in bases):
                continue
            for group in optimizer.param_groups:
                if group.get("capturable") or group.get("fused"):  # not read as a number
                    continue
                for parameter in group["params"]:
                    count = optimizer.state.get(parameter, {}).get("step")
                    if isinstance(count, torch.Tensor) and count.is_cpu:
                        counts.append(count)
        return counts


class ExtraState:
    """What a module adds to its `state_dict` by itself, as an object with a state."""

    def __init__(self, module: torch.nn.Module):
        self.state_dict = module.get_extra_state
        self.load_state_dict = module.set_extra_state


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
        f"updates= cannot contain {with_article(type(value).__name__)}: name modules, optimizers, "
        "schedulers, gradient scalers, generators, tensors, or objects with state_dict and "
        "load_state_dict, as one object or a tuple"
    )


def _members(value: Any) -> Any:
    """Return what holds the state of an object."""
    if isinstance(value, Optimizer):
        groups = [{k: v for k, v in group.items() if k != "params"} for group in value.param_groups]
        return {"param_groups": groups, "state": value.state}
    if isinstance(value, LRScheduler | torch.amp.GradScaler):
        return {k: v for k, v in vars(value).items() if not isinstance(v, Optimizer)}
    return value if isinstance(value, torch.Tensor) else value.state_dict()


def state_of_object(name: str, value: Any) -> Any:
    """Return the `state_dict` of an object, once it is known that loading it changes nothing.

    Args:
        name: the object's name, for the message.
        value: the object. Its attributes are restored if loading changes its state.

    Raises:
        CaptureError: if its state does not survive being loaded.
    """
    held = getattr(value, "__dict__", {})
    before, attributes = copy.deepcopy(value.state_dict()), dict(held)
    value.load_state_dict(copy.deepcopy(before))
    if not _equal(before, value.state_dict()):
        held.update(attributes)
        raise CaptureError(
            f"the state of {type(value).__name__} ({name}) does not survive "
            "load_state_dict(state_dict()), so it could not be restored: correct the two methods, "
            "or leave the object out of the step"
        )
    return before


def _equal(a: Any, b: Any) -> bool:
    """Return True if two states are equal, in whatever order their keys are."""
    if isinstance(a, torch.Tensor) and isinstance(b, torch.Tensor):
        return same_bits(a, b) or (a.dtype == b.dtype and torch.equal(a, b))
    if type(a) is not type(b):
        return False
    if isinstance(a, Mapping):
        return a.keys() == b.keys() and all(_equal(item, b[key]) for key, item in a.items())
    if isinstance(a, list | tuple | deque):
        return len(a) == len(b) and all(map(_equal, a, b))
    return bool(a is b or a == b or (a != a and b != b))
