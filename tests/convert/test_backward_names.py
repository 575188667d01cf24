"""Modules and names of the ops in a backward."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor, nn

import pytest_torchgraph
from pytest_torchgraph import Capture
from pytest_torchgraph.graph import Graph


class Block(nn.Module):
    """A layer with a residual stream that two modules read."""

    def __init__(self) -> None:
        super().__init__()
        self.up, self.gate, self.down = (nn.Linear(4, 4, bias=False) for _ in range(3))

    def forward(self, x: Tensor) -> Tensor:
        return x + self.down(torch.tanh(self.gate(x)) * self.up(x))


def stack(layers: int) -> nn.Sequential:
    """Return `layers` layers after a first one, so that the stream has a gradient everywhere."""
    return nn.Sequential(nn.Linear(4, 4), *(Block() for _ in range(layers)))


def step(module: nn.Module, via: str) -> Capture:
    """Capture a training step."""
    return pytest_torchgraph.capture(module, torch.ones(2, 4), via=via, backward=True)


def names(graph: Graph) -> list[str]:
    """Return the names of all ops."""
    return [node.name for node in graph.nodes if node.is_call and node.op != "aten.detach.default"]


@pytest.mark.slow("further cases; a few are in every run", only=["compiled_autograd"])
@pytest.mark.parametrize("via", ["dispatch", "aot", "compiled_autograd"])
def test_gradient_sum_belongs_to_the_module_of_the_last_gradient(via: str) -> None:
    sums = [n for n in step(stack(2), via).backward.nodes if "add" in n.op and n.is_call]
    assert [node.module for node in sums] == ["2.up", "2.gate", "1.up", "1.gate"]
    assert [node.name for node in sums] == [f"{node.module}/add" for node in sums]


def test_additional_layer_renames_no_backward_op() -> None:
    three, four = (step(stack(layers), "dispatch") for layers in (3, 4))
    for before, after in zip(three.graphs, four.graphs, strict=True):
        assert set(names(before)) == {name for name in names(after) if not name.startswith("4")}


class Gate(nn.Module):
    """Weights that sum to 1, by an in-place op."""

    def forward(self, x: Tensor) -> Tensor:
        x = torch.sin(x)
        x /= x.sum(-1, keepdim=True)
        return x


def test_the_backward_of_an_op_in_place_belongs_to_its_module() -> None:
    capture = step(nn.Sequential(nn.Linear(4, 4), Gate(), nn.Linear(4, 4)), "aot")
    divisions = [node for node in capture.backward.nodes if node.op == "aten.div.Tensor"]
    assert divisions
    assert {node.module for node in divisions} == {"1"}


def test_the_backward_of_an_op_in_place_in_no_module_belongs_to_none() -> None:
    linear = nn.Linear(4, 4)

    def target(x: Tensor) -> Tensor:
        y = linear(x)
        z = torch.sin(y)
        z /= z.sum(-1, keepdim=True)
        return z + y

    capture = pytest_torchgraph.capture(target, torch.ones(2, 4), via="aot", backward=True)
    divisions = [node for node in capture.backward.nodes if node.op == "aten.div.Tensor"]
    assert divisions
    assert {node.module for node in divisions} == {""}


class Products(nn.Module):
    """Products. Those that sin reads are saved for the backward."""

    def __init__(self, saved: bool) -> None:
        super().__init__()
        self.fc = nn.Linear(4, 4)
        self.saved = saved

    def forward(self, x: Tensor) -> Tensor:
        y = self.fc(x) * 2
        y = y * 3
        return y.sin() if self.saved else y.exp()


@pytest.mark.parametrize("via", ["dispatch", "aot"])
def test_saving_a_value_renames_no_backward_op(via: str) -> None:
    saving, other = (step(Products(saved), via) for saved in (True, False))
    saved, not_saved = ({ref.name for ref in c.forward.saved} for c in (saving, other))
    assert "mul.1" in saved - not_saved
    for capture in (saving, other):
        ops = names(capture.backward)
        assert not set(ops) & set(names(capture.forward))
    scaled = [
        [n.name for n in c.backward.nodes if n.op == "aten.mul.Tensor" and n.args[1] in (2, 3)]
        for c in (saving, other)
    ]
    assert scaled[0] == scaled[1]
    assert len(scaled[0]) == 2
