"""Drawings of a difference and of unexpected ops, each with the surrounding nodes."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, NamedTuple

from ..graph.diff import Change, GraphDiff, GraphPair, pairs_with_breaks
from ..graph.model import Graph, Node
from ..graph.text import ops_in_words
from ..words import counted
from .layout import (
    MAX_RETURNED,
    Canvas,
    Drawable,
    Edge,
    Element,
    Look,
    OnlySide,
    Scene,
    add_graph,
    graph_cluster,
    module_cluster,
)
from .look import (
    ARROW,
    CHANGE_PAINTS,
    MAX_LINES,
    SIGNS,
    TIMES,
    ChangeMark,
    ChangeMarkKind,
    ComparedLine,
    Paint,
    change_lines,
    eager_label,
    folded_label,
    node_lines,
    source_line,
)
from .overlay import OverlaidNode, Overlay
from .whole import Drawing

if TYPE_CHECKING:
    import graphviz


MAX_BOXES = 150
"""Maximum number of boxes in the drawing of a difference or of surplus ops, excluding ports."""
NEIGHBOURS = 5
"""Maximum number of operands, and of users, shown as context of a box, nearest first."""
MAX_MODULE = 24
"""Maximum number of boxes in a module that is shown completely around a change."""
MAX_FOLDED = 2
"""Maximum number of parameters, buffers and constants listed in a box."""

CONTEXT = {"color": "#AAAAAA", "fillcolor": "#FFFFFF", "fontcolor": "#555555"}
"""DOT attributes of a box without a change mark."""
KEY = ", ".join(f"{SIGNS[kind]} {kind}" for kind in ("added", "removed", "changed", "rewired"))
"""Explanation of the signs, shown as a line above the drawing."""


class _PairNode(NamedTuple):
    """A node in the overlay of one pair of graphs."""

    overlay: Overlay
    node: OverlaidNode


def diff_to_dot(diff: GraphDiff, hops: int = 2) -> graphviz.Digraph:
    """Draw a difference.

    Each changed node has a colour and a sign. Its context is every node at most `hops` edges away,
    and the rest of its module if the module is small. A removed node keeps its old position. An
    edit in several places is drawn once, at the first place, with the count: `× 12`.

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
    scene = Scene("difference", title)
    pairs = pairs_with_breaks(diff)
    for pair in pairs:
        for graph in (pair.before, pair.after):
            scene.classes.update(graph.classes if graph is not None else {})
        scene.old_classes.update(pair.before.classes if pair.before is not None else {})
    node_findings = [finding for finding in diff.findings if not finding.of_graph]
    places = [place for finding in node_findings for place in finding.places]
    changes = [change for place in places for change in (*place.changes, *place.consequences)]
    overlays = [Overlay(pair, changes) for pair in pairs]
    canvas = Canvas(scene, change_look, change_paint)
    focus = _Focus(diff, overlays, hops)
    drawables: dict[_PairNode, int] = {}
    for number, overlay in enumerate(overlays):
        pair = overlay.pair
        is_on_both_sides = pair.before is not None and pair.after is not None
        if not is_on_both_sides or (pair.runs is not None and not overlay.change_marks):
            _add_whole_graph(scene, pair)
        else:
            _add_nodes(canvas, overlay, number, focus, drawables)
            _add_edges(canvas, overlay, drawables)
    if canvas.drawables:
        in_focus = [drawables[node] for node in focus.nodes if node in drawables]
        canvas.draw(MAX_BOXES, in_focus, compact=True)
        for overlay in overlays:
            _record_old_side(canvas, overlay, drawables)
    folded = canvas.count_marks_in_groups()
    if folded:
        times = f"; {TIMES}: number of places (only the first is drawn)"
        line = f"{folded:,} more changed nodes are counted in folded boxes"
        scene.title.append(f"{line}{times if focus.times else ''}")
    return Drawing.of(scene)


