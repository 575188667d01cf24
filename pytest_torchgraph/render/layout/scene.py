"""A drawing before it is DOT: boxes in nested clusters, edges, and the sides of a difference.

Both sides of a difference share one layout, so a viewer can show either side without moving
anything.

Every kind of drawing becomes a `Scene`, so all drawings look alike and only this module writes DOT.
In this module, a box is a DOT node, and a node is always a node of the drawn graph.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from itertools import count
from typing import TYPE_CHECKING, Literal, NamedTuple

from ...graph.model import Node
from ...words import grouped
from ..look import (
    MAX_LINE,
    MAX_TOOLTIP_LINE,
    clean,
    cut,
    dot_text,
    eager_label,
    need_graphviz,
)
from .sequence import BoxEdge, anchor_edges, separating_edges, stacking_edges

if TYPE_CHECKING:
    import graphviz

    from ...graph.model import Graph
    from ..look import Heat


OnlySide = Literal["", "before", "after"]
"""The only side that has an element; "" if both sides have it."""


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

    def record_only(self, element: str, side: OnlySide) -> None:
        """Record the only side that has an element. "" records nothing."""
        if side:
            missing_side = self.after if side == "before" else self.before
            missing_side.without[element] = None

    def record_labels(
        self, element: str, before: Sequence[str], after: Sequence[str], limit: int = MAX_LINE
    ) -> None:
        """Record the label lines of an element on both sides if they differ.

        Args:
            element: the `id` of the element.
            before, after: the lines, as plain text.
            limit: maximum characters of a line.
        """
        label_lines = [[cut(clean(line), limit) for line in lines] for lines in (before, after)]
        if label_lines[0] != label_lines[1]:
            self.before.labels[element], self.after.labels[element] = label_lines

    def record_edge(self, element: str, *boxes: str) -> None:
        """Record an edge as missing from each side that lacks its tail or its head."""
        for side in (self.before, self.after):
            if any(box in side.without for box in boxes):
                side.without[element] = None

    def record_cluster(self, element: str, boxes: Iterable[str]) -> None:
        """Record a cluster as missing from each side that lacks all of its boxes."""
        boxes = list(boxes)
        for side in (self.before, self.after):
            if all(box in side.without for box in boxes):
                side.without[element] = None


MAX_NESTING = 16
"""Maximum nesting of module clusters. In a longer path, the levels before the last are left out."""
MAX_TITLE = 120
"""Maximum characters in a line of the title."""
MAX_CLUSTER_LABEL = 80
"""Maximum characters in the label of a cluster. The tooltip has up to `MAX_TOOLTIP_LINE`."""
LARGE = 2500
"""Number of boxes above which edges have a `taillabel` in place of a `label`.

