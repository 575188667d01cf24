"""`to_fx`: the module of a graph or of a text runs, and converts back to the same graph."""

from __future__ import annotations

import contextlib
from random import Random
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from pytest_torchgraph import (
    Aot,
    CaptureError,
    Dynamo,
    Graph,
    GraphFormatError,
    capture,
    from_fx,
    to_fx,
)

DYNAMIC = """torchgraph 1

inference @ aot {
  %x = input : f32[4, s0]
  %size = input : `s0`
  %h/relu = aten.relu.default(%x) : f32[4, s0]
  %two = get_attr[""](2.0) : f32[]
  %mul = aten.mul.Tensor(%h/relu, %two) : f32[4, s0]
  %view = aten.view.default(%mul, [-1]) : f32[`4*s0`]
  return %view
}
"""


def graph_of(*lines: str, level: str = "aot") -> str:
    body = "".join(f"  {line}\n" for line in lines)
    return f"torchgraph 1\n\ninference @ {level} {{\n{body}}}\n"


def attention(x: Tensor) -> Tensor:
    """Has a body of a higher-order op, a constant, ops with several results, a slice and a cast."""
    x = nn.functional.layer_norm(x, (4,)) * torch.tensor([1.0, 2.0, 3.0, 4.0])
    x = torch.cond(x.sum() > 0, torch.sin, torch.cos, (x,))
    return x[:, 1:].to(torch.float64).max(1).values.to(torch.float32) + torch.arange(3)


def step(x: Tensor, weight: Tensor) -> Tensor:
    return (torch.relu(x @ weight) * weight.sum()).exp()


@pytest.mark.parametrize(
    ("function", "via"),
    [(attention, via) for via in ("dynamo", "export")]
    + [(step, via) for via in ("fx", "aot", "dispatch")],
)
def test_text_becomes_a_module_with_the_same_values_and_graph(function: Any, via: str) -> None:
    x = torch.linspace(-1, 1, 12).reshape(3, 4)
    args = (x,) if function is attention else (x.requires_grad_(), torch.ones(4, 4).mul_(0.1))
    captured = capture(function, *args, via=via)
    for graph in captured.graphs:
        module = to_fx(captured.to_text(), name=graph.name)
        again = from_fx(module, name=graph.name, kind=graph.kind)
        assert again == graph
        assert again.level == graph.level
        assert [node.name for node in again.inputs] == [node.name for node in graph.inputs]
        assert [ref.name for ref in again.saved] == [ref.name for ref in graph.saved]
        if via in ("dispatch", "export"):  # constants are inputs, and need not be known
            continue
        values = [torch.randn([int(s) for s in n.result.shape]) for n in graph.inputs]  # type: ignore[union-attr]
        with torch.no_grad():
            expected = captured.fx(graph)(*values)
            actual = module(*values)
        torch.testing.assert_close(actual, expected, rtol=0, atol=0)


@pytest.mark.parametrize("via", [Aot(dynamic=True), Dynamo(dynamic=True)], ids=["aot", "dynamo"])
def test_sizes_stay_symbolic(via: Any) -> None:
    def function(x: Tensor, y: Tensor) -> Tensor:
        return (y.sin().sum(0) * x.sum(1).mean()).reshape(-1) * x.shape[0]

    captured = capture(function, torch.randn(5, 7), torch.randn(6, 9), via=via)
    module = to_fx(captured.to_text("full"))
    assert from_fx(module) == captured.forward
    values = [node.meta["val"] for node in module.graph.nodes if node.op == "placeholder"]
    assert any(isinstance(size, torch.SymInt) for size in values[0].shape)


def test_sizes_are_set() -> None:
    module = to_fx(DYNAMIC, sizes={"s0": 3})
    shapes = [n.meta["val"].shape for n in module.graph.nodes if n.op == "call_function"]
    assert shapes == [(4, 3), (4, 3), (12,)]
    (result,) = module(torch.ones(4, 3), 3)
    assert torch.equal(result, torch.full((12,), 2.0))
    with pytest.raises(ValueError, match="unknown symbol 's7'"):
        to_fx(DYNAMIC, sizes={"s7": 3})


def test_expression_of_sizes_is_computed_by_nodes() -> None:
    text = graph_of(
        "%x = input : f32[s0]",
        "%size = input : `s0`",
        "%y = aten.expand.default(%x, [`2*s0 - 1`, -1])",
        "return %y",
    )
    assert to_fx(text)(torch.ones(3), 3)[0].shape == (5, 3)
    without = text.replace("  %size = input : `s0`\n", "")
    with pytest.raises(CaptureError, match=r"%y of graph .* unknown symbol 's0' .*: pass sizes="):
        to_fx(without)
    assert to_fx(without, sizes={"s0": 3})(torch.ones(3))[0].shape == (5, 3)


