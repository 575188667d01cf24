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
from pytest_torchgraph.render import diff_to_dot


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


def test_added_node_shows_its_source_line(look):
    old, new = graph(chain("sin", "cos")), chain("sin", "clone", "cos")
    new[2] = replace(new[2], source=Source("model.py", 12, "x = x.clone()"))

    pair = GraphPair(old, graph(new), added=(new[2],))

    assert "+ aten.clone\nmodel.py:12" in look(diff_to_dot(difference(pair))).boxes


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


def test_drawing_without_a_difference_says_so(look):
    digraph = diff_to_dot(GraphDiff((), ()))

    assert look(digraph).count == 0
    assert "no difference" in digraph.source


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
