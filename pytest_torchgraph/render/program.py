"""Drawings of a step and of graph breaks: graphs in program order, with breaks between them.

An eager graph has a frame of its own style. The graph break before it shows why its ops are in no
compiled graph. A value from another graph is drawn as an edge from its producer.
"""

from __future__ import annotations

import re
import textwrap
from collections.abc import Iterable, Iterator, Mapping, Sequence

from ..graph.events import GraphBreak
from ..graph.model import Graph, Node
from ..words import counted
from .colours import Heat, HeatFigure
from .dot import Drawing, draw
from .labels import BREAK_SIGN, ELLIPSIS, same
from .scene import Box, DrawnGraph, Edge, Element, Scene, graph_cluster

Part = Graph | GraphBreak
"""Part of a step: a graph, or the break between two graphs."""
Place = tuple[str, int, str]
"""Identity of a break: file, line and kind."""

MAX_BOXES = 240
"""Maximum number of boxes in the drawing of a step, excluding the legend."""
MAX_BOXES_OF_BREAKS = 120
"""Maximum number of boxes in a drawing of graph breaks, which shows only the forward."""
_FORWARD_ID = re.compile(r"[^ !/][^ /]*/[^ /]*")
"""Compile id of a forward graph, for example "0/1".

The id of a backward graph is "0/1 backward"; an unknown id begins with "!".
"""
WIDTH = 72
"""Line width, in characters, of the reason in a break's box."""
TOOLTIP_WIDTH = 100
"""Line width, in characters, of the reason in a break's tooltip."""
MAX_REASON = 5
"""Maximum lines of the reason in a break's box. The tooltip has the full reason."""
MAX_ENDS = 4
"""Maximum number of inputs of a graph that are connected to the break before the graph."""
NEIGHBOURS = 2
"""Maximum number of operands, and of users, shown around the ends of a graph if there is room."""


def drawing(graphs: Sequence[Graph], *, heat: HeatFigure | None = None) -> Drawing:
    """Draw the graphs of a capture's `program` as one.

    Args:
        graphs: graphs in program order.
        heat: figure to show as colours in place of op categories, multiplied by the run count of
            the graph.

    Raises:
        CaptureError, ValueError: see `heat` in `Graph.to_dot`.
    """
    eager = sum(graph.eager for graph in graphs)
    title = f"{counted(len(graphs), 'graph')}: {len(graphs) - eager} compiled"
    heat_values = None if heat is None else Heat.of(graphs, heat, times_run=True)
    scene = Scene("program", [f"{title}, {eager} eager" if eager else title], heat_values)
    return _draw_parts(scene, _with_causes(graphs), MAX_BOXES)


def drawing_of_breaks(
    graphs: Sequence[Graph],
    breaks: Sequence[GraphBreak],
    executions: Iterable[str],
    program: Sequence[Graph] = (),
) -> Drawing:
    """Draw the forward graphs of a capture in program order, with the breaks between them.

    Each break shows the user's source line and the reason. The return of the graph before a break
    and the first inputs of the graph after it are always shown. Only the first compilation of a
    recompiled graph is drawn. Eager forward ops follow their break.

    Args:
        graphs: forward graphs, in compilation order.
        breaks: graph breaks, in program order.
        executions: compile ids of the graphs that ran. If the number of forward ids differs from
            the number of graphs, graphs and breaks are assumed to alternate, and the title says so.
        program: all graphs of the step, in program order. Only its eager graphs are drawn.
    """
    title = [f"{counted(len(breaks), 'graph break')}, {counted(len(graphs), 'graph')}"]
    if eager := sum(graph.eager and graph.kind != "backward" for graph in program):
        title[0] += f", {eager} eager"
    # Graphs have no compile ids. As many ids as graphs are theirs, in the same order.
    compile_ids = [compile_id for compile_id in executions if _FORWARD_ID.fullmatch(compile_id)]
    if len(compile_ids) == len(graphs):
        frames = [*map(_frame_number, compile_ids)]
        cuts = [_frame_number(graph_break.compile_id) for graph_break in breaks]
    else:
        frames, cuts = [*range(len(graphs))], [*range(len(breaks))]
        title.append(
            "graphs and graph breaks are drawn alternately: it is unknown which break ended which "
            "graph"
        )
    # The graph of a frame precedes the break that ended the frame. Sorting keeps the order of
    # equal keys, so the eager graphs, which come last, follow their break.
    # Reversed, so that the first compilation of a frame is the last one entered, and stays.
    first = dict(zip(reversed(frames), reversed(graphs), strict=True))
    parts: list[tuple[tuple[int, int], Part]] = [((frame, 0), g) for frame, g in first.items()]
    parts += [((frame, 1), part) for frame, part in zip(cuts, breaks, strict=True)]
    place_of = {id(graph): key for key, graph in parts}
    cut_of = {_place_of(part): key for key, part in reversed(parts)}
    position = -1, 0
    # An eager graph follows the last compiled graph that ran before it, and the break that is its
    # cause, whichever is later.
    for graph in program:
        position = place_of.get(id(graph), position)
        if graph.eager and graph.kind != "backward":
            if graph.cause is not None:
                position = max(position, cut_of.get(_place_of(graph.cause), position))
            parts.append((position, graph))
    if left_out := len(graphs) - len(first):
        title.append(f"not drawn: {counted(left_out, 'graph')} from recompiles")
    ordered = [part for _, part in sorted(parts, key=lambda part: part[0])]
    return _draw_parts(Scene("breaks", title), ordered, MAX_BOXES_OF_BREAKS)


