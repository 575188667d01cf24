"""What model-explorer shows at first, in one pane or in two."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from ...graph.diff.corresponding import Pair
from ...graph.diff.findings import GraphDiff
from ...graph.model import Graph, Node
from .explorer_nodes import GROUP, namespace

OLD, NEW = "old/", "new/"
"""The beginnings of the ids of the graphs of two files."""


@dataclass(frozen=True, slots=True)
class Pane:
    """What one of the two panes shows at first.

    Attributes:
        graph: the id of a graph.
        node: the id of the node that is selected; "" for none.
        layer: the id of the layer that is open; "" for none.
    """

    graph: str
    node: str = ""
    layer: str = ""

    @classmethod
    def at(
        cls, prefix: str, graph: Graph, node: Node | None, ids: Mapping[int, Mapping[str, str]]
    ) -> Pane:
        """A pane with this graph, the node selected."""
        if node is None:
            return cls(f"{prefix}{graph.name}")
        path = namespace(node)
        layer = f"{path}{GROUP}" if path else ""
        return cls(f"{prefix}{graph.name}", ids[id(graph)][node.name], layer)


def first_panes(
    diff: GraphDiff, pairs: Iterable[Pair], ids: Mapping[int, Mapping[str, str]]
) -> tuple[Pane, ...]:
    """Both sides of the first edit, or else of the first two graphs that correspond."""
    both = [(old, new) for old, new in pairs if old is not None and new is not None]
    for change in (change for finding in diff.findings for change in finding.changes):
        for old, new in both:
            if _has(old, change.before) or _has(new, change.after):
                return (
                    Pane.at(OLD, old, change.before, ids),
                    Pane.at(NEW, new, change.after, ids),
                )
    return tuple(
        pane
        for old, new in both[:1]
        for pane in (Pane.at(OLD, old, None, ids), Pane.at(NEW, new, None, ids))
    )


def _has(graph: Graph, node: Node | None) -> bool:
    return node is not None and graph.by_name.get(node.name) is node
