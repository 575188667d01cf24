"""What every drawing of graphs has in common: pieces, the edges between them, and what is folded.

A drawing says what its pieces look like; which of them get a box of their own, what stands for the
others, and which edges are cut into ports is decided here.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Hashable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from ...graph.model import Node
from ..look import labels
from ..look.change_marks import PAINT, Mark
from ..look.op_categories import Paint
from .clustering import Collapse, Unit, break_cycles
from .fold import Box
from .groups import group_text
from .ranks import Ranks
from .scene import Element, Place, Scene

LONG = 12
"""An edge over more ranks than this is cut."""
BUSY = 4
"""The edges of a value with more users than this are cut unless they are short."""
SHORT = 3
PORT = {"shape": "cds", "style": "filled", "fontsize": "8", "margin": "0.06,0.02"}
GROUP = {
    "shape": "box3d",
    "style": "filled",
    "color": "#555555",
    "fillcolor": "#F4F4F4",
    "margin": "0.14,0.08",
}


class Look(NamedTuple):
    """What one box looks like: plain lines, and attributes of DOT."""

    lines: list[str]
    attributes: dict[str, str]
    classes: tuple[str, ...] = ()


@dataclass(slots=True)
class Piece:
    """Something that can have a box of its own: an op with what is folded into it.

    Attributes:
        graph: name of the graph.
        box: the op.
        place: the cluster that it belongs into.
        mark: what happened to it, where that is what the drawing is about.
        is_old: whether only the old graph has it.
        no_box: whether it is drawn at its users alone, as a port.
        notes: what a group says of how many of its pieces.
        lines: what its box says beyond what the node itself does.
    """

    graph: str
    box: Box
    place: Place
    mark: Mark | None = None
    is_old: bool = False
    no_box: bool = False
    notes: tuple[str, ...] = ()
    lines: list[str] = field(default_factory=list)

    @property
    def node(self) -> Node:
        """The op's node."""
        return self.box.node


class Edge(NamedTuple):
    """An edge between pieces.

    Attributes:
        tail, head: the pieces, by number.
        value: which of the results of the tail it is, one index for each nested projection.
        label: what is written at it.
        kind: "value", "added", "removed", "changed", "order" (one must run before the other),
            "body" (a call and what it calls) or "cut" (what a graph break interrupts).
    """

    tail: int
    head: int
    value: tuple[int, ...] = ()
    label: str = ""
    kind: str = "value"


class _Arrow(NamedTuple):
    """The edges between two boxes that are drawn as one."""

    tail: int
    head: int
    kind: str
    edges: list[Edge]


LINKS: dict[str, dict[str, str]] = {
    "value": {},
    "added": {"color": PAINT["added"].border, "penwidth": "2"},
    "removed": {"color": PAINT["removed"].border, "style": "dashed"},
    "changed": {"color": PAINT["changed"].border},
    "order": {"style": "dotted"},
    "body": {"style": "dashed", "arrowhead": "none"},
    "cut": {"color": PAINT["removed"].border, "style": "bold"},
}


