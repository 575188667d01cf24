"""The Python state of a target: attributes of modules and objects, closures, globals.

Unlike tensors, Python values are not restored after a step. They are compared with their values
before the step, so that a message can name the changed values.
"""

from __future__ import annotations

import ast
import contextlib
import copy
import inspect
import itertools
import random
import reprlib
import sys
from collections import deque
from collections.abc import Callable, Iterator
from functools import partial
from types import CellType, FunctionType
from typing import Any, NamedTuple

import torch

from ...convert.source_lines import is_user_file
from .named_tensors import NamedTensors, is_generator, names_in
from .saved_tensor import version_of

_OF_TORCH = frozenset(vars(torch.nn.Module())) - {"training"}
"""Attributes that every module has."""
_SCALARS = frozenset((bool, int, float, complex, str, bytes, type(None), torch.dtype, torch.device))
_CONTAINERS = (list, dict, set, tuple, deque)
_DEEP, _LONG = 3, 200
"""Maximum depth for containers and objects, and maximum number of items in a container."""
_MISSING_VALUE: Any = type("Gone", (), {"__repr__": lambda _: "missing"})()
"""A missing value."""


class StateChange(NamedTuple):
    """A Python value that changed.

    Attributes:
        name: the value's name in the target: `layers.0.calls`.
        was, now: both values, shortened.
        owner, key: the `__dict__`, class or cell that stores the value, and the value's key in it.
        before: the former value, with its containers copied.
    """

    name: str
    was: str
    now: str
    owner: Any
    key: str
    before: Any

    def __str__(self) -> str:
        return f"`{self.name}` was {self.was}, and is now {self.now}"

    def mark(self) -> Any:
        """Return the mark of the current value; see `_mark`."""
        return _mark(self.value())

    def value(self) -> Any:
        """Return the current value."""
        return _read(self.owner, self.key)

    def copy_before(self) -> Any:
        """Return a copy of the former value, which a run may change."""
        if isinstance(self.before, torch.Tensor):
            return self.before
        if isinstance(self.before, itertools.count):
            return _copy_count(self.before)
        with contextlib.suppress(Exception):  # the value contains an object that cannot be copied
            return copy.deepcopy(self.before)
        return copy.copy(self.before)

    def put(self, value: Any) -> None:
        """Replace the current value."""
        if value is _MISSING_VALUE:
            self.owner.pop(self.key, None)
        elif isinstance(self.owner, CellType):
            self.owner.cell_contents = value
        elif isinstance(self.owner, type):
            setattr(self.owner, self.key, value)
        else:
            self.owner[self.key] = value


class _OwnerValues(NamedTuple):
    """The values of one owner, at one moment.

    Attributes:
        owner: the `__dict__`, class or cell.
        prefix: the beginning of their names.
        values: the values by key, with containers copied.
        versions: the versions of the tensors among them, by key.
    """

    owner: Any
    prefix: str
    values: dict[str, Any]
    versions: dict[str, int]


