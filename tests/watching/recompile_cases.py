"""Functions and modules that recompile, without asserts, which pytest would rewrite."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn

SCALE = 2
SETTINGS = {"scale": 2}


def doubled(x: Tensor) -> Tensor:
    return x * 2


def scaled(x: Tensor, scale: Any) -> Tensor:
    return x * scale


def chosen(x: Tensor, how: str) -> Tensor:
    return x.sin() if how == "sin" else x.cos()


def optional(x: Tensor, y: Tensor | None) -> Tensor:
    return x if y is None else x + y


def by_global(x: Tensor) -> Tensor:
    return x * SCALE


def by_setting(x: Tensor) -> Tensor:
    return x * SETTINGS["scale"]


def by_closure(box: list[int]) -> Callable[[Tensor], Tensor]:
    def inside(x: Tensor) -> Tensor:
        return x * box[0]

    return inside


def total(parts: list[Tensor]) -> Tensor:
    return sum(parts, torch.zeros(()))


def applied(x: Tensor, call: Callable[[Tensor], Tensor]) -> Tensor:
    return call(x)


class Net(nn.Module):
    def __init__(self, scale: int = 2) -> None:
        super().__init__()
        self.fc = nn.Linear(4, 4)
        self.drop = nn.Dropout(0.5)
        self.scale = scale

    def forward(self, x: Tensor) -> Tensor:
        return self.drop(self.fc(x)) * self.scale


class Other(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return x * 3


def first(x: Tensor, parts: Any) -> Tensor:
    return x * parts[0]


def looked_up(x: Tensor, table: dict[str, int]) -> Tensor:
    return x * table.get("scale", 3)


def by_size(x: Tensor) -> Tensor:
    return x * 2 if x.shape[0] > 5 else x * 3


def broken(x: Tensor) -> Tensor:
    x = x + 1
    torch._dynamo.graph_break()
    return x * 2


class Counting(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.calls = 0

    def forward(self, x: Tensor) -> Tensor:
        self.calls += 1
        return x * self.calls


class Configured(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.mode = "sum"
        self.scale = 1.5
        self.act = torch.relu
        self.parts = [1, 2]

    def forward(self, x: Tensor) -> Tensor:
        for part in self.parts:
            x = x + part
        x = self.act(x) * self.scale
        return x.sum() if self.mode == "sum" else x.mean()


def with_default(x: Tensor, scale: int = 2) -> Tensor:
    return x * scale


def by_name(x: Tensor, **scales: int) -> Tensor:
    return x * sum(scales.values())


def all_of(x: Tensor, table: dict[str, int]) -> Tensor:
    for each in table.values():
        x = x + each
    return x


def helped(x: Tensor, scale: int) -> Tensor:
    y = x + 1
    return helper(y, scale)


def helper(x: Tensor, scale: int) -> Tensor:
    return x * scale


def over(scale: int) -> Callable[[Tensor], Tensor]:
    def scaled_by(x: Tensor) -> Tensor:
        return x * scale

    return scaled_by


def from_table(x: Tensor, scale: int) -> Tensor:
    return x * {2: 20, 3: 30, 4: 40}[scale]
