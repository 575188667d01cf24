"""Classify an op call as a host sync, a device copy, or neither.

Many ops are recognized by torch's tags, so a custom op with these tags is recognized too.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

import torch

from ..graph.model import Atom, Result, Symbol, TensorMeta
from ..graph.select import tensors
from ..ops import registry
from .model import COPIES, MASKS, READS, SIZES

_READ_BY_INDEX = ("aten.index.", "aten._unsafe_index.")
_WRITTEN_BY_INDEX = (
    "aten.index_put.",
    "aten.index_put_.",
    "aten._index_put_impl_.",
    "aten._unsafe_index_put.",
    "operator.setitem",
)
_INDEXING = (*_READ_BY_INDEX, *_WRITTEN_BY_INDEX)
"""Prefixes of ops whose second argument is a list of indices."""
_MASK_DTYPES = ("bool", "uint8")
_COPYING = {
    "aten._to_copy.default",
    "aten.to.device",
    "aten.to.dtype_layout",
    "aten.to.other",
    "aten.copy.default",
    "aten.copy_.default",
    "prims.device_put.default",
    "Tensor.to",
    "Tensor.cpu",
    "Tensor.cuda",
    "Tensor.copy_",
}
_COPYING_LISTS = {"aten._foreach_copy_.default", "aten._foreach_copy.default"}
_NON_BLOCKING_THIRD = {
    *_COPYING_LISTS,
    "aten.copy_.default",
    "Tensor.copy_",
    "prims.device_put.default",
}
"""Ops whose third positional argument is `non_blocking`."""
_LIFT_FRESH = "aten.lift_fresh.default"
"""The last op of torch.tensor, and the only one dispatched when it copies Python numbers."""
_TO_HOST = {"Tensor.cpu"}
"""Methods that copy to the host. They also count on the CPU, where they copy nothing."""
_READING = {
    f"aten.{name}.{overload}"
    for name in ("linspace", "logspace")
    for overload in ("Scalar_Tensor", "Tensor_Scalar", "Tensor_Tensor")
}
_READING |= {
    "aten.is_nonzero.default",
    "aten._linalg_check_errors.default",
    "Tensor.item",
    "Tensor.tolist",
    "Tensor.numpy",
    "Tensor.__array__",
    "aten._linalg_eigvals.default",
    "aten._linalg_eigh.default",
    "aten._linalg_svd.default",
    "aten.linalg_pinv.atol_rtol_tensor",
}
_READING |= {
    f"{namespace}.linalg_{function}"
    for name in (
        "cholesky cond eig eigh eigvals eigvalsh inv ldl_factor lu_factor matrix_rank pinv solve "
        "svd svdvals"
    ).split()
    for namespace, function in (("aten", f"{name}.default"), ("torch._C._linalg", name))
}
"""Ops and methods that read values back, in addition to those tagged `data_dependent_output`.

