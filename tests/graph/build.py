"""Small graphs written as text, and helpers for graphs that several tests share."""

from __future__ import annotations

import sys
import textwrap
from collections.abc import Callable
from dataclasses import replace
from typing import Any

from pytest_torchgraph.graph import Graph, GraphDiff, TensorMeta, diff_graphs

INPUTS = """
%x = input : f32[2, 3]
%y = input : f32[2, 3]
"""


def document(body: str, title: str = "forward @ aot") -> str:
    """Return a `.tgraph` text with one graph of these lines."""
    lines = textwrap.dedent(body).strip("\n")
    return f"torchgraph 1\n\n{title} {{\n{textwrap.indent(lines, '  ')}\n}}\n"


def written(body: str, title: str = "forward @ aot") -> str:
    """Like `document`, in the version that this release writes."""
    return document(body, title).replace("torchgraph 1\n", "torchgraph 4\n", 1)


def graph(body: str, title: str = "forward @ aot", inputs: str = INPUTS) -> Graph:
    """Return a graph of these lines, preceded by inputs, by default %x and %y."""
    lines = "\n".join([textwrap.dedent(part).strip("\n") for part in (inputs, body)])
    return Graph.from_text(document(lines, title))


def difference(before: Graph, after: Graph) -> GraphDiff:
    return diff_graphs([before], [after])


def shown(graph: Graph, *, full: bool) -> Any:
    """Return everything that the text must preserve. -0.0, 0.0, True and 1 differ in it."""

    def meta(value: Any) -> Any:
        if isinstance(value, TensorMeta) and not full:
            return replace(value, stride=None, device=None)
        return tuple(map(meta, value)) if isinstance(value, tuple) else value

    nodes = [
        (
            *(node.name, node.kind, node.op, node.target, node.effects, node.after),
            *(repr(node.args), repr(dict(node.kwargs)), repr(meta(node.result))),
            node.module if full else "",
        )
        for node in graph.nodes
    ]
    bodies = [shown(sub, full=full) for sub in graph.subgraphs]
    ran = (graph.eager, graph.runs)
    return graph.name, graph.kind, graph.level, ran, graph.saved, nodes, bodies


def calls(function: Callable[[], object]) -> int:
    """Return the number of function calls, as a measure of work without a clock."""
    count = 0

    def profile(frame: object, event: str, arg: object) -> None:
        nonlocal count
        count += event in ("call", "c_call")

    before = sys.getprofile()
    sys.setprofile(profile)
    try:
        function()
    finally:
        sys.setprofile(before)
    return count
