"""Properties that a page can rely on: ids, classes, elements, and both backgrounds."""

from __future__ import annotations

import xml.etree.ElementTree as ET
from dataclasses import replace
from itertools import combinations, pairwise
from pathlib import Path

import pytest

from pytest_torchgraph.graph import Graph, Node, Ref, TensorMeta, diff_graphs
from pytest_torchgraph.render import (
    CATEGORY_PAINTS,
    CHANGE_PAINTS,
    HEAT_PAINTS,
    Drawing,
    Element,
    difference,
    render,
    to_dot,
    whole,
)
from pytest_torchgraph.render.colours import DARK, Paint

pytestmark = pytest.mark.usefixtures("in_this_process")

MLP = Graph.from_text("""torchgraph 1

forward @ aot {
  %x = input : f32[2, 16]
  %fc.weight = parameter : f32[4, 16]
  %fc/t = aten.t.default(%fc.weight) : f32[16, 4]
  %fc/mm = aten.mm.default(%x, %fc/t) : f32[2, 4]
  %max = aten.max.dim(%fc/mm, 1) : (f32[2], i64[2])
  %max#0 = operator.getitem(%max, 0) : f32[2]
  %relu = aten.relu.default(%max#0) : f32[2]
  return %relu
  save %relu
}
""")
TIMES = "\N{MULTIPLICATION SIGN}"
META = TensorMeta("float32", (2,))


def layers(count: int, width: int = 10) -> Graph:
    """Return a chain of `count` layers with `width` ops each."""
    nodes = [Node("x", "placeholder", "input", result=META)]
    for layer in range(count):
        for step in range(width):
            module = f"encoder.layer.{layer}"
            name, operand = f"{module}/op{step}", Ref(nodes[-1].name)
            op = f"aten.{('sin', 'mul', 'mm')[step % 3]}.default"
            nodes.append(Node(name, "call_function", op, (operand,), {}, META, module))
    output = Node("output", "output", "output", (Ref(nodes[-1].name),))
    return Graph((*nodes, output), name="forward", level="aot")


def drawn(picture: Drawing, folder: Path) -> ET.Element:
    return ET.parse(render(picture.digraph, folder / "g.svg")).getroot()


def test_svg_has_the_id_of_each_element_once(tmp_path):
    picture = whole.drawing(MLP)

    svg = drawn(picture, tmp_path)

    ids = [e.get("id") for e in svg.iter() if e.get("id")]
    assert len(ids) == len(set(ids))
    assert set(picture.elements) <= set(ids)
    assert "picture" in ids


def test_id_of_finds_the_box_of_a_node_and_of_folded_nodes(tmp_path):
    picture = whole.drawing(MLP)

    weight, t = (picture.id_of("forward", name) for name in ("fc.weight", "fc/t"))
    assert weight == t is not None
    assert picture.elements[t] == Element("node", "forward", ("fc/t", "fc.weight"))
    assert picture.id_of("forward", "max#0") == picture.id_of("forward", "max")
    assert picture.id_of("forward", "nothing") is None
    svg = drawn(picture, tmp_path)
    (box,) = (e for e in svg.iter() if e.get("id") == picture.id_of("forward", "relu"))
    assert "aten.relu" in "".join(box.itertext())


def test_the_nodes_of_a_group_lead_to_the_group():
    picture = whole.drawing(layers(40), limit=50)

    element = picture.elements[picture.id_of("forward", "encoder.layer.3/op4") or ""]

    assert element.kind == "group"
    assert element.label == "encoder.layer.3"
    assert len(element.nodes) == 10


def test_a_removed_node_is_found_as_one_of_the_old_graph():
    old = layers(3)
    nodes = [n for n in old.nodes if n.name != "encoder.layer.1/op4"]
    index = next(i for i, n in enumerate(nodes) if n.name == "encoder.layer.1/op5")
    nodes[index] = replace(nodes[index], args=(Ref("encoder.layer.1/op3"),))

    picture = difference.drawing(diff_graphs((old,), (replace(old, nodes=tuple(nodes)),)))

    gone = picture.id_of("forward", "encoder.layer.1/op4", is_old=True)
    assert gone is not None
    assert picture.elements[gone].change == "removed"


def test_a_removed_and_an_added_node_of_one_name_have_a_box_each():
    kept = "  %u = aten.sin.default({}) : f32[2]\n  %v = aten.exp.default(%u) : f32[2]\n"
    head, end = "torchgraph 1\n\nforward @ aot {\n  %x = input : f32[2]\n", "  return {}\n}}\n"
    cos, relu = (f"  %t = aten.{op}.default({{}}) : f32[2]\n" for op in ("cos", "relu"))
    old = head + cos.format("%x") + kept.format("%t") + end.format("%v")
    new = head + kept.format("%x") + relu.format("%v") + end.format("%t")

    picture = difference.drawing(diff_graphs((Graph.from_text(old),), (Graph.from_text(new),)))

    for is_old, change in ((True, "removed"), (False, "added")):
        (box,) = picture.ids_of("forward", "t", is_old=is_old)
        assert picture.elements[box].change == change