def test_values_of_meta_are_fake_and_have_strides_and_devices() -> None:
    graph = capture(lambda x: x.t() + 1, torch.ones(2, 3)).forward
    (node,) = to_fx(graph.to_text("full")).graph.find_nodes(
        op="call_function", target=torch.ops.aten.add.Tensor
    )
    value = node.meta["val"]
    assert type(value).__name__ == "FakeTensor"
    assert (value.dtype, value.shape, value.stride()) == (torch.float32, (3, 2), (1, 3))


def test_names_of_the_text_are_the_names_of_the_nodes() -> None:
    module = to_fx(DYNAMIC)
    names = ["x", "size", "h_relu", "two", "mul", "view", "output"]
    assert [node.name for node in module.graph.nodes] == names
    assert from_fx(module)["h/relu"].module == "h"


def test_saved_values_follow_the_outputs() -> None:
    captured = capture(torch.sin, torch.ones(2, requires_grad=True))
    module = to_fx(captured.to_text(), name="forward")
    result, saved = module(torch.full((2,), 0.5))
    assert torch.equal(result, saved.sin())


def test_constant_without_a_value_is_passed() -> None:
    large = torch.arange(100.0)
    captured = capture(lambda x: x + large.clone(), torch.ones(100), via="fx")
    text = captured.to_text()
    (constant,) = (node.name for node in captured.forward.nodes if node.kind == "get_attr")
    with pytest.raises(CaptureError, match=rf"constants={{'{constant}': tensor}}"):
        to_fx(text)
    module = to_fx(text, constants={constant: large})
    assert torch.equal(module(torch.zeros(100)), large)
    assert from_fx(module) == captured.forward
    with pytest.raises(ValueError, match=f"'other' is no constant of .* constants: '{constant}'"):
        to_fx(text, constants={"other": large})


def test_text_with_several_graphs_needs_a_name() -> None:
    text = capture(nn.Linear(2, 2), torch.ones(2, 2)).to_text()
    with pytest.raises(ValueError, match=r"2 graphs, so pass name=.*'forward', 'backward'"):
        to_fx(text)
    with pytest.raises(ValueError, match="no graph is named 'other'"):
        to_fx(text, name="other")
    assert from_fx(to_fx(text, name="backward")).op_counts["aten.mm"] == 1


@pytest.mark.parametrize(
    ("lines", "reason"),
    [
        (("%y = nowhere.op.default(%x)", "return %y"), "nowhere.op.default is not loaded"),
        (("%y = aten.nothing.default(%x)", "return %y"), "aten.nothing.default is not loaded"),
        (('%y = eval("1")', "return %y"), "eval is no function of torch"),
        (('%y = os.system("true")', "return %y"), "os.system is no function of torch"),
        (("%y = torch.relu(%x, os.system)", "return %y"), "os.system is no function"),
        (('%y = torch.nn.Linear["fc"](%x)', "return %y"), "torch.nn.Linear are not in a graph"),
        (("%y = aten.mul.Tensor(%x, ~)", "return %y"), "floats were not stored"),
    ],
)
def test_node_that_cannot_run_is_named(lines: tuple[str, ...], reason: str) -> None:
    text = graph_of("%x = input : f32[2]", *lines)
    if "~" in text:
        text = text.replace("torchgraph 1\n\n", "torchgraph 4\ndigits 0\n\n")
    with pytest.raises(CaptureError, match=reason) as error:
        to_fx(text)
    assert "%y of graph inference cannot run" in str(error.value)


def test_malformed_text_has_a_line_and_a_column() -> None:
    with pytest.raises(GraphFormatError, match=r"<text>:4:4"):
        to_fx(graph_of("x = 3"))
    ops = capture(torch.sin, torch.ones(2)).to_text("ops")
    with pytest.raises(GraphFormatError, match="only op counts"):
        to_fx(ops)


def test_mutated_text_is_a_module_or_one_of_two_errors() -> None:
    random = Random(0)
    for _ in range(200):
        letters = list(DYNAMIC)
        letters[random.randrange(len(letters))] = random.choice("0123456789`%[](),.:@abcfsxyz-~")
        with contextlib.suppress(CaptureError, GraphFormatError):
            to_fx("".join(letters))


def test_text_may_be_indented() -> None:
    indented = "\n" + "".join(f"    {line}\n" for line in DYNAMIC.splitlines()) + "    "
    assert from_fx(to_fx(indented)) == from_fx(to_fx(DYNAMIC)) == from_fx(to_fx(DYNAMIC.strip()))


def test_other_objects_are_refused() -> None:
    with pytest.raises(TypeError, match=r"use capture\.fx\(capture\.forward\)"):
        to_fx(capture(torch.sin, torch.ones(2)))  # type: ignore[arg-type]


def test_graph_is_taken_as_it_is() -> None:
    graph = Graph.from_text(DYNAMIC)
    assert from_fx(to_fx(graph)) == graph == from_fx(to_fx(graph, name="inference"))
