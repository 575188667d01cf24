"""A Conv2d-BatchNorm2d-SiLU block, by three mechanisms, stored and drawn.

`via="dispatch"` shows the ops as they ran, in-place updates of the running statistics included;
`via="aot"`, the default, shows what torch.compile would give to inductor, in two halves;
`via="dynamo"` shows what torch.compile hands to a backend, the forward alone. The last tests are
about what a TorchDispatchMode written by hand easily gets wrong.
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


@pytest.mark.parametrize("via", ["dispatch", "aot", "dynamo"])
def test_graphs(via, block, image, graph_capture, graph_snapshot):
    assert graph_capture(block, image, via=via) == graph_snapshot


@pytest.mark.parametrize("via", ["dispatch", "aot"])
def test_pictures(via, block, image, graph_capture, tmp_path):
    capture = graph_capture(block, image, via=via)
    forward = capture.forward.render(tmp_path / "forward.svg").read_text(encoding="utf-8")
    backward = capture.backward.render(tmp_path / "backward.svg").read_text(encoding="utf-8")
    assert "convolution" in forward
    assert "silu_backward" not in forward
    assert "silu_backward" in backward


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


# -- what is easily got wrong ----------------------------------------------------------------------


def test_a_tensor_given_twice_is_one_input(graph_capture):
    x = torch.randn(3, requires_grad=True)
    forward = graph_capture(torch.mul, x, x, via="dispatch").forward
    assert len(forward.inputs) == 1
    (mul,) = forward.find("aten.mul")
    assert mul.refs == (forward.inputs[0].name,) * 2


def test_an_in_place_op_is_a_write_that_later_reads_wait_for(graph_capture):
    def doubled(x):
        y = x.clone()
        y[0].mul_(2)
        return y.sum()

    forward = graph_capture(doubled, torch.randn(3), via="dispatch").forward
    (clone,), (mul_,), (total,) = map(forward.find, ["aten.clone", "aten.mul_", "aten.sum"])
    assert [effect.target.name for effect in mul_.effects] == [clone.name]
    assert [ref.name for ref in total.after] == [mul_.name]


def test_an_op_whose_result_nothing_uses_counts_in_eager_code(graph_capture):
    def wasteful(x):
        x.exp()
        return x.sin()

    x = torch.randn(3)
    graph_capture(wasteful, x, via="dispatch").assert_op_counts({"aten.exp": 1, "aten.sin": 1})
    graph_capture(wasteful, x, via="aot").assert_op_counts({"aten.exp": 0, "aten.sin": 1})
