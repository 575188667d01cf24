"""A Conv2d-BatchNorm2d-SiLU block, forward and backward, by two mechanisms.

`via="dispatch"` shows the ops as they ran, in-place updates of the running statistics included;
`via="aot"`, the default, shows what torch.compile would give to inductor, in two halves.
"""

import pytest
import torch
from torch import nn


@pytest.fixture
def block():
    torch.manual_seed(0)
    return nn.Sequential(nn.Conv2d(16, 32, 3), nn.BatchNorm2d(32), nn.SiLU())


@pytest.fixture
def image():
    return torch.randn(2, 16, 8, 8, requires_grad=True)


@pytest.mark.parametrize("via", ["dispatch", "aot"])
def test_graphs(via, block, image, graph_capture, graph_snapshot):
    assert graph_capture(block, image, via=via) == graph_snapshot


def test_ops(block, image, graph_capture):
    capture = graph_capture(block, image)
    capture.assert_graph_count(forward=1, backward=1)
    capture.forward.assert_op_counts({"aten.convolution": 1, "aten.silu": 1})
    capture.backward.assert_op_counts({"aten.convolution_backward": 1, "aten.silu_backward": 1})
    capture.assert_no_ops("aten._to_copy", "aten._local_scalar_dense")


def test_the_running_statistics_are_written_in_place(block, image, graph_capture):
    forward = graph_capture(block, image, via="dispatch").forward
    (norm,) = forward.find("aten.native_batch_norm")
    assert norm.module == "1"
    assert [effect.target.name for effect in norm.effects] == ["1.running_mean", "1.running_var"]
