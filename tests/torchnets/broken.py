"""A module that breaks the graph."""

from __future__ import annotations

import torch
from torch import Tensor

from .squeezenet import Fire


class Broken(Fire):
    def forward(self, x: Tensor) -> Tensor:
        x = super().forward(x)
        torch._dynamo.graph_break()
        return x * 2
