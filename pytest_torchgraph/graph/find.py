"""The nodes of graphs that a pattern for ops matches."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ..ops.names import matches
from ..ops.patterns import pattern_name, refuse_impossible
from .model import Graph, Node
from .ops import calls


def find(graphs: Sequence[Graph], op: Any) -> tuple[Node, ...]:
    """The nodes that a pattern matches, in all graphs and their bodies.

    Raises:
        ValueError: if nothing matches and nothing could.
    """
    pattern = pattern_name(op)
    found = tuple(node for node in calls(graphs) if matches(node.op, pattern))
    if not found and "getitem" in pattern:
        found = tuple(
            node
            for top in graphs
            for graph in top.walk()
            for node in graph.nodes
            if node.is_call and matches(node.op, pattern)
        )
    if not found:
        refuse_impossible(pattern, (graph.level for graph in graphs))
    return found
