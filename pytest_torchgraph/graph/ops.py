"""The ops of graphs: their calls, and how often each op occurs."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable

from ..ops.names import OpCounts
from .model import Graph, Node, is_projection


def calls(graphs: Iterable[Graph]) -> Iterable[Node]:
    """The calls in graphs and their subgraphs, without projections (see `model.is_projection`)."""
    for top in graphs:
        for graph in top.walk():
            yield from (n for n in graph.nodes if n.is_call and not _projects(graph, n))


def _projects(graph: Graph, node: Node) -> bool:
    """`is_projection`, for a node of which the producer is still to be found."""
    return (
        node.op == "operator.getitem"
        and bool(node.refs)
        and is_projection(node, graph.by_name.get(node.refs[0]))
    )


def count_ops(graphs: Iterable[Graph]) -> OpCounts:
    """`OpCounts` over several graphs."""
    counts = OpCounts()
    for op, count in Counter(node.op for node in calls(graphs)).items():
        counts[op] = count
    return counts
