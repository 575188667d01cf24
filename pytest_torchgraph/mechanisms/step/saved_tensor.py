"""A tensor with a copy of its value, to undo the changes that a step makes."""

from __future__ import annotations

import contextlib

import torch
from torch.nn.parameter import is_lazy

from ... import torch_private
from ...words import one_line

LARGE = 2**20
"""Size in bytes; a checksum of a larger tensor covers only a part of it."""
LINE = 64
"""Number of consecutive bytes in a checksum: a cache line. Reading less of it is not faster."""
EVERY = 17
"""The checksum of a large tensor reads one cache line in `EVERY`. The number is odd, so in a matrix
whose row length is a power of two, the lines in consecutive rows are at different columns.
"""
# Integers of each size: their comparison is bitwise, so NaN is equal to itself.
_AS_INTS = {1: torch.uint8, 2: torch.int16, 4: torch.int32, 8: torch.int64}
_PLAIN = (torch.Tensor, torch.nn.Parameter, torch.nn.Buffer)


class SavedTensor:
    """A tensor, its memory and a copy of its value.

    Version counters alone do not show each change: `.data`, numpy and some kernels write without
    incrementing the counter. Values are therefore compared too.

    Args:
        tensor: the tensor.
        copied: whether to copy the value now. If not, `copy` must be called before the first write.

    Attributes:
        tensor: the tensor.
        final_value: the changed value that `restore` replaced and kept, otherwise `None`.
        failure: the error of a `restore` that failed, otherwise "".
        _alias: another tensor object with the former memory.
        _value: the copy; `None` if the value was not copied, or the copy was dropped.
        _sum: a checksum of the former value, if it was not copied.
        _storage: the id of the former storage, if the tensor is not plain.
    """

    __slots__ = (
        "_alias",
        "_is_plain",
        "_requires_grad",
        "_storage",
        "_sum",
        "_value",
        "_version",
        "failure",
        "final_value",
        "tensor",
    )

    def __init__(self, tensor: torch.Tensor, *, copied: bool = True):
        # Each capture creates a SavedTensor per parameter, so `__init__` calls few functions.
        self.tensor = tensor
        # If the target assigns `.data`, restoring must not write to the assigned memory, which
        # belongs to other code. The alias keeps the former memory.
        self._alias = tensor.detach()
        self._value = self._alias.clone() if copied else None
        self._sum = 0 if copied else _bits(tensor)
        self._requires_grad = tensor.requires_grad
        self._version = -1 if tensor.is_inference() else tensor._version
        self._is_plain = _is_plain(tensor)
        self._storage = 0 if self._is_plain else storage_of(tensor)
        self.final_value: torch.Tensor | None = None
        self.failure = ""

    def copy(self) -> None:
        """Copy the value before it is written to."""
        if self._value is None:
            self._value = self._alias.clone()

    @property
    def is_lost(self) -> bool:
        """True if the value changed and no copy of the former value exists."""
        return self._value is None and _bits(self.tensor) != self._sum

    @property
    def is_moved(self) -> bool:
        """True if memory, dtype or shape of the tensor changed, for example by `.data = ...`."""
        return not self._is_in_place()

    def looks_changed(self) -> bool:
        """Return True if the version, the memory or a checksum of the bits changed.

        The checksum detects writes that do not increment the version, such as writes of old
        optimizers through `.data`. It may miss a change of a single element.
        """
        tensor, value = self.tensor, self._value
        if (-1 if tensor.is_inference() else tensor._version) != self._version:
            return True
        if not self._is_in_place():
            return True
        if value is None:
            return _bits(tensor) != self._sum
        if value.nbytes > LARGE:
            return _has_bits(tensor) and _bits(tensor) != _bits(value)
        if self._is_plain and not value.is_meta and torch.equal(self._alias, value):
            return False  # the common case, in a single call; NaN is unequal to itself
        return _has_bits(tensor) and not same_bits(tensor, value)

    def restore(self, *, keep: bool = False) -> None:
        """Restore the tensor's former value, in its former memory.

        A value that was never copied is assumed to be unchanged. An error of torch is kept as
        `failure`, because all other state must still be restored.

        Args:
            keep: whether to store a replaced value as `final_value`, and drop the former value.
        """
        self.failure = ""
        try:
            self._restore(keep)
        except Exception as error:
            self.failure = f"a tensor of shape {tuple(self.tensor.shape)}: {one_line(str(error))}"

    def _restore(self, keep: bool) -> None:
        """Restore `requires_grad`, the value, and last the version, which writing increments."""
        tensor, value = self.tensor, self._value
        if tensor.is_leaf and tensor.requires_grad != self._requires_grad:
            tensor.requires_grad_(self._requires_grad)
            if not self._requires_grad:
                tensor.grad = None  # the target ran a backward into it
        elif not tensor.is_leaf and not self._requires_grad:
            # The step wrote a value with a graph into it. A view cannot be detached in place.
            with contextlib.suppress(RuntimeError):
                tensor.detach_()
        inference = tensor.is_inference()
        other_mode = inference != torch.is_inference_mode_enabled()
        # Entering a mode takes as long as comparing a small tensor.
        with torch.inference_mode(inference) if other_mode else contextlib.nullcontext():
            moved = not self._is_in_place()
            # If it was written and nobody needs the new value, comparing takes as long as writing.
            compared = keep or version_of(tensor) == self._version
            if moved or not (value is None or (compared and same_bits(tensor, value))):
                if keep:
                    self.final_value = tensor.detach().clone()
                # Restore the value in the former memory, unless the storage was resized.
                if value is not None and moved and not (self._is_plain and _fits(self._alias)):
                    tensor.data = value
                else:
                    if value is not None:
                        self._write(value)
                    if moved:
                        tensor.data = self._alias
        if keep:
            self._value = None  # never hold two copies of every tensor
        if self._version != -1 and version_of(tensor) != self._version:
            # An autograd graph that saved the tensor stays valid: the value is the same again.
            torch_private.get("set_version_counter")((tensor,), (self._version,))

    def _write(self, value: torch.Tensor) -> None:
        """Write a value to the tensor, or to its former memory if it is plain or sparse."""
        if self._is_plain:
            tensor = self._alias
            # torch refuses to write an expanded tensor as a whole. Write one of the equal elements.
            if 0 in tensor.stride():
                index = tuple([slice(None if step else 1) for step in tensor.stride()])
                tensor, value = tensor[index], value[index]
            tensor.copy_(value)
            return
        tensor = self.tensor.detach()
        if tensor.layout is torch.sparse_coo:
            # A write may give it other memory, as `copy_` would. The alias keeps the former memory.
            self._alias._values().copy_(value._values())
            self.tensor.data = self._alias
            return
        if "sparse" in str(tensor.layout):
            tensor.resize_as_sparse_(value)
        tensor.copy_(value)

    def _is_in_place(self) -> bool:
        """Return True if the tensor still has its former memory, dtype and shape."""
        tensor, alias = self.tensor, self._alias
        if tensor.dtype != alias.dtype or tensor.device != alias.device:
            return False
        if self._is_plain:
            return tensor.layout is torch.strided and _is_set_to(tensor, alias) and _fits(tensor)
        if tensor.layout != alias.layout or storage_of(tensor) != self._storage:
            return False
        if tensor.is_nested or alias.is_nested:  # a strided nested tensor has no shape
            return tensor.is_nested == alias.is_nested
        return tuple(tensor.shape) == tuple(alias.shape)


