"""Python functions and classes as patterns: what a name leads to, and which graphs can hold it.

Tracing goes through Python code. A function or a class is a node only where a tracer keeps it, so
that a check of any other one would count zero for ever.
"""

from __future__ import annotations

import builtins
import re
import sys
from collections.abc import Iterator
from types import ModuleType
from typing import Any

import torch

from .. import torch_private
from .levels import Level
from .names import is_glob, matches
from .qualified import class_name, op_name

_LISTED = (
    "operator",
    "math",
    "torch",
    "torch.nn",
    "torch.nn.functional",
    "torch.special",
    "torch.linalg",
    "torch.fft",
)
"""Modules whose functions a glob is matched with that begins with a wildcard or `torch`."""
_OWN_ROOTS = frozenset({"torch", "Tensor", "operator", "math"})
_ON_NUMBERS = frozenset(
    {"abs", "bool", "divmod", "float", "getattr", "int", "max", "min", "pow", "round"}
)
"""Builtins that compute symbolic sizes, and Dynamo's way to read an attribute of a tensor."""
_SYMBOLIC = re.compile(r"(operator|math)\b|torch\._?sym_")
_READING = frozenset({"Tensor.__array__", "Tensor.__dlpack__", "Tensor.numpy", "Tensor.tolist"})
"""Methods that are nodes where they run, as they read a tensor and dispatch no op."""
_WILDCARD = re.compile(r"[*?]")


def named_values(pattern: str) -> list[tuple[str, Any]]:
    """The callables that a pattern names, by their qualified names; empty if it names none."""
    if is_glob(pattern):
        return [(name, value) for name, value in _candidates(pattern) if matches(name, pattern)]
    value = _object(pattern)
    if isinstance(value, ModuleType):
        return list(_members(value))
    return [(pattern, value)] if callable(value) else []


def name_of(value: Any) -> str:
    """The name that a node which calls `value` has."""
    is_module = isinstance(value, type) and issubclass(value, torch.nn.Module)
    return class_name(value) if is_module else op_name(value)


def alias_of(pattern: str, named: list[tuple[str, Any]]) -> str:
    """The name that nodes have for what `pattern` names by an alias, "" if it is no alias.

    `torch.nn.functional.conv2d` is `torch.conv2d`, and an imported function that of its module.
    """
    if (
        len(named) != 1
        or named[0][0] != pattern
        or pattern.startswith(("Tensor.", "torch.Tensor."))
    ):
        return ""
    name = name_of(named[0][1])
    return "" if name == pattern else name


def is_symbolic(name: str) -> bool:
    """Return True for a function that symbolic sizes are computed with, and for a glob of some."""
    return name in _ON_NUMBERS or _SYMBOLIC.match(name) is not None


def is_everywhere(name: str) -> bool:
    """Return True for what a graph of dispatched ops can hold beside them."""
    return is_symbolic(name) or name in _READING


def why_not(name: str, value: Any, level: Level, traced: bool) -> str | None:
    """The reason why no node at a level is a call of this callable, None where one can be.

    Args:
        name: its qualified name.
        value: the callable.
        level: the level.
        traced: whether the graph was captured here, and not handed over: a pass can put any call
            into a graph of torch.fx.

    Returns:
        "" for a torch function or class: the caller knows what stands in its place.
    """
    if is_symbolic(name) or (level == "dispatch" and name in _READING):
        return None
    if level not in ("dynamo", "fx"):
        kept = level == "post_grad" and name.startswith("torch._inductor.")
        return None if kept else _traced_through(name, value)
    if level == "fx":
        return _why_not_fx(name, value, traced)
    if not isinstance(value, type):
        return None if _is_own(name) or not _is_pythons(name) else _NOT_TRACED
    if not issubclass(value, torch.nn.Module):
        return None if _is_own(name) and not name.startswith("torch.nn.") else _CLASS
    return _function_of(value) if _is_own(name) else _MODULE


