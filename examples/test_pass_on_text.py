"""A graph pass, tested on graphs that one reads.

For authors of passes over aten graphs, in the manner of torchtitan's graph trainer: a pass that
tags norms for regional compilation, and a pass that removes `detach`. Today such tests build each
graph by hand, call the pass, and count ops and tags. `check_pass` takes the graph as text, and also
checks values, aliasing, meta and a second run.
"""

import operator

import pytest
import torch

from pytest_torchgraph import check_pass, to_fx

aten = torch.ops.aten


def tag_norms(module):
    """Tag norms and their results, so that a later pass compiles them together."""
    for node in module.graph.find_nodes(op="call_function", target=aten._fused_rms_norm.default):
        results = [user for user in node.users if user.target is operator.getitem]
        for tagged in (node, *results):
            tagged.meta["custom"] = {**tagged.meta.get("custom", {}), "compile": "norm"}
    return module


def remove_detach(module):
    """Make the readers of a `detach` read its operand."""
    for node in module.graph.find_nodes(op="call_function", target=aten.detach.default):
        node.replace_all_uses_with(node.args[0])
        module.graph.erase_node(node)
    return module


# Two outputs of the norm are read. `mul` must not be tagged, and the layer stays known.
NORM = """torchgraph 1

inference @ aot {
  %x = input : f32[2, 8]
  %weight = input : f32[8]
  %norm = aten._fused_rms_norm.default(%x, [8], %weight, 1e-05) : (f32[2, 8], f32[2, 1])
  %y = operator.getitem(%norm, 0) : f32[2, 8]
  %rstd = operator.getitem(%norm, 1) : f32[2, 1]
  %mul = aten.mul.Tensor(%y, %rstd) : f32[2, 8]
  return %mul
}
"""

# Two readers, a chain, and a copy that must stay.
DETACHED = """torchgraph 1

inference @ aot {
  %x = input : f32[4, 4]
  %relu = aten.relu.default(%x) : f32[4, 4]
  %first = aten.detach.default(%relu) : f32[4, 4]
  %second = aten.detach.default(%first) : f32[4, 4]
  %neg = aten.neg.default(%second) : f32[4, 4]
  %half = aten.mul.Tensor(%second, 0.5) : f32[4, 4]
  %copy = aten.clone.default(%x) : f32[4, 4]
  return [%neg, %half, %copy]
}
"""

WITHOUT = """torchgraph 1

inference @ aot {
  %x = input : f32[4, 4]
  %relu = aten.relu.default(%x) : f32[4, 4]
  %neg = aten.neg.default(%relu) : f32[4, 4]
  %half = aten.mul.Tensor(%relu, 0.5) : f32[4, 4]
  %copy = aten.clone.default(%x) : f32[4, 4]
  return [%neg, %half, %copy]
}
"""


def test_norms_and_their_results_are_tagged_and_nothing_else():
    module = to_fx(NORM)
    for node in module.graph.nodes:
        if node.name == "y":
            node.meta["custom"] = {"layer": 3}  # must survive
    check_pass(tag_norms, module, changes={}, annotations={"compile": ["norm", "y", "rstd"]})


def test_detach_is_removed():
    check_pass(remove_detach, DETACHED, changes={"aten.detach": -2}, after=WITHOUT)


def test_a_graph_without_detach_is_left_alone():
    check_pass(remove_detach, WITHOUT, changes={})


def test_what_the_pass_did_is_stored(graph_snapshot):
    assert check_pass(remove_detach, DETACHED) == graph_snapshot


def test_a_pass_that_forgets_a_reader_is_found():
    def forgetful(module):
        (first, second) = module.graph.find_nodes(op="call_function", target=aten.detach.default)
        (neg, half) = second.users
        neg.replace_input_with(second, first)
        half.replace_input_with(second, next(iter(module.graph.nodes)))
        module.graph.erase_node(second)

    with pytest.raises(AssertionError, match="values: output 1 differs"):
        check_pass(forgetful, DETACHED)
