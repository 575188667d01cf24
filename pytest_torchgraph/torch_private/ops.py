"""The dispatcher's registry of ops."""

from __future__ import annotations

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
