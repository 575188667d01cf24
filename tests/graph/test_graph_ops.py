"""Counting ops by overload, by packet and by pattern. Only ops are counted."""

from __future__ import annotations

import copy
import pickle

import pytest
from graph.build import document, graph

from pytest_torchgraph import OpCounts
from pytest_torchgraph.graph import Graph
from pytest_torchgraph.graph.census import count_ops
from pytest_torchgraph.ops import base_name, matches

SAMPLE = graph(
    """
    %a = aten.add.Tensor(%x, %y)
    %b = aten.add.Tensor(%a, %y)
    %c = aten.add.Scalar(%b, 1)
    %d = aten.addmm.default(%c, %c, %c)
    %e = aten.topk.default(%d, 2) : (f32[2], i64[2])
    %f = operator.getitem(%e, 0) : f32[2]
    %g = operator.getitem(%f, 0) : f32[]
    %h = aten.add_.Tensor(%g, 1) !mutates %g
    return %h
    """
)


def test_op_counts_are_by_overload_and_add_up_by_packet() -> None:
    counts = SAMPLE.op_counts
    assert counts["aten.add.Tensor"] == 2
    assert counts["aten.add.Scalar"] == 1
    assert counts["aten.add"] == 3
    assert counts["aten.addmm"] == 1
    assert counts["aten.add*"] == 5
    assert counts["aten.add.*"] == 3
    assert counts["aten.add_"] == 1
    assert counts["*"] == sum(counts.values()) == 7


def test_op_counts_key_error_lists_the_ops_that_occur() -> None:
    with pytest.raises(KeyError) as caught:
        SAMPLE.op_counts["aten.mm"]
    assert caught.value.args == (
        "'aten.mm' does not occur; ops: aten.add.Scalar, aten.add.Tensor, aten.add_.Tensor, "
        "aten.addmm.default, aten.topk.default, operator.getitem",
    )
    with pytest.raises(KeyError, match="ops: none"):
        OpCounts()["aten.mm"]
    assert "aten.mm" not in SAMPLE.op_counts
    assert "aten.add" not in SAMPLE.op_counts, "membership is by full name"


def test_op_counts_lookup_does_not_change_them() -> None:
    counts = SAMPLE.op_counts
    before = dict(counts)
    with pytest.raises(KeyError):
        counts["aten.mm"]
    assert counts["aten.add"] == 3
    assert dict(counts) == before


def test_op_counts_include_tensor_indexing_but_no_projection() -> None:
    assert SAMPLE.op_counts["operator.getitem"] == 1


def test_op_counts_exclude_inputs_attributes_and_outputs() -> None:
    g = graph('%t = get_attr["w"]\n%m = torch.nn.ReLU["act"](%t)\nreturn %m')
    assert dict(g.op_counts) == {"torch.nn.ReLU": 1}


def test_op_counts_include_nested_bodies() -> None:
    g = Graph.from_text(
        document(
            """
            b: forward {
              c: forward {
                %q = input
                %r = aten.sin.default(%q)
                return %r
              }
              %p = input
              %s = aten.sin.default(%p)
              %t = higher_order.wrap(@c, %s)
              return %t
            }
            %x = input
            %h = higher_order.cond(@b, %x)
            return %h
            """
        )
    )
    assert dict(g.op_counts) == {
        "aten.sin.default": 2,
        "higher_order.wrap": 1,
        "higher_order.cond": 1,
    }


def test_op_counts_of_several_graphs_add_up_and_can_be_copied() -> None:
    counts = count_ops([SAMPLE, SAMPLE])
    assert counts["aten.add"] == 6
    for again in (pickle.loads(pickle.dumps(counts)), copy.copy(counts), copy.deepcopy(counts)):
        assert again == counts
        assert type(again) is OpCounts
        assert again["aten.add"] == 6


@pytest.mark.parametrize(
    ("op", "pattern", "expected"),
    [
        ("aten.mm.default", "aten.mm", True),
        ("aten.mm.default", "aten.mm.default", True),
        ("aten.mm.default", "aten.mm.out", False),
        ("aten.mm.default", "aten", False),
        ("aten.mm.default", "mm", False),
        ("aten.mm_scaled.default", "aten.mm", False),
        ("aten.add.Tensor", "aten.add.*", True),
        ("aten.addmm.default", "aten.add.*", False),
        ("aten.addmm.default", "aten.add*", True),
        ("aten.add_.Tensor", "aten.add?.Tensor", True),
        ("aten.add.Tensor", "aten.add?.Tensor", False),
        ("aten.Add.Tensor", "aten.add*", False),
        ("torch.relu", "torch.relu", True),
        ("torch.relu", "torch", True),
        ("operator.getitem", "*.getitem", True),
        ("aten.mm.default", "aten.mm.", False),
        ("aten.sub_.Tensor", "aten.*_", True),
        ("aten.sub.Tensor", "aten.*_", False),
        ("aten.addmm.default", "aten.*mm", True),
        ("torch.relu", "*rch", False),
        ("operator.add", "oper*or", False),
    ],
)
def test_op_pattern_is_an_overload_a_packet_or_a_glob(
    op: str, pattern: str, expected: bool
) -> None:
    assert matches(op, pattern) is expected


@pytest.mark.parametrize(
    ("op", "name"),
    [
        ("aten.mm.default", "mm"),
        ("aten.add_.Tensor", "add_"),
        ("aten.sum.dim_IntList", "sum"),
        ("mylib.twice.default", "twice"),
        ("package.module.function", "function"),
        ("torch.nn.functional.relu", "relu"),
        ("torch.relu", "relu"),
        ("operator.add", "add"),
        ("Tensor.view", "view"),
        ("torch.nn.Linear", "Linear"),
        ("higher_order.cond", "cond"),
    ],
)
def test_base_name_of_an_op(op: str, name: str) -> None:
    assert base_name(op) == name
