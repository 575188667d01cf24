"""Drawing of drawables and edges into a scene: assign drawables to boxes and cut long edges.

Each kind of drawing (`whole`, `difference`, `program`) adds drawables and edges, and defines the
look of boxes. `Canvas.draw` then decides, in this order:

1. which drawables get their own box and which are folded into groups (`clustering`);
2. which edges between the same two boxes are merged into one (`_Bundle`);
3. which of the merged edges are too long, and are replaced by a port at the user.

A port is a small labelled box for a value from another part of the drawing, like an off-page
connector in a flow chart. It is not a Graphviz port, which is a point on a node.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Collection, Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from ..look import CHANGE_PAINTS, HEAT_PAINTS, MAX_TOOLTIP_LINE, Paint, dot_text, tooltip_of
from .clustering import Clustering, Unit, break_cycles
from .drawables import Drawable, Edge, Look
from .groups import group_text
from .scene import Element, OnlySide, Scene
from .sequence import NodeRanks

LONG = 12
"""Maximum ranks that an edge spans before it is cut: `dot` adds an invisible node per rank."""
BUSY = 4
"""Number of users above which a value's edges are cut unless they are short."""
SHORT = 3
"""Maximum ranks that an edge of a busy value spans before it is cut."""
CYCLES = 3
"""Breaking cycles may add at most `limit // CYCLES` boxes to the maximum number of boxes."""
PORT = {"shape": "cds", "style": "filled", "fontsize": "8", "margin": "0.06,0.02"}
"""DOT attributes of a port."""
GROUP = {
    "shape": "box3d",
    "style": "filled",
    "color": "#555555",
    "fillcolor": "#F4F4F4",
    "margin": "0.14,0.08",
}
"""DOT attributes of a group without changes."""
EDGE_STYLES: dict[str, dict[str, str]] = {
    "value": {},
    "added": {"color": CHANGE_PAINTS["added"].border, "penwidth": "2"},
    "removed": {"color": CHANGE_PAINTS["removed"].border, "style": "dashed"},
    "changed": {"color": CHANGE_PAINTS["changed"].border},
    "order": {"style": "dotted"},
    "body": {"style": "dashed", "arrowhead": "none"},
    "cut": {"color": CHANGE_PAINTS["removed"].border, "style": "bold"},
}
"""DOT attributes of an edge, keyed by its kind."""


class _Bundle(NamedTuple):
    """All edges of one kind between the same two boxes, drawn as one edge.

    Attributes:
        tail, head: unit numbers of the boxes; the tail is -1 if it has no box.
        kind: the kind of the edges.
        edges: the edges.
    """

    tail: int
    head: int
    kind: str
    edges: list[Edge]