def _with_causes(graphs: Iterable[Graph]) -> list[Part]:
    """Insert the cause of each eager graph, a graph break, before the graph.

    Consecutive eager graphs with the same cause share one break.
    """
    parts: list[Part] = []
    latest_place = None
    for graph in graphs:
        if graph.cause is not None and _place_of(graph.cause) != latest_place:
            parts.append(graph.cause)
        latest_place = _place_of(graph.cause)
        parts.append(graph)
    return parts


def _place_of(part: Part | None) -> Place | None:
    """Return the identity of a break, or `None` for anything else."""
    if part is None or isinstance(part, Graph):
        return None
    return part.file, part.line, part.kind


def _frame_number(compile_id: str) -> int:
    """Return the frame number of a compile id like "0/1", or -1 if the id has none."""
    frame = compile_id.partition("/")[0]
    return int(frame) if frame.isdecimal() else -1


def _draw_parts(scene: Scene, parts: Sequence[Part], limit: int) -> Drawing:
    """Draw graphs and breaks from top to bottom, and the values that flow between them.

    The first and last nodes of each graph are always shown. A dotted order edge connects two
    consecutive graphs without a break or a value between them.

    Args:
        scene: receives the boxes and edges.
        parts: graphs and breaks, in program order.
        limit: maximum number of boxes of the graphs.
    """
    drawn_by_name: dict[str, DrawnGraph] = {}
    breaks: dict[Place | None, int] = {}
    shown: list[Box] = []
    linked: list[Box] = []
    last: list[Box] = []
    for number, part in enumerate(parts):
        if isinstance(part, GraphBreak):
            box = _break_box(part, breaks.setdefault(_place_of(part), len(breaks) + 1))
            scene.boxes.append(box)
            scene.edges += [Edge(tail, box, kind="cut") for tail in last]
            last = [box]
            shown.append(box)
            continue
        drawn = scene.add_graph(part, graph_cluster(part, number))
        boxes = [*drawn.boxes.values()]
        links = list(_links(drawn, drawn_by_name))
        first = [box for box in boxes if box.node.kind == "placeholder"][:MAX_ENDS] or boxes[:1]
        # Only the box of a break is fixed: from a break, the edges to the next graph are cut, too.
        kind = "cut" if last and last[0].fixed is not None else "order"
        if kind == "cut" or not links:
            scene.edges += [Edge(tail, head, kind=kind) for tail in last for head in first]
        scene.edges += links
        linked += [link.head for link in links]
        shown += [*first, *boxes[-1:]]
        last = boxes[-1:]
        drawn_by_name[part.name] = drawn
    # By importance: breaks and ends of graphs, then values between graphs, then their neighbours.
    focus = scene.around([*shown, *linked], 1, NEIGHBOURS)
    return draw(scene, limit, focus, compact=len(scene.boxes) > limit)


def _links(drawn: DrawnGraph, earlier: Mapping[str, DrawnGraph]) -> Iterator[Edge]:
    """Yield edges from producers in other graphs to graph inputs.

    An input named `forward_0:fc/addmm` is the value of node `fc/addmm` in graph `forward_0`.
    """
    for name, box in drawn.boxes.items():
        graph, _, node = name.partition(":")
        if graph not in earlier or box.node.kind != "placeholder":
            continue
        value = earlier[graph].graph.by_name.get(node)
        tail = None if value is None else earlier[graph].shown_in(value)
        if tail is not None:
            # Keep the graph's cluster only: the input's module is that of the producer.
            box.cluster = box.cluster[:1]
            yield Edge(tail, box)


def _break_box(graph_break: GraphBreak, number: int) -> Box:
    """Return the box of a graph break, whose label is fixed because it has no node."""
    times = f", {graph_break.occurrences} times" if graph_break.occurrences > 1 else ""
    location = f"{graph_break.file}:{graph_break.line} in {graph_break.function}{times}"
    reason = textwrap.wrap(graph_break.reason, WIDTH)
    head = f"{BREAK_SIGN} graph break {number}: {graph_break.kind}"
    lines = [head, location, f"    {graph_break.code.strip()}", *reason[:MAX_REASON]]
    lines += [ELLIPSIS] if len(reason) > MAX_REASON else []
    tooltip = [location, graph_break.kind, *textwrap.wrap(graph_break.reason, TOOLTIP_WIDTH)]
    tooltip += [f"hint: {line}" for line in graph_break.hint.splitlines()]
    element = Element("break", label=f"{graph_break.file}:{graph_break.line} {graph_break.kind}")
    # A stand-in, because a box has a node: an output is no op, so no legend or count has it.
    return Box("", Node("", "output", "output"), fixed=([*map(same, lines)], tooltip, element))
