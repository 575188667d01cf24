"""Ops that launch nothing on a device, or whose result shares the storage of an argument.

Ops are listed by name, so the saved memory of a stored graph can be computed without torch. A test
compares the lists with torch's schemas.
"""

from __future__ import annotations

import sys
from functools import cache

_ATEN = frozenset(
    """
    _autocast_to_full_precision _autocast_to_reduced_precision _conj _fw_primal _indices _make_dual
    _neg_view _nested_get_values _nested_view_from_buffer _nested_view_from_jagged _reshape_alias
    _sparse_broadcast_to _test_autograd_multiple_dispatch_view _unpack_dual _values adjoint alias
    align_to refine_names rename
    as_strided broadcast_to ccol_indices chunk coalesce col_indices conj contiguous crow_indices
    detach diagonal dsplit expand expand_as flatten hsplit imag indices lift_fresh linalg_diagonal
    mH mT matrix_H moveaxis movedim narrow numpy_T permute pin_memory positive ravel real reshape
    reshape_as resolve_conj resolve_neg row_indices select slice slice_inverse split
    split_with_sizes squeeze swapaxes swapdims t tensor_split to transpose unbind unflatten unfold
    unsqueeze values view view_as view_as_complex view_as_real vsplit
    """.split()
)
_PRIMS = frozenset(
    """
    as_strided broadcast_in_dim collapse_view conj copy_to imag real resize split_dim squeeze
    transpose view_of view_of_dtype
    """.split()
)
VIEWS = frozenset(f"aten.{name}" for name in _ATEN) | frozenset(f"prims.{name}" for name in _PRIMS)
"""Packets whose result may share the storage of the first argument, according to the schema."""

UNDECLARED_VIEWS = frozenset(
    """
    _c10d_functional.wait_tensor aten._unsafe_view aten.unsafe_chunk aten.unsafe_split
    aten.unsafe_split_with_sizes
    """.split()
)
"""Packets whose result shares the first argument's storage, which the schema does not say."""

KNOWN_NAMESPACES = frozenset(
    {"_c10d_functional", "aten", "c10d", "higher_order", "inductor", "operator", "prims"}
)
"""Namespaces judged by name, without reading schemas."""


def without_overload(op: str) -> str:
    """Return the packet of an op; a name that has no overload is returned unchanged."""
    return op.rpartition(".")[0] if op.count(".") == 2 else op


@cache
def _shares_by_name(op: str) -> bool:
    """Return True if the result of an op of torch shares the storage of its first argument."""
    packet = without_overload(op)
    namespace, _, name = packet.partition(".")
    if namespace not in KNOWN_NAMESPACES:
        return False
    # Ops in place: `add_`, but not `__and__`, and `__iand__`.
    in_place = (name.endswith("_") and not name.endswith("__")) or name.startswith("__i")
    return in_place or packet in VIEWS or packet in UNDECLARED_VIEWS


def is_view(op: str) -> bool:
    """Return True if the name of an op is that of a view. In-place ops are not views."""
    return without_overload(op) in VIEWS | UNDECLARED_VIEWS


def shared_argument(op: str) -> int | None:
    """Return the position of the argument whose storage the result shares, or `None`.

    A custom op is judged by its schema. Without torch, a custom op is assumed to allocate new
    storage.
    """
    if _shares_by_name(op):
        return 0
    if op.partition(".")[0] in KNOWN_NAMESPACES or "torch" not in sys.modules:
        return None
    from .registry import only_aliased_argument

    return only_aliased_argument(op)


NO_WORK = (
    VIEWS
    | UNDECLARED_VIEWS
    | frozenset(
        """
        aten._assert_scalar aten._empty_affine_quantized aten._empty_per_channel_affine_quantized
        aten._lazy_clone aten._local_scalar_dense aten._resize_output_ aten.as_strided_
        aten.detach_ aten.empty aten.empty_like aten.empty_permuted aten.empty_quantized
        aten.empty_strided aten.item aten.lift aten.new_empty aten.new_empty_strided
        aten.record_stream aten.rename_ aten.requires_grad_ aten.resize_ aten.resize_as_
        aten.set_ aten.set_data aten.squeeze_ aten.swapaxes_ aten.swapdims_ aten.sym_constrain_range
        aten.sym_constrain_range_for_size aten.sym_numel aten.sym_size aten.sym_storage_offset
        aten.sym_stride aten.t_ aten.transpose_ aten.unsafe_chunk aten.unsafe_split
        aten.unsafe_split_with_sizes aten.unsqueeze_ inductor._alloc_from_pool
        inductor._reinterpret_tensor inductor.resize_storage_bytes_
        """.split()
    )
)
"""Packets that launch nothing on a device."""
