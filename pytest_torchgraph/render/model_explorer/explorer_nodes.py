"""One node of a graph, as model-explorer has it."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from ...graph.diff.group import subgraph_names
from ...graph.model import Graph, Node, Result, TensorMeta
from ...graph.text.format import format_arg, format_node, format_result
from ..look.change_marks import SIGNS
from ..look.labels import clean, node_lines, op_label, value_label
from ..look.op_categories import Paint

Json = dict[str, Any]
GROUP = "___group___"
"""What model-explorer puts behind a namespace to make the id of its layer."""
SAVED_BORDER = "#C9184A"
"""The border of a value that the forward saves for the backward."""


@dataclass(frozen=True, slots=True)
class Marked:
    """What a comparison knows of a node.

    Attributes:
        kind: how the node differs, as of `Change`; "" where it does not.
        other: the node of the other graph that it was, or became; None where there is none.
        finding: the heading of the edit that it belongs to, or follows from; "" where none is.
    """

    kind: str = ""
    other: Node | None = None
    finding: str = ""


@dataclass(frozen=True)
class ExplorerSide:
    """How the graphs of one file are written.

    Attributes:
        prefix: the beginning of the ids of its graphs, which are unique in all that is shown.
        ids: for a graph, by `id`, the ids of its nodes by their names, where these are no names.
        marked: what differs, by the `id` of the node.
        paint: the colours of a node; None for those of model-explorer.
        is_old: whether it is the first file of a comparison.
    """

    paint: Callable[[Node], Paint | None]
    prefix: str = ""
    ids: Mapping[int, Mapping[str, str]] = field(default_factory=dict)
    marked: Mapping[int, Marked] = field(default_factory=dict)
    is_old: bool = False

    def node_ids(self, graph: Graph) -> Mapping[str, str]:
        """The ids of the nodes of a graph, by their names."""
        return self.ids.get(id(graph)) or {node.name: node.name for node in graph.nodes}


def namespace(node: Node) -> str:
    """The module that a node is in, or that owns a parameter, as a path of model-explorer."""
    path = node.module
    if not path and node.op in ("parameter", "buffer"):
        path = (node.target or node.name).rpartition(".")[0]
    return "/".join(part.replace("/", r"\/") for part in path.split(".") if part)


def nodes_json(graph: Graph, side: ExplorerSide, bodies: Mapping[str, str]) -> list[Json]:
    """The nodes of a graph as JSON objects.

    Args:
        graph: the graph.
        side: how it is written.
        bodies: the ids of the subgraphs of the graph, by their names.
    """
    ids = side.node_ids(graph)
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
    mark = side.marked.get(id(node), Marked())
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
    called = subgraph_names((node.args, tuple(node.kwargs.values())))
    if opened := [*dict.fromkeys(bodies[name] for name in called if name in bodies)]:
        data["subgraphIds"] = opened
    if style := _style(side.paint(node), saved and not mark.kind):
        data["style"] = style
    return data


def _label(node: Node, mark: Marked) -> str:
    if node.kind == "placeholder":
        inside = node.module or (namespace(node) and node.name.rpartition(".")[0])
        text = node.name[len(inside) :].lstrip("./") if node.name.startswith(inside) else node.name
    elif node.kind == "output":
        text = "return"
    else:
        text = op_label(node.op)
    return clean(f"{SIGNS[mark.kind]} {text}" if mark.kind else text)


def _attributes(
    node: Node, mark: Marked, side: ExplorerSide, *, name: bool, saved: bool
) -> list[Json]:
    """The lines of the side panel; a line without a text is left out.

    Args:
        node: the node.
        mark: how it differs.
        side: the file that it is in.
        name: whether its name is said, as the id is another one.
        saved: whether it is saved for the backward.
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
        {"id": str(number), "attrs": [{"key": k, "value": v} for k, v in _node_facts(each)]}
        for number, each in enumerate(results)
        if each is not None
    ]


def _node_facts(result: Result) -> Iterable[tuple[str, str]]:
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
