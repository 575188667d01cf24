"""Each mechanism calls the target once, even if Dynamo skips or breaks it."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from mechanisms.models import MECHANISMS, Head, example
from torch import Tensor, nn

from pytest_torchgraph import CaptureError, capture

CALLS: list[int] = []


def plain(model: Counting, x: Tensor) -> Tensor:
    return model.linear(x).relu()


def broken(model: Counting, x: Tensor) -> Tensor:
    x = model.linear(x)
    torch._dynamo.graph_break()
    return x.relu()


def skipped(model: Counting, x: Tensor) -> Tensor:
    for _ in range(1):
        x = model.linear(x)
        torch._dynamo.graph_break()
    return model.head(x)


def beside_an_lstm(model: Counting, x: Tensor) -> Tensor:
    x, _ = model.lstm(x.unsqueeze(0))
    return model.head(x)


class Counting(nn.Module):
    """Counts its calls in a global list, because torch.export restores a module's attributes."""

    def __init__(self, run: Callable[[Counting, Tensor], Tensor]) -> None:
        super().__init__()
        self.linear = nn.Linear(4, 4)
        self.lstm = nn.LSTM(4, 4, batch_first=True)
        self.head = Head()
        self.run = run

    def forward(self, x: Tensor) -> Tensor:
        CALLS.append(1)
        return self.run(self, x)


@pytest.mark.filterwarnings("ignore:The tensor attributes:UserWarning")  # from export, of an LSTM
@pytest.mark.slow("further cases; a few are in every run", unless=["skipped-dynamo", "*-dispatch"])
@pytest.mark.parametrize(
    ("run", "via"),
    [
        (run, via)
        for row, run in enumerate([plain, broken, skipped, beside_an_lstm])
        for column, via in enumerate(MECHANISMS)
        if via == "dispatch" or (row + column) % 2 == 0
    ],
)
def test_the_target_is_called_once(run: Callable[[Counting, Tensor], Tensor], via: str) -> None:
    model = Counting(run)
    CALLS.clear()
    capture(model, example(3, 4), via=via, backward=False if via == "export" else None)
    assert len(CALLS) == 1


def in_a_loop(model: Counting, x: Tensor) -> Tensor:
    for _ in range(2):
        x = x.tan()
        torch._dynamo.graph_break()
    return x


@pytest.mark.parametrize("via", ["dynamo", "compiled_autograd"])
def test_refused_target_is_called_once(via: str) -> None:
    model = Counting(in_a_loop)
    CALLS.clear()
    with pytest.raises(CaptureError, match="nothing was captured"):
        capture(model, example(3, 4, grad=True), via=via)
    assert len(CALLS) == 1
