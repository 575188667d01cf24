"""Backwards for compiled autograd, without asserts, which pytest would rewrite."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn


class Model(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(10, 10)

    def forward(self, x: Tensor) -> Tensor:
        return self.linear(x)


def train(model: nn.Module, x: Tensor) -> None:
    loss = model(x).sum()
    loss.backward()


def three_parts(x: Tensor) -> Tensor:
    temp = x + 10
    torch._dynamo.graph_break()  # break: three_parts
    temp = temp + 10
    torch._dynamo.graph_break()  # break: three_parts
    return temp.sum()


def summed(x: Tensor) -> Tensor:
    return x.sum()


def add_ten(grad: Tensor) -> Tensor:
    return grad + 10


def say(grad: Tensor) -> Tensor:
    print("seen")  # break: say
    return grad * 2


def branch(grad: Tensor) -> Tensor:
    if grad.sum() > 0:  # break: branch
        return grad * 2
    return grad


class Doubled(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        return x * 2

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> Tensor:
        return grad * 2


def line_of(mark: str) -> int:
    """Return the line of this file with this mark."""
    lines = Path(__file__).read_text().splitlines()
    (line,) = (n for n, text in enumerate(lines, 1) if text.endswith(f"# break: {mark}"))
    return line
