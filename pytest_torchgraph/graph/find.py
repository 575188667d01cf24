"""Finding the nodes of graphs whose op matches a pattern."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ..ops.names import matches
from ..ops.patterns import pattern_name, refuse_impossible
from .model import Graph, Node
from .ops import calls, op_of
from .select import Selection, nodes_of


def find(graphs: Sequence[Graph], op: Any, selected: Selection | None = None) -> tuple[Node, ...]:
    """The nodes whose op matches a pattern, in all graphs and their bodies.

    Projections (see `model.is_projection`) are found only by a pattern that names `getitem` and
    matches no other call.

    Args:
        op: see `ops.patterns.pattern_name`.
        selected: what the nodes have to be like besides; None for anything.

    Raises:
        ValueError: if no node matches, and none could at the level of these graphs; where there
            are compiled ones beside eager ones, at theirs.
    """
    pattern = pattern_name(op)
    found = tuple(node for node in calls(graphs) if matches(op_of(node), pattern))
    if not found and "getitem" in pattern:
        found = tuple(
            node for node in nodes_of(graphs) if node.is_call and matches(op_of(node), pattern)
        )
    if not found:
        compiled = [graph for graph in graphs if not graph.eager]
        levels = (graph.level for graph in compiled or graphs)
        refuse_impossible(op, levels, traced=any(graph.classes for graph in graphs))
    return tuple(node for node in found if node in selected) if selected else found
