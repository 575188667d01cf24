"""Drawings of differences."""

from __future__ import annotations

import re
from dataclasses import replace

import pytest

from pytest_torchgraph.graph import (
    Change,
    Finding,
    Graph,
    GraphDiff,
    GraphPair,
    Node,
    Ref,
    Source,
    TensorMeta,
    diff_graphs,
    parse_document,
    parse_text,
)
from pytest_torchgraph.graph.diff import diff_files
from pytest_torchgraph.graph.diff.findings import one_place
from pytest_torchgraph.render import CHANGE_PAINTS, diff_to_dot

GREEN, RED, ORANGE, BLUE = (
    CHANGE_PAINTS[kind].border for kind in ("added", "removed", "changed", "rewired")
)


def call(name: str, op: str, *operands: object, module: str = "", dtype: str = "float32") -> Node:
    return Node(
        name, "call_function", op, operands, result=TensorMeta(dtype, (2, 4)), module=module
    )


def chain(*ops: str, module: str = "") -> list[Node]:
    """Return an input `x` and a chain of ops, each named after its op."""
    nodes = [Node("x", "placeholder", "input", result=TensorMeta("float32", (2, 4)))]
    for op in ops:
        nodes.append(call(op, f"aten.{op}.default", Ref(nodes[-1].name), module=module))
    return nodes


def graph(nodes: list[Node], kind: str = "forward") -> Graph:
    output = Node("output", "output", "output", (Ref(nodes[-1].name),))
    return Graph((*nodes, output), name=kind, kind=kind, level="aot")  # type: ignore[arg-type]


def difference(pair: GraphPair, *consequences: GraphPair) -> GraphDiff:
    """Return one finding with all changes in `pair`, and the others as its consequences."""

    def changes(pair: GraphPair) -> tuple[Change, ...]:
        name = (pair.after or pair.before).name  # type: ignore[union-attr]
        return (
            *(Change("changed", name, a, b) for a, b in pair.changed),
            *(Change("added", name, None, node) for node in pair.added),
            *(Change("removed", name, node, None) for node in pair.removed),
            *(Change("rewired", name, a, b) for a, b in pair.rewired),
        )

    follows = tuple(change for other in consequences for change in changes(other))
    place = replace(one_place(changes(pair)).places[0], consequences=follows)
    return GraphDiff((Finding((place,)),), (pair, *consequences))


def inserted(module: str = "", length: int = 0) -> GraphDiff:
    """Insert a clone between sin and cos, with `length` ops before and after."""
    before = [f"b{i}" for i in range(length)]
    after = [f"c{i}" for i in range(length)]
    old = graph(chain(*before, "sin", "cos", *after, module=module))
    new = graph(chain(*before, "sin", "clone", "cos", *after, module=module))
    return difference(
        GraphPair(old, new, added=(new["clone"],), rewired=((old["cos"], new["cos"]),))
    )


def test_rewired_node_has_a_sign_and_its_old_and_new_operand(look):
    seen = look(diff_to_dot(inserted()))

    assert seen.box("\N{CLOCKWISE TOP SEMICIRCLE ARROW} aten.cos")["color"] == BLUE
    assert any("sin → clone" in text for text in seen.boxes)
    was = seen.edge("aten.sin", "\N{CLOCKWISE TOP SEMICIRCLE ARROW} aten.cos")
    assert (was["color"], was["style"]) == (RED, "dashed")
    assert (
        seen.box("+ aten.clone")["color"] == seen.edge("aten.sin", "+ aten.clone")["color"] == GREEN
    )
    now = seen.edge("+ aten.clone", "\N{CLOCKWISE TOP SEMICIRCLE ARROW} aten.cos")
    assert now["color"] == GREEN


def test_removed_node_keeps_its_old_position(look):
    old, new = graph(chain("sin", "clone", "cos")), graph(chain("sin", "cos"))

    seen = look(diff_to_dot(difference(GraphPair(old, new, removed=(old["clone"],)))))

    assert seen.box("- aten.clone")["color"] == RED
    assert seen.edge("aten.sin", "- aten.clone")["style"] == "dashed"
    assert seen.edge("- aten.clone", "aten.cos")["style"] == "dashed"
    around = seen.edge("aten.sin", "aten.cos")
    assert around["color"] not in (GREEN, RED), "the edge of the new graph is marked as new"
    assert seen.count == 5, "nodes of both graphs are drawn once"


