"""Drawing of a scene as DOT, with the meaning of each element for pages that link to elements.

Both sides of a difference share one layout, so a viewer can show either side without moving
anything.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, Any

from ..graph.model import Node
from ..graph.module_paths import common_prefix
from ..words import first_lines, grouped
from .colours import (
    CATEGORY_PAINTS,
    CHANGE_PAINTS,
    GREY,
    HEAT_PAINTS,
    SHARES,
    STEP_LABELS,
    WHITE,
    Paint,
    op_category,
)
from .labels import (
    MAX_LINE,
    MAX_LINES,
    MAX_TOOLTIP_LINE,
    SIGNS,
    Line,
    change_lines,
    clean,
    cut,
    dot_text,
    folded_label,
    group_lines,
    name_range,
    need_graphviz,
    node_lines,
    same,
    tooltip_of,
)
from .layout import Part, fold
from .scene import SAVED, Box, ClusterPath, Edge, Element, OnlySide, Scene

if TYPE_CHECKING:
    import graphviz

_Key = tuple[int, int, str]
"""Numbers of the boxes at the tail and head of an edge, and its kind."""
_Look = tuple[list[Line], list[str], dict[str, str], Element]
"""Label, tooltip, DOT attributes and meaning of a box."""


@dataclass
class Side:
    """One side of a difference.

    Attributes:
        without: `id`s of the drawn boxes, edges and clusters that this side does not have.
        labels: label lines of elements whose label differs from the drawn label, keyed by `id`.
            Both labels have the same number of lines.
        edges: edges of this side that are not drawn, each as the `id`s of two boxes.
        boxes: for the old graph, the `id` of the box that shows each op.
    """

    without: dict[str, None] = field(default_factory=dict)
    labels: dict[str, list[str]] = field(default_factory=dict)
    edges: dict[tuple[str, str], None] = field(default_factory=dict)
    boxes: dict[Node, str] = field(default_factory=dict)


@dataclass
class Sides:
    """Both sides of a difference; empty for a drawing of one graph."""

    before: Side = field(default_factory=Side)
    after: Side = field(default_factory=Side)

    def __bool__(self) -> bool:
        return any(side.without or side.labels for side in (self.before, self.after))

    def record(
        self,
        element: str,
        lines: Sequence[Line],
        only: OnlySide,
        limit: int = MAX_LINE,
        needs: Iterable[Collection[str]] = (),
    ) -> None:
        """Record how an element differs from the drawing on each side.

        Args:
            element: the `id` of the element.
            lines: the lines of its label.
            only: the only side that has it; "" for both.
            limit: maximum characters of a line.
            needs: sets of boxes. A side without any box of one of them does not have the element.
        """
        for side, other in ((self.before, "after"), (self.after, "before")):
            # Boxes are recorded before the clusters and edges that need them.
            missing = (all(box in side.without for box in boxes) for boxes in needs)
            if only == other or any(missing):
                side.without[element] = None
        before, after = ([cut(clean(line[n]), limit) for line in lines] for n in (1, 2))
        if before != after:
            self.before.labels[element], self.after.labels[element] = before, after


@dataclass(frozen=True)
class Drawing:
    """A finished drawing, not yet laid out by Graphviz. `output` turns its DOT into a file.

    Attributes:
        digraph: the drawing as DOT.
        elements: the meaning of each box and each cluster, keyed by its `id` in the SVG.
        sides: for a difference, the parts of the SVG that belong to each side.
    """

    digraph: graphviz.Digraph
    elements: Mapping[str, Element]
    sides: Sides = field(default_factory=Sides)

    def id_of(self, graph: str, node: str, *, is_old: bool = False) -> str | None:
        """Return the `id` of the box that shows a node, or `None` if the node has no box.

        Args:
            graph: name of the graph, or `old -> new` if the graphs of a `Change` have two names.
            node: name of the node. A parameter or projection is shown in its user's box.
            is_old: True if only the old graph of a difference has the node.
        """
        # The drawing has the new name of two. A name of one graph may contain an arrow as well.
        for name in (graph, graph.rpartition(" -> ")[2]):
            for key in self.ids_of(name, node, is_old=is_old):
                return key
        return None

    def ids_of(self, graph: str, node: str, *, is_old: bool) -> list[str]:
        """Return the `id`s of all boxes that show a node; see `id_of`."""
        return self._boxes.get((graph, node, is_old), [])

    @cached_property
    def _boxes(self) -> dict[tuple[str, str, bool], list[str]]:
        """Box ids by graph, node and `is_old`. A group may show nodes of both graphs."""
        boxes: dict[tuple[str, str, bool], list[str]] = {}
        for key, element in self.elements.items():
            for node in element.nodes:
                sides = (True, False) if element.kind == "group" else (element.is_old,)
                for is_old in sides:
                    boxes.setdefault((element.graph, node, is_old), []).append(key)
        return boxes


FAR = 60
"""Maximum number of boxes that an edge passes, times the users of its value, before the edge
becomes a line in the box of its head."""
MAX_FAR = 3
"""Maximum number of values from far above listed in a box."""
MAX_TITLE = 120
"""Maximum characters in a line of the title."""
MAX_LABEL = 80
"""Maximum characters in the label of a cluster or of a graph break."""
FONT = "Helvetica,Arial,sans-serif"
BOX = {
    "shape": "box",
    "style": "filled,rounded",
    "fontsize": "10",
    "margin": "0.08,0.04",
    "height": "0.2",
    "width": "0.2",
}
EDGE = {"fontsize": "8", "color": GREY, "fontcolor": GREY, "arrowsize": "0.6"}
CLUSTER = {"fontsize": "9", "labeljust": "l"}
BOLD = {"style": "filled,bold"}
CONTEXT = {"color": "#AAAAAA", "fillcolor": WHITE, "fontcolor": "#555555"}
"""DOT attributes of an unchanged box in a drawing whose colours show changes."""
GROUP = {
    "shape": "box3d",
    "style": "filled",
    "color": "#555555",
    "fillcolor": "#F4F4F4",
    "margin": "0.14,0.08",
}
"""DOT attributes of a group without changes."""
CLUSTER_STYLE: dict[str, dict[str, str]] = {
    "module": {"color": "#BBBBBB", "fontcolor": "#555555", "style": "rounded"},
    "body": {"color": "#777777", "fontcolor": "#333333", "style": "rounded,dashed"},
    "graph": {"color": "#333333", "fontcolor": "#000000", "fontsize": "14", "penwidth": "1.5"},
    "eager": {
        "color": "#9A6700",
        "fontcolor": "#7A5200",
        "fontsize": "14",
        "penwidth": "1.5",
        "style": "filled,rounded,dashed",
        "fillcolor": "#FFF8E5",
    },
    "legend": {"color": "#DDDDDD", "fontcolor": "#777777", "style": "rounded"},
}
"""DOT attributes of a cluster, keyed by the kind of its segment."""
EDGE_STYLES: dict[str, dict[str, str]] = {
    "added": {"color": CHANGE_PAINTS["added"].border, "penwidth": "2"},
    "removed": {"color": CHANGE_PAINTS["removed"].border, "style": "dashed"},
    "changed": {"color": CHANGE_PAINTS["changed"].border},
    "order": {"style": "dotted"},
    "body": {"style": "dashed", "arrowhead": "none"},
    "cut": {"color": CHANGE_PAINTS["removed"].border, "style": "bold"},
}
"""DOT attributes of an edge, keyed by its kind; none for a value."""


def draw(
    scene: Scene, limit: int | None, focus: Iterable[Box] = (), *, compact: bool = False
) -> Drawing:
    """Draw a scene.

    Args:
        scene: the scene.
        limit: maximum number of boxes; `None` for no limit.
        focus: boxes to draw alone, the most important first.
        compact: True to fold all others; see `layout.fold`.
    """
    number_of = {box: number for number, box in enumerate(scene.boxes)}
    in_focus = [number_of[box] for box in focus]
    parts = fold([box.cluster for box in scene.boxes], limit, in_focus, compact=compact)
    return _Writer(scene, parts).write()


class _Writer:
    """Writes a scene whose boxes are folded into parts.

    A part is known by its number, which is also that of its box in the SVG (`_id`).

    Attributes:
        scene: the scene.
        contents: the boxes of each part.
        clusters: the cluster of each part.
        members: the parts inside each cluster, also those in nested clusters.
        children: the clusters directly inside each cluster.
        elements, sides: those of the `Drawing`, filled while the scene is written.
        digraph: the DOT text.
    """

    def __init__(self, scene: Scene, parts: Sequence[Part]):
        self.scene = scene
        self.contents = [scene.boxes[part.start : part.stop] for part in parts]
        self.clusters = [
            boxes[0].cluster[: part.depth] if part.is_group else boxes[0].cluster
            for part, boxes in zip(parts, self.contents, strict=True)
        ]
        self.members = grouped(
            (path[:end], number)
            for number, path in enumerate(self.clusters)
            for end in range(len(path) + 1)
        )
        self.children = grouped((path[:-1], path) for path in self.members if path)
        self.elements: dict[str, Element] = {}
        self.sides = Sides()
        self.digraph: graphviz.Digraph = need_graphviz().Digraph(
            dot_text([scene.name]), strict=False
        )

    def write(self) -> Drawing:
        """Write the boxes in their clusters, then the edges. Call once."""
        part_of = {box: number for number, boxes in enumerate(self.contents) for box in boxes}
        # One edge stands for all values of a kind between two boxes. An edge of both sides comes
        # last, and so stands for equal ones of one side.
        bundles: defaultdict[_Key, dict[tuple[Box, tuple[int | str, ...]], Edge]]
        bundles = defaultdict(dict)
        for edge in sorted(self.scene.edges, key=lambda edge: not edge.side):
            tail, head = part_of[edge.tail], part_of[edge.head]
            if tail != head:
                bundles[tail, head, edge.kind][edge.tail, edge.value] = edge
        # Before the boxes, because the values of long edges are lines in their labels.
        far: dict[int, list[str]] = {}
        for key in _far(bundles):
            first, *others = bundles.pop(key).values()
            more = f"and {len(others)} more" if others else first.label.text
            far.setdefault(key[1], []).append(f"from {first.tail.node.name} {more}")
        boxes = [self._box(n, far.get(n, ())) for n in range(len(self.contents))]
        self.digraph.attr(
            rankdir="TB",
            fontname=FONT,
            fontsize="11",
            # Without `newrank`, `dot` ranks each cluster on its own, and some edges run upwards.
            newrank="true",
            nodesep="0.2",
            ranksep="0.25",
            bgcolor=WHITE,
            id="picture",
            label=dot_text([*self.scene.title, *self._notes()], MAX_TITLE),
            labelloc="t",
            tooltip=" ",
            **{"class": "tg-picture"},
        )
        self.digraph.attr("node", fontname=FONT, **BOX)
        self.digraph.attr("edge", fontname=FONT, **EDGE)
        self._write_cluster(self.digraph, (), boxes)
        if not self.scene.by_change:
            self._write_legend()
        for number, (key, edges) in enumerate(bundles.items(), 1):
            self._write_edge(f"edge-{number}", *key, [*edges.values()])
        for node, box in self.scene.old_boxes.items():
            self.sides.before.boxes[node] = _id(part_of[box])
        return Drawing(self.digraph, self.elements, self.sides)

    def _notes(self) -> Iterator[str]:
        """Yield what the title says about costs and folded boxes."""
        if self.scene.heat is not None:
            yield self.scene.heat.title()
        groups = [boxes for boxes in self.contents if len(boxes) > 1]
        folded = [box for boxes in groups for box in boxes]
        if self.scene.by_change:
            marked = sum(box.mark is not None for box in folded)
            if marked:
                yield self.scene.by_change.format(marked)
        elif ops := sum(box.node.is_call for box in folded):
            yield f"{ops:,} ops are folded into {len(groups)} boxes"

    # -- boxes -------------------------------------------------------------------------------------

    def _box(self, number: int, far: Sequence[str]) -> dict[str, str]:
        """Return the DOT attributes of a box, and record its meaning.

        Args:
            number: number of its part.
            far: lines for values from far above.
        """
        boxes = self.contents[number]
        lines, tooltip, attributes, element = (
            self._group(boxes, self.clusters[number]) if len(boxes) > 1 else self._alone(boxes[0])
        )
        lines += map(same, first_lines(far, MAX_FAR, "value"))
        heat = self.scene.heat
        # A graph break costs nothing.
        if heat is not None and boxes[0].fixed is None:
            nodes = [node for box in boxes for node in box.computed]
            step = heat.step(nodes)
            lines += [same(line)] if (line := heat.format_cost(nodes)) else []
            attributes |= _colours(HEAT_PAINTS[step])
        sides = {box.side for box in boxes}
        limit = MAX_LINE if boxes[0].fixed is None else MAX_LABEL
        self.elements[_id(number)] = element
        self.sides.record(_id(number), lines, sides.pop() if len(sides) == 1 else "", limit)
        return {
            "label": dot_text([line.text for line in lines], limit),
            "tooltip": dot_text(tooltip, MAX_TOOLTIP_LINE),
            "id": _id(number),
            **attributes,
        }

    def _alone(self, box: Box) -> _Look:
        """Return the look of a box that is not folded, by its change, its break or its op."""
        node, mark = box.node, box.mark
        lines = change_lines(mark, node) if mark is not None else [*map(same, node_lines(node))]
        # The lines of a mark name the changed inputs, and leave no room for all inputs.
        if mark is None or not mark.lines:
            lines += [same(folded_label(folded, node)) for folded in box.inputs]
        # The box's own lines, about collectives and saved values, are never cut.
        most = max(1, MAX_LINES - len(box.lines))
        if len(lines) > most:
            lines[most - 1 :] = [same(f"... and {len(lines) - most + 1} more")]
        lines += map(same, box.lines)
        kind = "" if mark is None else mark.kind
        element = Element("node", box.graph, tuple(box.names), "", kind, box.side == "before")
        tooltip = tooltip_of(node)
        if box.fixed is not None:
            lines, tooltip, element = box.fixed
        if mark is not None:
            style = _colours(CHANGE_PAINTS[kind]) | {"penwidth": "2"}
            if mark.follows:
                style |= {"fillcolor": WHITE, "style": "filled,rounded,dashed", "penwidth": "1"}
            return lines, tooltip, style, element
        if self.scene.by_change:
            return lines, tooltip, CONTEXT | {}, element  # a copy, because `_box` adds to it
        if element.kind == "break":
            style = _colours(CHANGE_PAINTS["removed"]) | BOLD | {"margin": "0.15,0.1"}
            return lines, tooltip, style, element
        category = "other" if node.kind == "output" else op_category(node)
        style = _colours(CATEGORY_PAINTS[category])
        if not node.is_call:
            style |= BOLD | {"shape": "ellipse" if node.kind == "placeholder" else "box"}
        style |= {"peripheries": "2"} if box.saved else {}
        return lines, tooltip, style, element

    def _group(self, boxes: Sequence[Box], cluster: ClusterPath) -> _Look:
        """Return the look of several boxes that are folded into one.

        The title is the module that contains all of them, else the first and last module, else the
        first and last node.

        Args:
            boxes: the boxes, in graph order.
            cluster: the cluster of the group.
        """
        nodes = [box.node for box in boxes]
        paths = [box.cluster for box in boxes if len(box.cluster) > len(cluster)]
        inside = [*dict.fromkeys(path[len(cluster)] for path in paths)]
        around = cluster[-1].label if cluster and cluster[-1].kind == "module" else ""
        if len(inside) == 1:
            title = common_prefix(paths)[-1].label
        elif inside:
            title = name_range(*(_relative(inside[n].label, around) for n in (0, -1)))
        else:
            title = name_range(*(nodes[n].name.removeprefix(f"{around}/") for n in (0, -1)))
        notes = {SAVED: count} if (count := sum(box.saved for box in boxes)) else {}
        modules = sum(segment.kind == "module" for segment in inside)
        texts, tooltip = group_lines(nodes, title, modules, notes)
        # The box has the colour of the first change; the label counts the changes of each kind.
        kinds = Counter(box.mark.kind for box in boxes if box.mark is not None)
        if kinds:
            texts.append(
                ", ".join(f"{SIGNS[kind]} {count} {kind}" for kind, count in kinds.items())
            )
        kind = next(iter(kinds), "")
        style = GROUP | (_colours(CHANGE_PAINTS[kind]) if kind else {})
        names = tuple(dict.fromkeys(name for box in boxes for name in box.names))
        element = Element("group", boxes[0].graph, names, title, kind)
        return [*map(same, texts)], tooltip, style, element

    def _write_legend(self) -> None:
        """Write the categories, or the steps of the scale of costs, that are drawn."""
        heat = self.scene.heat
        alone = (boxes[0].node for boxes in self.contents if len(boxes) == 1)
        categories = {op_category(node) for node in alone if node.kind != "output"}
        # All steps of a scale, also those without a box, but "unknown" only if a cost is.
        steps = {*STEP_LABELS} if heat and None in heat.costs.values() else {*SHARES, "none"}
        with self.digraph.subgraph(name="cluster_legend") as legend:
            title = "families of ops" if heat is None else "share of all"
            legend.attr(label=title, id="legend", **CLUSTER | CLUSTER_STYLE["legend"])
            for key, paint in (CATEGORY_PAINTS if heat is None else HEAT_PAINTS).items():
                if key in (categories if heat is None else steps):
                    label = key if heat is None else STEP_LABELS[key]
                    legend.node(f"legend {key}", label, fontsize="8", **_colours(paint))

    # -- clusters and edges ------------------------------------------------------------------------

    def _write_cluster(
        self, digraph: graphviz.Digraph, path: ClusterPath, boxes: Sequence[dict[str, str]]
    ) -> None:
        """Write the boxes and clusters inside a cluster, recursively.

        Args:
            digraph: takes them: the whole drawing, or the subgraph of the cluster.
            path: the cluster; () for the whole drawing.
            boxes: the DOT attributes of the box of each part.
        """
        members = self.members.get(path, ())
        for number in members:
            if self.clusters[number] == path:
                digraph.node(f"n{number}", **boxes[number])
        for child in self.children.get(path, ()):
            kind, label, _ = child[-1]
            inside, nested = self.members[child], self.children.get(child, ())
            only = nested[0] if len(nested) == 1 else ()
            # A module whose whole content is one module has no frame of its own.
            if kind == "module" and only and only[-1].kind == kind and self.members[only] == inside:
                self._write_cluster(digraph, child, boxes)
                continue
            key = f"cluster-{len(self.elements) - len(boxes) + 1}"  # all boxes are elements by now
            classes = (self.scene.old_classes, self.scene.classes) if kind == "module" else ({}, {})
            titles = [
                " · ".join(filter(None, (label, names.get(label), self._cost(inside))))
                for names in classes
            ]
            self.elements[key] = Element(kind, label=label)
            # Drawn with the new title. `dot` frames a subgraph only if its name starts with
            # "cluster"; `key[8:]` is the number.
            line = Line(titles[1], *titles)
            self.sides.record(key, [line], "", MAX_LABEL, [[_id(number) for number in inside]])
            with digraph.subgraph(name=f"cluster_{key[8:]}") as cluster:
                cluster.attr(
                    label=dot_text([line.text], MAX_LABEL),
                    tooltip=dot_text([line.text], MAX_TOOLTIP_LINE),
                    id=key,
                    **CLUSTER | CLUSTER_STYLE[kind],
                )
                self._write_cluster(cluster, child, boxes)

    def _cost(self, numbers: Iterable[int]) -> str:
        """Return the cost of all parts with these numbers, as text; "" without costs."""
        heat = self.scene.heat
        if heat is None:
            return ""
        nodes = [node for n in numbers for box in self.contents[n] for node in box.computed]
        return heat.format_amount(heat.known_cost(nodes))

    def _write_edge(self, key: str, tail: int, head: int, kind: str, edges: Sequence[Edge]) -> None:
        """Write one edge for all edges of a kind between two parts.

        Args:
            key: its `id`.
            tail, head: the numbers of the parts.
            kind: see `Edge`; a "hidden" edge is only recorded for the old side.
            edges: the edges.
        """
        ends = _id(tail), _id(head)
        if kind == "hidden":
            self.sides.before.edges[ends] = None
            return
        line = same(f"{len(edges)} values") if len(edges) > 1 else edges[0].label
        sides = {edge.side for edge in edges}
        only = sides.pop() if len(sides) == 1 else ""
        self.sides.record(key, [line], only, needs=[[end] for end in ends])
        label = {"label": dot_text([f" {line.text} "])} if line.text else {}
        self.digraph.edge(f"n{tail}", f"n{head}", id=key, **label, **EDGE_STYLES.get(kind, {}))


def _far(bundles: Mapping[_Key, Mapping[Any, Edge]]) -> list[_Key]:
    """Return the edges to write as lines in the boxes of their heads, because they are long.

    `dot` draws a long edge across all boxes in between: an attention mask that every layer reads
    would fill the drawing. Each box keeps the edge from its nearest operand, and each value the
    edge to its nearest user.
    """
    drawn = [key for key in bundles if key[2] not in ("order", "hidden")]
    operands = grouped((head, tail) for tail, head, _ in drawn)
    users = grouped((tail, head) for tail, head, _ in drawn)
    return [
        (tail, head, kind)
        for tail, head, kind in drawn
        if kind == "value"
        and (head - tail) * len(users[tail]) > FAR
        and head != min(users[tail])
        and tail != max(operands[head])
        and not any(edge.side for edge in bundles[tail, head, kind].values())
    ]


def _id(number: int) -> str:
    """Return the `id` in the SVG of a box."""
    return f"box-{number + 1}"


def _colours(paint: Paint) -> dict[str, str]:
    return {"color": paint.border, "fillcolor": paint.fill}


def _relative(path: str, enclosing: str) -> str:
    """Return a module path relative to the enclosing module: `mlp`, or `layers.3` in a list."""
    if not enclosing or not path.startswith(f"{enclosing}."):
        return path
    # The index alone would not say what it counts.
    name = path.removeprefix(f"{enclosing}.")
    return f"{enclosing.rpartition('.')[2]}.{name}" if name[:1].isdigit() else name