def test_id_of_finds_a_change_between_graphs_with_two_names():
    old, new = layers(3), replace(layers(3), name="other")
    nodes = list(new.nodes)
    nodes[5] = replace(nodes[5], op="aten.relu.default")
    diff = diff_graphs((old,), (replace(new, nodes=tuple(nodes)),))
    (change,) = diff.findings[0].changes

    picture = difference.drawing(diff)

    assert change.graph == "forward -> other"
    assert picture.elements[picture.id_of(change.graph, change.node.name) or ""].change == "changed"


def test_clusters_are_elements_with_their_paths():
    picture = whole.drawing(layers(2))

    modules = {e.label for e in picture.elements.values() if e.kind == "module"}

    assert modules == {"encoder.layer", "encoder.layer.0", "encoder.layer.1"}


def test_the_same_graph_gives_the_same_picture():
    one, other = (whole.drawing(layers(60), limit=70) for _ in "ab")

    assert one.digraph.source == other.digraph.source
    assert one.elements == other.elements


# -- any size --------------------------------------------------------------------------------------


@pytest.mark.parametrize(("count", "width"), [(12, 100), (1, 2000), (700, 3)])
def test_large_graph_is_folded_around_the_focus(look, count, width):
    graph = layers(count, width)
    name = graph.nodes[len(graph.nodes) // 2].name
    node = graph[name]
    picture = difference.surplus_drawing([graph], [node])

    seen = look(picture.digraph)

    assert 5 <= seen.count <= 300
    user = next(n for n in graph.nodes if name in n.refs)
    for name in (node.name, *node.refs, user.name):
        assert picture.elements[picture.id_of("forward", name) or ""].kind == "node"
    assert node.module in seen.clusters
    whole_graph = to_dot(graph)
    assert 10 < look(whole_graph).count <= 300
    assert "ops are folded into" in whole_graph.source


def test_a_group_says_what_is_in_it(look):
    nodes = layers(40).nodes
    random = Node("r", "call_function", "aten.rand.default", module="encoder.layer.0")
    graph = Graph((nodes[0], random, *nodes[1:]), name="forward", saved=(Ref(nodes[5].name),))

    seen = look(to_dot(graph, limit=50))

    box = next(text for text in seen.boxes if text.startswith("encoder.layer.0\n"))
    assert box.splitlines()[1:] == [
        "11 ops",
        f"4 {TIMES} aten.sin, 3 {TIMES} aten.mul, 3 {TIMES} aten.mm",
        f"1 {TIMES} aten.rand",
        "1 saved for backward",
    ]
    assert seen.edge("encoder.layer.0", "encoder.layer.1")["text"] == "f32[2]"


def test_module_path_that_ends_in_a_dot_can_be_folded(look):
    nodes = [
        Node(f"n{number}", "call_function", "aten.sin.default", (), {}, META, module)
        for number, module in enumerate(["a", "a.", "a.", "a.b", "a.b", "c"])
    ]

    picture = difference.surplus_drawing([Graph(tuple(nodes), name="forward")], nodes[:1])

    assert any("4 ops" in text for text in look(picture.digraph).boxes)


def test_values_between_two_groups_are_one_edge_with_a_count(look):
    nodes = [Node("x", "placeholder", "input", result=META)]
    for i in range(10):
        nodes.append(Node(f"a{i}", "call_function", "aten.sin.default", (Ref("x"),), {}, META, "a"))
    for i in range(10):
        node = Node(f"b{i}", "call_function", "aten.cos.default", (Ref(f"a{i}"),), {}, META, "b")
        nodes.append(node)

    seen = look(to_dot(Graph(tuple(nodes)), limit=3))

    assert seen.edge("a\n", "b\n")["text"] == "10 values"


def test_bodies_of_higher_order_ops_are_folded_too(look):
    body = replace(layers(30), name="body_0")
    call = Node("call", "call_function", "higher_order.wrap", (), module="head")
    graph = Graph((call,), name="forward", subgraphs=(body,))

    seen = look(to_dot(graph, limit=40))

    assert seen.count <= 40
    assert any(text.startswith("encoder.layer.3\n10 ops") for text in seen.boxes)


def test_drawing_without_a_limit_folds_nothing(look):
    assert look(to_dot(layers(40), limit=None)).count == 400 + 2 + 3  # includes the legend


# -- colours ---------------------------------------------------------------------------------------

Triple = tuple[float, float, float]
VISIONS: dict[str, tuple[Triple, Triple, Triple]] = {
    # Machado, Oliveira and Fernandes (2009), severity 1.0, on linear RGB
    "normal": ((1, 0, 0), (0, 1, 0), (0, 0, 1)),
    "protanopia": (
        (0.152286, 1.052583, -0.204868),
        (0.114503, 0.786281, 0.099216),
        (-0.003882, -0.048116, 1.051998),
    ),
    "deuteranopia": (
        (0.367322, 0.860646, -0.227968),
        (0.280085, 0.672501, 0.047413),
        (-0.011820, 0.042940, 0.968881),
    ),
    "tritanopia": (
        (1.255528, -0.076749, -0.178779),
        (-0.078411, 0.930809, 0.147602),
        (0.004733, 0.691367, 0.303900),
    ),
}


def linear(colour: str) -> Triple:
    parts = [int(colour[i : i + 2], 16) / 255 for i in (1, 3, 5)]
    r, g, b = (x / 12.92 if x <= 0.04045 else ((x + 0.055) / 1.055) ** 2.4 for x in parts)
    return r, g, b


def luminance(colour: str) -> float:
    r, g, b = linear(colour)
    return 0.2126 * r + 0.7152 * g + 0.0722 * b


def contrast(one: str, other: str) -> float:
    low, high = sorted((luminance(one), luminance(other)))
    return (high + 0.05) / (low + 0.05)


def lab(colour: str, vision: str) -> Triple:
    r, g, b = (
        min(1.0, max(0.0, sum(x * y for x, y in zip(row, linear(colour), strict=True))))
        for row in VISIONS[vision]
    )
    xyz = (
        (0.4124 * r + 0.3576 * g + 0.1805 * b) / 0.95047,
        0.2126 * r + 0.7152 * g + 0.0722 * b,
        (0.0193 * r + 0.1192 * g + 0.9505 * b) / 1.08883,
    )
    x, y, z = (t ** (1 / 3) if t > 0.008856 else 7.787 * t + 16 / 116 for t in xyz)
    return 116 * y - 16, 500 * (x - y), 200 * (y - z)


def distance(one: str, other: str, vision: str) -> float:
    pairs = zip(lab(one, vision), lab(other, vision), strict=True)
    return sum((a - b) ** 2 for a, b in pairs) ** 0.5


BLACK, WHITE = "#000000", "#FFFFFF"
HALF_TURN: tuple[Triple, Triple, Triple] = (
    # the CSS filter `hue-rotate(180deg)`
    (-0.574, 1.43, 0.144),
    (0.426, 0.43, 0.144),
    (0.426, 1.43, -0.856),
)


def dark(colour: str) -> str:
    """Return what a browser makes of a colour with the filter for dark backgrounds."""
    assert DARK == "invert(0.95) hue-rotate(180deg)"
    parts = [0.95 - 0.9 * int(colour[i : i + 2], 16) / 255 for i in (1, 3, 5)]
    turned = (sum(x * y for x, y in zip(row, parts, strict=True)) for row in HALF_TURN)
    return "#" + "".join(f"{round(255 * min(1, max(0, part))):02X}" for part in turned)


@pytest.mark.parametrize("vision", VISIONS)
@pytest.mark.parametrize("background", ["light", "dark"])
@pytest.mark.parametrize(("kind", "least"), [("families", 12), ("changes", 18)])
def test_any_two_colours_are_distinguishable(vision, background, kind, least):
    paints = (
        CATEGORY_PAINTS
        if kind == "families"
        else {k: p for k, p in CHANGE_PAINTS.items() if k != "surplus"}
    )
    if background == "dark":
        paints = {kind: Paint(*map(dark, paint)) for kind, paint in paints.items()}

    for (one, a), (other, b) in combinations(paints.items(), 2):
        apart = max(distance(a.border, b.border, vision), distance(a.fill, b.fill, vision))
        assert apart >= least, (one, other)


@pytest.mark.parametrize("background", ["light", "dark"])
def test_costlier_boxes_are_darker_in_grey(background):
    fills = [paint.fill for step, paint in HEAT_PAINTS.items() if step != "unknown"]
    if background == "dark":  # there, the brightest is the costliest
        fills = [dark(paint.fill) for step, paint in HEAT_PAINTS.items() if step != "unknown"][::-1]

    for darker, lighter in pairwise(fills):
        assert luminance(lighter) > luminance(darker)
        assert min(distance(darker, lighter, vision) for vision in VISIONS) >= 5


@pytest.mark.parametrize("kind", [*CATEGORY_PAINTS, *CHANGE_PAINTS, *HEAT_PAINTS])
def test_text_can_be_read_on_every_fill(kind):
    paint = {**CATEGORY_PAINTS, **CHANGE_PAINTS, **HEAT_PAINTS}[kind]

    assert contrast(BLACK, paint.fill) >= 4.5
    assert contrast(dark(BLACK), dark(paint.fill)) >= 4.5
    assert contrast(dark(BLACK), dark(WHITE)) >= 4.5


def test_svg_has_a_filter_for_a_dark_background(tmp_path):
    svg = drawn(whole.drawing(MLP), tmp_path)

    (style,) = (e for e in svg.iter() if e.tag.endswith("style"))
    assert style.text == (
        f"@media (prefers-color-scheme: dark) {{ .graph.tg-picture {{ filter: {DARK} }} }}"
    )


def test_foreign_svg_is_unchanged(tmp_path):
    import graphviz

    digraph = graphviz.Digraph()
    digraph.edge("a", "b")

    assert "<style>" not in render(digraph, tmp_path / "g.svg").read_text()
