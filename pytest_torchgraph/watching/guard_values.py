"""Reads and describes variables without running the user's code.

Dynamo's guards read values in C, without calling properties or `__getattr__`. So do the functions
here: they read attributes with `inspect.getattr_static`, slots, and items of built-in containers.
Types are compared by `is`, because `isinstance` reads `__class__`, and a metaclass may override
`==`. (Only a metaclass's `__getattribute__` runs, in `inspect` itself, and from Python 3.12 on its
`==`, because `inspect` has a cache by class.)
"""

from __future__ import annotations

import ast
import contextlib
import enum
import inspect
import re
import reprlib
from collections.abc import Mapping
from functools import partial
from types import (
    BuiltinFunctionType,
    CodeType,
    FunctionType,
    GetSetDescriptorType,
    MemberDescriptorType,
    MethodType,
    ModuleType,
)
from typing import Any, NamedTuple

import torch

from .. import torch_private
from ..convert.source_lines import relative
from ..words import counted

UNKNOWN: Any = type("Unknown", (), {"__repr__": lambda _: "UNKNOWN"})()
"""Result of a read that would run the user's code, or that fails."""


class _Fields(NamedTuple):
    # Only to get the type of the descriptor of a field, which has no public name.
    first: int


_STORED = (MemberDescriptorType, GetSetDescriptorType, type(vars(_Fields)["first"]))
"""Descriptors written in C: of `__slots__`, of built-in types, of the fields of a named tuple."""
_FUNC = vars(partial)["func"]
"""The descriptor of `partial.func`, because a subclass may override the attribute."""
_TENSORS = (torch.Tensor, torch.nn.Parameter)
"""Types of tensors whose methods are torch's own."""
_SEQUENCES: Any = (list, tuple)
"""Types with items by number, whose `__getitem__` is called even for a subclass."""
_WITH_LENGTH = (dict, list, tuple, str, set, frozenset, bytes, range)
_LONGEST = 100_000
"""Number of keys above which `list(dict.keys(...))` is not read."""


def read(expression: str, names: Mapping[str, Any]) -> Any:
    """Return the value of an expression in a guard's text; `UNKNOWN` if reading it is unsafe.

    Args:
        expression: the expression, such as `self.parts[0].scale`, or `G['SCALE']` for a global.
        names: the local variables, by name, and the global variables as `G`.
    """
    with contextlib.suppress(SyntaxError, ValueError, RecursionError, MemoryError):
        return _evaluate(ast.parse(expression.strip(), mode="eval").body, names)
    return UNKNOWN


def read_parts(expression: str, names: Mapping[str, Any]) -> dict[str, Any]:
    """Return the value of each part of an expression that can be read, by its text.

    Parts of a part that can be read are left out.
    """
    parts = {}
    with contextlib.suppress(SyntaxError, ValueError):
        nodes: list[Any] = [ast.parse(expression, mode="eval")]
        for node in nodes:  # the list grows
            value = _evaluate(node, names)
            if value is UNKNOWN:
                nodes += ast.iter_child_nodes(node)
            else:
                parts[ast.unparse(node)] = value
    return parts


def _evaluate(node: ast.expr, names: Mapping[str, Any]) -> Any:
    """Return the value of a node of an expression, `UNKNOWN` unless it is of a form in guards."""
    match node:
        case ast.Name(name):
            return names.get(name, UNKNOWN)
        case ast.Attribute(owner, name):
            return attribute(_evaluate(owner, names), name)
        case ast.Subscript(owner, key):
            return _read_item(_evaluate(owner, names), ast.literal_eval(key))
        case ast.Call(ast.Attribute(owner, ("size" | "stride") as kind), []):
            tensor = _evaluate(owner, names)
            return torch_private.shape_of(tensor, kind) if _is_plain(tensor, _TENSORS) else UNKNOWN
        case ast.Call(ast.Name(("type" | "len" | "list") as function), [owner]):
            # list(dict.keys(owner))
            value = _evaluate(owner.args[0] if isinstance(owner, ast.Call) else owner, names)
            return UNKNOWN if value is UNKNOWN else _FUNCTIONS[function](value)
    return UNKNOWN


def attribute(value: Any, name: str) -> Any:
    """Return an attribute, `UNKNOWN` if none is stored under this name."""
    if value is UNKNOWN:
        return UNKNOWN
    found = inspect.getattr_static(value, name, UNKNOWN)
    if _is_plain(found, _STORED):  # of `__slots__`, or of a built-in type: its `__get__` is C
        # A subclass of Tensor may override the descriptors of torch.
        if _is(value, torch.Tensor):
            return UNKNOWN
        try:
            return found.__get__(value, type(value))
        except (AttributeError, ValueError):  # an empty slot, or an empty cell
            return UNKNOWN
    if found is UNKNOWN and type(value) is MethodType:  # a method has the function's attributes
        return attribute(value.__func__, name)
    # A function has `__get__` too, but its code is what a guard reads.
    is_value = _is(found, (FunctionType, MethodType, partial))
    # Any other object with `__get__`, such as a property, would run code.
    runs_no_code = inspect.getattr_static(type(found), "__get__", None) is None
    return found if is_value or runs_no_code else UNKNOWN


def _is(value: Any, kinds: Any) -> bool:
    """Return True for an instance of a type or of a subclass."""
    return issubclass(type(value), kinds)


