"""Drawing of a whole graph, with the meaning of each element for pages that link to elements.

Edges that span many ranks slow `dot` down more than the number of nodes: `dot` turns each long edge
into a chain of invisible nodes, one per rank. Residual connections, values saved for backward, and
an attention mask used by every layer are therefore drawn as ports, small labelled boxes at the
user. A graph with more than a few hundred nodes is drawn with modules closed.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING

from ..graph.model import Graph
from ..graph.text import ops_in_words
from .layout import (
    NOT_OVERLAPPED,
    RETURNED,
    SAVED,
    Canvas,
    Drawable,
    Element,
    Look,
    PlacedGraph,
    Scene,
    Segment,
    Sides,
    add_graph,
)
from .look import (
    CATEGORY_PAINTS,
    HEAT_PAINTS,
    MAX_LINES,
    STEP_LABELS,
    Heat,
    HeatFigure,
    Paint,
    eager_label,
    folded_label,
    node_lines,
    op_category,
)

if TYPE_CHECKING:
    import graphviz


@dataclass(frozen=True)
class Drawing:
    """A finished drawing, not yet laid out by Graphviz.

    `output.rendering` turns its DOT into a file. A `Scene` is the stage before DOT.

    Attributes:
        digraph: the drawing as DOT.
        elements: the meaning of each box and each cluster, keyed by its `id` in the SVG.
        sides: for a difference, the parts of the SVG that belong to each side.
    """

    digraph: graphviz.Digraph
    elements: Mapping[str, Element]
    sides: Sides = field(default_factory=Sides)

    @classmethod
    def of(cls, scene: Scene) -> Drawing:
        """Return the drawing of a completed scene."""
        return cls(scene.digraph(), dict(scene.elements), scene.sides)

    def id_of(self, graph: str, node: str, *, is_old: bool = False) -> str | None:
        """Return the `id` of the box that shows a node, or `None` if the node has no box.

        Args:
            graph: name of the graph, or `old -> new` if the graphs of a `Change` have two names.
            node: name of the node. A parameter or projection is shown in its user's box; a saved
                value that the backward reads is shown as a port.
            is_old: True if only the old graph of a difference has the node.
        """
        for name in (graph, graph.rpartition(" -> ")[2]):
            for old in (is_old, None):  # None: groups and ports, which may show both graphs
                box = self._boxes.get((name, node, old))
                if box is not None:
                    return box
        return None

    @cached_property
    def _boxes(self) -> dict[tuple[str, str, bool | None], str]:
        """Box ids by graph, node and `is_old`. `is_old` is `None` for groups and ports."""
        boxes: dict[tuple[str, str, bool | None], str] = {}
        for key, element in self.elements.items():
            if element.kind in ("node", "group"):
                # A group may have nodes of both graphs.
                old = element.is_old if element.kind == "node" else None
                for node in element.nodes:
                    boxes.setdefault((element.graph, node, old), key)
        # In a second pass, so that a port is used only for a node without a box.
        for key, element in self.elements.items():
            if element.kind == "port":
                for node in element.nodes:
                    boxes.setdefault((element.graph, node, None), key)
        return boxes


MAX_BOXES = 240
"""Maximum number of boxes in the drawing of a graph, excluding ports and the legend."""


def to_dot(
    graph: Graph,
    *,
    focus: Collection[str] = (),
    limit: int | None = MAX_BOXES,
    heat: HeatFigure | None = None,
) -> graphviz.Digraph:
    """Draw a whole graph, including its subgraphs.

    Modules are nested clusters. Parameters, buffers and constants are lines in their users' boxes.
    Colours show op categories; edges are labelled with dtype and shape; the tooltip has the full
    node and the user's source line. A value saved for backward has a double border. A wait for a
    collective that overlaps with no computation has a dashed border.

    Args:
        graph: graph to draw.
        focus: names of nodes to show, with their neighbours, even if the rest is folded.
        limit: maximum number of boxes; `None` for no limit. In a larger graph, modules are folded
            into one box each, the innermost first, and runs of ops without a module into blocks.
        heat: figure to show as colours in place of op categories; see `Graph.to_dot`.

    Raises:
        KeyError: if a name in `focus` is not the name of a node.
        CaptureError, ValueError: see `heat` in `Graph.to_dot`.
    """
    return drawing(graph, focus=focus, limit=limit, heat=heat).digraph


def drawing(
    graph: Graph,
    *,
    focus: Collection[str] = (),
    limit: int | None = MAX_BOXES,
    heat: HeatFigure | None = None,
) -> Drawing:
    """Like `to_dot`, but also return the meaning of each element of the SVG.

    Args:
        graph, focus, limit, heat: as in `to_dot`.

    Raises:
        KeyError: if a name in `focus` is not the name of a node.
        CaptureError, ValueError: see `heat` in `Graph.to_dot`.
    """
    heading = f"{graph.name}: {graph.kind} graph at level {graph.level}"
    title = [f"{eager_label(graph) if graph.eager else heading}, {ops_in_words(graph)}"]
    heat_values = None if heat is None else Heat.of([graph], heat, times_run=False)
    scene = Scene(graph.name, title, heat_values)
    canvas = Canvas(scene, category_look, category_paint)
    placed = add_graph(canvas, graph)
    focus_numbers = canvas.with_neighbours(_drawables(placed, focus))
    canvas.draw(limit, focus_numbers)
    groups = [unit for unit in canvas.units if unit.is_group]
    if groups:
        ops = sum(canvas.drawables[n].node.is_call for unit in groups for n in unit.members)
        scene.title.append(f"{ops:,} ops are folded into {len(groups)} boxes")
    add_legend(canvas)
    return Drawing.of(scene)


def _drawables(placed: PlacedGraph, names: Iterable[str]) -> list[int]:
    """Return the drawables of the named nodes, in the graph or in a subgraph."""
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
    """Return the look of a box in a drawing coloured by op category.

    Args:
        drawable: content of the box.
        named: True if a port refers to the node: the box then shows the node's name.
    """
    node = drawable.node
    lines = node_lines(node)
    if named and node.kind != "placeholder":
        lines.append(f"= {node.name}")
    lines += [folded_label(param, node) for param in drawable.folded.folded_inputs]
    if len(lines) + len(drawable.lines) > MAX_LINES:
        shown_lines = max(1, MAX_LINES - len(drawable.lines) - 1)
        lines[shown_lines:] = [f"... and {len(lines) - shown_lines} more"]
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
    """Return the paint and the CSS class of a port in a drawing coloured by op category."""
    category = op_category(drawable.node)
    return CATEGORY_PAINTS[category], category


def add_legend(canvas: Canvas) -> None:
    """Add a legend of the colours used on a drawn canvas."""
    scene = canvas.scene
    if scene.heat is not None:
        _add_heat_legend(scene, scene.heat)
        return
    drawn = (canvas.drawables[unit.members[0]].node for unit in canvas.units if not unit.is_group)
    categories = {op_category(node) for node in drawn if node.kind != "output"}
    cluster = (Segment("legend", "families of ops"),)
    for name, (border, fill) in CATEGORY_PAINTS.items():
        if name in categories:
            scene.add_box([name], cluster, " ", [name], color=border, fillcolor=fill, fontsize="8")


def _add_heat_legend(scene: Scene, heat: Heat) -> None:
    """Add the heat figure to the title and the steps of the colour scale as a legend."""
    scene.title.append(heat.title())
    cluster = (Segment("legend", "share of all"),)
    unknown = any(value is None for value in heat.costs.values())
    for step, (border, fill) in HEAT_PAINTS.items():
        if step != "unknown" or unknown:
            classes = [f"heat-{step}"]
            text = [STEP_LABELS[step]]
            scene.add_box(text, cluster, " ", classes, color=border, fillcolor=fill, fontsize="8")
