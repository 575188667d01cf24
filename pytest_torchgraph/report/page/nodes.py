"""The nodes of graphs as plain data: what the page shows of one, what it costs, where it leads."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING

from ...errors import CaptureError
from ...graph.cost.by_node import flops_by_node, saved_by_node
from ...graph.diff.findings import SIGNS, GraphDiff
from ...graph.model import Graph, Node, Source, TensorMeta
from ...graph.text.format import format_arg, format_op, format_result
from .parts import Data

if TYPE_CHECKING:
    from ...render.drawing import Drawing
    from ...render.layout.sides import Sides


BoxIds = Mapping[tuple[str, str, bool], list[str]]
"""The `id`s of the boxes that show a node, by graph, name and whether it is of the old graph."""


def nodes_data(graphs: Iterable[Graph], drawing: Drawing | None) -> list[Data]:
    """The data of all nodes of graphs.

    Args:
        graphs: the graphs.
        drawing: their drawing, for the `id`s of its boxes.
    """
    box_ids = _box_ids(drawing)
    return [each for graph in graphs for each in _nodes(graph, {}, box_ids, False)]


def changed_nodes_data(diff: GraphDiff, drawing: Drawing | None) -> list[Data]:
    """The data of the nodes of the new graphs, and of those of the old ones that are gone."""
    box_ids = _box_ids(drawing)
    nodes: list[Data] = []
    for pair in diff.graphs:
        signs = {id(node): SIGNS["added"] for node in pair.added}
        signs.update((id(new), SIGNS["changed"]) for _, new in pair.changed)
        signs.update((id(new), SIGNS["rewired"]) for _, new in pair.rewired)
        if pair.after is not None:
            nodes += _nodes(pair.after, signs, box_ids, False)
        gone = {id(node): SIGNS["removed"] for node in pair.removed}
        if pair.before is not None:
            whole = pair.after is None
            drawn_in = pair.before if pair.after is None else pair.after
            old = _nodes(pair.before, gone, box_ids, True, drawn_in.name)
            nodes += [node for node in old if whole or node["sign"]]
    return nodes


def ends(graph: Graph) -> tuple[str, frozenset[str]]:
    """Where the ways from a node to the loss end, and the names of the nodes that are there.

    "loss": the only value that the graph returns is one floating-point number. "output": it returns
    others; none of them is known to be the loss. "tangent": of a backward graph, the gradients that
    come from the loss; the ways to a node lead from there.
    """
    if graph.kind == "backward":
        names = (node.name for node in graph.inputs if node.op == "tangent")
        return "tangent", frozenset(names)
    outputs = {node.name: node.result for node in graph.outputs}
    floats = [
        name
        for name, result in outputs.items()
        if isinstance(result, TensorMeta) and not result.shape and "float" in result.dtype
    ]
    if len(floats) == 1 and (len(outputs) == 1 or graph.kind == "joint"):
        return "loss", frozenset(floats)
    return "output", frozenset(outputs)


def costs_before(diff: GraphDiff, sides: Sides) -> Data:
    """What the old graphs cost: `total`, and `boxes`, that of each box that costs something.

    Each is a dictionary with the keys `flops` and `saved`; None where nothing of it is known.
    """
    total: Data = {"flops": 0, "saved": 0}
    boxes: dict[str, Data] = {}
    for pair in diff.graphs:
        graph = pair.before
        for figure, costs in costs_of(graph).items() if graph is not None else ():
            for name, value in costs.items():
                if graph is None or value == 0:
                    continue
                total[figure] += (value or 0) * graph.runs
                box = sides.before.boxes.get(graph.by_name[name])
                if box is not None:
                    of_box = boxes.setdefault(box, {"flops": 0, "saved": 0})
                    of_box[figure] = _sum(of_box[figure], _times(value, graph.runs))
    return {"total": total, "boxes": boxes}


def _sum(one: int | None, other: int | None) -> int | None:
    """What is known of a sum, None for nothing."""
    return (one or 0) + (other or 0) or (0 if one == other == 0 else None)


def _box_ids(drawing: Drawing | None) -> BoxIds:
    box_ids: dict[tuple[str, str, bool], list[str]] = {}
    for key, element in drawing.elements.items() if drawing is not None else ():
        if element.kind in ("node", "group"):
            for node in element.nodes:
                for is_old in {element.is_old, element.kind == "group"}:
                    box_ids.setdefault((element.graph, node, is_old), []).append(key)
    return box_ids


def _nodes(
    graph: Graph, signs: Mapping[int, str], box_ids: BoxIds, is_old: bool, drawn_in: str = ""
) -> list[Data]:
    """The data of all nodes of a graph.

    Args:
        graph: the graph.
        signs: the signs of changes, by `id(node)`.
        box_ids: the boxes of its nodes.
        is_old: whether it is the old one of a difference.
        drawn_in: the name of the graph that it is drawn in, if that is another.
    """
    users: dict[str, list[str]] = {}
    later: dict[str, list[str]] = {}
    for node in graph.nodes:
        for name in dict.fromkeys(node.refs):
            users.setdefault(name, []).append(node.name)
        for ref in node.after:
            if ref.name not in node.refs:
                later.setdefault(ref.name, []).append(node.name)
    end, at_end = ends(graph)
    flops, saved = costs_of(graph).values()
    return [
        {
            "name": node.name,
            "graph": graph.name,
            "old": is_old,
            "op": format_op(node.op),
            "module": node.module,
            "result": format_result(node.result) if node.result is not None else "",
            "line": str(node.source) if node.source else "",
            "code": _code(node.source),
            "operands": format_operands(node),
            "users": users.get(node.name, []),
            "later": later.get(node.name, []),
            "end": end if node.name in at_end else "",
            "flops": _times(flops.get(node.name, 0), graph.runs),
            "saved": _times(saved.get(node.name, 0), graph.runs),
            "effects": ", ".join(dict.fromkeys(effect.kind for effect in node.effects)),
            "sign": signs.get(id(node), ""),
            "ids": box_ids.get((drawn_in or graph.name, node.name, is_old), []),
        }
        for node in graph.nodes
    ]


def costs_of(graph: Graph) -> dict[str, Mapping[str, int | None]]:
    """What each node computes, and what is kept of it for the backward."""
    saved = saved_by_node(graph)
    return {"flops": _flops(graph), "saved": _unknown(graph) if saved is None else saved}


def _flops(graph: Graph) -> Mapping[str, int | None]:
    """What each node computes; nothing is known without torch, whose formulas count it."""
    try:
        return flops_by_node(graph) if "torch" in sys.modules else _unknown(graph)
    except CaptureError:
        return _unknown(graph)


def _unknown(graph: Graph) -> dict[str, int | None]:
    return {node.name: None for node in graph.nodes if node.is_call}


def _times(value: int | None, runs: int) -> int | None:
    return None if value is None else value * runs


def _code(source: Source | None) -> str:
    return source.code if source else ""


def format_operands(node: Node) -> str:
    """The arguments of a node, as the text form of a graph has them."""
    named = [f"{key}={format_arg(value)}" for key, value in node.kwargs.items()]
    return ", ".join([*map(format_arg, node.args), *named])
