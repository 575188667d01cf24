"""Graphs and nodes as plain data for the page: columns, costs, and matching nodes of two graphs.

Columns take a fifth of the space of one dictionary per node, and a graph has up to 50,000 nodes.
`script/graphs.js` reads the columns.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from ...errors import CaptureError
from ...graph.cost import flops_by_node, saved_by_node
from ...graph.diff import SIGNS, GraphDiff, Matched
from ...graph.model import Graph, Node, TensorMeta
from ...graph.text import format_arg, format_op, format_result
from .html import Data

if TYPE_CHECKING:
    from ...render.dot import Drawing


Ids = Callable[[Node], Sequence[str]]
"""Returns the `id`s of the boxes that show a node."""


def pictured_data(graphs: Iterable[Graph], drawing: Drawing | None) -> list[Data]:
    """Return the data of the graphs of a picture, in the form of `compared_data`.

    Args:
        graphs: the graphs.
        drawing: drawing of the graphs, for the `id`s of its boxes.
    """
    ids = _ids_in(drawing)
    return [
        {"before": None, "after": graph_data(graph, ids(graph.name, False))} for graph in graphs
    ]


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
    # The loss is a floating-point scalar, if only one of the outputs is.
    floats = [
        name
        for name, result in outputs.items()
        if isinstance(result, TensorMeta) and not result.shape and "float" in result.dtype
    ]
    if len(floats) == 1 and (len(outputs) == 1 or graph.kind == "joint"):
        return "loss", frozenset(floats)
    return "output", frozenset(outputs)


def _ids_in(drawing: Drawing | None) -> Callable[[str, bool], Ids]:
    """Return a function that returns the `Ids` of a graph, by its drawn name and its side.

    Args:
        drawing: the drawing; without one, no node has a box.
    """

    def ids_of(graph: str, is_old: bool) -> Ids:
        def ids(node: Node) -> Sequence[str]:
            if drawing is None:
                return []
            # An old node with a partner is shown in the box of the new one, under another name.
            box = drawing.sides.before.boxes.get(node) if is_old else None
            return [box] if box else drawing.ids_of(graph, node.name, is_old=is_old)

        return ids

    return ids_of


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
    """Return a cost times a run count; `None` stays unknown."""
    return None if value is None else value * runs


def format_operands(node: Node) -> str:
    """Return a node's arguments, formatted as in the text form of a graph."""
    keyword_texts = [f"{key}={format_arg(value)}" for key, value in node.kwargs.items()]
    return ", ".join([*map(format_arg, node.args), *keyword_texts])


TEXTS = ("op", "module", "result", "line", "code", "operands", "effects")
"""Columns whose cells are indices into `texts`."""


def graph_data(graph: Graph, ids: Ids | None = None) -> Data:
    """Return the data of a graph, in columns.

    Args:
        graph: the graph.
        ids: its boxes in a picture; `None` if no picture shows it.

    Returns:
        A dictionary with the `name`, `kind`, `level` and run count (`runs`) of the graph, and

        - `names`: node names, in graph order;
        - for each name in `TEXTS`, the index in `texts` of each node's text;
        - `refs`: for each node, the indices of the nodes that it reads;
        - `after`: for each node, the indices of the nodes that must run before it;
        - `flops` and `saved`: cost of each node in FLOPs and bytes; null if unknown;
        - `end`: end of the paths to the loss (see `path_ends`); `ends`: the nodes at this end;
        - `ids`: for each node, the `id`s of its boxes in the picture; missing without `ids`.
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
            # A node without an entry costs nothing.
            figure: [_times(node_costs.get(node.name, 0), graph.runs) for node in graph.nodes]
            for figure, node_costs in costs.items()
        },
        "end": end,
        "ends": sorted(position_of[name] for name in at_end),
        "texts": list(table),
        **({} if ids is None else {"ids": [*map(ids, graph.nodes)]}),
    }


def _texts(node: Node) -> tuple[str, ...]:
    """Return the texts of a node, in the order of `TEXTS`."""
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


def compared_data(diff: GraphDiff, drawing: Drawing | None = None) -> list[Data]:
    """Return the data of the graphs of a difference, in matched pairs.

    Args:
        diff: the difference.
        drawing: its drawing, for the `id`s of its boxes.

    Returns:
        One dictionary per pair with the graphs' data, `before` and `after` (null for an added or
        removed graph), and `pairs`, the matched nodes as `[old, new, sign]`. The sign is "" for
        equal nodes.
    """
    assert diff.origins is not None
    signs: dict[int, str] = {}
    for pair in diff.graphs:
        signs.update((id(old), SIGNS["changed"]) for old, _ in pair.changed)
        signs.update((id(old), SIGNS["rewired"]) for old, _ in pair.rewired)
    # `matched` also yields the equal bodies of these pairs, which the picture does not show.
    differ = {(id(pair.before), id(pair.after)) for pair in diff.graphs}
    shown = [pair for pair in diff.origins.pairs if (id(pair[0]), id(pair[1])) in differ]
    ids = _ids_in(drawing)
    return [
        _compared(matched, signs, ids if (id(matched[0]), id(matched[1])) in differ else None)
        for matched in diff.origins.matched(shown)
    ]


def _compared(
    matched: Matched, signs: Mapping[int, str], ids: Callable[[str, bool], Ids] | None
) -> Data:
    """Return the data of one pair, see `compared_data`.

    Args:
        matched: the pair, and the names of its matched nodes.
        signs: the signs of differing old nodes, by `id(node)`.
        ids: see `_ids_in`; `None` if no picture shows the pair.
    """
    before, after, partners = matched
    # A picture shows both graphs under the name of the new one.
    shown = after or before
    assert shown is not None
    old, new = (
        None if graph is None else graph_data(graph, ids and ids(shown.name, graph is before))
        for graph in (before, after)
    )
    pairs: list[list[Any]] = []
    if before is not None and after is not None:
        old_numbers, new_numbers = _numbers(before.nodes), _numbers(after.nodes)
        for old_name, new_name in partners.items():
            sign = signs.get(id(before.by_name[old_name]), "")
            pairs.append([old_numbers[old_name], new_numbers[new_name], sign])
    return {"before": old, "after": new, "pairs": pairs}


def _numbers(nodes: Sequence[Node]) -> dict[str, int]:
    """Return the position of each node, by name."""
    return {node.name: position for position, node in enumerate(nodes)}
