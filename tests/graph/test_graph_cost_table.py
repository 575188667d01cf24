"""Tables of the costs of nodes and modules."""

from __future__ import annotations

import random
import re

import pytest
from graph.build import graph

from pytest_torchgraph import CaptureError, Graph
from pytest_torchgraph.graph import (
    by_module,
    cost_table,
    flops_by_node,
    format_cost_table,
    saved_by_node,
)
from pytest_torchgraph.graph.cost.table import CostRow

INPUTS = """
%x = input : f32[2, 4]
%w = parameter : f32[4, 8]
"""
FORWARD = graph(
    """
    %up/mm = aten.mm.default(%x, %w) : f32[2, 8]
    %up.act/relu = aten.relu.default(%up/mm) : f32[2, 8]
    return %up.act/relu
    save %up.act/relu
    """,
    inputs=INPUTS,
)
BACKWARD = graph(
    """
    %up/mm.1 = aten.mm.default(%x, %w) : f32[2, 8]
    %mm = aten.mm.default(%x, %w) : f32[2, 8]
    return [%up/mm.1, %mm]
    """,
    "backward @ aot",
    INPUTS,
)
MM = 2 * 2 * 4 * 8


def printed(graphs: list[Graph], depth: int | None = None) -> str:
    return format_cost_table(graphs, by_module(graphs, depth), depth)


def rows_of(graph: Graph, depth: int | None = None) -> list[CostRow]:
    return [*cost_table([graph], by_module([graph], depth), depth).rows]


def cells(table: str) -> list[list[str]]:
    """Return the cells of a table without empty cells, and without the rule."""
    head, rule, *rows = table.splitlines()
    assert set(rule) == {"-", " "}
    return [re.split(r"\s{2,}", row.strip()) for row in (head, *rows)]


def test_node_cost_table_has_the_costs_of_each_node() -> None:
    head, _, *rows = FORWARD.to_table(cost=True).splitlines()
    assert head.split() == "opcode name target FLOPs saved bytes args kwargs".split()
    at = head.index("FLOPs")
    costs = {row.split()[1]: row[at : head.index("args")].split() for row in rows}
    assert costs == {
        **{"x": [], "w": [], "output": []},
        **{"up/mm": [str(MM)], "up.act/relu": ["64"]},
    }
    assert "FLOPs" not in FORWARD.to_table()


def test_node_cost_table_shows_unknown_costs_as_question_marks() -> None:
    parsed = graph(
        """
        %dynamic = aten.mm.default(%x, %y) : f32[s0, 8]
        %custom = my.op.default(%x) : f32[2, 3]
        %relu = aten.relu.default(%dynamic) : f32[s0, 8]
        return %relu
        save %relu
        """,
        inputs="%x = input : f32[s0, 4]\n%y = input : f32[4, 8]",
    )
    assert flops_by_node(parsed) == {"dynamic": None, "custom": None, "relu": 0}
    assert saved_by_node(parsed) == {"relu": None}
    assert parsed.to_table(cost=True).count("?") == 3


def test_node_cost_table_without_known_costs() -> None:
    with pytest.raises(CaptureError, match="unknown in a graph at level 'dynamo'"):
        graph("%a = torch.relu(%x) : f32[2, 3]\nreturn %a", "forward @ dynamo").to_table(cost=True)
    exported = graph("%a = aten.relu.default(%x) : f32[2, 3]\nreturn %a", "forward @ export")
    assert "saved bytes" not in exported.to_table(cost=True)
    assert "saved bytes" not in printed([exported])


def test_node_flops_of_a_body_count_at_each_call() -> None:
    parsed = graph(
        """
        body: forward {
          %a = input : f32[2, 2]
          %mm = aten.mm.default(%a, %a) : f32[2, 2]
          return %mm
        }
        %x = input : f32[2, 2]
        %p = higher_order.invoke_subgraph(@body, "body", %x) : f32[2, 2]
        %q = higher_order.invoke_subgraph(@body, "body", %p) : f32[2, 2]
        return %q
        """,
        inputs="",
    )
    assert flops_by_node(parsed) == {"p": 16, "q": 16}


