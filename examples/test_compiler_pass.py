"""A pass over captured aten graphs: run them by hand, rewrite them, say what the rewrite did.

For authors of compiler passes. The pass replaces divisions by a power of two with multiplications,
which is exact, in the forward and in the backward that AOTAutograd made.
"""

import math

import pytest
import torch
from torch import fx, nn

from pytest_torchgraph import diff, from_fx

aten = torch.ops.aten


def residual(bias, weight, x):
    return x / 3 + nn.functional.gelu(nn.functional.linear(x, weight, bias)) / 2


@pytest.fixture
def inputs():
    torch.manual_seed(0)
    return [torch.randn(*shape, requires_grad=True) for shape in [(4,), (4, 4), (3, 4)]]


@pytest.fixture
def capture(inputs, graph_capture):
    return graph_capture(residual, *inputs)


# -- run it ----------------------------------------------------------------------------------------


class Recorder(fx.Interpreter):
    """Keeps what each node gives."""

    def __init__(self, module):
        super().__init__(module, garbage_collect_values=False)

    def run(self, *args):
        with torch.no_grad():  # AOTAutograd's graphs are the derivative: nothing is recorded
            super().run(*args)
        return {node.name: value for node, value in self.env.items()}


def test_node_by_node_the_forward_gives_the_output(capture, inputs):
    forward = capture.fx(capture.forward)  # takes what the graph takes, in its order
    values = Recorder(forward).run(*inputs)
    output, *_ = forward.graph.output_node().args[0]
    torch.testing.assert_close(values[output.name], capture.output)
    for node in from_fx(forward).find("aten.div"):
        assert node.result.shape == (3, 4)


def test_the_backward_takes_what_the_forward_saved(capture, inputs):
    forward, backward = capture.forward, capture.backward
    with torch.no_grad():
        output, *kept = capture.fx(forward)(*inputs)  # what it returns, then what it saves
    saved = {ref.name: value for ref, value in zip(forward.saved, kept, strict=True)}
    tangent = torch.ones_like(output)
    values = [saved.get(node.name, tangent) for node in backward.inputs]
    gradients = fx.Interpreter(capture.fx(backward)).run(*values)
    expected = torch.autograd.grad(residual(*inputs), inputs, tangent)
    torch.testing.assert_close(tuple(gradients), expected)


# -- rewrite it ------------------------------------------------------------------------------------


class MultiplyInstead(fx.Transformer):
    """`x / 4` becomes `x * 0.25`; `x / 3` has no exact reciprocal and stays."""

    def call_function(self, target, args, kwargs):
        if target is aten.div.Tensor and isinstance(args[1], int | float):
            mantissa, _ = math.frexp(args[1])
            if mantissa == 0.5:
                return super().call_function(aten.mul.Tensor, (args[0], 1 / args[1]), kwargs)
        return super().call_function(target, args, kwargs)


@pytest.fixture(params=["forward", "backward"])
def graph(request, capture):
    return getattr(capture, request.param)


def test_one_division_is_replaced_and_nothing_else(capture, graph):
    after = MultiplyInstead(capture.fx(graph)).transform()
    found = diff(graph, after)
    (finding,) = found.findings
    assert (finding.kind, finding.before.op, finding.after.op) == (
        "changed",
        "aten.div.Tensor",
        "aten.mul.Tensor",
    ), found
    assert finding.before.args[1] == 2
    assert finding.after.args[1] == 0.5


def test_op_counts_before_and_after(capture, graph):
    after = from_fx(MultiplyInstead(capture.fx(graph)).transform())
    expected = graph.op_counts.copy()
    expected.subtract({"aten.div.Tensor": 1})
    expected.update({"aten.mul.Tensor": 1})
    assert after.op_counts == expected
    after.assert_op_counts({"aten.div": 1})


def test_the_pass_is_exact(capture, inputs):
    before = capture.fx(capture.forward)
    after = MultiplyInstead(before).transform()
    torch.testing.assert_close(after(*inputs), before(*inputs), rtol=0, atol=0)


def test_a_second_run_of_the_pass_changes_nothing(capture, graph):
    once = MultiplyInstead(capture.fx(graph)).transform()
    twice = MultiplyInstead(once).transform()
    assert from_fx(twice) == from_fx(once)
