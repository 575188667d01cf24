"""Tensors that are read although no recorded op has written to them.

A kernel of Triton, of a C++ extension or called by ctypes writes into the memory of a tensor, of
which the dispatcher knows nothing. The tensor is one that `torch.empty` made.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from typing import Any

import torch

from ...convert import source_lines
from ...convert.effects import schema
from ...errors import CaptureError
from .mode import OpRecord, RecordingMode, Value

_MAKES = (
    "empty",
    "empty_like",
    "empty_strided",
    "empty_permuted",
    "new_empty",
    "new_empty_strided",
)
_READS_NO_VALUE = frozenset(
    """
    full_like new_full new_ones new_zeros ones_like rand_like randint_like randn_like record_stream
    resize_ resize_as_ set_ zeros_like
    """.split()
)
"""Ops of which an argument gives its form alone; those of `_MAKES` and views are others."""


class Unfilled:
    """Follows the recorded ops of a step in their order.

    Attributes:
        found: the op that made the first tensor that is read unwritten, None for none.
    """

    def __init__(self, recorder: RecordingMode):
        self.found: OpRecord | None = None
        self._recorder = recorder
        self._made: dict[int, OpRecord] = {}
        self._kinds: dict[int, str] = {}

    def ran(self, record: OpRecord) -> None:
        """Go on by one op."""
        op = record.op
        kind = self._kinds.get(id(op))
        if kind is None:
            kind = self._kinds[id(op)] = _kind(op)
        if kind == "makes":
            self._make(record)
        elif self._made and kind != "form":
            arguments = [*_values((record.args, record.kwargs))]
            written = schema.written(op, record.args, record.kwargs)
            self.wrote(arguments if kind == "custom" else _values(written))
            self.read(arguments)

    def _make(self, record: OpRecord) -> None:
        if type(record.output) is not Value or not math.prod(self._recorder.meta[record.output][1]):
            return
        storage = self._recorder.storage_of[record.output]
        # DTensor asks for the shapes of an op by running it on fake tensors, which nothing fills.
        if storage not in self._recorder.without_memory:
            self._made[storage] = record

    def wrote(self, values: Iterable[Value]) -> None:
        """Something that is recorded has written to these tensors."""
        for value in values:
            self._made.pop(self._recorder.storage_of[value], None)

    def read(self, values: Iterable[Value]) -> None:
        """Something that is recorded reads these tensors."""
        for value in values if self._made else ():
            made = self._made.get(self._recorder.storage_of[value])
            self.found = self.found or made


def refuse_unfilled(unfilled: Unfilled) -> None:
    """Refuse a step in which a tensor is read that no recorded op has written to.

    Raises:
        CaptureError: with the line where the tensor was made.
    """
    made = unfilled.found
    if made is None:
        return
    at = "" if made.line is None else f" at {source_lines.described(made.line)}"
    raise CaptureError(
        f"something ran unseen, and would be missing in the graphs: the tensor of {made.op}{at} is "
        "read, and no op that was recorded has written to it. A kernel of Triton or C++ may have: "
        "make it an op by torch.library.custom_op, or use torch.zeros if the values do not matter"
    )


def _kind(op: Any) -> str:
    """What an op does with a tensor whose memory is not written yet."""
    if not isinstance(op, torch._ops.OpOverload):
        return "reads"
    if op.namespace not in ("aten", "prims"):
        return "custom"  # may write without saying so, and is in the graph as what it is
    if op._opname in _MAKES:
        return "makes"
    is_form = op.is_view or op._opname in _READS_NO_VALUE or op._opname in ("detach", "alias")
    return "form" if is_form else "reads"


def _values(value: Any) -> Iterator[Value]:
    if type(value) is Value:
        yield value
    elif isinstance(value, tuple | list):
        for item in value:
            yield from _values(item)
    elif isinstance(value, dict):
        yield from _values(list(value.values()))
