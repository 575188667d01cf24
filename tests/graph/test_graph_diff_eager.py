"""The difference of captures with eager graphs: how they are paired and reported."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from graph.build import graph

from pytest_torchgraph.graph import Graph, GraphBreak, GraphDiff, diff_graphs


def ops(*names: str, title: str = "forward @ dispatch", **changes: Any) -> Graph:
    """Return a chain of these ops."""
    lines, last = [], "x"
    for number, name in enumerate(names):
        lines.append(f"%n{number} = aten.{name}.default(%{last}) : f32[2, 3]")
        last = f"n{number}"
    return replace(graph("\n".join([*lines, f"return %{last}"]), title), **changes)


def step(*parts: Graph | tuple[str, ...]) -> list[Graph]:
    """Return the graphs of a capture: compiled ones unchanged, eager ones from their op names."""
    program, number = [], 0
    for part in parts:
        if isinstance(part, tuple):
            part = ops(*part, eager=True)
        if part.eager:
            part = replace(part, name=f"eager_{number}")
            number += 1
        program.append(part)
    return program


def compiled(name: str, *names: str) -> Graph:
    return ops(*names, title=f"{name}: forward @ aot")


A, B, C, D = ("sin", "cos"), ("neg",), ("exp", "log", "abs"), ("tanh", "erf")


def said(diff: GraphDiff) -> list[str]:
    return [finding.to_text().splitlines()[0] for finding in diff.findings]


def paired(diff: GraphDiff) -> list[tuple[str | None, str | None]]:
    return [
        (pair.before and pair.before.name, pair.after and pair.after.name) for pair in diff.graphs
    ]


def test_added_eager_graph_has_the_line_of_its_graph_break() -> None:
    cause = GraphBreak(
        *("Builtin call", "print", "", "model.py", 31, "  print(x)", "forward", (), "", "0/0")
    )
    diff = diff_graphs(step(A), step(A, ops("neg", eager=True, cause=cause)))

    assert said(diff) == ["+ eager graph 'eager_1' added (1 op), at model.py:31: print(x)"]


def test_many_edited_eager_graphs_are_paired_quickly() -> None:
    before = step(*[("sin", f"op{k}") for k in range(400)])
    after = step(*[("cos", f"op{k}") for k in range(401)])

    assert len(diff_graphs(before, after).graphs) == 401
