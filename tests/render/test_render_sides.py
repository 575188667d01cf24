"""Parts of a drawing of a difference that belong to the old and to the new graph."""

from __future__ import annotations

import re
from dataclasses import replace

from pytest_torchgraph.graph import Graph, diff_graphs
from pytest_torchgraph.render import Drawing
from pytest_torchgraph.render.difference import drawing as drawing_of
from pytest_torchgraph.render.dot import Side

HEAD = "torchgraph 2\n\nforward @ aot {\n  %x = input : f32[2, 4]\n"


def graph(*lines: str) -> Graph:
    return Graph.from_text(HEAD + "".join(f"  {line}\n" for line in lines) + "}\n")


def drawn(before: Graph, after: Graph) -> Drawing:
    return drawing_of(diff_graphs((before,), (after,)))


def shown(drawing: Drawing, side: Side) -> list[str]:
    """Return the first line of each box of a side, and each edge as `tail -> head`."""
    lines: dict[str, str] = {}
    seen = []
    for line in drawing.digraph.body:
        id_match = re.search(r"\bid=\"?([\w-]+)", line)
        if id_match is None or "style=invis" in line:
            continue
        label = re.search(r'label="?(.*?)(?:\\n|"|\s\w+=|$)', line)
        key = id_match[1]
        if edge := re.match(r"\s*(\w+) -> (\w+)", line):
            text = f"{lines[edge[1]]} -> {lines[edge[2]]}"
        elif box := re.match(r"\s*(n\d+) \[", line):
            own = side.labels.get(key)
            text = lines[box[1]] = own[0] if own else label[1] if label else ""
        else:
            continue
        if key not in side.without:
            seen.append(text)
    return seen


def test_inserted_op_and_its_edges_are_only_on_the_new_side() -> None:
    old = graph("%a = aten.sin(%x)", "%b = aten.cos(%a)", "return %b")
    new = graph("%a = aten.sin(%x)", "%c = aten.clone(%a)", "%b = aten.cos(%c)", "return %b")
    drawing = drawn(old, new)
    before, after = (shown(drawing, side) for side in (drawing.sides.before, drawing.sides.after))
    assert not any("aten.clone" in text for text in before)
    ids = {element.nodes[0]: key for key, element in drawing.elements.items() if element.nodes}
    assert list(drawing.sides.before.edges) == [(ids["a"], ids["b"])]
    assert not drawing.sides.after.edges
    assert "aten.sin -> + aten.clone" in after
    assert not any(text.startswith("aten.sin -> ") and "aten.cos" in text for text in after)


def test_removed_op_is_in_the_old_graph_and_its_bypass_in_the_new() -> None:
    old = graph("%a = aten.sin(%x)", "%c = aten.clone(%a)", "%b = aten.cos(%c)", "return %b")
    new = graph("%a = aten.sin(%x)", "%b = aten.cos(%a)", "return %b")
    drawing = drawn(old, new)
    before, after = (shown(drawing, side) for side in (drawing.sides.before, drawing.sides.after))
    assert "aten.sin -> - aten.clone" in before
    assert not any("aten.clone" in text for text in after)
    around = [text for text in after if text.startswith("aten.sin -> ")]
    assert around
    assert not set(around) & set(before)


def test_changed_op_has_a_label_for_each_side() -> None:
    old = graph("%a = aten.gelu(%x) : f32[2, 4]", "%b = aten.cos(%a)", "return %b")
    new = graph("%a = aten.relu(%x) : f16[2, 4]", "%b = aten.cos(%a)", "return %b")
    drawing = drawn(old, new)
    labels = [side.labels for side in (drawing.sides.before, drawing.sides.after)]
    (box,) = (key for key in labels[0] if "box" in key)
    assert labels[0][box][:2] == ["~ aten.gelu", "f32[2, 4]"]
    assert labels[1][box][:2] == ["~ aten.relu", "f16[2, 4]"]
    (edge,) = (key for key in labels[0] if "edge" in key)
    assert (labels[0][edge], labels[1][edge]) == (["f32[2, 4]"], ["f16[2, 4]"])
    lines = next(line for line in drawing.digraph.body if box in line)
    assert lines.count("\\n") + 1 == len(labels[0][box])  # one line is replaced


def test_added_module_is_a_cluster_only_of_the_new_graph() -> None:
    old = graph('%a = aten.sin(%x) in "first"', "return %a")
    new = graph('%a = aten.sin(%x) in "first"', '%c = aten.cos(%a) in "second"', "return %c")
    drawing = drawn(old, new)
    (second,) = (key for key, element in drawing.elements.items() if element.label == "second")
    (first,) = (key for key, element in drawing.elements.items() if element.label == "first")
    assert second in drawing.sides.before.without
    assert second not in drawing.sides.after.without
    assert first not in {**drawing.sides.before.without, **drawing.sides.after.without}


def test_graphs_without_a_difference_have_no_sides() -> None:
    same = graph("%a = aten.sin(%x)", "return %a")
    assert not drawn(same, same).sides


def test_removed_op_that_reads_a_saved_value_is_only_on_the_old_side() -> None:
    head = "torchgraph 2\n\nbackward @ aot {\n  %s = saved : f32[2]\n  %t = tangent : f32[2]\n"
    old = "  %a = aten.mul(%t, %s)\n  %b = aten.sin(%a)\n  return %b\n}\n"
    new = "  %b = aten.sin(%t)\n  return %b\n}\n"
    drawing = drawn(Graph.from_text(head + old), Graph.from_text(head + new))
    (mul,) = (key for key, element in drawing.elements.items() if "a" in element.nodes)
    assert drawing.elements[mul].nodes == ("a", "s")
    assert mul in drawing.sides.after.without
    assert mul not in drawing.sides.before.without


def test_module_has_its_class_of_each_side() -> None:
    old, new = (graph(f'%a = aten.{op}(%x) in "act"', "return %a") for op in ("gelu", "relu"))
    old = replace(old, classes={"act": "GELU"})
    new = replace(new, classes={"act": "ReLU"})
    drawing = drawn(old, new)
    (act,) = (key for key, element in drawing.elements.items() if element.label == "act")
    assert drawing.sides.before.labels[act] == ["act · GELU"]
    assert drawing.sides.after.labels[act] == ["act · ReLU"]

    stored = drawn(replace(old, classes={}), new)  # without the old class
    assert stored.sides.before.labels[act] == ["act"]
