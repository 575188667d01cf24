"""Which forward graph saved the inputs of a backward."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from .model import Graph


def with_savers(graphs: Sequence[Graph]) -> tuple[Graph, ...]:
    """The graphs of a capture, each backward with the forward that saved its inputs.

    It is the forward of the same number, else the last one before it that has all values that the
    backward takes; `None` if no forward has them.
    """
    linked: list[Graph] = []
    forwards: dict[str, Graph] = {}
    for graph in graphs:
        if graph.kind == "backward" and not graph.eager:
            saved = {node.name for node in graph.inputs if node.op == "saved"}
            same_number = forwards.get(graph.name.replace("backward", "forward", 1))
            candidates = [same_number, *reversed(forwards.values())] if saved else []
            saver = next((f for f in candidates if f and saved <= f.by_name.keys()), None)
            graph = replace(graph, saver=saver)
        elif graph.kind == "forward" and not graph.eager:
            forwards[graph.name] = graph
        linked.append(graph)
    return tuple(linked)
