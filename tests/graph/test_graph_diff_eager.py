"""The difference of captures with eager graphs. `differences/graphs.txt` has examples."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import pytest
from graph.build import graph

from pytest_torchgraph.graph import Graph, GraphBreak, diff_graphs


def step(*ops: Sequence[str]) -> list[Graph]:
    """Return an eager graph of two ops for each pair."""
    return [
        replace(
            graph(
                f"%a = aten.{first}.default(%x)\n%b = aten.{second}.default(%a)\nreturn %b",
                f"eager_{number}: forward @ dispatch",
            ),
            eager=True,
        )
        for number, (first, second) in enumerate(ops)
    ]


def test_added_eager_graph_has_the_line_of_its_graph_break() -> None:
    cause = GraphBreak(
        *("Builtin call", "print", "", "model.py", 31, "  print(x)", "forward", (), "", "0/0")
    )
    before, added = step(("sin", "cos"), ("neg", "exp"))
    (finding,) = diff_graphs([before], [before, replace(added, cause=cause)]).findings

    assert finding.to_text() == ("+ eager graph 'eager_1' added (2 ops), at model.py:31: print(x)")


@pytest.mark.slow("many graphs")
def test_many_edited_eager_graphs_are_paired_quickly() -> None:
    before = step(*[("sin", f"op{k}") for k in range(400)])
    after = step(*[("cos", f"op{k}") for k in range(401)])

    assert len(diff_graphs(before, after).graphs) == 401
