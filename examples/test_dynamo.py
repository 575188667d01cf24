"""Dynamo: the graphs that torch.compile hands to a backend, and where it breaks them.

For authors of backends, and for those who want a function to stay in one piece.
"""

import pytest
import torch
from torch import nn

from pytest_torchgraph import Dynamo, from_fx


def attention(query, keys, values):
    return nn.functional.softmax(query.matmul(keys), dim=-1) @ values


@pytest.fixture
def tensors():
    return torch.randn(3, 4), torch.randn(4, 3), torch.randn(3, 4)


def test_the_graph_is_what_a_backend_is_given(tensors, graph_capture):
    given = []

    def backend(module, example_inputs):
        given.append(from_fx(module))
        return module.forward

    torch.compile(attention, backend=backend)(*tensors)
    assert given == [graph_capture(attention, *tensors, via="dynamo").forward]


def test_the_graph_is_in_functions_and_methods(tensors, graph_capture):
    graph = graph_capture(attention, *tensors, via="dynamo").forward
    graph.assert_op_counts(
        {"Tensor.matmul": 1, nn.functional.softmax: 1, "operator.matmul": 1}, exact=True
    )


# -- breaks ----------------------------------------------------------------------------------------


class Scaled(nn.Module):
    def __init__(self):
        super().__init__()
        self.up = nn.Linear(4, 8)
        self.down = nn.Linear(8, 4)

    def forward(self, x):
        hidden = self.up(x).relu()
        torch._dynamo.graph_break()  # a print, say, or a library that Dynamo does not know
        return self.down(hidden.sin())


@pytest.fixture
def model():
    torch.manual_seed(0)
    return Scaled()


def test_a_break_makes_two_graphs_of_one_function(model, graph_capture, graph_snapshot):
    capture = graph_capture(model, torch.randn(2, 4), via="dynamo")
    capture.assert_graph_count(forward=2, backward=0)  # a backend is given no backward
    before, after = capture.graphs
    assert [node.module for node in before.find(nn.functional.linear)] == ["up"]
    assert [node.module for node in after.find(nn.functional.linear)] == ["down"]
    assert capture == graph_snapshot


def test_fullgraph_raises_at_the_break(model, graph_capture):
    with pytest.raises(torch._dynamo.exc.Unsupported, match="graph_break"):
        graph_capture(model, torch.randn(2, 4), via=Dynamo(fullgraph=True))


def test_what_python_does_between_the_graphs_is_in_none_of_them(graph_capture):
    def normalised(x):
        norm = float(x.norm())  # the value is read back, so the graph ends here
        return x.sin() / norm

    x = torch.randn(4)
    assert len(graph_capture(normalised, x, via="dynamo").graphs) == 2
    ran = graph_capture(normalised, x, via="dispatch")
    ran.assert_op_counts({"aten._local_scalar_dense": 1})
