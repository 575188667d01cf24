"""Headings count edits and places and name what changed; lists of modules are short and exact."""

from __future__ import annotations

import pytest
from graph.build import difference, graph
from graph.edited_layers import Edit, Layer, Op, model_of
from hypothesis import given
from hypothesis import strategies as st

from pytest_torchgraph.graph import Graph, abridged, diff_graphs
from pytest_torchgraph.graph.diff.paths import natural_key

LAYER: Layer = {
    0: Op("neg", "attention", (-1,)),
    1: Op("mul", "mlp.fc", (0, -2)),
    2: Op("gelu", "mlp.act", (1,)),
    3: Op("add", "", (2, -1)),
}


def heading(*layers: Layer) -> str:
    return difference(model_of([LAYER] * 6).graph, model_of(layers).graph).heading()


def test_heading_has_the_places_and_modules_of_an_edit() -> None:
    edited = Edit("exchange", 2, "relu").of(LAYER)
    assert heading(*[edited] * 6) == (
        "1 edit in 6 places: aten.gelu -> aten.relu in model.layers.{0 … 5}.mlp.act"
    )
    assert heading(LAYER, edited, LAYER, *[LAYER] * 3) == (
        "1 edit: aten.gelu -> aten.relu in model.layers.1.mlp.act"
    )


def test_heading_has_two_edits_and_their_common_module() -> None:
    relu, silu = Edit("exchange", 2, "relu").of(LAYER), Edit("exchange", 2, "silu").of(LAYER)
    assert heading(*[relu] * 3, *[silu] * 3) == (
        "2 edits in 6 places: aten.gelu -> aten.relu, aten.gelu -> aten.silu in model.layers"
    )


def test_heading_of_added_layers_names_modules_not_ops() -> None:
    assert heading(*[LAYER] * 8) == (
        "2 modules added: model.layers.{6, 7}, each like model.layers.5 (8 ops)"
    )
    assert heading(*[LAYER] * 5) == "1 module removed: model.layers.5, like model.layers.4 (4 ops)"


def test_heading_has_added_layers_and_an_edit_of_the_others() -> None:
    edited = Edit("exchange", 2, "relu").of(LAYER)
    assert heading(*[edited] * 7) == (
        "1 module added: model.layers.6, like model.layers.5 (4 ops); "
        "1 edit in 6 places: aten.gelu -> aten.relu in model.layers.{0 … 5}.mlp.act"
    )


def test_place_has_only_its_own_consequences() -> None:
    def step(op: str) -> list[Graph]:
        layers = range(12)
        forward, backward, value = [], [], "x"
        for k in layers:
            forward.append(f"%l.{k}.fc/neg = aten.neg(%{value})")
            forward.append(f"%l.{k}.act/{op} = aten.{op}(%l.{k}.fc/neg)")
            value = f"l.{k}.act/{op}"
        given = "g"
        for k in reversed(layers):
            backward.append(f"%l.{k}.act/{op}_b = aten.{op}_b(%{given}, %l.{k}.fc/neg)")
            backward.append(f"%l.{k}.fc/n = aten.neg(%l.{k}.act/{op}_b)")
            given = f"l.{k}.fc/n"
        saved = [f"save %l.{k}.fc/neg" for k in layers]
        inputs = "\n".join([f"%l.{k}.fc/neg = saved" for k in layers] + ["%g = tangent"])
        return [
            graph("\n".join([*forward, f"return %{value}", *saved]), inputs="%x = input"),
            graph("\n".join([*backward, f"return %{given}"]), "backward @ aot", inputs=inputs),
        ]

    (finding,) = diff_graphs(step("gelu"), step("relu")).findings
    assert len(finding.places) == 12
    for k, place in enumerate(finding.places):
        assert [change.node.name for change in place.consequences] == [f"l.{k}.act/relu_b"]
    assert "follows in backward: 12 changed (1 in each place)" in str(finding)


# -- lists of modules ------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("paths", "text"),
    [
        (["a"], "a"),
        (["a.0.b", "a.1.b", "a.2.b"], "a.{0 … 2}.b"),
        (["a.0", "a.1", "a.3"], "a.{0, 1, 3}"),
        (["a.0.b", "a.1.c"], "a.0.b, a.1.c"),
        (["e.0.l.0", "e.0.l.1", "e.1.l.0", "e.1.l.1"], "e.{0, 1}.l.{0, 1}"),
        (["e.0.l.0", "e.0.l.1", "e.1.l.0"], "e.0.l.{0, 1}, e.1.l.0"),
        ([f"a.{k}" for k in range(0, 20, 2)], "a.{0, 2, 4, 6, 8, and 5 more}"),
        (["a", "b", "c", "d", "e", "f"], "a, b, c, d and 2 more"),
        (["a.007", "a.²", f"a.{'9' * 5000}"], f"a.007, a.², a.{'9' * 5000}"),
    ],
)
def test_module_paths_that_differ_in_numbers_are_abridged(paths: list[str], text: str) -> None:
    assert abridged(paths) == text


@given(st.sets(st.tuples(*[st.integers(0, 4)] * 3), min_size=1, max_size=20))
def test_abridged_module_list_matches_only_its_paths(numbers: set[tuple[int, ...]]) -> None:
    paths = sorted(".".join(f"m.{k}" for k in each) for each in numbers)
    text = abridged(paths, limit=1000)
    assert sum(_count(form) for form in _forms(text)) == len(paths)


def _forms(text: str) -> list[str]:
    forms, depth, start = [], 0, 0
    for k, letter in enumerate(text):
        depth += (letter == "{") - (letter == "}")
        if letter == "," and not depth:
            forms.append(text[start:k])
            start = k + 1
    return [*forms, text[start:]]


def _count(form: str) -> int:
    count = 1
    for braced in form.split("{")[1:]:
        inside, number = braced.partition("}")[0], 0
        for span in inside.split(", "):
            first, _, last = span.partition(" … ")
            number += int(last) - int(first) + 1 if last else 1
        count *= number
    return count


def test_paths_are_abridged_and_sorted_by_the_numbers_in_them() -> None:
    paths = [f"encoder.layers.encoder_layer_{i}.mlp.{k}" for i in range(12) for k in (0, 3)]
    assert abridged(paths) == "encoder.layers.encoder_layer_{0 … 11}.mlp.{0, 3}"
    assert abridged(["conv1", "conv2", "a_01", "a_1"]) == "conv1, conv2, a_01, a_1"
    assert sorted([*paths[12:], *paths[:12]], key=natural_key) == paths
