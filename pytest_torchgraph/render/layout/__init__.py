"""Layout of nodes as boxes, clusters and edges, kept few enough to read, ordered by rank."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ...doors import front_door

if TYPE_CHECKING:
    from .canvas import EDGE_STYLES, Canvas
    from .drawables import Drawable, DrawnValue, Edge, FoldedGraph, FoldedNode, Look
    from .placed_graph import MAX_RETURNED, NOT_OVERLAPPED, RETURNED, SAVED, PlacedGraph, add_graph
    from .scene import (
        Element,
        OnlySide,
        Scene,
        Segment,
        Sides,
        css_classes,
        graph_cluster,
        module_cluster,
    )
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
