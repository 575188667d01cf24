"""The drawing of a whole graph, with the meaning of its elements, so that a page can lead to them.

What makes `dot` slow is not the number of nodes but edges that span many ranks: each becomes a
chain of invisible nodes, one a rank. A residual connection, a value saved for backward or an
attention mask that every layer uses are drawn as a small port instead, a labelled stub at the
consumer. What has more than a few hundred nodes is drawn with modules closed.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING

from ..graph.model import Graph
from .layout.canvas import Canvas
from .layout.drawables import Drawable, Look
from .layout.placed_graph import NOT_OVERLAPPED, RETURNED, SAVED, PlacedGraph, add_graph
from .layout.scene import Element, Scene, Segment, Sides
from .look import labels
from .look.colours import CATEGORY_PAINTS, HEAT_PAINTS, WORDS, Heat, HeatFigure, Paint, op_category

if TYPE_CHECKING:
    import graphviz


@dataclass(frozen=True)
class Drawing:
    """A finished drawing, not yet laid out by Graphviz.

    `output.rendering` turns its DOT into a file. A `Scene` is the same before it is DOT.

    Attributes:
        digraph: the drawing as DOT.
        elements: the meaning of each box and each cluster, by the `id` that it has in the SVG.
        sides: of a difference, what of the SVG each of its sides has.
    """

    digraph: graphviz.Digraph
    elements: Mapping[str, Element]
    sides: Sides = field(default_factory=Sides)

    @classmethod
    def of(cls, scene: Scene) -> Drawing:
        """The drawing of a scene, which is complete."""
        return cls(scene.digraph(), dict(scene.elements), scene.sides)

    def id_of(self, graph: str, node: str, *, is_old: bool = False) -> str | None:
        """The `id` of the box that shows a node, alone or with others; None where none does.

        Args:
            graph: name of the graph, or `old -> new` where the graphs of a `Change` have two names.
            node: name of the node; a parameter or a projection is shown in its user's box, a value
                saved for the backward that is read as a port.
            is_old: whether the node is one that only the old graph of a difference has.
        """
        for name in (graph, graph.rpartition(" -> ")[2]):
            for old in (is_old, None):
                box = self._boxes.get((name, node, old))
                if box is not None:
                    return box
        return None

    @cached_property
    def _boxes(self) -> dict[tuple[str, str, bool | None], str]:
        """The boxes by graph, node and `is_old`, which is None for groups and ports.

        A group may have nodes of both graphs. A port counts only for a node without a box.
        """
        boxes: dict[tuple[str, str, bool | None], str] = {}
        for key, element in self.elements.items():
            if element.kind in ("node", "group"):
                old = element.is_old if element.kind == "node" else None
                for node in element.nodes:
                    boxes.setdefault((element.graph, node, old), key)
        for key, element in self.elements.items():
            if element.kind == "port":
                for node in element.nodes:
                    boxes.setdefault((element.graph, node, None), key)
        return boxes


MAX_BOXES = 240
"""How many boxes the drawing of a graph has at most, ports and the legend not counted."""


def to_dot(
    graph: Graph,
    *,
    focus: Collection[str] = (),
    limit: int | None = MAX_BOXES,
    heat: HeatFigure | None = None,
) -> graphviz.Digraph:
    """Draw a whole graph, its subgraphs included.

    Modules are nested clusters. Parameters, buffers and constants are lines in the boxes of their
    users, not boxes. Colours show categories of ops; edges carry dtype and shape; the tooltip has
    the full node and the user's line. A value saved for backward has a double border, and a wait
    for a collective beside which nothing computes a dashed one.

    Args:
        graph: what to draw.
        focus: names of nodes that are to be seen with their neighbours, whatever is folded.
        limit: with more boxes than this, modules are folded to one box each, from the inside out,
            and ops without modules to blocks of ops that follow each other; None folds nothing.
        heat: colours show what ops cost in place of their categories; see `Graph.to_dot`.

    Raises:
        KeyError: for a name in `focus` that no node has.
        CaptureError, ValueError: for a heat, see `Graph.to_dot`.
    """
    return drawing(graph, focus=focus, limit=limit, heat=heat).digraph


def drawing(
    graph: Graph,
    *,
    focus: Collection[str] = (),
    limit: int | None = MAX_BOXES,
    heat: HeatFigure | None = None,
    prefix: str = "",
) -> Drawing:
    """The same as `to_dot`, with the meaning of each element of the SVG.

    Args:
        graph, focus, limit, heat: as in `to_dot`.
        prefix: the beginning of every `id`, for a page that holds several drawings.

    Raises:
        KeyError: for a name in `focus` that no node has.
        CaptureError, ValueError: for a heat, see `Graph.to_dot`.
    """
    count = sum(len(each.nodes) for each in graph.walk())
    about = f"{graph.name}: {graph.kind} graph at level {graph.level}"
    title = [f"{labels.eager_label(graph) if graph.eager else about}, {count:,} nodes"]
    found = None if heat is None else Heat.of([graph], heat, times_run=False)
    scene = Scene(graph.name, title, prefix, found)
    canvas = Canvas(scene, category_look, category_paint)
    placed = add_graph(canvas, graph)
    wanted = canvas.with_neighbours(_drawables(placed, focus))
    groups = [unit for unit in canvas.draw(limit, wanted) if unit.is_group]
    if groups:
        ops = sum(canvas.drawables[n].node.is_call for unit in groups for n in unit.members)
        scene.title.append(f"{ops:,} ops are folded into {len(groups)} boxes")
    legend(canvas)
    return Drawing.of(scene)


def _drawables(placed: PlacedGraph, names: Iterable[str]) -> list[int]:
    """The drawables that show the nodes of these names, in the graph or in a subgraph."""
    numbers = []
    for name in names:
        nodes = [
            graph.folded.graph.by_name[name]
            for graph in placed.walk()
            if name in graph.folded.graph.by_name
        ]
        if not nodes:
            raise KeyError(name)
        numbers += [n for node in nodes if (n := placed.drawable_of(node)) is not None]
    return numbers


def category_look(drawable: Drawable, named: bool) -> Look:
    """The look of a box in a drawing whose colours show categories of ops.

    Args:
        drawable: the content of the box.
        named: whether a port refers to the node, so that the box has to show its name.
    """
    node = drawable.node
    lines = labels.node_lines(node)
    if named and node.kind != "placeholder":
        lines.append(f"= {node.name}")
    lines += [labels.folded_label(param, node) for param in drawable.folded.folded_inputs]
    if len(lines) + len(drawable.lines) > labels.MAX_LINES:
        kept = max(1, labels.MAX_LINES - len(drawable.lines) - 1)
        lines[kept:] = [f"... and {len(lines) - kept} more"]
    lines += drawable.lines
    category = "other" if node.kind == "output" else op_category(node)
    border, fill = CATEGORY_PAINTS[category]
    attributes = {"color": border, "fillcolor": fill}
    kind = "return" if node.kind == "output" else category
    classes = ["op", kind] if node.is_call else [kind]
    if SAVED in drawable.notes:
        attributes["peripheries"] = "2"
        classes.append("saved")
    if RETURNED in drawable.notes:
        attributes["penwidth"] = "2"
    if NOT_OVERLAPPED in drawable.notes:
        attributes |= {"style": "filled,rounded,dashed", "penwidth": "2"}
        classes.append("exposed")
    if node.effects:
        classes.append("effect")
    if not node.is_call:
        attributes["shape"] = "ellipse" if node.kind == "placeholder" else "box"
        attributes["style"] = "filled,bold"
    return Look(lines, attributes, tuple(classes))


def category_paint(drawable: Drawable) -> tuple[Paint, str]:
    """The paint and the CSS class of a port where colours show categories of ops."""
    category = op_category(drawable.node)
    return CATEGORY_PAINTS[category], category


def legend(canvas: Canvas) -> None:
    """Add the legend of the colours of a canvas that is drawn."""
    scene = canvas.scene
    if scene.heat is not None:
        _heat_legend(scene, scene.heat)
        return
    shown = [canvas.drawables[n].node for n in canvas.drawn]
    categories = {op_category(node) for node in shown if node.kind != "output"}
    cluster = (Segment("legend", "families of ops"),)
    for name, (border, fill) in CATEGORY_PAINTS.items():
        if name in categories:
            scene.add_box([name], cluster, " ", [name], color=border, fillcolor=fill, fontsize="8")


def _heat_legend(scene: Scene, heat: Heat) -> None:
    """Add what the colours show to the title, and the steps of the scale as a legend."""
    scene.title.append(heat.title())
    cluster = (Segment("legend", "share of all"),)
    unknown = any(value is None for value in heat.costs.values())
    for step, (border, fill) in HEAT_PAINTS.items():
        if step != "unknown" or unknown:
            classes = [f"heat-{step}"]
            text = [WORDS[step]]
            scene.add_box(text, cluster, " ", classes, color=border, fillcolor=fill, fontsize="8")
