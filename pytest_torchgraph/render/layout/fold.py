"""What of a graph is drawn at all: boxes for ops, and the values that flow between them.

Half of the nodes of a captured graph are not steps of the computation. Parameters, buffers and
constants become lines in the boxes of their users; `getitem` projections become part of the edge
from their producer. What is left is a third faster to lay out and the part that people look for.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from ...graph.model import Arg, Graph, Node, Ref, is_projection, iter_refs
from ..look.labels import value_label

FOLDED_INPUTS = frozenset({"parameter", "buffer", "constant"})


@dataclass(frozen=True, slots=True)
class Value:
    """What flows along an edge: one result of a producer.

    Attributes:
        producer: the node that has a box.
        path: which of several results, one index for each nested projection.
        label: dtype and shape.
    """

    producer: Node
    path: tuple[int, ...]
    label: str

    @property
    def edge_label(self) -> str:
        """The label of an edge that carries this value."""
        index = "".join(f"[{i}]" for i in self.path)
        return f"{index} {self.label}".strip()


@dataclass(slots=True)
class Box:
    """A node that is drawn, with what was folded into it.

    Attributes:
        operands: what it reads from other boxes.
        folded: the parameters, buffers and constants that it reads.
        after: the boxes' nodes that must run before it although it reads nothing of them.
        projections: the nodes that take one of its results.
    """

    node: Node
    position: int
    operands: list[Value] = field(default_factory=list)
    folded: list[Node] = field(default_factory=list)
    after: list[Node] = field(default_factory=list)
    projections: list[Node] = field(default_factory=list)


class Folded:
    """A graph as boxes; subgraphs are not looked into.

    Attributes:
        boxes: by node name, in the order of the graph.
        returned: the values that the output node returns and where in its structure.
        saved: the values saved for the backward.
    """

    def __init__(self, graph: Graph):
        self.graph = graph
        self.boxes: dict[str, Box] = {}
        self._values: dict[str, Value] = {}
        self._folded: dict[str, Node] = {}
        self._shown_in: dict[str, Box] = {}
        for position, node in enumerate(graph.nodes):
            self._add(node, position)
        self.returned = [
            (path, value)
            for node in graph.nodes
            if node.kind == "output"
            for path, ref in _leaves(node.args[0] if node.args else None)
            if (value := self.value(ref.name)) is not None
        ]
        self.saved = [value for ref in graph.saved if (value := self.value(ref.name)) is not None]

    def value(self, name: str) -> Value | None:
        """What reading node `name` gives, None where nothing drawn produces it."""
        return self._values.get(name)

    def users(self) -> Mapping[str, list[Box]]:
        """The boxes that use a box's results, by its name."""
        users: dict[str, list[Box]] = {name: [] for name in self.boxes}
        for box in self.boxes.values():
            for value in box.operands:
                users[value.producer.name].append(box)
        return users

    def folded_into(self, node: Node) -> Box | None:
        """The box that shows a node which has none of its own, None for a dead one."""
        if node.op == "operator.getitem" and (value := self.value(node.name)):
            return self.boxes[value.producer.name]
        return self._shown_in.get(node.name)

    def _add(self, node: Node, position: int) -> None:
        if node.kind == "get_attr" or (node.kind == "placeholder" and node.op in FOLDED_INPUTS):
            self._folded[node.name] = node
            return
        operand = self.value(node.refs[0]) if node.op == "operator.getitem" and node.refs else None
        if operand is not None and self._projects(node, operand):
            index = node.args[1]
            self._values[node.name] = Value(
                operand.producer, (*operand.path, index), value_label(node)
            )
            self.boxes[operand.producer.name].projections.append(node)
            return
        box = self.boxes[node.name] = Box(node, position)
        seen: set[tuple[str, tuple[int, ...]]] = set()
        for name in dict.fromkeys(node.refs):
            value = self.value(name)
            if value is not None:
                # A graph's output can read tens of thousands of values: no search in a list.
                key = (value.producer.name, value.path)
                if key not in seen:
                    seen.add(key)
                    box.operands.append(value)
            elif name in self._folded:
                box.folded.append(self._folded[name])
                self._shown_in.setdefault(name, box)
        given = {value.producer.name for value in box.operands}
        for name in dict.fromkeys(ref.name for ref in node.after):
            value = self.value(name)
            if value is not None and value.producer.name not in given:
                given.add(value.producer.name)
                box.after.append(value.producer)
        self._values[node.name] = Value(node, (), value_label(node))

    def _projects(self, node: Node, operand: Value) -> bool:
        return is_projection(node, self.graph.by_name.get(node.refs[0]))


def _leaves(value: Arg, path: str = "") -> Iterator[tuple[str, Ref]]:
    """The references in what a graph returns, each with its place there."""
    if isinstance(value, Ref):
        yield path, value
    elif isinstance(value, tuple):
        for i, item in enumerate(value):
            yield from _leaves(item, f"{path}[{i}]")
    elif isinstance(value, Mapping):
        for key, item in value.items():
            yield from _leaves(item, f"{path}[{key!r}]")
    else:
        for ref in iter_refs(value):
            yield path, ref
