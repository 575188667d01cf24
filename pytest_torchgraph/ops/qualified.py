"""Qualified names of call targets: overloads, torch functions, methods, module classes."""

from __future__ import annotations

import ast
import functools
import re
import types
from collections.abc import Callable, Mapping
from typing import Any

import torch

from .. import torch_private

_PUBLIC = (torch, torch.nn.functional, torch.special, torch.linalg, torch.fft)
"""Public modules that name a torch function, even if a private module defines it."""


def op_name(target: Any) -> str:
    """Return the qualified name of an fx node's target, never a repr, which may have an address.

    Args:
        target: an overload or its packet, a higher-order op, any callable, or the name of a tensor
            method.
    """
    if isinstance(target, str):
        return f"Tensor.{target}"
    if isinstance(target, torch._ops.OpOverload | torch._ops.OpOverloadPacket):
        return str(target)
    # An op of a dialect: its class is in a module such as `executorch.exir.dialects.edge._ops`.
    if (wrapped := overload_of(target)) is not None:
        return f"{type(target).__module__.split('.')[-2]}.{wrapped}"
    if isinstance(target, torch._ops.HigherOrderOperator):
        return f"higher_order.{target._name}"
    if str(type(target).__module__).startswith("triton.runtime"):
        return f"triton.{torch_private.triton_function(target)}"
    if isinstance(target, types.BuiltinFunctionType | types.MethodDescriptorType):
        return _builtin_name(target)
    return _callable_name(target)


def overload_of(target: Any) -> torch._ops.OpOverload | None:
    """Return the overload that a target is, or that an op of a dialect of ExecuTorch wraps."""
    if isinstance(target, torch._ops.OpOverload):
        return target
    wraps = str(type(target).__module__).startswith("executorch.")
    return getattr(target, "_op", None) if wraps else None


@functools.lru_cache(maxsize=4096)
def _builtin_name(target: Any) -> str:
    # Cache builtins only: the cache would keep a Python function alive.
    return _callable_name(target)


def _callable_name(target: Any) -> str:
    """Return the qualified name of a callable; for an instance, the name of its class."""
    if isinstance(target, functools.partial):
        return _callable_name(target.func)
    name = getattr(target, "__qualname__", None) or getattr(target, "__name__", None)
    if not isinstance(name, str):
        return f"{type(target).__module__}.{type(target).__qualname__}"
    name = name.rpartition("<locals>.")[2]
    short = name.rpartition(".")[2]
    module = getattr(target, "__module__", None)
    if not isinstance(module, str):  # a class may have a property of this name
        module = ""
    if module.startswith("torch"):
        public_name = _public_name(target, short)
        if public_name is not None:
            return public_name
    if isinstance(target, types.MethodDescriptorType) and getattr(torch.Tensor, short, 0) is target:
        return f"torch.Tensor.{short}"
    module = {"_operator": "operator", "builtins": ""}.get(module, module)
    return builtin_name(f"{module}.{name}") if module else name


def _public_name(target: Any, short: str) -> str | None:
    """Return the name of a torch function in a public module, or `None`."""
    own_name = getattr(target, "__name__", short)  # the __qualname__ of max_pool2d ends in `fn`
    for public in _PUBLIC:
        for name in (own_name, short):
            if getattr(public, name, None) is target:
                return f"{public.__name__}.{name}"
    return None


_PYBIND11 = re.compile(r"pybind11_detail_function_record_\w+\.")


def builtin_name(name: str) -> str:
    """Return a name without the record name that pybind11 adds in torch's C extension."""
    return _PYBIND11.sub("", name)


def attribute_at(owner: Any, path: str) -> Any:
    """Return the attribute at a dotted path, or `None` if there is none."""
    return functools.reduce(lambda value, name: getattr(value, name, None), path.split("."), owner)


def class_name(cls: Callable[..., Any]) -> str:
    """Return the qualified name of a module class, e.g. `torch.nn.Linear`."""
    module = getattr(cls, "__module__", "")
    name = getattr(cls, "__qualname__", "")
    if getattr(torch.nn, name, None) is cls:
        return f"torch.nn.{name}"
    return f"{module}.{name}"


def dotted(node: ast.expr, aliases: Mapping[str, str] = types.MappingProxyType({})) -> str:
    """Return the text of `a.b.c`, with an alias resolved, "" for any other expression."""
    match node:
        case ast.Name(name):
            return aliases.get(name, name)
        case ast.Attribute(owner, name) if path := dotted(owner, aliases):
            return f"{path}.{name}"
    return ""
