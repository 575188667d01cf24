"""Parameters, buffers and constants are declared where they are first used."""

from __future__ import annotations

import pytest
from graph.build import document, shown
from graph.strategies import checked
from hypothesis import given
from hypothesis import strategies as st

from pytest_torchgraph import Graph, GraphFormatError
from pytest_torchgraph.graph.text.inputs import sort_inputs

FLAT = """\
torchgraph 4

forward @ export {
  %conv.weight = parameter : f32[4, 3, 1, 1]
  %bn.weight = parameter : f32[4]
  %bn.bias = parameter : f32[4]
  %bn.running_mean = buffer : f32[4]
  %bn.running_var = buffer : f32[4]
  %x = input : f32[2, 3, 8, 8]
  %conv/conv2d = aten.conv2d.default(%x, %conv.weight) : f32[2, 4, 8, 8]
  %bn/batch_norm = aten.batch_norm.default(%conv/conv2d, %bn.weight, %bn.bias, %bn.running_mean, \
%bn.running_var, False, 0.1, 1e-05) : f32[2, 4, 8, 8]
  return %bn/batch_norm
}
"""
AT_USE = """\
torchgraph 4

forward @ export {
  parameters
  buffers
  %x = input : f32[2, 3, 8, 8]
  %conv/conv2d = aten.conv2d.default(%x, %conv.weight: f32[4, 3, 1, 1]) : f32[2, 4, 8, 8]
  %bn/batch_norm = aten.batch_norm.default(%conv/conv2d, %bn.weight: f32[4], %bn.bias: f32[4], \
%bn.running_mean: buffer f32[4], %bn.running_var: buffer f32[4], False, 0.1, 1e-05) : \
f32[2, 4, 8, 8]
  return %bn/batch_norm
}
"""


def graph_of(*lines: str) -> Graph:
    return Graph.from_text(document("\n".join(lines)))


def body(graph: Graph) -> list[str]:
    """Return the lines between the title and the return."""
    lines = graph.to_text().split("\n")
    return [line[2:] for line in lines[lines.index("forward @ aot {") + 1 : -3]]


def names(graph: Graph) -> list[str]:
    return [node.name for node in graph.inputs]


def test_inputs_are_declared_where_they_are_used() -> None:
    graph = Graph.from_text(FLAT)
    assert graph.to_text() == AT_USE
    assert shown(Graph.from_text(AT_USE), full=False) == shown(graph, full=False)
    assert graph.to_text(fold=False) == FLAT == Graph.from_text(AT_USE).to_text(fold=False)


def test_reordered_input_names_its_predecessor() -> None:
    graph = graph_of(
        "%fc.bias = parameter : f32[2]",
        "%x = input : f32[2]",
        "%fc.weight = parameter : f32[2]",
        "%norm.weight = parameter : f32[2]",
        "%top.weight = parameter : f32[2]",
        "%a = aten.foo(%x, [%fc.bias, %top.weight], k={1: %fc.weight}) : f32[2]",
        "%b = aten.foo(%a, %norm.weight, %fc.weight) : f32[2]",
        "return %b",
    )
    assert body(graph) == [
        "parameters",
        "%x = input : f32[2]",
        "parameters from %fc.weight",
        "%a = aten.foo(%x, [%fc.bias: f32[2], %top.weight: f32[2] after %norm.weight], "
        "k={1: %fc.weight: f32[2]}) : f32[2]",
        "%b = aten.foo(%a, %norm.weight: f32[2], %fc.weight) : f32[2]",
    ]
    assert names(Graph.from_text(graph.to_text())) == names(graph)


@checked
@given(st.data())
def test_inputs_keep_their_order(data: st.DataObject) -> None:
    owners = ["a", "b", "c.d", "layers.0.fc", "layers.1.fc"]
    known = [f"{owner}.{name}" for owner in owners for name in ("weight", "bias", "scale")]
    inputs = data.draw(st.lists(st.sampled_from(known), unique=True, min_size=1))
    used = data.draw(st.permutations(inputs))
    roles = {name: data.draw(st.sampled_from(["parameter", "buffer", "input"])) for name in known}
    lines = [f"%{name} = {roles[name]} : f32[2]" for name in inputs]
    lines += [f"%{name}/foo = aten.foo(%{name}) : f32[2]" for name in used]
    graph = graph_of(*lines, f"return %{used[-1]}/foo")
    text = graph.to_text()
    assert names(Graph.from_text(text)) == inputs
    assert Graph.from_text(text) == graph
    assert Graph.from_text(text).to_text() == text


