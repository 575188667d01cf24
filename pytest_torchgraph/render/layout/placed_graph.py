"""Placement of a graph on a canvas, with bodies of higher-order ops and notes on collectives."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from ...errors import CaptureError
from ...graph.collectives import Collective, awaited, collectives_of, format_bytes
from ...graph.higher_order import body_names
from ...graph.model import Graph, Node
from ...graph.module_paths import common_prefix
from ...words import counted, grouped
from ..look import op_label
from .canvas import Canvas
from .drawables import Drawable, Edge, FoldedGraph, FoldedNode
from .scene import ClusterPath, Segment, module_cluster

NOT_OVERLAPPED = "not overlapped"
"""Note on the wait for a collective that overlaps with no computation."""


def collective_lines(folded: FoldedGraph) -> Mapping[str, list[str]]:
    """Return lines for the boxes of collectives and of their first waits, keyed by node name.

    Empty if a graph of torch functions does not record its collectives.
    """
    collectives = grouped(
        (collective.node.name, collective) for collective in _top_level_collectives(folded.graph)
    )
    lines = {name: list(_message_lines(parts)) for name, parts in collectives.items()}
    # Inductor orders collectives later, during code generation: overlap is unknown here.
    if folded.graph.level == "post_grad":
        return lines
    waited: set[str] = set()
    for name, wait in folded.nodes.items():
        for start in awaited(folded.graph, wait.node):
            # The first wait ends the collective. A later wait for the same tensor returns at once.
            if start in collectives and start not in waited:
                waited.add(start)
                lines.setdefault(name, []).append(_overlap(collectives[start][0]))
    return lines


def _top_level_collectives(graph: Graph) -> Iterator[Collective]:
    """Yield the collectives of a graph, excluding its bodies."""
    try:
        collectives = collectives_of((graph,))
    except CaptureError:  # graphs of torch functions do not record their collectives
        return
    for collective in collectives:
        # Compared by identity, because a node of a body can have the name of a node of the graph.
        if graph.by_name.get(collective.node.name) is collective.node:
            yield collective


def _message_lines(parts: list[Collective]) -> Iterator[str]:
    for collective in parts:
        kind = f"{collective.kind} " if len(parts) > 1 else ""
        if collective.group:
            yield f"{kind}over {collective.group}, {format_bytes(collective)} B"


def _overlap(collective: Collective) -> str:
    overlap = counted(len(collective.overlap), "op")
    return NOT_OVERLAPPED if collective.exposed else f"overlaps {overlap}"


MAX_RETURNED = 6
"""Maximum number of results with edges to the return box.
If a graph returns more results, they are marked at their producers instead.
"""
SAVED = "saved for backward"
RETURNED = "returned"


@dataclass(slots=True)
class PlacedGraph:
    """A graph on a canvas.

    Attributes:
        drawable_numbers: drawable number of each drawn node, keyed by node name.
        folded: the graph, reduced to the drawn nodes.
        bodies: its subgraphs, on the same canvas.
    """

    drawable_numbers: dict[str, int]
    folded: FoldedGraph
    bodies: list[PlacedGraph]

    def drawable_of(self, node: Node) -> int | None:
        """Return the drawable that shows a node of the graph or of a body, or `None`."""
        for placed in self.walk():
            if placed.folded.graph.by_name.get(node.name) is node:
                shown_in = placed.folded.nodes.get(node.name) or placed.folded.folded_into(node)
                return None if shown_in is None else placed.drawable_numbers.get(shown_in.node.name)
        return None

    def walk(self) -> list[PlacedGraph]:
        """Return this graph and all nested bodies, outermost first."""
        graphs = [self]
        for graph in graphs:
            graphs += graph.bodies
        return graphs


def add_graph(
    canvas: Canvas, graph: Graph, base: ClusterPath = (), inside: str = ""
) -> PlacedGraph:
    """Put a graph on a canvas: its drawn nodes, and the edges between them.

    Args:
        canvas: receives the drawables and edges.
        graph: graph to draw.
        base: enclosing cluster.
        inside: module that `base` already represents.
    """
    canvas.scene.classes.update(graph.classes)
    return _GraphPlacer(canvas, graph, base, inside).place()


class _GraphPlacer:
    def __init__(self, canvas: Canvas, graph: Graph, base: ClusterPath, inside: str):
        self.canvas = canvas
        self.graph = graph
        self.base = base
        self.inside = inside
        self.folded = FoldedGraph(graph)
        self.users = self.folded.users()
        self.drawable_numbers: dict[str, int] = {}

    def place(self) -> PlacedGraph:
        self._add_drawables()
        self._add_edges()
        return PlacedGraph(self.drawable_numbers, self.folded, self._add_bodies())

    def _add_drawables(self) -> None:
        returned_nodes = {value.producer.name for _, value in self.folded.returned}
        has_many_results = len(returned_nodes) > MAX_RETURNED
        saved_indices = grouped(
            (value.producer.name, "".join(f"[{i}]" for i in value.path))
            for value in self.folded.saved
        )
        returned_paths = grouped(
            (value.producer.name, path)
            for path, value in (self.folded.returned if has_many_results else ())
        )
        lines_of_collectives = collective_lines(self.folded)
        for name, folded_node in self.folded.nodes.items():
            if folded_node.node.kind == "output" and has_many_results:
                continue
            drawable = Drawable(self.graph.name, folded_node, self._cluster(folded_node.node))
            # A value saved by the forward has no box of its own, but a port at each user (see
            # `Canvas.draw`).
            drawable.no_box = folded_node.node.op == "saved" and bool(self.users[name])
            drawable.lines += lines_of_collectives.get(name, ())
            if NOT_OVERLAPPED in drawable.lines:
                drawable.notes += (NOT_OVERLAPPED,)
            if name in saved_indices:
                indices = ", ".join(filter(None, saved_indices[name]))
                drawable.lines.append(f"{SAVED} {indices}".strip())
                drawable.notes += (SAVED,)
            if name in returned_paths:
                drawable.lines.append(f"return{', '.join(returned_paths[name])}")
                drawable.notes += (RETURNED,)
            self.drawable_numbers[name] = self.canvas.add(drawable)

    def _add_edges(self) -> None:
        for name, head in self.drawable_numbers.items():
            folded = self.folded.nodes[name]
            for value in folded.operands:
                tail = self.drawable_numbers[value.producer.name]
                self.canvas.edges.append(Edge(tail, head, value.path, value.edge_label))
            for node in folded.after:
                self.canvas.edges.append(Edge(self.drawable_numbers[node.name], head, kind="order"))

    def _add_bodies(self) -> list[PlacedGraph]:
        callers: dict[str, FoldedNode] = {}
        for folded in self.folded.nodes.values():
            for name in body_names(folded.node):
                callers.setdefault(name, folded)
        bodies = []
        for number, body in enumerate(self.graph.subgraphs):
            caller = callers.get(body.name)
            cluster = self.base if caller is None else self._cluster(caller.node)
            caller_op = "" if caller is None else f" of {op_label(caller.node.op)}"
            segment = Segment("body", f"@{body.name}{caller_op}", str(number))
            module = "" if caller is None else caller.node.module
            placed = add_graph(self.canvas, body, (*cluster, segment), module)
            bodies.append(placed)
            if caller is not None and placed.drawable_numbers:
                tail = self.drawable_numbers[caller.node.name]
                head = next(iter(placed.drawable_numbers.values()))
                self.canvas.edges.append(Edge(tail, head, kind="body"))
        return bodies

    # -- clusters ----------------------------------------------------------------------------------

    def _cluster(self, node: Node) -> ClusterPath:
        if self._is_gradient_sum(node):
            return self._cluster_of_neighbours(node)
        return module_cluster(node.module, self.base, self.inside)

    def _is_gradient_sum(self, node: Node) -> bool:
        """Return True if the node may be autograd's sum of gradients, which has no module."""
        return (
            self.graph.kind == "backward"
            and node.is_call
            and (not node.module or node.op == "aten.add.Tensor")
        )

    def _cluster_of_neighbours(self, node: Node) -> ClusterPath:
        """Return the innermost cluster that contains the modules of a node's neighbours."""
        operands = self.folded.nodes[node.name].operands
        neighbours = [value.producer for value in operands if value.producer.op != "saved"]
        neighbours += [user.node for user in self.users[node.name]]
        return common_prefix(
            [
                module_cluster(neighbour.module, self.base, self.inside)
                for neighbour in neighbours
                if neighbour.module and not self._is_gradient_sum(neighbour)
            ]
            or [self.base]
        )
