"""The drawings of a step and of graph breaks: the graphs as they ran, the breaks between.

What ran eagerly has a frame of its own kind, and the graph break before it says why it is in no
compiled graph. A value that another graph made is an edge from there.
"""

from __future__ import annotations

import re
import textwrap
from collections.abc import Iterable, Mapping, Sequence
from itertools import zip_longest

from ..graph.events import GraphBreak
from ..graph.model import Graph
from ..words import counted
from .layout.canvas import EDGE_STYLES, Canvas
from .layout.drawables import Edge
from .layout.placed_graph import PlacedGraph, add_graph
from .layout.scene import Element, Scene, Segment
from .look import labels
from .look.changes import BREAK_SIGN, CHANGE_PAINTS
from .look.colours import Heat, HeatFigure
from .whole import Drawing, category_look, category_paint, legend

Part = Graph | GraphBreak
"""A part of a step: a graph, or the break between two."""

MAX_BOXES = 240
"""How many boxes the drawing of a step has at most, ports, breaks and the legend not counted."""
MAX_BOXES_OF_BREAKS = 120
"""The same of a drawing of graph breaks, which has the forward alone."""
_FORWARD_ID = re.compile(r"[^ !/][^ /]*/[^ /]*")
"""A compile id such as "0/1"; a backward's is "0/1 backward", an unknown one begins with "!"."""
WIDTH = 72
"""Characters in a line of a break's box, to which its reason is wrapped."""
MAX_WIDTH = 80
"""Characters in a line that cannot be wrapped, such as the user's code."""
TOOLTIP_WIDTH = 100
"""Characters in a line of a break's tooltip, to which its reason is wrapped."""
MAX_REASON = 5
"""Lines of its reason; the tooltip has all of it."""
MAX_ENDS = 4
"""How many of the inputs behind a break are tied to it."""
NEIGHBOURS = 2
"""How many operands, and how many users, of the ends of a graph get boxes while there is room."""


def drawing(
    graphs: Sequence[Graph], *, heat: HeatFigure | None = None, prefix: str = ""
) -> Drawing:
    """Draw the graphs of a capture's `program` as one.

    Args:
        graphs: the graphs, in the order in which they ran.
        heat: colours show what ops cost, as often as their graph ran, in place of their categories.
        prefix: the beginning of every `id`, for a page that holds several drawings.

    Raises:
        CaptureError, ValueError: for a heat, see `Graph.to_dot`.
    """
    eager = sum(graph.eager for graph in graphs)
    title = f"{counted(len(graphs), 'graph')} of one step: {len(graphs) - eager} compiled"
    found = None if heat is None else Heat.of(graphs, heat, times_run=True)
    scene = Scene("program", [f"{title}, {eager} eager" if eager else title], prefix, found)
    canvas = _draw_parts(scene, _with_causes(graphs), MAX_BOXES)
    legend(canvas)
    return Drawing.of(scene)


def drawing_of_breaks(
    graphs: Sequence[Graph],
    breaks: Sequence[GraphBreak],
    executions: Iterable[str] = (),
    program: Sequence[Graph] = (),
    prefix: str = "",
) -> Drawing:
    """Draw the forward graphs of a capture in the order in which they ran, the breaks between.

    Each break has the user's line and the reason. What compiled code returned to the interpreter,
    and what it took over after the break, is always to be seen. Of a graph that was compiled
    several times the first is drawn. What ran eagerly in the forward follows its break.

    Args:
        graphs: forward graphs, in the order in which they were compiled.
        breaks: breaks, in the order in which they were met.
        executions: the compile ids of what ran. If the forward graphs are not as many, graphs and
            breaks are assumed to alternate, and the drawing says so.
        program: all graphs of the step, in order; the eager ones among them are drawn.
        prefix: the beginning of every `id`, for a page that holds several drawings.
    """
    title = [f"{counted(len(breaks), 'graph break')}, {counted(len(graphs), 'graph')}"]
    if eager := sum(graph.eager and graph.kind != "backward" for graph in program):
        title[0] += f", {eager} eager"
    compile_ids = [each for each in executions if _FORWARD_ID.fullmatch(each)]
    if len(compile_ids) == len(graphs):
        order, left_out = _by_id(graphs, breaks, compile_ids)
        if left_out:
            title.append(f"not drawn: {counted(left_out, 'graph')}, compiled again")
    else:
        pairs = zip_longest(graphs, breaks)
        order = [part for pair in pairs for part in pair if part is not None]
        title.append("which graph ended at which break is not known: they are in their order")
    scene = Scene("breaks", title, prefix)
    _draw_parts(scene, _with_eager(order, program), MAX_BOXES_OF_BREAKS)
    return Drawing.of(scene)


