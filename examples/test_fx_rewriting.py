"""Rewriting torch.fx graphs, and tests that say exactly what a rewrite did.

For authors of graph passes. Each test runs a pass in one of torch.fx's styles (a walk over the
nodes, a pattern, an Interpreter, a Transformer) and states the edit as `diff` finds it: one finding
for each place that the pass was meant to touch, and none beside them.
"""

import copy

import pytest
import torch
from torch import fx, nn
from torch.fx.passes.shape_prop import ShapeProp
from torch.nn.utils.fusion import fuse_conv_bn_eval

from pytest_torchgraph import diff, from_fx


class Swish(nn.Module):
    def __init__(self):
        super().__init__()
        self.up = nn.Linear(4, 8)
        self.down = nn.Linear(8, 2)

    def forward(self, x):
        hidden = self.up(x)
        return self.down(hidden * torch.sigmoid(hidden))


@pytest.fixture
def swish():
    torch.manual_seed(0)
    return Swish()


@pytest.fixture
def x():
    return torch.randn(3, 4)


# -- a walk over the nodes -------------------------------------------------------------------------


def replace_function(module, old, new):
    """Call `new` wherever the graph calls `old`."""
    for node in module.graph.find_nodes(op="call_function", target=old):
        with module.graph.inserting_after(node):
            replacement = module.graph.call_function(new, node.args, node.kwargs)
        node.replace_all_uses_with(replacement)
        module.graph.erase_node(node)
    module.graph.lint()
    module.recompile()


def test_a_function_is_replaced_wherever_it_is_called():
    def merge(a, b, c):
        return torch.add(torch.add(a, b) * 2, c)

    module = fx.symbolic_trace(merge)
    before = from_fx(module)  # a value: what happens to the module later does not change it
    replace_function(module, torch.add, torch.bitwise_and)

    found = diff(before, module)
    replaced = [(finding.before.op, finding.after.op) for finding in found.findings]
    assert replaced == [("torch.add", "torch.bitwise_and")] * 2, found
    from_fx(module).assert_no_ops(torch.add)
    a, b, c = (torch.tensor([number]) for number in (0b0110, 0b0011, 0b1100))
    assert module(a, b, c) == ((a & b) * 2) & c


def test_a_pass_with_nothing_to_do_does_nothing(swish):
    module = fx.symbolic_trace(swish)
    before = from_fx(module)
    replace_function(module, torch.add, torch.bitwise_and)
    assert not diff(before, module)
    assert from_fx(module) == before


def test_new_operands_in_a_nested_argument():
    def join(x, y):
        return torch.cat([x, y], dim=0)

    module = fx.symbolic_trace(join)
    before = from_fx(module)
    (cat,) = module.graph.find_nodes(op="call_function", target=torch.cat)
    x, y = module.graph.find_nodes(op="placeholder")
    cat.args = fx.node.map_aggregate(cat.args, lambda arg: {x: y, y: x}.get(arg, arg))
    module.recompile()

    (finding,) = diff(before, module).findings
    assert finding.kind == "rewired"  # the same op on other operands
    assert [ref.name for ref in finding.after.args[0]] == ["y", "x"]


def test_dead_code_is_eliminated():
    def wasteful(x):
        x.exp().sum()
        return x.sin()

    module = fx.symbolic_trace(wasteful)
    before = from_fx(module)
    module.graph.eliminate_dead_code()

    found = diff(before, module)
    assert {node.op for node in found.removed} == {"Tensor.exp", "Tensor.sum"}, found
    assert not found.added + found.changed + found.rewired


# -- patterns --------------------------------------------------------------------------------------


def test_a_pattern_is_replaced_as_a_whole(swish, x):
    module = fx.symbolic_trace(swish)
    before = from_fx(module)
    fx.replace_pattern(module, lambda x: x * torch.sigmoid(x), lambda x: nn.functional.silu(x))

    found = diff(before, module)
    (finding,) = found.findings  # of two nodes: one is another op now, one is gone
    assert finding.after.op == "torch.nn.functional.silu"
    assert [(change.kind, change.node.op) for change in finding.changes[1:]] == [
        ("removed", "torch.sigmoid")
    ]
    torch.testing.assert_close(module(x), swish(x))


