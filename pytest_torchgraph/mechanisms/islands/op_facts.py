"""What it says of an eager op, that it is this one: who passes values on by it."""

from __future__ import annotations

import torch

_PASSES_ON = frozenset(
    "aten.add aten.add_ aten.zeros aten.zeros_like aten.new_zeros aten.clone aten.copy_ "
    "aten.empty_strided aten.new_empty_strided aten._to_copy aten.detach".split()
)
"""The ops by which the autograd engine passes gradients on. Any other one at its nodes is of a hook
that has no Python code of its own, such as `torch.nan_to_num`."""

_TAKES = frozenset(
    "aten.detach aten.clone aten.copy_ aten.new_empty_strided aten.empty_strided".split()
)
"""The ops by which AccumulateGrad makes a gradient a parameter's: as it is, or as a copy where its
strides are others, which depends on the kernels of the machine."""
_OF_AOT = frozenset(
    "aten.copy_ aten.clone aten._unsafe_view aten.detach aten.detach_ aten.as_strided_ aten.t_ "
    "aten.transpose_ aten.squeeze_ aten.unsqueeze_ aten.set_ aten.resize_ aten.empty_strided "
    "aten.new_empty_strided aten.empty aten.contiguous aten._has_same_storage_numel".split()
)
"""The ops, beside views, by which AOTAutograd hands values over to its graphs and back."""


class OpFacts:
    """What counts of an op.

    Attributes:
        recorded: False for a question to a fake tensor, such as for its device, and for a mark of
            the profiler's, which computes nothing: torch 2.9 sets some around its own backward.
        hands_over: whether AOTAutograd hands values over with it.
        passes_on: whether the autograd engine passes gradients on with it.
        takes: whether AccumulateGrad takes gradients with it.
        is_gradient: whether it can be the way of a gradient back through a view.
    """

    __slots__ = ("hands_over", "is_gradient", "passes_on", "recorded", "takes")

    def __init__(self, op: torch._ops.OpOverload):
        packet = str(op.overloadpacket)
        self.recorded = op.namespace not in ("prim", "profiler")
        self.hands_over = op.is_view or packet in _OF_AOT
        self.passes_on = packet in _PASSES_ON
        self.takes = packet in _TAKES
        self.is_gradient = op.is_view or self.passes_on or packet.endswith("_backward")