@dataclass
class Canvas:
    """Drawables and the edges between them, drawn into a scene by `draw`.

    Attributes:
        scene: receives the boxes and edges.
        look: returns the `Look` of a drawable. The second argument is True if ports refer to the
            drawable by name.
        port_paint: returns the paint and the CSS class of a drawable's port.
        drawables: the drawables, in graph order.
        edges: the edges between the drawables.
        units: content of each box. Set by `draw`.
        unit_of: unit number of each drawable that has a box. Set by `draw`.
        keys: scene key of each unit's box. Set by `draw`.
    """

    scene: Scene
    look: Callable[[Drawable, bool], Look]
    port_paint: Callable[[Drawable], tuple[Paint, str]]
    drawables: list[Drawable] = field(default_factory=list)
    edges: list[Edge] = field(default_factory=list)
    units: list[Unit] = field(default_factory=list)
    unit_of: dict[int, int] = field(default_factory=dict)
    keys: list[str] = field(default_factory=list)

    def add(self, drawable: Drawable) -> int:
        """Add a drawable and return its number. Call in graph order."""
        self.drawables.append(drawable)
        return len(self.drawables) - 1

    def with_neighbours(self, focus: Collection[int], most: int = 5) -> list[int]:
        """Return the drawables in `focus`, followed by the nearest operands and users of each.

        Args:
            focus: numbers of the drawables.
            most: maximum number of operands, and of users, per drawable.
        """
        operands: dict[int, list[int]] = {number: [] for number in focus}
        users: dict[int, list[int]] = {number: [] for number in focus}
        for edge in self.edges:
            if edge.head in operands:
                operands[edge.head].append(edge.tail)
            if edge.tail in users:
                users[edge.tail].append(edge.head)
        numbers = dict.fromkeys(focus)
        for number in focus:
            # Numbers follow graph order: the largest operand and the smallest user are the nearest.
            numbers.update(dict.fromkeys(sorted(set(operands[number]), reverse=True)[:most]))
            numbers.update(dict.fromkeys(sorted(set(users[number]))[:most]))
        return list(numbers)

    def draw(self, limit: int | None, focus: Sequence[int] = (), *, compact: bool = False) -> None:
        """Draw everything into the scene.

        Args:
            limit: maximum number of boxes, excluding ports; `None` for no limit. Breaking cycles
                may exceed the limit by a third.
            focus: drawables to draw in their own boxes, the most important first.
            compact: True to open only clusters that contain `focus`; see `Clustering.units`.
        """
        self.units = self._choose_units(limit, focus, compact)
        self.unit_of = {n: i for i, unit in enumerate(self.units) for n in unit.members}
        bundles, unboxed = self._bundle_edges()
        uncut, cut = self._split_bundles(bundles)
        for head, edges in unboxed.items():
            # A single node gets a port for each of these values. A group only counts them in its
            # label (`_add_group_box`).
            if not self.units[head].is_group:
                cut += [_Bundle(-1, head, "value", [edge]) for edge in edges.values()]
        port_tails = {edge.tail for bundle in cut for edge in bundle.edges}
        self.keys = [
            self._add_group_box(unit, len(unboxed.get(number, ())))
            if unit.is_group
            else self._add_box(unit, unit.members[0] in port_tails)
            for number, unit in enumerate(self.units)
        ]
        for bundle in uncut:
            self._add_edge(bundle)
        for bundle in cut:
            self._add_port(bundle)

    def count_marks_in_groups(self) -> int:
        """Return the number of drawables with a change mark in groups. Call after `draw`."""
        return sum(
            self.drawables[n].mark is not None
            for unit in self.units
            if unit.is_group
            for n in unit.members
        )

    def _choose_units(self, limit: int | None, focus: Sequence[int], compact: bool) -> list[Unit]:
        boxed = [n for n, drawable in enumerate(self.drawables) if not drawable.no_box]
        number_of = {n: i for i, n in enumerate(boxed)}
        clusters = [self.drawables[n].cluster for n in boxed]
        boxed_focus = [number_of[n] for n in focus if n in number_of]
        units = Clustering(clusters).units(limit, boxed_focus, compact=compact)
        flow = [
            (number_of[e.tail], number_of[e.head])
            for e in self.edges
            # Removed edges are left out, because old and new edges together can form cycles that
            # neither graph has.
            if e.kind in ("value", "added", "changed") and e.tail in number_of
        ]
        if limit is not None:
            units = break_cycles(units, flow, limit + limit // CYCLES)
        return [unit._replace(members=tuple(boxed[i] for i in unit.members)) for unit in units]

    # -- edges -------------------------------------------------------------------------------------

    def _bundle_edges(self) -> tuple[list[_Bundle], Mapping[int, dict[int, Edge]]]:
        """Return the bundles, and each unit's edges from tails without a box, keyed by tail."""
        bundles: dict[tuple[int, int, str], dict[Hashable, Edge]] = {}
        unboxed: defaultdict[int, dict[int, Edge]] = defaultdict(dict)
        for edge in self.edges:
            head = self.unit_of[edge.head]
            tail = self.unit_of.get(edge.tail)
            if tail is None:
                unboxed[head].setdefault(edge.tail, edge)
            elif tail != head:
                key = (tail, head, edge.kind)
                bundles.setdefault(key, {}).setdefault((edge.tail, edge.value), edge)
        return [_Bundle(*key, list(edges.values())) for key, edges in bundles.items()], unboxed

    def _split_bundles(self, bundles: Sequence[_Bundle]) -> tuple[list[_Bundle], list[_Bundle]]:
        """Separate the bundles to draw as edges from the bundles to cut into ports.

        A bundle stays an edge if it is short, if it is the shortest into its box, or if it leads to
        the nearest user of its tail.
        """
        # Removed edges can close cycles (see `_choose_units`), and a box on a cycle has no rank.
        flow = [bundle for bundle in bundles if bundle.kind != "removed"]
        ranks = NodeRanks(
            (str(bundle.tail), str(bundle.head)) for bundle in flow if bundle.kind != "order"
        ).of

        def rank(unit: int) -> int:
            return ranks.get(str(unit), 0)

        def span(bundle: _Bundle) -> int:
            return rank(bundle.head) - rank(bundle.tail)

        users = Counter(bundle.tail for bundle in flow if bundle.kind == "value")
        nearest_user: dict[int, int] = {}
        shortest: dict[int, int] = {}
        for bundle in flow:
            if bundle.kind != "order":
                shortest[bundle.head] = min(shortest.get(bundle.head, span(bundle)), span(bundle))
            nearest = nearest_user.get(bundle.tail)
            if nearest is None or rank(bundle.head) < rank(nearest):
                nearest_user[bundle.tail] = bundle.head

        def is_drawn(bundle: _Bundle) -> bool:
            if bundle.kind != "value":
                return True
            limit = SHORT if users[bundle.tail] > BUSY else LONG
            return (
                # Each box keeps at least one edge, because `dot` puts a box without edges at the
                # top, even if it belongs at the end of the graph.
                span(bundle) <= limit
                or span(bundle) == shortest[bundle.head]
                or nearest_user[bundle.tail] == bundle.head
            )

        uncut: list[_Bundle] = []
        cut: list[_Bundle] = []
        for bundle in bundles:
            if bundle.kind == "order" and abs(span(bundle)) > LONG:
                continue  # an order edge carries no value that a port could show
            (uncut if is_drawn(bundle) else cut).append(bundle)
        return uncut, cut

    def _add_edge(self, bundle: _Bundle) -> None:
        key = self.scene.add_edge(
            self.keys[bundle.tail],
            self.keys[bundle.head],
            _bundle_label(bundle.edges),
            [bundle.kind],
            **EDGE_STYLES[bundle.kind],
        )
        self.scene.sides.record_only(key, _common_side(edge.only for edge in bundle.edges))
        before, after = (
            _bundle_label(
                [edge._replace(label=(edge.sides or [edge.label] * 2)[n]) for edge in bundle.edges]
            )
            for n in (0, 1)
        )
        self.scene.sides.record_labels(key, [before], [after])

    # -- boxes -------------------------------------------------------------------------------------

    def _add_box(self, unit: Unit, named: bool) -> str:
        drawable = self.drawables[unit.members[0]]
        look = self._with_heat(self.look(drawable, named), unit)
        mark = "" if drawable.mark is None else drawable.mark.kind
        element = Element(
            "node", drawable.graph, _names([drawable]), change=mark, is_old=drawable.is_old
        )
        key = self.scene.add_box(
            look.lines,
            unit.cluster,
            tooltip_of(drawable.node),
            look.classes,
            element,
            drawable.only,
            **look.attributes,
        )
        if look.sides is not None:
            self.scene.sides.record_labels(self.scene.box_id(key), *look.sides)
        return key

    def _with_heat(self, look: Look, unit: Unit) -> Look:
        """Return the look of a box. In a heat map, colour it by the cost of its nodes."""
        heat = self.scene.heat
        if heat is None:
            return look
        nodes = [node for n in unit.members for node in self.drawables[n].computed]
        self.scene.add_cost(unit.cluster, heat.known_cost(nodes))
        border, fill = HEAT_PAINTS[step := heat.step(nodes)]
        lines = [*look.lines, line] if (line := heat.format_cost(nodes)) else look.lines
        attributes = look.attributes | {"color": border, "fillcolor": fill}
        classes = (*look.classes, f"heat-{step}")
        return look._replace(lines=lines, attributes=attributes, classes=classes)

    def _add_group_box(self, unit: Unit, unboxed: int) -> str:
        drawables = [self.drawables[n] for n in unit.members]
        change_counts: Counter[str] = Counter(
            drawable.mark.kind for drawable in drawables if drawable.mark is not None
        )
        notes = Counter(note for drawable in drawables for note in drawable.notes)
        if unboxed:
            notes["values read from the forward"] = unboxed
        nodes = [drawable.node for drawable in drawables]
        title, lines, tooltip = group_text(nodes, unit, notes, change_counts)
        # The box has the colour of the first change; the label counts the changes of each kind.
        kind = next(iter(change_counts), "")
        attributes = dict(GROUP)
        if kind:
            border, fill = CHANGE_PAINTS[kind]
            attributes |= {"color": border, "fillcolor": fill}
        classes = ("group", *([kind] if kind else ()))
        look = self._with_heat(Look(lines, attributes, classes), unit)
        return self.scene.add_box(
            look.lines,
            unit.cluster,
            dot_text(tooltip, MAX_TOOLTIP_LINE),
            look.classes,
            Element("group", drawables[0].graph, _names(drawables), title, kind),
            _common_side(drawable.only for drawable in drawables),
            **look.attributes,
        )

    def _add_port(self, bundle: _Bundle) -> None:
        head = self.units[bundle.head]
        edge = bundle.edges[0]
        drawable = self.drawables[edge.tail]
        (border, fill), kind = self.port_paint(drawable)
        if self.scene.heat is not None:
            (border, fill), kind = HEAT_PAINTS["none"], "heat-none"
        module = self.drawables[head.members[0]].node.module
        name = drawable.node.name
        if not head.is_group and module:
            name = name.removeprefix(f"{module}/")
        index = "".join(f"[{i}]" for i in edge.value)
        if len(bundle.edges) > 1:
            name, label = f"{name} and {len(bundle.edges) - 1} more", ""
        else:
            name, label = f"{name}{index}", edge.label.removeprefix(index).strip()
        names = tuple(self.drawables[bundled.tail].node.name for bundled in bundle.edges)
        key = self.scene.add_box(
            [name],
            head.cluster,
            tooltip_of(drawable.node),
            ("port", kind),
            Element("port", drawable.graph, names),
            _common_side(bundled.only for bundled in bundle.edges),
            color=border,
            fillcolor=fill,
            **PORT,
        )
        self.scene.add_edge(key, self.keys[bundle.head], label, ["value"])


def _bundle_label(edges: Sequence[Edge]) -> str:
    if len(edges) == 1:
        return edges[0].label
    distinct = {edge.label for edge in edges}
    if len(distinct) == 1 and (label := distinct.pop()):
        return f"{len(edges)} \N{MULTIPLICATION SIGN} {label}"
    return f"{len(edges)} values" if edges[0].kind not in ("order", "body", "cut") else ""


def _common_side(sides: Iterable[OnlySide]) -> OnlySide:
    """Return the side that all elements share, or "" if they differ."""
    distinct = set(sides)
    return distinct.pop() if len(distinct) == 1 else ""


def _names(drawables: Iterable[Drawable]) -> tuple[str, ...]:
    """Return the names of the nodes in a box, including folded nodes."""
    names: dict[str, None] = {}
    for drawable in drawables:
        names[drawable.node.name] = None
        folded = (*drawable.folded.folded_inputs, *drawable.folded.projections)
        names.update((node.name, None) for node in folded)
    return tuple(names)
