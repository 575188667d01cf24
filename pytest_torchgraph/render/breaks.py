"""The drawing of graph breaks: what was compiled before and behind each, and why it was cut."""

from __future__ import annotations

import textwrap
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Protocol

from ..graph.model import Graph
from .layout.canvas import LINKS, Canvas
from .layout.elements import Added, add_graph
from .layout.scene import Element, Scene, Segment
from .look import labels
from .look.change_marks import PAINT
from .whole import family_paint, look, with_neighbours

if TYPE_CHECKING:
    import graphviz

    from ..watching.breaks import GraphBreak
    from .picture import Picture


class Compiled(Protocol):
    """What is drawn of a capture through torch.compile; see `Capture` for each."""

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
WIDTH = 72
"""Characters in a line of a break's box."""
MAX_REASON = 5
"""Lines of its reason; the tooltip has all of it."""
MAX_ENDS = 4
"""How many of the inputs behind a break are tied to it."""
SCISSORS = "\N{BLACK SCISSORS}"


def to_dot(capture: Compiled) -> graphviz.Digraph:
    """Draw the forward graphs of a capture in the order in which they ran, the breaks between.

    Each break has the user's line and the reason. What compiled code returned to the interpreter,
    and what it took over behind the break, is always to be seen. Of a graph that was compiled
    several times the first is drawn.

    Args:
        capture: a capture with breaks; without any, its graphs alone are drawn.
    """
    return picture(capture).digraph


def picture(capture: Compiled, prefix: str = "") -> Picture:
    """The same as `to_dot`, with what each element of the SVG stands for."""
    ids = [
        each
        for each in capture.executions
        if " " not in each and not each.startswith("!") and each.count("/") == 1
    ]
    return picture_of(capture.forwards, capture.breaks, ids, prefix)


def picture_of(
    graphs: Sequence[Graph],
    breaks: Sequence[GraphBreak],
    compile_ids: Sequence[str],
    prefix: str = "",
) -> Picture:
    """The picture of some graphs and breaks.

    Args:
        graphs: forward graphs, in the order in which they were compiled.
        breaks: breaks, in the order in which they were met.
        compile_ids: of each graph; where there are not as many, the order of graphs and breaks is
            taken for granted, and the picture says so.
        prefix: what every `id` in the SVG begins with.
    """
    from .picture import Picture

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
    canvas = Canvas(scene, look, family_paint)
    added: dict[int, Added] = {}
    focus: list[int] = []
    for number, part in enumerate(order):
        if isinstance(part, Graph):
            label = f"{part.name}: {len(part.nodes)} nodes"
            added[number] = add_graph(canvas, part, (Segment("graph", label, str(number)),))
            focus += [*_starts(added[number]), *_ends(added[number])]
    if canvas.pieces:
        large = len(canvas.pieces) > MAX_BOXES
        canvas.draw(MAX_BOXES, with_neighbours(canvas, focus, 2), compact=large)
    _Breaks(scene, canvas, added).draw(order)
    return Picture.of(scene)


def _graphs(count: int) -> str:
    return f"{count} {'graph' if count == 1 else 'graphs'}"


def _frame(compile_id: str) -> tuple[int, ...]:
    return tuple(int(part) if part.isdigit() else -1 for part in compile_id.split("/"))


def _by_id(
    graphs: Sequence[Graph], breaks: Sequence[GraphBreak], compile_ids: Sequence[str]
) -> tuple[list[Graph | GraphBreak], int]:
    parts: list[tuple[tuple[int, ...], int, Graph | GraphBreak]] = []
    frames: set[str] = set()
    left_out = 0
    for graph, each in zip(graphs, compile_ids, strict=True):
        frame = each.rpartition("/")[0]
        if frame in frames:
            left_out += 1
            continue
        frames.add(frame)
        parts.append((_frame(each)[:1], 0, graph))
    parts += [(_frame(each.compile_id)[:1], 1, each) for each in breaks]
    return [part for *_, part in sorted(parts, key=lambda part: part[:2])], left_out


def _alternating(graphs: Sequence[Graph], breaks: Sequence[GraphBreak]) -> list[Graph | GraphBreak]:
    order: list[Graph | GraphBreak] = []
    for number in range(max(len(graphs), len(breaks))):
        order += graphs[number : number + 1]
        order += breaks[number : number + 1]
    return order


def _starts(added: Added) -> list[int]:
    """The pieces that a graph begins with: what it takes over from the interpreter."""
    found = [
        number
        for name, number in added.numbers.items()
        if added.folded.boxes[name].node.kind == "placeholder"
    ]
    return found[:MAX_ENDS] or list(added.numbers.values())[:1]


def _ends(added: Added) -> list[int]:
    """The piece that a graph ends with."""
    return list(added.numbers.values())[-1:]


class _Breaks:
    """Puts the breaks between the graphs of a finished canvas."""

    def __init__(self, scene: Scene, canvas: Canvas, added: Mapping[int, Added]):
        self.scene = scene
        self.canvas = canvas
        self.added = added

    def draw(self, order: Sequence[Graph | GraphBreak]) -> None:
        before: list[str] = []
        count = 0
        for number, part in enumerate(order):
            if isinstance(part, Graph):
                if count and number and not isinstance(order[number - 1], Graph):
                    self._tie(before, self._keys(_starts(self.added[number])))
                before = self._keys(_ends(self.added[number]))
            else:
                count += 1
                key = self._box(part, count)
                self._tie(before, [key])
                before = [key]

    def _keys(self, pieces: Sequence[int]) -> list[str]:
        units = dict.fromkeys(self.canvas.unit_of[number] for number in pieces)
        return [self.canvas.keys[unit] for unit in units]

    def _tie(self, tails: Sequence[str], heads: Sequence[str]) -> None:
        for tail in tails:
            for head in heads:
                self.scene.add_link(tail, head, "", ["cut"], **LINKS["cut"])

    def _box(self, each: GraphBreak, number: int) -> str:
        times = f", met {each.occurrences} times" if each.occurrences > 1 else ""
        place = f"{each.file}:{each.line} in {each.function}{times}"
        reason = textwrap.wrap(each.reason, WIDTH)
        lines = [f"{SCISSORS} graph break {number}: {each.kind}", place, f"    {each.code.strip()}"]
        lines += reason[:MAX_REASON]
        if len(reason) > MAX_REASON:
            lines.append("\N{HORIZONTAL ELLIPSIS}")
        border, fill = PAINT["removed"]
        tooltip = [place, each.kind, *textwrap.wrap(each.reason, 100)]
        tooltip += [f"hint: {line}" for line in each.hint.splitlines()]
        return self.scene.add_box(
            (),
            (),
            labels.dot_text(tooltip, labels.MAX_TOOLTIP_LINE),
            ["break"],
            Element("break", label=f"{each.file}:{each.line} {each.kind}"),
            label=labels.dot_text(lines, WIDTH + 8),
            color=border,
            fillcolor=fill,
            style="filled,bold",
            margin="0.15,0.1",
        )
