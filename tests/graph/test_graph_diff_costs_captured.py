"""The costs of edits of real models, against the costs of their captures."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from graph.rule_examples import Example
from torch import nn
from torch_releases import skip_before

from pytest_torchgraph import Aot, Capture, Cost, capture, diff
from pytest_torchgraph.graph.cost import sum_of

BATCH = torch.ones(4, 8)
HIDDEN = 6 * 8 * 4
"""The size of a hidden value in bytes."""
CHECKPOINTED = "checkpoint(body, x, use_reentrant=False)"


def blocks(hidden: str, size: int = 8, count: int = 3, call: str = "body(x)") -> str:
    """Return a module of blocks, whose hidden value is this line."""
    inner = f'"up=nn.Linear(6, {size}), down=nn.Linear({size}, 6)"'
    body = f'Written("x + down({hidden})", {inner})'
    return f"blocks=nn.Sequential(*(Written('{call}', 'body={body}') for _ in range({count})))"


RELU = blocks("up(x).relu()")
EDITS: dict[str, tuple[str, str, Cost | None]] = {
    "an op that saves its operand too": (RELU, blocks("F.gelu(up(x))"), Cost(0, 3 * HIDDEN)),
    "an op that saves as much": (RELU, blocks("up(x).exp()"), Cost(0, 0)),
    "a clone of what is saved": (RELU, blocks("up(x).relu().clone()"), Cost(0, 3 * HIDDEN)),
    "a clone of what is not": (blocks("up(x).sin()"), blocks("up(x).clone().sin()"), Cost(0, 0)),
    "a layer more": (RELU, blocks("up(x).relu()", count=4), None),
    "wider layers": (RELU, blocks("up(x).relu()", 16), None),
    "recomputed layers": (
        *(blocks("F.gelu(up(x))"), blocks("F.gelu(up(x))", call=CHECKPOINTED)),
        None,
    ),
    "a norm, and an activation": (
        "blocks=nn.Sequential(nn.Linear(6, 6), nn.LayerNorm(6), nn.GELU(), nn.Linear(6, 6))",
        "blocks=nn.Sequential(nn.Linear(6, 6), nn.RMSNorm(6), nn.SiLU(), nn.Linear(6, 6))",
        None,
    ),
}


def check(before: Capture, after: Capture, cost: Cost | None = None) -> None:
    found = [finding.cost for finding in diff(before, after).findings]
    assert found
    total = sum_of(found)
    assert total == Cost(after.flops - before.flops, after.saved_bytes - before.saved_bytes)
    assert cost is None or total == cost


@pytest.mark.parametrize("edit", EDITS)
def test_finding_costs_sum_up_to_the_difference_of_the_captures(edit: str) -> None:
    before, after, cost = EDITS[edit]
    check(*Example("blocks(x)", "blocks(x)", before, after).sides(), cost)


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


@pytest.mark.slow("compiles; test_graph_diff_costs.py has runs in text")
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


@pytest.mark.slow("via dispatch each case is in every run")
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
    net = nn.Sequential(nn.Linear(8, 16), nn.GELU(), nn.Linear(16, 8))
    default, min_cut = (capture(net, BATCH, via=Aot(partition=p)) for p in ("default", "min_cut"))
    check(default, min_cut)


def test_edit_of_recomputed_ops_has_their_runs_before_and_after(tmp_path: Path) -> None:
    lines, tanh = ("blocks(x)", "blocks(x)"), "up(x).tanh()"
    every_block = blocks(tanh, call=CHECKPOINTED)
    plain, every = Example(*lines, blocks(tanh), every_block).sides()
    line = "recomputed in the backward: aten.addmm.default 0 -> 3, aten.tanh.default 0 -> 3"
    (finding,) = diff(plain, every).findings
    assert finding.recomputed == (("aten.addmm.default", 0, 3), ("aten.tanh.default", 0, 3))
    assert line in finding.to_text()
    assert finding.to_json()["recomputed"] == [[*op] for op in finding.recomputed]
    stored = tmp_path / "every.tgraph"
    stored.write_text(every.to_text())
    assert line in str(diff(plain, stored))
    assert "aten.tanh.default 3 -> 0" in str(diff(stored, plain))
    wider = Example(*lines, every_block, blocks(tanh, 16, call=CHECKPOINTED)).difference()
    assert not any(finding.recomputed for finding in wider.findings)
    exp = Example(*lines, blocks(tanh), blocks("up(x).exp()")).difference()
    assert "recomputed" not in str(exp)