def _why_not_fx(name: str, value: Any, traced: bool) -> str | None:
    """`why_not` for a graph of torch.fx."""
    is_module = isinstance(value, type) and issubclass(value, torch.nn.Module)
    if is_module or _is_own(name) or name in _wrapped():  # a tracer decides which modules it keeps
        return None
    if _is_pythons(name) or isinstance(value, type) or traced:
        return f"{_traced_through(name, value)}, or keep it as a node by torch.fx.wrap"
    return None


_MODULE = "a module is traced through: name the ops of its forward, with its path in module="
_CLASS = "a class is traced through: name the ops that its methods run"
_FUNCTION = "a Python function is traced through: name the ops that it runs"
_NOT_TRACED = "no function of Python's own or numpy's is a node: name the ops that torch runs"


def _traced_through(name: str, value: Any) -> str:
    if _is_own(name):
        return ""
    if _is_pythons(name):
        return _NOT_TRACED
    if not isinstance(value, type):
        return _FUNCTION
    return _MODULE if issubclass(value, torch.nn.Module) else _CLASS


def _is_own(name: str) -> bool:
    """Return True for what torch defines, and for the modules that fx calls directly."""
    return name.partition(".")[0] in _OWN_ROOTS


def _is_pythons(name: str) -> bool:
    """Return True for a builtin, and for a function of the standard library or of numpy."""
    root, dot, _ = name.partition(".")
    return (
        root == "numpy" or root in sys.stdlib_module_names or (not dot and hasattr(builtins, root))
    )


def _function_of(cls: type) -> str:
    """Name the torch function that a module of torch calls, where it has the module's name."""
    words = "_".join(re.findall(r"[A-Z]+(?![a-z])\d*d?|[A-Z][a-z]*\d*d?", cls.__name__)).lower()
    guesses = (cls.__name__.lower(), words, re.sub(r"\dd\Z", "", words), words.replace("_loss", ""))
    for guess in guesses:
        function = getattr(torch.nn.functional, guess, None)
        if function is not None:
            return f"a module is traced through: did you mean {op_name(function)}?"
    return _MODULE


def _wrapped() -> set[str]:
    """The functions that `torch.fx.wrap` keeps as nodes."""
    functions = [
        scope.get(name, getattr(builtins, name, None))
        for (_, name), scope in torch_private.get("fx_wrapped").items()
    ]
    return {op_name(function) for function in functions if function is not None}


def _candidates(pattern: str) -> Iterator[tuple[str, Any]]:
    """The callables that a glob may match: torch's, and those of the package that it begins with.

    Attributes are read from the dicts of modules: asking for one can import another module.
    """
    root = _WILDCARD.split(pattern, maxsplit=1)[0].partition(".")[0]
    for name in _LISTED:
        yield from _members(sys.modules[name])
    for name in dir(torch.Tensor):
        if callable(getattr(torch.Tensor, name, None)):
            yield f"Tensor.{name}", getattr(torch.Tensor, name)
            yield f"torch.Tensor.{name}", getattr(torch.Tensor, name)
    if root and root not in _OWN_ROOTS and root in sys.modules:
        for name, module in list(sys.modules.items()):
            if (name == root or name.startswith(f"{root}.")) and isinstance(module, ModuleType):
                yield from _members(module)


def _members(module: ModuleType) -> Iterator[tuple[str, Any]]:
    """The callables of a module that nodes have its name for, so those that it defines."""
    for attribute, value in list(vars(module).items()):
        name = f"{module.__name__}.{attribute}"
        if callable(value) and name_of(value) == name:
            yield name, value


def _object(name: str) -> Any:
    """The object that a dotted name leads to in the loaded modules; None if it leads nowhere."""
    first, *rest = name.split(".")
    if first == "Tensor":
        return getattr(torch.Tensor, rest[0], None) if len(rest) == 1 else None
    value: Any = sys.modules.get(first, getattr(builtins, first, None))
    for part in rest:
        value = getattr(value, part, None)
    return value
