"""Values as a message shows them: short, without an address, without running code of the user's."""

from __future__ import annotations

import enum
import functools
import re
from types import BuiltinFunctionType, CodeType, FunctionType, MethodType, ModuleType
from typing import Any

import torch

from ...convert.source_lines import relative
from ...words import counted
from .read import UNKNOWN, attribute, length, own_attributes

_MOST = 60
"""Characters of a value that are shown."""
_TORCHS = (torch.dtype, torch.device, torch.layout, torch.memory_format, torch.Size)
_BRACKETS: dict[Any, Any] = {list: "[]", tuple: "()", set: ("{", "}")}
_PLAIN = (int, float, bool, str, complex, type(None))
_FEW = 5
"""Items of a container that are written out, where all are plain values."""
_BITS = 200
"""Bits above which a number is not written out."""


_ADDRESS = re.compile(r" at 0x[0-9a-f]+")


def shown(value: Any) -> str:
    """A value in a few characters, "" for `UNKNOWN`."""
    if value is UNKNOWN:
        return ""
    kind = type(value)
    if isinstance(value, int) and int.bit_length(value) > _BITS:
        return f"an int of {int.bit_length(value)} bits"
    if isinstance(value, enum.Enum):
        return f"{kind.__qualname__}.{own_attributes(value).get('_name_')}"
    if isinstance(value, str):
        size = str.__len__(value)
        start = str.__getitem__(value, slice(_MOST))
        return str.__repr__(start) + (f"... ({size} long)" if size > _MOST else "")
    for number in (int, float):  # also one of numpy's
        if isinstance(value, number) and kind is not bool:
            return number.__repr__(value)
    if kind in (bool, complex, type(None)) or kind in _TORCHS:
        return repr(value)
    if isinstance(value, type):
        return type_name(value)
    return _callable(value) or _object(value)


def type_name(kind: type) -> str:
    """The full name of a type; of a built-in one its name alone."""
    name: str = type.__getattribute__(kind, "__qualname__")
    module = attribute(kind, "__module__")
    if not isinstance(module, str) or module == "builtins":
        return name
    return "torch.Tensor" if kind is torch.Tensor else f"{module}.{name}"


def backend_in_words(backend: Any) -> str:
    """What was given to `torch.compile` as backend, with the options, as it is called.

    Args:
        backend: torch's wrapper, or the callable itself.
    """
    if backend is None:
        return ""
    own = own_attributes(backend)
    name = attribute(backend, "compiler_name")
    if not isinstance(name, str):
        return shown(backend)
    name = _ADDRESS.sub("", name)
    function = own.get("compiler_fn")
    place = f" ({_place(function.__code__)})" if isinstance(function, FunctionType) else ""
    options = [
        f"backend={name!r}{'' if place.startswith(' (torch/') else place}",
        f"dynamic={shown(own.get('dynamic'))}",
    ]
    given = own.get("kwargs") or {}
    options += [f"{key}={_option(value)}" for key, value in given.items()]
    config = own.get("config")  # of inductor: mode and options, put together
    options += [f"options={_option(config)}"] * bool(config)
    return f"torch.compile({', '.join(options)})"


def _option(value: Any) -> str:
    if type(value) is not dict:
        return shown(value)
    return "{" + ", ".join(f"{shown(key)}: {shown(item)}" for key, item in value.items()) + "}"


def _callable(value: Any) -> str:
    if isinstance(value, MethodType):
        return _callable(value.__func__)
    if isinstance(value, functools.partial):
        return f"functools.partial of {shown(value.func)}"
    if isinstance(value, FunctionType):
        return f"{value.__qualname__} ({_place(value.__code__)})"
    if isinstance(value, CodeType):
        return f"{value.co_name} ({_place(value)})"
    if isinstance(value, ModuleType):
        return f"the module {vars(value).get('__name__')}"
    if isinstance(value, BuiltinFunctionType):
        name = value.__name__
        of_torch = vars(torch).get(name) is value
        return f"torch.{name}" if of_torch else f"the built-in function {name}"
    return ""


def _object(value: Any) -> str:
    kind = type(value)
    if kind in (torch.Tensor, torch.nn.Parameter):
        return f"a {type_name(kind)}"
    if kind in _BRACKETS and 0 < len(value) <= _FEW and all(type(each) in _PLAIN for each in value):
        items = [shown(each) for each in value]
        first, last = _BRACKETS[kind]
        comma = "," * (kind is tuple and len(items) == 1)
        return f"{first}{', '.join(sorted(items) if kind is set else items)}{comma}{last}"
    items = length(value)
    if items is UNKNOWN:
        return f"a {type_name(kind)}"
    return f"a {type_name(kind)} of {counted(items, 'item')}"


def _place(code: CodeType) -> str:
    return f"{relative(code.co_filename)}:{code.co_firstlineno}"
