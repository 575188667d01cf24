"""Graphs and nodes as plain data for the page: columns, costs, and matching nodes of two graphs.

Columns take a fifth of the space of one dictionary per node, and a graph has up to 50,000 nodes.
`script/graphs.js` reads the columns.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from ...errors import CaptureError
from ...graph.cost import flops_by_node, saved_by_node
from ...graph.diff import SIGNS, GraphDiff, Matched
from ...graph.model import Graph, Node, TensorMeta
from ...graph.text import format_arg, format_op, format_result
from ...words import grouped
from .html import Data

if TYPE_CHECKING:
    from ...render.dot import Drawing, Sides


BoxIds = Mapping[tuple[str, str, bool], list[str]]
"""`id`s of the boxes that show a node, keyed by graph, node name and `is_old`."""


def nodes_data(graphs: Iterable[Graph], drawing: Drawing | None) -> list[Data]:
    """Return the data of all nodes of the graphs.

    Args:
        graphs: the graphs.
        drawing: drawing of the graphs, for the `id`s of its boxes.
    """
    box_ids = _box_ids(drawing)
    return [node for graph in graphs for node in _nodes(graph, {}, box_ids, False)]


def changed_nodes_data(diff: GraphDiff, drawing: Drawing | None) -> list[Data]:
    """Return the data of all nodes of the new graphs and of the removed nodes of the old graphs."""
    box_ids = _box_ids(drawing)
    nodes: list[Data] = []
    for pair in diff.graphs:
        signs = {id(node): SIGNS["added"] for node in pair.added}
        signs.update((id(new), SIGNS["changed"]) for _, new in pair.changed)
        signs.update((id(new), SIGNS["rewired"]) for _, new in pair.rewired)
        if pair.after is not None:
            nodes += _nodes(pair.after, signs, box_ids, False)
        removed_signs = {id(node): SIGNS["removed"] for node in pair.removed}
        if pair.before is not None:
            is_removed_graph = pair.after is None
            shown_graph = pair.before if pair.after is None else pair.after
            old_nodes = _nodes(pair.before, removed_signs, box_ids, True, shown_graph.name)
            # List an unchanged node only once, in the new graph. A removed graph has no new graph,
            # so list all of its nodes.
            nodes += [node for node in old_nodes if is_removed_graph or node["sign"]]
    return nodes


def path_ends(graph: Graph) -> tuple[str, frozenset[str]]:
    """Return where the paths from nodes to the loss end, and the names of the nodes there.

    Returns:
        - "loss" if the graph returns a single floating-point scalar; a joint graph may return other
          values as well;
        - "output" if the loss cannot be identified among the returned values;
        - "tangent" for a backward graph: its incoming gradients, where the paths begin.
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
    """Return the cost of the old graphs: `total`, and `boxes` for each box with a nonzero cost.

    Each cost is a dictionary with the keys `flops` and `saved`. A value is `None` if unknown.
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
                    box_cost = boxes.setdefault(box, {"flops": 0, "saved": 0})
                    box_cost[figure] = _sum(box_cost[figure], _times(value, graph.runs))
    return {"total": total, "boxes": boxes}


def _sum(first: int | None, second: int | None) -> int | None:
    """Return the sum of the known values, or `None` if no value is known."""
    return (first or 0) + (second or 0) or (0 if first == second == 0 else None)


def _box_ids(drawing: Drawing | None) -> BoxIds:
    box_ids: dict[tuple[str, str, bool], list[str]] = {}
    for key, element in drawing.elements.items() if drawing is not None else ():
        if element.kind in ("node", "group"):
            for node in element.nodes:
                # A group can have nodes of both graphs.
                for is_old in {element.is_old, element.kind == "group"}:
                    box_ids.setdefault((element.graph, node, is_old), []).append(key)
    return box_ids


def _nodes(
    graph: Graph, signs: Mapping[int, str], box_ids: BoxIds, is_old: bool, drawn_in: str = ""
) -> list[Data]:
    """Return the data of all nodes of a graph.

    Args:
        graph: the graph.
        signs: signs of changes, keyed by `id(node)`.
        box_ids: the boxes of its nodes.
        is_old: True for the old graph of a difference.
        drawn_in: name of the graph in the drawing, if it is not the name of `graph`.
    """
    users = grouped((name, node.name) for node in graph.nodes for name in dict.fromkeys(node.refs))
    later = grouped(
        (ref.name, node.name)
        for node in graph.nodes
        for ref in node.after
        if ref.name not in node.refs
    )
    end, at_end = path_ends(graph)
    flops, saved = costs_of(graph).values()
    return [
        {
            "name": node.name,
            "graph": graph.name,
            "old": is_old,
            **dict(zip(TEXTS, _texts(node), strict=True)),
            "users": users.get(node.name, []),
            "later": later.get(node.name, []),
            "end": end if node.name in at_end else "",
            "flops": _times(flops.get(node.name, 0), graph.runs),
            "saved": _times(saved.get(node.name, 0), graph.runs),
            "sign": signs.get(id(node), ""),
            "ids": box_ids.get((drawn_in or graph.name, node.name, is_old), []),
        }
        for node in graph.nodes
    ]


def costs_of(graph: Graph) -> dict[str, Mapping[str, int | None]]:
    """Return the FLOPs of each node and the bytes saved for backward."""
    saved = saved_by_node(graph)
    return {"flops": _flops(graph), "saved": _unknown(graph) if saved is None else saved}


def _flops(graph: Graph) -> Mapping[str, int | None]:
    """Return the FLOPs of each node, `None` for calls if unknown."""
    try:  # torch has the FLOP formulas: without torch, FLOPs are unknown
        return flops_by_node(graph) if "torch" in sys.modules else _unknown(graph)
    except CaptureError:
        return _unknown(graph)


def _unknown(graph: Graph) -> dict[str, int | None]:
    return {node.name: None for node in graph.nodes if node.is_call}


def _times(value: int | None, runs: int) -> int | None:
    return None if value is None else value * runs


def format_operands(node: Node) -> str:
    """Return a node's arguments, formatted as in the text form of a graph."""
    keyword_texts = [f"{key}={format_arg(value)}" for key, value in node.kwargs.items()]
    return ", ".join([*map(format_arg, node.args), *keyword_texts])


