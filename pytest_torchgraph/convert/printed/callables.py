"""The functions behind printed names: `torch.ops.aten.mm.default`, `math_sqrt`, `getattr`.

fx prints a function of torch by its qualified name, and any other as one identifier: its dots
become underscores, and a number is appended where the identifier is taken. Names are looked up in
the modules that are loaded; nothing is imported or called.
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
_MAX_OWNERS = 3
"""How many attributes deep a function is looked for in a module, as `Outer.Inner.method`.

Each underscore of an identifier may stand for a dot: without a bound the search would grow
exponentially with their number.
"""
_ILLEGAL = re.compile(r"[^0-9a-zA-Z_]+")


class Unresolved:
    """A function known by its name alone, since it was defined inside another function.

    Its `__module__` and `__qualname__` are those names; it cannot be called.
    """

    def __init__(self, module: str, name: str):
        self.__module__ = module
        self.__name__ = self.__qualname__ = name

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Raise: it is callable only because torch.fx demands that of a target."""
        raise NotImplementedError(f"{self.__module__}.{self.__name__} is known by name only")


def qualified(path: str) -> Any:
    """The object behind a dotted path that begins with `torch`.

    Raises:
        LookupError: if there is none in this process, or it is a module.
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
    """The function behind an identifier that fx made of its name; `Unresolved` where it is local.

    Raises:
        LookupError: if no loaded module can have a function of that name.
    """
    if hasattr(builtins, name):
        return getattr(builtins, name)
    for candidate in _without_number(name):
        function = _search(candidate)
        if function is not _MISSING:
            return function
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
    """The identifier, and without the number that fx may have appended."""
    yield name
    base, _, number = name.rpartition("_")
    if base and number.isdecimal():
        yield base


def _search(name: str) -> Any:
    """The loaded function with that identifier, or `_MISSING`."""
    for module, rest in _splits(name):
        for candidate in _inside(sys.modules[module], rest, _MAX_OWNERS):
            if callable(candidate) and _is_named(candidate, name):
                return candidate
    return _MISSING


def _splits(name: str) -> Iterator[tuple[str, str]]:
    """Loaded modules whose name the identifier can begin with, the longest first, and the rest."""
    known = _mangled_modules(len(sys.modules))
    for end in range(len(name) - 1, 0, -1):
        modules = known.get(name[:end], ()) if name[end] == "_" else ()
        for module in modules:
            if module in sys.modules:
                yield module, name[end + 1 :]


@functools.lru_cache(maxsize=1)
def _mangled_modules(_count: int) -> dict[str, list[str]]:
    """The loaded modules by the identifiers of their names; the count is the key of the cache."""
    modules: dict[str, list[str]] = {}
    for module in list(sys.modules):
        modules.setdefault(_ILLEGAL.sub("_", module), []).append(module)
    return modules


def _inside(owner: Any, rest: str, depth: int) -> Iterator[Any]:
    """The objects inside `owner` that `rest` can be: attributes, and attributes of attributes.

    A static method is printed without its class.

    Args:
        depth: how many attributes may come before the last.
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


def _is_named(function: Any, name: str) -> bool:
    """Whether fx makes this identifier of the function's name."""
    module = getattr(function, "__module__", None)
    own = getattr(function, "__name__", None)
    return _ILLEGAL.sub("_", f"{module}.{own}") == name


def _unresolved(name: str) -> Unresolved:
    """The local function behind an identifier: a loaded module begins it, the rest is its name."""
    for module, rest in _splits(name):
        if rest.isidentifier():
            return Unresolved(module, rest)
    raise LookupError(name)
