"""Side effects of calls without a schema: torch functions, methods and operators, by name."""

from __future__ import annotations

import operator
from typing import Any

import torch
import torch.fx

from ...ops.qualified import op_name
from . import schema

_INPLACE = frozenset(
    getattr(operator, f"i{name}")
    for name in "add sub mul truediv floordiv mod pow matmul and or xor lshift rshift".split()
)
"""The functions of Python's in-place operators, as `operator.iadd` for `+=`."""
_KERNEL = "triton_kernel_wrapper_mutation"
"""A Triton kernel that writes its operands."""
_VIEWS = frozenset(
    "view view_as reshape transpose t permute expand expand_as squeeze unsqueeze narrow select "
    "chunk split unbind flatten unflatten swapaxes movedim diagonal detach as_strided getitem "
    "getattr T mT contiguous real imag".split()
)
"""Functions and methods whose result is a view of the first argument."""
_RANDOM = frozenset(
    "dropout dropout1d dropout2d dropout3d alpha_dropout feature_alpha_dropout rand randn randint "
    "rand_like randn_like randint_like randperm normal bernoulli multinomial poisson "
    "bernoulli_ normal_ uniform_ exponential_ geometric_ log_normal_ cauchy_ random_".split()
)
"""Functions and methods that draw random numbers, at least in training."""


def has_schema(node: torch.fx.Node) -> bool:
    """Whether the node calls an overload, whose schema gives its effects."""
    return isinstance(node.target, torch._ops.OpOverload)


def node_writes(node: torch.fx.Node) -> list[torch.fx.Node]:
    """The operands that a node writes, by its schema where it has one."""
    arguments: list[Any]
    if isinstance(node.target, torch._ops.OpOverload):
        arguments = schema.written(node.target, tuple(node.args), dict(node.kwargs))
    elif str(node.target) == _KERNEL:
        arguments = [node.kwargs.get("kwargs")]  # torch does not say which of them it writes
    else:
        word = node.target if isinstance(node.target, str) else ""
        inplace = (
            (node.op == "call_method" and word.endswith("_") and not word.endswith("__"))
            or (node.op == "call_method" and word == "__setitem__")
            or node.target in _INPLACE
            or node.target is operator.setitem
            or (node.op == "call_function" and node.kwargs.get("inplace") is True)
        )
        arguments = list(node.args[:1]) if inplace else []
        if "out" in node.kwargs:
            arguments.append(node.kwargs["out"])
    nodes: list[torch.fx.Node] = []
    torch.fx.node.map_arg(tuple(arguments), nodes.append)
    return nodes


def is_view(node: torch.fx.Node) -> bool:
    """Whether the result is a view of the first argument, by the name; false with a schema."""
    return not has_schema(node) and _word(node) in _VIEWS


def node_draws(node: torch.fx.Node) -> bool:
    """Whether the call draws random numbers, by the name; false with a schema."""
    if has_schema(node) or node.op not in ("call_function", "call_method"):
        return False
    training = node.args[2] if len(node.args) > 2 else node.kwargs.get("training", True)
    return _word(node) in _RANDOM and training is not False


def _word(node: torch.fx.Node) -> str:
    """The last part of the op's name."""
    return op_name(node.target).rpartition(".")[2]