class PythonState:
    """The Python values that a target keeps, at one moment.

    Args:
        named: the modules of the target.
        target: if given, the values that its functions reach are included: globals, closures and
            class attributes.
    """

    def __init__(self, named: NamedTensors, target: Callable[..., Any] | None = None):
        self._saved_values: list[_OwnerValues] = []
        self._owners: set[int] = set()  # ids of the owners so far
        self._names: set[tuple[int, str]] = set()  # (id of the owner, name) of cells and globals
        for path, module in named.all_modules:
            # A large model has hundreds of modules, and each capture runs this loop.
            values = {k: v for k, v in vars(module).items() if k not in _OF_TORCH}
            prefix = f"{path}." if path else ""
            if _SCALARS.issuperset(map(type, values.values())):  # nothing to copy
                self._saved_values.append(_OwnerValues(vars(module), prefix, values, {}))
            else:
                self._keep(vars(module), prefix, values)
        if target is not None:
            self._keep_reachable(target, named)

    def changes(self) -> list[StateChange]:
        """Return the values that changed."""
        state_changes = []
        for owner, prefix, values, versions in self._saved_values:
            for key, was in values.items():
                now = _read(owner, key)
                if now is was and type(was) in _SCALARS:  # the common case, without a mark
                    continue
                if _mark(was, version=versions.get(key)) != _mark(now):
                    state_changes.append(_change(f"{prefix}{key}", was, now, owner, key))
            # New attributes are reported of modules only.
            if isinstance(owner, dict) and "_parameters" in owner:
                for key in owner.keys() - values.keys() - _OF_TORCH:
                    state_changes.append(
                        _change(f"{prefix}{key}", _MISSING_VALUE, owner[key], owner, key)
                    )
        return state_changes

    def _keep(self, owner: Any, prefix: str, values: dict[str, Any], depth: int = 0) -> None:
        """Store the values of an owner, and those of the objects among them."""
        if id(owner) in self._owners:
            return
        self._owners.add(id(owner))
        versions: dict[str, int] = {}
        for key, value in values.items():
            if type(value) in _SCALARS:
                continue
            if isinstance(value, torch.Tensor):
                versions[key] = version_of(value)
            elif isinstance(value, _CONTAINERS) or _is_generator(value):
                values[key] = _copy_containers(value)
            elif depth < _DEEP and _is_plain_object(value):
                self._keep(vars(value), f"{prefix}{key}.", dict(vars(value)), depth + 1)
        self._saved_values.append(_OwnerValues(owner, prefix, values, versions))

    def _keep_reachable(self, target: Callable[..., Any], named: NamedTensors) -> None:
        """Store the values that the target's functions reach by name."""
        # Modules, classes and functions follow below.
        for holder in (getattr(target, "__self__", None), target):
            kinds = torch.nn.Module | type | FunctionType
            if not isinstance(holder, kinds) and hasattr(holder, "__dict__"):
                self._keep(vars(holder), "", dict(vars(holder)))
        classes = [cls for _, module in named.all_modules for cls in type(module).__mro__]
        for function in named.functions:
            if vars(function):
                self._keep(vars(function), f"{function.__name__}.", dict(vars(function)))
            values = self._keep_function_values(function)
            classes += [value for value in values if isinstance(value, type)]
        for cls in dict.fromkeys(classes):
            if _is_of_user(cls):
                class_data = {k: v for k, v in vars(cls).items() if k[:2] != "__" and _is_data(v)}
                self._keep(cls, f"{cls.__name__}.", class_data)

    def _keep_function_values(self, function: Any) -> Iterator[Any]:
        """Store the cells and globals that a function reads; yield their values."""
        code, names = function.__code__, function.__globals__
        cells = zip(code.co_freevars, function.__closure__ or (), strict=True)
        for name, owner in (*cells, *((name, names) for name in names_in(code))):
            value, key = _read(owner, name), (id(owner), name)
            if key not in self._names and (_is_data(value) or _is_plain_object(value)):
                self._names.add(key)
                # `_keep` stores an owner only once, but globals are stored one by one.
                self._owners.discard(id(owner))
                self._keep(owner, "", {name: value})
            yield value


def _change(name: str, was: Any, now: Any, owner: Any, key: str) -> StateChange:
    """Describe a change; for a dict, of the first key with a changed value."""
    before = was
    # `reprlib` shortens a dict, and could leave out the entry that changed.
    while isinstance(was, dict) and isinstance(now, dict) and was.keys() == now.keys():
        inner = next((k for k in was if _mark(was[k]) != _mark(now[k])), None)
        if inner is None:
            break
        name, was, now = f"{name}[{inner!r}]", was[inner], now[inner]
    return StateChange(name, _describe_value(was), _describe_value(now, was), owner, key, before)


def _read(owner: Any, key: str) -> Any:
    """Return the current value of an owner's key, `_MISSING_VALUE` if it has none."""
    if isinstance(owner, CellType):
        try:
            return owner.cell_contents
        except ValueError:
            return _MISSING_VALUE
    values = vars(owner) if isinstance(owner, type) else owner
    return values.get(key, _MISSING_VALUE)


