"""Layout of nodes as boxes, clusters and edges, kept few enough to read, ordered by rank."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ...doors import front_door

if TYPE_CHECKING:
    from .canvas import EDGE_STYLES as EDGE_STYLES
    from .canvas import Canvas as Canvas
    from .drawables import Drawable as Drawable
    from .drawables import DrawnValue as DrawnValue
    from .drawables import Edge as Edge
    from .drawables import FoldedGraph as FoldedGraph
    from .drawables import FoldedNode as FoldedNode
    from .drawables import Look as Look
    from .placed_graph import MAX_RETURNED as MAX_RETURNED
    from .placed_graph import NOT_OVERLAPPED as NOT_OVERLAPPED
    from .placed_graph import RETURNED as RETURNED
    from .placed_graph import SAVED as SAVED
    from .placed_graph import PlacedGraph as PlacedGraph
    from .placed_graph import add_graph as add_graph
    from .scene import Element as Element
    from .scene import OnlySide as OnlySide
    from .scene import Scene as Scene
    from .scene import Segment as Segment
    from .scene import Sides as Sides
    from .scene import css_classes as css_classes
    from .scene import graph_cluster as graph_cluster
    from .scene import module_cluster as module_cluster
else:
    __getattr__ = front_door(
        __name__,
        {
            "canvas": "Canvas EDGE_STYLES",
            "drawables": "Drawable DrawnValue Edge FoldedGraph FoldedNode Look",
            "placed_graph": "MAX_RETURNED NOT_OVERLAPPED PlacedGraph RETURNED SAVED add_graph",
            "scene": (
                "Element OnlySide Scene Segment Sides css_classes graph_cluster module_cluster"
            ),
        },
    )
