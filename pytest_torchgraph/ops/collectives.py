"""Ops that communicate between ranks, by their names: torch's functional ones and those of c10d."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

WAITS = frozenset(
    {
        "_c10d_functional.wait_tensor.default",
        "_c10d_functional.wait_tensors.default",  # of a list, since torch 2.15
        "c10d_functional.wait_tensor.default",
    }
)
"""Ops that wait for a collective."""

_FUNCTIONAL = frozenset(
    {"_c10d_functional", "_c10d_functional_autograd", "c10d_functional", "_dtensor", "symm_mem"}
)

_BATCH = "batch_p2p_ops"
"""Several sends and receives as one op: its first argument says what each is."""

_KINDS = tuple(
    (re.compile(pattern), kind)
    for pattern, kind in (
        # In this order: "reduce_scatter" holds "reduce" and "scatter".
        (r"reduce_scatter", "reduce_scatter"),
        (r"all_?reduce", "all_reduce"),
        (r"all_?gather", "all_gather"),
        (r"all_?to_?all", "all_to_all"),
        (r"broadcast", "broadcast"),
        (r"i?send_?\Z", "send"),
        (r"i?recv(_any_source)?_?\Z", "recv"),
        (r"barrier", "barrier"),
        (r"reduce", "reduce"),
        (r"gather", "gather"),
        (r"scatter", "scatter"),
        (r"_(put|get)(_|\Z)", "other"),  # of symmetric memory: from or to another rank alone
    )
)


REDUCTIONS = frozenset(
    {"sum", "avg", "mean", "product", "min", "max", "band", "bor", "bxor", "premul_sum"}
)
"""What collectives are told to reduce by: texts that name no group."""

OTHER = "other"
"""The kind of an op that communicates, and whose name does not say how."""

_WRITES = re.compile(r"(_out|_)\Z")

_HIDDEN = re.compile(
    r"DTensor\.|Tensor\.(redistribute|full_tensor)\Z|.*\bdistribute_tensor\Z"
    # Functions of DTensor and its methods, as Dynamo wraps them before torch 2.13.
    r"|torch\._dynamo\.variables\..*\b(redistribute_)?fn_with_prim_types\Z"
)
"""Functions of graphs that are not dispatched yet, which may communicate or not."""

_CALLS_PYTHON = re.compile(r"torch\._dynamo\.(external_utils\.call_(module_)?hook|.*\.self_invoke)")
"""What stands for a hook in a backward of compiled autograd: whatever the hook does."""

CALLS_FUNCTION = "torch._dynamo.external_utils.call_backward"
"""What stands for the backward of an `autograd.Function` that compiled autograd calls as it is."""

_PYTHON_API = "torch.distributed."
"""Where the functions are that `torch.fx` leaves in a graph as they are called."""


def calls_python(op: str) -> bool:
    """Return True for an op that runs a hook, or the backward of an `autograd.Function`."""
    return op == CALLS_FUNCTION or bool(_CALLS_PYTHON.match(op))


def hides_collectives(op: str, *, dispatched: bool) -> bool:
    """Whether an op decides when it runs what it communicates.

    Args:
        op: its qualified name.
        dispatched: whether its graph has only ops that are dispatched.
    """
    return bool(_CALLS_PYTHON.match(op) or (not dispatched and _HIDDEN.match(op)))


def collective_kinds(
    op: str, args: tuple[Any, ...], *, communicates: bool = False
) -> tuple[str, ...]:
    """The kinds of collectives that an op runs, in order; () for an op that is none.

    Args:
        op: its qualified name.
        args: its positional arguments.
        communicates: whether it is known to communicate: an op of somebody's own.
    """
    _, _, rest = op.partition(".")
    if op in WAITS:
        return ()
    name = rest.partition(".")[0]
    if op.startswith(_PYTHON_API):
        kind = _kind(op.rpartition(".")[2])
        return (kind,) if kind else ()
    if not is_functional(op):
        return (_kind(name) or OTHER,) if communicates else ()
    if name == _BATCH:
        listed = args[0] if args and isinstance(args[0], tuple) else ()
        return tuple(kind for each in listed if (kind := _kind(str(each))))
    kind = _kind(name)
    return (kind,) if kind else ()


_PEERS = {
    "c10d.send": 2,
    "c10d.recv_": 2,
    "_c10d_functional.isend": 1,
    "_c10d_functional.irecv": 1,
}
"""Which argument of an op between two ranks is the other one, counted in the group."""


def peers_of(op: str, args: tuple[Any, ...], parts: int) -> Sequence[int | None]:
    """The ranks of the group that an op sends to or receives from; None where that is no one rank.

    Args:
        op: its qualified name.
        args: its positional arguments.
        parts: how many collectives it runs.
    """
    packet = op.rpartition(".")[0]
    if packet == f"_c10d_functional.{_BATCH}":
        listed = args[1] if len(args) > 1 and isinstance(args[1], tuple) else ()
    else:
        position = _PEERS.get(packet)
        listed = args[position : position + 1] if position is not None else ()
    found = [each if isinstance(each, int) else None for each in listed]
    return found if len(found) == parts else [None] * parts


def packet_of(op: str) -> str:
    """The op, whatever its overload, and whether it writes in place or into an argument."""
    return _WRITES.sub("", ".".join(op.split(".")[:2]))


def is_functional(op: str) -> bool:
    """Whether an op is one of torch's own that communicate between ranks, and no wait."""
    namespace = op.partition(".")[0]
    return (namespace in _FUNCTIONAL or namespace == "c10d") and op not in WAITS


def _kind(name: str) -> str:
    return next((kind for pattern, kind in _KINDS if pattern.search(name)), "")
