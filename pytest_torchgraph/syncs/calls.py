"""What one call of an op does: whether it waits for the device, and what it copies.

Ops are known by the tags that torch gives them, so that custom ops with tags are known as well.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import torch

from ..graph.model import Arg, Atom, Result, Symbol, TensorMeta
from ..ops import registry
from .model import COPIES, MASKS, READS, SIZES

_MASKED = ("aten.index.", "aten._unsafe_index.")
_WRITTEN_MASKED = (
    "aten.index_put.",
    "aten.index_put_.",
    "aten._index_put_impl_.",
    "aten._unsafe_index_put.",
    "operator.setitem",
)
_INDEXING = (*_MASKED, *_WRITTEN_MASKED)
_MASKS = ("bool", "uint8")
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
"""Ops that take `non_blocking` by position, as their third argument."""
_MADE = "aten.lift_fresh.default"
"""What torch.tensor ends with: all that is seen of how it copied Python's numbers to a device."""
_HOST = {"Tensor.cpu"}
"""Methods that are only there for a copy to the host, also where the tensor already is there."""
_READING = {"aten.is_nonzero.default", "aten._linalg_check_errors.default", "Tensor.item"}
_READING |= {"Tensor.tolist"}
_BRANCHING = {"higher_order.cond", "higher_order.while_loop"}
_UNTAGGED = {"aten._ctc_loss.default"}
"""Ops whose tag is for another overload: here the lengths are Python's."""
_TORCHS = ("aten", "prims")
_WRAPPER = "higher_order.with_effects"
_UNBACKED = re.compile(r"\b(?:u|zuf)\d+\b")


@dataclass(frozen=True)
class Call:
    """A call of an op, tensors replaced by what is known of them.

    Attributes:
        op: its qualified name.
        args, kwargs: with a `TensorMeta` or `Symbol` for each value.
        result: what it gave.
    """

    op: str
    args: tuple[Any, ...] = ()
    kwargs: Mapping[str, Any] = field(default_factory=dict)
    result: Result = None

    def unwrapped(self) -> Call:
        """The call itself where it is wrapped to keep its place among other effects."""
        if self.op == _WRAPPER and len(self.args) > 1 and isinstance(self.args[1], Atom):
            return replace(self, op=self.args[1].name, args=self.args[2:])
        return self


@functools.lru_cache(maxsize=8192)
def may_matter(op: str) -> bool:
    """Whether any call of an op may wait or copy, but for symbols that nobody knew before."""
    return (
        op.startswith(_INDEXING)
        or op in _COPYING
        or op in _COPYING_LISTS
        or op == _MADE
        or op in _READING
        or op in _BRANCHING
        or bool(_tags(op))
    )


def wait_of(call: Call, known: frozenset[str] = frozenset()) -> str:
    """Why Python waits for the device at this call, "" if it does not.

    Args:
        call: the call.
        known: the symbols that earlier calls gave.
    """
    op = call.op
    copied = copied_by(call)
    if op in _HOST or (copied and copied[2]):
        return COPIES
    if op.startswith(_INDEXING):
        return _mask(call) or _unbacked(call, known)
    if op in _COPYING:
        return ""
    if op in _READING or "reads" in _tags(op):
        return READS
    if op in _BRANCHING:
        return READS if op.endswith("while_loop") or _is_tensor(call.args[:1]) else ""
    if op == "aten.repeat_interleave.Tensor" and _argument(call, 1, "output_size") is not None:
        return ""
    return SIZES if "sizes" in _tags(op) else _unbacked(call, known)


def copied_by(call: Call) -> tuple[str, str, bool] | None:
    """From which device to which a call copies, and whether Python waits for that.

    The indices of a tensor on another device are copied too.
    """
    if call.op in _COPYING_LISTS:
        pairs = zip(_tensors(call.args[:1]), _tensors(call.args[1:2]), strict=False)
        copies = (_copied(source.device, into.device, call) for into, source in pairs)
        return next(filter(None, copies), None)
    target = next((each.device for each in _tensors(call.result)), None)
    if call.op == _MADE:
        return _copied("cpu", None if target == "meta" else target, call)
    if call.op == "aten.copy_.default" or call.op == "operator.setitem":
        target = next((each.device for each in _tensors(call.args[:1])), None)
    operands: Any = call.args
    if call.op.startswith(_INDEXING):
        operands = [each for each in _tensors(call.args[1:2]) if each.shape]
    elif call.op not in _COPYING:
        return None
    copies = (_copied(operand.device, target, call) for operand in _tensors(operands))
    return next(filter(None, copies), None)


def _copied(source: str | None, target: str | None, call: Call) -> tuple[str, str, bool] | None:
    if not source or not target or source == target:
        return None
    return source, target, "cpu" in (source, target) and not _non_blocking(call)


def symbols_in(value: Any) -> frozenset[str]:
    """The symbols for what depends on data that occur in results."""
    found: set[str] = set()
    if isinstance(value, Symbol):
        found.update(_UNBACKED.findall(value.expr))
    elif isinstance(value, TensorMeta):
        found.update(*(symbols_in(size) for size in value.shape))
    elif isinstance(value, tuple):
        found.update(*(symbols_in(item) for item in value))
    return frozenset(found)


def _unbacked(call: Call, known: frozenset[str]) -> str:
    if not symbols_in(call.result) - known:
        return ""
    return READS if isinstance(call.result, Symbol) else SIZES


def _mask(call: Call) -> str:
    indices = list(_tensors(call.args[1:2]))
    if not any(each.dtype in _MASKS for each in indices):
        return ""
    return "" if call.op.startswith(_WRITTEN_MASKED) and _fills(call) else MASKS


def _fills(call: Call) -> bool:
    """Whether one value is written everywhere, for which torch needs not know where the mask is."""
    if len(call.args) < 3 or _argument(call, 3, "accumulate"):
        return False
    value = call.args[2]
    if not isinstance(value, TensorMeta):
        return True
    return all(size == 1 for size in value.shape)


def _non_blocking(call: Call) -> bool:
    position = 2 if call.op in _NON_BLOCKING_THIRD else len(call.args)
    return bool(_argument(call, position, "non_blocking"))


def _argument(call: Call, position: int, name: str) -> Any:
    return call.args[position] if position < len(call.args) else call.kwargs.get(name)


def _is_tensor(values: tuple[Arg, ...]) -> bool:
    return any(isinstance(value, TensorMeta) for value in values)


def _tensors(value: Any) -> Iterator[TensorMeta]:
    if isinstance(value, TensorMeta):
        yield value
    elif isinstance(value, tuple | list):
        for item in value:
            yield from _tensors(item)


@functools.lru_cache(maxsize=8192)
def _tags(op: str) -> frozenset[str]:
    """What torch says about an op: that it `reads` values, that its `sizes` depend on data."""
    namespace, _, rest = op.partition(".")
    packet, _, overload = rest.partition(".")
    known = namespace in _TORCHS or op in registry.registered()  # which takes 2 ms
    if op in _UNTAGGED or not known:
        return frozenset()
    try:
        tags = getattr(getattr(getattr(torch.ops, namespace), packet), overload).tags
    except AttributeError:  # no such op, or one that is registered without a schema
        return frozenset()
    found = {"reads"} if torch.Tag.data_dependent_output in tags else set()
    return frozenset(found | ({"sizes"} if torch.Tag.dynamic_output_shape in tags else set()))
