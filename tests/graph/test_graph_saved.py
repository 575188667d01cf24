"""Saved activations. `tests/subjects/test_costs.py` compares them with torch's hooks."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from pytest_torchgraph import Aot, CaptureError, capture, load
from pytest_torchgraph.graph.cost import owners_of_saved, saved_bytes


class Net(torch.nn.Module):
    def __init__(self, activation: Callable[[torch.Tensor], torch.Tensor]) -> None:
        super().__init__()
        self.up = torch.nn.Linear(4, 32)
        self.down = torch.nn.Linear(32, 4)
        self.activation = activation

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.down(self.activation(self.up(x)))


@pytest.mark.parametrize("via", ["aot", "dispatch"])
def test_saved_bytes_exclude_weights_and_inputs_and_count_bases_once(via: str) -> None:
    relu = capture(Net(torch.relu), torch.ones(2, 3, 4), via=via)
    values = 2 * 3 * 32 * 4
    assert relu.saved_bytes == values  # relu's result once, though two views are saved
    naive = sum(
        torch.tensor(node.result.shape).prod().item() * 4
        for node in (relu.forward[ref.name] for ref in relu.forward.saved)
    )
    assert naive > relu.saved_bytes


def test_owner_of_a_saved_storage_has_its_source_line() -> None:
    before, after = (
        capture(Net(activation), torch.ones(2, 3, 4), via="dispatch")
        for activation in (torch.relu, lambda x: torch.relu(x.exp()))
    )
    assert after.saved_bytes - before.saved_bytes == 2 * 3 * 32 * 4
    owners = {node.op: node for node in owners_of_saved(after.forward)}
    assert owners.keys() == {"aten.exp.default", "aten.relu.default"}
    source = owners["aten.exp.default"].source
    assert source is not None
    assert "torch.relu(x.exp())" in source.code


def test_saved_bytes_of_a_split_and_of_a_write() -> None:
    def halves(x: torch.Tensor) -> torch.Tensor:
        a, b = (x * 2).split(2, -1)
        return a * b

    def written(x: torch.Tensor) -> torch.Tensor:
        y = x * 2
        y.exp_()
        return y * y

    x = torch.ones(3, 4, requires_grad=True)
    for function in (halves, written):
        captured = capture(function, x, via="dispatch")
        assert captured.saved_bytes == 3 * 4 * 4


class Broken(torch.nn.Module):
    """Breaks after `h`. The first graph computes and saves `h`, and the next graph saves it too."""

    def __init__(self, between: Callable[[torch.Tensor], torch.Tensor]) -> None:
        super().__init__()
        self.up = torch.nn.Linear(4, 32)
        self.down = torch.nn.Linear(32, 4)
        self.between = between

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        h = torch.relu(self.up(x))
        return self.down(self.between(h))


def nothing(h: torch.Tensor) -> torch.Tensor:
    torch._dynamo.graph_break()
    return h


@torch.compiler.disable
def eager_product(h: torch.Tensor) -> torch.Tensor:
    return h * h.sin()


@pytest.mark.slow("further cases; a few are in every run", unless=["eager ops"])
@pytest.mark.parametrize(
    ("between", "values"), [(nothing, 1), (eager_product, 3)], ids=["nothing", "eager ops"]
)
def test_saved_bytes_count_a_value_between_two_graphs_once(
    between: Callable[[torch.Tensor], torch.Tensor], values: int
) -> None:
    """The eager product saves h, its sine, and the result, which the second graph saves, too."""
    model, x = Broken(between), torch.ones(3, 4)
    captured = capture(model, x)
    assert len(captured.forwards) == 2
    assert captured.saved_bytes == values * 3 * 32 * 4
    assert (
        sum(cost.saved_bytes or 0 for cost in captured.by_module().values()) == captured.saved_bytes
    )
    captured.assert_budget(saved_bytes=(captured.saved_bytes, captured.saved_bytes))


def test_saved_bytes_count_a_value_that_only_the_second_graph_saves() -> None:
    def kept_by_the_product(x: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
        h = torch.cat([x, x]) + w
        torch._dynamo.graph_break()
        return h * h

    x, w = torch.ones(3, 4), torch.ones(4, requires_grad=True)
    captured = capture(kept_by_the_product, x, w)
    first, second = captured.forwards
    assert [ref.name for ref in first.saved] == []
    assert [second[ref.name].op for ref in second.saved] == ["input"]
    assert captured.saved_bytes == 6 * 4 * 4


def test_saved_bytes_without_links_count_a_value_that_only_eager_ops_save() -> None:
    """In a file of an earlier version, the name of an eager graph's input states its source."""

    def kept_by_eager_ops(x: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
        return eager_product(torch.cat([x, x]) + w)

    captured = capture(kept_by_eager_ops, torch.ones(3, 4), torch.ones(4, requires_grad=True))
    without_links = [replace(graph, calls=None) for graph in captured.program]
    assert saved_bytes(without_links) == captured.saved_bytes == 2 * 6 * 4 * 4


@pytest.mark.slow("compiles for a second")
def test_saved_bytes_of_a_capture_without_saved_values_are_an_error() -> None:
    x = torch.ones(2, 4)
    for via in ("fx", "dynamo", "export"):
        with pytest.raises(CaptureError, match="do not record what is saved for the backward"):
            _ = capture(torch.nn.Linear(4, 4), x, via=via).saved_bytes
    with pytest.raises(CaptureError, match="do not record what is saved for the backward"):
        _ = capture(torch.nn.Linear(4, 4), x, via="dynamo").peak_bytes
    symbolic = capture(Net(torch.relu), torch.ones(2, 3, 4), via=Aot(dynamic=True))
    with pytest.raises(CaptureError, match="depend on the symbolic size s"):
        _ = symbolic.saved_bytes


CONSTANT = torch.tensor([1, 2] * 500)


@pytest.mark.parametrize("via", ["dispatch", "aot"])
def test_saved_bytes_include_tensors_that_the_target_makes_from_numbers(via: str) -> None:
    w, x = torch.ones(4, 4, requires_grad=True), torch.ones(4)
    targets: list[Callable[[torch.Tensor, torch.Tensor], torch.Tensor]] = [
        lambda w, x: w[torch.tensor([1, 2] * 500)] * x,
        lambda w, x: w[CONSTANT] * x,  # exists before the step
    ]
    captures = [capture(target, w, x, via=via) for target in targets]
    assert [captured.saved_bytes for captured in captures] == [8000, 0]
    assert captures[0].peak_bytes == captures[1].peak_bytes + 8000
    captures[0].assert_budget(saved_bytes=8000)
    with pytest.raises(AssertionError, match="saved_bytes: expected 0, found 8000"):
        captures[0].assert_budget(saved_bytes=0)


LOST = """torchgraph 1

forward @ aot {
  %x = input : f32[4]
  %relu = aten.relu.default(%x) : f32[4]
  return [
    %relu,
    %relu,
  ]
}

backward @ aot {
  %relu = saved : f32[4]
  %tangent.0 = tangent : f32[4]
  %threshold_backward = aten.threshold_backward.default(%tangent.0, %relu, 0) : f32[4]
  return %threshold_backward
}
"""


def test_saved_bytes_of_a_forward_without_saved_values_are_unknown(tmp_path: Path) -> None:
    file = tmp_path / "lost.tgraph"
    file.write_text(LOST)
    for call in (lambda: load(file).saved_bytes, lambda: load(file).assert_budget(saved_bytes=9)):
        with pytest.raises(
            CaptureError, match=r"backward uses %relu, which no compiled forward saves\. Capture"
        ):
            call()
