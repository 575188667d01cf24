"""Costs of single nodes of a graph. Only FLOPs import torch."""

from __future__ import annotations

from ...errors import CaptureError
from ...ops.matching import FLOP_LEVELS, SAVING_LEVELS
from ..model import Graph, Node
from .step import owners_of_saved, storage_bytes


def flops_by_node(graph: Graph) -> dict[str, int | None]:
    """Return the floating-point operations of each call, by node name.

    The value is `None` if torch has no formula for an op that does work, or if a size is a symbol.
    A higher-order op has the FLOPs of its bodies.

    Raises:
        CaptureError: for a graph of torch functions; see `Graph.flops`.
    """
    from .flops import flops_of, flops_of_call  # with torch, which nothing else here needs

    def flops(node: Node) -> int | None:
        try:
            flops_of_node = flops_of_call(graph, node)
        except CaptureError:
            return None
        return None if flops_of_node.unknown else flops_of_node.total

    if graph.level not in FLOP_LEVELS:
        flops_of(graph)  # raises with the reason
    return {node.name: flops(node) for node in graph.nodes if node.is_call}


def saved_by_node(graph: Graph) -> dict[str, int | None] | None:
    """Return the bytes saved for the backward, by the name of the op that allocated the storage.

    A value is `None` if a size is a symbol. The result is `None` if the graph does not record its
    saved values.
    """
    if graph.level not in SAVING_LEVELS:
        return None
    return {node.name: _bytes(node, graph) for node in owners_of_saved(graph)}


def _bytes(node: Node, graph: Graph) -> int | None:
    try:
        return storage_bytes(node, graph)
    except CaptureError:
        return None
