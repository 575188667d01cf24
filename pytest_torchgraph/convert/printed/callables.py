"""Resolve printed function names: `torch.ops.aten.mm.default`, `math_sqrt`, `getattr`.

fx prints torch functions by qualified name, and all other functions as one identifier: dots become
underscores, and a number is appended if the identifier is taken. Names are resolved in loaded
modules; nothing is imported or called.
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

from ...words import grouped

_MISSING = object()
_MAX_OWNERS = 3
"""Maximum attribute depth of the search in a module, e.g. for `Outer.Inner.method`.

Each underscore of an identifier may be a dot. Without a bound, the search would grow exponentially
with the number of underscores.
"""
_ILLEGAL = re.compile(r"[^0-9a-zA-Z_]+")


class Unresolved:
    """A substitute for a function that is unreachable, or that this process does not have.

    It was defined inside another function, or only the process that printed its name has it.

    `__module__` and `__qualname__` hold the names. The substitute cannot be called.
    """

    def __init__(self, module: str, name: str):
        self.__module__ = module
        self.__name__ = self.__qualname__ = name

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Raise an error. This method exists only because torch.fx requires a callable target."""
        raise NotImplementedError(
            f"{self.__module__}.{self.__name__} cannot be called, because torch printed only its "
            "name"
        )


def qualified(path: str) -> Any:
    """Return the object at a dotted path that begins with `torch`.

    Raises:
        LookupError: if the object does not exist in this process, or is a module.
    """
    parts = path.split(".")
    value: Any = torch
    if parts[0] != "torch":
        raise LookupError(path)
    for number, part in enumerate(parts[1:], 2):
        # A loaded module need not be an attribute of its package.
        module = sys.modules.get(".".join(parts[:number]))
        inner = getattr(value, part, module)
        if inner is None:
            raise LookupError(path)
        value = inner
    if isinstance(value, types.ModuleType):
        raise LookupError(path)
    return value


def named(path: str) -> Any:
    """Return the object at a dotted path, or its substitute if this process does not have it."""
    try:
        return qualified(path)
    except LookupError:
        module, _, name = path.removeprefix("torch.ops.").partition(".")
        return Unresolved(module if name else "", name or path)


def identifier(name: str) -> Any:
    """Return the function that an identifier printed by fx stands for.

    For a local function, return `Unresolved`.

    Raises:
        LookupError: if the name does not begin with the name of a loaded module.
    """
    if hasattr(builtins, name):
        return getattr(builtins, name)
    for candidate in _without_number(name):
        function = _search(candidate)
        if function is not _MISSING:
            return function
    # A local function: the name of a loaded module, then the function's name.
    for module, attribute in _split_name(name):
        if attribute.isidentifier():
            return Unresolved(module, attribute)
    raise LookupError(name)


def class_named(path: str) -> Any:
    """Return the class or function at a dotted path in any loaded module, or `None`."""
    module, _, class_path = path.rpartition(".")
    while module:
        if module in sys.modules:
            value: Any = sys.modules[module]
            # Static, because `getattr` could run code, such as the import of another module.
            for part in class_path.split("."):
                value = inspect.getattr_static(value, part, None)
            return value
        module, _, part = module.rpartition(".")
        class_path = f"{part}.{class_path}"
    return getattr(builtins, path, None)


def _without_number(name: str) -> Iterator[str]:
    """Yield the identifier, and the identifier without the number that fx may have appended."""
    yield name
    base, _, number = name.rpartition("_")
    if base and number.isdecimal():
        yield base


def _search(name: str) -> Any:
    """Return the loaded function with an identifier, or `_MISSING`."""
    for module, attribute in _split_name(name):
        for candidate in _find_members(sys.modules[module], attribute, _MAX_OWNERS):
            if callable(candidate) and _is_named(candidate, name):
                return candidate
    return _MISSING


def _split_name(name: str) -> Iterator[tuple[str, str]]:
    """Yield (loaded module, rest of the identifier) splits, the longest module name first."""
    mangled_modules = _mangled_modules(len(sys.modules))
    for end in range(len(name) - 1, 0, -1):
        modules = mangled_modules.get(name[:end], ()) if name[end] == "_" else ()
        for module in modules:
            if module in sys.modules:
                yield module, name[end + 1 :]


@functools.lru_cache(maxsize=1)
def _mangled_modules(_count: int) -> dict[str, list[str]]:
    """Return the loaded modules by identifier. The number of modules is the key of the cache."""
    return grouped((_ILLEGAL.sub("_", module), module) for module in list(sys.modules))


def _find_members(owner: Any, mangled: str, depth: int) -> Iterator[Any]:
    """Yield the objects inside `owner` that `mangled` may denote, including nested attributes.

    Args:
        owner: a module, or an object inside it.
        mangled: the rest of an identifier, in which any underscore may have been a dot.
        depth: maximum number of attributes before the last one.
    """
    # A static method is printed without its class, so also search the module's classes.
    classes: list[Any] = []
    if isinstance(owner, types.ModuleType):
        members = list(vars(owner).values())
        classes = [c for c in members if isinstance(c, type) and c.__module__ == owner.__name__]
    for scope in [owner, *classes]:
        member = inspect.getattr_static(scope, mangled, _MISSING)
        if member is not _MISSING:
            yield member.__func__ if isinstance(member, staticmethod | classmethod) else member
    for end in [i for i, letter in enumerate(mangled) if letter == "_"] if depth else ():
        inner = inspect.getattr_static(owner, mangled[:end], _MISSING)
        if inner is not _MISSING and not isinstance(inner, types.ModuleType):
            yield from _find_members(inner, mangled[end + 1 :], depth - 1)


def _is_named(function: Any, name: str) -> bool:
    """Return True if fx prints a function as this identifier."""
    module = getattr(function, "__module__", None)
    function_name = getattr(function, "__name__", None)
    return _ILLEGAL.sub("_", f"{module}.{function_name}") == name
