"""The drawing of ops that should not be there, among their neighbours."""

from __future__ import annotations

from collections.abc import Collection, Sequence

from ..graph.model import Graph, Node
from ..words import counted
from .difference import MAX_BOXES, change_look, change_paint
from .drawing import Drawing
from .layout.canvas import Canvas
from .layout.placed_graph import add_graph
from .layout.scene import Scene, graph_cluster
from .look.change_marks import SIGNS, ChangeMark


def surplus_drawing(
    graphs: Sequence[Graph], nodes: Collection[Node], title: str = "", prefix: str = ""
) -> Drawing:
    """Draw the graphs that some nodes are in, with these marked and the rest folded.

    Args:
        graphs: graphs; those that none of `nodes` is in are left out.
        nodes: the nodes that are too many, of the graphs themselves (found by identity), bodies of
            higher-order ops included.
        title: what is wrong with them, a line above the drawing.
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
            if (drawable := placed.drawable_of(node)) is not None:
                canvas.drawables[drawable].mark = ChangeMark("surplus", None, node)
                canvas.drawables[drawable].no_box = False
                surplus.append(drawable)
    where = counted(len({canvas.drawables[n].graph for n in surplus}), "graph")
    scene.title.append(f"{SIGNS['surplus']} {counted(len(surplus), 'op')} in {where}")
    canvas.draw(MAX_BOXES, canvas.with_neighbours(surplus), compact=True)
    folded = canvas.count_marks_in_groups()
    if folded:
        scene.title.append(f"{folded:,} of them are counted in the boxes of their groups")
    return Drawing.of(scene)
