"""torch.fx's symbolic trace: what is in its graph, what decides it, and what cannot be traced.

For those who build on torch.fx, or who want to be told on the day when a model stops being
traceable.
"""

import math

import pytest
import torch
from torch import nn

from pytest_torchgraph import CaptureError, Fx, diff


class Gate(nn.Module):
    """Small, and one node of each of fx's six kinds."""

    def __init__(self):
        super().__init__()
        self.project = nn.Linear(4, 6)
        self.scale = nn.Parameter(torch.ones(6))

    def forward(self, x):
        gate = self.project(x).sigmoid()
        return torch.cat([gate, gate * self.scale], dim=-1)


@pytest.fixture
def gate():
    torch.manual_seed(0)
    return Gate()


@pytest.fixture
def capture(gate, graph_capture):
    return graph_capture(gate, torch.randn(3, 4), via="fx")


# -- the graph -------------------------------------------------------------------------------------


def test_graph(capture, graph_snapshot):
    assert capture == graph_snapshot


def test_each_kind_of_node(capture):
    assert [(node.kind, node.op) for node in capture.forward.nodes] == [
        ("placeholder", "input"),
        ("call_module", "torch.nn.Linear"),
        ("call_method", "Tensor.sigmoid"),
        ("get_attr", "get_attr"),
        ("call_function", "operator.mul"),
        ("call_function", "torch.cat"),
        ("output", "output"),
    ]


def test_the_table_says_what_goes_in_what_runs_and_what_comes_out(capture):
    header, _, *rows = capture.forward.to_table().splitlines()
    assert header.split() == ["opcode", "name", "target", "args", "kwargs"]
    # what goes in
    assert [row.split()[1] for row in rows if row.startswith("placeholder")] == ["x"]
    # what runs: a module by its path, a method, a function
    assert rows[1].split() == ["call_module", "project", "project", "(x)", "{}"]
    assert rows[2].split()[:3] == ["call_method", "sigmoid", "Tensor.sigmoid"]
    assert rows[5].split(maxsplit=3)[2:] == ["torch.cat", "([sigmoid, mul])  {dim: -1}"]
    # what comes out
    assert rows[-1].split() == ["output", "output", "output", "(cat)", "{}"]


def test_a_node_leads_back_to_its_module_and_its_line(gate, capture):
    (linear,) = capture.forward.find(nn.Linear)
    assert gate.get_submodule(linear.target) is gate.project
    assert linear.source.file.endswith("test_fx.py")
    assert linear.source.code == "gate = self.project(x).sigmoid()"


def test_the_graph_runs_as_the_module_does(gate, capture):
    traced = capture.fx(capture.forward)  # a torch.fx.GraphModule
    x = torch.randn(7, 4)
    torch.testing.assert_close(traced(x), gate(x))
    assert "torch.cat([sigmoid, mul], dim = -1)" in traced.code


# -- what the trace does not see -------------------------------------------------------------------


def test_python_runs_while_tracing_and_leaves_no_node(graph_capture):
    def repeat(x, times):
        for _ in range(times):  # unrolled
            x = x * math.sqrt(4)  # a constant
        return x

    graph = graph_capture(repeat, torch.ones(2), 3, via=Fx(concrete_args={"times": 3})).forward
    assert [node.args[1] for node in graph.find("operator.mul")] == [2.0, 2.0, 2.0]


def test_a_branch_on_data_is_refused_with_the_line(graph_capture):
    def rectify(x):
        if x.sum() > 0:
            return x
        return -x

    with pytest.raises(CaptureError, match="cannot be used as inputs to control flow") as caught:
        graph_capture(rectify, torch.ones(2), via="fx")
    assert "if x.sum() > 0:" in str(caught.value)


@pytest.mark.parametrize(("hard", "op"), [(True, "Tensor.sign"), (False, "Tensor.tanh")])
def test_a_branch_on_an_argument_is_decided_by_concrete_args(hard, op, graph_capture):
    def squash(x, hard):
        return x.sign() if hard else x.tanh()

    graph = graph_capture(squash, torch.ones(2), hard, via=Fx(concrete_args={"hard": hard})).forward
    graph.assert_op_counts({op: 1, "Tensor.sign": int(hard), "Tensor.tanh": int(not hard)})


# -- a tracer of one's own -------------------------------------------------------------------------


@pytest.fixture
def model(gate):
    return nn.Sequential(gate, nn.Dropout(0.1), nn.Linear(12, 2)).train()


def test_what_is_a_leaf_is_not_looked_into(model, graph_capture):
    class GateIsLeaf(torch.fx.Tracer):
        def is_leaf_module(self, module, name):
            return isinstance(module, Gate) or super().is_leaf_module(module, name)

    x = torch.randn(3, 4)
    graph_capture(model, x, via="fx").assert_op_counts({nn.Linear: 2, torch.cat: 1, Gate: 0})
    graph_capture(model, x, via=Fx(tracer=GateIsLeaf())).forward.assert_op_counts(
        {Gate: 1, nn.Dropout: 1, nn.Linear: 1}, exact=True
    )


def test_a_tracer_that_leaves_out_dropout_leaves_out_nothing_else(model, graph_capture):
    class WithoutDropout(torch.fx.Tracer):
        def call_module(self, module, forward, args, kwargs):
            if isinstance(module, nn.Dropout):
                return args[0]
            return super().call_module(module, forward, args, kwargs)

    x = torch.randn(3, 4)
    before = graph_capture(model, x, via="fx")
    after = graph_capture(model, x, via=Fx(tracer=WithoutDropout()))
    found = diff(before, after)
    (finding,) = found.findings
    assert (finding.kind, finding.before.op) == ("removed", "torch.nn.Dropout"), found
