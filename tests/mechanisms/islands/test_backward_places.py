"""Ops of a backward have the line and module of their forward op, not those of the next op."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from mechanisms.models import BOTH, example
from torch import Tensor, nn

from pytest_torchgraph import Capture, Node, capture


def backward_ops(captured: Capture) -> list[Node]:
    """Return the ops of the backward. Via aot they ran eagerly."""
    graphs = captured.eager if captured.via == "aot" else captured.graphs
    return [n for graph in graphs if graph.kind == "backward" for n in graph.nodes if n.is_call]


class Written(nn.Module):
    """The backward of a write into a view is not a separate op: it belongs to the write."""

    def forward(self, x: Tensor) -> Tensor:
        part = x[:, 2:4]
        part.mul_(3.0)
        return torch.cat([x, part], 1)


class AroundWritten(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Linear(4, 4)
        self.written = Written()

    @torch.compiler.disable
    def between(self, x: Tensor) -> Tensor:
        y = self.written(x)
        return y.atan()

    def forward(self, x: Tensor) -> Tensor:
        return self.between(self.first(x)).exp()


@pytest.mark.parametrize("via", BOTH)
def test_backward_of_a_write_into_a_view_has_the_line_of_the_write(via: str) -> None:
    nodes = backward_ops(capture(AroundWritten(), example(2, 4), via=via))
    written = ("aten.as_strided.default", "aten.new_zeros.default", "aten.copy_.default")
    copied = [node for node in nodes if node.op in written]
    (multiplied,) = (node for node in nodes if node.op == "aten.mul.Tensor" and 3.0 in node.args)
    assert {node.op for node in copied} == {*written}
    for node in (*copied, multiplied):
        assert node.source is not None
        assert node.source.code == "part.mul_(3.0)"
        assert node.module == "written"


class Packed(nn.Module):
    """A saved activation is packed while the op that saves it runs, or before."""

    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Linear(4, 4)

    def forward(self, x: Tensor) -> Tensor:
        return self.between(self.first(x)).exp()

    @torch.compiler.disable
    def between(self, x: Tensor) -> Tensor:
        with torch.autograd.graph.saved_tensors_hooks(self.pack, self.unpack):
            return x.sin()

    def pack(self, x: Tensor) -> Tensor:
        return x.to(torch.float64)

    def unpack(self, x: Tensor) -> Tensor:
        return x.to(torch.float32)


@pytest.mark.parametrize("via", BOTH)
def test_ops_that_pack_a_saved_tensor_have_no_backward(via: str) -> None:
    nodes = backward_ops(capture(Packed(), example(2, 4), via=via))
    (cosine,) = (node for node in nodes if node.op == "aten.cos.default")
    assert cosine.source is not None
    assert cosine.source.code == "return x.sin()"


def test_graph_of_a_torch_module_has_the_calling_line() -> None:
    with pytest.warns(FutureWarning):
        model = nn.utils.weight_norm(nn.Linear(4, 4))
    nodes = backward_ops(capture(model, example(2, 4)))
    assert nodes
    for node in nodes:
        assert node.source is not None
        assert node.source.code == "nodes = backward_ops(capture(model, example(2, 4)))"


class Hooked(nn.Module):
    def __init__(self, add: Callable[[Tensor], Any]) -> None:
        super().__init__()
        self.head = nn.Linear(4, 4)
        add(self.head.weight)

    def forward(self, x: Tensor) -> Tensor:
        return self.head(x).sin()


def doubled(gradient: Tensor) -> Tensor:
    return gradient * 2


def halved(parameter: Tensor) -> None:
    assert parameter.grad is not None
    parameter.grad.mul_(0.5)


@pytest.mark.parametrize(
    "add",
    [
        lambda weight: weight.register_hook(doubled),
        lambda weight: weight.register_post_accumulate_grad_hook(halved),
    ],
)
def test_a_hook_of_a_parameter_runs_for_the_module_that_owns_it(
    add: Callable[[Tensor], Any],
) -> None:
    (node,) = backward_ops(capture(Hooked(add), example(2, 4)))
    assert node.source is not None
    assert node.source.code in ("return gradient * 2", "parameter.grad.mul_(0.5)")
    assert node.module == "head"