class _Focus:
    """Nodes to show in their own boxes, most important first.

    The order: edits, nodes at most `hops` edges away from an edit, the rest of the edited modules,
    consequences, the neighbours of consequences. For an edit in several places, only the nodes of
    the first place are included.

    Attributes:
        nodes: the nodes, in this order.
        consequences: nodes that changed because of an edit elsewhere.
        following: consequences in all places, including those after the first.
        times: number of places of a repeated edit or consequence, by node.
    """

    def __init__(self, diff: GraphDiff, overlays: list[Overlay], hops: int):
        self.times: dict[_PairNode, int] = {}
        self.following: set[_PairNode] = set()
        edits, self.consequences = self._changed_nodes(diff, overlays)
        self.nodes = dict.fromkeys(edits)
        self._surround(edits, hops)
        if hops:
            small_modules = dict.fromkeys((edit.overlay, _small_module(edit)) for edit in edits)
            for overlay, path in list(small_modules)[:MAX_BOXES]:
                members = (_PairNode(overlay, node) for node in overlay.members(path))
                self.nodes.update(dict.fromkeys(members))
        self.nodes.update(dict.fromkeys(self.consequences))
        self._surround(self.consequences, min(hops, 1))

    def _changed_nodes(
        self, diff: GraphDiff, overlays: list[Overlay]
    ) -> tuple[dict[_PairNode, None], dict[_PairNode, None]]:
        """Return the edited nodes and the nodes that are consequences of edits."""
        changed = {
            key: _PairNode(overlay, node)
            for overlay in overlays
            for key, node in overlay.node_of.items()
        }

        def nodes_of(changes: Iterable[Change], times: int = 1) -> Iterator[_PairNode]:
            for change in changes:
                for node in (change.after, change.before):
                    if node is not None and id(node) in changed:
                        pair_node = changed[id(node)]
                        if times > 1:
                            self.times.setdefault(pair_node, times)
                        yield pair_node

        edits: dict[_PairNode, None] = {}
        derived: dict[_PairNode, None] = {}
        repeated: set[_PairNode] = set()
        for finding in diff.findings:
            times = len(finding.places)
            edits.update(dict.fromkeys(nodes_of(finding.changes, times)))
            # The first place stands for all places only if each has as many consequences.
            if len({len(place.consequences) for place in finding.places}) != 1:
                times = 1
            derived.update(dict.fromkeys(nodes_of(finding.consequences, times)))
            for place in finding.places[1:]:
                repeated.update(nodes_of((*place.changes, *place.consequences)))
            for place in finding.places:
                self.following.update(nodes_of(place.consequences))
        # A node that is edited somewhere is drawn as an edit, not as a consequence.
        edits_of_places = (change for f in diff.findings for p in f.places for change in p.changes)
        self.following.difference_update(nodes_of(edits_of_places))
        for node in changed.values():
            if node not in derived and node not in repeated:
                edits.setdefault(node)
        return edits, {node: None for node in derived if node not in edits}

    def _surround(self, nodes: Iterable[_PairNode], hops: int) -> None:
        border = list(nodes)
        for _ in range(hops):
            border = [
                _PairNode(overlay, neighbour)
                for overlay, node in border
                for neighbour in overlay.neighbours(node, NEIGHBOURS)
                if _PairNode(overlay, neighbour) not in self.nodes
            ]
            border = list(dict.fromkeys(border))
            self.nodes.update(dict.fromkeys(border))


def _small_module(pair_node: _PairNode) -> str:
    """Return the largest enclosing module with at most `MAX_MODULE` nodes; "" if there is none."""
    overlay, node = pair_node
    path = overlay.folded(node).node.module
    largest = ""
    while path and overlay.is_small(path, MAX_MODULE):
        largest = path
        path = path.rpartition(".")[0]
    return largest


