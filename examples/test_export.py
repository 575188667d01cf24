"""torch.export: one program with its parameters and buffers by name, for any batch size.

For those who ship exported programs, and want to see in review when the program changes.
"""

import pytest
import torch
from torch import nn
from torch.export import Dim

from pytest_torchgraph import CaptureError, Export, diff, from_fx


class Centered(nn.Module):
    """A projection minus its running mean: it has parameters, and buffers read and written."""

    def __init__(self):
        super().__init__()
        self.project = nn.Linear(4, 3)
        self.register_buffer("scale", torch.full((3,), 0.5))
        self.register_buffer("average", torch.zeros(3))
        self.register_buffer("steps", torch.tensor(0))

    def forward(self, x):
        y = self.project(x)
        if self.training:
            self.steps.add_(1)
            self.average.lerp_(y.mean(0), 0.1)
        return (y - self.average) * self.scale


ANY_BATCH = Export(dynamic_shapes={"x": {0: Dim("batch", min=2, max=64)}})


@pytest.fixture
def model():
    torch.manual_seed(0)
    return Centered()


@pytest.fixture
def x():
    return torch.randn(8, 4)


def test_program(model, x, graph_capture, graph_snapshot):
    assert graph_capture(model, x, via=ANY_BATCH) == graph_snapshot


def test_signature(model, x, graph_capture):
    roles = {node.name: node.op for node in graph_capture(model, x, via="export").forward.inputs}
    assert roles == {
        "project.weight": "parameter",
        "project.bias": "parameter",
        "scale": "buffer",
        "average": "buffer",
        "steps": "buffer",
        "x": "input",
    }


def mutated(graph):
    effects = [effect for node in graph.nodes for effect in node.effects]
    return {effect.target.name for effect in effects if effect.kind == "mutates"}


def test_buffers_are_written_in_training_alone(model, x, graph_capture):
    assert mutated(graph_capture(model.train(), x, via="export").forward) == {"average", "steps"}
    assert mutated(graph_capture(model.eval(), x, via="export").forward) == set()


def test_the_batch_is_the_only_size_that_is_dynamic(model, x, graph_capture):
    fixed = graph_capture(model, x, via="export").forward
    dynamic = graph_capture(model, x, via=ANY_BATCH).forward
    assert fixed["x"].result.shape == (8, 4)
    batch, features = dynamic["x"].result.shape
    assert (str(batch.expr), features) == ("s0", 4)
    assert dynamic.outputs[0].result.shape == (batch, 3)
    assert dynamic.op_counts == fixed.op_counts
    assert dynamic != fixed


def test_a_size_that_the_code_fixes_cannot_be_dynamic(x, graph_capture):
    class Eight(nn.Module):
        def forward(self, x):
            return x + torch.ones(8, 1)

    graph_capture(Eight(), x, via="export")
    with pytest.raises(CaptureError, match="batch"):
        graph_capture(Eight(), x, via=ANY_BATCH)


# -- control flow ----------------------------------------------------------------------------------


class Rectify(nn.Module):
    def forward(self, x):
        return x.relu() if x.sum() > 0 else x.tanh()


class RectifyByCond(nn.Module):
    def forward(self, x):
        return torch.cond(x.sum() > 0, torch.relu, torch.tanh, (x,))


def test_a_python_branch_is_refused_and_cond_keeps_both(x, graph_capture):
    with pytest.raises(CaptureError, match=r"return x\.relu\(\) if x\.sum\(\) > 0") as caught:
        graph_capture(Rectify(), x, via="export")
    assert "torch.cond" in str(caught.value)
    graph = graph_capture(RectifyByCond(), x, via="export").forward
    assert [set(body.op_counts) for body in graph.subgraphs] == [
        {"aten.relu.default"},
        {"aten.tanh.default"},
    ]
    graph.assert_op_counts({"higher_order.cond": 1, "aten.relu": 1, "aten.tanh": 1})


# -- a program that exists already -----------------------------------------------------------------


@pytest.mark.filterwarnings("ignore:.*LeafSpec:FutureWarning")  # torch 2.13 copies its own
def test_what_decompositions_change(model, x, graph_capture):
    program = torch.export.export(model.eval(), (x,))
    decomposed = program.run_decompositions()
    assert from_fx(program) == graph_capture(model, x, via="export").forward
    found = diff(program, decomposed)
    (finding,) = found.findings
    assert (finding.module, finding.before.op) == ("project", "aten.linear.default"), found
    from_fx(decomposed).assert_op_counts({"aten.addmm": 1, "aten.linear": 0})