`dot` lays out a `label` like a box. That doubles the ranks and makes `dot` six times slower on
5,000 boxes.
"""
FONT = "Helvetica,Arial,sans-serif"
GREY = "#666666"


class Segment(NamedTuple):
    """One cluster in a `ClusterPath`.

    Attributes:
        kind: "module", "body" (a subgraph of a higher-order op), "graph", "eager" (an eager graph)
            or "legend".
        label: label of the cluster; the path for a module.
        key: distinguishes clusters with the same label.
    """

    kind: str
    label: str
    key: str = ""


ClusterPath = tuple[Segment, ...]
"""A cluster as its path through the nested clusters, outermost first; () for none."""


@dataclass(frozen=True, slots=True)
class Element:
    """The meaning of a box or cluster in the SVG, keyed by the element's `id`.

    Attributes:
        kind: for a box "node" (one op), "group" (several nodes), "port" (a value from another box)
            or "break" (a graph break); for a cluster "module", "body", "graph" or "eager".
        graph: name of the graph, "" for a cluster or a break.
        nodes: names of the nodes shown in the box, and of the parameters and projections folded
            into it; for a port, the nodes that produce its values.
        label: label of a cluster, group or break; the path for a module.
        change: "added", "removed", "changed", "rewired", "surplus" (an unexpected op), or "" for
            none.
        is_old: True if the nodes are from the old graph of a difference.
    """

    kind: str
    graph: str = ""
    nodes: tuple[str, ...] = ()
    label: str = ""
    change: str = ""
    is_old: bool = False


GRAPHS = ("graph", "eager")
"""Segment kinds of whole graphs."""
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


@lru_cache(maxsize=4096)
def module_cluster(path: str, base: ClusterPath = (), inside: str = "") -> ClusterPath:
    """Return the cluster of a module.

    Args:
        path: path of the module; "" returns `base`.
        base: the enclosing cluster.
        inside: module that `base` already represents; its clusters are not repeated.
    """
    if not path:
        return base
    parts = path.split(".")
    start = 0
    if inside and (path == inside or path.startswith(inside + ".")):
        start = inside.count(".") + 1
    if len(parts) - start > MAX_NESTING:
        ends = [*range(start + 1, start + MAX_NESTING), len(parts)]
    else:
        ends = list(range(start + 1, len(parts) + 1))
    return base + tuple(Segment("module", ".".join(parts[:end])) for end in ends)


def graph_cluster(graph: Graph, number: int, before: int | None = None) -> ClusterPath:
    """Return the cluster of a graph, labelled with its name and kind.

    Args:
        graph: the graph.
        number: distinguishes graphs with the same label.
        before: run count of an eager graph on the old side of a difference; see `eager_label`.
    """
    if graph.eager:
        return (Segment("eager", eager_label(graph, before), str(number)),)
    kind = "" if graph.kind == graph.name else f" ({graph.kind})"
    return (Segment("graph", f"{graph.name}{kind}", str(number)),)


def css_classes(names: Iterable[str]) -> str:
    """Return the `class` attribute of an SVG element: each name in lower case after `tg-`."""
    return " ".join(f"tg-{re.sub('[^a-z]+', '-', name.lower())}" for name in names)


@dataclass(slots=True)
class _Cluster:
    """A cluster of a scene with its content.

    Attributes:
        segment: last segment of its path; `None` for the root, which is not drawn.
        boxes: boxes directly in the cluster, each as its key and its DOT attributes.
        children: clusters directly in the cluster.
        cost: total cost of its content if the scene has a heat.
    """

    segment: Segment | None = None
    boxes: list[tuple[str, dict[str, str]]] = field(default_factory=list)
    children: dict[Segment, _Cluster] = field(default_factory=dict)
    cost: int = 0

    def simplified(self) -> _Cluster:
        """Return this cluster, or the single module that is its whole content, recursively."""
        cluster = self
        while not cluster.boxes and len(cluster.children) == 1:
            (child,) = cluster.children.values()
            kinds = [owner.segment.kind for owner in (cluster, child) if owner.segment is not None]
            # Only modules merge: a graph or body with one module keeps the frame that says what it
            # is.
            if kinds != ["module", "module"]:
                break
            cluster = child
        return cluster

    def all_boxes(self) -> Iterator[str]:
        """Yield the keys of the boxes in this cluster and in all nested clusters."""
        for key, _ in self.boxes:
            yield key
        for child in self.children.values():
            yield from child.all_boxes()

    def levels(self) -> list[list[list[list[str]]]]:
        """Return the groups of sibling clusters, innermost level first.

        See `sequence.separating_edges`.
        """
        levels: list[list[list[list[str]]]] = []
        row = [self]
        while row:
            row = [cluster.simplified() for cluster in row]
            levels.append(
                [
                    [list(child.all_boxes()) for child in cluster.children.values()]
                    for cluster in row
                    if len(cluster.children) > 1
                ]
            )
            row = [child for cluster in row for child in cluster.children.values()]
        # Innermost first: the edges that separate inner clusters move the boxes of outer clusters.
        return levels[::-1]


class Scene:
    """The boxes, clusters and edges of one drawing; `digraph` writes them as DOT.

    A `Canvas` fills a scene with the nodes of graphs. Legends, boxes of graph breaks and of whole
    graphs are added directly. A `whole.Drawing` holds the finished DOT and `elements`.

    Args:
        name: name of the DOT graph.
        title: lines above the drawing.
        heat: cost of the nodes, if the colours show costs.

    Attributes:
        name, title, heat: as above; lines can be added to the title.
        elements: meaning of each box and cluster, keyed by `id`; complete after `digraph`.
        sides: for a difference, the elements of each side; complete after `digraph`.
        classes: known class names of modules, keyed by module path; part of cluster labels.
        old_classes: `classes` for the old graph of a difference; empty for a stored graph.
        edges: each edge as the keys of its tail and head and its DOT attributes.
    """

    def __init__(
        self,
        name: str,
        title: Iterable[str] = (),
        heat: Heat | None = None,
    ):
        self.name = name
        self.title = list(title)
        self.heat = heat
        self.elements: dict[str, Element] = {}
        self.sides = Sides()
        self.classes: dict[str, str] = {}
        self.old_classes: dict[str, str] = {}
        self.edges: list[tuple[str, str, dict[str, str]]] = []
        self._root = _Cluster()
        self._cluster_of: dict[str, ClusterPath] = {}
        self._ports: set[str] = set()

    def __len__(self) -> int:
        return len(self._cluster_of)

    def add_box(
        self,
        lines: Iterable[str],
        cluster: ClusterPath,
        tooltip: str = " ",
        classes: Iterable[str] = (),
        element: Element | None = None,
        only: OnlySide = "",
        **attributes: str,
    ) -> str:
        """Add a box, a node of DOT, and return its key.

        Args:
            lines: lines of the label, as plain text.
            cluster: the enclosing cluster.
            tooltip: tooltip, as a DOT string from `labels.dot_text`.
            classes: names of CSS classes, without `tg-`.
            element: meaning of the box, if a page can link to it.
            only: the only side of a difference that has the box; "" if both have it.
            attributes: further DOT attributes; a `label` replaces `lines`.
        """
        key = f"n{len(self._cluster_of)}"
        self._cluster_of[key] = cluster
        attributes["id"] = self.box_id(key)
        attributes["class"] = css_classes(classes)
        if element is not None:
            if element.kind == "port":
                self._ports.add(key)
            self.elements[attributes["id"]] = element
        self.sides.record_only(attributes["id"], only)
        *_, innermost = self._enclosing_clusters(cluster)
        innermost.boxes.append((key, {"label": dot_text(lines), "tooltip": tooltip, **attributes}))
        return key

    def box_id(self, key: str) -> str:
        """Return the `id` in the SVG of the box with a key."""
        return f"box-{int(key[1:]) + 1}"

    def add_cost(self, cluster: ClusterPath, cost: int) -> None:
        """Add the cost of a box to all enclosing clusters."""
        for enclosing in self._enclosing_clusters(cluster):
            enclosing.cost += cost

    def _enclosing_clusters(self, cluster: ClusterPath) -> Iterator[_Cluster]:
        """Yield the root and the clusters on a path, outermost first, creating missing clusters."""
        innermost = self._root
        yield innermost
        for segment in cluster:
            innermost = innermost.children.setdefault(segment, _Cluster(segment))
            yield innermost

    def add_edge(
        self, tail: str, head: str, label: str = "", classes: Iterable[str] = (), **attributes: str
    ) -> str:
        """Add an edge between two boxes, and return its `id`.

        Args:
            tail: key of the box where the edge starts.
            head: key of the box where the edge ends.
            label: label of the edge, as plain text.
            classes: names of CSS classes, without `tg-`.
            attributes: further DOT attributes.
        """
        attributes["id"] = f"edge-{len(self.edges) + 1}"
        attributes["class"] = css_classes(classes)
        if label:
            attributes["label"] = dot_text([f" {label} "])
        self.edges.append((tail, head, attributes))
        return attributes["id"]

    def digraph(self) -> graphviz.Digraph:
        """Return the drawing as DOT."""
        drawing: graphviz.Digraph = need_graphviz().Digraph(dot_text([self.name]), strict=False)
        drawing.attr(
            rankdir="TB",
            fontname=FONT,
            fontsize="11",
            # Without `newrank`, `dot` ranks each cluster on its own, and some edges run upwards.
            newrank="true",
            nodesep="0.2",
            ranksep="0.25",
            bgcolor="white",
            id="picture",
            label=dot_text(self.title, MAX_TITLE),
            labelloc="t",
            tooltip=" ",
            **{"class": css_classes(["picture"])},
        )
        drawing.attr(
            "node",
            shape="box",
            style="filled,rounded",
            fontname=FONT,
            fontsize="10",
            margin="0.08,0.04",
            height="0.2",
            width="0.2",
        )
        drawing.attr(
            "edge", fontname=FONT, fontsize="8", color=GREY, fontcolor=GREY, arrowsize="0.6"
        )
        box_edges = [(tail, head) for tail, head, _ in self.edges]
        # Invisible edges position boxes. Without them, `dot` puts a box without edges at the top,
        # even if it belongs at the end of the graph.
        for tail, head, weight in list(self._invisible_edges(box_edges)):
            box_edges.append((tail, head))
            drawing.edge(tail, head, style="invis", weight=weight)
        for tail, head in separating_edges(box_edges, self._root.levels()):
            drawing.edge(tail, head, style="invis", minlen="2")
        self._write_cluster(drawing, self._root, count())
        large = len(self) > LARGE
        for tail, head, attributes in self.edges:
            self.sides.record_edge(attributes["id"], self.box_id(tail), self.box_id(head))
            if large and "label" in attributes:
                attributes = {**attributes, "taillabel": attributes["label"]}
                del attributes["label"]
            drawing.edge(tail, head, **attributes)
        return drawing

    def _invisible_edges(self, box_edges: Sequence[BoxEdge]) -> Iterator[tuple[str, str, str]]:
        """Yield invisible edges with weights: 1 for `anchor_edges`, 0 for `stacking_edges`."""
        root = Segment("graph", "")
        placed = [
            (key, cluster if cluster and cluster[0].kind in GRAPHS else (root, *cluster))
            for key, cluster in self._cluster_of.items()
            if not cluster or cluster[0].kind != "legend"
        ]
        tied_edges = anchor_edges(placed, box_edges)
        yield from ((tail, head, "1") for tail, head in tied_edges)
        graphs = grouped(
            (cluster[0], key)
            for key, cluster in placed
            if cluster[0] is not root and key not in self._ports
        )
        stacking = stacking_edges(list(graphs.values()), [*box_edges, *tied_edges])
        yield from ((tail, head, "0") for tail, head in stacking)

    def _write_cluster(
        self, drawing: graphviz.Digraph, cluster: _Cluster, numbers: Iterator[int]
    ) -> None:
        for key, attributes in cluster.boxes:
            drawing.node(key, **attributes)
        for child in cluster.children.values():
            drawn_cluster = child.simplified()
            assert drawn_cluster.segment is not None
            kind, label, _ = drawn_cluster.segment
            number = next(numbers)
            cost = "" if self.heat is None else self.heat.format_amount(drawn_cluster.cost)
            new_class = self.classes.get(label, "") if kind == "module" else ""
            old_class = self.old_classes.get(label, "") if kind == "module" else ""
            old_title, new_title = (
                " · ".join(filter(None, (label, class_name, cost)))
                for class_name in (old_class, new_class)
            )
            attributes = {
                "label": dot_text([new_title], MAX_CLUSTER_LABEL),
                "tooltip": dot_text([new_title], MAX_TOOLTIP_LINE),
                "fontsize": "9",
                "labeljust": "l",
                "id": f"cluster-{number + 1}",
                "class": css_classes([kind]),
                **CLUSTER_STYLE[kind],
            }
            # A page links to every cluster except the legend, which is not part of a graph.
            if kind != "legend":
                self.elements[attributes["id"]] = Element(kind, label=label)
            self.sides.record_labels(attributes["id"], [old_title], [new_title], MAX_CLUSTER_LABEL)
            self.sides.record_cluster(attributes["id"], map(self.box_id, drawn_cluster.all_boxes()))
            with drawing.subgraph(name=f"cluster_{number}") as subgraph:
                subgraph.attr(**attributes)
                self._write_cluster(subgraph, drawn_cluster, numbers)
