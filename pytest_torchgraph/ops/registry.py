"""Names of existing ops: registered ops and higher-order ops."""

from __future__ import annotations

import functools

from .. import torch_private
from .matching import is_glob, matches


@functools.lru_cache(maxsize=1)
def _packets_by_count(_count: int) -> dict[str, list[str]]:
    """Return the registered ops by packet. The count is only the cache key."""
    packets: dict[str, list[str]] = {}
    for name in torch_private.registered_ops():
        namespace, _, rest = name.partition("::")
        packet, _, overload = rest.partition(".")
        op = f"{namespace}.{packet}.{overload or 'default'}"
        packets.setdefault(op.rpartition(".")[0], []).append(op)
    return packets


def _packets() -> dict[str, list[str]]:
    """Return the registered ops by packet, and read them again if their number has changed."""
    return _packets_by_count(len(torch_private.registered_ops()))


def registered() -> list[str]:
    """Return the qualified names of all registered ops."""
    return [op for ops in _packets().values() for op in ops]


def matching(pattern: str) -> list[str]:
    """Return the registered ops that match a pattern."""
    if is_glob(pattern):
        return [op for op in registered() if matches(op, pattern)]
    packets = _packets()
    ops = [*packets.get(pattern, ()), *packets.get(pattern.rpartition(".")[0], ())]
    return [op for op in ops if matches(op, pattern)]


def schema_name(op: str) -> str:
    """Return the dispatcher's name of an op: `aten::add.Tensor` for `aten.add.Tensor`."""
    namespace, packet, overload = op.split(".", 2)
    return f"{namespace}::{packet}" + ("" if overload == "default" else f".{overload}")


def is_composite(op: str) -> bool:
    """Return True if a registered op is composite: decomposed before it is dispatched."""
    return torch_private.is_composite(schema_name(op))


def is_decomposed_when_traced(op: str) -> bool:
    """Return True for an op that runs as it is, but that AOTAutograd decomposes."""
    import torch

    from .qualified import attribute_at

    op_object = attribute_at(torch.ops, op)
    return isinstance(op_object, torch._ops.OpOverload) and torch_private.has_python_kernel(
        op_object
    )


def is_triton_op(op: str) -> bool:
    """Return True for an op of `torch.library.triton_op`."""
    return torch_private.is_triton_op(schema_name(op))


def only_aliased_argument(op: str) -> int | None:
    """Return the position of the argument that an op writes or returns a view of, by its schema.

    Returns:
        `None` unless exactly one argument is written or viewed, and for an unregistered op.
    """
    import torch

    from .qualified import attribute_at

    op_object = attribute_at(torch.ops, op)
    if not isinstance(op_object, torch._ops.OpOverload):
        return None
    arguments = op_object._schema.arguments
    aliased = [i for i, argument in enumerate(arguments) if argument.alias_info is not None]
    return aliased[0] if len(aliased) == 1 else None


def argument_defaults(op: str) -> dict[str, object]:
    """Return the arguments of an op by name, in order, with their defaults; {} if unregistered."""
    import torch

    from .qualified import attribute_at

    schema = getattr(attribute_at(torch.ops, op), "_schema", None)
    defaults = {
        argument.name: argument.default_value for argument in getattr(schema, "arguments", ())
    }
    # A graph has tuples.
    return {
        name: tuple(value) if isinstance(value, list) else value for name, value in defaults.items()
    }


def is_in_place(op: str) -> bool:
    """Return True for in-place ops except `copy_`, and for `out=` variants."""
    packet, _, overload = op.partition(".")[2].rpartition(".")
    in_place = packet.endswith("_") and not packet.endswith("__")
    return (in_place and packet != "copy_") or overload.endswith("out")


def is_replaced(op: str) -> bool:
    """Return True if a functional graph replaces an in-place op with its functional form.

    A custom op without a functional form is kept, inside a wrapper.
    """
    packet = ".".join(op.split(".")[:2]).removesuffix("_")
    return any(not is_in_place(other_op) for other_op in matching(packet))


def unregistered(pattern: str) -> list[str]:
    """Return the names of the loaded Triton kernels for a `triton.` pattern, else higher-order ops.

    Searching all modules for kernels takes long, so other patterns do not.
    """
    if pattern.startswith("triton."):
        return [f"triton.{name}" for name in torch_private.triton_kernels()]
    return [f"higher_order.{name}" for name in torch_private.get("higher_order_ops")]
