"""Whole graphs as plain data for the page: every node, in columns, and what corresponds in two.

Columns are a fifth of the size of a dictionary for each node: a graph has up to 50,000 of them.
`script/graphs.js` reads them.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from ...graph.diff.findings import SIGNS, GraphDiff
from ...graph.diff.origins import Matched
from ...graph.model import Graph, Node
from ...graph.text.format import format_op, format_result
from .nodes import costs_of, ends, format_operands
from .parts import Data

TEXTS = ("op", "module", "result", "line", "code", "operands", "effects")
"""The columns whose cells are places in `texts`."""


def graph_data(graph: Graph) -> Data:
    """The data of a graph.

    Returns:
        a dictionary with the `name`, `kind` and `level` of the graph, how often it `runs`, and

        - `names`, of its nodes in their order;
        - for each of `TEXTS` a list with the place of each node's text in `texts`;
        - `refs` and `after`, the numbers of the nodes that each one reads, or must run behind;
        - `flops` and `saved`, what each costs, in FLOPs and bytes: null where it is not known;
        - `end`, where the ways to the loss end (see `nodes.ends`), and `ends`, the nodes there.
    """
    table: dict[str, int] = {}

    def place(text: str) -> int:
        return table.setdefault(text, len(table))

    number = {node.name: at for at, node in enumerate(graph.nodes)}
    end, at_end = ends(graph)
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
        "refs": [[number[name] for name in dict.fromkeys(node.refs)] for node in graph.nodes],
        "after": [[number[ref.name] for ref in node.after] for node in graph.nodes],
        **{figure: _column(graph, found) for figure, found in costs.items()},
        "end": end,
        "ends": sorted(number[name] for name in at_end),
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


def _column(graph: Graph, costs: Any) -> list[int | None]:
    """What each node costs over all runs of the graph."""
    found = (costs.get(node.name, 0) for node in graph.nodes)
    return [value and value * graph.runs for value in found]


def bodies_data(graph: Graph) -> list[Data]:
    """The data of a graph, and of the bodies of its higher-order ops."""
    return [graph_data(each) for each in graph.walk()]


def compared_data(diff: GraphDiff) -> list[Data]:
    """The data of the graphs of a difference, those that correspond together.

    Returns:
        for each two a dictionary with their data, `before` and `after`, of which one is null where
        a graph came or went, and the `pairs` of nodes that correspond, as `[old, new, sign]`, where
        the sign is "" for nodes that do not differ.
    """
    assert diff.origins is not None
    signs = dict(_signs(diff))
    differ = {(id(pair.before), id(pair.after)) for pair in diff.graphs}
    pairs = [pair for pair in diff.origins.pairs if (id(pair[0]), id(pair[1])) in differ]
    return [_compared(each, signs) for each in diff.origins.matched(pairs)]


def _signs(diff: GraphDiff) -> Iterator[tuple[int, str]]:
    for pair in diff.graphs:
        yield from ((id(node), SIGNS["changed"]) for nodes in pair.changed for node in nodes)
        yield from ((id(node), SIGNS["rewired"]) for nodes in pair.rewired for node in nodes)


def _compared(matched: Matched, signs: dict[int, str]) -> Data:
    before, after, partners = matched
    pairs: list[list[Any]] = []
    if before is not None and after is not None:
        old, new = _numbers(before.nodes), _numbers(after.nodes)
        pairs = [
            [old[one], new[other], signs.get(id(before.by_name[one]), "")]
            for one, other in partners.items()
        ]
    return {
        "before": graph_data(before) if before is not None else None,
        "after": graph_data(after) if after is not None else None,
        "pairs": pairs,
    }


def _numbers(nodes: Sequence[Node]) -> dict[str, int]:
    return {node.name: at for at, node in enumerate(nodes)}
