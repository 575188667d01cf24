"""The drawing of a whole graph, top to bottom in the direction of data.

What makes `dot` slow is not the number of nodes but edges that span many ranks: each becomes a
chain of invisible nodes, one a rank. A residual connection, a value saved for backward or an
attention mask that every layer uses are drawn as a small port instead, a labelled stub at the
consumer. What has more than a few hundred nodes is drawn with modules closed.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from typing import TYPE_CHECKING

from ..graph.model import Graph, Node
from .layout.canvas import Canvas, Look, Piece
from .layout.elements import SAVED, Added, add_graph
from .layout.scene import Scene, Segment
from .look import labels
from .look.op_categories import FAMILIES, Paint, family

if TYPE_CHECKING:
    import graphviz

    from .picture import Picture

MAX_BOXES = 240
"""How many boxes the picture of a graph has at most, ports and the legend not counted."""


def to_dot(
    graph: Graph, *, focus: Collection[str] = (), limit: int | None = MAX_BOXES
) -> graphviz.Digraph:
    """Draw a whole graph, its subgraphs included.

    Modules are nested clusters. Parameters, buffers and constants are lines in the boxes of their
    users, not boxes. Colours show families of ops; edges carry dtype and shape; the tooltip has the
    full node and the user's line. A value saved for backward has a double border.

    Args:
        graph: what to draw.
        focus: names of nodes that are to be seen with their neighbours, whatever is folded.
        limit: with more boxes than this, modules are folded to one box each, from the inside out,
            and ops without modules to blocks of ops that follow each other; None folds nothing.

    Raises:
        KeyError: for a name in `focus` that no node has.
    """
    return picture(graph, focus=focus, limit=limit).digraph


def picture(
    graph: Graph,
    *,
    focus: Collection[str] = (),
    limit: int | None = MAX_BOXES,
    prefix: str = "",
) -> Picture:
    """The same as `to_dot`, with what each element of the SVG stands for."""
    from .picture import Picture

    count = sum(len(each.nodes) for each in graph.walk())
    title = [f"{graph.name}: {graph.kind} graph at level {graph.level}, {count:,} nodes"]
    scene = Scene(graph.name, title, prefix)
    canvas = Canvas(scene, look, family_paint)
    added = add_graph(canvas, graph)
    wanted = with_neighbours(canvas, _numbers(added, focus))
    folded = [unit for unit in canvas.draw(limit, wanted) if unit.is_group]
    if folded:
        ops = sum(canvas.pieces[n].node.is_call for unit in folded for n in unit.members)
        scene.title.append(f"{ops:,} ops are folded into {len(folded)} boxes")
    shown = [canvas.pieces[n].node for n in canvas.drawn]
    _legend(scene, {family(node) for node in shown if node.kind != "output"})
    return Picture.of(scene)


def _numbers(added: Added, names: Iterable[str]) -> list[int]:
    found = []
    for name in names:
        nodes = [
            each.folded.graph.by_name[name]
            for each in added.walk()
            if name in each.folded.graph.by_name
        ]
        if not nodes:
            raise KeyError(name)
        found += [n for node in nodes if (n := added.piece_of(node)) is not None]
    return found


def with_neighbours(canvas: Canvas, focus: Collection[int], most: int = 5) -> list[int]:
    """Pieces and, behind them, at most so many of the pieces before and behind each of them."""
    near: dict[int, list[int]] = {number: [] for number in focus}
    behind: dict[int, list[int]] = {number: [] for number in focus}
    for edge in canvas.edges:
        if edge.head in near:
            near[edge.head].append(edge.tail)
        if edge.tail in behind:
            behind[edge.tail].append(edge.head)
    found = dict.fromkeys(focus)
    for number in focus:
        found.update(dict.fromkeys(sorted(set(near[number]), reverse=True)[:most]))
        found.update(dict.fromkeys(sorted(set(behind[number]))[:most]))
    return list(found)


def look(piece: Piece, named: bool) -> Look:
    """What a box looks like where nothing but the graph itself is to be shown."""
    node = piece.node
    lines = labels.node_lines(node)
    if named and node.kind != "placeholder":
        lines.append(f"= {node.name}")
    lines += [folded_label(param, node) for param in piece.box.folded]
    if len(lines) + len(piece.lines) > labels.MAX_LINES:
        kept = max(1, labels.MAX_LINES - len(piece.lines) - 1)
        lines[kept:] = [f"... and {len(lines) - kept} more"]
    lines += piece.lines
    kind = "return" if node.kind == "output" else family(node)
    border, fill = FAMILIES["other" if node.kind == "output" else kind]
    attributes = {"color": border, "fillcolor": fill}
    classes = ["op", kind] if node.is_call else [kind]
    if SAVED in piece.notes:
        attributes["peripheries"] = "2"
        classes.append("saved")
    if "returned" in piece.notes:
        attributes["penwidth"] = "2"
    if node.effects:
        classes.append("effect")
    if not node.is_call:
        attributes["shape"] = "ellipse" if node.kind == "placeholder" else "box"
        attributes["style"] = "filled,bold"
    return Look(lines, attributes, tuple(classes))


def family_paint(piece: Piece) -> tuple[Paint, str]:
    """The paint of a port where families are what is shown, and its class."""
    kind = family(piece.node)
    return FAMILIES[kind], kind


def folded_label(node: Node, user: Node) -> str:
    """The line of a parameter in its user's box, shorter where the user's module owns it."""
    name = node.target or node.name
    if user.module and name.startswith(user.module + "."):
        owner = user.module.rpartition(".")[2]
        name = f"{owner}.{name.removeprefix(user.module + '.')}"
    return f"{labels.cut(name, labels.MAX_LINE - 16)} {labels.value_label(node)}".strip()


def _legend(scene: Scene, families: Collection[str]) -> None:
    for name, (border, fill) in FAMILIES.items():
        if name in families:
            place = (Segment("legend", "families of ops"),)
            scene.add_box([name], place, " ", [name], color=border, fillcolor=fill, fontsize="8")
