"""The drawing of a difference: what changed, a little of what is around it, and nothing else."""

from __future__ import annotations

from bisect import bisect_right
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, NamedTuple

from ..graph.diff import Change, ChangeKind, GraphDiff
from . import labels
from .families import Paint
from .overlay import Item, Mark, Overlay
from .scene import GREY, Place, Scene, Segment, common_place, module_place
from .whole import folded_label
from .wording import SIGNS, change_lines, source_line

if TYPE_CHECKING:
    import graphviz

MAX_NODES = 200
MAX_BOXES = 150
NEIGHBOURS = 5
"""How many operands, and how many users, of a box are context at most, the nearest first."""

PAINT: dict[ChangeKind, Paint] = {
    "added": Paint("#009E73", "#9FDCC8"),
    "removed": Paint("#D55E00", "#F3B893"),
    "changed": Paint("#E69F00", "#FBDB94"),
    "rewired": Paint("#0072B2", "#A6CFE6"),
}
CONTEXT = {"color": "#AAAAAA", "fillcolor": "#FFFFFF", "fontcolor": "#555555"}
ELLIPSIS = "\N{MIDLINE HORIZONTAL ELLIPSIS}"
KEY = ", ".join(f"{sign} {kind}" for kind, sign in SIGNS.items())


class _Spot(NamedTuple):
    """An item of one of the overlaid pairs of graphs."""

    overlay: Overlay
    item: Item


def diff_to_dot(diff: GraphDiff, hops: int = 2) -> graphviz.Digraph:
    """Draw a difference.

    Each changed node is coloured and signed, and stands among what is at most `hops` edges away
    from it; a removed node where it was. What is left out is counted at an ellipsis. Consequences
    are drawn paler, as far as there is room: a drawing has at most 200 nodes.

    Args:
        diff: what to draw; nothing in it gives a drawing that says so.
        hops: how much context, 0 for none.
    """
    title = [diff.heading(), f"{KEY}; dashed: a consequence"]
    scene = Scene("difference", title)
    changes = [c for finding in diff.findings for c in (*finding.changes, *finding.consequences)]
    overlays = [Overlay(pair, changes) for pair in diff.graphs]
    selection = _Selection(diff, overlays, hops)
    for overlay in overlays:
        if overlay.pair.before is None or overlay.pair.after is None:
            _whole_graph(scene, overlay)
        elif selection.shown[overlay]:
            _Drawing(scene, overlay, selection).draw()
    if selection.left_out:
        scene.title.append(f"{selection.left_out} more changed nodes are not drawn")
    return scene.digraph()


class _Selection:
    """Which items are drawn: changes, then their context, then consequences and theirs."""

    def __init__(self, diff: GraphDiff, overlays: list[Overlay], hops: int):
        self.shown: dict[Overlay, dict[Item, None]] = {overlay: {} for overlay in overlays}
        self._room = MAX_BOXES - sum(
            overlay.pair.before is None or overlay.pair.after is None for overlay in overlays
        )
        primary, derived = _spots(diff, overlays)
        self.consequences = derived
        self._add(primary)
        self._surround(primary, hops)
        self._add(derived)
        self._surround(derived, min(hops, 1))
        self.left_out = sum(
            spot.item not in self.shown[spot.overlay] for spot in (*primary, *derived)
        )

    def _add(self, spots: Iterable[_Spot]) -> None:
        for overlay, item in spots:
            if self._room > 0 and item not in self.shown[overlay]:
                self.shown[overlay][item] = None
                self._room -= 1

    def _surround(self, spots: Iterable[_Spot], hops: int) -> None:
        border = [spot for spot in spots if spot.item in self.shown[spot.overlay]]
        for _ in range(hops):
            border = [
                _Spot(overlay, near)
                for overlay, item in border
                for near in overlay.around(item, NEIGHBOURS)
                if near not in self.shown[overlay]
            ]
            border = list(dict.fromkeys(border))
            self._add(border)
            border = [spot for spot in border if spot.item in self.shown[spot.overlay]]


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


def _whole_graph(scene: Scene, overlay: Overlay) -> None:
    graph = overlay.pair.after or overlay.pair.before
    if graph is None or len(scene) >= MAX_NODES:
        return
    kind: ChangeKind = "removed" if overlay.pair.after is None else "added"
    border, fill = PAINT[kind]
    calls = sum(graph.op_counts.values())
    scene.add_box(
        [f"{SIGNS[kind]} {graph.kind} graph {graph.name}", f"{calls} ops"],
        (),
        color=border,
        fillcolor=fill,
        penwidth="2",
        style="filled,rounded,dashed" if kind == "removed" else "filled,rounded",
    )


