"""What edits of real models cost, against what their captures cost."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import nn
from torch.utils.checkpoint import checkpoint

from pytest_torchgraph import Aot, Capture, Cost, capture, diff
from pytest_torchgraph.graph.cost.cost import sum_of

BATCH = torch.ones(4, 8)


class Block(nn.Module):
    def __init__(self, act: Callable[[torch.Tensor], torch.Tensor], hidden: int) -> None:
        super().__init__()
        self.up = nn.Linear(8, hidden)
        self.act = act
        self.down = nn.Linear(hidden, 8)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x + self.down(self.act(self.up(x)))


class Net(nn.Module):
    def __init__(
        self,
        act: Callable[[torch.Tensor], torch.Tensor] = torch.relu,
        *,
        count: int = 3,
        hidden: int = 16,
        recomputed: bool = False,
    ) -> None:
        super().__init__()
        self.blocks = nn.ModuleList(Block(act, hidden) for _ in range(count))
        self.recomputed = recomputed

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        for block in self.blocks:
            x = checkpoint(block, x, use_reentrant=False) if self.recomputed else block(x)
        return x


class Attention(nn.Module):
    def __init__(self, *, fused: bool) -> None:
        super().__init__()
        sizes = [24] if fused else [8, 8, 8]
        self.projections = nn.ModuleList(nn.Linear(8, size) for size in sizes)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        parts = [project(x) for project in self.projections]
        q, k, v = parts if len(parts) == 3 else parts[0].chunk(3, -1)
        return (q @ k.t()).softmax(-1) @ v


HIDDEN = 4 * 16 * 4
"""The bytes of a hidden value."""
EDITS: dict[str, tuple[nn.Module, nn.Module, Cost | None]] = {
    "an op that saves its operand too": (Net(), Net(nn.GELU()), Cost(0, 3 * HIDDEN)),
    "an op that saves as much": (Net(), Net(torch.exp), Cost(0, 0)),
    "a clone of what is saved": (
        Net(),
        Net(lambda x: torch.relu(x).clone()),
        Cost(0, 3 * HIDDEN),
    ),
    "a clone of what is not": (
        Net(torch.sin),
        Net(lambda x: torch.sin(x.clone())),
        Cost(0, 0),
    ),
    "a layer more": (Net(), Net(count=4), None),
    "a layer fewer": (Net(), Net(count=2), None),
    "wider layers": (Net(), Net(hidden=32), None),
    "recomputed layers": (Net(nn.GELU()), Net(nn.GELU(), recomputed=True), None),
    "half precision": (Net(), Net(lambda x: torch.relu(x.bfloat16()).float()), None),
    "dropout": (Net(), Net(lambda x: nn.functional.dropout(torch.relu(x))), None),
    "a fused projection": (Attention(fused=False), Attention(fused=True), None),
    "a norm, and an activation": (
        nn.Sequential(nn.Linear(8, 8), nn.LayerNorm(8), nn.GELU(), nn.Linear(8, 8)),
        nn.Sequential(nn.Linear(8, 8), nn.RMSNorm(8), nn.SiLU(), nn.Linear(8, 8)),
        None,
    ),
}


def check(before: Capture, after: Capture, cost: Cost | None = None) -> None:
    found = [finding.cost for finding in diff(before, after).findings]
    assert found
    total = sum_of(found)
    assert total == Cost(after.flops - before.flops, after.saved_bytes - before.saved_bytes)
    assert cost is None or total == cost


@pytest.mark.parametrize("via", ["aot", "dispatch"])
@pytest.mark.parametrize("edit", EDITS)
def test_the_findings_cost_what_the_captures_differ_in(edit: str, via: str) -> None:
    before, after, cost = EDITS[edit]
    check(capture(before, BATCH, via=via), capture(after, BATCH, via=via), cost)


def test_another_partition_is_one_edit_that_costs_what_it_recomputes() -> None:
    net = Net(nn.GELU(), recomputed=True)
    before, after = (capture(net, BATCH, via=Aot(partition=p)) for p in ("default", "min_cut"))
    difference = diff(before, after)
    for finding in difference.findings:
        assert None not in (finding.cost.flops, finding.cost.saved_bytes)
    if difference:
        check(before, after)
