"""Measure how well the search finds a planted fault."""

from __future__ import annotations

import dataclasses

import torch

from pytest_torchgraph import capture
from pytest_torchgraph.graph import Divergence, Node

from .faults import MODELS, Fault


@dataclasses.dataclass(frozen=True)
class Answer:
    """The result for one fault.

    Attributes:
        stage: True if the stage is correct.
        holds: True if the region contains the planted op, and has at most 8 nodes or is the
            decomposition of one op.
        first: the first difference.
    """

    stage: bool
    holds: bool
    first: Divergence | None


def is_planted(fault: Fault, node: Node, first: Divergence, *, eager: bool) -> bool:
    """Return True for a node of the planted op, or only for the planted node if identified."""
    for op, number in fault.planted:
        if node.op != op:
            continue
        if number == -1 or eager or fault.stage == "passes":
            return True
        graph_nodes = () if first.drawn is None else first.drawn.nodes
        if [other.name for other in graph_nodes if other.op == op][number] == node.name:
            return True
    return False


def answer(fault: Fault) -> Answer:
    """Plant a fault and search for it."""
    target, args, kwargs = MODELS[fault.model]()
    torch.manual_seed(1)
    with fault.plant() as mechanism:
        first = capture(target, *args, via=mechanism, **kwargs).first_difference()
    if first is None:
        return Answer(False, False, None)
    kind = "backward" if fault.backward else "forward"
    is_in_graph = first.graph.startswith(kind) or first.graph == "inference"
    is_small = len(first.nodes) <= 8 or len(first.eager_nodes) == 1
    holds = any(is_planted(fault, n, first, eager=False) for n in first.nodes) or any(
        is_planted(fault, n, first, eager=True) for n in first.eager_nodes
    )
    return Answer(first.stage == fault.stage, holds and is_small and is_in_graph, first)
