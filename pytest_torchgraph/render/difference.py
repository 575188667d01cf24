"""Drawings of a difference and of unexpected ops, each with the surrounding nodes.

The two graphs of a pair are drawn as one: a box shows a node of the new graph and its partner in
the old graph, as the comparison has paired them.
"""

from __future__ import annotations

from collections.abc import Collection, Hashable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING

from ..graph.diff import Change, GraphDiff, GraphPair, pairs_with_breaks
from ..graph.model import Graph, Node
from ..graph.text import ops_in_words
from ..words import counted
from .dot import Drawing, draw
from .labels import (
    SIGNS,
    TIMES,
    Line,
    Mark,
    MarkKind,
    changed,
    eager_label,
    only,
    same,
    value_label,
)
from .scene import Box, DrawnGraph, DrawnValue, Edge, Element, OnlySide, Scene, graph_cluster

if TYPE_CHECKING:
    import graphviz


MAX_BOXES = 150
"""Maximum number of boxes in the drawing of a difference or of surplus ops."""
KEY = ", ".join(f"{SIGNS[kind]} {kind}" for kind in ("added", "removed", "changed", "rewired"))
"""Explanation of the signs, shown as a line above the drawing."""


def diff_to_dot(diff: GraphDiff, hops: int = 2) -> graphviz.Digraph:
    """Draw a difference.

    Each changed node has a colour and a sign. Its context is every node at most `hops` edges away.
    A removed node keeps its old position. An edit in several places is drawn once, at the first
    place, with the count: `× 12`.

    Unchanged nodes are folded: each run of modules or ops between two changes becomes one box with
    the count. Consequences are drawn paler. A drawing has at most a few hundred nodes: changes
    beyond the limit are folded into boxes that show their count.

    Args:
        diff: difference to draw. An empty difference yields a drawing that says so.
        hops: size of the context in edges, 0 for none.
    """
    return drawing(diff, hops).digraph


def drawing(diff: GraphDiff, hops: int = 2) -> Drawing:
    """Draw like `diff_to_dot` and return the meaning of each element of the SVG as well.

    Args:
        diff, hops: as in `diff_to_dot`.
    """
    title = [diff.heading(), f"{KEY}; dashed: a consequence"]
    scene = Scene(
        "difference", title, by_change="{:,} more changed nodes are counted in folded boxes"
    )
    # A finding of whole graphs has no place in a drawing of nodes.
    findings = [finding for finding in diff.findings if not finding.of_graph]
    places = [place for finding in findings for place in finding.places]
    changes = [change for place in places for change in (*place.changes, *place.consequences)]
    shown = _add_pairs(scene, diff, changes)

    def boxes_of(changes: Iterable[Change]) -> list[Box]:
        nodes = (id(node) for change in changes for node in (change.after, change.before))
        return [shown[node] for node in nodes if node in shown]

    # Boxes of edits and of consequences in the first place of each finding, with the number of its
    # places. Boxes in the other places are not drawn by themselves.
    edits: dict[Box, int] = {box: 1 for box in scene.boxes if box.fixed is not None}
    follows: dict[Box, int] = {}
    further: set[Box] = set()
    for finding in findings:
        first, *others = finding.places
        times = len(finding.places)
        for box in boxes_of(first.changes):
            edits.setdefault(box, times)
        # The first place stands for all places only if each has as many consequences.
        alike = len({len(place.consequences) for place in finding.places}) == 1
        for box in boxes_of(first.consequences):
            follows.setdefault(box, times if alike else 1)
        further.update(*(boxes_of((*place.changes, *place.consequences)) for place in others))
    # A drawn graph break is an edit too, but the places of its finding have no changes.
    edits |= {
        box: 1
        for box in shown.values()
        if box not in edits and box not in follows and box not in further
    }
    # A node that is edited somewhere is drawn as an edit, not as a consequence.
    edited = {*edits, *boxes_of(change for place in places for change in place.changes)}
    for place in places:
        for box in {*boxes_of(place.consequences)} - edited:
            assert box.mark is not None
            box.mark.follows = True
    counts = follows | edits
    for box, times in counts.items():
        assert box.mark is not None
        box.mark.times = times
    if any(times > 1 for times in counts.values()):
        scene.by_change += f"; {TIMES}: number of places (only the first is drawn)"
    # Consequences come after all edits, and with less context: if there is no room for all boxes,
    # they are folded first.
    focus = scene.around(edits, hops)
    later = [box for box in follows if box not in edits]
    focus += [*later, *scene.around(later, min(hops, 1))]
    return draw(scene, MAX_BOXES, [*dict.fromkeys(focus)], compact=True)