The documentation of `torch.linalg` lists its functions that synchronize.
"""
_COUNTING = {
    "aten._coalesce.default",
    "aten._to_sparse.default",
    "aten._to_sparse.sparse_dim",
    "aten._to_sparse_csr.default",
    "aten._to_sparse_csc.default",
    "aten._to_sparse_bsr.default",
    "aten._to_sparse_bsc.default",
}
"""Untagged ops that count values to create a sparse tensor, whose dense sizes are static."""
_HISTOGRAM = "aten.histc.default"
"""Op that reads the smallest and the largest value back, unless it gets a range."""
_BRANCHING = {"higher_order.cond", "higher_order.while_loop"}
"""Higher-order ops that read a condition."""
_WRONGLY_TAGGED = {"aten._ctc_loss.default"}
"""Ops whose tag is meant for another overload: the one that takes the lengths as tensors."""
_TORCH_NAMESPACES = ("aten", "prims")
_WITH_EFFECTS = "higher_order.with_effects"
"""The op that wraps another op to keep effects in order. Arguments: token, op, its arguments."""
_UNBACKED = re.compile(r"\b(?:u|zuf)\d+\b")
"""An unbacked symbol: a data-dependent size or value."""


@dataclass(frozen=True)
class SyncCall:
    """A call of an op, with metadata instead of tensors.

    Attributes:
        op: qualified name of the op.
        args, kwargs: arguments, with a `TensorMeta` or `Symbol` for each value.
        result: the result, in the same form.
    """

    op: str
    args: tuple[Any, ...] = ()
    kwargs: Mapping[str, Any] = field(default_factory=dict)
    result: Result = None

    def unwrapped(self) -> SyncCall:
        """Return the call inside `with_effects`, otherwise the call itself."""
        if self.op == _WITH_EFFECTS and len(self.args) > 1 and isinstance(self.args[1], Atom):
            return replace(self, op=self.args[1].name, args=self.args[2:])
        return self


@functools.lru_cache(maxsize=8192)
def may_sync_or_copy(op: str) -> bool:
    """Return True if a call of an op may sync or copy, ignoring unbacked symbols in its result."""
    return (
        op.startswith(_INDEXING)
        or op in _COPYING
        or op in _COPYING_LISTS
        or op in (_LIFT_FRESH, _HISTOGRAM)
        or op in _READING
        or op in _BRANCHING
        or op in _COUNTING
        or _name_inside(op) in _READING_INSIDE
        or bool(_tags(op))
    )


def sync_kind(call: SyncCall, known_symbols: frozenset[str] = frozenset()) -> str:
    """Return the kind of the host sync at this call, "" if Python does not wait.

    Args:
        call: the call.
        known_symbols: unbacked symbols in the results of earlier calls.

    Returns:
        `READS`, `SIZES`, `MASKS`, `COPIES` or "".
    """
    # A copy counts before what else the op does, and indexing before the tag of `index`, which
    # torch has for masks only.
    op = call.op
    copy = device_copy_of(call)
    if op in _TO_HOST or (copy and copy.blocking):
        return COPIES
    if op.startswith(_INDEXING):
        return _mask_kind(call) or _unbacked_kind(call, known_symbols)
    if op in _COPYING:  # it does not block
        return ""
    inside = _READING_INSIDE.get(_name_inside(op))
    if op in _READING or "reads" in _tags(op) or (inside is not None and inside(call)):
        return READS
    if op == _HISTOGRAM:
        has_range = (_argument(call, 2, "min") or 0) != (_argument(call, 3, "max") or 0)
        return "" if has_range else READS
    # The condition of a `while_loop` is a subgraph; that of a `cond` may be a Python bool.
    if op in _BRANCHING:
        return READS if op.endswith("while_loop") or any(tensors(call.args[:1])) else ""
    # The tag stands for the size of the result, which this argument states.
    if op == "aten.repeat_interleave.Tensor" and _argument(call, 1, "output_size") is not None:
        return ""
    return SIZES if op in _COUNTING or "sizes" in _tags(op) else _unbacked_kind(call, known_symbols)


class Copy(NamedTuple):
    """A copy between two devices.

    Attributes:
        source, target: the devices.
        blocking: True if Python waits for the copy.
    """

    source: str
    target: str
    blocking: bool


def device_copy_of(call: SyncCall) -> Copy | None:
    """Return the first device copy that a call makes, or `None`.

    Indices are copied to the device of the indexed tensor.
    """
    if call.op in _COPYING_LISTS:
        # `tensors` leaves out arguments without metadata.
        pairs = zip(tensors(call.args[:1]), tensors(call.args[1:2]), strict=False)
        copies = (_copied(source.device, target.device, call) for target, source in pairs)
        return next(filter(None, copies), None)
    device = next((tensor.device for tensor in tensors(call.result)), None)
    if call.op == _LIFT_FRESH:
        return _copied("cpu", None if device == "meta" else device, call)
    # These copy to their first argument.
    if call.op == "aten.copy_.default" or call.op == "operator.setitem":
        device = next((tensor.device for tensor in tensors(call.args[:1])), None)
    operands: Any = call.args
    if call.op.startswith(_INDEXING):
        operands = tuple(tensor for tensor in tensors(call.args[1:2]) if tensor.shape)
    elif call.op not in _COPYING:
        return None
    copies = (_copied(operand.device, device, call) for operand in tensors(operands))
    return next(filter(None, copies), None)


def _copied(source: str | None, target: str | None, call: SyncCall) -> Copy | None:
    """Return the copy between two devices, `None` if they are equal or one is unknown."""
    if not source or not target or source == target:
        return None
    return Copy(source, target, "cpu" in (source, target) and not _non_blocking(call))


def symbols_in(value: Any) -> frozenset[str]:
    """Return the unbacked symbols in results: data-dependent sizes and values."""
    symbols: set[str] = set()
    if isinstance(value, Symbol):
        symbols.update(_UNBACKED.findall(value.expr))
    elif isinstance(value, TensorMeta):
        symbols.update(*(symbols_in(size) for size in value.shape))
    elif isinstance(value, tuple):
        symbols.update(*(symbols_in(item) for item in value))
    return frozenset(symbols)


def _unbacked_kind(call: SyncCall, known_symbols: frozenset[str]) -> str:
    """Return the kind of the sync that a new symbol in the result shows, "" if there is none."""
    if not symbols_in(call.result) - known_symbols:
        return ""
    return READS if isinstance(call.result, Symbol) else SIZES


def _mask_kind(call: SyncCall) -> str:
    """Return `MASKS` if an indexing call counts the elements of a mask, otherwise ""."""
    indices = list(tensors(call.args[1:2]))
    if not any(tensor.dtype in _MASK_DTYPES for tensor in indices):
        return ""
    return "" if call.op.startswith(_WRITTEN_BY_INDEX) and _writes_one_value(call) else MASKS


def _writes_one_value(call: SyncCall) -> bool:
    """Return True if a single value is written under a mask, which needs no size on the host."""
    if len(call.args) < 3 or _argument(call, 3, "accumulate"):
        return False
    value = call.args[2]
    if not isinstance(value, TensorMeta):
        return True
    return all(size == 1 for size in value.shape)


def _non_blocking(call: SyncCall) -> bool:
    """Return the value of `non_blocking`, which most ops take by name only."""
    position = 2 if call.op in _NON_BLOCKING_THIRD else len(call.args)
    return bool(_argument(call, position, "non_blocking"))


def _argument(call: SyncCall, position: int, name: str) -> Any:
    """Return an argument passed by position or by name, `None` if it was left out.

    For an argument that is passed by name only, the position is beyond the others.
    """
    return call.args[position] if position < len(call.args) else call.kwargs.get(name)


def _reads_fill(position: int) -> Callable[[SyncCall], bool]:
    """Return the condition of an op that fills with a tensor, which it reads on its device."""

    def reads(call: SyncCall) -> bool:
        value, device = _argument(call, position, "value"), next(tensors(call.args), None)
        return isinstance(value, TensorMeta) and (device is None or value.device == device.device)

    return reads


def _reads_argument(position: int, name: str) -> Callable[[SyncCall], bool]:
    """Return the condition of an op that reads an optional tensor, or reads at an option."""
    return lambda call: _argument(call, position, name) not in (None, False, 0)


def _reads_size(call: SyncCall) -> bool:
    """Return True for `matrix_exp`, which reads norms, unless a matrix is a single element."""
    return all(tensor.shape[-1:] != (1,) for tensor in tensors(call.args[:1]))


def _draws_few(call: SyncCall) -> bool:
    """Return True for the path of `multinomial` that checks its probabilities first."""
    return not _argument(call, 2, "replacement") or _argument(call, 1, "num_samples") == 1


def _has_deviations(call: SyncCall) -> bool:
    """Return True for `normal` with a tensor `std`, which it checks."""
    return isinstance(_argument(call, 1, "std"), TensorMeta)


def _has_lengths(call: SyncCall) -> bool:
    """Return True for `segment_reduce` with lengths that it checks."""
    lengths = call.kwargs.get("lengths")
    return lengths is not None and not call.kwargs.get("unsafe")


_READING_INSIDE: dict[str, Callable[[SyncCall], bool]] = {
    "multinomial": _draws_few,
    "normal": _has_deviations,
    "matrix_exp": _reads_size,
    "linalg_matrix_exp": _reads_size,
    "index_fill": _reads_fill(3),
    "masked_fill": _reads_fill(2),
    "segment_reduce": _has_lengths,
    "searchsorted": _reads_argument(4, "sorter"),
    **dict.fromkeys(
        "linalg_cholesky_ex linalg_inv_ex linalg_lu_factor_ex linalg_ldl_factor_ex "
        "_linalg_solve_ex linalg_solve_ex".split(),
        _reads_argument(9, "check_errors"),
    ),
    **dict.fromkeys(
        "linalg_lstsq cholesky cholesky_inverse _fake_quantize_learnable_per_tensor_affine "
        "_fake_quantize_learnable_per_channel_affine".split(),
        lambda _: True,
    ),
}
"""Ops with kernels that read a value back, each with a condition, by name without overload.

