"""A frame that Dynamo gives up on is refused where it runs operations, and only there."""

from __future__ import annotations

import functools
from collections.abc import Callable

import pytest
import torch
from capturing.models import example
from torch import Tensor, nn

from pytest_torchgraph import CaptureError, capture

THROUGH_DYNAMO = ("dynamo", "aot", "compiled_autograd")


def repeated(function: Callable[..., Tensor]) -> Callable[..., Tensor]:
    """Dynamo skips a frame that calls what breaks in a loop."""

    @functools.wraps(function)
    def wrapper(self: nn.Module, x: Tensor) -> Tensor:
        for _ in range(1):
            found = function(self, x)
        return found

    return wrapper


class Decorated(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Linear(4, 4)
        self.norm = nn.BatchNorm1d(4)

    @repeated
    def forward(self, x: Tensor) -> Tensor:
        x = self.first(x).relu()
        torch._dynamo.graph_break()
        return self.norm(x)


class Head(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(4, 4)

    def forward(self, x: Tensor) -> Tensor:
        return self.linear(x).relu()


class BesideACompiledOne(nn.Module):
    """Its head is compiled by itself; what it runs of its own is in no graph."""

    def __init__(self, own: nn.Module) -> None:
        super().__init__()
        self.own = own
        self.head = Head()

    def forward(self, x: Tensor) -> Tensor:
        for _ in range(1):
            x = self.own(x)
            torch._dynamo.graph_break()
        return self.head(x)


@pytest.mark.parametrize("via", THROUGH_DYNAMO)
def test_a_skipped_frame_that_only_calls_others_loses_nothing(via: str) -> None:
    model = Decorated()
    model.norm.running_mean += 1.0
    before = {name: value.clone() for name, value in model.state_dict().items()}
    captured = capture(model, example(3, 4), via=via)
    assert len(captured.forwards) == 2
    linear = "torch.nn.functional.linear" if via == "dynamo" else "aten.addmm"
    assert captured.op_counts[linear] == 1
    captured.assert_matches_eager()
    assert all(torch.equal(value, before[name]) for name, value in model.state_dict().items())
    assert all(parameter.grad is None for parameter in model.parameters())


@pytest.mark.parametrize("via", THROUGH_DYNAMO)
def test_a_skipped_frame_that_runs_a_layer_of_torch_is_refused(via: str) -> None:
    with pytest.raises(CaptureError) as caught:
        capture(BesideACompiledOne(nn.Linear(4, 4)), example(3, 4), via=via)
    message = str(caught.value)
    assert "Dynamo gave up on a frame of the target" in message
    assert "forward at " in message
    assert "test_skipped_frames.py:" in message
    assert "which runs aten.t.default, aten.addmm.default: " in message


def test_a_skipped_frame_that_only_calls_modules_of_the_user_is_no_loss() -> None:
    captured = capture(BesideACompiledOne(Head()), example(3, 4))
    assert captured.op_counts["aten.addmm"] == 2
    captured.assert_matches_eager()


def test_masks_that_torch_looks_at_stop_the_compilation_and_hints_let_it_go_on() -> None:
    torch.manual_seed(0)
    model = nn.Transformer(8, 2, 1, 1, 16, batch_first=True)
    mask = nn.Transformer.generate_square_subsequent_mask(3)
    source, target = example(2, 4, 8), example(2, 3, 8)
    with pytest.raises(CaptureError) as caught:
        capture(model, source, target, tgt_mask=mask)
    message = str(caught.value)
    assert "Dynamo broke the graph in torch's own code" in message
    assert "src_is_causal and tgt_is_causal are given" in message
    assert "Graph break in user code at torch/nn/modules/transformer.py:" in message
    capture(model, source, target, tgt_mask=mask, tgt_is_causal=True).assert_matches_eager()
