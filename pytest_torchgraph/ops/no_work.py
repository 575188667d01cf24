"""Ops that launch nothing on a device: they allocate, look, or give another view."""

from __future__ import annotations

from .views import UNDECLARED_VIEWS, VIEWS

NO_WORK = (
    VIEWS
    | UNDECLARED_VIEWS
    | frozenset(
        """
        aten._assert_scalar aten._local_scalar_dense aten.as_strided_ aten.empty
        aten.empty_strided aten.item aten.new_empty aten.new_empty_strided aten.record_stream
        aten.resize_ aten.set_ aten.squeeze_ aten.sym_constrain_range
        aten.sym_constrain_range_for_size aten.sym_numel aten.sym_size aten.sym_storage_offset
        aten.sym_stride aten.t_ aten.transpose_ aten.unsqueeze_ inductor._alloc_from_pool
        inductor._reinterpret_tensor inductor.resize_storage_bytes_
        """.split()
    )
)
"""By packet."""
