"""Pictures of graphs and of differences: DOT, and from it SVG, PNG or PDF.

`to_dot` and `diff_to_dot` decide what is drawn; `breaks.to_dot` draws a capture cut by graph
breaks, `surplus.to_dot` ops that should not be there. `render` draws and raises where it cannot;
`draw` does the same for a test that has failed already, and so neither raises nor hangs. Nothing is
imported before it is used: most test runs draw nothing.

For a page that holds pictures, each of the four modules has `picture(..., prefix="")`, which gives
a `Picture`: the DOT and, in `elements`, what each box and cluster of the SVG stands for. `draw` its
`digraph` into a file and put the SVG into the page as it is.

- Every element has an `id`: `<prefix>box-N`, `<prefix>edge-N`, `<prefix>cluster-N`, and the whole
  `<prefix>picture`. They are the same whenever the same thing is drawn. A prefix for each picture
  keeps them apart in one page. Names of the user are never part of an `id` or a class.
- `Picture.elements` maps the ids of boxes and clusters to `Element`s: the graph and the names of
  the nodes in the box (one op with the parameters and projections folded into it, or all nodes of a
  group), the module path of a cluster, the kind of change. `Picture.id_of(graph, node)` is the way
  back, from a finding to its box. Line, shape and users are in the graph, by the node's name.
- Classes: `node`, `edge`, `cluster`, `graph` are Graphviz's. Ours begin with `tg-`. Boxes: `tg-op`
  with a family (`tg-matmul`, `tg-pointwise`, `tg-reduction`, `tg-view`, `tg-copy-cast`,
  `tg-collective`, `tg-random`, `tg-custom`, `tg-other`), `tg-input`, `tg-return`, `tg-group`,
  `tg-port`, `tg-break`, `tg-context` (unchanged), `tg-added`, `tg-removed`, `tg-changed`,
  `tg-rewired`, `tg-surplus`, with `tg-follows` for consequences; `tg-saved`, `tg-effect`. Edges:
  `tg-value`, `tg-added`, `tg-removed`, `tg-changed`, `tg-order`, `tg-body`, `tg-cut`. Clusters:
  `tg-module`, `tg-body`, `tg-graph`, `tg-legend`. The picture: `tg-picture`.
- SVGs follow the viewer's `prefers-color-scheme`. A page with a switch of its own takes
  `style.dark_rules(under)` for a selector of its own.
"""
