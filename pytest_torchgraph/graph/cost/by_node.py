"""Costs of single nodes of a graph. Only FLOPs import torch."""

from __future__ import annotations

from ...ops.matching import FLOP_LEVELS, SAVING_LEVELS
from ..model import Graph
from .storages import owners_of_saved, storage_bytes_if_known


def flops_by_node(graph: Graph) -> dict[str, int | None]:
    """Return the floating-point operations of each call, by node name.

    The value is `None` if torch has no formula for an op that does work, or if a size is a symbol.
    A higher-order op has the FLOPs of its bodies.

    Raises:
        CaptureError: for a graph of torch functions; see `Graph.flops`.
    """
    from .flops import flops_if_known, flops_of  # with torch, which nothing else here needs

    if graph.level not in FLOP_LEVELS:
        flops_of(graph)  # raises with the reason
    return {node.name: flops_if_known(graph, node) for node in graph.nodes if node.is_call}


def saved_by_node(graph: Graph) -> dict[str, int | None] | None:
    """Return the bytes saved for the backward, by the name of the op that allocated the storage.

    A value is `None` if a size is a symbol. The result is `None` if the graph does not record its
    saved values.
    """
    if graph.level not in SAVING_LEVELS:
        return None
    return {node.name: storage_bytes_if_known(node, graph) for node in owners_of_saved(graph)}
