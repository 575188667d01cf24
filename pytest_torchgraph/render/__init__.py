"""Drawings of graphs and of differences: DOT, and from it SVG, PNG or PDF.

How data flow, from the top down:

    Graph, or GraphDiff        drawn by `whole`, `program` or `difference`
      FoldedGraph              the nodes that are drawn; getitem folded (layout.drawables)
        Overlay                two of these as one, of a difference alone (overlay)
      Drawable, Edge           on a Canvas; each with a Look and a Paint (layout.canvas, look)
        Unit                   what shares a box: clusters opened or closed (layout.clustering)
      Scene                    boxes, clusters, edges, invisible edges (layout.scene, .sequence)
      Drawing                  DOT, and the Element that each `id` stands for (whole)
    SVG, PNG, PDF, DOT         by the program `dot` or pygraphviz (output.rendering)

`whole.to_dot` and `difference.diff_to_dot` decide what is drawn; `program.drawing` draws all graphs
of a step, what ran eagerly among the compiled ones, `program.drawing_of_breaks` a capture cut by
graph breaks, `difference.surplus_drawing` ops that should not be there. `to_file.render` draws and
raises where it cannot; `output.rendering.draw` does the same for a test that has failed already,
and so neither raises nor hangs. Nothing is imported before it is used: most test runs draw nothing.
`model_explorer` writes graphs for a viewer that draws them itself.

For a page that holds drawings, each of these functions takes a `prefix` and gives a
`Drawing`: the DOT and, in `elements`, the meaning of each box and cluster of the SVG. `draw` its
`digraph` into a file and put the SVG into the page as it is.

- Every element has an `id`: `<prefix>box-N`, `<prefix>edge-N`, `<prefix>cluster-N`, and the whole
  `<prefix>picture`. They are the same whenever the same thing is drawn. A prefix for each drawing
  keeps them apart in one page. Names of the user are never part of an `id` or a class.
- `Drawing.elements` maps the ids of boxes and clusters to `Element`s: the graph and the names of
  the nodes in the box (one op with the parameters and projections folded into it, or all nodes of a
  group), the module path of a cluster, the kind of change. `Drawing.id_of(graph, node)` is the way
  back, from a finding to its box. Line, shape and users are in the graph, by the node's name.
- Classes: `node`, `edge`, `cluster`, `graph` are Graphviz's. Ours begin with `tg-`. Boxes: `tg-op`
  with a category (`tg-matmul`, `tg-pointwise`, `tg-reduction`, `tg-view`, `tg-copy-cast`,
  `tg-collective`, `tg-random`, `tg-custom`, `tg-other`), `tg-input`, `tg-return`, `tg-group`,
  `tg-port`, `tg-break`, `tg-context` (unchanged), `tg-added`, `tg-removed`, `tg-changed`,
  `tg-rewired`, `tg-surplus`, with `tg-follows` for consequences; `tg-saved`, `tg-effect`. Edges:
  `tg-value`, `tg-added`, `tg-removed`, `tg-changed`, `tg-order`, `tg-body`, `tg-cut`. Clusters:
  `tg-module`, `tg-body`, `tg-graph`, `tg-eager`, `tg-legend`. The whole drawing: `tg-picture`. A
  heat adds `tg-heat-most`, `-more`, `-medium`, `-less`, `-least`, `-none`, `-unknown` to boxes.
- SVGs follow the viewer's `prefers-color-scheme`. A page with a switch of its own takes
  `output.style.dark_rules(under)` for a selector of its own.
"""
