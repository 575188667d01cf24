"""A graph as pieces of a drawing, the bodies of its higher-order ops included."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from ...graph.model import Graph, Node, SubgraphRef
from ..look import labels
from .canvas import Canvas, Edge, Piece
from .fold import Box, Folded
from .scene import Place, Segment, common_place, module_place

MAX_RETURNED = 6
"""With more results than this, each is marked at its producer instead of leading to one box."""
SAVED = "saved for backward"


@dataclass(slots=True)
class Added:
    """What of a graph is on a canvas.

    Attributes:
        numbers: the pieces of its boxes, by node name.
        folded: its boxes.
        bodies: the same of the bodies.
    """

    numbers: dict[str, int]
    folded: Folded
    bodies: list[Added]

    def piece_of(self, node: Node) -> int | None:
        """The piece that shows a node of the graph or of a body, None where nothing does."""
        for added in self.walk():
            if added.folded.graph.by_name.get(node.name) is node:
                box = added.folded.boxes.get(node.name) or added.folded.folded_into(node)
                return None if box is None else added.numbers.get(box.node.name)
        return None

    def walk(self) -> list[Added]:
        """This and the bodies', outermost first."""
        found = [self]
        for added in found:
            found += added.bodies
        return found


def add_graph(canvas: Canvas, graph: Graph, base: Place = (), inside: str = "") -> Added:
    """Put a graph on a canvas.

    Args:
        canvas: takes it.
        graph: what to draw.
        base: the cluster to put it in.
        inside: the module that `base` stands for already.
    """
    canvas.scene.classes.update(graph.classes)
    return _Adding(canvas, graph, base, inside).run()


class _Adding:
    def __init__(self, canvas: Canvas, graph: Graph, base: Place, inside: str):
        self.canvas = canvas
        self.graph = graph
        self.base = base
        self.inside = inside
        self.folded = Folded(graph)
        self.users = self.folded.users()
        self.numbers: dict[str, int] = {}

    def run(self) -> Added:
        many = len({value.producer.name for _, value in self.folded.returned}) > MAX_RETURNED
        saved: dict[str, list[str]] = {}
        for value in self.folded.saved:
            index = "".join(f"[{i}]" for i in value.path)
            saved.setdefault(value.producer.name, []).append(index)
        returned: dict[str, list[str]] = {}
        for path, value in self.folded.returned if many else ():
            returned.setdefault(value.producer.name, []).append(path)
        for name, box in self.folded.boxes.items():
            if box.node.kind == "output" and many:
                continue
            piece = Piece(self.graph.name, box, self._place(box.node))
            piece.no_box = box.node.op == "saved" and bool(self.users[name])
            if name in saved:
                indices = ", ".join(filter(None, saved[name]))
                piece.lines.append(f"{SAVED} {indices}".strip())
                piece.notes += (SAVED,)
            if name in returned:
                piece.lines.append(f"return{', '.join(returned[name])}")
                piece.notes += ("returned",)
            self.numbers[name] = self.canvas.add(piece)
        self._edges()
        return Added(self.numbers, self.folded, self._bodies())

    def _edges(self) -> None:
        for name, head in self.numbers.items():
            box = self.folded.boxes[name]
            for value in box.operands:
                tail = self.numbers[value.producer.name]
                self.canvas.edges.append(Edge(tail, head, value.path, value.edge_label))
            for node in box.after:
                self.canvas.edges.append(Edge(self.numbers[node.name], head, kind="order"))

    def _bodies(self) -> list[Added]:
        callers: dict[str, Box] = {}
        for box in self.folded.boxes.values():
            for ref in subgraph_refs((box.node.args, box.node.kwargs)):
                callers.setdefault(ref.name, box)
        found = []
        for number, body in enumerate(self.graph.subgraphs):
            caller = callers.get(body.name)
            place = self.base if caller is None else self._place(caller.node)
            label = f"@{body.name}"
            if caller is not None:
                label += f" of {labels.op_label(caller.node.op)}"
            segment = Segment("body", label, str(number))
            module = "" if caller is None else caller.node.module
            added = add_graph(self.canvas, body, (*place, segment), module)
            found.append(added)
            if caller is not None and added.numbers:
                tail = self.numbers[caller.node.name]
                head = next(iter(added.numbers.values()))
                self.canvas.edges.append(Edge(tail, head, kind="body"))
        return found

    # -- places ------------------------------------------------------------------------------------

    def _place(self, node: Node) -> Place:
        if self._is_sum(node):
            return self._between(node)
        return module_place(node.module, self.base, self.inside)

    def _is_sum(self, node: Node) -> bool:
        """Whether autograd adds up gradients here: that belongs to no module, or to any."""
        return (
            self.graph.kind == "backward"
            and node.is_call
            and (not node.module or node.op == "aten.add.Tensor")
        )

    def _between(self, node: Node) -> Place:
        """The innermost module around the neighbours of a node."""
        operands = self.folded.boxes[node.name].operands
        near = [value.producer for value in operands if value.producer.op != "saved"]
        near += [user.node for user in self.users[node.name]]
        return common_place(
            [
                module_place(other.module, self.base, self.inside)
                for other in near
                if other.module and not self._is_sum(other)
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
