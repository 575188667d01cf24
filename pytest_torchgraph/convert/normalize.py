"""Normalize calls that torch releases write differently, and read values of small constants.

Only forms of the *same* call are unified, and the node does not keep the original form. Different
ops with the same result stay different here; `graph.equality.canonical` unifies them to compare.
"""

from __future__ import annotations

import functools
import inspect
import re
from typing import Any

import torch
from torch import fx

from .. import torch_private
from ..graph.model import Arg, Atom, GraphKind

COMPARISONS = {f"__{name}__": f"operator.{name}" for name in ("eq", "ne", "lt", "le", "gt", "ge")}
"""Operators that Dynamo wrote as method calls before torch 2.13."""

_TRITON = re.compile(r"triton_kernel_wrapper_(functional|mutation)\Z")

BACKEND_FLAGS = {
    "aten::layer_norm": "cudnn_enable",
    "aten::group_norm": "cudnn_enabled",
    "aten::batch_norm": "cudnn_enabled",
    "aten::instance_norm": "cudnn_enabled",
}
"""Argument that holds the process flag `torch.backends.cudnn.enabled`, by schema name."""


def operator_name(node: fx.Node) -> str | None:
    """Return the op of a comparison written as a method call (`x.__eq__(y)`), otherwise `None`."""
    if node.op == "call_method" and len(node.args) == 2 and not node.kwargs:
        return COMPARISONS.get(str(node.target))
    return None


def arguments(node: fx.Node) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """Return the arguments of a call that are part of the model.

    The number of a Triton kernel, an index into a table of the process, is replaced with the
    kernel's name. Two arguments are omitted:

    - a process flag (`BACKEND_FLAGS`), and the defaults before it, which torch writes only because
      the flag follows them;
    - the key of an `invoke_subgraph` body in torch's cache. It is a number, and adding one call
      would change it in all calls of the graph.
    """
    target = node.target
    if isinstance(target, torch._ops.HigherOrderOperator) and _TRITON.match(target._name):
        return _kernel_arguments(dict(node.kwargs))
    if getattr(target, "__qualname__", "").endswith("_with_prim_types"):
        # Before torch 2.12, Dynamo keeps the placements of a DTensor in the closure of a function.
        kept = inspect.getclosurevars(target).nonlocals  # type: ignore[arg-type]
        return (*node.args, *kept["args_as_value"]), {**node.kwargs, **kept["kwargs_as_value"]}
    return _positional(node), dict(node.kwargs)


def _kernel_arguments(kwargs: dict[str, Any]) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """Return the arguments of a Triton kernel: its name, its constants, and the other arguments."""
    name = torch_private.triton_kernel_name(kwargs.get("kernel_idx"))
    if name is None:  # from another process; the census rejects the graph
        return (), kwargs
    constants = torch_private.triton_constants(kwargs.get("constant_args_idx"))
    for index in ("kernel_idx", "constant_args_idx"):
        kwargs.pop(index, None)
    return (Atom(f"triton.{name}"),), {"constants": constants, **kwargs}


def _positional(node: fx.Node) -> tuple[Any, ...]:
    """Return the positional arguments without those that `arguments` omits."""
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
    """Return the position of an op's flag, which is its last argument; `None` without a flag."""
    name = BACKEND_FLAGS.get(op._schema.name)
    names = [argument.name for argument in op._schema.arguments]
    return names.index(name) if name in names else None


def _without_defaults(op: torch._ops.OpOverload, args: tuple[Any, ...]) -> tuple[Any, ...]:
    """Return the arguments without trailing ones that equal their defaults."""
    declared = op._schema.arguments
    while args:
        argument = declared[len(args) - 1]
        value = args[-1]
        if not argument.has_default_value() or isinstance(value, fx.Node):
            break
        if type(value) is not type(argument.default_value) or value != argument.default_value:
            break
        args = args[:-1]
    return args


def sums_gradients(node: fx.Node, kind: GraphKind) -> bool:
    """Return True if a node of an AOT graph adds two gradients of one value."""
    if torch_private.marks_gradient_sums():
        return bool(node.meta.get("is_gradient_acc"))
    # Older torch releases do not mark these sums, so accept any two-tensor sum without
    # `nn_module_stack` in a backward. A wrong guess affects only the module of the node.
    return (
        kind == "backward"
        and node.target is torch.ops.aten.add.Tensor
        and "nn_module_stack" not in node.meta
        and len(node.args) == 2
        and all(isinstance(arg, fx.Node) for arg in node.args)
    )


MAX_ELEMENTS = 64
"""Maximum number of elements of a constant whose value is kept."""
DIGITS = 5
"""Significant digits of floats. Further digits differ between machines."""


def value_of_constant(tensor: Any) -> tuple[Arg, ...]:
    """Return a tuple with the value of a constant tensor; `()` if it is unknown or too large.

    The value of a fake tensor, and of a tensor on the meta device, is unknown.
    """
    if type(tensor) not in (torch.Tensor, torch.nn.Parameter) or tensor.device.type == "meta":
        return ()
    if tensor.layout is not torch.strided or tensor.numel() > MAX_ELEMENTS or tensor.is_quantized:
        return ()
    try:
        with torch_private.get("without_modes")():  # AOTAutograd's mode would make it fake
            return (rounded(_numbers(tensor.detach())),)
    except (RuntimeError, NotImplementedError):  # a dtype without Python numbers
        return ()


def _numbers(tensor: torch.Tensor) -> Any:
    """Convert a tensor to nested lists, like `tolist`."""
    # A capture would record a call of `tolist` as a host sync in the target.
    return tensor.item() if tensor.dim() == 0 else [_numbers(row) for row in tensor.unbind()]


def rounded(value: Any) -> Any:
    """Return a value with its floats rounded and its lists converted to tuples."""
    if isinstance(value, list | tuple):
        return tuple(map(rounded, value))
    if isinstance(value, float):
        return float(f"{value:.{DIGITS - 1}e}")
    if isinstance(value, complex):
        return complex(rounded(value.real), rounded(value.imag))
    return value