@pytest.mark.parametrize(
    ("change", "expected"),
    [
        ({"op": "aten.gelu.default"}, "~ aten.sin → aten.gelu\n(·, 3)"),
        ({"args": (Ref("x"), 7)}, "~ aten.sin\n(·, 3) → (·, 7)"),
        ({"args": (Ref("x"), 0.123456789)}, "~ aten.sin\n(·, 3) → (·, 0.1235)"),
        ({"result": TensorMeta("float16", (2, 4))}, "~ aten.sin\n(·, 3)\nf32[2, 4] → f16[2, 4]"),
        (
            {"kwargs": {"layout": "strided"}},
            '~ aten.sin\n(·, 3)\n(%x, 3) : f32[2, 4]\n→ (%x, 3, layout="strided") : f32[2, 4]',
        ),
    ],
    ids=["op", "constant", "rounded", "dtype", "hidden"],
)
def test_changed_node_shows_the_old_and_the_new_text(look, change, expected):
    nodes = chain("sin", "cos")
    nodes[1] = replace(nodes[1], args=(Ref("x"), 3))
    old = graph(nodes)
    new = graph([nodes[0], replace(nodes[1], **change), nodes[2]])

    pair = GraphPair(old, new, changed=((old["sin"], new["sin"]),))
    seen = look(diff_to_dot(difference(pair)))

    assert expected in seen.boxes
    assert seen.boxes[expected]["color"] == ORANGE


def test_constants_that_differ_only_unrounded_are_shown_in_full(look):
    nodes = chain("sin")
    old = graph([nodes[0], replace(nodes[1], args=(Ref("x"), 0.12345678))])
    new = graph([nodes[0], replace(nodes[1], args=(Ref("x"), 0.12345679))])

    pair = GraphPair(old, new, changed=((old["sin"], new["sin"]),))
    (shown,) = (text for text in look(diff_to_dot(difference(pair))).boxes if "~" in text)

    assert "5678" in shown
    assert "5679" in shown


def test_an_added_parameter_is_a_signed_line_in_its_user(look):
    x, weight = (
        chain()[0],
        Node("fc.bias", "placeholder", "parameter", result=TensorMeta("float32", (4,))),
    )
    old = graph([x, call("add", "aten.add.Tensor", Ref("x"), Ref("x"))])
    new = graph([x, weight, call("add", "aten.add.Tensor", Ref("x"), Ref("fc.bias"))])

    pair = GraphPair(old, new, added=(weight,), rewired=((old["add"], new["add"]),))
    seen = look(diff_to_dot(difference(pair)))

    assert "+ fc.bias f32[4]" in seen.boxes[next(t for t in seen.boxes if "aten.add" in t)]["label"]


def test_added_node_shows_its_source_line(look):
    old, new = graph(chain("sin", "cos")), chain("sin", "clone", "cos")
    new[2] = replace(new[2], source=Source("model.py", 12, "x = x.clone()"))

    pair = GraphPair(old, graph(new), added=(new[2],))

    assert "+ aten.clone\nmodel.py:12" in look(diff_to_dot(difference(pair))).boxes


@pytest.mark.parametrize(("hops", "shown"), [(0, set()), (1, {"b9", "c0"}), (3, {"b7", "c2"})])
def test_context_is_limited_in_hops(look, hops, shown):
    seen = look(diff_to_dot(inserted(length=10), hops=hops))

    boxes = {text for text in seen.boxes if text.startswith(("aten.b", "aten.c"))}
    # cos is changed too, so its surroundings belong to the context
    expected = {
        *(f"aten.b{i}" for i in range(11 - hops, 10)),
        *(f"aten.c{i}" for i in range(hops)),
    }
    assert boxes - {"aten.cos"} == expected
    assert ("aten.sin" in seen.boxes) == (hops > 0)


