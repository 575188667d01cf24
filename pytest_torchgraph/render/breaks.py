"""The drawing of graph breaks: what was compiled before and behind each, and why it was cut."""

from __future__ import annotations

import textwrap
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Protocol

from ..graph.model import Graph
from .drawing import Drawing
from .layout.canvas import EDGE_STYLES, Canvas
from .layout.placed_graph import PlacedGraph, add_graph
from .layout.scene import Element, Scene, Segment
from .look import labels
from .look.change_marks import BREAK_SIGN, CHANGE_PAINTS
from .whole import category_look, category_paint

if TYPE_CHECKING:
    import graphviz

    from ..graph.graph_break import GraphBreak


class Compiled(Protocol):
    """The parts of a capture through torch.compile that are drawn; see `Capture` for each."""

    @property
    def forwards(self) -> tuple[Graph, ...]:
        """The forward and inference graphs."""
        ...

    @property
    def breaks(self) -> Sequence[GraphBreak]:
        """The graph breaks."""
        ...

    @property
    def executions(self) -> Mapping[str, int]:
        """How often each compiled graph ran, by compile id."""
        ...


MAX_BOXES = 120
"""How many boxes the drawing has at most, ports and breaks not counted."""
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


def to_dot(capture: Compiled) -> graphviz.Digraph:
    """Draw the forward graphs of a capture in the order in which they ran, the breaks between.

    Each break has the user's line and the reason. What compiled code returned to the interpreter,
    and what it took over behind the break, is always to be seen. Of a graph that was compiled
    several times the first is drawn.

    Args:
        capture: a capture with breaks; without any, its graphs alone are drawn.
    """
    return drawing(capture).digraph


def drawing(capture: Compiled, prefix: str = "") -> Drawing:
    """The same as `to_dot`, with the meaning of each element of the SVG.

    Args:
        capture: as in `to_dot`.
        prefix: the beginning of every `id`, for a page that holds several drawings.
    """
    forward_ids = [
        compile_id
        for compile_id in capture.executions
        if " " not in compile_id and not compile_id.startswith("!") and compile_id.count("/") == 1
    ]
    return drawing_of(capture.forwards, capture.breaks, forward_ids, prefix)


def drawing_of(
    graphs: Sequence[Graph],
    breaks: Sequence[GraphBreak],
    compile_ids: Sequence[str],
    prefix: str = "",
) -> Drawing:
    """The drawing of some graphs and breaks.

    Args:
        graphs: forward graphs, in the order in which they were compiled.
        breaks: breaks, in the order in which they were met.
        compile_ids: of each graph; where there are not as many, graphs and breaks are assumed to
            alternate, and the drawing says so.
        prefix: the beginning of every `id`, for a page that holds several drawings.
    """
    count = len(breaks)
    title = [f"{count} graph {'break' if count == 1 else 'breaks'}, {_graphs(len(graphs))}"]
    if len(compile_ids) == len(graphs):
        order, left_out = _by_id(graphs, breaks, compile_ids)
        if left_out:
            title.append(f"not drawn: {_graphs(left_out)}, compiled again")
    else:
        order = _alternating(graphs, breaks)
        title.append("which graph ended at which break is not known: they are in their order")
    scene = Scene("breaks", title, prefix)
    canvas = Canvas(scene, category_look, category_paint)
    placed: dict[int, PlacedGraph] = {}
    focus: list[int] = []
    for number, part in enumerate(order):
        if isinstance(part, Graph):
            label = f"{part.name}: {len(part.nodes)} nodes"
            placed[number] = add_graph(canvas, part, (Segment("graph", label, str(number)),))
            focus += [*_starts(placed[number]), *_ends(placed[number])]
    if canvas.drawables:
        large = len(canvas.drawables) > MAX_BOXES
        canvas.draw(MAX_BOXES, canvas.with_neighbours(focus, NEIGHBOURS), compact=large)
    _Breaks(scene, canvas, placed).draw(order)
    return Drawing.of(scene)


def _graphs(count: int) -> str:
    return f"{count} {'graph' if count == 1 else 'graphs'}"


def _frame(compile_id: str) -> int:
    """The number of the frame in a compile id such as "0/1"; -1 where it is none."""
    frame = compile_id.partition("/")[0]
    return int(frame) if frame.isdigit() else -1


def _by_id(
    graphs: Sequence[Graph], breaks: Sequence[GraphBreak], compile_ids: Sequence[str]
) -> tuple[list[Graph | GraphBreak], int]:
    """Graphs and breaks by their frames, and how many graphs are left out.

    The graph of a frame stands before the break that ended it; only the first of each frame stays.
    """
    parts: list[tuple[tuple[int, int], Graph | GraphBreak]] = []
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


def _alternating(graphs: Sequence[Graph], breaks: Sequence[GraphBreak]) -> list[Graph | GraphBreak]:
    order: list[Graph | GraphBreak] = []
    for number in range(max(len(graphs), len(breaks))):
        order += graphs[number : number + 1]
        order += breaks[number : number + 1]
    return order


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
    """Adds the boxes of breaks between the graphs of a canvas that is drawn."""

    def __init__(self, scene: Scene, canvas: Canvas, placed: Mapping[int, PlacedGraph]):
        self.scene = scene
        self.canvas = canvas
        self.placed = placed

    def draw(self, order: Sequence[Graph | GraphBreak]) -> None:
        before: list[str] = []
        count = 0
        for number, part in enumerate(order):
            if isinstance(part, Graph):
                if count and number and not isinstance(order[number - 1], Graph):
                    self._tie(before, self._keys(_starts(self.placed[number])))
                before = self._keys(_ends(self.placed[number]))
            else:
                count += 1
                key = self._box(part, count)
                self._tie(before, [key])
                before = [key]

    def _keys(self, drawables: Sequence[int]) -> list[str]:
        units = dict.fromkeys(self.canvas.unit_of[number] for number in drawables)
        return [self.canvas.keys[unit] for unit in units]

    def _tie(self, tails: Sequence[str], heads: Sequence[str]) -> None:
        for tail in tails:
            for head in heads:
                self.scene.add_edge(tail, head, "", ["cut"], **EDGE_STYLES["cut"])

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
