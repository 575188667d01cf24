"""Counts, patterns, FLOPs, bytes, equality and filters for each higher-order op of torch.

`docs/reference/higher_order_ops.md` has the same table in words.
"""

from __future__ import annotations

import functools
import importlib
import pkgutil
import re
from pathlib import Path

import pytest
import torch
import torch._higher_order_ops
from mechanisms.higher_order_rows import ROWS, without
from torch_releases import skip_before

from pytest_torchgraph import CaptureError, Graph
from pytest_torchgraph.graph import peak_bytes
from pytest_torchgraph.graph.higher_order import WRAPPERS

PAGE = Path(__file__).parents[2] / "docs" / "reference" / "higher_order_ops.md"
SHOWN = [name for name, row in ROWS.items() if not row.hides]
HIDING = [name for name, row in ROWS.items() if row.hides]
BY_HAND = [name for name, row in ROWS.items() if row.by_hand]


@functools.cache
def made(name: str, edit: bool = False) -> Graph:
    if name == "register_hook":
        skip_before("2.13", "Dynamo wraps the hook in an autograd.Function")
    return ROWS[name].make(edit)


def registered() -> set[str]:
    """Return this torch's higher-order ops, including those of modules not imported yet."""
    package = torch._higher_order_ops
    names = [each.name for each in pkgutil.iter_modules(package.__path__, f"{package.__name__}.")]
    names += ["torch._inductor.fx_passes.control_dependencies"]
    for name in names:
        importlib.import_module(name)
    return set(torch._ops._higher_order_ops)


def test_each_op_of_torch_has_a_row_in_the_table_and_on_the_page() -> None:
    if torch.__version__.startswith("2.13"):
        assert registered() == set(ROWS)
    first_cells = re.findall(r"^\| `(\w+)`", PAGE.read_text(), re.M)
    assert first_cells == [*ROWS]


@pytest.mark.slow("torch lowers it in a second", only=["flex_attention"])
@pytest.mark.parametrize("name", ROWS)
def test_graph_has_the_higher_order_op(name: str) -> None:
    graph = made(name)
    ops = {node.op for each in graph.walk() for node in each.nodes}
    named = {repr(arg) for each in graph.walk() for n in each.nodes for arg in n.args}
    assert f"higher_order.{name}" in ops or any(f"higher_order.{name}" in arg for arg in named)
    assert Graph.from_text(graph.to_text()) == graph


@pytest.mark.slow("compiles another graph", unless=BY_HAND)
@pytest.mark.parametrize("name", ROWS)
def test_a_changed_body_is_a_difference_unless_it_is_hidden(name: str) -> None:
    assert (made(name) == made(name, True)) == ROWS[name].hides


@pytest.mark.parametrize("name", SHOWN)
def test_ops_in_bodies_and_wrappers_are_counted_and_matched(name: str) -> None:
    graph, row = made(name), ROWS[name]
    for op, count in row.counts.items():
        if count:
            assert graph.count(op) == count == graph.op_counts[op]
            graph.assert_op_counts({op: count})
            with pytest.raises(AssertionError, match=f"{op}.*found {count}"):
                graph.assert_no_ops(op)
            assert len(graph.find(op)) <= count
        else:
            assert op in WRAPPERS
            assert op not in graph.op_counts
            assert {node.op for node in graph.find(op)} == {op}
            with pytest.raises(AssertionError, match=op):
                graph.assert_no_ops(op)
    op, dtype, other = row.found or (next(iter(row.counts)), "float32", "int64")
    assert graph.count(op, dtype=dtype) == graph.count(op) > 0
    assert graph.count(op, dtype=other) == 0
    graph.assert_no_ops(op, dtype=other)
    for pattern in row.patterns:
        graph.assert_pattern(pattern)
        with pytest.raises(AssertionError, match="expected none"):
            graph.assert_no_pattern(pattern)
    for pattern in row.absent:
        graph.assert_no_pattern(pattern)
        with pytest.raises(AssertionError, match="expected at least 1, found 0"):
            graph.assert_pattern(pattern)
    if row.is_plain:  # the operand is added, because it lives as long as the call
        assert peak_bytes((graph,)) == peak_bytes((without(False),)) + 4 * 4 * 4


@pytest.mark.parametrize("name", SHOWN)
def test_flops_are_counted_or_an_error_that_names_the_op(name: str) -> None:
    expected = ROWS[name].flops
    if name.startswith("flex_attention"):
        skip_before("2.13", "torch has no FLOP formula for flex attention")
    if isinstance(expected, int):
        assert made(name).flops == expected
    else:
        with pytest.raises(CaptureError, match=re.escape(expected)):
            _ = made(name).flops


@pytest.mark.parametrize("name", HIDING)
def test_questions_about_ops_that_are_hidden_are_refused(name: str) -> None:
    graph = made(name)
    message = rf"does not contain the ops that higher_order\.{name} runs"
    for question in (
        lambda: graph.count("aten.mm"),
        lambda: graph.assert_no_ops("aten.mm"),
        lambda: graph.assert_op_counts({"aten.cos": 1}),
        lambda: graph.assert_no_pattern("aten.cos ~> aten.mm"),
        lambda: graph.assert_order("aten.cos", "aten.tan"),
    ):
        with pytest.raises(CaptureError, match=message):
            question()
    with pytest.raises(CaptureError, match=f"higher_order.{name}"):
        _ = graph.flops
