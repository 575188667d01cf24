"""The nodes of a graph that are drawn, the values between them, and their looks.

Half of the nodes of a captured graph are not steps of the computation. Parameters, buffers and
constants become lines in the boxes of their users; `getitem` projections become part of the edge
from their producer. What remains is laid out a third faster and is what people look for.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

from ...graph.model import Arg, Graph, Node, Ref, is_projection, iter_refs
from ..look.changes import ChangeMark
from ..look.labels import value_label
from .scene import ClusterPath, OnlySide

FOLDED_INPUTS = frozenset({"parameter", "buffer", "constant"})
"""Kinds of placeholders that are lines in the boxes of their users."""


@dataclass(frozen=True, slots=True)
class DrawnValue:
    """One result of a drawn node: what an edge carries.

    Attributes:
        producer: the node, which is drawn.
        path: which of its results, one index for each nested projection; () for all of it.
        label: dtype and shape, "" where unknown.
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
class FoldedNode:
    """A node that is drawn, with the nodes that are folded into its box.

    Attributes:
        node: the node.
        position: its index in the graph.
        operands: the values of other drawn nodes that it reads.
        folded_inputs: the parameters, buffers and constants that it reads.
        after: the drawn nodes that must run before it although it reads nothing of them.
        projections: the `getitem` nodes that select one of its results.
    """

    node: Node
    position: int
    operands: list[DrawnValue] = field(default_factory=list)
    folded_inputs: list[Node] = field(default_factory=list)
    after: list[Node] = field(default_factory=list)
    projections: list[Node] = field(default_factory=list)


class FoldedGraph:
    """A graph reduced to the nodes that are drawn; its subgraphs are not looked into.

    Attributes:
        graph: the graph.
        nodes: the drawn nodes by name, in the order of the graph.
        returned: the values that the output node returns, each with its place in the structure
            that is returned (`"[0]['loss']"`).
        saved: the values saved for the backward.
    """

    def __init__(self, graph: Graph):
        self.graph = graph
        self.nodes: dict[str, FoldedNode] = {}
        self._values: dict[str, DrawnValue] = {}
        self._inputs: dict[str, Node] = {}
        self._first_users: dict[str, FoldedNode] = {}
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

    def value(self, name: str) -> DrawnValue | None:
        """The value of the node of this name; None where it is folded into its users."""
        return self._values.get(name)

    def users(self) -> Mapping[str, list[FoldedNode]]:
        """For each drawn node, by name, the drawn nodes that read its results."""
        users: dict[str, list[FoldedNode]] = {name: [] for name in self.nodes}
        for folded in self.nodes.values():
            for value in folded.operands:
                users[value.producer.name].append(folded)
        return users

    def folded_into(self, node: Node) -> FoldedNode | None:
        """The drawn node whose box shows a folded one; None for an input that nothing reads."""
        if node.op == "operator.getitem" and (value := self.value(node.name)):
            return self.nodes[value.producer.name]
        return self._first_users.get(node.name)

    def _add(self, node: Node, position: int) -> None:
        if node.kind == "get_attr" or (node.kind == "placeholder" and node.op in FOLDED_INPUTS):
            self._inputs[node.name] = node
        elif not self._add_projection(node):
            folded = self.nodes[node.name] = FoldedNode(node, position)
            self._connect(folded)
            self._values[node.name] = DrawnValue(node, (), value_label(node))

    def _add_projection(self, node: Node) -> bool:
        """Make `getitem` of a tuple a part of its producer's edges; False for any other node."""
        operand = self.value(node.refs[0]) if node.op == "operator.getitem" and node.refs else None
        if operand is None or not is_projection(node, self.graph.by_name.get(node.refs[0])):
            return False
        path = (*operand.path, node.args[1])
        self._values[node.name] = DrawnValue(operand.producer, path, value_label(node))
        self.nodes[operand.producer.name].projections.append(node)
        return True

    def _connect(self, folded: FoldedNode) -> None:
        # A graph's output can read tens of thousands of values: no search in a list.
        operands: dict[tuple[str, tuple[int, ...]], DrawnValue] = {}
        for name in dict.fromkeys(folded.node.refs):
            value = self.value(name)
            if value is not None:
                operands.setdefault((value.producer.name, value.path), value)
            elif name in self._inputs:
                folded.folded_inputs.append(self._inputs[name])
                self._first_users.setdefault(name, folded)
        folded.operands += operands.values()
        producers = {producer for producer, _ in operands}
        for name in dict.fromkeys(ref.name for ref in folded.node.after):
            value = self.value(name)
            if value is not None and value.producer.name not in producers:
                producers.add(value.producer.name)
                folded.after.append(value.producer)


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


class Look(NamedTuple):
    """The label and the style of the box of one drawable, chosen by the kind of drawing.

    Attributes:
        lines: the lines of the label, as plain text.
        attributes: DOT attributes, colours among them.
        classes: names of CSS classes, without `tg-`.
        sides: the lines before and after, in the drawing of a difference, where they are others.
    """

    lines: list[str]
    attributes: dict[str, str]
    classes: tuple[str, ...] = ()
    sides: tuple[list[str], list[str]] | None = None


@dataclass(slots=True)
class Drawable:
    """A node on a canvas, with the nodes folded into it: what can have a box of its own.

    `Canvas.draw` gives it a box, which looks as its `Look` says, or folds it into a group.

    Attributes:
        graph: name of the graph.
        folded: the node and what is folded into it.
        cluster: the cluster that it belongs into.
        mark: how it differs, in drawings of differences and of surplus ops; None where it does not.
        only: the side of a difference that alone has it.
        no_box: whether it has no box and is drawn at its users alone, as a port.
        notes: facts that a group counts over its members, such as "saved for backward".
        lines: lines of its label beyond those that the node itself gives.
    """

    graph: str
    folded: FoldedNode
    cluster: ClusterPath
    mark: ChangeMark | None = None
    only: OnlySide = ""
    no_box: bool = False
    notes: tuple[str, ...] = ()
    lines: list[str] = field(default_factory=list)

    @property
    def node(self) -> Node:
        """The node."""
        return self.folded.node

    @property
    def is_old(self) -> bool:
        """Whether only the old graph of a difference has it."""
        return self.only == "before"

    @property
    def computed(self) -> list[Node]:
        """The node, and the projections that are folded into it."""
        return [self.folded.node, *self.folded.projections]


class Edge(NamedTuple):
    """An edge between drawables.

    Attributes:
        tail, head: the drawables, by number.
        value: which of the results of the tail it is, one index for each nested projection.
        label: the label, as plain text.
        kind: "value", "added", "removed", "changed", "order" (one must run before the other),
            "body" (a call and what it calls) or "cut" (what a graph break interrupts).
        sides: of a changed edge, the labels before and after.
        only: the side of a difference that alone has it.
    """

    tail: int
    head: int
    value: tuple[int, ...] = ()
    label: str = ""
    kind: str = "value"
    sides: tuple[str, str] | None = None
    only: OnlySide = ""
