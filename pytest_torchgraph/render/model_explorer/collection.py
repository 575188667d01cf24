"""Graphs of one file as a model-explorer collection, with costs and initial panes."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from ...graph.diff import GraphDiff, Pair
from ...graph.higher_order import body_names
from ...graph.model import Graph, Node, Result, TensorMeta
from ...graph.text import format_arg, format_node, format_result
from ..look import (
    CATEGORY_PAINTS,
    CHANGE_PAINTS,
    HEAT_PAINTS,
    SIGNS,
    UNITS,
    Heat,
    HeatFigure,
    Paint,
    clean,
    node_lines,
    op_category,
    op_label,
    value_label,
)

Json = dict[str, Any]
GROUP = "___group___"
"""Suffix that model-explorer appends to a namespace to get the id of its layer."""
SAVED_BORDER = "#C9184A"
"""Border colour of a value saved for backward."""


@dataclass(frozen=True, slots=True)
class ComparedNode:
    """Result of a comparison for one node.

    Attributes:
        kind: kind of change, as in `Change`; "" if unchanged.
        other: matching node of the other graph, or `None`.
        finding: heading of the edit that the change belongs to or follows from; "" for none.
    """

    kind: str = ""
    other: Node | None = None
    finding: str = ""


@dataclass(frozen=True)
class ExplorerSide:
    """Options for exporting the graphs of one file.

    Attributes:
        paint: returns the colours of a node; `None` for model-explorer's own colours.
        prefix: prefix of the graph ids, which must be unique among all loaded graphs.
        ids: node ids by node name, keyed by `id(graph)`. Other graphs use the node names as ids.
        marked: differences, keyed by `id(node)`.
        is_old: True for the first file of a comparison.
    """

    paint: Callable[[Node], Paint | None]
    prefix: str = ""
    ids: Mapping[int, Mapping[str, str]] = field(default_factory=dict)
    marked: Mapping[int, ComparedNode] = field(default_factory=dict)
    is_old: bool = False


def namespace(node: Node) -> str:
    """Return a node's module, or the module that owns a parameter, as a model-explorer path."""
    path = node.module
    if not path and node.op in ("parameter", "buffer"):
        path = (node.target or node.name).rpartition(".")[0]
    return "/".join(part.replace("/", r"\/") for part in path.split(".") if part)


def nodes_json(graph: Graph, side: ExplorerSide, bodies: Mapping[str, str]) -> list[Json]:
    """Return the nodes of a graph as JSON objects.

    Args:
        graph: the graph.
        side: export options.
        bodies: ids of the graph's subgraphs, keyed by name.
    """
    ids = side.ids.get(id(graph)) or {node.name: node.name for node in graph.nodes}
    saved = {ref.name for ref in graph.saved}
    return [_node(node, side, ids, bodies, saved=node.name in saved) for node in graph.nodes]


def _node(
    node: Node,
    side: ExplorerSide,
    ids: Mapping[str, str],
    bodies: Mapping[str, str],
    *,
    saved: bool,
) -> Json:
    mark = side.marked.get(id(node), ComparedNode())
    data: Json = {
        "id": ids[node.name],
        "label": _label(node, mark),
        "namespace": namespace(node),
        "attrs": _attributes(node, mark, side, name=ids[node.name] != node.name, saved=saved),
        "incomingEdges": [
            {"sourceNodeId": ids[name], "sourceNodeOutputId": "0", "targetNodeInputId": str(slot)}
            for slot, name in enumerate(node.refs)
        ],
        "outputsMetadata": _outputs(node.result),
    }
    if body_ids := [*dict.fromkeys(bodies[name] for name in body_names(node) if name in bodies)]:
        data["subgraphIds"] = body_ids
    if style := _style(side.paint(node), saved and not mark.kind):
        data["style"] = style
    return data


def _label(node: Node, mark: ComparedNode) -> str:
    if node.kind == "placeholder":
        owner = node.module or (namespace(node) and node.name.rpartition(".")[0])
        text = node.name[len(owner) :].lstrip("./") if node.name.startswith(owner) else node.name
    elif node.kind == "output":
        text = "return"
    else:
        text = op_label(node.op)
    return clean(f"{SIGNS[mark.kind]} {text}" if mark.kind else text)


def _attributes(
    node: Node, mark: ComparedNode, side: ExplorerSide, *, name: bool, saved: bool
) -> list[Json]:
    """Return the lines of the side panel, without empty lines.

    Args:
        node: the node.
        mark: difference of the node.
        side: export options of the node's file.
        name: True to show the node's name, because it differs from the node's id.
        saved: True if the node is saved for backward.
    """
    effects = node_lines(node)[1:] if node.effects else []
    values = {
        "difference": mark.kind and f"{mark.kind}: {mark.finding}".removesuffix(": "),
        ("now" if side.is_old else "before"): "" if mark.other is None else format_node(mark.other),
        "node": format_node(node),
        "name": node.name if name else "",
        "op": node.op,
        "target": node.target,
        "result": value_label(node),
        "source": "" if node.source is None else f"{node.source} {node.source.code.strip()}",
        "saved for the backward": "yes" if saved else "",
        "effects": ", ".join(effects),
        "runs after": ", ".join(ref.name for ref in node.after),
    }
    return [{"key": key, "value": clean(value)} for key, value in values.items() if value]


def _outputs(result: Result) -> list[Json]:
    results = result if isinstance(result, tuple) else (result,)
    return [
        {"id": str(number), "attrs": [{"key": k, "value": v} for k, v in _result_facts(tensor)]}
        for number, tensor in enumerate(results)
        if tensor is not None
    ]


