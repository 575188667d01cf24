"""The drawing of graph breaks: what was compiled before and behind each, and why it was cut."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Protocol

from ..graph.model import Graph
from .drawing import Drawing
from .layout.scene import Scene, plural
from .program import Part, draw_parts, place_of

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
    def program(self) -> tuple[Graph, ...]:
        """All graphs, those of what ran eagerly among them."""
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


def to_dot(capture: Compiled) -> graphviz.Digraph:
    """Draw the forward graphs of a capture in the order in which they ran, the breaks between.

    What ran eagerly in the forward stands behind the break that it is there for.

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
    return drawing_of(capture.forwards, capture.breaks, forward_ids, capture.program, prefix)


def drawing_of(
    graphs: Sequence[Graph],
    breaks: Sequence[GraphBreak],
    compile_ids: Sequence[str],
    program: Sequence[Graph] = (),
    prefix: str = "",
) -> Drawing:
    """The drawing of some graphs and breaks.

    Args:
        graphs: forward graphs, in the order in which they were compiled.
        breaks: breaks, in the order in which they were met.
        compile_ids: of each graph; where there are not as many, graphs and breaks are assumed to
            alternate, and the drawing says so.
        program: all graphs of the step, in order; the eager ones among them are drawn.
        prefix: the beginning of every `id`, for a page that holds several drawings.
    """
    title = [f"{plural(len(breaks), 'graph break')}, {plural(len(graphs), 'graph')}"]
    if eager := sum(graph.eager and graph.kind != "backward" for graph in program):
        title[0] += f", {eager} eager"
    if len(compile_ids) == len(graphs):
        order, left_out = _by_id(graphs, breaks, compile_ids)
        if left_out:
            title.append(f"not drawn: {plural(left_out, 'graph')}, compiled again")
    else:
        order = _alternating(graphs, breaks)
        title.append("which graph ended at which break is not known: they are in their order")
    scene = Scene("breaks", title, prefix)
    draw_parts(scene, _with_eager(order, program), MAX_BOXES)
    return Drawing.of(scene)


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
            place = place_of(graph.cause)
            known = [n for n, part in enumerate(parts) if place and place_of(part) == place]
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


def _alternating(graphs: Sequence[Graph], breaks: Sequence[GraphBreak]) -> list[Part]:
    order: list[Part] = []
    for number in range(max(len(graphs), len(breaks))):
        order += graphs[number : number + 1]
        order += breaks[number : number + 1]
    return order
