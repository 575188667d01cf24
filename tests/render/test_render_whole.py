"""Drawings of whole graphs."""

from __future__ import annotations

from dataclasses import replace

import pytest

from pytest_torchgraph.graph import Atom, Effect, Graph, Node, Ref, Source, TensorMeta
from pytest_torchgraph.render import CATEGORY_PAINTS, op_category, to_dot

MLP = Graph.from_text("""torchgraph 1

forward @ aot {
  %x = input : f32[2, 16]
  %fc.weight = parameter : f32[4, 16]
  %fc.bias = parameter : f32[4]
  %fc/t = aten.t.default(%fc.weight) : f32[16, 4]
  %fc/addmm = aten.addmm.default(%fc.bias, %x, %fc/t) : f32[2, 4]
  %max = aten.max.dim(%fc/addmm, 1, True) : (f32[2, 1], i64[2, 1])
  %values = operator.getitem(%max, 0) : f32[2, 1]
  %where = operator.getitem(%max, 1) : i64[2, 1]
  %relu = aten.relu.default(%values) : f32[2, 1]
  return %relu
  save %where
}
""")


def tensor(*shape: int) -> TensorMeta:
    return TensorMeta("float32", shape)


def chain(length: int, *, module: str = "") -> list[Node]:
    """Return an input `x` and a chain of `length` ops."""
    nodes = [Node("x", "placeholder", "input", result=tensor(2))]
    for i in range(length):
        nodes.append(
            Node(
                f"op{i}",
                "call_function",
                f"aten.op{i}.default",
                (Ref(nodes[-1].name),),
                result=tensor(2),
                module=module,
            )
        )
    return nodes


def graph(nodes: list[Node], *returned: str, **attributes: object) -> Graph:
    output = Node("output", "output", "output", (tuple(map(Ref, returned)),))
    return Graph((*nodes, output), **attributes)  # type: ignore[arg-type]


def test_ops_are_boxes_and_edges_say_dtype_and_shape(look):
    seen = look(to_dot(MLP))

    assert seen.edge("x", "aten.addmm")["text"] == "f32[2, 16]"
    assert seen.edge("aten.t", "aten.addmm")["text"] == "f32[16, 4]"
    assert seen.edge("aten.relu", "return")["text"] == "f32[2, 1]"
    # Parameters are lines in their users.
    assert "aten.t\nfc.weight f32[4, 16]" in seen.boxes
    assert "aten.addmm\nfc.bias f32[4]" in seen.boxes
    # Projections are folded into the edge from their producer.
    assert seen.edge("aten.max.dim", "aten.relu")["text"] == "[0] f32[2, 1]"
    assert not [text for text in seen.boxes if text.startswith("fc.") or "getitem" in text]
    # Operands are dots, and a value saved for backward is marked at its producer.
    saved = [text for text, box in seen.boxes.items() if box.get("peripheries") == "2"]
    assert saved == ["aten.max.dim\n(·, 1, True)\nsaved for backward [1]"]


@pytest.mark.parametrize("op", ["parameter", "buffer", "constant"])
def test_every_kind_of_stored_tensor_is_folded(look, op):
    nodes = [
        Node("table", "placeholder", op, result=tensor(3)),
        Node("neg", "call_function", "aten.neg.default", (Ref("table"),), result=tensor(3)),
    ]

    seen = look(to_dot(graph(nodes, "neg")))

    assert "aten.neg\ntable f32[3]" in seen.boxes
    assert not [text for text in seen.boxes if text.startswith("table")]


def test_an_attribute_is_folded_into_its_user(look):
    nodes = [
        Node("w", "get_attr", "get_attr", result=tensor(3), target="block.w"),
        Node("neg", "call_function", "aten.neg.default", (Ref("w"),), result=tensor(3)),
    ]

    assert "aten.neg\nblock.w f32[3]" in look(to_dot(graph(nodes, "neg"))).boxes


def test_indexing_a_tensor_keeps_its_box(look):
    nodes = [
        Node("x", "placeholder", "input", result=tensor(3, 2)),
        Node("row", "call_function", "operator.getitem", (Ref("x"), 0), result=tensor(2)),
    ]

    seen = look(to_dot(graph(nodes, "row")))

    assert seen.has_edge("x", "operator.getitem")


