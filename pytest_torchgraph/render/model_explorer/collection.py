"""The graphs of one file, as a collection of model-explorer."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence

from ...graph.model import Graph, Node
from ..look.change_marks import CHANGE_PAINTS
from ..look.op_categories import CATEGORY_PAINTS, Paint, op_category
from .explorer_nodes import ExplorerSide, Json, namespace, nodes_json


def collection(
    graphs: Sequence[Graph],
    label: str,
    side: ExplorerSide | None = None,
    about: Mapping[str, str] | None = None,
) -> Json:
    """The graphs of a file, with the bodies of their higher-order ops.

    Args:
        graphs: the graphs.
        label: the name of the collection.
        side: how they are written; None for each op in the colours of its category.
        about: what the side panel says of every graph.
    """
    side = side or ExplorerSide(_category_paint)
    named = [pair for graph in graphs for pair in with_ids(graph, side.prefix)]
    return {"label": label, "subgraphs": [_graph(*pair, side, about or {}) for pair in named]}


def with_ids(graph: Graph, prefix: str = "") -> Iterator[tuple[str, Graph]]:
    """A graph and its bodies with their ids, which begin with the prefix."""
    own = f"{prefix}{graph.name}"
    yield own, graph
    for sub in graph.subgraphs:
        yield from with_ids(sub, f"{own}/")


def _category_paint(node: Node) -> Paint | None:
    return None if node.kind == "output" else CATEGORY_PAINTS[op_category(node)]


def _graph(own: str, graph: Graph, side: ExplorerSide, about: Mapping[str, str]) -> Json:
    bodies = {sub.name: f"{own}/{sub.name}" for sub in graph.subgraphs}
    return {
        "id": own,
        "nodes": nodes_json(graph, side, bodies),
        "groupNodeAttributes": {"": {**_facts(graph), **about}},
        "groupNodeConfigs": _changed_groups(graph, side),
    }


def _facts(graph: Graph) -> dict[str, str]:
    facts = {
        "graph": graph.name,
        "kind": f"eager {graph.kind}" if graph.eager else graph.kind,
        "level": graph.level,
        "ops": f"{sum(1 for node in graph.nodes if node.is_call):,}",
    }
    if graph.saved:
        facts["saved for the backward"] = f"{len(graph.saved):,} values"
    if graph.eager:
        facts["runs"] = f"{graph.runs:,}"
    return facts


def _changed_groups(graph: Graph, side: ExplorerSide) -> list[Json]:
    """The colours of the modules that a changed node is in, so that they show while closed."""
    kinds: dict[str, Counter[str]] = {}
    for node in graph.nodes:
        mark = side.marked.get(id(node))
        if mark is None or not mark.kind:
            continue
        for path in enclosing(namespace(node)):
            kinds.setdefault(path, Counter())[mark.kind] += 1
    by_kind: dict[str, list[str]] = {}
    for path, counts in kinds.items():
        kind = next(iter(counts)) if len(counts) == 1 else "changed"
        by_kind.setdefault(kind, []).append(path.replace(r"\/", "/"))
    return [
        {
            "namespaceRegex": f"^(?:{'|'.join(map(re.escape, paths))})$",
            "borderColor": CHANGE_PAINTS[kind].border,
        }
        for kind, paths in by_kind.items()
    ]


def enclosing(path: str) -> Iterator[str]:
    """A namespace and those around it, the innermost first."""
    parts = re.split(r"(?<!\\)/", path) if path else []
    for end in range(len(parts), 0, -1):
        yield "/".join(parts[:end])