def _result_facts(result: Result) -> Iterable[tuple[str, str]]:
    if not isinstance(result, TensorMeta):
        yield "value", format_result(result)
        return
    yield "dtype", str(result.dtype)
    yield "shape", "x".join(map(format_arg, result.shape)) or "scalar"
    if result.stride is not None:
        yield "stride", ", ".join(map(format_arg, result.stride))
    if result.device is not None:
        yield "device", result.device
    if result.layout != "strided":
        yield "layout", result.layout


def _style(paint: Paint | None, saved: bool) -> Json:
    style = {} if paint is None else {"backgroundColor": paint.fill, "borderColor": paint.border}
    if saved:
        style["borderColor"] = SAVED_BORDER
    return style


def graph_collection(
    graphs: Sequence[Graph],
    label: str,
    side: ExplorerSide | None = None,
    further_facts: Mapping[str, str] | None = None,
) -> Json:
    """Return the graphs of a file as a collection, including bodies of higher-order ops.

    Args:
        graphs: the graphs.
        label: name of the collection.
        side: export options; `None` for ops in the colours of their categories.
        further_facts: additional side-panel lines of every graph.
    """
    side = side or ExplorerSide(_category_paint)
    graphs_with_ids = [pair for graph in graphs for pair in with_ids(graph, side.prefix)]
    return {
        "label": label,
        "subgraphs": [_graph(*pair, side, further_facts or {}) for pair in graphs_with_ids],
    }


def with_ids(graph: Graph, prefix: str = "") -> Iterator[tuple[str, Graph]]:
    """Yield a graph and all its bodies, each with an id that begins with `prefix`."""
    graph_id = f"{prefix}{graph.name}"
    yield graph_id, graph
    for sub in graph.subgraphs:
        yield from with_ids(sub, f"{graph_id}/")


def _category_paint(node: Node) -> Paint | None:
    return None if node.kind == "output" else CATEGORY_PAINTS[op_category(node)]


def _graph(
    graph_id: str, graph: Graph, side: ExplorerSide, further_facts: Mapping[str, str]
) -> Json:
    bodies = {sub.name: f"{graph_id}/{sub.name}" for sub in graph.subgraphs}
    return {
        "id": graph_id,
        "nodes": nodes_json(graph, side, bodies),
        "groupNodeAttributes": {"": {**_graph_facts(graph), **further_facts}},
        "groupNodeConfigs": _changed_groups(graph, side),
    }


def _graph_facts(graph: Graph) -> dict[str, str]:
    facts = {
        "graph": graph.name,
        "kind": f"eager {graph.kind}" if graph.eager else graph.kind,
        "level": graph.level,
        "ops": f"{graph.op_counts.total():,}",
    }
    if graph.saved:
        facts["saved for the backward"] = f"{len(graph.saved):,} values"
    if graph.eager:
        facts["runs"] = f"{graph.runs:,}"
    return facts


def _changed_groups(graph: Graph, side: ExplorerSide) -> list[Json]:
    """Return colours for modules that contain a changed node, shown while a module is closed."""
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
    """Yield a namespace and its enclosing namespaces, innermost first."""
    parts = re.split(r"(?<!\\)/", path) if path else []
    for end in range(len(parts), 0, -1):
        yield "/".join(parts[:end])


def node_data(graphs: Sequence[Graph], figure: HeatFigure) -> Json:
    """Return the cost of each node in one run of its graph or body, without unknown costs.

    Args:
        graphs: the graphs of one file, as passed to `graph_collection`.
        figure: the cost figure.

    Raises:
        CaptureError: if the figure is not available at the level of a graph.
    """
    costs = Heat.of(graphs, figure, times_run=False).costs
    stops = [(0, HEAT_PAINTS["least"].fill), (1, HEAT_PAINTS["most"].fill)]
    return {
        name: {
            "name": UNITS[figure][1],
            "results": {
                node.name: {"value": cost}
                for node in graph.nodes
                if (cost := costs.get(node)) is not None
            },
            "gradient": [{"stop": stop, "bgColor": color} for stop, color in stops],
        }
        for top_graph in graphs
        for name, graph in with_ids(top_graph)
    }


OLD, NEW = "old/", "new/"
"""Prefixes of the graph ids of the two files in a comparison."""


@dataclass(frozen=True, slots=True)
class Pane:
    """Initial content of one of the two panes.

    Attributes:
        graph: id of the graph.
        node: id of the selected node; "" for none.
        layer: id of the open layer; "" for none.
    """

    graph: str
    node: str = ""
    layer: str = ""

    @classmethod
    def at(
        cls, prefix: str, graph: Graph, node: Node | None, ids: Mapping[int, Mapping[str, str]]
    ) -> Pane:
        """Return a pane that shows a graph, with a node selected if given."""
        if node is None:
            return cls(f"{prefix}{graph.name}")
        path = namespace(node)
        layer = f"{path}{GROUP}" if path else ""
        return cls(f"{prefix}{graph.name}", ids[id(graph)][node.name], layer)


def first_panes(
    diff: GraphDiff, pairs: Iterable[Pair], ids: Mapping[int, Mapping[str, str]]
) -> tuple[Pane, ...]:
    """Return panes that show the first edit, or else the first pair of matching graphs.

    The result is empty if no two graphs match.
    """
    matched_graphs = [(old, new) for old, new in pairs if old is not None and new is not None]
    for change in (change for finding in diff.findings for change in finding.changes):
        for old, new in matched_graphs:
            if _has(old, change.before) or _has(new, change.after):
                return Pane.at(OLD, old, change.before, ids), Pane.at(NEW, new, change.after, ids)
    if not matched_graphs:
        return ()
    old, new = matched_graphs[0]
    return Pane.at(OLD, old, None, ids), Pane.at(NEW, new, None, ids)


def _has(graph: Graph, node: Node | None) -> bool:
    return node is not None and graph.by_name.get(node.name) is node
