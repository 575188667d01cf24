"""Names of graphs of one kind."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import replace

from .model import Graph, GraphKind


def numbered(
    graphs: Iterable[Graph], classes: Mapping[str, str] | None = None
) -> tuple[Graph, ...]:
    """Graphs of one kind told apart by a number, where there are several.

    Args:
        classes: see `Graph.classes`.
    """
    graphs = list(graphs)
    many = Counter(graph.kind for graph in graphs)
    seen: Counter[GraphKind] = Counter()
    named: list[Graph] = []
    for graph in graphs:
        name = graph.kind if many[graph.kind] == 1 else f"{graph.kind}_{seen[graph.kind]}"
        seen[graph.kind] += 1
        named.append(replace(graph, name=name, classes=classes or {}))
    return tuple(named)