def test_cost_table_has_both_directions_and_includes_submodules() -> None:
    assert cells(printed([FORWARD, BACKWARD])) == [
        ["module", "forward FLOPs", "backward FLOPs", "FLOPs", "%", "saved bytes"],
        ["(all)", str(MM), str(2 * MM), str(3 * MM), "100.0", "64"],
        ["up", str(MM), str(MM), str(2 * MM), "66.7", "64"],
        ["up.act", "0", "0", "0", "0.0", "64"],
    ]
    assert cells(printed([FORWARD], depth=1)) == [
        ["module", "FLOPs", "%", "saved bytes"],
        ["(all)", str(MM), "100.0", "64"],
        ["up", str(MM), "100.0", "64"],
    ]
    assert len(cells(printed([FORWARD, BACKWARD], depth=0))) == 2
    with pytest.raises(ValueError, match="depth=-1 is not a valid module depth"):
        printed([FORWARD], depth=-1)


def test_cost_table_skips_modules_with_a_single_submodule_and_sorts_by_number() -> None:
    body = "\n".join(
        f"%net.h.{n}.mlp.fc/mm = aten.mm.default(%x, %w) : f32[2, 8]" for n in (10, 2, 1)
    )
    rows = rows_of(graph(f"{body}\nreturn %net.h.1.mlp.fc/mm", inputs=INPUTS))
    assert [(row.nesting, row.module) for row in rows] == [
        *((0, ""), (1, "net.h")),
        *((2, f"net.h.{n}.mlp.fc") for n in (1, 2, 10)),
    ]


def test_cost_table_names_ops_without_a_formula() -> None:
    parsed = graph("%a = my.op.default(%x) : f32[2, 3]\nreturn %a")
    assert printed([parsed]).endswith("\nnot counted, because torch has no formula: my.op.default")


@pytest.mark.slow(
    "further cases; a few are in every run", unless=["*5", "*2", "*1", "10", "18", "3", "4"]
)
@pytest.mark.parametrize("seed", range(20))
def test_costs_of_nodes_and_modules_add_up_to_the_total(seed: int) -> None:
    parsed = random_graph(seed)
    whole = parsed.flops
    kept = by_module([parsed], 0)[""].saved_bytes
    assert whole
    assert kept
    assert sum(value or 0 for value in flops_by_node(parsed).values()) == whole
    assert sum(value or 0 for value in (saved_by_node(parsed) or {}).values()) == kept
    for depth in (None, 0, 1, 2, 3):
        costs = by_module([parsed], depth).values()
        assert sum(cost.flops or 0 for cost in costs) == whole
        assert sum(cost.saved_bytes or 0 for cost in costs) == kept
        rows = rows_of(parsed, depth)
        assert (rows[0].total, rows[0].saved_bytes) == (whole, kept)
        outermost = [row for row in rows if row.nesting == 1]
        direct = by_module([parsed], depth).get("")
        assert whole == sum(row.total for row in outermost) + ((direct and direct.flops) or 0)


def random_graph(seed: int) -> Graph:
    """Draw products in modules at several depths, some of them saved, some through a view."""
    rng = random.Random(seed)
    lines, last, saved = [], "x", []
    for number in range(30):
        module = ".".join(rng.choice("ab01") for _ in range(rng.randrange(4)))
        name = f"{module}/n{number}" if module else f"n{number}"
        op = rng.choice(
            ["aten.mm.default(%{}, %w)", "aten.relu.default(%{})", "aten.t.default(%{})"]
        )
        if number == 0:
            op = "aten.mm.default(%{}, %w)"
        lines.append(f"%{name} = {op.format(last)} : f32[4, 4]")
        if number == 0 or rng.random() < 0.4:
            saved.append(f"save %{name}")
        last = name
    inputs = "%x = input : f32[4, 4]\n%w = parameter : f32[4, 4]"
    return graph("\n".join([*lines, f"return %{last}", *saved]), inputs=inputs)