def _is_plain(value: Any, kinds: Any) -> bool:
    """Return True for an instance of one of some types, not of a subclass."""
    return any(type(value) is kind for kind in kinds)


def user_function(call: Any) -> Any:
    """Return the function inside decorators, `torch.compiler.disable` and `functools.partial`."""
    for _ in range(20):  # `__wrapped__` may lead back to the function
        inner = inspect.getattr_static(type(call), "__call__", None)
        if type(call) is FunctionType:
            wrapped = vars(call).get("__wrapped__")
            inner = vars(call).get("_torchdynamo_orig_callable", wrapped)
        elif type(call) is MethodType:
            inner = call.__func__
        elif _is(call, partial):
            inner = _FUNC.__get__(call)
        if inner is None:  # a function without a decorator, or a value that cannot be called
            break
        call = inner
    return call


def length(value: Any) -> Any:
    """Return the length of a built-in container or of an instance of a subclass, or `UNKNOWN`."""
    kind: Any = next((kind for kind in _WITH_LENGTH if _is(value, kind)), None)
    return UNKNOWN if kind is None else kind.__len__(value)


def _keys(value: Any) -> Any:
    """Return the keys of a dict as a list, `UNKNOWN` for a very long dict or another value."""
    is_short = _is(value, dict) and dict.__len__(value) <= _LONGEST
    return list(dict.keys(value)) if is_short else UNKNOWN


_FUNCTIONS: dict[str, Any] = {"type": type, "len": length, "list": _keys}


def _read_item(owner: Any, key: Any) -> Any:
    """Return an item of a built-in container, or of an instance of a subclass, or `UNKNOWN`."""
    with contextlib.suppress(LookupError, TypeError):
        if _is(owner, dict):
            return dict.get(owner, key, UNKNOWN)  # owner[key] would call __missing__
        for kind in _SEQUENCES:
            if _is(owner, kind):
                return kind.__getitem__(owner, key)
    return UNKNOWN


_NUMBERS_AND_TEXT: Any = (int, float, str)
_OF_TORCH = (torch.dtype, torch.device, torch.layout, torch.memory_format, torch.Size)
_PLAIN_TYPES = (*_NUMBERS_AND_TEXT, bool, complex, type(None), *_OF_TORCH)
_CONTAINERS = (list, tuple, set, dict)
_SHORT = reprlib.Repr()
_SHORT.maxstring = _SHORT.maxother = 60
_ADDRESS = re.compile(r" at 0x[0-9a-f]+")


def describe_value(value: Any) -> str:
    """Return a short text for a value, "" for `UNKNOWN`."""
    if value is UNKNOWN:
        return ""
    kind = type(value)
    if _is(value, enum.Enum):
        return f"{type.__getattribute__(kind, '__qualname__')}.{attribute(value, '_name_')}"
    for base in _NUMBERS_AND_TEXT:
        if _is(value, base) and kind is not bool:
            # The value of an instance of a subclass, such as numpy's, without running its code.
            (value,), kind = base.__getnewargs__(value), base
    items = value if _is_plain(value, _CONTAINERS) else [value]
    items = [*value, *value.values()] if kind is dict else items
    # The `repr` of other items would run the user's code.
    if all(_is_plain(item, _PLAIN_TYPES) for item in items):
        with contextlib.suppress(ValueError):  # a very large int
            return _ADDRESS.sub("", _SHORT.repr(value))
    code = value if kind is CodeType else attribute(value, "__code__")
    if type(code) is CodeType:
        return f"{code.co_name} ({relative(code.co_filename)}:{code.co_firstlineno})"
    if _is(value, partial):
        return f"functools.partial of {describe_value(_FUNC.__get__(value))}"
    if _is(value, type):
        return describe_type(value)
    name = attribute(value, "__name__")
    if _is(value, (BuiltinFunctionType, ModuleType)) and type(name) is str:
        return f"torch.{name}" if vars(torch).get(name) is value else name
    size = length(value)
    return f"a {describe_type(kind)}" + ("" if size is UNKNOWN else f" of {counted(size, 'item')}")


def describe_type(kind: type) -> str:
    """Return the full name of a type; for a built-in type only its name."""
    # A metaclass may override the attributes.
    parts = (vars(type)[name].__get__(kind) for name in ("__module__", "__qualname__"))
    return ".".join(part for part in parts if _is(part, str)).removeprefix("builtins.")


def backend_in_words(backend: Any) -> str:
    """Describe the backend and options as a call of `torch.compile`.

    Args:
        backend: torch's wrapper, or the callable itself; `None` if unknown.
    """
    if backend is None:
        return "another torch.compile object"
    name = attribute(backend, "compiler_name")
    if not _is(name, str):
        return describe_value(backend)
    options = {
        "backend": _ADDRESS.sub("", name),
        "dynamic": attribute(backend, "dynamic"),
        "options": attribute(backend, "config"),  # of inductor, with those of `mode`
    }
    keywords = attribute(backend, "kwargs")
    options.update(keywords if type(keywords) is dict else {})
    parts = ((key, describe_value(value)) for key, value in options.items())
    known = (f"{key}={text}" for key, text in parts if text not in ("", "{}"))
    return f"torch.compile({', '.join(known)})"