These are the ops that read in code that all devices share. An op that only a CPU kernel reads in,
such as `var`, is no sync. The ops were found with the profiler on a CPU, which does not show what
only the kernel of another device reads.
"""


@functools.lru_cache(maxsize=8192)
def _name_inside(op: str) -> str:
    """Return the key of an op of torch in `_READING_INSIDE`."""
    namespace, _, rest = op.partition(".")
    if namespace not in ("aten", "torch", "Tensor"):
        return ""
    name = rest.partition(".")[0] if namespace == "aten" else rest.rpartition(".")[2]
    return name.rstrip("_")


@functools.lru_cache(maxsize=8192)
def _tags(op: str) -> frozenset[str]:
    """Return "reads" for an op tagged to read values, "sizes" for data-dependent result sizes."""
    namespace, _, rest = op.partition(".")
    packet, _, overload = rest.partition(".")
    # Check the namespace first: `registered` takes 2 ms.
    is_registered = namespace in _TORCH_NAMESPACES or op in registry.registered()
    if op in _WRONGLY_TAGGED or not is_registered:
        return frozenset()
    try:
        tags = getattr(getattr(getattr(torch.ops, namespace), packet), overload).tags
    except AttributeError:  # unknown op, or an op registered without a schema
        return frozenset()
    reads = {"reads"} if torch.Tag.data_dependent_output in tags else set()
    sizes = {"sizes"} if torch.Tag.dynamic_output_shape in tags else set()
    return frozenset(reads | sizes)