def test_modules_are_nested_clusters_labelled_by_path(look):
    nodes = chain(1)
    for i, module in enumerate(("a.b", "a.c", "a.c.d")):
        nodes.append(
            Node(
                f"m{i}",
                "call_function",
                f"aten.m{i}.default",
                (Ref(nodes[-1].name),),
                module=module,
            )
        )

    seen = look(to_dot(graph(nodes, "m2")))

    assert seen.clusters["a"] == {"aten.m0", "aten.m1", "aten.m2"}
    assert seen.clusters["a.b"] == {"aten.m0"}
    assert seen.clusters["a.c"] == {"aten.m1", "aten.m2"}
    assert seen.clusters["a.c.d"] == {"aten.m2"}


def test_module_with_a_single_submodule_has_no_cluster(look):
    seen = look(to_dot(graph(chain(1, module="encoder.layer.3"), "op0")))

    assert "encoder.layer.3" in seen.clusters
    assert "encoder" not in seen.clusters


def test_the_source_line_is_in_the_tooltip(look):
    nodes = chain(1)
    nodes[1] = replace(nodes[1], source=Source("model.py", 12, "y = op(x)", "forward"))

    tooltip = look(to_dot(graph(nodes, "op0"))).box("aten.op0")["tooltip"]

    assert "model.py:12 in forward" in tooltip
    assert "y = op(x)" in tooltip


@pytest.mark.parametrize(
    ("op", "expected"),
    [
        ("aten.mm.default", "matmul"),
        ("aten.convolution_backward.default", "matmul"),
        ("aten.scaled_dot_product_attention.default", "matmul"),
        ("aten.add.Tensor", "pointwise"),
        ("aten.gelu_backward.default", "pointwise"),
        ("torch.nn.functional.relu", "pointwise"),
        ("operator.add", "pointwise"),
        ("aten._softmax.default", "reduction"),
        ("aten.native_layer_norm.default", "reduction"),
        ("aten.sum.dim_IntList", "reduction"),
        ("aten._unsafe_view.default", "view"),
        ("Tensor.transpose", "view"),
        ("aten._to_copy.default", "copy/cast"),
        ("prims.convert_element_type.default", "copy/cast"),
        ("_c10d_functional.all_reduce.default", "collective"),
        ("aten.native_dropout.default", "random"),
        ("aten.native_dropout_backward.default", "pointwise"),
        ("mylib.frobnicate.default", "custom"),
        ("mylib.mm.default", "custom"),
        ("aten.zeros.default", "other"),
        ("aten.embedding.default", "copy/cast"),
    ],
)
def test_ops_are_coloured_by_family(look, op, expected):
    nodes = [
        Node("x", "placeholder", "input"),
        Node("y", "call_function", op, (Ref("x"),)),
    ]

    seen = look(to_dot(graph(nodes, "y")))

    assert op_category(nodes[1]) == expected
    box = seen.box(op.removesuffix(".default"))
    assert (box["color"], box["fillcolor"]) == CATEGORY_PAINTS[expected]
    assert expected in seen.boxes, "the legend lacks the family"


def test_the_body_of_a_higher_order_op_is_a_cluster(look):
    subject = Graph.from_text("""torchgraph 1

forward @ aot {
  body: forward {
    %y = input : f32[2]
    %cos = aten.cos.default(%y) : f32[2]
    return %cos
  }
  %x = input : f32[2]
  %wrap = higher_order.wrap(@body, %x) : f32[2]
  return %wrap
}
""")

    seen = look(to_dot(subject))

    assert seen.clusters["@body of higher_order.wrap"] == {
        "y\nf32[2]",
        "aten.cos",
        "return",
    }
    assert seen.has_edge("higher_order.wrap", "y")


def test_long_residual_is_a_line_of_its_user(look):
    nodes = chain(40)
    add = Node("sum", "call_function", "aten.add.Tensor", (Ref("op39"), Ref("op2")))

    seen = look(to_dot(graph([*nodes, add], "sum")))

    assert not seen.has_edge("aten.op2", "aten.add.Tensor")
    assert "aten.add.Tensor\nfrom op2 f32[2]" in seen.boxes
    assert seen.has_edge("aten.op39", "aten.add.Tensor")


def test_saved_value_is_a_line_of_each_reader(look):
    nodes = [
        Node("mask", "placeholder", "saved", result=tensor(2)),
        Node("grad", "placeholder", "tangent", result=tensor(2)),
        Node("m1", "call_function", "aten.mul.Tensor", (Ref("grad"), Ref("mask"))),
        Node("m2", "call_function", "aten.mul.Scalar", (Ref("m1"), Ref("mask"))),
    ]

    seen = look(to_dot(graph(nodes, "m2", kind="backward")))

    assert "aten.mul.Tensor\nsaved mask f32[2]" in seen.boxes
    assert "aten.mul.Scalar\nsaved mask f32[2]" in seen.boxes


