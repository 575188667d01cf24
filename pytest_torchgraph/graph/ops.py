"""The ops of graphs: their calls, and how often each op occurs."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import replace

from ..ops.names import OpCounts
from .model import Atom, Graph, Node, is_projection

RUNS_IN_A_STATE = {
    "higher_order.run_and_save_rng_state": 0,
    "higher_order.run_with_rng_state": 1,
    "higher_order.graphsafe_run_with_rng_state": 0,
}
"""Ops that run another one in a state of the random generator, by the position where it stands."""


def run_by(node: Node) -> Node:
    """The call that a call makes: of an op that runs another one in a state, that of the other."""
    place = RUNS_IN_A_STATE.get(node.op)
    run = None if place is None else next(iter(node.args[place : place + 1]), None)
    if place is None or not isinstance(run, Atom):
        return node
    kwargs = {name: arg for name, arg in node.kwargs.items() if name != "rng_state"}
    return replace(node, op=run.name, args=node.args[place + 1 :], kwargs=kwargs)


def op_of(node: Node) -> str:
    """The op that a call runs; see `run_by`."""
    return run_by(node).op if node.op in RUNS_IN_A_STATE else node.op


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
    for op, count in Counter(op_of(node) for node in calls(graphs)).items():
        counts[op] = count
    return counts
