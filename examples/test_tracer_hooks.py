"""The hooks of torch.fx's Tracer, each tested by what it changes in the graph and by nothing else.

For those who trace with a Tracer of their own. `test_fx.py` has the two that are overridden most,
`is_leaf_module` and `call_module`; here are those that make nodes and values: `create_node`,
`create_proxy`, `create_arg` and `getattr`.
"""

import pytest
import torch
from torch import fx, nn

from pytest_torchgraph import CaptureError, Fx, diff


class Level:
    """A number with a name, which is no constant that a graph could hold."""

    def __init__(self, value):
        self.value = value


class Mixer(nn.Module):
    def __init__(self):
        super().__init__()
        self.left = nn.Linear(4, 4)
        self.right = nn.Linear(4, 4)
        self.register_buffer("temperature", torch.tensor(2.0))

    def forward(self, x):
        left = self.left(torch.relu(x) / self.temperature)
        right = self.right(torch.relu(x) / self.temperature)
        return left + right


@pytest.fixture
def mixer():
    torch.manual_seed(0)
    return Mixer()


@pytest.fixture
def capture(graph_capture):
    """Captures with a tracer of this class; with torch.fx's own by default."""

    def capture(target, tracer=fx.Tracer):
        return graph_capture(target, torch.ones(2, 4), via=Fx(tracer=tracer()))

    return capture


# -- create_node: which nodes there are ------------------------------------------------------------


class Numbering(fx.Tracer):
    """Makes one node of several that compute the same."""

    def create_node(self, kind, target, args, kwargs, name=None, type_expr=None):
        for node in self.graph.nodes:
            same = (node.op, node.target, node.args, node.kwargs) == (kind, target, args, kwargs)
            if same and kind in ("call_function", "get_attr"):
                return node
        return super().create_node(kind, target, args, kwargs, name, type_expr)


def test_what_is_computed_twice_is_one_node(mixer, capture):
    before, after = capture(mixer), capture(mixer, Numbering)
    assert before.op_counts["torch.relu"] == 2
    assert after.op_counts["torch.relu"] == 1
    torch.testing.assert_close(after.output, before.output)
    (finding,) = diff(before, after).findings
    removed = [change.before.op for change in finding.changes if change.kind == "removed"]
    assert sorted(removed) == ["get_attr", "operator.truediv", "torch.relu"], finding


# -- create_proxy: what a value is, once it has been made ------------------------------------------


class Bounded(fx.Tracer):
    """Keeps what modules return within bounds."""

    def create_proxy(self, kind, target, args, kwargs, *more, **named):
        proxy = super().create_proxy(kind, target, args, kwargs, *more, **named)
        return torch.clamp(proxy, -4, 4) if kind == "call_module" else proxy


def test_what_modules_return_is_bounded(mixer, capture):
    before, after = capture(mixer), capture(mixer, Bounded)
    (finding,) = diff(before, after).findings
    assert (finding.kind, finding.after.op) == ("added", "torch.clamp")
    assert [place.module for place in finding.places] == ["left", "right"]


# -- create_arg: what can be an argument -----------------------------------------------------------


class Levels(fx.Tracer):
    """Takes a `Level` for its number."""

    def create_arg(self, a):
        return super().create_arg(a.value if isinstance(a, Level) else a)


def test_an_argument_of_a_class_of_ones_own_is_a_constant(capture):
    def leaky(x):
        return torch.nn.functional.leaky_relu(x, Level(0.25))

    with pytest.raises(CaptureError, match=r"argument of type: .*Level"):
        capture(leaky)
    (node,) = capture(leaky, Levels).forward.find("torch.nn.functional.leaky_relu")
    assert node.kwargs["negative_slope"] == 0.25


# -- getattr: what reading an attribute of a module gives ------------------------------------------


class Frozen(fx.Tracer):
    """Reads single numbers while tracing, so that the graph has them and not the buffer."""

    def getattr(self, attr, attr_val, parameter_proxy_cache):
        if isinstance(attr_val, torch.Tensor) and attr_val.numel() == 1:
            return attr_val.item()
        return super().getattr(attr, attr_val, parameter_proxy_cache)


def read(capture):
    return [node for node in capture.forward.nodes if node.kind == "get_attr"]


def test_a_buffer_of_one_number_is_that_number(mixer, capture):
    before, after = capture(mixer), capture(mixer, Frozen)
    assert [node.target for node in read(before)] == ["temperature", "temperature"]
    assert read(after) == []
    assert [node.args[1] for node in after.forward.find("operator.truediv")] == [2.0, 2.0]


# -- all of them -----------------------------------------------------------------------------------


class Whole(Frozen, Numbering, Bounded, Levels):
    pass


def test_hooks_do_not_get_in_each_others_way(mixer, capture, graph_snapshot):
    assert capture(mixer, Whole) == graph_snapshot
