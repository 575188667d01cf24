"""What a printed name of a function means: `torch.ops.aten.mm.default`, `math_sqrt`, `getattr`.

fx prints what belongs to torch by its qualified name, and everything else as one identifier: the
dots become underscores, and a number is appended where the identifier is taken. Names are looked
up in the modules that are loaded; nothing is imported or called.
"""

from __future__ import annotations

import builtins
import functools
import inspect
import re
import sys
import types
from collections.abc import Iterator
from typing import Any

import torch

_MISSING = object()
_ILLEGAL = re.compile(r"[^0-9a-zA-Z_]+")


class Unresolved:
    """A function known by its name alone: one that was defined inside another function."""

    def __init__(self, module: str, name: str):
        self.__module__ = module
        self.__name__ = self.__qualname__ = name

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Not to be called: fx asks that a target can be."""
        raise NotImplementedError(f"{self.__module__}.{self.__name__} is known by name only")


def qualified(path: str) -> Any:
    """The object behind a dotted path that begins with `torch`.

    Raises:
        LookupError: if there is none in this process.
    """
    parts = path.split(".")
    value: Any = torch
    if parts[0] != "torch":
        raise LookupError(path)
    for number, part in enumerate(parts[1:], 2):
        module = sys.modules.get(".".join(parts[:number]))
        inner = getattr(value, part, module)
        if inner is None:
            raise LookupError(path)
        value = inner
    if isinstance(value, types.ModuleType):
        raise LookupError(path)
    return value


def identifier(name: str) -> Any:
    """The function behind an identifier that fx made of its name.

    Raises:
        LookupError: if nothing that is loaded can have that name.
    """
    if hasattr(builtins, name):
        return getattr(builtins, name)
    for candidate in _without_number(name):
        found = _search(candidate)
        if found is not _MISSING:
            return found
    return _unresolved(name)


def class_named(path: str) -> Any:
    """The class or function behind a dotted path into any loaded module, or None."""
    module, _, rest = path.rpartition(".")
    while module:
        if module in sys.modules:
            value: Any = sys.modules[module]
            for part in rest.split("."):
                value = inspect.getattr_static(value, part, None)
            return value
        module, _, part = module.rpartition(".")
        rest = f"{part}.{rest}"
    return getattr(builtins, path, None)


def _without_number(name: str) -> Iterator[str]:
    yield name
    base, _, number = name.rpartition("_")
    if base and number.isdigit():
        yield base


def _search(name: str) -> Any:
    for module, rest in _splits(name):
        for found in _inside(sys.modules[module], rest, 3):
            if callable(found) and _is_called(found, name):
                return found
    return _MISSING


def _splits(name: str) -> Iterator[tuple[str, str]]:
    """Loaded modules whose name the identifier can begin with, the longest first, and the rest."""
    known = _mangled_modules(len(sys.modules))
    for end in range(len(name) - 1, 0, -1):
        if name[end] == "_":
            for module in known.get(name[:end], ()):
                if module in sys.modules:
                    yield module, name[end + 1 :]


@functools.lru_cache(maxsize=1)
def _mangled_modules(_count: int) -> dict[str, list[str]]:
    found: dict[str, list[str]] = {}
    for module in list(sys.modules):
        found.setdefault(_ILLEGAL.sub("_", module), []).append(module)
    return found


def _inside(owner: Any, rest: str, depth: int) -> Iterator[Any]:
    """What `rest` can be inside `owner`: an attribute, or one of an attribute of it.

    A static method is printed without its class.
    """
    classes: list[Any] = []
    if isinstance(owner, types.ModuleType):
        own = list(vars(owner).values())
        classes = [c for c in own if isinstance(c, type) and c.__module__ == owner.__name__]
    for place in [owner, *classes]:
        found = inspect.getattr_static(place, rest, _MISSING)
        if found is not _MISSING:
            yield found.__func__ if isinstance(found, staticmethod | classmethod) else found
    for end in [i for i, letter in enumerate(rest) if letter == "_"] if depth else ():
        inner = inspect.getattr_static(owner, rest[:end], _MISSING)
        if inner is not _MISSING and not isinstance(inner, types.ModuleType):
            yield from _inside(inner, rest[end + 1 :], depth - 1)


def _is_called(found: Any, name: str) -> bool:
    module = getattr(found, "__module__", None)
    own = getattr(found, "__name__", None)
    return _ILLEGAL.sub("_", f"{module}.{own}") == name


def _unresolved(name: str) -> Unresolved:
    for module, rest in _splits(name):
        if rest.isidentifier():
            return Unresolved(module, rest)
    raise LookupError(name)