def _add_pairs(scene: Scene, diff: GraphDiff, changes: Iterable[Change]) -> dict[int, Box]:
    """Add the graphs of a difference to a scene, the two graphs of a pair as one.

    Args:
        scene: the scene.
        diff: the difference.
        changes: the changes of all findings.

    Returns:
        the box that shows each node that differs, keyed by `id(node)`.
    """
    shown: dict[int, Box] = {}
    # Names of equal nodes by the `id`s of both graphs, and also by both names.
    partners: dict[Hashable, Mapping[str, str]] = {}
    for part in [of_ranks for _, of_ranks in diff.parts] or [diff]:
        for old, new, names in part.origins.matched() if part.origins else ():
            partners[id(old), id(new)] = names
            # Breaks are drawn in a copy of the forward. Its name may also be that of a body.
            partners.setdefault((old and old.name, new and new.name), names)
    for number, pair in enumerate(pairs_with_breaks(diff)):
        before, after = pair.before, pair.after
        for graph in filter(None, (before, after)):
            scene.classes.update(graph.classes)
        overlay = None
        if before is not None:
            scene.old_classes.update(before.classes)
        if before is not None and after is not None:
            of_copies = partners.get((before.name, after.name), {})
            names = partners.get((id(before), id(after)), of_copies)
            overlay = _Overlay(before, after, pair, number, changes, names)
        # Of a graph that only one side has, or that differs only in its run count, no nodes are
        # compared: it is one box.
        if overlay is None or (pair.runs is not None and not overlay.shown):
            scene.boxes.append(_whole_graph(pair))
        else:
            overlay.add_to(scene)
            shown |= overlay.shown
    return shown


def _whole_graph(pair: GraphPair) -> Box:
    """Return the box of a graph that only one side has, or of which only the run count changed."""
    graph = pair.after or pair.before
    assert graph is not None
    kind: MarkKind = "removed" if pair.after is None else "added"
    kind = kind if pair.runs is None else "changed"
    lines = [f"{graph.kind} graph {graph.name}"]
    if graph.eager:
        lines = eager_label(graph, None if pair.runs is None else pair.runs[0]).split(", ", 1)
        if graph.cause is not None:
            lines += [f"{graph.cause.file}:{graph.cause.line}", graph.cause.code.strip()]
    lines = [f"{SIGNS[kind]} {lines[0]}", ops_in_words(graph), *lines[1:]]
    sides: dict[MarkKind, OnlySide] = {"removed": "before", "added": "after"}
    names = tuple(node.name for node in graph.nodes)
    element = Element("group", graph.name, names, graph.name, kind, is_old=kind == "removed")
    return Box(
        graph.name,
        Node(graph.name, "output", "output"),  # a stand-in, because a box has a node
        mark=Mark(kind),
        side=sides.get(kind, ""),
        fixed=([*map(same, lines)], [" "], element),
    )


