"""Modules with a number inside a path component, such as `encoder_layer_0`, are folded."""

from __future__ import annotations

import pytest

from pytest_torchgraph import Graph, GraphFormatError
from pytest_torchgraph.graph import abridged
from pytest_torchgraph.graph.diff.paths import natural_key


def text_of(name: str, op: str = "gelu", changed: range = range(0)) -> str:
    lines = ["torchgraph 1", "", "main: forward @ aot {", "  %x = input : f32[4]"]
    last = "x"
    for n in range(12):
        layer = name.format(n)
        lines.append(f"  %{layer}.fc.weight = parameter : f32[4]")
    for n in range(12):
        layer = name.format(n)
        act = op if n in changed else "gelu"
        lines += [
            f"  %{layer}.fc/mul = aten.mul.Tensor(%{last}, %{layer}.fc.weight) : f32[4]",
            f"  %{layer}/act = aten.{act}.default(%{layer}.fc/mul) : f32[4]",
            f"  %{layer}/add = aten.add.Tensor(%{layer}/act, %{last}) : f32[4]",
        ]
        last = f"{layer}/add"
    return "\n".join([*lines, f"  return %{last}", "}", ""])


@pytest.mark.parametrize(
    "name", ["encoder.encoder_layer_{}", "block_{}", "a.{}", "encoder.stage_{}.unit"]
)
def test_layers_are_folded_wherever_their_number_is(name):
    graph = Graph.from_text(text_of(name))
    text = graph.to_text()
    assert len(text.splitlines()) < 26
    assert Graph.from_text(text) == graph
    assert Graph.from_text(text).to_text() == text
    assert (
        Graph.from_text(text).to_text(fold=False).split("\n")[2:] == (text_of(name).split("\n")[2:])
    )
    assert text.startswith("torchgraph 4\n")
    assert f"  each {name.partition('{')[0]}* {{" in text


def test_fold_writes_a_differing_layer_as_an_exception():
    graph = Graph.from_text(text_of("encoder_layer_{}", "relu", range(6, 7)))
    assert "  but encoder_layer_6 {\n" in graph.to_text()
    assert Graph.from_text(graph.to_text()) == graph


def test_an_instance_without_its_block_is_refused():
    text = Graph.from_text(text_of("encoder_layer_{}")).to_text()
    with pytest.raises(GraphFormatError, match=r"missing block 'each other_layer_\* \{'"):
        Graph.from_text(text.replace("  encoder_layer_1:", "  other_layer_1:"))


def test_paths_are_abridged_and_sorted_by_the_numbers_in_them():
    paths = [f"encoder.layers.encoder_layer_{i}.mlp.{k}" for i in range(12) for k in (0, 3)]
    assert abridged(paths) == "encoder.layers.encoder_layer_{0 … 11}.mlp.{0, 3}"
    assert abridged(["conv1", "conv2", "a_01", "a_1"]) == "conv1, conv2, a_01, a_1"
    assert sorted([*paths[12:], *paths[:12]], key=natural_key) == paths
