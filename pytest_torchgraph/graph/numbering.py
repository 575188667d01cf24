"""Names of the graphs of one capture: their kinds, numbered where there are several."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import replace

from .model import Graph, GraphKind
from .module_paths import OwnModule
from .savers import with_savers


def numbered(
    graphs: Iterable[Graph],
    classes: Mapping[str, str] | None = None,
    own_modules: Mapping[str, OwnModule] | None = None,
) -> tuple[Graph, ...]:
    """The graphs named after their kinds: `forward`, or `forward_0`, `forward_1` of several.

    Each backward knows the forward that saved its inputs.

    Args:
        classes, own_modules: see `Graph`.
    """
    graphs = list(graphs)
    totals = Counter(graph.kind for graph in graphs)
    used: Counter[GraphKind] = Counter()
    named: list[Graph] = []
    for graph in graphs:
        name = graph.kind if totals[graph.kind] == 1 else f"{graph.kind}_{used[graph.kind]}"
        used[graph.kind] += 1
        own = own_modules or {}
        named.append(replace(graph, name=name, classes=classes or {}, own_modules=own))
    return with_savers(named)
