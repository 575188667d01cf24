"""An edit in several places is drawn in the first place, with the number of places."""

from __future__ import annotations

from graph.build import graph

from pytest_torchgraph.graph import Graph, diff_graphs
from pytest_torchgraph.render import diff_to_dot
from pytest_torchgraph.render.difference import drawing
from pytest_torchgraph.report.page.collect import comparison_data

LAYERS = 12


def forward(act: str, other: str = "sin", layers: int = LAYERS) -> Graph:
    """Return layers with two activations."""
    lines, value = [], "x"
    for k in range(layers):
        path, last = f"%layer.{k}", other if k == 5 else "sin"
        lines += [
            f"{path}.fc/mul = aten.mul(%{value}, 2)",
            f"{path}.act/{act} = aten.{act}({path}.fc/mul)",
            f"{path}.out/add = aten.add({path}.act/{act}, %{value})",
            f"{path}.end/{last} = aten.{last}({path}.out/add)",
        ]
        value = lines[-1].partition(" ")[0][1:]
    return graph("\n".join([*lines, f"return %{value}", f"save %{value}"]))


def backward(act: str) -> Graph:
    """Return the backward of these activations."""
    lines = ["%tangent = tangent : f32[2, 3]"]
    value = "tangent"
    for k in reversed(range(LAYERS)):
        name = f"layer.{k}.act/{act}_backward"
        lines.append(f"%{name} = aten.{act}_backward(%{value})")
        lines.append(f"%layer.{k}.fc/neg = aten.neg(%{name})")
        value = f"layer.{k}.fc/neg"
    return graph("\n".join([*lines, f"return %{value}"]), "backward @ aot", inputs="")


def test_edit_in_several_places_is_drawn_once_with_a_count(look):
    diff = diff_graphs([forward("gelu")], [forward("relu")])

    seen = look(diff_to_dot(diff))

    assert [text for text in seen.boxes if "relu" in text and "gelu" in text] == [
        "~ aten.gelu → aten.relu × 12"
    ]
    assert seen.count < 20
    (folded,) = (text for text in seen.boxes if "11 modules" in text)
    assert folded.endswith("~ 11 changed")


def test_two_edits_are_drawn_once_each_and_a_single_edit_has_no_count(look):
    diff = diff_graphs([forward("gelu")], [forward("relu", other="cos")])

    seen = look(diff_to_dot(diff))

    assert {text for text in seen.boxes if text.startswith("~")} == {
        "~ aten.gelu → aten.relu × 12",
        "~ aten.gelu → aten.relu",  # drawn beside the other edit
        "~ aten.sin → aten.cos",
    }


def test_consequence_in_several_places_is_drawn_once_and_paler(look):
    pair = [[forward(act), backward(act)] for act in ("gelu", "relu")]

    seen = look(diff_to_dot(diff_graphs(*pair)))

    follows = seen.box("~ aten.gelu_bac… aten.relu_backward × 12")
    assert "dashed" in follows["style"]
    edit = seen.box("~ aten.gelu → aten.relu × 12")
    assert (follows["color"], follows["fillcolor"]) == (edit["color"], "#FFFFFF")
    assert edit["fillcolor"] != "#FFFFFF"


def test_added_modules_are_drawn_as_the_first_one(look):
    diff = diff_graphs([forward("gelu", layers=4)], [forward("gelu", layers=9)])

    seen = look(diff_to_dot(diff))

    first = {f"+ aten.{op} × 5" for op in ("gelu", "add", "sin")} | {"+ aten.mul × 5\n(·, 2)"}
    assert first == {text for text in seen.boxes if "× 5" in text}
    assert any(text.endswith("+ 12 added") for text in seen.boxes), "three further layers, folded"


def test_a_finding_on_the_page_leads_to_its_first_place():
    diff = diff_graphs([forward("gelu")], [forward("relu")])
    drawn = drawing(diff)

    page = comparison_data(file="", headline="", accept="", lines=[], diff=diff, drawing=drawn)

    (finding,) = page["findings"]
    (box,) = finding["ids"]
    assert drawn.elements[box].kind == "node"
    assert drawn.elements[box].nodes == ("layer.0.act/relu",)
