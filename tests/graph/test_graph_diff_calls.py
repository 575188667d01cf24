"""An edit of shared code is one edit, regardless of how often the code is called."""

from __future__ import annotations

from dataclasses import replace

from graph.build import difference, graph

from pytest_torchgraph.graph import Graph, Source


def at(g: Graph, lines: dict[str, tuple[str, int]], function: str = "") -> Graph:
    """Return the graph with source lines for the named nodes."""
    nodes = (
        replace(node, source=Source(*lines[node.name], function=function))
        if node.name in lines
        else node
        for node in g.nodes
    )
    return replace(g, nodes=tuple(nodes))


def test_an_edit_of_a_function_is_one_edit_wherever_it_is_called() -> None:
    def body(op: str, other: str) -> str:
        return f"""
            %left/sin = aten.sin(%x)
            %left/{op} = aten.{op}(%left/sin)
            %right/cos = aten.cos(%y)
            %right/{op} = aten.{op}(%right/cos)
            %head/exp = aten.exp(%right/{op})
            %head/{other} = aten.{other}(%head/exp)
            %sub = aten.sub(%left/{op}, %head/{other})
            return %sub
        """

    before = graph(body("gelu", "gelu"))
    after = graph(body("relu", "relu"))
    assert len(difference(before, after).findings) == 3
    lines = {"left/relu": ("act.py", 3), "right/relu": ("act.py", 3), "head/relu": ("net.py", 9)}
    diff = difference(before, at(after, lines, "act"))
    assert [[p.module for p in f.places] for f in diff.findings] == [["left", "right"], ["head"]]
    in_methods = difference(before, at(after, lines, "Net.forward"))
    assert len(in_methods.findings) == 3, "each class has a `forward` of its own"
