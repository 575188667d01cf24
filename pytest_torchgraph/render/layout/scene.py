"""A drawing before it is DOT: boxes in nested clusters, and links between them.

Both kinds of drawing (a whole graph, a difference) end here, so that they look alike and only one
place knows how DOT is written.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from itertools import count
from typing import TYPE_CHECKING, NamedTuple

from ..look.labels import dot_text
from .sequence import anchors, separators, stacked

if TYPE_CHECKING:
    import graphviz

MAX_NESTING = 16
LARGE = 2500
"""With more boxes than this, labels are put beside the edges' tails: a label that has a place of
its own in the layout doubles the ranks, and makes `dot` six times slower on 5,000 boxes."""
FONT = "Helvetica,Arial,sans-serif"
GREY = "#666666"


class Segment(NamedTuple):
    """One step of the way to a cluster.

    Attributes:
        kind: "module", "body", "graph" or "legend".
        label: what is written there; of a module its path.
        key: tells clusters of the same label apart.
    """

    kind: str
    label: str
    key: str = ""


Place = tuple[Segment, ...]


@dataclass(frozen=True, slots=True)
class Element:
    """What an element of the picture stands for; its key is the `id` in the SVG.

    Attributes:
        kind: "node", "group" (several nodes in one box), "port" (a value made elsewhere), "break",
            or of a cluster "module", "body" or "graph".
        graph: name of the graph, "" for a cluster.
        nodes: names of the nodes: those that have this box, and those folded into it (parameters,
            projections); of a port the node that makes the value.
        label: what a cluster, a group or a break is called; of a module its path.
        change: "added", "removed", "changed", "rewired", "surplus", or "" for none.
        is_old: whether the nodes are those of the old graph.
    """

    kind: str
    graph: str = ""
    nodes: tuple[str, ...] = ()
    label: str = ""
    change: str = ""
    is_old: bool = False


CLUSTER_STYLE = {
    "module": {"color": "#BBBBBB", "fontcolor": "#555555", "style": "rounded"},
    "body": {"color": "#777777", "fontcolor": "#333333", "style": "rounded,dashed"},
    "graph": {"color": "#333333", "fontcolor": "#000000", "fontsize": "14", "penwidth": "1.5"},
    "legend": {"color": "#DDDDDD", "fontcolor": "#777777", "style": "rounded"},
}


@lru_cache(maxsize=4096)
def module_place(path: str, base: Place = (), inside: str = "") -> Place:
    """The place of a module path below `base`, which already stands for module `inside`."""
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


def css_classes(names: Iterable[str]) -> str:
    """Classes for the SVG, as `render.style` and pages know them."""
    return " ".join(f"tg-{re.sub('[^a-z]+', '-', name.lower())}" for name in names)


def common_place(places: Sequence[Place]) -> Place:
    """The innermost place around all of `places`, of which there is at least one."""
    first = min(places)
    last = max(places)
    same = 0
    while same < len(first) and first[same] == last[same]:
        same += 1
    return first[:same]


@dataclass(slots=True)
class _Cluster:
    """A node of the tree of places."""

    segment: Segment | None = None
    boxes: list[tuple[str, dict[str, str]]] = field(default_factory=list)
    children: dict[Segment, _Cluster] = field(default_factory=dict)

    def simplified(self) -> _Cluster:
        """This cluster, or the only module in it where it holds nothing else."""
        cluster = self
        while not cluster.boxes and len(cluster.children) == 1:
            (child,) = cluster.children.values()
            kinds = [part.segment.kind for part in (cluster, child) if part.segment is not None]
            if kinds != ["module", "module"]:
                break
            cluster = child
        return cluster

    def all_boxes(self) -> Iterator[str]:
        """The ids of the boxes in here and below."""
        for key, _ in self.boxes:
            yield key
        for child in self.children.values():
            yield from child.all_boxes()

    def levels(self) -> list[list[list[list[str]]]]:
        """For each depth of nesting, the innermost first, the groups of sibling clusters."""
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
        return levels[::-1]


class Scene:
    """Collects boxes and links; `digraph` writes them.

    Args:
        name: name of the drawing.
        title: lines above it.
        prefix: what every `id` begins with, for a page that holds several pictures.

    Attributes:
        elements: what each box and cluster stands for, by its `id`; complete after `digraph`.
        classes: names of the modules' classes by path, as far as they are known.
    """

    def __init__(self, name: str, title: Iterable[str] = (), prefix: str = ""):
        self.name = name
        self.title = list(title)
        self.prefix = prefix
        self.elements: dict[str, Element] = {}
        self.classes: dict[str, str] = {}
        self.links: list[tuple[str, str, dict[str, str]]] = []
        self.attributes: dict[str, str] = {}
        self._root = _Cluster()
        self._places: dict[str, Place] = {}
        self._ports: set[str] = set()

    def __len__(self) -> int:
        return len(self._places)

    def add_box(
        self,
        lines: Iterable[str],
        place: Place,
        tooltip: str = " ",
        classes: Iterable[str] = (),
        element: Element | None = None,
        **attributes: str,
    ) -> str:
        """Add a box and return its key. `tooltip` is a finished DOT string, `lines` are not."""
        key = f"n{len(self._places)}"
        self._places[key] = place
        attributes["id"] = f"{self.prefix}box-{len(self._places)}"
        attributes["class"] = css_classes(classes)
        if element is not None:
            if element.kind == "port":
                self._ports.add(key)
            self.elements[attributes["id"]] = element
        cluster = self._root
        for segment in place:
            cluster = cluster.children.setdefault(segment, _Cluster(segment))
        cluster.boxes.append((key, {"label": dot_text(lines), "tooltip": tooltip, **attributes}))
        return key

    def add_link(
        self, tail: str, head: str, label: str = "", classes: Iterable[str] = (), **attributes: str
    ) -> None:
        """Add an arrow. `label` is plain text."""
        attributes["id"] = f"{self.prefix}edge-{len(self.links) + 1}"
        attributes["class"] = css_classes(classes)
        if label:
            attributes["label"] = dot_text([f" {label} "])
        self.links.append((tail, head, attributes))

    def digraph(self) -> graphviz.Digraph:
        """The drawing as DOT."""
        import graphviz

        drawing = graphviz.Digraph(dot_text([self.name]), strict=False)
        drawing.attr(
            rankdir="TB",
            fontname=FONT,
            fontsize="11",
            newrank="true",
            nodesep="0.2",
            ranksep="0.25",
            bgcolor="white",
            id=f"{self.prefix}picture",
            label=dot_text(self.title, 120),
            labelloc="t",
            tooltip=" ",
            **{"class": css_classes(["picture"])},
            **self.attributes,
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
        drawn = [link[:2] for link in self.links if link[2].get("constraint") != "false"]
        for tail, head, weight in list(self._invisible(drawn)):
            drawn.append((tail, head))
            drawing.edge(tail, head, style="invis", weight=weight)
        for tail, head in separators(drawn, self._root.levels()):
            drawing.edge(tail, head, style="invis", minlen="2")
        self._write(drawing, self._root, count())
        large = len(self._places) > LARGE
        for tail, head, attributes in self.links:
            if large and "label" in attributes:
                attributes = {**attributes, "taillabel": attributes["label"]}
                del attributes["label"]
            drawing.edge(tail, head, **attributes)
        return drawing

    def _invisible(self, drawn: Sequence[tuple[str, str]]) -> Iterator[tuple[str, str, str]]:
        """Links that nobody sees, for what would float about without them, and how they pull."""
        root = Segment("graph", "")
        placed = [
            (key, place if place and place[0].kind == "graph" else (root, *place))
            for key, place in self._places.items()
            if not place or place[0].kind != "legend"
        ]
        tied = anchors(placed, drawn)
        yield from ((tail, head, "1") for tail, head in tied)
        graphs: dict[Segment, list[str]] = {}
        for key, place in placed:
            if place[0] is not root and key not in self._ports:
                graphs.setdefault(place[0], []).append(key)
        between = stacked(list(graphs.values()), [*drawn, *tied])
        yield from ((tail, head, "0") for tail, head in between)

    def _write(self, drawing: graphviz.Digraph, cluster: _Cluster, numbers: Iterator[int]) -> None:
        for key, attributes in cluster.boxes:
            drawing.node(key, **attributes)
        for child in cluster.children.values():
            inner = child.simplified()
            assert inner.segment is not None
            kind, label, _ = inner.segment
            number = next(numbers)
            known = self.classes.get(label, "") if kind == "module" else ""
            title = f"{label} · {known}" if known else label
            attributes = {
                "label": dot_text([title], 80),
                "tooltip": dot_text([title], 160),
                "fontsize": "9",
                "labeljust": "l",
                "id": f"{self.prefix}cluster-{number + 1}",
                "class": css_classes([kind]),
                **CLUSTER_STYLE[kind],
            }
            if kind != "legend":
                self.elements[attributes["id"]] = Element(kind, label=label)
            with drawing.subgraph(name=f"cluster_{number}") as part:
                part.attr(**attributes)
                self._write(part, inner, numbers)
