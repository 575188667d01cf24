"""Small models shared by the capture tests."""

from __future__ import annotations

import threading
from collections.abc import Callable

import torch
from torch import Tensor, nn

MECHANISMS = ("aot", "dispatch", "dynamo", "fx", "export", "compiled_autograd", "inductor")
BOTH = ("aot", "dispatch")
"""The mechanisms that give a graph of the backward."""


class Mlp(nn.Module):
    """Three blocks with a list, a shared layer and a norm, as a test of names."""

    def __init__(self) -> None:
        super().__init__()
        self.blocks = nn.ModuleList(nn.Linear(8, 8) for _ in range(3))
        self.norm = nn.LayerNorm(8)
        self.head = nn.Linear(8, 2)

    def forward(self, x: Tensor) -> Tensor:
        for block in self.blocks:
            x = x + torch.relu(block(x))
        return self.head(self.norm(x))


class Head(nn.Module):
    """One frame, compiled without a break."""

    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(4, 4)

    def forward(self, x: Tensor) -> Tensor:
        return self.linear(x).relu()


class Norm(nn.Module):
    """BatchNorm in train mode, which writes its buffers."""

    def __init__(self) -> None:
        super().__init__()
        self.conv = nn.Conv2d(2, 4, 3)
        self.norm = nn.BatchNorm2d(4)

    def forward(self, x: Tensor) -> Tensor:
        return self.norm(self.conv(x)).relu()


def mlp() -> Mlp:
    torch.manual_seed(0)
    return Mlp()


def example(*shape: int, grad: bool = False) -> Tensor:
    return (
        torch.linspace(-1, 1, int(torch.tensor(shape).prod())).reshape(shape).requires_grad_(grad)
    )


def in_a_thread(function: Callable[[], Tensor]) -> Tensor:
    made: list[Tensor] = []
    thread = threading.Thread(target=lambda: made.append(function()), name="worker")
    thread.start()
    thread.join(60)
    return made[0]
