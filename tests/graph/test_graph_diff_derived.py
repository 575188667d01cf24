"""Copies that follow from an edit are part of it, and one edit has many sizes; two stay two."""

from __future__ import annotations

from collections.abc import Sequence

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


def test_clone_of_the_user_is_an_edit_beside_that_of_its_operand(
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


def test_larger_kernels_are_one_edit_whatever_the_channels(graph_capture: GraphCapture) -> None:
    x = torch.ones(1, 3, 8, 8)
    before, after = (graph_capture(Convolutions(k, k, k), x) for k in (3, 5))
    (finding,) = diff(before, after).findings
    assert len(finding.places) == 3


def test_larger_kernels_of_two_sizes_are_two_edits(graph_capture: GraphCapture) -> None:
    x = torch.ones(1, 3, 8, 8)
    before, after = graph_capture(Convolutions(3, 3, 3), x), graph_capture(Convolutions(5, 7, 3), x)
    assert len(diff(before, after).findings) == 2
