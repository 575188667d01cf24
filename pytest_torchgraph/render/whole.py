"""Drawing of a whole graph. One with more than a few hundred nodes is drawn with modules closed."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..graph.model import Graph
from ..graph.text import ops_in_words
from .colours import Heat, HeatFigure
from .dot import Drawing, draw
from .labels import eager_label
from .scene import Scene

if TYPE_CHECKING:
    import graphviz

MAX_BOXES = 240
"""Maximum number of boxes in the drawing of a graph, excluding the legend."""


def to_dot(
    graph: Graph,
    *,
    limit: int | None = MAX_BOXES,
    heat: HeatFigure | None = None,
) -> graphviz.Digraph:
    """Draw a whole graph, including its subgraphs.

    Modules are nested clusters. Parameters, buffers and constants are lines in their users' boxes.
    Colours show op categories; edges are labelled with dtype and shape; the tooltip has the full
    node and the user's source line. A value saved for backward has a double border.

    Args:
        graph: graph to draw.
        limit: maximum number of boxes; `None` for no limit. In a larger graph, modules are folded
            into one box each, the innermost first, and runs of ops without a module into blocks.
        heat: figure to show as colours in place of op categories; see `Graph.to_dot`.

    Raises:
        CaptureError, ValueError: see `heat` in `Graph.to_dot`.
    """
    return drawing(graph, limit=limit, heat=heat).digraph


def drawing(
    graph: Graph, *, limit: int | None = MAX_BOXES, heat: HeatFigure | None = None
) -> Drawing:
    """Like `to_dot`, but also return the meaning of each element of the SVG."""
    heading = f"{graph.name}: {graph.kind} graph at level {graph.level}"
    title = [f"{eager_label(graph) if graph.eager else heading}, {ops_in_words(graph)}"]
    heat_values = None if heat is None else Heat.of([graph], heat, times_run=False)
    scene = Scene(graph.name, title, heat_values)
    scene.add_graph(graph)
    return draw(scene, limit)
