"""FLOP formulas of ops, from torch (`torch.utils.flop_counter`)."""

from __future__ import annotations

import re
from functools import lru_cache
from operator import attrgetter
from typing import Any

import torch
from torch.utils.flop_counter import flop_registry

from .. import torch_private
from . import registry
from .collectives import is_autograd_node
from .qualified import op_name
from .views import without_overload

_CPU_ATTENTION = {
    "aten._scaled_dot_product_flash_attention_for_cpu": "_scaled_dot_product_flash_attention",
    "aten._scaled_dot_product_flash_attention_for_cpu_backward": (
        "_scaled_dot_product_flash_attention_backward"
    ),
}
"""Maps CPU attention ops, which have no formula in torch, to GPU ops whose formulas are used."""

_FREE = frozenset(
    {"aten", "prims", "operator", "torch", "Tensor", "_c10d_functional", "c10d", "inductor"}
)
"""Namespaces whose ops count no FLOPs unless `_COMPUTING` matches them."""
_OF_TORCH = ("aten", "prims")
"""Namespaces whose names are matched with `_COMPUTING`."""

_COMPUTING = re.compile(
    r"(?:\w*_)?(?:linalg(?!_vector_norm|_check_errors)|matrix_(?:exp|power)|multi_head|grid_sampl\w*|cslt_sparse|"
    r"(?:hs|ss?p?add|s|add|badd|b)?b?mm|addbmm|matmul|gemm|einsum|tensordot|inner|dot|vdot|mv|addmv|"
    r"ger|addr|linear|bilinear|trilinear|convolution|conv|conv\dd|attention|lstm|gru|rnn|cdist|pdist|"
    r"euclidean_dist|affine_grid|svd|qr|lu|inv|inverse|pinverse|det|logdet|slogdet|cholesky|solve|"
    r"spsolve|ormqr|orgqr|geqrf|lstsq|fft|stft|istft|cov|corrcoef|nuclear|transformer|triton|histogram\w*)(?:_\w*)?\Z"
)
"""Names of ATen ops that count FLOPs. torch has formulas for only some of them."""

_PREPARING = re.compile(r"(?:\w*_)?(?:pack|prepack|reorder|slice)(?:_\w*)?\Z")
"""Names of ops that count no FLOPs: views, and ops that lay out memory for a computing op."""

_SPARSE = re.compile(r"smm|sspaddmm|\w*sparse")


@lru_cache(maxsize=1)
def _formulas(_count: int) -> dict[str, Any]:
    """Return torch's formulas, by op name without overload. The count is only the cache key."""
    return {
        op_name(target): formula
        for target, formula in flop_registry.items()
        if isinstance(target, torch._ops.OpOverloadPacket | torch._ops.HigherOrderOperator)
    }


@lru_cache(maxsize=4096)
def formula_of(op: str) -> Any:
    """Return the FLOP formula of an op, `None` if the op counts no FLOPs.

    Raises:
        KeyError: if the op counts FLOPs but has no formula.
    """
    packet = without_overload(op)
    attention = _CPU_ATTENTION.get(packet)
    formulas = _formulas(len(flop_registry))  # a test may register a formula
    formula = formulas.get(packet if attention is None else f"aten.{attention}")
    if formula is None and packet.endswith("_"):  # an in-place op has the same arguments
        formula = formulas.get(packet.removesuffix("_"))
    if formula is not None:
        return formula
    namespace, _, name = packet.partition(".")
    if namespace not in _FREE or is_autograd_node(op):
        raise KeyError(op)
    if namespace in _OF_TORCH and _COMPUTING.match(name) and not _PREPARING.match(name):
        # torch.export keeps composite ops whole. Sum over the parts, except for sparse ops: their
        # parts depend on a layout that a tensor of `without_memory` does not have.
        if packet == op or _SPARSE.match(name) or not registry.is_composite(op):
            raise KeyError(op)
        return _formula_of_parts(op)
    return None


def _formula_of_parts(op: str) -> Any:
    """Return a formula that sums over the decomposition of a composite op."""
    op_object = attrgetter(op)(torch.ops)

    def formula(*args: Any, out_val: Any, **kwargs: Any) -> int:
        with _PartsFlopCounter() as parts:
            op_object(*args, **kwargs)
        return int(parts.flops)

    return formula


class _PartsFlopCounter(torch_private.TorchDispatchMode):  # type: ignore[no-untyped-call]
    """FLOP counter that raises for an op without a formula; torch's own counter adds 0."""

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.flops = 0

    def __torch_dispatch__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Any = None
    ) -> Any:
        result = func(*args, **(kwargs or {}))
        formula = formula_of(str(func))  # raises KeyError for a part without a formula
        if formula is not None:
            self.flops += int(formula(*args, **(kwargs or {}), out_val=result))
        return result


def without_memory(shape: tuple[int, ...], dtype: str) -> torch.Tensor:
    """Return a tensor with shape and dtype but no memory, as an argument of formulas."""
    return torch.empty(shape, dtype=getattr(torch, dtype), device="meta")
