"""Captures on fake tensors."""

from __future__ import annotations

import contextlib
from typing import Any

import pytest
import torch
from mechanisms.models import Norm, example, mlp
from torch import nn
from torch_releases import skip_before

from pytest_torchgraph import CaptureError, capture

FAKEABLE = ("dispatch", "dynamo", "aot", "export")


@pytest.mark.slow("further cases; a few are in every run", unless=["dispatch"])
@pytest.mark.parametrize("via", FAKEABLE)
def test_a_fake_capture_gives_the_graphs_of_a_real_one(via: str) -> None:
    for model, x in ((mlp(), example(4, 8)), (Norm().train(), example(2, 2, 8, 8))):
        fake = capture(model, x, via=via, fake=True)
        assert fake == capture(model, x, via=via)
        assert fake.to_text("full") == capture(model, x, via=via).to_text("full")


@pytest.mark.parametrize("via", ["dispatch", "export"])
@pytest.mark.parametrize("fail", [False, True])
def test_the_model_has_its_own_tensors_again(via: str, fail: bool) -> None:
    model = mlp()
    if fail:
        model.head.register_forward_hook(lambda *_: {}["mine"])
    before = {name: (p, p.detach().clone()) for name, p in model.named_parameters()}
    with pytest.raises(KeyError, match="mine") if fail else contextlib.nullcontext():
        capture(model, example(4, 8), via=via, fake=True)
    for name, parameter in model.named_parameters():
        assert parameter is before[name][0]
        assert torch.equal(parameter, before[name][1])
        assert parameter.grad is None


def test_a_model_without_memory_is_captured_forward_and_backward() -> None:
    skip_before("2.11", "AOTAutograd refuses fake tensors that Dynamo got as inputs")
    with torch.device("meta"):
        model = nn.Sequential(nn.Linear(100_000, 50_000), nn.ReLU(), nn.Linear(50_000, 4))
    captured = capture(model, torch.zeros(2, 100_000), fake=True)
    captured.assert_graph_count(forward=1, backward=1)
    assert captured.forward.count("aten.addmm") == 2
    assert captured.forward["0.weight"].result.shape == (50_000, 100_000)  # type: ignore[union-attr]
    assert {p.device.type for p in model.parameters()} == {"meta"}


def test_fake_captures_cannot_be_compared_with_an_eager_run() -> None:
    skip_before("2.11", "AOTAutograd refuses fake tensors that Dynamo got as inputs")
    with pytest.raises(CaptureError, match="made with fake=True"):
        capture(mlp(), example(4, 8), fake=True).assert_matches_eager()


def test_a_mechanism_that_needs_memory_refuses() -> None:
    with pytest.raises(CaptureError, match="which needs real memory: use via='aot', "):
        capture(mlp(), example(4, 8), via="inductor", fake=True)


@pytest.mark.parametrize("via", ["dispatch", "export"])
@pytest.mark.parametrize(
    "make",
    [
        lambda x: torch.tensor([5.0]),
        lambda x: torch.as_tensor([1, 2, 3, 4]),
        lambda x: x.new_tensor([True]),
        lambda x: x[[0, 2]].sum(),
        lambda x: InBackward.apply(x.sum()),
    ],
    ids=["tensor", "as_tensor", "new_tensor", "index", "backward"],
)
def test_constants_made_in_the_target_of_a_fake_capture(make: Any, via: str) -> None:
    """A tensor of one element that is alive then has no value to compare them with."""

    def scaled(x: torch.Tensor) -> torch.Tensor:
        total = x.sum()  # alive while the constant is made
        return make(x) * total

    x = torch.ones(4, requires_grad=True)
    fake = capture(scaled, x, via=via, fake=True)
    assert fake == capture(scaled, x, via=via)


class InBackward(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: torch.Tensor) -> torch.Tensor:
        return x * 2

    @staticmethod
    def backward(ctx: Any, grad: torch.Tensor) -> torch.Tensor:  # type: ignore[override]
        return grad * torch.tensor([5.0]).sum()


READS = {
    "item": lambda x: x * x.sum().item(),  # READS
    "if": lambda x: x if x.sum() > 0 else -x,  # READS
    "mask": lambda x: x[x > 0],  # READS
    "list": lambda x: x * torch.tensor([1.0, x.sum()]),  # READS
    "numpy": lambda x: x * x.detach().numpy().sum(),  # READS
}


@pytest.mark.parametrize("via", ["dispatch", "export"])
@pytest.mark.parametrize("read", READS)
def test_reading_a_value_of_a_fake_tensor_is_refused_with_its_line(read: str, via: str) -> None:
    with pytest.raises(
        CaptureError, match=r"fake tensors have none .*\n  at .*test_fake\.py:"
    ) as e:
        capture(READS[read], torch.ones(2), via=via, fake=True)
    assert "# READS" in str(e.value)
