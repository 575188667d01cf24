"""Compiled autograd: the whole backward as one graph, as PyTorch's tutorial shows it.

torch.compile makes a backward graph for each forward graph, and none of hooks. Compiled autograd
records what the autograd engine runs: one graph through the breaks of the forward, hooks included.
"""

import pytest
import torch

from pytest_torchgraph import CompiledAutograd


class Model(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.linear = torch.nn.Linear(10, 10)

    def forward(self, x):
        return self.linear(x)


@pytest.fixture
def model():
    torch.manual_seed(0)
    return Model()


# -- basic usage -----------------------------------------------------------------------------------


def train(model, x):
    loss = model(x).sum()
    loss.backward()


def test_a_training_step(model, graph_capture, graph_snapshot):
    capture = graph_capture(train, model, torch.randn(10), via="compiled_autograd")
    assert capture == graph_snapshot


def test_the_backward_of_aot_is_copied_into_it(model, graph_capture):
    """The ops that the tutorial's log shows with the prefix `aot0_`."""
    capture = graph_capture(model, torch.randn(10), via="compiled_autograd")
    taken_over = capture.at("aot").backward
    assert capture.backward.count("aten.mm") == taken_over.count("aten.mm") == 1
    origins = {node.name for node in capture.fx(capture.backward).graph.nodes}
    assert any(name.startswith("aot") and name.endswith("_mm") for name in origins)
    (mm,) = capture.backward.find("aten.mm")
    assert mm.name == "linear/mm"  # named by its module: ids differ from run to run


def test_each_gradient_is_accumulated_once(model, graph_capture):
    capture = graph_capture(model, torch.randn(10), via="compiled_autograd")
    nodes = capture.backward.find("torch._dynamo.external_utils.call_accumulate_grad")
    assert [node.args[0].name for node in nodes] == ["linear.bias", "linear.weight"]
    capture.assert_matches_eager()


# -- different flags for forward and backward ------------------------------------------------------


def fn(x):
    """Two breaks, so three forward graphs."""
    temp = x + 10
    torch._dynamo.graph_break()
    temp = temp + 10
    torch._dynamo.graph_break()
    return temp.sum()


def test_the_backward_is_a_full_graph_where_the_forward_is_not(graph_capture):
    x = torch.randn(10, 10, requires_grad=True)
    graph_capture(fn, x, via=CompiledAutograd(backward_fullgraph=True))
    with pytest.raises(torch._dynamo.exc.Unsupported):
        graph_capture(fn, x, via=CompiledAutograd(forward_fullgraph=True))


# -- what it solves --------------------------------------------------------------------------------


def test_graph_breaks_of_the_forward_do_not_break_the_backward(graph_capture, graph_snapshot):
    x = torch.randn(10, 10, requires_grad=True)
    graph_capture(fn, x).assert_graph_count(forward=3, backward=3)
    capture = graph_capture(fn, x, via="compiled_autograd")
    capture.assert_graph_count(forward=3, backward=1)
    assert capture == graph_snapshot


def test_backward_hooks_are_captured(graph_capture, graph_snapshot):
    x = torch.randn(10, 10, requires_grad=True)
    x.register_hook(lambda grad: grad + 10)
    capture = graph_capture(lambda x: x.sum(), x, via="compiled_autograd")
    (added,) = capture.backward.find("aten.add")
    assert "grad + 10" in added.source.code
    assert capture.backward == graph_snapshot


def test_dynamo_can_still_break_in_a_hook(graph_capture):
    x = torch.randn(10, requires_grad=True)
    x.register_hook(lambda grad: torch._dynamo.graph_break())
    graph_capture(torch.sin, x, via="compiled_autograd").assert_graph_count(forward=1, backward=1)
    with pytest.raises(torch._dynamo.exc.Unsupported, match="graph_break"):
        graph_capture(torch.sin, x, via=CompiledAutograd(backward_fullgraph=True))


# -- common reasons to recompile -------------------------------------------------------------------


def test_a_new_autograd_node_is_a_new_capture(graph_capture):
    def each_op(x):
        for op in [torch.add, torch.sub, torch.mul, torch.div]:
            loss = op(x, x).sum()
            loss.backward()

    x = torch.randn(10, requires_grad=True)
    capture = graph_capture(each_op, x, via=CompiledAutograd(forward="eager"))
    capture.assert_graph_count(forward=0, backward=4)
    nodes = ["AddBackward0", "SubBackward0", "MulBackward0", "DivBackward0"]
    for backward, name in zip(capture.backwards, nodes, strict=True):
        assert backward.count(f"torch._dynamo.compiled_autograd.ops.{name}") == 1


def test_a_shape_is_dynamic_after_its_first_change(graph_capture, graph_snapshot):
    def each_shape(*xs):
        for x in xs:
            loss = x.sum()
            loss.backward()

    xs = [torch.randn(i, i, requires_grad=True) for i in [10, 100, 10]]
    capture = graph_capture(each_shape, *xs, via=CompiledAutograd(forward="eager"))
    capture.assert_graph_count(backward=2)  # the third is served by the second, with symbolic sizes
    static, dynamic = capture.backwards
    assert static["xs.0"].result.shape == (10, 10)
    assert dynamic == graph_snapshot
