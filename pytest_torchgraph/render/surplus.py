"""The drawing of ops that should not be there, among what is around them."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import TYPE_CHECKING

from ..graph.model import Graph, Node
from .difference import MAX_BOXES, look, port_paint
from .layout.canvas import Canvas
from .layout.elements import add_graph
from .layout.scene import Scene, Segment
from .look.change_marks import SIGNS, Mark
from .whole import with_neighbours

if TYPE_CHECKING:
    import graphviz

    from .picture import Picture


def to_dot(graphs: Sequence[Graph], nodes: Collection[Node], title: str = "") -> graphviz.Digraph:
    """Draw the graphs that some nodes are in, with these marked and the rest folded.

    Args:
        graphs: graphs; those that none of `nodes` is in are left out.
        nodes: the nodes that are too many, of the graphs themselves (found by identity), bodies of
            higher-order ops included.
        title: what is wrong with them, a line above the picture.
    """
    return picture(graphs, nodes, title).digraph


def picture(
    graphs: Sequence[Graph], nodes: Collection[Node], title: str = "", prefix: str = ""
) -> Picture:
    """The same as `to_dot`, with what each element of the SVG stands for."""
    from .picture import Picture

    scene = Scene("surplus", [title] if title else [], prefix)
    canvas = Canvas(scene, look, port_paint)
    wanted = {id(node) for node in nodes}
    marked: list[int] = []
    for number, graph in enumerate(graphs):
        own = [node for each in graph.walk() for node in each.nodes if id(node) in wanted]
        if not own:
            continue
        kind = "" if graph.kind == graph.name else f" ({graph.kind})"
        added = add_graph(canvas, graph, (Segment("graph", f"{graph.name}{kind}", str(number)),))
        for node in own:
            piece = added.piece_of(node)
            if piece is not None:
                canvas.pieces[piece].mark = Mark("surplus", None, node)
                canvas.pieces[piece].no_box = False
                marked.append(piece)
    where = len({canvas.pieces[n].graph for n in marked})
    scene.title.append(
        f"{SIGNS['surplus']} {len(marked):,} {'op' if len(marked) == 1 else 'ops'} in "
        f"{where} {'graph' if where == 1 else 'graphs'}"
    )
    units = canvas.draw(MAX_BOXES, with_neighbours(canvas, marked), compact=True)
    folded = sum(
        canvas.pieces[n].mark is not None for unit in units if unit.is_group for n in unit.members
    )
    if folded:
        scene.title.append(f"{folded:,} of them are counted in the boxes of their groups")
    return Picture.of(scene)
