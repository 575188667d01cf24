"""Formulas for the floating-point operations of ops: torch's own (`torch.utils.flop_counter`)."""

from __future__ import annotations

import re
from functools import cache, lru_cache
from typing import Any

import torch
from torch.utils.flop_counter import flop_registry

from .. import torch_private
from .qualified import op_name

_CPU_ATTENTION = {
    "aten._scaled_dot_product_flash_attention_for_cpu": "_scaled_dot_product_flash_attention",
    "aten._scaled_dot_product_flash_attention_for_cpu_backward": (
        "_scaled_dot_product_flash_attention_backward"
    ),
}
"""torch has a formula for the attention that a GPU runs, and none for the one of the CPU."""

_FREE = frozenset(
    {"aten", "prims", "operator", "torch", "Tensor", "_c10d_functional", "c10d", "inductor"}
)
"""Namespaces whose ops do no work of their own unless `_WORKING` names them."""

_WORKING = re.compile(
    r"aten\.(_?linalg_(?!vector_norm)\w+|mkldnn_rnn\w*|_?fft_\w+|mv|addmv|dot|vdot|ger|addr|_int_mm|_?\w*(lstm|gru|rnn)\w*|"
    r"_weight_int\w+|_cdist\w*|_pdist\w*|cdist|_trilinear|\w*grid_sampl\w*|cholesky\w*|"
    r"triangular_solve|lu_\w+|ormqr|geqrf|_grouped_mm|_scaled_grouped_mm|_sparse\w*mm\w*|"
    r"_transformer\w*|_native_multi_head\w*|_triton\w*|histogram\w*)_?\Z"
)
"""Ops of ATen that do work, and that torch has no formula for."""

_COMPOSED = re.compile(
    r"aten\.(linear|matmul|einsum|tensordot|bilinear|inner|chain_matmul|conv\dd|conv_transpose\dd|"
    r"scaled_dot_product_attention)\Z"
)
"""Composite ops that work, which graphs of `torch.export` keep whole: their parts are counted."""


@cache
def _formulas() -> dict[str, Any]:
    """torch's formulas by the names of their ops without overload."""
    return {
        op_name(target): formula
        for target, formula in flop_registry.items()
        if isinstance(target, torch._ops.OpOverloadPacket | torch._ops.HigherOrderOperator)
    }


@lru_cache(maxsize=4096)
def formula_of(op: str) -> Any:
    """The formula for an op; None for one that does no work of its own.

    Raises:
        KeyError: for an op that does work and has no formula.
    """
    packet = op.rpartition(".")[0] if op.count(".") == 2 else op
    attention = _CPU_ATTENTION.get(packet)
    formula = _formulas().get(packet if attention is None else f"aten.{attention}")
    if formula is None and _COMPOSED.match(packet):
        return _of_parts(op)
    if formula is None and (op.partition(".")[0] not in _FREE or _WORKING.match(packet)):
        raise KeyError(op)
    return formula


def _of_parts(op: str) -> Any:
    """A formula that counts what a composite op is decomposed into."""
    found: Any = torch.ops
    for part in op.split("."):
        found = getattr(found, part)

    def formula(*args: Any, out_val: Any, **kwargs: Any) -> int:
        with _Parts() as parts:
            found(*args, **kwargs)
        return int(parts.flops)

    return formula


class _Parts(torch_private.TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Counts by `formula_of`, so that a part without a formula is no 0, as it is to torch's own."""

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.flops = 0

    def __torch_dispatch__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Any = None
    ) -> Any:
        out = func(*args, **(kwargs or {}))
        formula = formula_of(str(func))
        if formula is not None:
            self.flops += int(formula(*args, **(kwargs or {}), out_val=out))
        return out


def without_memory(shape: tuple[int, ...], dtype: str) -> torch.Tensor:
    """A tensor that has a shape alone, as formulas take it."""
    return torch.empty(shape, dtype=getattr(torch, dtype), device="meta")