class _Overlay:
    """The two graphs of a pair as one.

    `_partner` maps each box of the old graph to the box of the same node in the new graph. If a box
    has a partner, only the partner is drawn.

    Args:
        before, after: the graphs of the pair.
        pair: the lists of differing nodes.
        number: distinguishes graphs with the same label.
        changes: the changes of all findings, of which those of this pair's nodes are marked too.
        partners: maps the names of old nodes to those of the same new nodes; empty if unknown.

    Attributes:
        old, new: the drawn graphs.
        shown: the box that shows each node that differs, keyed by `id(node)`.
    """

    def __init__(
        self,
        before: Graph,
        after: Graph,
        pair: GraphPair,
        number: int,
        changes: Iterable[Change],
        partners: Mapping[str, str],
    ):
        base = graph_cluster(after, number, None if pair.runs is None else pair.runs[0])
        self.old, self.new = DrawnGraph(before, base), DrawnGraph(after, base)
        self.shown: dict[int, Box] = {}
        self._partner = self._paired(pair, partners)
        partnered = {*self._partner.values()}
        for box in self.old.boxes.values():
            box.side, box.graph = "before", after.name
        for box in self.new.boxes.values():
            box.side = "" if box in partnered else "after"
        # The lists lack some changes that a finding has: the return of a graph whose saved values
        # alone changed.
        listed = [*pair.changes()]
        ids = {id(new or old) for _, old, new in listed}
        own = {id(node) for graph in (before, after) for node in graph.nodes}
        further = [
            (change.kind, change.before, change.after)
            for change in changes
            if id(change.node) in own - ids
        ]
        changes_of_nodes = [*listed, *further]
        # Folded nodes come last: if their user differs as well, it has the mark.
        for folded in (False, True):
            for kind, old, new in changes_of_nodes:
                self._mark(kind, old, new, folded)

    def add_to(self, scene: Scene) -> None:
        """Add the boxes and edges of both graphs, a removed node after its old predecessor."""
        # Removed boxes by the box before them; `None` for those before all others.
        removed: dict[Box | None, list[Box]] = {}
        latest: Box | None = None
        for box in self.old.boxes.values():
            latest = self._partner.get(box, latest)
            if box not in self._partner:
                removed.setdefault(latest, []).append(box)
        boxes = [*removed.get(None, ())]
        for box in self.new.boxes.values():
            boxes += [box, *removed.get(box, ())]
        scene.boxes += boxes
        scene.edges += self._edges()
        for box in self.old.boxes.values():
            scene.old_boxes |= dict.fromkeys(box.computed, self._partner.get(box, box))

    def _paired(self, pair: GraphPair, partners: Mapping[str, str]) -> dict[Box, Box]:
        """Map boxes of the old graph to the boxes of the same nodes in the new graph."""
        differing = {old.name: new.name for old, new in (*pair.changed, *pair.rewired)}
        gone = {node.name for node in pair.removed}
        # Without a matching, equal nodes are those of the same name.
        equal = partners or {name: name for name in self.old.boxes if name not in gone}
        return {
            self.old.boxes[old]: self.new.boxes[new]
            for old, new in {**equal, **differing}.items()
            if old in self.old.boxes and new in self.new.boxes
        }

    def _mark(self, kind: MarkKind, before: Node | None, after: Node | None, folded: bool) -> None:
        """Mark the box of a node that differs, or the box into which the node is folded.

        Does nothing for a folded node unless `folded` is True, and for any other node if it is.
        Also does nothing for a node without a box, and for one that is marked already.
        """
        node = after or before
        assert node is not None
        drawn = self.old if after is None else self.new
        box = drawn.shown_in(node)
        if box is None or folded == (box.node is node) or id(node) in self.shown:
            return
        box = self._partner.get(box, box)
        if not folded:
            box.mark = Mark(kind, before, after)
        else:
            # The lines of an added or removed box already show the nodes folded into it.
            box.mark = box.mark or Mark("changed")
            if box.mark.kind not in ("added", "removed"):
                box.mark.lines.append(_folded_line(drawn.values.get(node.name), node, kind, before))
        self.shown |= {id(n): box for n in (before, after) if n is not None}

    def _key(self, value: DrawnValue) -> tuple[Box, tuple[int | str, ...]]:
        """Return what identifies a value in both graphs: its drawn box, and its path."""
        return self._partner.get(value.box, value.box), value.path

    def _edges(self) -> list[Edge]:
        """Return the edges of both graphs, each once."""
        old, new = (
            {
                (*self._key(value), self._partner.get(box, box)): value.text
                for box in drawn.boxes.values()
                for value in box.operands
            }
            for drawn in (self.old, self.new)
        )
        edges = []
        for key in new | old:  # the new edges in their order, then those of the old graph alone
            tail, path, head = key
            before, after = old.get(key), new.get(key)
            # An edge between two unmarked nodes differs only because of a node between them. The
            # new one bypasses a removed node, the old one is interrupted by an added node.
            marked = tail.mark is not None or head.mark is not None
            side: OnlySide = ""
            label, kind = same(after or before or ""), "value"
            if before is None:
                kind, side = "added" if marked else "value", "after"
            elif after is None:
                kind, side = "removed" if marked else "hidden", "before"
            elif before != after:
                label, kind = changed(before, after), "changed"
            edges.append(Edge(tail, head, path, label, kind, side))
        return edges


def _folded_line(value: DrawnValue | None, node: Node, kind: MarkKind, before: Node | None) -> Line:
    """Return the label line of a differing node that is folded into a box.

    Args:
        value: the value of a projection, which is named by its position; `None` for a folded input.
        node: the node.
        kind: the kind of its change.
        before: the old node; `None` if it has none.
    """
    text = f"{node.target or node.name} {value_label(node)}".strip()
    if value is not None:
        text = f"result {value.text}"
    if kind != "changed" or before is None:
        return only(kind, text)
    old, new = value_label(before), value_label(node)
    return changed(old, new, f"{SIGNS[kind]} {text.removesuffix(new)}")


def surplus_drawing(graphs: Sequence[Graph], nodes: Collection[Node], title: str = "") -> Drawing:
    """Draw graphs with their surplus nodes marked and the rest folded.

    Args:
        graphs: graphs to draw. A graph without a surplus node is left out.
        nodes: surplus nodes, matched by identity, including nodes in bodies of higher-order ops.
        title: description of the problem, shown as a line above the drawing.
    """
    scene = Scene(
        "surplus", [title] if title else [], by_change="{:,} of them are counted in folded boxes"
    )
    surplus_ids = {id(node) for node in nodes}
    surplus: dict[Box, None] = {}
    for number, graph in enumerate(graphs):
        own = [node for body in graph.walk() for node in body.nodes if id(node) in surplus_ids]
        if not own:
            continue
        drawn = scene.add_graph(graph, graph_cluster(graph, number))
        for node in own:
            if (box := drawn.shown_in(node)) is not None:
                box.mark = Mark("surplus", None, node)
                surplus[box] = None
    graphs_text = counted(len({box.graph for box in surplus}), "graph")
    scene.title.append(f"{SIGNS['surplus']} {counted(len(surplus), 'op')} in {graphs_text}")
    return draw(scene, MAX_BOXES, scene.around(surplus), compact=True)