def test_only_the_last_of_many_results_has_an_edge_to_the_return(look):
    nodes = chain(9)

    seen = look(to_dot(graph(nodes, *(f"op{i}" for i in range(9)))))

    assert [tail for tail, head, _ in seen.edges if head == "return"] == ["aten.op8"]
    assert "%op4" in seen.box("return")["tooltip"]


@pytest.mark.parametrize(
    ("kind", "line"),
    [
        ("random", "draws random numbers"),
        ("communicates", "communicates"),
        ("syncs", "waits for the device"),
        ("opaque", "has unknown effects"),
        ("mutates", "mutates x"),
    ],
)
def test_effects_are_drawn_as_lines(look, kind, line):
    effect = Effect(kind, Ref("x") if kind == "mutates" else None)
    nodes = [*chain(1)]
    nodes[1] = replace(nodes[1], effects=(effect, effect))

    assert f"aten.op0\n{line}" in look(to_dot(graph(nodes, "op0"))).boxes


def test_wrapper_has_the_family_of_the_wrapped_op():
    wrapped = (Atom("mylib.scale.default"), Ref("x"))

    node = Node("y", "call_function", "higher_order.auto_functionalized_v2", wrapped)

    assert op_category(node) == "custom"


def test_ops_on_parameters_only_are_drawn_in_their_module(look):
    """A BatchNorm's batch counter, for example, would stretch its module's cluster."""
    nodes = chain(20, module="stem")
    nodes.append(Node("n", "placeholder", "buffer", result=tensor(1)))
    nodes.append(Node("count", "call_function", "aten.add.Tensor", (Ref("n"), 1), module="head"))
    nodes.append(Node("last", "call_function", "aten.last", (Ref("op19"),), module="head"))

    seen = look(to_dot(graph(nodes, "last", "count")))

    heights = [float(seen.box(name)["pos"].split(",")[1]) for name in ("aten.op19", "aten.add")]
    assert heights[1] < heights[0] + 100


def test_an_empty_graph_can_be_drawn(look):
    assert look(to_dot(Graph(()))).count == 0


def test_a_very_deep_module_path_does_not_exhaust_the_stack(look):
    nodes = chain(60)
    nodes[1:] = [replace(n, module=".".join("m" * i)) for i, n in enumerate(nodes[1:], 1)]

    assert look(to_dot(graph(nodes, "op59"))).has_edge("aten.op58", "aten.op59")


# -- escaping --------------------------------------------------------------------------------------


@pytest.mark.parametrize("text", ["a\x00b", "a\nb", "a\u202eb", "a\ud800b"])
def test_unprintable_characters_are_replaced(look, text):
    nodes = [Node("x", "placeholder", "input"), Node("y", "call_function", text, (Ref("x"),))]

    assert "a\N{REPLACEMENT CHARACTER}b" in look(to_dot(graph(nodes, "y"))).boxes


def test_empty_line_before_another_does_not_crash_graphviz(look):
    nodes = [Node("x", "placeholder", "input"), Node("y", "call_function", "", (Ref("x"), 3))]

    assert " \n(·, 3)" in look(to_dot(graph(nodes, "y"))).boxes


def test_long_text_is_cut_and_keeps_both_ends(look):
    op = "mylib.first_" + "x" * 500 + "_last.default"
    nodes = [Node("x", "placeholder", "input"), Node("y", "call_function", op, (Ref("x"),))]

    (shown,) = (text for text in look(to_dot(graph(nodes, "y"))).boxes if "mylib" in text)

    assert len(shown) <= 40
    assert shown.startswith("mylib.first_")
    assert shown.endswith("_last")


def test_clusters_have_the_class_of_their_module_if_known() -> None:
    text = """torchgraph 1

forward @ aot {
  %x = input : f32[2]
  %net.act/relu = aten.relu.default(%x) : f32[2]
  %net.act/neg = aten.neg.default(%net.act/relu) : f32[2]
  %net/exp = aten.exp.default(%net.act/neg) : f32[2]
  return %net/exp
}
"""
    known = replace(Graph.from_text(text), classes={"net": "Net", "net.act": "Act<script>"})
    source = known.to_dot().source
    assert "net · Net" in source
    assert "net.act · Act" in source
    assert "·" not in Graph.from_text(text).to_dot().source
    assert known == Graph.from_text(known.to_text())
