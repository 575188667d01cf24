"""Costs and patterns of a divided step, which follow values from graph to graph and count runs."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

from pytest_torchgraph import Capture, CaptureError, capture, load

BATCH = torch.ones(4, 8)


@torch.compiler.disable
def squared(x: Tensor) -> Tensor:
    return (x @ x.t()).relu() @ x


class Mixed(nn.Module):
    """A model that runs ops outside the compiled graphs, several times."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.last = nn.Linear(8, 8), nn.Linear(8, 8)

    def forward(self, x: Tensor) -> Tensor:
        x = squared(self.first(x))
        x = squared(x + 1)
        x = squared(x + 1)
        return self.last(x)


@pytest.fixture(scope="module")
def mixed() -> Capture:
    return capture(Mixed(), BATCH)


def test_saved_bytes_of_several_runs_are_those_of_eager_code(mixed: Capture) -> None:
    assert max(graph.runs for graph in mixed.eager) > 1
    eager = capture(Mixed(), BATCH, via="dispatch")
    assert mixed.saved_bytes == eager.saved_bytes == 704
    assert sum(cost.saved_bytes or 0 for cost in mixed.by_module().values()) == 704


def test_a_pattern_counts_each_run_and_crosses_breaks(mixed: Capture) -> None:
    mixed.assert_pattern("aten.relu -> aten.mm", 3)
    mixed.assert_pattern("aten.addmm -> aten.t ~> aten.relu")
    (match,) = mixed.find_pattern("aten.relu -> aten.mm")
    assert match.times == 3
    assert any(node is match.nodes[0] for graph in mixed.eager for node in graph.nodes)
    with pytest.raises(AssertionError, match="found 3"):
        mixed.assert_pattern("aten.relu -> aten.mm", 1)


def test_a_stored_step_has_the_costs_and_patterns_of_the_live_one(
    mixed: Capture, tmp_path: Path
) -> None:
    stored = tmp_path / "step.tgraph"
    stored.write_text(mixed.to_text())
    loaded = load(stored)
    assert loaded.saved_bytes == 704
    assert loaded.peak_bytes == mixed.peak_bytes
    loaded.assert_pattern("aten.relu -> aten.mm", 3)
    older = tmp_path / "older.tgraph"
    older.write_text(mixed.to_text().partition("\nlinks\n")[0])
    assert load(older).saved_bytes != 704
    load(older).assert_pattern("aten.relu -> aten.mm", 1)


class Again(nn.Module):
    """A checkpoint on each side of a graph break."""

    def __init__(self) -> None:
        super().__init__()
        self.a, self.b = nn.Linear(8, 8), nn.Linear(8, 8)

    def forward(self, x: Tensor) -> Tensor:
        x = checkpoint(lambda x: self.a(x).sin().exp(), x, use_reentrant=False)
        torch._dynamo.graph_break()
        return checkpoint(lambda x: self.b(x).cos().exp(), x.relu(), use_reentrant=False)


@pytest.mark.slow("inductor generates code", only=["inductor"])
@pytest.mark.parametrize("via", ["aot", "inductor"])
def test_recomputed_ops_name_the_captured_nodes(via: str) -> None:
    captured = capture(Again(), BATCH, via=via)
    graphs = {graph.name: graph for graph in captured._split}
    by_op = {entry.op: entry for entry in captured.recomputed}
    assert [by_op[f"aten.{op}.default"].graph for op in ("sin", "cos")] == [
        "backward_1",
        "backward_0",
    ]
    for entry in captured.recomputed:
        assert graphs[entry.graph].by_name[entry.node.name].op == entry.node.op
        assert any(entry.original.name in graph.by_name for graph in graphs.values())
    captured.assert_recomputed({"aten.sin": 1, "aten.cos": 1})
    captured.assert_saved("aten.relu")
    with pytest.raises(AssertionError, match="saved"):
        captured.assert_saved("aten.sin")
    eager = capture(Again(), BATCH, via="dispatch")
    assert captured.saved_bytes == eager.saved_bytes


@pytest.mark.slow("inductor generates code", only=["inductor"])
@pytest.mark.parametrize("via", ["aot", "inductor", "dispatch"])
def test_a_value_that_a_later_graph_saves_is_saved(via: str) -> None:
    fc = nn.Linear(8, 8)

    def step(x: Tensor) -> Tensor:
        x = fc(x) + x @ x.t() @ x  # inductor makes it one op of another name
        torch._dynamo.graph_break()
        return x.sin()

    captured = capture(step, BATCH, via=via)
    captured.assert_saved("aten.add")
    with pytest.raises(AssertionError, match="saved for the backward"):
        captured.assert_not_saved("aten.add")


class Layer(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.fc = nn.Linear(8, 8)

    def forward(self, x: Tensor) -> Tensor:
        x = checkpoint(lambda x: self.fc(x).sin().exp(), x, use_reentrant=False)
        torch._dynamo.graph_break()
        return x.relu()


@pytest.mark.slow("compiles several models")
def test_each_run_of_a_shared_graph_counts_in_its_own_module() -> None:
    model = nn.Sequential(Layer(), Layer(), Layer())
    shared, eager = (capture(model, BATCH, via=via) for via in ("aot", "dispatch"))
    assert any(graph.runs > 1 for graph in shared.graphs)
    shared.assert_recomputed({"aten.sin": 3})
    shared.assert_recomputed({"aten.sin": 1}, module="1")
    assert shared.by_module() == eager.by_module()
    table = shared.cost_table().splitlines()
    assert [line.split()[0] for line in table[2:6]] == ["(all)", "0", "0.fc", "1"]
    assert {f"{shared.flops:,}", f"{shared.saved_bytes:,}"} <= {*table[2].split()}


def test_a_body_that_cannot_be_followed_is_named_by_its_captured_graph(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def step(x: Tensor) -> Tensor:
        x = x.sin()
        torch._dynamo.graph_break()
        return torch.cond(x.sum() > 0, torch.sin, torch.cos, (x,)).exp()

    captured = capture(step, BATCH, backward=False)
    captured.assert_pattern("aten.sin ~> aten.exp")
    monkeypatch.setattr("pytest_torchgraph.graph.dataflow.KINDS", {})
    with pytest.raises(CaptureError, match=r"%cond of inference_1\), because"):
        captured.find_pattern("aten.sin ~> aten.exp")


def test_costs_of_dynamo_graphs_are_unknown_beside_an_eager_forward() -> None:
    @torch.compiler.disable
    def eager(x: Tensor, w: Tensor) -> Tensor:
        return (x @ w).sin()

    def step(x: Tensor, w: Tensor) -> Tensor:
        with torch.no_grad():
            x = x @ x.t() @ x
        return eager(x, w)

    captured = capture(step, BATCH, torch.ones(8, 8, requires_grad=True), via="dynamo")
    assert {graph.kind for graph in captured.program} == {"inference", "forward", "backward"}
    with pytest.raises(CaptureError, match="FLOPs are unknown"):
        captured.by_module()
