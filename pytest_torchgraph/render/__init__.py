"""Draw graphs and differences as DOT, SVG, PNG or PDF.

Data flow, from the top down:

    Graph, or GraphDiff        drawn by `whole`, `program` or `difference`
      Scene                    boxes with marks, in clusters, and edges between them (scene)
      focus                    the boxes to draw alone, the most important first
    Drawing                    DOT, and the Element of each `id` (dot), after boxes are folded
                               until they are few enough to read (layout)
    SVG, PNG, PDF, DOT         by the program `dot` or pygraphviz (output)

- `whole.to_dot` draws one graph, `difference.diff_to_dot` a difference.
- `program.drawing` draws all graphs of a step, eager and compiled, in program order.
- `program.drawing_of_breaks` draws a capture split by graph breaks.
- `difference.surplus_drawing` draws unexpected ops.
- `whole.render` draws into a file and raises on failure.
- `output.draw` also draws into a file, but never raises or hangs, because it is called for a
  test that has already failed.

Modules are imported on first use, because most test runs draw nothing.

For an HTML page, these functions have variants that return a `Drawing`: the DOT and, in `elements`,
the meaning of each box and cluster of the SVG. Pass its `digraph` to `draw` and embed the SVG
unchanged.

- Every element has an `id`: `box-N`, `edge-N`, `cluster-N`, and `picture` for the drawing. Drawing
  the same input again yields the same ids. User-defined names are never part of an `id`.
- `Drawing.elements` maps the ids of boxes and clusters to `Element`s: the graph and the names of
  the nodes in the box (one op with the parameters and projections folded into it, or all nodes of a
  group), the module path of a cluster, the kind of change. `Drawing.id_of(graph, node)` is the
  reverse lookup, from a finding to its box. For source line, shape and users, look up the node by
  name in the graph.
- The whole drawing has the class `tg-picture`; all other classes are Graphviz's.
- SVGs follow the viewer's `prefers-color-scheme`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..doors import front_door

if TYPE_CHECKING:
    from .colours import CATEGORY_PAINTS, CHANGE_PAINTS, HEAT_PAINTS, op_category
    from .difference import diff_to_dot, surplus_drawing
    from .dot import Drawing
    from .output import RenderResult, draw
    from .program import drawing_of_breaks
    from .scene import Element
    from .whole import render, to_dot
else:
    __getattr__ = front_door(
        __name__,
        {
            "colours": "CATEGORY_PAINTS CHANGE_PAINTS HEAT_PAINTS op_category",
            "difference": "diff_to_dot surplus_drawing",
            "dot": "Drawing",
            "output": "RenderResult draw",
            "program": "drawing_of_breaks",
            "scene": "Element",
            "whole": "render to_dot",
        },
    )
