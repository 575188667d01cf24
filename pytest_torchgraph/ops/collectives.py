"""Ops that communicate between ranks, by their names: torch's functional ones and those of c10d."""

from __future__ import annotations

import re
from typing import Any

WAITS = frozenset({"_c10d_functional.wait_tensor.default", "c10d_functional.wait_tensor.default"})
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
    )
)


OTHER = "other"
"""The kind of an op that communicates, and whose name does not say how."""

_HIDDEN = re.compile(
    r"DTensor\.|Tensor\.(redistribute|full_tensor)\Z|.*\bdistribute_tensor\Z"
    # Functions of DTensor and its methods, as Dynamo wraps them before torch 2.13.
    r"|torch\._dynamo\.variables\..*\b(redistribute_)?fn_with_prim_types\Z"
)
"""Functions of graphs that are not dispatched yet, which may communicate or not."""


def hides_collectives(op: str) -> bool:
    """Whether an op of a graph of torch functions decides when it runs what it communicates."""
    return _HIDDEN.match(op) is not None


def collective_kinds(
    op: str, args: tuple[Any, ...], *, communicates: bool = False
) -> tuple[str, ...]:
    """The kinds of collectives that an op runs, in order; () for an op that is none.

    Args:
        op: its qualified name.
        args: its positional arguments.
        communicates: whether it is known to communicate: an op of somebody's own.
    """
    namespace, _, rest = op.partition(".")
    if op in WAITS:
        return ()
    name = rest.partition(".")[0]
    if namespace not in _FUNCTIONAL and namespace != "c10d":
        return (_kind(name) or OTHER,) if communicates else ()
    if name == _BATCH:
        listed = args[0] if args and isinstance(args[0], tuple) else ()
        return tuple(kind for each in listed if (kind := _kind(str(each))))
    kind = _kind(name)
    return (kind,) if kind else ()


def _kind(name: str) -> str:
    return next((kind for pattern, kind in _KINDS if pattern.search(name)), "")


CALLS_FUNCTION = "torch._dynamo.external_utils.call_backward"
"""What stands for the backward of an `autograd.Function` that compiled autograd calls as it is."""