def _is_of_user(cls: type) -> bool:
    """Return True if a class is defined in a file of the user."""
    module = sys.modules.get(cls.__module__)
    return is_user_file(getattr(module, "__file__", None) or "<none>")


def _is_generator(value: Any) -> bool:
    """Return True for a random number generator of Python or numpy, or a counter."""
    return is_generator(value, itertools.count)


def _is_data(value: Any) -> bool:
    """Return True for a value whose changes can be detected."""
    return (
        type(value) in _SCALARS
        or isinstance(value, (torch.Tensor, *_CONTAINERS))
        or _is_generator(value)
    )


def _is_plain_object(value: Any) -> bool:
    """Return True for a user's object with readable attributes."""
    if callable(value) or not hasattr(value, "__dict__") or inspect.ismodule(value):
        return False
    return _is_of_user(type(value))


def _mark(value: Any, depth: int = 0, version: int | None = None) -> Any:
    """Return a mark that differs if the value differs.

    Of a deep or long container it shows only the length, of an object only the identity.

    Args:
        value: the value.
        depth: number of containers around it.
        version: the version of a tensor at another time; `None` for the current one.
    """
    kind = type(value)
    if kind in _SCALARS:  # NaN is not equal to itself, and True is equal to 1
        return kind, repr(value) if kind in (float, complex) else value
    if isinstance(value, torch.Tensor):
        return "tensor", id(value), version_of(value) if version is None else version
    if _is_generator(value):
        is_count = isinstance(value, itertools.count)
        return kind, repr(value if is_count else state_of(value)[1])
    if not isinstance(value, _CONTAINERS):
        return kind, id(value)
    if depth >= _DEEP or len(value) > _LONG:
        return kind, len(value)
    if isinstance(value, dict):
        return kind, tuple([(repr(k), _mark(v, depth + 1)) for k, v in value.items()])
    if isinstance(value, set):
        return kind, frozenset([repr(item) for item in value])
    return kind, tuple([_mark(item, depth + 1) for item in value])


def state_of(generator: Any) -> tuple[Callable[[Any], object], Any]:
    """Return the function that restores a generator of torch, Python or numpy, and its state."""
    if isinstance(generator, torch.Generator):
        return generator.set_state, generator.get_state()
    if isinstance(generator, random.Random):
        return generator.setstate, generator.getstate()
    bits = generator.bit_generator
    return partial(setattr, bits, "state"), bits.state


def _copy_count(counter: itertools.count[Any]) -> itertools.count[Any]:
    """Copy a counter by its text, such as `count(3, 2)`: Python 3.14 cannot copy it otherwise."""
    try:
        arguments = ast.literal_eval(repr(counter).removeprefix("count"))
    except ValueError:  # its numbers are no literals, such as fractions
        return counter
    return itertools.count(*(arguments if isinstance(arguments, tuple) else (arguments,)))


def _copy_containers(value: Any, depth: int = 0) -> Any:
    """Copy containers and random generators, and share other values."""
    if _is_generator(value):
        return _copy_count(value) if isinstance(value, itertools.count) else copy.deepcopy(value)
    if depth >= _DEEP or not isinstance(value, list | dict | set | deque) or len(value) > _LONG:
        return value
    copied: Any = copy.copy(value)
    if isinstance(value, dict):
        for key, item in value.items():
            copied[key] = _copy_containers(item, depth + 1)
    elif isinstance(value, list | deque):
        for number, item in enumerate(value):
            copied[number] = _copy_containers(item, depth + 1)
    return copied


def _describe_value(value: Any, replaced: Any = None) -> str:
    """Return a value as text, as "another" one if it took the place of a similar value."""
    if isinstance(value, torch.Tensor):
        name = "another tensor" if isinstance(replaced, torch.Tensor) else "a tensor"
        return f"{name} of shape {tuple(value.shape)}"
    if _is_generator(value) and not isinstance(value, itertools.count):
        return f"{'another state of ' if _is_generator(replaced) else ''}a {type(value).__name__}"
    return reprlib.repr(value)