@dataclass
class Canvas:
    """Collects pieces and edges, and draws them.

    Attributes:
        look: what the box of a piece looks like, given whether a port refers to it by name.
        port_paint: the paint and the class of a port.
    """

    scene: Scene
    look: Callable[[Piece, bool], Look]
    port_paint: Callable[[Piece], tuple[Paint, str]]
    pieces: list[Piece] = field(default_factory=list)
    edges: list[Edge] = field(default_factory=list)
    drawn: set[int] = field(default_factory=set)

    def add(self, piece: Piece) -> int:
        """Add a piece and return its number. Pieces come in the order of the graph."""
        self.pieces.append(piece)
        return len(self.pieces) - 1

    def draw(
        self, limit: int | None, focus: Sequence[int] = (), *, compact: bool = False
    ) -> list[Unit]:
        """Draw everything with at most `limit` boxes; see `Collapse.units`. Gives the boxes."""
        shown = [n for n, piece in enumerate(self.pieces) if not piece.no_box]
        number_of = {n: i for i, n in enumerate(shown)}
        places = [self.pieces[n].place for n in shown]
        wanted = [number_of[n] for n in focus if n in number_of]
        found = Collapse(places).units(limit, wanted, compact=compact)
        links = [
            (number_of[e.tail], number_of[e.head])
            for e in self.edges
            if e.kind in ("value", "added", "changed") and e.tail in number_of
        ]
        if limit is not None:
            found = break_cycles(found, links, limit + limit // 3)
        self.units = [
            unit._replace(members=tuple(shown[i] for i in unit.members)) for unit in found
        ]
        self.unit_of = {n: i for i, unit in enumerate(self.units) for n in unit.members}
        self.drawn = {unit.members[0] for unit in self.units if not unit.is_group}
        self._arrows()
        whole, cut = self._split()
        named = {edge.tail for arrow in cut for edge in arrow.edges}
        self.keys = [self._box(unit, named) for unit in self.units]
        for arrow in whole:
            self.scene.add_link(
                self.keys[arrow.tail],
                self.keys[arrow.head],
                _arrow_label(arrow.edges),
                [arrow.kind],
                **LINKS[arrow.kind],
            )
        for arrow in cut:
            self._port(arrow)
        return self.units

    # -- edges -------------------------------------------------------------------------------------

    def _arrows(self) -> None:
        """One arrow for all edges of a kind between the same two boxes."""
        arrows: dict[tuple[int, int, str], dict[Hashable, Edge]] = {}
        self.read: defaultdict[int, dict[int, Edge]] = defaultdict(dict)
        for edge in self.edges:
            head = self.unit_of[edge.head]
            tail = self.unit_of.get(edge.tail)
            if tail is None:
                self.read[head].setdefault(edge.tail, edge)
            elif tail != head:
                key = (tail, head, edge.kind)
                arrows.setdefault(key, {}).setdefault((edge.tail, edge.value), edge)
        self.arrows = [_Arrow(*key, list(edges.values())) for key, edges in arrows.items()]

    def _split(self) -> tuple[list[_Arrow], list[_Arrow]]:
        """The arrows that are drawn, and those that are drawn as ports."""
        values = [arrow for arrow in self.arrows if arrow.kind != "removed"]
        ranks = Ranks(
            (str(arrow.tail), str(arrow.head)) for arrow in values if arrow.kind != "order"
        ).of

        def span(arrow: _Arrow) -> int:
            return ranks.get(str(arrow.head), 0) - ranks.get(str(arrow.tail), 0)

        users = Counter(arrow.tail for arrow in values if arrow.kind == "value")
        nearest: dict[int, int] = {}
        shortest: dict[int, int] = {}
        for arrow in values:
            if arrow.kind != "order":
                shortest[arrow.head] = min(shortest.get(arrow.head, 1 << 30), span(arrow))
            known = nearest.get(arrow.tail)
            if known is None or ranks.get(str(arrow.head), 0) < ranks.get(str(known), 0):
                nearest[arrow.tail] = arrow.head
        whole: list[_Arrow] = []
        cut: list[_Arrow] = []
        for arrow in self.arrows:
            if arrow.kind == "value":
                limit = SHORT if users[arrow.tail] > BUSY else LONG
                short = (
                    span(arrow) <= limit
                    or span(arrow) == shortest[arrow.head]
                    or nearest[arrow.tail] == arrow.head
                )
                (whole if short else cut).append(arrow)
            elif arrow.kind != "order" or abs(span(arrow)) <= LONG:
                whole.append(arrow)
        for head, edges in self.read.items():
            if not self.units[head].is_group:
                cut += [_Arrow(-1, head, "value", [edge]) for edge in edges.values()]
        return whole, cut

    # -- boxes -------------------------------------------------------------------------------------

    def _box(self, unit: Unit, named: set[int]) -> str:
        number = unit.members[0]
        piece = self.pieces[number]
        if not unit.is_group:
            look = self.look(piece, number in named)
            mark = "" if piece.mark is None else piece.mark.kind
            element = Element(
                "node", piece.graph, _names([piece]), change=mark, is_old=piece.is_old
            )
            return self.scene.add_box(
                look.lines,
                unit.place,
                labels.tooltip(piece.node),
                look.classes,
                element,
                **look.attributes,
            )
        pieces = [self.pieces[n] for n in unit.members]
        marks: Counter[str] = Counter(piece.mark.kind for piece in pieces if piece.mark is not None)
        notes = Counter(note for piece in pieces for note in piece.notes)
        if read := self.read.get(self.unit_of[number]):
            notes["values read from the forward"] = len(read)
        title, lines, tooltip = group_text([piece.node for piece in pieces], unit, notes, marks)
        kind = next(iter(marks), "")
        attributes = dict(GROUP)
        if kind:
            border, fill = PAINT[kind]
            attributes |= {"color": border, "fillcolor": fill}
        return self.scene.add_box(
            lines,
            unit.place,
            labels.dot_text(tooltip, labels.MAX_TOOLTIP_LINE),
            ("group", *([kind] if kind else ())),
            Element("group", piece.graph, _names(pieces), title, kind),
            **attributes,
        )

    def _port(self, arrow: _Arrow) -> None:
        head = self.units[arrow.head]
        edge = arrow.edges[0]
        piece = self.pieces[edge.tail]
        (border, fill), kind = self.port_paint(piece)
        module = self.pieces[head.members[0]].node.module
        name = piece.node.name
        if not head.is_group and module:
            name = name.removeprefix(f"{module}/")
        if len(arrow.edges) > 1:
            name = f"{name} and {len(arrow.edges) - 1} more"
        else:
            name += "".join(f"[{i}]" for i in edge.value)
        key = self.scene.add_box(
            [name],
            head.place,
            labels.tooltip(piece.node),
            ("port", kind),
            Element("port", piece.graph, tuple(self.pieces[e.tail].node.name for e in arrow.edges)),
            color=border,
            fillcolor=fill,
            **PORT,
        )
        index = "".join(f"[{i}]" for i in edge.value)
        label = "" if len(arrow.edges) > 1 else edge.label.removeprefix(index).strip()
        self.scene.add_link(key, self.keys[arrow.head], label, ["value"])


def _arrow_label(edges: Sequence[Edge]) -> str:
    if len(edges) == 1:
        return edges[0].label
    same = {edge.label for edge in edges}
    if len(same) == 1 and (label := same.pop()):
        return f"{len(edges)} \N{MULTIPLICATION SIGN} {label}"
    return f"{len(edges)} values" if edges[0].kind not in ("order", "body", "cut") else ""


def _names(pieces: Iterable[Piece]) -> tuple[str, ...]:
    names: dict[str, None] = {}
    for piece in pieces:
        names[piece.node.name] = None
        names.update((node.name, None) for node in (*piece.box.folded, *piece.box.projections))
    return tuple(names)
