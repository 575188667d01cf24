"""The drawing of ops that should not be there, among their neighbours."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import TYPE_CHECKING

from ..graph.model import Graph, Node
from .difference import MAX_BOXES, change_look, change_paint
from .drawing import Drawing
from .layout.canvas import Canvas
from .layout.placed_graph import add_graph
from .layout.scene import Scene, graph_cluster
from .look.change_marks import SIGNS, ChangeMark

if TYPE_CHECKING:
    import graphviz


def to_dot(graphs: Sequence[Graph], nodes: Collection[Node], title: str = "") -> graphviz.Digraph:
    """Draw the graphs that some nodes are in, with these marked and the rest folded.

    Args:
        graphs: graphs; those that none of `nodes` is in are left out.
        nodes: the nodes that are too many, of the graphs themselves (found by identity), bodies of
            higher-order ops included.
        title: what is wrong with them, a line above the drawing.
    """
    return drawing(graphs, nodes, title).digraph


def drawing(
    graphs: Sequence[Graph], nodes: Collection[Node], title: str = "", prefix: str = ""
) -> Drawing:
    """The same as `to_dot`, with the meaning of each element of the SVG.

    Args:
        graphs, nodes, title: as in `to_dot`.
        prefix: the beginning of every `id`, for a page that holds several drawings.
    """
    scene = Scene("surplus", [title] if title else [], prefix)
    canvas = Canvas(scene, change_look, change_paint)
    wanted = {id(node) for node in nodes}
    surplus: list[int] = []
    for number, graph in enumerate(graphs):
        own = [node for each in graph.walk() for node in each.nodes if id(node) in wanted]
        if not own:
            continue
        placed = add_graph(canvas, graph, graph_cluster(graph, number))
        for node in own:
            drawable = placed.drawable_of(node)
            if drawable is not None:
                canvas.drawables[drawable].mark = ChangeMark("surplus", None, node)
                canvas.drawables[drawable].no_box = False
                surplus.append(drawable)
    where = len({canvas.drawables[n].graph for n in surplus})
    scene.title.append(
        f"{SIGNS['surplus']} {len(surplus):,} {'op' if len(surplus) == 1 else 'ops'} in "
        f"{where} {'graph' if where == 1 else 'graphs'}"
    )
    canvas.draw(MAX_BOXES, canvas.with_neighbours(surplus), compact=True)
    folded = canvas.count_marks_in_groups()
    if folded:
        scene.title.append(f"{folded:,} of them are counted in the boxes of their groups")
    return Drawing.of(scene)