def _with_causes(graphs: Iterable[Graph]) -> list[Part]:
    """The graphs, and before an eager one the break that it is behind, where that is known.

    Eager graphs behind one another that have one cause are behind it once.
    """
    parts: list[Part] = []
    latest = None
    for graph in graphs:
        if graph.cause is not None and _place_of(graph.cause) != latest:
            parts.append(graph.cause)
        latest = _place_of(graph.cause)
        parts.append(graph)
    return parts


def _place_of(part: Part | None) -> tuple[str, int, str] | None:
    """The file, line and kind of a break, which tell breaks apart; None for all else."""
    if part is None or isinstance(part, Graph):
        return None
    return part.file, part.line, part.kind


def _with_eager(order: Sequence[Part], program: Sequence[Graph]) -> list[Part]:
    """The order with the eager graphs of the forward: each behind its cause, else behind its graph.

    Args:
        order: compiled graphs and breaks.
        program: all graphs, in the order in which they ran.
    """
    parts = list(order)
    latest = -1
    for graph in program:
        if not graph.eager:
            latest = next((n for n, part in enumerate(parts) if part is graph), latest)
        elif graph.kind != "backward":
            place = _place_of(graph.cause)
            known = [n for n, part in enumerate(parts) if place and _place_of(part) == place]
            latest = max([latest, *known[:1]])
            latest += 1
            parts.insert(latest, graph)
    return parts


def _frame(compile_id: str) -> int:
    """The number of the frame in a compile id such as "0/1"; -1 where it is none."""
    frame = compile_id.partition("/")[0]
    return int(frame) if frame.isdecimal() else -1


def _by_id(
    graphs: Sequence[Graph], breaks: Sequence[GraphBreak], compile_ids: Sequence[str]
) -> tuple[list[Part], int]:
    """Graphs and breaks by their frames, and how many graphs are left out.

    The graph of a frame stands before the break that ended it; only the first of each frame stays.
    """
    parts: list[tuple[tuple[int, int], Part]] = []
    frames: set[str] = set()
    left_out = 0
    for graph, compile_id in zip(graphs, compile_ids, strict=True):
        frame = compile_id.rpartition("/")[0]
        if frame in frames:
            left_out += 1
            continue
        frames.add(frame)
        parts.append(((_frame(compile_id), 0), graph))
    parts += [((_frame(each.compile_id), 1), each) for each in breaks]
    return [part for _, part in sorted(parts, key=lambda part: part[0])], left_out


def _draw_parts(scene: Scene, parts: Sequence[Part], limit: int) -> Canvas:
    """Draw graphs and breaks below each other, and what flows between them.

    What a graph begins and ends with is always to be seen.

    Args:
        scene: takes the boxes and edges.
        parts: graphs and breaks, in their order.
        limit: how many boxes the graphs have at most, ports not counted.
    """
    canvas = Canvas(scene, category_look, category_paint)
    placed: dict[int, PlacedGraph] = {}
    for number, part in enumerate(parts):
        if isinstance(part, Graph):
            placed[number] = add_graph(canvas, part, (_segment(part, number),))
    linked = _link(canvas, placed.values())
    focus = [n for each in placed.values() for n in (*_starts(each), *_ends(each))]
    if canvas.drawables:
        large = len(canvas.drawables) > limit
        wanted = canvas.with_neighbours([*focus, *linked], NEIGHBOURS)
        canvas.draw(limit, wanted, compact=large)
    _Breaks(scene, canvas, placed).draw(parts)
    return canvas


def _segment(graph: Graph, number: int) -> Segment:
    """The cluster of a graph; `number` tells graphs apart."""
    nodes = counted(len(graph.nodes), "node")
    if graph.eager:
        return Segment("eager", f"{labels.eager_label(graph)}, {nodes}", str(number))
    return Segment("graph", f"{graph.name}: {nodes}", str(number))


