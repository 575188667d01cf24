"""Puts a graph on a canvas, with the bodies of its higher-order ops and the words about
collectives.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from ...errors import CaptureError
from ...graph.collectives import Collective, awaited, collectives_of, format_bytes
from ...graph.model import Graph, Node, SubgraphRef
from ...words import counted
from ..look import labels
from .canvas import Canvas
from .drawables import Drawable, Edge, FoldedGraph, FoldedNode
from .scene import ClusterPath, Segment, common_cluster, module_cluster

NOT_OVERLAPPED = "not overlapped"
"""The note of a wait for a collective beside which nothing computes."""


def collective_lines(folded: FoldedGraph) -> Mapping[str, list[str]]:
    """Lines for the boxes of collectives and of the first wait for each, by names of nodes.

    There are none where a graph of torch functions does not say what it sends. What overlaps is not
    said of a graph that inductor lowers: it orders collectives later, when it writes code.
    """
    own: dict[str, list[Collective]] = {}
    for each in _own(folded.graph):
        own.setdefault(each.node.name, []).append(each)
    lines = {name: list(_sent(parts)) for name, parts in own.items()}
    if folded.graph.level == "post_grad":
        return lines
    waited: set[str] = set()
    for name, wait in folded.nodes.items():
        for start in awaited(folded.graph, wait.node):
            if start in own and start not in waited:
                waited.add(start)
                lines.setdefault(name, []).append(_overlap(own[start][0]))
    return lines


def _own(graph: Graph) -> Iterator[Collective]:
    """The collectives of a graph without those of its bodies."""
    try:
        found = collectives_of((graph,))
    except CaptureError:
        return
    yield from (each for each in found if graph.by_name.get(each.node.name) is each.node)


def _sent(parts: list[Collective]) -> Iterator[str]:
    for each in parts:
        kind = f"{each.kind} " if len(parts) > 1 else ""
        if each.group:
            yield f"{kind}over {each.group}, {format_bytes(each)} B"


def _overlap(each: Collective) -> str:
    return NOT_OVERLAPPED if each.exposed else f"overlaps {counted(len(each.overlap), 'op')}"


MAX_RETURNED = 6
"""With more results than this, each is marked at its producer instead of leading to one box."""
SAVED = "saved for backward"
RETURNED = "returned"


@dataclass(slots=True)
class PlacedGraph:
    """A graph that was put on a canvas.

    Attributes:
        numbers: the number of the drawable of each drawn node, by the node's name.
        folded: the graph, reduced to the nodes that are drawn.
        bodies: its subgraphs, put on the same canvas.
    """

    numbers: dict[str, int]
    folded: FoldedGraph
    bodies: list[PlacedGraph]

    def drawable_of(self, node: Node) -> int | None:
        """The drawable that shows a node of the graph or of a body, None where none does."""
        for placed in self.walk():
            if placed.folded.graph.by_name.get(node.name) is node:
                shown_in = placed.folded.nodes.get(node.name) or placed.folded.folded_into(node)
                return None if shown_in is None else placed.numbers.get(shown_in.node.name)
        return None

    def walk(self) -> list[PlacedGraph]:
        """This graph and all bodies in it, the outermost first."""
        graphs = [self]
        for graph in graphs:
            graphs += graph.bodies
        return graphs


def add_graph(
    canvas: Canvas, graph: Graph, base: ClusterPath = (), inside: str = ""
) -> PlacedGraph:
    """Put a graph on a canvas: its drawn nodes, and the edges between them.

    Args:
        canvas: takes the drawables and edges.
        graph: what to draw.
        base: the cluster to put it in.
        inside: the module that `base` stands for already.
    """
    canvas.scene.classes.update(graph.classes)
    return _GraphPlacer(canvas, graph, base, inside).run()


class _GraphPlacer:
    def __init__(self, canvas: Canvas, graph: Graph, base: ClusterPath, inside: str):
        self.canvas = canvas
        self.graph = graph
        self.base = base
        self.inside = inside
        self.folded = FoldedGraph(graph)
        self.users = self.folded.users()
        self.numbers: dict[str, int] = {}

    def run(self) -> PlacedGraph:
        self._drawables()
        self._edges()
        return PlacedGraph(self.numbers, self.folded, self._bodies())

    def _drawables(self) -> None:
        many = len({value.producer.name for _, value in self.folded.returned}) > MAX_RETURNED
        saved: dict[str, list[str]] = {}
        for value in self.folded.saved:
            index = "".join(f"[{i}]" for i in value.path)
            saved.setdefault(value.producer.name, []).append(index)
        returned: dict[str, list[str]] = {}
        for path, value in self.folded.returned if many else ():
            returned.setdefault(value.producer.name, []).append(path)
        sent = collective_lines(self.folded)
        for name, folded in self.folded.nodes.items():
            if folded.node.kind == "output" and many:
                continue
            drawable = Drawable(self.graph.name, folded, self._cluster(folded.node))
            drawable.no_box = folded.node.op == "saved" and bool(self.users[name])
            drawable.lines += sent.get(name, ())
            if NOT_OVERLAPPED in drawable.lines:
                drawable.notes += (NOT_OVERLAPPED,)
            if name in saved:
                indices = ", ".join(filter(None, saved[name]))
                drawable.lines.append(f"{SAVED} {indices}".strip())
                drawable.notes += (SAVED,)
            if name in returned:
                drawable.lines.append(f"return{', '.join(returned[name])}")
                drawable.notes += (RETURNED,)
            self.numbers[name] = self.canvas.add(drawable)

    def _edges(self) -> None:
        for name, head in self.numbers.items():
            folded = self.folded.nodes[name]
            for value in folded.operands:
                tail = self.numbers[value.producer.name]
                self.canvas.edges.append(Edge(tail, head, value.path, value.edge_label))
            for node in folded.after:
                self.canvas.edges.append(Edge(self.numbers[node.name], head, kind="order"))

    def _bodies(self) -> list[PlacedGraph]:
        callers: dict[str, FoldedNode] = {}
        for folded in self.folded.nodes.values():
            for ref in subgraph_refs((folded.node.args, folded.node.kwargs)):
                callers.setdefault(ref.name, folded)
        bodies = []
        for number, body in enumerate(self.graph.subgraphs):
            caller = callers.get(body.name)
            cluster = self.base if caller is None else self._cluster(caller.node)
            label = f"@{body.name}"
            if caller is not None:
                label += f" of {labels.op_label(caller.node.op)}"
            segment = Segment("body", label, str(number))
            module = "" if caller is None else caller.node.module
            placed = add_graph(self.canvas, body, (*cluster, segment), module)
            bodies.append(placed)
            if caller is not None and placed.numbers:
                tail = self.numbers[caller.node.name]
                head = next(iter(placed.numbers.values()))
                self.canvas.edges.append(Edge(tail, head, kind="body"))
        return bodies

    # -- clusters ----------------------------------------------------------------------------------

    def _cluster(self, node: Node) -> ClusterPath:
        if self._is_gradient_sum(node):
            return self._cluster_of_neighbours(node)
        return module_cluster(node.module, self.base, self.inside)

    def _is_gradient_sum(self, node: Node) -> bool:
        """Whether autograd may sum up gradients here: such a node belongs to no module."""
        return (
            self.graph.kind == "backward"
            and node.is_call
            and (not node.module or node.op == "aten.add.Tensor")
        )

    def _cluster_of_neighbours(self, node: Node) -> ClusterPath:
        """The innermost cluster around the modules of a node's operands and users."""
        operands = self.folded.nodes[node.name].operands
        near = [value.producer for value in operands if value.producer.op != "saved"]
        near += [user.node for user in self.users[node.name]]
        return common_cluster(
            [
                module_cluster(other.module, self.base, self.inside)
                for other in near
                if other.module and not self._is_gradient_sum(other)
            ]
            or [self.base]
        )


def subgraph_refs(value: object) -> list[SubgraphRef]:
    """All references to subgraphs inside an argument."""
    if isinstance(value, SubgraphRef):
        return [value]
    if isinstance(value, Mapping):
        value = tuple(value.values())
    if isinstance(value, tuple):
        return [ref for item in value for ref in subgraph_refs(item)]
    return []
