"""Small graphs written as text, and what several tests ask of a graph."""

from __future__ import annotations

import textwrap
from dataclasses import replace
from typing import Any

from pytest_torchgraph.graph import Graph, GraphDiff, TensorMeta, diff_graphs

INPUTS = """
%x = input : f32[2, 3]
%y = input : f32[2, 3]
"""


def document(body: str, title: str = "forward @ aot") -> str:
    """A `.tgraph` text with one graph that has these lines."""
    lines = textwrap.dedent(body).strip("\n")
    return f"torchgraph 1\n\n{title} {{\n{textwrap.indent(lines, '  ')}\n}}\n"


def graph(body: str, title: str = "forward @ aot", inputs: str = INPUTS) -> Graph:
    """The graph that has these lines behind its inputs, by default %x and %y."""
    lines = "\n".join([textwrap.dedent(part).strip("\n") for part in (inputs, body)])
    return Graph.from_text(document(lines, title))


def difference(before: Graph, after: Graph) -> GraphDiff:
    """The difference of two graphs."""
    return diff_graphs([before], [after])


def shown(graph: Graph, *, full: bool) -> Any:
    """All that the text is to preserve, in a form that tells -0.0, 0.0, True and 1 apart."""

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