def _add_whole_graph(scene: Scene, pair: GraphPair) -> None:
    """Draw a graph as one box, because only one side has it or only its run count changed."""
    graph = pair.after or pair.before
    if graph is None or len(scene) >= MAX_BOXES:
        return
    kind: ChangeMarkKind = "removed" if pair.after is None else "added"
    lines = [f"{graph.kind} graph {graph.name}"]
    if graph.eager:
        kind = kind if pair.runs is None else "changed"
        lines = eager_label(graph, None if pair.runs is None else pair.runs[0]).split(", ", 1)
        if graph.cause is not None:
            lines += [f"{graph.cause.file}:{graph.cause.line}", graph.cause.code.strip()]
    side_of: dict[ChangeMarkKind, OnlySide] = {"removed": "before", "added": "after"}
    border, fill = CHANGE_PAINTS[kind]
    scene.add_box(
        [f"{SIGNS[kind]} {lines[0]}", ops_in_words(graph), *lines[1:]],
        (),
        " ",
        ("group", kind),
        Element(
            "group",
            graph.name,
            tuple(node.name for node in graph.nodes),
            graph.name,
            kind,
            is_old=kind == "removed",
        ),
        side_of.get(kind, ""),
        color=border,
        fillcolor=fill,
        penwidth="2",
        style="filled,rounded,dashed" if kind == "removed" else "filled,rounded",
    )


def _add_nodes(
    canvas: Canvas,
    overlay: Overlay,
    number: int,
    focus: _Focus,
    drawables: dict[_PairNode, int],
) -> None:
    """Put the nodes of a pair of graphs on the canvas, and record their numbers in `drawables`."""
    graph = overlay.pair.after
    assert graph is not None
    runs = overlay.pair.runs
    base = graph_cluster(graph, number, None if runs is None else runs[0])
    for node in sorted(overlay.positions, key=overlay.positions.__getitem__):
        if _is_busy_return(overlay, node) and node not in overlay.change_marks:
            continue
        pair_node = _PairNode(overlay, node)
        folded = overlay.folded(node)
        cluster = module_cluster(folded.node.module, base)
        mark = overlay.change_marks.get(node)
        if mark is not None:
            mark.follows = pair_node in focus.following
            mark.times = focus.times.get(pair_node, 1)
        drawable = Drawable(graph.name, folded, cluster, mark, overlay.side(node))
        drawable.no_box = folded.node.op == "saved" and mark is None and bool(overlay.users[node])
        drawables[pair_node] = canvas.add(drawable)


def _add_edges(canvas: Canvas, overlay: Overlay, drawables: dict[_PairNode, int]) -> None:
    """Put the edges of a pair of graphs on the canvas."""
    for edge, (before, after) in overlay.edges.items():
        if _is_busy_return(overlay, edge.head) and None not in (before, after):
            continue
        tail = drawables.get(_PairNode(overlay, edge.tail))
        head = drawables.get(_PairNode(overlay, edge.head))
        if tail is not None and head is not None:
            drawn_edge = _compared_edge(Edge(tail, head, edge.path), before, after)
            if edge in overlay.bypasses:
                drawn_edge = drawn_edge._replace(only="after")
            canvas.edges.append(drawn_edge)


def _record_old_side(canvas: Canvas, overlay: Overlay, drawables: dict[_PairNode, int]) -> None:
    """Record the boxes of the old graph's ops, and the old edges between unchanged boxes."""
    side = canvas.scene.sides.before

    def box(node: OverlaidNode) -> str | None:
        unit = canvas.unit_of.get(drawables.get(_PairNode(overlay, node), -1))
        return None if unit is None else canvas.scene.box_id(canvas.keys[unit])

    for name, folded in overlay.old.nodes.items():
        shown_in = box(overlay.overlaid(name, is_new=False))
        if shown_in is not None:
            side.boxes.update((node, shown_in) for node in (folded.node, *folded.projections))
    for edge in sorted(overlay.interrupted):
        tail, head = box(edge.tail), box(edge.head)
        if tail is not None and head is not None and tail != head:
            side.edges[tail, head] = None


def _compared_edge(edge: Edge, before: str | None, after: str | None) -> Edge:
    """Return an edge with its label in the old and in the new graph, `None` if it is absent."""
    if after is None:
        return edge._replace(label=before or "", kind="removed", only="before")
    if before is None:
        return edge._replace(label=after, kind="added", only="after")
    if before != after:
        return edge._replace(
            label=f"{before} {ARROW} {after}", kind="changed", sides=(before, after)
        )
    return edge._replace(label=after)


