"""A changed module class is one finding, even if most graphs were added or removed with it."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import Tensor, nn

import pytest_torchgraph
from pytest_torchgraph import Capture


class Broken(nn.Module):
    """A layer with a graph break in the middle."""

    def __init__(self) -> None:
        super().__init__()
        self.lin = nn.Linear(4, 4)

    def forward(self, x: Tensor) -> Tensor:
        y = self.lin(x).sin()
        torch._dynamo.graph_break()
        return y * 2 + x


class Whole(nn.Module):
    """A layer without a graph break."""

    def __init__(self) -> None:
        super().__init__()
        self.lin = nn.Linear(4, 4)

    def forward(self, x: Tensor) -> Tensor:
        return self.lin(x).cos()


class Scaled(nn.Module):
    """A layer with a graph break elsewhere."""

    def __init__(self) -> None:
        super().__init__()
        self.lin = nn.Linear(4, 4)

    def forward(self, x: Tensor) -> Tensor:
        torch._dynamo.graph_break()
        x = self.lin(x * 3)
        torch._dynamo.graph_break()
        return x.tanh()


class Net(nn.Module):
    def __init__(
        self, layer: Callable[[], nn.Module], *, squashed: bool = False, added: bool = False
    ) -> None:
        super().__init__()
        self.layers = nn.ModuleList(layer() for _ in range(2))
        self.squashed, self.added = squashed, added

    def forward(self, x: Tensor) -> Tensor:
        for layer in self.layers:
            x = layer(x).exp()
        if self.added:
            x = x.atan()
        x = x.sigmoid() if self.squashed else x.relu()
        return x.neg()


def captured(layer: Callable[[], nn.Module], **edits: bool) -> Capture:
    return pytest_torchgraph.capture(Net(layer, **edits), torch.ones(2, 4))


@pytest.fixture(scope="module")
def broken() -> Capture:
    return captured(Broken)


@pytest.fixture(scope="module")
def whole() -> Capture:
    return captured(Whole)


def test_another_class_without_the_break_is_the_break_and_the_edit(
    broken: Capture, whole: Capture
) -> None:
    assert len(broken.graphs) > len(whole.graphs)
    cut, edit = pytest_torchgraph.diff(broken, whole).findings
    assert (cut.kind, cut.changes) == ("removed", ())
    assert [place.module for place in cut.places] == ["layers.0", "layers.1"]
    assert [place.module for place in edit.places] == ["layers.0", "layers.1"]
    assert edit.consequences
    assert edit.cost.flops is not None

    cut, edit = pytest_torchgraph.diff(whole, broken).findings
    assert (cut.kind, edit.kind) == ("added", "added")


@pytest.mark.slow("compiles several models")
def test_another_class_with_one_more_break_is_the_break_and_the_edits(broken: Capture) -> None:
    diff = pytest_torchgraph.diff(broken, captured(Scaled))
    (cut,) = (finding for finding in diff.findings if finding.graph_break is not None)
    assert (cut.kind, len(cut.places)) == ("added", 2), diff
    assert len(diff.findings) == 3


@pytest.mark.parametrize(
    ("edits", "edit"),
    [
        ({"squashed": True}, "aten.relu -> aten.sigmoid"),
        ({"added": True}, "aten.atan added"),
    ],
)
def test_edit_around_layers_of_another_class_is_a_separate_finding(
    broken: Capture, whole: Capture, edits: dict[str, bool], edit: str
) -> None:
    edited = captured(Whole, **edits)
    diff = pytest_torchgraph.diff(broken, edited)
    assert f", {edit} " in diff.heading(), diff
    assert len(diff.findings) == 3
    assert len(pytest_torchgraph.diff(whole, edited).findings) == 1


class Residual(Net):
    def forward(self, x: Tensor) -> Tensor:
        x = self.layers[0](x).exp()
        y = self.layers[1](x)
        return (y + x if self.added else y).relu()


@pytest.mark.slow("compiles several models")
def test_eager_gradient_sum_is_a_consequence_of_a_new_residual() -> None:
    before, after = (
        pytest_torchgraph.capture(Residual(Scaled, added=added), torch.ones(2, 4))
        for added in (False, True)
    )
    assert len(after.eager) > len(before.eager)
    (finding,) = pytest_torchgraph.diff(before, after).findings
    assert finding.changes[0].node.op == "aten.add.Tensor"
    new = {graph.name for graph in after.eager} - {graph.name for graph in before.eager}
    assert new <= {change.graph for change in finding.consequences}
    assert "    follows in eager_" in str(finding)