def test_unchanged_nodes_before_and_after_are_folded_with_a_count(look):
    seen = look(diff_to_dot(inserted(length=10), hops=1))

    before, after = "x … b9\n10 ops, 1 input", "c1 … output\n9 ops"
    assert seen.has_edge(before, "aten.sin")
    assert seen.has_edge("aten.c0", after)


def test_changed_layer_is_open_and_unchanged_layers_are_closed(look):
    nodes = chain()
    for layer in range(12):
        for step in ("mm", "sin", "gelu", "cos"):
            module = f"encoder.layer.{layer}"
            nodes.append(
                call(f"{module}/{step}", f"aten.{step}.default", Ref(nodes[-1].name), module=module)
            )
    old = graph(nodes)
    edited = [
        replace(n, op="aten.relu.default") if n.name == "encoder.layer.7/gelu" else n for n in nodes
    ]
    new = graph(edited)
    pair = GraphPair(
        old, new, changed=((old["encoder.layer.7/gelu"], new["encoder.layer.7/gelu"]),)
    )

    seen = look(diff_to_dot(difference(pair), hops=1))

    inside = seen.clusters["encoder.layer.7"]
    assert inside == {"aten.mm", "aten.sin", "~ aten.gelu → aten.relu", "aten.cos"}
    assert any(text.startswith("layer.0 … layer.6\n7 modules, 28 ops") for text in seen.boxes)
    assert any(text.startswith("layer.8 … layer.11\n4 modules, 16 ops") for text in seen.boxes)
    assert seen.edge("layer.0 … layer.6", "aten.mm")["text"] == "f32[2, 4]"


def test_edges_to_a_long_return_do_not_hide_the_rest(look):
    nodes = chain(*(f"a{i}" for i in range(40)))
    returned = tuple(Ref(n.name) for n in nodes)
    old = Graph((*nodes, Node("output", "output", "output", (returned,))), name="g")
    new_nodes = [replace(n, op="aten.new.default") if n.name == "a20" else n for n in nodes]
    new = Graph((*new_nodes, old["output"]), name="g")
    pair = GraphPair(old, new, changed=((old["a20"], new["a20"]),))

    seen = look(diff_to_dot(difference(pair)))

    assert seen.box("~ aten.a20 → aten.new")
    assert not any("return" in text for text in seen.boxes)


@pytest.mark.parametrize("consequences", [False, True])
def test_large_difference_is_limited_to_200_boxes_with_a_count_of_the_rest(look, consequences):
    old, new = chain(*(f"a{i}" for i in range(900))), chain(*(f"b{i}" for i in range(900)))
    pair = GraphPair(graph(old), graph(new), changed=tuple(zip(old[1::3], new[1::3], strict=True)))
    small_old, small_new = graph(chain("sin")), graph(chain("cos"))
    small = GraphPair(small_old, small_new, changed=((small_old["sin"], small_new["cos"]),))

    digraph = diff_to_dot(difference(small, pair) if consequences else difference(pair))

    seen = look(digraph)
    alone = [text for text in seen.boxes if text.startswith("~ ")]
    assert 40 < seen.count <= 200
    assert 20 < len(alone) < 300
    hidden = 300 + consequences - len(alone)
    assert f"{hidden} more changed nodes are counted in folded boxes" in digraph.source
    counted = [int(n) for text in seen.boxes for n in re.findall(r"~ (\d+) changed", text)]
    assert sum(counted) == hidden
    if consequences:
        assert "~ aten.sin → aten.cos" in look(digraph).boxes


def test_added_or_removed_graph_is_one_box(look):
    gone, came = graph(chain("sin", "cos"), "backward"), graph(chain("sin"), "inference")

    seen = look(diff_to_dot(GraphDiff((), (GraphPair(gone, None), GraphPair(None, came)))))

    assert set(seen.boxes) == {
        "- backward graph backward\n2 ops",
        "+ inference graph inference\n1 op",
    }


