"""Values of one's own that torch's functions take: what `__torch_function__` does to graphs.

For those who write a tracer, or a tensor for which an op means something else. torch hands each
call of one of its functions to the class of the argument. Here are two such classes: one records
the calls, and its graph is compared with that of torch.fx; the other is a tensor whose sums
saturate, and its graph has that, as it was written and in aten ops.
"""

import pytest
import torch
from torch import fx

from pytest_torchgraph import diff, from_fx

# -- a value that records what is done with it -----------------------------------------------------


class Recorded:
    """Stands for a tensor in a function, of which it makes a graph by being called."""

    def __init__(self, node):
        self.node = node

    @classmethod
    def __torch_function__(cls, function, types, args=(), kwargs=None):
        nodes = []

        def node_of(value):
            if not isinstance(value, Recorded):
                return value
            nodes.append(value.node)
            return value.node

        args, kwargs = (fx.node.map_aggregate(each, node_of) for each in (args, kwargs or {}))
        return cls(nodes[0].graph.call_function(function, args, kwargs))

    # torch knows only of its own functions; what the operators mean is said here.
    def __add__(self, other):
        return torch.add(self, other)

    def __sub__(self, other):
        return torch.sub(self, other)


def record(function, *names):
    graph = fx.Graph()
    result = function(*(Recorded(graph.placeholder(name)) for name in names))
    graph.output(result.node)
    return graph


def gated(x, y):
    gate = torch.sigmoid(torch.cat([x, y], dim=-1))
    return torch.sum(gate, dim=-1, keepdim=True)


def test_a_recorded_graph_can_be_stored(graph_snapshot):
    assert from_fx(record(gated, "x", "y")) == graph_snapshot


def test_it_is_the_graph_that_torch_fx_traces():
    assert from_fx(record(gated, "x", "y")) == from_fx(fx.symbolic_trace(gated))


def test_operators_are_torch_functions_here_and_python_operators_there():
    def merge(x, y):
        return x + y - 1

    here, there = from_fx(record(merge, "x", "y")), from_fx(fx.symbolic_trace(merge))
    here.assert_op_counts({"torch.add": 1, "torch.sub": 1}, exact=True)
    there.assert_op_counts({"operator.add": 1, "operator.sub": 1}, exact=True)


def test_a_recorder_that_forgets_keywords_does_not_go_unnoticed():
    class Forgetful(Recorded):
        @classmethod
        def __torch_function__(cls, function, types, args=(), kwargs=None):
            return super().__torch_function__(function, types, args)

    def total(x):
        return torch.sum(x, dim=-1)

    graph = fx.Graph()
    graph.output(total(Forgetful(graph.placeholder("x"))).node)
    (finding,) = diff(fx.symbolic_trace(total), graph).findings
    assert (finding.before.kwargs, finding.after.kwargs) == ({"dim": -1}, {})


# -- a tensor for which a sum is something else ----------------------------------------------------


class Saturating(torch.Tensor):
    """A tensor whose sums stay between -1 and 1; all else is as ever."""

    @classmethod
    def __torch_function__(cls, function, types, args=(), kwargs=None):
        result = super().__torch_function__(function, types, args, kwargs or {})
        if function in (torch.add, torch.Tensor.add, torch.Tensor.__add__):
            return result.clamp(-1, 1)
        return result


@pytest.fixture
def saturating():
    return torch.tensor([0.7, -0.7]).as_subclass(Saturating)


IN_ATEN_AND_AS_WRITTEN = pytest.mark.parametrize(
    ("via", "ops"),
    [
        ("dispatch", {"sum": "aten.add", "difference": "aten.sub", "bounds": "aten.clamp"}),
        ("dynamo", {"sum": "torch.add", "difference": "torch.sub", "bounds": "Tensor.clamp"}),
    ],
    ids=["dispatch", "dynamo"],
)


@IN_ATEN_AND_AS_WRITTEN
def test_a_sum_saturates(saturating, graph_capture, via, ops):
    capture = graph_capture(torch.add, saturating, saturating, via=via)
    assert capture.output.tolist() == [1.0, -1.0]
    capture.assert_op_counts({ops["sum"]: 1, ops["bounds"]: 1}, exact=True)


@IN_ATEN_AND_AS_WRITTEN
def test_a_difference_does_not(saturating, graph_capture, via, ops):
    capture = graph_capture(torch.sub, saturating, -1, via=via)
    assert capture.output.tolist() == pytest.approx([1.7, 0.3])
    capture.assert_op_counts({ops["difference"]: 1}, exact=True)


def test_a_plain_tensor_knows_nothing_of_it(graph_capture):
    capture = graph_capture(torch.add, torch.ones(2), torch.ones(2), via="dispatch")
    capture.assert_no_ops("aten.clamp")