TEXTS = ("op", "module", "result", "line", "code", "operands", "effects")
"""Columns whose cells are indices into `texts`."""


def graph_data(graph: Graph) -> Data:
    """Return the data of a graph, in columns.

    Returns:
        A dictionary with the `name`, `kind`, `level` and run count (`runs`) of the graph, and

        - `names`: node names, in graph order;
        - for each name in `TEXTS`, the index in `texts` of each node's text;
        - `refs`: for each node, the indices of the nodes that it reads;
        - `after`: for each node, the indices of the nodes that must run before it;
        - `flops` and `saved`: cost of each node in FLOPs and bytes; null if unknown;
        - `end`: end of the paths to the loss (see `path_ends`); `ends`: the nodes at this end.
    """
    table: dict[str, int] = {}

    def place(text: str) -> int:
        # Ops, modules and source lines repeat from layer to layer: each text is stored once.
        return table.setdefault(text, len(table))

    position_of = _numbers(graph.nodes)
    end, at_end = path_ends(graph)
    costs = costs_of(graph)
    columns: dict[str, list[int]] = {key: [] for key in TEXTS}
    for node in graph.nodes:
        for key, text in zip(TEXTS, _texts(node), strict=True):
            columns[key].append(place(text))
    return {
        "name": graph.name,
        "kind": graph.kind,
        "level": graph.level,
        "runs": graph.runs,
        "names": [node.name for node in graph.nodes],
        **columns,
        "refs": [[position_of[name] for name in dict.fromkeys(node.refs)] for node in graph.nodes],
        "after": [[position_of[ref.name] for ref in node.after] for node in graph.nodes],
        **{
            figure: [_times(node_costs.get(node.name, 0), graph.runs) for node in graph.nodes]
            for figure, node_costs in costs.items()
        },
        "end": end,
        "ends": sorted(position_of[name] for name in at_end),
        "texts": list(table),
    }


def _texts(node: Node) -> tuple[str, ...]:
    return (
        format_op(node.op),
        node.module,
        format_result(node.result) if node.result is not None else "",
        str(node.source) if node.source else "",
        node.source.code if node.source else "",
        format_operands(node),
        ", ".join(dict.fromkeys(effect.kind for effect in node.effects)),
    )


def bodies_data(graph: Graph) -> list[Data]:
    """Return the data of a graph and of the bodies of its higher-order ops."""
    return [graph_data(body) for body in graph.walk()]


def compared_data(diff: GraphDiff) -> list[Data]:
    """Return the data of the graphs of a difference, in matched pairs.

    Returns:
        One dictionary per pair with the graphs' data, `before` and `after` (null for an added or
        removed graph), and `pairs`, the matched nodes as `[old, new, sign]`. The sign is "" for
        equal nodes.
    """
    assert diff.origins is not None
    signs = dict(_signs(diff))
    differ = {(id(pair.before), id(pair.after)) for pair in diff.graphs}
    pairs = [pair for pair in diff.origins.pairs if (id(pair[0]), id(pair[1])) in differ]
    return [_compared(matched, signs) for matched in diff.origins.matched(pairs)]


def _signs(diff: GraphDiff) -> Iterator[tuple[int, str]]:
    for pair in diff.graphs:
        yield from ((id(node), SIGNS["changed"]) for nodes in pair.changed for node in nodes)
        yield from ((id(node), SIGNS["rewired"]) for nodes in pair.rewired for node in nodes)


def _compared(matched: Matched, signs: dict[int, str]) -> Data:
    before, after, partners = matched
    pairs: list[list[Any]] = []
    if before is not None and after is not None:
        old_numbers, new_numbers = _numbers(before.nodes), _numbers(after.nodes)
        pairs = [
            [
                old_numbers[old_name],
                new_numbers[new_name],
                signs.get(id(before.by_name[old_name]), ""),
            ]
            for old_name, new_name in partners.items()
        ]
    return {
        "before": graph_data(before) if before is not None else None,
        "after": graph_data(after) if after is not None else None,
        "pairs": pairs,
    }


def _numbers(nodes: Sequence[Node]) -> dict[str, int]:
    return {node.name: position for position, node in enumerate(nodes)}
