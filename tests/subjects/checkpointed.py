"""A small transformer under five policies of activation checkpointing."""

from __future__ import annotations

import functools
from typing import Any, Literal

import torch
from subjects.models import Block, Subject, numbers
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint, create_selective_checkpoint_contexts

aten = torch.ops.aten
Policy = Literal["none", "products kept", "every second block", "every block", "whole"]
POLICIES: tuple[Policy, ...] = (
    "none",
    "products kept",
    "every second block",
    "every block",
    "whole",
)
"""From no recomputation to full recomputation. "products kept" saves results of products."""

_KEEPING_PRODUCTS = functools.partial(
    create_selective_checkpoint_contexts, [aten.mm.default, aten.addmm.default, aten.bmm.default]
)


class Checkpointed(nn.Module):
    def __init__(self, policy: Policy) -> None:
        super().__init__()
        self.blocks = nn.ModuleList(Block() for _ in range(4))
        self.policy = policy

    def forward(self, x: Tensor) -> Tensor:
        return _again(self.run, x) if self.policy == "whole" else self.run(x)

    def run(self, x: Tensor) -> Tensor:
        for number, block in enumerate(self.blocks):
            if self.policy == "products kept":
                x = _again(block, x, context_fn=_KEEPING_PRODUCTS)
            elif self.policy == "every block" or (
                self.policy == "every second block" and number % 2
            ):
                x = _again(block, x)
            else:
                x = block(x)
        return x


def _again(call: Any, x: Tensor, **options: Any) -> Tensor:
    return checkpoint(call, x, use_reentrant=False, **options)  # type: ignore[no-any-return]


def subject(policy: Policy) -> Subject:
    with torch.random.fork_rng():
        torch.manual_seed(0)
        return Subject(Checkpointed(policy), (numbers(2, 5, 16),))