def conv_norm_relu(channels_in, channels):
    return nn.Conv2d(channels_in, channels, 3), nn.BatchNorm2d(channels), nn.ReLU()


def fold_norms(model):
    """A graph in which each BatchNorm2d is folded into the convolution before it."""
    module = fx.symbolic_trace(copy.deepcopy(model))
    for node in module.graph.find_nodes(op="call_module"):
        norm = module.get_submodule(node.target)
        if isinstance(norm, nn.BatchNorm2d):
            conv = node.args[0]
            fused = fuse_conv_bn_eval(module.get_submodule(conv.target), norm)
            module.set_submodule(conv.target, fused)
            node.replace_all_uses_with(conv)
            module.graph.erase_node(node)
    module.delete_all_unused_submodules()
    module.recompile()
    return module


def test_norms_are_folded_into_convolutions(graph_capture):
    torch.manual_seed(0)
    model = nn.Sequential(*conv_norm_relu(3, 4), *conv_norm_relu(4, 2)).eval()
    image = torch.randn(1, 3, 8, 8)
    before, after = graph_capture(model, image), graph_capture(fold_norms(model), image)

    torch.testing.assert_close(after.output, before.output)
    found = diff(before, after)
    (finding,) = found.findings  # one edit, in two places
    assert finding.kind == "removed"
    assert [place.module for place in finding.places] == ["1", "4"], found
    for place in finding.places:  # each takes its backward with it
        gone = [change.node.op for change in place.consequences]
        assert "aten.native_batch_norm_backward.default" in gone


# -- Interpreter: run node by node -----------------------------------------------------------------


class Shapes(fx.Interpreter):
    """Runs a graph and notes the shape and dtype that each node gives."""

    def __init__(self, module):
        super().__init__(module)
        self.seen = {}

    def run_node(self, node):
        result = super().run_node(node)
        if isinstance(result, torch.Tensor):
            self.seen[node.name] = (tuple(result.shape), result.dtype)
        return result


def test_shapes_noted_on_the_way_are_those_of_the_graph(swish, x, graph_capture):
    capture = graph_capture(swish, x, via="fx")
    shapes = Shapes(capture.fx(capture.forward))
    shapes.run(x)
    for node in capture.forward.nodes[:-1]:
        shape, dtype = shapes.seen[node.name]
        assert (node.result.shape, f"torch.{node.result.dtype}") == (shape, str(dtype))
    assert shapes.seen["sigmoid"] == ((3, 8), torch.float32)


def test_after_shape_propagation_an_own_trace_equals_a_capture(swish, x, graph_capture):
    module = fx.symbolic_trace(swish)
    captured = graph_capture(swish, x, via="fx").forward
    assert from_fx(module) != captured  # shapes are compared, and nobody has put them there
    ShapeProp(module).propagate(x)
    assert from_fx(module) == captured


class NegInterpreter(fx.Interpreter):
    def call_function(self, target, args, kwargs):
        if target is torch.sigmoid:
            target = torch.neg
        return super().call_function(target, args, kwargs)


def test_an_interpreter_changes_what_is_run_and_not_the_graph(swish, x):
    module = fx.symbolic_trace(swish)
    before = from_fx(module)
    result = NegInterpreter(module).run(x)
    hidden = swish.up(x)
    torch.testing.assert_close(result, swish.down(hidden * -hidden))
    assert from_fx(module) == before


# -- Transformer: a new graph ----------------------------------------------------------------------


class NegTransformer(fx.Transformer):
    def call_function(self, target, args, kwargs):
        if target is torch.sigmoid:
            target = torch.neg
        return super().call_function(target, args, kwargs)


def test_a_transformer_makes_the_same_change_in_a_new_graph(swish, x):
    module = fx.symbolic_trace(swish)
    rewritten = NegTransformer(module).transform()
    found = diff(module, rewritten)
    (finding,) = found.findings
    assert (finding.before.op, finding.after.op) == ("torch.sigmoid", "torch.neg"), found
    torch.testing.assert_close(rewritten(x), NegInterpreter(module).run(x))