def version_of(tensor: torch.Tensor) -> int:
    """Return the in-place version, -1 for inference tensors, which have none."""
    return -1 if is_lazy(tensor) or tensor.is_inference() else tensor._version


def _is_plain(tensor: torch.Tensor) -> bool:
    """Return True for a strided tensor with its own memory, not a wrapper of other tensors."""
    return (
        type(tensor) in _PLAIN
        and tensor.layout is torch.strided
        and not tensor.is_nested
        and not tensor.is_quantized
    )


def _is_set_to(a: torch.Tensor, b: torch.Tensor) -> bool:
    """Return True if two strided tensors are the same part of the same memory."""
    if a.device.type in ("cpu", "cuda"):
        return a.is_set_to(b)  # one call; other backends may lack the op, as meta does
    form = a.shape == b.shape and a.stride() == b.stride()
    return form and a.storage_offset() == b.storage_offset() and storage_of(a) == storage_of(b)


def _fits(tensor: torch.Tensor) -> bool:
    """Return False if the storage was resized and is now too small for the tensor."""
    nbytes = tensor.untyped_storage().nbytes()
    if nbytes >= tensor.nbytes and tensor.is_contiguous() and not tensor.storage_offset():
        return True
    if tensor.is_meta or not tensor.numel():
        return True
    last = sum((n - 1) * step for n, step in zip(tensor.shape, tensor.stride(), strict=True))
    return nbytes >= (tensor.storage_offset() + last + 1) * tensor.itemsize


def _has_bits(tensor: torch.Tensor) -> bool:
    """Return True if the bits of a tensor in memory can be compared."""
    return (
        tensor.layout is torch.strided
        and not tensor.is_meta
        and not tensor.is_quantized
        and not tensor.is_nested
        and not torch_private.is_fake(tensor)
    )


def same_bits(a: torch.Tensor, b: torch.Tensor) -> bool:
    """Return True if two tensors are known to be equal bit by bit: 0.0 differs from -0.0."""
    if not _has_bits(a) or (a.shape, a.dtype) != (b.shape, b.dtype):
        return False
    a, b = a.detach(), b.detach()
    try:
        if a.is_complex():
            a, b = torch.view_as_real(a.resolve_conj()), torch.view_as_real(b.resolve_conj())
        if a.is_floating_point():
            ints = _AS_INTS[a.itemsize]
            a, b = a.view(ints), b.view(ints)
    except (RuntimeError, KeyError, NotImplementedError):  # a subclass without bits of its own
        pass
    return torch.equal(a, b)


def _bits(tensor: torch.Tensor) -> int:
    """Return a checksum of the bits; for a large tensor, of one cache line in `EVERY`."""
    try:
        raw = tensor.detach().contiguous()
        # Rows that cannot be viewed as wider integers are joined to one.
        if raw.dim() == 0 or raw.shape[-1] * raw.itemsize % 8:
            raw = raw.view(-1)
        row = raw.shape[-1] * raw.itemsize
        # `sum` converts narrower integers first, which is 12 times slower.
        for wide in (torch.int64, torch.int32):
            if row % wide.itemsize == 0:
                raw = raw.view(wide)
                break
        else:
            raw = raw.view(torch.uint8)
        if raw.nbytes > LARGE:
            raw = raw.view(-1)
            line = LINE // raw.itemsize
            block = EVERY * line
            rows = raw[: raw.numel() // block * block].view(-1, block)
            raw = rows[:, :line]
        return int(raw.sum())
    except RuntimeError:  # a dtype or subclass without bits of its own
        return 0


def storage_of(tensor: torch.Tensor) -> int:
    """Return an id of the tensor's storage, 0 if it has none. Also works for fake tensors."""
    try:
        return int(tensor.untyped_storage()._cdata)
    except (NotImplementedError, RuntimeError):
        return 0