def test_changed_saved_values_alone_are_drawn(look):
    nodes = chain("sin", "cos")
    old = replace(graph(nodes), saved=(Ref("x"),))
    new = replace(graph(nodes), saved=(Ref("sin"),))
    change = Change("changed", "forward", old["output"], new["output"])

    seen = look(diff_to_dot(GraphDiff((one_place((change,)),), (GraphPair(old, new),))))

    assert seen.box("~ return")["color"] == ORANGE


def test_drawing_without_a_difference_says_so(look):
    digraph = diff_to_dot(GraphDiff((), ()))

    assert look(digraph).count == 0
    assert "no difference" in digraph.source


def test_unchanged_nodes_with_changed_names_are_matched(look):
    """An op inserted before equal ops renames them: `add` becomes `add#2`."""
    x = chain()[0]
    old = graph(
        [x, call("add", "aten.add.Tensor", Ref("x")), call("add#2", "aten.add.Tensor", Ref("add"))]
    )
    new = graph(
        [
            x,
            call("add", "aten.add.Tensor", Ref("x")),
            call("add#2", "aten.add.Tensor", Ref("add")),
            call("add#3", "aten.add.Tensor", Ref("add#2")),
        ]
    )

    seen = look(diff_to_dot(diff_graphs((old,), (new,))))

    assert seen.count == 5
    assert not [
        e
        for _, head, e in seen.edges
        if head == "aten.add.Tensor" and "color" in e and e["color"] == RED
    ]


def test_bodies_of_one_name_are_matched_each_with_its_own():
    title = """{kind} @ aot {{
  body: {kind} {{
    %x = input : f32[2]
    %same{name} = aten.sin(%x) : f32[2]
    %y = aten.{op}(%same{name}) : f32[2]
    return %y
  }}
  %x = input : f32[2]
  %y = higher_order.invoke_subgraph(@body, %x) : f32[2]
  return %y
}}
"""

    def step(op: str, name: str) -> list[Graph]:
        texts = [title.format(kind="forward", op=op, name=name)]
        texts.append(title.format(kind="backward", op=op, name=f"_too{name}"))
        return list(parse_document("torchgraph 1\n\n" + "\n".join(texts)).graphs)

    source = diff_to_dot(diff_graphs(step("relu", ""), step("gelu", "_now"))).source
    assert source.count("label=aten.sin") + source.count('label="aten.sin') == 2


def test_unchanged_nodes_with_changed_names_are_matched_in_ranks():
    text = """torchgraph 3
mesh tp=2

ranks 0-1

forward @ aot {{
  %x = input : f32[2]
  %{name} = aten.sin(%x) : f32[2]
  %y = aten.{op}(%{name}) : f32[2]
  return %y
}}
"""
    sides = [parse_text(text.format(name=f"same_{op}", op=op)) for op in ("relu", "gelu")]
    difference, _ = diff_files(*sides)
    source = diff_to_dot(difference).source
    assert source.count('"aten.sin') + source.count("=aten.sin") == 1


def test_eager_graph_is_drawn_with_its_runs(look):
    def program(*eager: tuple[str, int]) -> list[Graph]:
        title = "{name} {{\n  %x = input : f32[2]\n  %y = aten.{op}(%x) : f32[2]\n  return %y\n}}\n"
        texts = [title.format(name="forward @ aot", op="relu")]
        for number, (op, runs) in enumerate(eager):
            name = f"eager_{number}" + (f" × {runs}" if runs > 1 else "")
            texts.append(title.format(name=name, op=op))
        return list(parse_document("torchgraph 2\n\n" + "\n".join(texts)).graphs)

    before = program(("sin", 2), ("neg", 1), ("cos", 3))
    after = program(("sin", 5), ("log", 1), ("neg", 1), ("tan", 4))
    seen = look(diff_to_dot(diff_graphs(before, after)))

    assert "~ eager_0: eager\n1 op\nran 5 times, before: 2" in seen.boxes
    assert "+ eager_1: eager\n1 op\nran once" in seen.boxes
    assert any(
        "aten.tan" in text for text in seen.clusters["eager_3: eager, ran 4 times, before: 3, 1 op"]
    )
    assert not any("neg" in text for text in seen.boxes)
