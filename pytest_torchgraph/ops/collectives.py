"""Recognize collectives by op name: torch's functional collectives and c10d ops."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

WAITS = frozenset(
    {
        "_c10d_functional.wait_tensor.default",
        "_c10d_functional.wait_tensors.default",  # waits for a list, since torch 2.15
        "c10d_functional.wait_tensor.default",
    }
)
"""Ops that wait for a collective."""

_FUNCTIONAL = frozenset(
    {"_c10d_functional", "_c10d_functional_autograd", "c10d_functional", "_dtensor", "symm_mem"}
)

_BATCH = "batch_p2p_ops"
"""Op that runs several sends and receives. Its first argument lists their kinds."""

_KINDS = tuple(
    (re.compile(pattern), kind)
    for pattern, kind in (
        # Order matters: "reduce_scatter" contains "reduce" and "scatter".
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
        (r"_(put|get)(_|\Z)", "other"),  # symmetric memory, to or from a single rank
    )
)


REDUCTIONS = frozenset(
    {"sum", "avg", "mean", "product", "min", "max", "band", "bor", "bxor", "premul_sum"}
)
"""Names of reductions. Other string arguments of collectives are group names."""

OTHER = "other"
"""Kind of a communicating op whose name matches no other kind."""

_WRITES = re.compile(r"(_out|_)\Z")
"""Suffix of an op that writes its result into an argument."""

_HIDDEN = re.compile(
    r"DTensor\.|Tensor\.(redistribute|full_tensor)\Z|.*\bdistribute_tensor\Z"
    # Before torch 2.13, Dynamo wraps DTensor's functions and methods.
    r"|torch\._dynamo\.variables\..*\b(redistribute_)?fn_with_prim_types\Z"
)
"""Functions that decide at run time whether to communicate, in graphs of torch functions."""

_CALLS_PYTHON = re.compile(r"torch\._dynamo\.(external_utils\.call_(module_)?hook|.*\.self_invoke)")
"""Calls of hooks in a backward captured by compiled autograd. A hook may communicate."""

_AUTOGRAD_NODE = re.compile(r"torch\._dynamo\.compiled_autograd\.ops\.(?!validate_outputs\Z)")
"""Nodes of autograd in a backward captured by compiled autograd, which traces their ops later."""

CALL_BACKWARD_OP = "torch._dynamo.external_utils.call_backward"
"""The op for the backward of an `autograd.Function` that compiled autograd does not trace."""

_PYTHON_API = "torch.distributed."
"""Prefix of functions of `torch.distributed`, which `torch.fx` keeps as nodes."""


def calls_python(op: str) -> bool:
    """Return True for an op that runs a hook, or the backward of an `autograd.Function`."""
    return op == CALL_BACKWARD_OP or bool(_CALLS_PYTHON.match(op))


def is_autograd_node(op: str) -> bool:
    """Return True for a node of autograd, such as `AddmmBackward0`, whose ops are in no graph."""
    return bool(_AUTOGRAD_NODE.match(op))


def hides_collectives(op: str, *, dispatched: bool) -> bool:
    """Return True if only a run can tell what an op communicates.

    Args:
        op: qualified name of the op.
        dispatched: True if the graph contains only dispatched ops.
    """
    return bool(_CALLS_PYTHON.match(op) or (not dispatched and _HIDDEN.match(op)))


def collective_kinds(
    op: str, args: tuple[Any, ...], *, communicates: bool = False
) -> tuple[str, ...]:
    """Return the kinds of collectives that an op runs, in order; () if it runs none.

    Args:
        op: qualified name of the op.
        args: positional arguments.
        communicates: True if a custom op is known to communicate.
    """
    if op in WAITS:
        return ()
    name = op.partition(".")[2].partition(".")[0]
    if op.startswith(_PYTHON_API):
        kind = _kind(op.rpartition(".")[2])
        return (kind,) if kind else ()
    if not is_functional(op):
        return (_kind(name) or OTHER,) if communicates else ()
    if name == _BATCH:
        kind_names = args[0] if args and isinstance(args[0], tuple) else ()
        return tuple(kind for kind_name in kind_names if (kind := _kind(str(kind_name))))
    kind = _kind(name)
    return (kind,) if kind else ()


_PEERS = {
    "c10d.send": 2,
    "c10d.recv_": 2,
    "_c10d_functional.isend": 1,
    "_c10d_functional.irecv": 1,
}
"""Position of the peer among the arguments of point-to-point ops."""


def peers_of(op: str, args: tuple[Any, ...], parts: int) -> Sequence[int | None]:
    """Return the peer of each collective of an op, or `None` for a collective without one peer.

    Peers are ranks, numbered in the group.

    Args:
        op: qualified name of the op.
        args: positional arguments.
        parts: number of collectives that the op runs.
    """
    packet = op.rpartition(".")[0]
    if packet == f"_c10d_functional.{_BATCH}":
        peers = args[1] if len(args) > 1 and isinstance(args[1], tuple) else ()
    else:
        position = _PEERS.get(packet)
        peers = args[position : position + 1] if position is not None else ()
    # Most ops have no peers, and a malformed graph may have any number.
    peer_ranks = [peer if isinstance(peer, int) else None for peer in peers]
    return peer_ranks if len(peer_ranks) == parts else [None] * parts


def packet_of(op: str) -> str:
    """Return the packet of an op, without the suffix of an in-place or `out` variant."""
    return _WRITES.sub("", ".".join(op.split(".")[:2]))


def is_functional(op: str) -> bool:
    """Return True for torch's own collectives, functional or c10d, but not for waits."""
    namespace = op.partition(".")[0]
    return (namespace in _FUNCTIONAL or namespace == "c10d") and op not in WAITS


def _kind(name: str) -> str:
    """Return the kind of a collective with this bare name, "" if the name states none."""
    return next((kind for pattern, kind in _KINDS if pattern.search(name)), "")
