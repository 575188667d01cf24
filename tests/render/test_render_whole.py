"""Drawings of whole graphs."""

from __future__ import annotations

from dataclasses import replace

import pytest

from pytest_torchgraph.graph import Atom, Graph, Node, Ref, Source, TensorMeta
from pytest_torchgraph.render import op_category, surplus_drawing, to_dot


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


def test_the_source_line_is_in_the_tooltip(look):
    nodes = chain(1)
    nodes[1] = replace(nodes[1], source=Source("model.py", 12, "y = op(x)", "forward"))

    seen = look(to_dot(graph(nodes, "x", "op0")))

    assert "%x" in seen.box("return")["tooltip"]
    tooltip = seen.box("aten.op0")["tooltip"]
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
        ("c10d.send.default", "collective"),
        ("_dtensor.shard_dim_alltoall.default", "collective"),
        ("symm_mem.multimem_all_reduce_.default", "collective"),
        ("mylib.all_reduce.default", "collective"),
        ("aten.broadcast_to.default", "view"),
        ("Tensor.broadcast_to", "view"),
        ("aten.native_dropout.default", "random"),
        ("aten.native_dropout_backward.default", "pointwise"),
        ("mylib.frobnicate.default", "custom"),
        ("mylib.mm.default", "custom"),
        ("aten.zeros.default", "other"),
        ("aten.embedding.default", "copy/cast"),
    ],
)
def test_op_is_of_a_family(op, expected):
    assert op_category(Node("y", "call_function", op, (Ref("x"),))) == expected


def test_long_residual_is_a_line_of_its_user(look):
    nodes = chain(40)
    add = Node("sum", "call_function", "aten.add.Tensor", (Ref("op39"), Ref("op2")))

    seen = look(to_dot(graph([*nodes, add], "sum")))

    assert not seen.has_edge("aten.op2", "aten.add.Tensor")
    assert "aten.add.Tensor\nfrom op2 f32[2]" in seen.boxes
    assert seen.has_edge("aten.op39", "aten.add.Tensor")


def test_surplus_collective_has_its_group(look):
    op = "_c10d_functional.all_gather_into_tensor.default"
    gather = Node("g", "call_function", op, (Ref("x"), 4, "dp"), result=tensor(8, 8))
    subject = graph([Node("x", "placeholder", "input", result=tensor(2, 8)), gather], "g")

    seen = look(surplus_drawing([subject], [gather]).digraph)

    assert "all_gather over dp, 256 B" in seen.box("! _c10d").get("label", "").split("\\n")


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
