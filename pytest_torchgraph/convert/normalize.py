"""One form for calls that releases of torch write differently, and the values of small constants.

Only forms of the *same* call are unified here, and a node does not show which one it had. Another
op that computes the same stays; `graph.equality.canonical` unifies those, for comparisons only.
"""

from __future__ import annotations

import functools
import re
from typing import Any

import torch
import torch.fx

from .. import torch_private
from ..graph.model import Arg, Atom, GraphKind

COMPARISONS = {f"__{name}__": f"operator.{name}" for name in ("eq", "ne", "lt", "le", "gt", "ge")}
"""Operators that Dynamo wrote as calls of methods before torch 2.13."""

_TRITON = re.compile(r"triton_kernel_wrapper_(functional|mutation)\Z")

BACKEND_FLAGS = {
    "aten::layer_norm": "cudnn_enable",
    "aten::group_norm": "cudnn_enabled",
    "aten::batch_norm": "cudnn_enabled",
    "aten::instance_norm": "cudnn_enabled",
}
"""Arguments that hold a flag of the process, `torch.backends.cudnn.enabled`, by the op's schema."""


def operator_name(node: torch.fx.Node) -> str | None:
    """The op of a comparison that is a method call (`x.__eq__(y)`); None for any other node."""
    if node.op == "call_method" and len(node.args) == 2 and not node.kwargs:
        return COMPARISONS.get(str(node.target))
    return None


def arguments(node: torch.fx.Node) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """The arguments of a call, without those that are no part of the model.

    A Triton kernel stands in place of its number in a table of the process. Left out are

    - a flag of the process (`BACKEND_FLAGS`), with the defaults before it, which torch writes only
      because the flag follows;
    - the key of an `invoke_subgraph`'s body in torch's cache: a number, which would change in all
      calls of a graph when one is added.
    """
    target = node.target
    if isinstance(target, torch._ops.HigherOrderOperator) and _TRITON.match(target._name):
        return _of_kernel(dict(node.kwargs))
    return _positional(node), dict(node.kwargs)


def _of_kernel(kwargs: dict[str, Any]) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """The arguments of a Triton kernel: its name, its constants, and the others as they are."""
    name = torch_private.triton_kernel_name(kwargs.get("kernel_idx"))
    if name is None:  # from another process: the census refuses it
        return (), kwargs
    constants = torch_private.triton_constants(kwargs.get("constant_args_idx"))
    own = {
        name: arg for name, arg in kwargs.items() if name not in ("kernel_idx", "constant_args_idx")
    }
    return (Atom(f"triton.{name}"),), {"constants": constants, **own}


def _positional(node: torch.fx.Node) -> tuple[Any, ...]:
    target = node.target
    if target is torch.ops.higher_order.invoke_subgraph and isinstance(node.args[1], str):
        return node.args[0], *node.args[2:]
    if isinstance(target, torch._ops.OpOverload):
        flag = _flag(target)
        if flag is not None and len(node.args) == flag + 1:
            return _without_defaults(target, tuple(node.args[:flag]))
    return tuple(node.args)


@functools.lru_cache(maxsize=1024)
def _flag(op: torch._ops.OpOverload) -> int | None:
    """The position of the op's flag, which is its last argument; None for an op without one."""
    name = BACKEND_FLAGS.get(op._schema.name)
    names = [argument.name for argument in op._schema.arguments]
    return names.index(name) if name in names else None


def _without_defaults(op: torch._ops.OpOverload, args: tuple[Any, ...]) -> tuple[Any, ...]:
    """The arguments without those at the end that equal their defaults."""
    declared = op._schema.arguments
    while args:
        argument = declared[len(args) - 1]
        value = args[-1]
        if not argument.has_default_value() or isinstance(value, torch.fx.Node):
            break
        if type(value) is not type(argument.default_value) or value != argument.default_value:
            break
        args = args[:-1]
    return args


def sums_gradients(node: torch.fx.Node, kind: GraphKind) -> bool:
    """Whether a node of an AOT graph adds up gradients of one value.

    Older releases of torch do not mark them. There every sum of two tensors in a backward
    without `nn_module_stack` counts as one; that decides only the module that the node is put in.
    """
    if torch_private.marks_gradient_sums():
        return bool(node.meta.get("is_gradient_acc"))
    return (
        kind == "backward"
        and node.target is torch.ops.aten.add.Tensor
        and "nn_module_stack" not in node.meta
        and len(node.args) == 2
        and all(isinstance(arg, torch.fx.Node) for arg in node.args)
    )


MAX_ELEMENTS = 64
"""The most elements of a constant whose value is kept."""
DIGITS = 5
"""The significant digits of floats: further ones differ between machines."""


def value_of_constant(tensor: Any) -> tuple[Arg, ...]:
    """Return the value of a constant tensor as the only item; empty if unknown or too large.

    Fake tensors and tensors on the meta device have no value.
    """
    if type(tensor) not in (torch.Tensor, torch.nn.Parameter) or tensor.device.type == "meta":
        return ()
    if tensor.layout is not torch.strided or tensor.numel() > MAX_ELEMENTS or tensor.is_quantized:
        return ()
    try:
        with torch_private.get("without_modes")():  # while AOTAutograd compiles, all would be fake
            return (rounded(_numbers(tensor.detach())),)
    except (RuntimeError, NotImplementedError):  # a dtype without Python numbers
        return ()


def _numbers(tensor: torch.Tensor) -> Any:
    """Do what `tolist` does, which a capture takes for a host sync of the target's."""
    return tensor.item() if tensor.dim() == 0 else [_numbers(row) for row in tensor.unbind()]


def rounded(value: Any) -> Any:
    """The value with its floats rounded, its lists as tuples."""
    if isinstance(value, list | tuple):
        return tuple(map(rounded, value))
    if isinstance(value, float):
        return float(f"{value:.{DIGITS - 1}e}")
    if isinstance(value, complex):
        return complex(rounded(value.real), rounded(value.imag))
    return value