def _is_busy_return(overlay: Overlay, node: OverlaidNode) -> bool:
    """Return True for an output node whose many edges would hide everything else."""
    return overlay.folded(node).node.kind == "output" and len(overlay.operands[node]) > MAX_RETURNED


def change_look(drawable: Drawable, named: bool) -> Look:
    """Return the look of a box in a drawing coloured by changes. Unchanged boxes are pale.

    Args:
        drawable: content of the box.
        named: True if a port refers to the node: the box then shows the node's name.
    """
    node, mark = drawable.node, drawable.mark
    further = []
    if mark is None or not mark.lines:
        folded = drawable.folded.folded_inputs[:MAX_FOLDED]
        further += [folded_label(folded_input, node) for folded_input in folded]
    if named and node.kind != "placeholder":
        further.append(f"= {node.name}")
    further += drawable.lines
    if mark is None:
        return Look([*node_lines(node), *further][:MAX_LINES], CONTEXT, ("context",))
    unchanged = map(ComparedLine.same, [*further, *source_line(node)])
    lines = [*change_lines(mark, node), *unchanged][:MAX_LINES]
    drawn, before, after = ([line[n] for line in lines] for n in range(len(ComparedLine._fields)))
    style, classes = _style(CHANGE_PAINTS[mark.kind], mark.kind, mark.follows)
    return Look(drawn, style, classes, (before, after))


def change_paint(drawable: Drawable) -> tuple[Paint, str]:
    """Return the paint and the CSS class of a port in a drawing coloured by changes."""
    if drawable.mark is None:
        return Paint(CONTEXT["color"], CONTEXT["fillcolor"]), "context"
    return CHANGE_PAINTS[drawable.mark.kind], drawable.mark.kind


def _style(paint: Paint, kind: str, follows: bool) -> tuple[dict[str, str], tuple[str, ...]]:
    attributes = {"color": paint.border, "fillcolor": paint.fill, "style": "filled,rounded"}
    if follows:
        attributes |= {"fillcolor": "#FFFFFF", "style": "filled,rounded,dashed"}
        return attributes, (kind, "follows")
    return {**attributes, "penwidth": "2"}, (kind,)


def surplus_drawing(graphs: Sequence[Graph], nodes: Collection[Node], title: str = "") -> Drawing:
    """Draw graphs with their surplus nodes marked and the rest folded.

    Args:
        graphs: graphs to draw. A graph without a surplus node is left out.
        nodes: surplus nodes, matched by identity, including nodes in bodies of higher-order ops.
        title: description of the problem, shown as a line above the drawing.
    """
    scene = Scene("surplus", [title] if title else [])
    canvas = Canvas(scene, change_look, change_paint)
    surplus_ids = {id(node) for node in nodes}
    surplus: list[int] = []
    for number, graph in enumerate(graphs):
        surplus_nodes = [
            node for body in graph.walk() for node in body.nodes if id(node) in surplus_ids
        ]
        if not surplus_nodes:
            continue
        placed = add_graph(canvas, graph, graph_cluster(graph, number))
        for node in surplus_nodes:
            if (drawable := placed.drawable_of(node)) is not None:
                canvas.drawables[drawable].mark = ChangeMark("surplus", None, node)
                canvas.drawables[drawable].no_box = False
                surplus.append(drawable)
    graphs_text = counted(len({canvas.drawables[n].graph for n in surplus}), "graph")
    scene.title.append(f"{SIGNS['surplus']} {counted(len(surplus), 'op')} in {graphs_text}")
    canvas.draw(MAX_BOXES, canvas.with_neighbours(surplus), compact=True)
    folded = canvas.count_marks_in_groups()
    if folded:
        scene.title.append(f"{folded:,} of them are counted in folded boxes")
    return Drawing.of(scene)