def test_inputs_of_one_module_follow_each_other() -> None:
    declared = [("a.w", ""), ("b.w", ""), ("b.b", ""), ("c.w", "a.w"), ("c.b", "")]
    assert sort_inputs(declared) == ["a.w", "c.w", "c.b", "b.w", "b.b"]
    assert sort_inputs([("a", "b"), ("b", "a"), ("c.w", "")]) == ["c.w"]


@pytest.mark.parametrize(
    "lines",
    [
        ["%a = aten.foo(%w) : f32[2]", "return [%a, %w]"],
        ["%a = aten.foo(%x) : f32[2]", "return [%a, %w]"],
        ["%a = aten.foo(%x) : f32[2] after %w", "%b = aten.foo(%a, %w) : f32[2]", "return %b"],
        ["%l.0/a = aten.foo(%w) : f32[2]", "%l.1/a = aten.foo(%w) : f32[2]", "return %l.1/a"],
    ],
    ids=["used", "returned", "read", "shared"],
)
def test_input_that_no_call_can_declare_has_a_line(lines: list[str]) -> None:
    graph = graph_of("%w = parameter : f32[2]", "%x = input : f32[2]", *lines)
    has_line = "  %w = parameter : f32[2]\n" in graph.to_text()
    assert has_line == (lines[0] != "%a = aten.foo(%w) : f32[2]")
    assert Graph.from_text(graph.to_text()) == graph


def test_a_backward_has_a_line_for_each_input() -> None:
    text = FLAT.replace("forward @", "backward @")
    assert Graph.from_text(text).to_text() == text


def test_renamed_parameters_of_a_stored_text_are_paired_by_order() -> None:
    lines = [
        "%a.w = parameter : f32[2]",
        "%b.w = parameter : f32[2]",
        "%y = aten.sub(%b.w, %a.w) : f32[2]",
        "return %y",
    ]
    stored = Graph.from_text(graph_of(*lines).to_text())
    renamed = [line.replace("a.w", "k.w").replace("b.w", "q.w") for line in lines]
    assert graph_of(*renamed) == stored
    renamed[2] = "%y = aten.sub(%k.w, %q.w) : f32[2]"
    assert graph_of(*renamed) != stored


WRONG = {
    "no place": (
        "  buffers\n",
        "",
        r"%\S+ is declared here, at its first use, .* no line 'buffers'",
    ),
    "a place of nothing": ("  buffers\n", "  buffers\n  constants\n", "no constant is left"),
    "a place twice": ("  buffers\n", "  buffers\n  buffers\n", "no buffer is left"),
    "from what is not declared": ("  buffers\n", "  buffers\n  buffers from %x\n", "no buffer"),
    "in a return": ("return %bn/batch_norm", "return %x: f32[2]", "expected the end of the line"),
    "twice": ("%conv/conv2d, %bn.weight", "%conv/conv2d, %bn.weight: f32[4], %bn.weight", "twice"),
    "follows nothing": (
        "bias: f32[4]",
        "bias: f32[4] after %x",
        "'after %x' names no parameter that is declared at its first use",
    ),
    "follows itself": ("bias: f32[4]", "bias: f32[4] after %bn.bias", "follows itself"),
    "no shape": ("%bn.bias: f32[4]", "%bn.bias: None", "the dtype and the shape"),
    "an old version": ("torchgraph 4", "torchgraph 1", "unknown kind of graph 'parameters'"),
    "used before": (
        "  %x = input : f32[2, 3, 8, 8]\n",
        "  %x = input : f32[2, 3, 8, 8]\n  %z = aten.foo(%bn.bias) : f32[2]\n",
        "used before it is defined",
    ),
}


@pytest.mark.parametrize("name", WRONG)
def test_input_error_names_the_problem_and_its_place(name: str) -> None:
    old, new, message = WRONG[name]
    assert old in AT_USE
    with pytest.raises(GraphFormatError, match=rf"<text>:\d+:\d+: .*{message}"):
        Graph.from_text(AT_USE.replace(old, new))


def test_input_declared_before_its_place_is_refused() -> None:
    place = "  parameters\n"
    call = "  %a = aten.foo(%w: f32[2]) : f32[2]\n"
    text = f"torchgraph 4\n\nforward @ aot {{\n{call}{place}  return %a\n}}\n"
    with pytest.raises(GraphFormatError, match="%w is used before its line 'parameters'"):
        Graph.from_text(text)