class _Drawing:
    """Puts the selected items of one pair of graphs into the scene."""

    def __init__(self, scene: Scene, overlay: Overlay, selection: _Selection):
        self.scene = scene
        self.overlay = overlay
        self.shown = selection.shown[overlay]
        self.consequences = selection.consequences
        self.keys: dict[Item, str] = {}
        self.places: dict[Item, Place] = {}
        graph = overlay.pair.after
        assert graph is not None
        kind = "" if graph.kind == graph.name else f" ({graph.kind})"
        self.base: Place = (Segment("graph", f"{graph.name}{kind}"),)

    def draw(self) -> None:
        for item in sorted(self.shown, key=self.overlay.positions.__getitem__):
            self._box(item)
        for edge, (before, after) in self.overlay.edges.items():
            if edge.tail in self.keys and edge.head in self.keys:
                self._edge(self.keys[edge.tail], self.keys[edge.head], before, after)
        self._ellipses()

    def _box(self, item: Item) -> None:
        box = self.overlay.box(item)
        mark = self.overlay.marks.get(item)
        place = self.places[item] = module_place(box.node.module, self.base)
        if mark is None:
            lines = labels.node_lines(box.node)
            lines += [folded_label(node, box.node) for node in box.folded[:2]]
            attributes = CONTEXT
        else:
            lines = change_lines(mark, box.node)
            if not mark.lines:
                lines += [folded_label(node, box.node) for node in box.folded[:2]]
            lines += source_line(box.node)
            attributes = self._paint(mark, _Spot(self.overlay, item) in self.consequences)
        lines = lines[: labels.MAX_LINES]
        tooltip = labels.tooltip(box.node)
        self.keys[item] = self.scene.add_box(lines, place, tooltip, **attributes)

    def _paint(self, mark: Mark, follows: bool) -> dict[str, str]:
        border, fill = PAINT[mark.kind]
        style = "filled,rounded"
        if follows:
            return {"color": border, "fillcolor": "#FFFFFF", "style": f"{style},dashed"}
        return {"color": border, "fillcolor": fill, "style": style, "penwidth": "2"}

    def _edge(self, tail: str, head: str, before: str | None, after: str | None) -> None:
        if after is None:
            self.scene.add_link(
                tail, head, before or "", color=PAINT["removed"].border, style="dashed"
            )
        elif before is None:
            self.scene.add_link(tail, head, after, color=PAINT["added"].border, penwidth="2")
        elif before != after:
            label = f"{before} \N{RIGHTWARDS ARROW} {after}"
            self.scene.add_link(tail, head, label, color=PAINT["changed"].border)
        else:
            self.scene.add_link(tail, head, after)

    # -- what is left out --------------------------------------------------------------------------

    def _ellipses(self) -> None:
        """One ellipsis for each stretch of the graph between two groups of shown items."""
        positions = self.overlay.positions
        groups = self.overlay.components(self.shown)
        starts = [positions[group[0]] for group in groups]
        gaps = {
            item: bisect_right(starts, position)
            for item, position in positions.items()
            if item not in self.shown
        }
        counts = Counter(gaps.values())
        into: defaultdict[int, list[Item]] = defaultdict(list)
        out: defaultdict[int, list[Item]] = defaultdict(list)
        for item in self.shown:
            below = [gaps[near] for near in self.overlay.below[item] if near in gaps]
            above = [gaps[near] for near in self.overlay.above[item] if near in gaps]
            if below:
                into[min(below)].append(item)
            if above:
                out[max(above)].append(item)
        for gap, count in sorted(counts.items()):
            if len(self.scene) >= MAX_NODES:
                break
            self._ellipsis(count, into[gap], out[gap])

    def _ellipsis(self, count: int, into: list[Item], out: list[Item]) -> None:
        noun = "node" if count == 1 else "nodes"
        places = [self.places[item] for item in (*into, *out)]
        key = self.scene.add_box(
            [f"{ELLIPSIS} {count:,} {noun} not shown"],
            common_place(places) if into and out else self.base,
            shape="plaintext",
            style="",
            fontcolor=GREY,
        )
        for item in into:
            self.scene.add_link(self.keys[item], key, style="dotted", arrowhead="none")
        for item in out:
            if item not in into:
                self.scene.add_link(key, self.keys[item], style="dotted", arrowhead="none")
