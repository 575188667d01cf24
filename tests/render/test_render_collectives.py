"""Collectives in drawings: their group and bytes, and the distance to the wait."""

from __future__ import annotations

import pytest

from pytest_torchgraph import Graph
from pytest_torchgraph.graph import Node, Ref
from pytest_torchgraph.render import op_category, surplus_drawing, to_dot

TEXT = """torchgraph 1

forward @ aot {
  %x = input : f32[4, 8]
  %w = parameter : f32[2, 8]
  %gather = _c10d_functional.all_gather_into_tensor.default(%w, 4, "dp") : f32[8, 8]
  %mm = aten.mm.default(%x, %x) : f32[4, 8]
  %relu = aten.relu.default(%mm) : f32[4, 8]
  %gathered = _c10d_functional.wait_tensor.default(%gather) : f32[8, 8]
  %tanh = aten.tanh.default(%gathered) : f32[8, 8]
  %both = _c10d_functional.all_reduce_coalesced.default([%relu, %tanh], "sum", "tp") \
: (f32[4, 8], f32[8, 8])
  %both#0 = operator.getitem(%both, 0) : f32[4, 8]
  %both#1 = operator.getitem(%both, 1) : f32[8, 8]
  %one = _c10d_functional.wait_tensor.default(%both#0) : f32[4, 8]
  %sigmoid = aten.sigmoid.default(%one) : f32[4, 8]
  %two = _c10d_functional.wait_tensor.default(%both#1) : f32[8, 8]
  return [%sigmoid, %two]
}
"""
WAIT = "_c10d_functional.wait_tensor"


def lines_of(seen, op):
    (text,) = [text for text in seen.boxes if op in text]
    return text.split("\n")


def test_collective_box_has_the_group_the_bytes_and_the_wait(look):
    seen = look(to_dot(Graph.from_text(TEXT)))

    gather = lines_of(seen, "all_gather_into_tensor")
    assert gather[-2:] == ["all_gather over dp, 256 B", "waited for after 2 ops"]
    reduce = lines_of(seen, "all_reduce_coalesced")
    assert reduce[-2:] == ["all_reduce over tp, 384 B", "waited for at once"]


def test_each_of_several_sends_and_receives_has_a_line(look):
    text = TEXT.replace(
        "  return [%sigmoid, %two]",
        '  %p2p = _c10d_functional.batch_p2p_ops.default(["isend", "irecv"], [1, 3], [0, 0], '
        '[%mm, %one], "pp") : (f32[4, 8], f32[4, 8])\n  return %p2p',
    )
    (box,) = [text for text in look(to_dot(Graph.from_text(text))).boxes if "batch_p2p" in text]
    assert box.split("\n")[-2:] == ["send over pp, 128 B", "recv over pp, 128 B"]


def test_a_body_has_its_own_collectives(look):
    subject = Graph.from_text("""torchgraph 1

forward @ aot {
  body: forward {
    %y = input : f32[s0]
    %reduce = _c10d_functional.all_reduce.default(%y, "sum", "tp") : f32[s0]
    %wait = _c10d_functional.wait_tensor.default(%reduce) : f32[s0]
    return %wait
  }
  %x = input : f32[s0]
  %reduce = _c10d_functional.all_reduce.default(%x, "sum", "dp") : f32[s0]
  %call = higher_order.wrap(@body, %reduce) : f32[s0]
  return %call
}
""")
    texts = list(look(to_dot(subject)).boxes)
    assert sum("over tp, ? B" in text for text in texts) == 1
    assert sum("over dp, ? B" in text for text in texts) == 1
    assert sum("waited for at once" in text for text in texts) == 1


def test_graph_with_hidden_collectives_is_drawn(look):
    hidden = TEXT.replace("@ aot", "@ dynamo").replace("aten.relu.default", "Tensor.redistribute")
    seen = look(to_dot(Graph.from_text(hidden)))
    assert not any("over dp" in text for text in seen.boxes)
    assert any("Tensor.redistribute" in text for text in seen.boxes)


def test_collective_before_inductors_ordering_has_no_wait_label(look):
    seen = look(to_dot(Graph.from_text(TEXT.replace("@ aot", "@ post_grad"))))
    assert any("over dp, 256 B" in text for text in seen.boxes)
    assert not any("waited" in text for text in seen.boxes)


def test_surplus_collective_has_its_group(look):
    subject = Graph.from_text(TEXT)
    (box,) = [
        text
        for text in look(surplus_drawing([subject], [subject["gather"]]).digraph).boxes
        if "!" in text
    ]
    assert "all_gather_into_tensor" in box
    assert "all_gather over dp, 256 B" in box.split("\n")


@pytest.mark.parametrize(
    ("op", "expected"),
    [
        (f"{WAIT}.default", "collective"),
        ("c10d.send.default", "collective"),
        ("_dtensor.shard_dim_alltoall.default", "collective"),
        ("symm_mem.multimem_all_reduce_.default", "collective"),
        ("mylib.all_reduce.default", "collective"),
        ("aten.broadcast_to.default", "view"),
        ("Tensor.broadcast_to", "view"),
    ],
)
def test_communicating_ops_have_a_category(op, expected):
    assert op_category(Node("y", "call_function", op, (Ref("x"),))) == expected
