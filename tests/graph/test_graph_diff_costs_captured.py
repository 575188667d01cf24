"""The costs of edits of real models, against the costs of their captures."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import nn
from torch.utils.checkpoint import checkpoint
from torch_releases import skip_before

from pytest_torchgraph import Aot, Capture, Cost, capture, diff
from pytest_torchgraph.graph.cost import sum_of

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


HIDDEN = 4 * 16 * 4
"""The size of a hidden value in bytes."""
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
    "wider layers": (Net(), Net(hidden=32), None),
    "recomputed layers": (Net(nn.GELU()), Net(nn.GELU(), recomputed=True), None),
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


@pytest.mark.slow(
    "further cases; a few are in every run",
    only=[
        "*aot",
        "a layer more-dispatch",
        "wider layers-dispatch",
    ],
)
@pytest.mark.parametrize("via", ["aot", "dispatch"])
@pytest.mark.parametrize("edit", EDITS)
def test_finding_costs_sum_up_to_the_difference_of_the_captures(edit: str, via: str) -> None:
    before, after, cost = EDITS[edit]
    check(capture(before, BATCH, via=via), capture(after, BATCH, via=via), cost)


@torch.compiler.disable
def squared(x: torch.Tensor) -> torch.Tensor:
    return (x @ x.t()).relu() @ x


@torch.compiler.disable
def squared_exp(x: torch.Tensor) -> torch.Tensor:
    return (x @ x.t()).exp().clone() @ x


class Mixed(nn.Module):
    """A model that runs an op outside the compiled graphs, once for each block."""

    def __init__(self, act: Callable[[torch.Tensor], torch.Tensor], *, more: bool = False) -> None:
        super().__init__()
        self.first, self.last = nn.Linear(8, 8), nn.Linear(8, 8)
        self.act = act
        self.more = more

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = self.act(self.first(x))
        x = self.act(x + 1)
        if self.more:
            x = self.act(x + 1)
        return self.last(x)


@pytest.mark.slow("further cases; a few are in every run", unless=["none any more"])
@pytest.mark.parametrize(
    ("act", "more"),
    [(squared_exp, True), (torch.relu, False)],
    ids=["an edit and one more run", "none any more"],
)
def test_edit_cost_of_eager_ops_is_multiplied_by_their_runs(
    act: Callable[[torch.Tensor], torch.Tensor], more: bool
) -> None:
    before = capture(Mixed(squared), BATCH)
    assert max(graph.runs for graph in before.eager) > 1
    check(before, capture(Mixed(act, more=more), BATCH))


class Branches(nn.Module):
    def __init__(self, *, products: int) -> None:
        super().__init__()
        self.fc = nn.Linear(8, 8)
        self.products = products

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        def yes(x: torch.Tensor) -> torch.Tensor:
            for _ in range(self.products):
                x = self.fc(x)
            return x

        return torch.cond(x.sum() > 0, yes, lambda x: x * 2, (x,))


class Regions(nn.Module):
    """Calls of one body. Each call saves the values that the body saves."""

    def __init__(self, act: Callable[[torch.Tensor], torch.Tensor], *, products: int = 1) -> None:
        super().__init__()
        self.w = nn.Parameter(torch.ones(8, 8))
        self.act = act

        @torch.compiler.nested_compile_region
        def block(x: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
            for _ in range(products):
                x = x @ w
            return act(x)

        self.block = block

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        for _ in range(3):
            x = self.block(x, self.w)
        return x


@pytest.mark.slow("via dispatch each case is in every run", unless=["an op of a body"])
@pytest.mark.parametrize(
    ("before", "after"),
    [
        (Branches(products=1), Branches(products=2)),
        (Regions(torch.relu), Regions(nn.GELU())),
        (Regions(torch.relu), Regions(torch.relu, products=2)),
    ],
    ids=["a product more in a branch", "an op of a body", "a product more in a body"],
)
def test_edit_cost_of_bodies_is_multiplied_by_their_calls(
    before: nn.Module, after: nn.Module
) -> None:
    if isinstance(after, Regions) and after.act is not torch.relu:
        skip_before("2.13", "it is unknown what an edit in a body saves")
    check(capture(before, BATCH), capture(after, BATCH))


def test_edit_cost_of_another_partition_is_its_recomputation() -> None:
    net = Net(nn.GELU())
    default, min_cut = (capture(net, BATCH, via=Aot(partition=p)) for p in ("default", "min_cut"))
    check(default, min_cut)


def test_edit_of_recomputed_ops_has_their_runs_before_and_after(tmp_path):
    plain, every = (
        capture(Net(torch.tanh, recomputed=again), BATCH, via="dispatch") for again in (False, True)
    )
    line = "recomputed in the backward: aten.addmm.default 0 -> 3, aten.tanh.default 0 -> 3"
    difference = diff(plain, every)
    (finding,) = difference.findings
    assert finding.recomputed == (("aten.addmm.default", 0, 3), ("aten.tanh.default", 0, 3))
    assert line in finding.to_text()
    assert finding.to_json()["recomputed"] == [[*op] for op in finding.recomputed]
    stored = tmp_path / "every.tgraph"
    stored.write_text(every.to_text())
    assert line in str(diff(plain, stored))
    assert "aten.tanh.default 3 -> 0" in str(diff(stored, plain))
    wider = capture(Net(torch.tanh, recomputed=True, hidden=32), BATCH, via="dispatch")
    assert not any(finding.recomputed for finding in diff(every, wider).findings)
    assert "recomputed" not in str(diff(plain, capture(Net(torch.exp), BATCH, via="dispatch")))
