"""Drawing of a whole graph. One with more than a few hundred nodes is drawn with modules closed."""

from __future__ import annotations

from collections.abc import Collection
from typing import TYPE_CHECKING

from ..graph.model import Graph
from ..graph.text import ops_in_words
from .colours import Heat, HeatFigure
from .dot import Drawing, draw
from .labels import eager_label
from .scene import Box, Scene

if TYPE_CHECKING:
    import graphviz

MAX_BOXES = 240
"""Maximum number of boxes in the drawing of a graph, excluding the legend."""


def to_dot(
    graph: Graph,
    *,
    focus: Collection[str] = (),
    limit: int | None = MAX_BOXES,
    heat: HeatFigure | None = None,
) -> graphviz.Digraph:
    """Draw a whole graph, including its subgraphs.

    Modules are nested clusters. Parameters, buffers and constants are lines in their users' boxes.
    Colours show op categories; edges are labelled with dtype and shape; the tooltip has the full
    node and the user's source line. A value saved for backward has a double border. A wait for a
    collective that overlaps with no computation has a dashed border.

    Args:
        graph: graph to draw.
        focus: names of nodes to show, with their neighbours, even if the rest is folded.
        limit: maximum number of boxes; `None` for no limit. In a larger graph, modules are folded
            into one box each, the innermost first, and runs of ops without a module into blocks.
        heat: figure to show as colours in place of op categories; see `Graph.to_dot`.

    Raises:
        KeyError: if a name in `focus` is not the name of a node.
        CaptureError, ValueError: see `heat` in `Graph.to_dot`.
    """
    return drawing(graph, focus=focus, limit=limit, heat=heat).digraph


def drawing(
    graph: Graph,
    *,
    focus: Collection[str] = (),
    limit: int | None = MAX_BOXES,
    heat: HeatFigure | None = None,
) -> Drawing:
    """Like `to_dot`, but also return the meaning of each element of the SVG.

    Args:
        graph, focus, limit, heat: as in `to_dot`.

    Raises:
        KeyError: if a name in `focus` is not the name of a node.
        CaptureError, ValueError: see `heat` in `Graph.to_dot`.
    """
    heading = f"{graph.name}: {graph.kind} graph at level {graph.level}"
    title = [f"{eager_label(graph) if graph.eager else heading}, {ops_in_words(graph)}"]
    heat_values = None if heat is None else Heat.of([graph], heat, times_run=False)
    scene = Scene(graph.name, title, heat_values)
    drawn = scene.add_graph(graph)
    bodies = [*graph.walk()]
    boxes: list[Box] = []
    for name in focus:
        nodes = [body.by_name[name] for body in bodies if name in body.by_name]
        if not nodes:
            raise KeyError(name)
        boxes += [box for node in nodes if (box := drawn.shown_in(node)) is not None]
    return draw(scene, limit, scene.around(boxes))