def _link(canvas: Canvas, graphs: Iterable[PlacedGraph]) -> list[int]:
    """Add edges from values to the inputs that take them over; returns these inputs.

    An input that is called by a graph and a node, `forward_0:fc/addmm`, is the value of that node.
    """
    made: dict[str, PlacedGraph] = {}
    linked = []
    for placed in graphs:
        for name, number in placed.numbers.items():
            graph, _, node = name.partition(":")
            maker = made.get(graph)
            if maker is None or placed.folded.nodes[name].node.kind != "placeholder":
                continue
            value = maker.folded.graph.by_name.get(node)
            tail = None if value is None else maker.drawable_of(value)
            if tail is not None:
                canvas.edges.append(Edge(tail, number))
                drawable = canvas.drawables[number]
                drawable.no_box = False
                drawable.cluster = drawable.cluster[:1]  # its module is that of its maker
                linked.append(number)
        made[placed.folded.graph.name] = placed
    return linked


def _starts(placed: PlacedGraph) -> list[int]:
    """The drawables of a graph's inputs, which it takes over from the interpreter."""
    inputs = [
        number
        for name, number in placed.numbers.items()
        if placed.folded.nodes[name].node.kind == "placeholder"
    ]
    return inputs[:MAX_ENDS] or list(placed.numbers.values())[:1]


def _ends(placed: PlacedGraph) -> list[int]:
    """The drawable that a graph ends with."""
    return list(placed.numbers.values())[-1:]


class _Breaks:
    """Adds the boxes of breaks between the graphs of a canvas that is drawn.

    A graph that follows another one, without a break or a value between them, is tied to it by the
    dotted edge of what runs before.
    """

    def __init__(self, scene: Scene, canvas: Canvas, placed: Mapping[int, PlacedGraph]):
        self.scene = scene
        self.canvas = canvas
        self.placed = placed

    def draw(self, parts: Sequence[Part]) -> None:
        before: list[str] = []
        numbers: dict[tuple[str, int, str] | None, int] = {}
        for number, part in enumerate(parts):
            if isinstance(part, Graph):
                starts = self._keys(_starts(self.placed[number]))
                if numbers and number and not isinstance(parts[number - 1], Graph):
                    self._tie(before, starts)
                elif self._is_alone(number):
                    self._tie(before, starts[:1], "order")
                before = self._keys(_ends(self.placed[number]))
            else:
                count = numbers.setdefault(_place_of(part), len(numbers) + 1)
                key = self._box(part, count)
                self._tie(before, [key])
                before = [key]

    def _keys(self, drawables: Sequence[int]) -> list[str]:
        units = dict.fromkeys(
            self.canvas.unit_of[number] for number in drawables if number in self.canvas.unit_of
        )
        return [self.canvas.keys[unit] for unit in units]

    def _is_alone(self, number: int) -> bool:
        """Whether no edge leads from an earlier graph to this one."""
        own = set(self.placed[number].numbers.values())
        first = min(own, default=0)
        return not any(edge.head in own and edge.tail < first for edge in self.canvas.edges)

    def _tie(self, tails: Sequence[str], heads: Sequence[str], kind: str = "cut") -> None:
        for tail in tails:
            for head in heads:
                self.scene.add_edge(tail, head, "", [kind], **EDGE_STYLES[kind])

    def _box(self, each: GraphBreak, number: int) -> str:
        times = f", met {each.occurrences} times" if each.occurrences > 1 else ""
        where = f"{each.file}:{each.line} in {each.function}{times}"
        reason = textwrap.wrap(each.reason, WIDTH)
        lines = [
            f"{BREAK_SIGN} graph break {number}: {each.kind}",
            where,
            f"    {each.code.strip()}",
        ]
        lines += reason[:MAX_REASON]
        if len(reason) > MAX_REASON:
            lines.append("\N{HORIZONTAL ELLIPSIS}")
        border, fill = CHANGE_PAINTS["removed"]
        tooltip = [where, each.kind, *textwrap.wrap(each.reason, TOOLTIP_WIDTH)]
        tooltip += [f"hint: {line}" for line in each.hint.splitlines()]
        return self.scene.add_box(
            (),
            (),
            labels.dot_text(tooltip, labels.MAX_TOOLTIP_LINE),
            ["break"],
            Element("break", label=f"{each.file}:{each.line} {each.kind}"),
            label=labels.dot_text(lines, MAX_WIDTH),
            color=border,
            fillcolor=fill,
            style="filled,bold",
            margin="0.15,0.1",
        )
