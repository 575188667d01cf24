"""The dispatcher's registry of ops."""

from __future__ import annotations

import sys
from typing import Any

from .private_names import get


def registered_ops() -> list[str]:
    """The schema names of all registered ops, as `aten::add.Tensor`."""
    return list(get("op_names")())


def is_composite(schema_name: str) -> bool:
    """Whether an op is decomposed before it is dispatched (CompositeImplicitAutograd)."""
    return bool(get("has_kernel")(schema_name, "CompositeImplicitAutograd"))


def name_of_custom_op(op: Any) -> str:
    """The qualified name of what `torch.library.custom_op` gave, "" for anything else."""
    return str(op._opoverload.overloadpacket) if isinstance(op, get("custom_op")) else ""


def is_triton_op(schema_name: str) -> bool:
    """Return True for an op of `torch.library.triton_op`, which torch.compile takes apart."""
    return schema_name in get("triton_ops")


def triton_kernel_name(index: Any) -> str | None:
    """The name of the function of a Triton kernel, by its number in the table of this process.

    None for an unknown number.
    """
    return triton_function(get("triton_kernels").id_to_kernel.get(index))


def triton_kernels() -> set[str]:
    """The names of the Triton kernels that graphs of this process call, or loaded modules hold."""
    kernels = {triton_function(kernel) for kernel in get("triton_kernels").id_to_kernel.values()}
    for module in list(sys.modules.values()):
        for value in list(getattr(module, "__dict__", {}).values()):
            if str(type(value).__module__).startswith("triton.runtime"):
                kernels.add(triton_function(value))
    return {name for name in kernels if name is not None}


def triton_function(kernel: Any) -> str | None:
    """The name of the function of a Triton kernel; `None` if it has none."""
    while kernel is not None and hasattr(kernel, "fn"):  # what tunes it, then the kernel itself
        kernel = kernel.fn
    name = getattr(kernel, "__name__", None)
    return None if name is None else str(name)


def triton_constants(index: Any) -> dict[str, Any]:
    """The constant arguments of a call of a Triton kernel, by their number in that table."""
    return dict(get("triton_kernels").constant_args.get(index, {}))
