"""The drawing of a difference: what changed and the layer around it, the rest folded to boxes."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, NamedTuple

from ..graph.diff.report import Change, GraphDiff
from ..graph.model import Graph
from .layout.canvas import Canvas, Edge, Look, Piece
from .layout.elements import MAX_RETURNED
from .layout.scene import Element, Place, Scene, Segment, module_place
from .look import labels
from .look.change_labels import change_lines, source_line
from .look.change_marks import PAINT, SIGNS, MarkKind
from .look.op_categories import Paint
from .overlay import Item, Overlay
from .whole import folded_label

if TYPE_CHECKING:
    import graphviz

    from .picture import Picture

MAX_BOXES = 150
NEIGHBOURS = 5
"""How many operands, and how many users, of a box are context at most, the nearest first."""
LAYER = 24
"""How many boxes the module around a change has at most for all of it to be shown."""

CONTEXT = {"color": "#AAAAAA", "fillcolor": "#FFFFFF", "fontcolor": "#555555"}
KEY = ", ".join(f"{SIGNS[kind]} {kind}" for kind in ("added", "removed", "changed", "rewired"))


class _Spot(NamedTuple):
    """An item of one of the overlaid pairs of graphs."""

    overlay: Overlay
    item: Item


def diff_to_dot(diff: GraphDiff, hops: int = 2) -> graphviz.Digraph:
    """Draw a difference.

    Each changed node is coloured and signed, and stands among what is at most `hops` edges away
    from it, and in the rest of its module where that is small; a removed node stands where it was.
    What did not change is folded: to a box for each stretch of modules or ops between the changes,
    with their number. Consequences are drawn paler. A drawing has a few hundred nodes at most:
    changes for which there is no room are counted in the boxes that they are folded into.

    Args:
        diff: what to draw; nothing in it gives a drawing that says so.
        hops: how much context, 0 for none.
    """
    return picture(diff, hops).digraph


def picture(diff: GraphDiff, hops: int = 2, prefix: str = "") -> Picture:
    """The same as `diff_to_dot`, with what each element of the SVG stands for."""
    from .picture import Picture

    title = [diff.heading(), f"{KEY}; dashed: a consequence"]
    scene = Scene("difference", title, prefix)
    for pair in diff.graphs:
        for graph in (pair.before, pair.after):
            scene.classes.update(graph.classes if graph is not None else {})
    changes = [c for finding in diff.findings for c in (*finding.changes, *finding.consequences)]
    overlays = [Overlay(pair, changes) for pair in diff.graphs]
    canvas = Canvas(scene, look, port_paint)
    spots = _Spots(diff, overlays, hops)
    numbers: dict[_Spot, int] = {}
    for number, overlay in enumerate(overlays):
        if overlay.pair.before is None or overlay.pair.after is None:
            _whole_graph(scene, overlay.pair.after or overlay.pair.before, overlay)
        else:
            _add(canvas, overlay, number, spots, numbers)
    focus = [numbers[spot] for spot in spots.wanted if spot in numbers]
    units = canvas.draw(MAX_BOXES, focus, compact=True) if canvas.pieces else []
    folded = sum(
        canvas.pieces[n].mark is not None for unit in units if unit.is_group for n in unit.members
    )
    if folded:
        scene.title.append(
            f"{folded:,} more changed nodes are counted in the boxes that they are folded into"
        )
    return Picture.of(scene)


class _Spots:
    """What is to be seen, in the order of importance."""

    def __init__(self, diff: GraphDiff, overlays: list[Overlay], hops: int):
        primary, derived = _spots(diff, overlays)
        self.consequences = derived
        self.wanted = dict.fromkeys(primary)
        self._surround(primary, hops)
        if hops:
            layers = dict.fromkeys((spot.overlay, _layer(spot)) for spot in primary)
            for overlay, path in list(layers)[:MAX_BOXES]:
                self.wanted.update((_Spot(overlay, item), None) for item in overlay.members(path))
        self.wanted.update(dict.fromkeys(derived))
        self._surround(derived, min(hops, 1))

    def _surround(self, spots: Iterable[_Spot], hops: int) -> None:
        border = list(spots)
        for _ in range(hops):
            border = [
                _Spot(overlay, near)
                for overlay, item in border
                for near in overlay.around(item, NEIGHBOURS)
                if _Spot(overlay, near) not in self.wanted
            ]
            border = list(dict.fromkeys(border))
            self.wanted.update(dict.fromkeys(border))


def _layer(spot: _Spot) -> str:
    """The largest module around an item that is small enough for all of it to be shown, or ""."""
    overlay, item = spot
    path = overlay.box(item).node.module
    largest = ""
    while path and overlay.is_small(path, LAYER):
        largest = path
        path = path.rpartition(".")[0]
    return largest


def _spots(diff: GraphDiff, overlays: list[Overlay]) -> tuple[dict[_Spot, None], dict[_Spot, None]]:
    """The changed items that are edits, and those that follow from edits."""
    spots = {
        key: _Spot(overlay, item) for overlay in overlays for key, item in overlay.items_of.items()
    }

    def found(changes: Iterable[Change]) -> Iterator[_Spot]:
        for change in changes:
            for node in (change.after, change.before):
                if node is not None and id(node) in spots:
                    yield spots[id(node)]

    derived = dict.fromkeys(found(c for finding in diff.findings for c in finding.consequences))
    primary = dict.fromkeys(found(c for finding in diff.findings for c in finding.changes))
    for spot in spots.values():
        if spot not in derived:
            primary.setdefault(spot)
    return primary, {spot: None for spot in derived if spot not in primary}


def _whole_graph(scene: Scene, graph: Graph | None, overlay: Overlay) -> None:
    if graph is None or len(scene) >= MAX_BOXES:
        return
    kind: MarkKind = "removed" if overlay.pair.after is None else "added"
    border, fill = PAINT[kind]
    calls = sum(graph.op_counts.values())
    scene.add_box(
        [f"{SIGNS[kind]} {graph.kind} graph {graph.name}", f"{calls} ops"],
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
        color=border,
        fillcolor=fill,
        penwidth="2",
        style="filled,rounded,dashed" if kind == "removed" else "filled,rounded",
    )


def _add(
    canvas: Canvas, overlay: Overlay, number: int, spots: _Spots, numbers: dict[_Spot, int]
) -> None:
    """Put a pair of graphs on the canvas."""
    graph = overlay.pair.after
    assert graph is not None
    kind = "" if graph.kind == graph.name else f" ({graph.kind})"
    base: Place = (Segment("graph", f"{graph.name}{kind}", str(number)),)
    for item in sorted(overlay.positions, key=overlay.positions.__getitem__):
        if _is_busy_return(overlay, item) and item not in overlay.marks:
            continue
        spot = _Spot(overlay, item)
        box = overlay.box(item)
        place = module_place(box.node.module, base)
        mark = overlay.marks.get(item)
        if mark is not None:
            mark.follows = spot in spots.consequences
        piece = Piece(graph.name, box, place, mark, is_old=not item.is_new)
        piece.no_box = box.node.op == "saved" and mark is None and bool(overlay.below.get(item))
        numbers[spot] = canvas.add(piece)
    for edge, (before, after) in overlay.edges.items():
        if _is_busy_return(overlay, edge.head) and None not in (before, after):
            continue
        ends = [numbers.get(_Spot(overlay, item)) for item in (edge.tail, edge.head)]
        if None in ends:
            continue
        tail, head = (end for end in ends if end is not None)
        if after is None:
            canvas.edges.append(Edge(tail, head, edge.path, before or "", "removed"))
        elif before is None:
            canvas.edges.append(Edge(tail, head, edge.path, after, "added"))
        elif before != after:
            label = f"{before} \N{RIGHTWARDS ARROW} {after}"
            canvas.edges.append(Edge(tail, head, edge.path, label, "changed"))
        else:
            canvas.edges.append(Edge(tail, head, edge.path, after))


def _is_busy_return(overlay: Overlay, item: Item) -> bool:
    """Whether so much is returned that edges to the return would hide everything else."""
    return overlay.box(item).node.kind == "output" and len(overlay.above[item]) > MAX_RETURNED


def look(piece: Piece, named: bool) -> Look:
    """What a box looks like where marks are what matters: what has none is pale."""
    node, mark = piece.node, piece.mark
    if mark is None:
        lines = labels.node_lines(node)
        lines += [folded_label(each, node) for each in piece.box.folded[:2]]
    else:
        lines = change_lines(mark, node)
        if not mark.lines:
            lines += [folded_label(each, node) for each in piece.box.folded[:2]]
    if named and node.kind != "placeholder":
        lines.append(f"= {node.name}")
    lines += piece.lines
    if mark is None:
        return Look(lines[: labels.MAX_LINES], CONTEXT, ("context",))
    lines = [*lines, *source_line(node)][: labels.MAX_LINES]
    return Look(lines, *_paint(PAINT[mark.kind], mark.kind, mark.follows))


def port_paint(piece: Piece) -> tuple[Paint, str]:
    """The paint of a port where marks are what matters, and its class."""
    if piece.mark is None:
        return Paint(CONTEXT["color"], CONTEXT["fillcolor"]), "context"
    return PAINT[piece.mark.kind], piece.mark.kind


def _paint(paint: Paint, kind: str, follows: bool) -> tuple[dict[str, str], tuple[str, ...]]:
    style = "filled,rounded"
    if follows:
        attributes = {"color": paint.border, "fillcolor": "#FFFFFF", "style": f"{style},dashed"}
        return attributes, (kind, "follows")
    return {
        "color": paint.border,
        "fillcolor": paint.fill,
        "style": style,
        "penwidth": "2",
    }, (kind,)
