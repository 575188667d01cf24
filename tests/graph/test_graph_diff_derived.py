"""Copies and sizes that follow from an edit are part of the edit. Two edits stay two."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
import torch
from torch import Tensor, nn

from pytest_torchgraph import GraphCapture, diff


def flat(x: Tensor) -> Tensor:
    return x.t().reshape(-1)


def test_copy_of_a_reshape_is_part_of_the_edit_of_its_operand(graph_capture: GraphCapture) -> None:
    """The other product is a view with other strides: transposed, it needs no copy."""

    def before(x: Tensor, w: Tensor) -> Tensor:
        return flat(x @ w)

    def after(x: Tensor, w: Tensor) -> Tensor:
        return flat((w.t() @ x.t()).t())

    example = torch.ones(2, 3), torch.ones(3, 4)
    old, new = graph_capture(before, *example), graph_capture(after, *example)
    (finding,) = diff(old, new).findings
    assert "aten.clone.default" in {change.node.op for change in finding.changes}


def test_clone_in_user_code_is_separate_from_the_edit_of_its_operand(
    graph_capture: GraphCapture,
) -> None:
    def without_clone(x: Tensor) -> Tensor:
        return x.cos().t().sigmoid().sum(0)

    def with_clone(x: Tensor) -> Tensor:
        return x.sin().t().clone().sigmoid().sum(0)

    x = torch.ones(2, 3)
    old, new = graph_capture(with_clone, x), graph_capture(without_clone, x)
    assert len(diff(old, new).findings) == 2


class Convolutions(nn.Module):
    def __init__(self, *kernels: int, strides: Sequence[int] = (1, 1, 1)) -> None:
        super().__init__()
        sizes = (3, 8, 8, 4)
        self.convs = nn.ModuleList(
            nn.Conv2d(sizes[k], sizes[k + 1], kernel, stride=strides[k], padding=kernel // 2)
            for k, kernel in enumerate(kernels)
        )

    def forward(self, x: Tensor) -> Tensor:
        for conv in self.convs:
            x = conv(x).relu()
        return x


def test_larger_kernels_of_different_channels_are_one_edit(graph_capture: GraphCapture) -> None:
    x = torch.ones(1, 3, 8, 8)
    before, after = (graph_capture(Convolutions(k, k, k), x) for k in (3, 5))
    (finding,) = diff(before, after).findings
    assert len(finding.places) == 3


def test_larger_kernels_of_two_sizes_are_two_edits(graph_capture: GraphCapture) -> None:
    x = torch.ones(1, 3, 8, 8)
    before, after = graph_capture(Convolutions(3, 3, 3), x), graph_capture(Convolutions(5, 7, 3), x)
    assert len(diff(before, after).findings) == 2


class Mlp(nn.Module):
    def __init__(self, *widths: int) -> None:
        super().__init__()
        self.up, self.down = nn.Linear(widths[0], widths[1]), nn.Linear(widths[1], widths[2])

    def forward(self, x: Tensor) -> Tensor:
        y: Tensor = self.down(self.up(x).relu())
        return y


def test_wider_hidden_layer_is_one_edit_of_both_layers(graph_capture: GraphCapture) -> None:
    x = torch.ones(2, 4)
    found = diff(graph_capture(Mlp(4, 8, 4), x), graph_capture(Mlp(4, 16, 4), x))
    (finding,) = found.findings
    assert {change.node.module for change in finding.changes} >= {"up", "down"}


def test_another_activation_of_a_wider_layer_is_an_edit_of_its_own(
    graph_capture: GraphCapture,
) -> None:
    def mlp(width: int, activation: type[nn.Module]) -> nn.Sequential:
        return nn.Sequential(nn.Linear(4, width), activation(), nn.Linear(width, 4))

    sides = (graph_capture(mlp(*side), torch.ones(2, 4)) for side in ((8, nn.ReLU), (16, nn.Tanh)))
    found = diff(*sides)
    assert len(found.findings) == 2
    assert "aten.relu -> aten.tanh" in found.heading()


def test_wider_input_and_wider_output_of_connected_layers_are_two_edits(
    graph_capture: GraphCapture,
) -> None:
    """The two layers share the hidden size, which did not change."""
    before = graph_capture(Mlp(4, 8, 4), torch.ones(2, 4))
    after = graph_capture(Mlp(6, 8, 12), torch.ones(2, 6))
    first, second = diff(before, after).findings
    assert {change.node.name for change in first.changes} >= {"x", "up.weight"}
    assert {change.node.module for change in second.changes} >= {"down"}


class Mlps(nn.Module):
    def __init__(self, *hidden: int) -> None:
        super().__init__()
        self.first, self.second = Mlp(4, hidden[0], 4), Mlp(4, hidden[1], 4)

    def forward(self, x: Tensor) -> Tensor:
        y: Tensor = self.second(self.first(x).sin())
        return y


def test_wider_hidden_layers_that_share_no_size_are_two_edits(graph_capture: GraphCapture) -> None:
    x = torch.ones(2, 4)
    found = diff(graph_capture(Mlps(8, 8), x), graph_capture(Mlps(16, 24), x))
    assert [finding.places[0].module for finding in found.findings] == ["first", "second"]


class Branches(nn.Module):
    def __init__(self, width: int) -> None:
        super().__init__()
        self.up, self.down, self.other = nn.Linear(4, width), nn.Linear(width, 4), nn.Linear(5, 4)

    def forward(self, x: Tensor, other: Tensor) -> Tensor:
        y: Tensor = self.down(self.up(x).relu()) + self.other(other).sin()
        return y


def test_wider_hidden_layer_and_another_input_of_a_third_layer_are_two_edits(
    graph_capture: GraphCapture,
) -> None:
    before, after = Branches(8), Branches(24)
    after.other = nn.Linear(7, 4)
    found = diff(
        graph_capture(before, torch.ones(2, 4), torch.ones(2, 5)),
        graph_capture(after, torch.ones(2, 4), torch.ones(2, 7)),
    )
    parameters = [
        sorted(change.node.name for change in finding.changes if change.node.op == "parameter")
        for finding in found.findings
    ]
    assert sorted(parameters) == [["down.weight", "up.bias", "up.weight"], ["other.weight"]]


class Attention(nn.Module):
    def __init__(self, width: int) -> None:
        super().__init__()
        self.query, self.key = nn.Linear(4, width), nn.Linear(4, width)
        self.value = nn.Linear(4, 4)

    def forward(self, x: Tensor) -> Tensor:
        qkv = self.query(x).sin(), self.key(x).cos(), self.value(x)
        return nn.functional.scaled_dot_product_attention(*qkv)


def test_width_of_attention_is_one_edit(graph_capture: GraphCapture) -> None:
    x = torch.ones(1, 2, 3, 4)
    found = diff(graph_capture(Attention(8), x), graph_capture(Attention(16), x))
    assert len(found.findings) == 1


class Scores(nn.Module):
    def __init__(self, width: int, scale: float = 1.0) -> None:
        super().__init__()
        self.query, self.key = nn.Linear(4, width), nn.Linear(4, width)
        self.scale = scale

    def forward(self, x: Tensor) -> Tensor:
        y: Tensor = self.query(x).sin() @ self.key(x).cos().T
        return y.unsqueeze(0) * self.scale


def test_width_that_a_query_and_a_key_share_is_one_edit(graph_capture: GraphCapture) -> None:
    x = torch.ones(3, 4)
    found = diff(graph_capture(Scores(8), x), graph_capture(Scores(16), x))
    assert len(found.findings) == 1


@pytest.mark.parametrize("power", [0.5, -0.5, -1])
def test_scale_computed_from_a_width_is_part_of_the_edit(
    graph_capture: GraphCapture, power: float
) -> None:
    x = torch.ones(3, 4)
    found = diff(graph_capture(Scores(8, 8**power), x), graph_capture(Scores(16, 16**power), x))
    (finding,) = found.findings
    assert "aten.mul.Tensor" in {change.node.op for change in finding.changes}


def test_width_and_an_unrelated_scale_are_two_edits(graph_capture: GraphCapture) -> None:
    x = torch.ones(3, 4)
    found = diff(graph_capture(Scores(8, 0.5), x), graph_capture(Scores(16, 0.25), x))
    assert len(found.findings) == 2
