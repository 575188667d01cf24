"""The dispatcher's registry."""

from __future__ import annotations

from .names import get


def registered_ops() -> list[str]:
    """All registered ops, as `aten::add.Tensor`."""
    return list(get("ops")())


def is_composite(schema_name: str) -> bool:
    """Whether an op is taken apart before it is dispatched (CompositeImplicitAutograd)."""
    return bool(get("kernel")(schema_name, "CompositeImplicitAutograd"))
