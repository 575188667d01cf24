"""Drawn nodes of a graph, the values between them, and their looks.

Half of the nodes of a captured graph are not steps of the computation. Parameters, buffers and
constants become lines in the boxes of their users. `getitem` projections become part of the edge
from their producer. Only the remaining nodes are drawn, which also makes the layout a third faster.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

from ...graph.model import Arg, Graph, Node, Ref, is_projection, iter_refs
from ..look import ChangeMark, value_label
from .scene import ClusterPath, OnlySide

FOLDED_INPUTS = frozenset({"parameter", "buffer", "constant"})
"""Placeholder kinds that are drawn as lines in the boxes of their users."""


@dataclass(frozen=True, slots=True)
class DrawnValue:
    """One result of a drawn node, carried by an edge.

    Attributes:
        producer: the drawn node.
        path: position in the node's result, one index per nested projection; () for all of it.
        label: dtype and shape, "" if unknown.
    """

    producer: Node
    path: tuple[int, ...]
    label: str

    @property
    def edge_label(self) -> str:
        """Label of an edge that carries this value."""
        index = "".join(f"[{i}]" for i in self.path)
        return f"{index} {self.label}".strip()


@dataclass(slots=True)
class FoldedNode:
    """A drawn node, with the nodes folded into its box.

    Attributes:
        node: the node.
        position: index of the node in the graph.
        operands: values of other drawn nodes that the node reads.
        folded_inputs: parameters, buffers and constants that the node reads.
        after: drawn nodes that must run before the node although the node does not read their
            results.
        projections: `getitem` nodes that select one of the node's results.
    """

    node: Node
    position: int
    operands: list[DrawnValue] = field(default_factory=list)
    folded_inputs: list[Node] = field(default_factory=list)
    after: list[Node] = field(default_factory=list)
    projections: list[Node] = field(default_factory=list)


class FoldedGraph:
    """A graph reduced to the drawn nodes, without its subgraphs.

    Attributes:
        graph: the graph.
        nodes: drawn nodes, keyed by name, in graph order.
        returned: returned values, each with its path in the returned structure (`"[0]['loss']"`).
        saved: values saved for backward.
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
        """Return the value of the named node, or `None` if it is folded into its users."""
        return self._values.get(name)

    def users(self) -> Mapping[str, list[FoldedNode]]:
        """Return the drawn users of each drawn node, keyed by name."""
        users: dict[str, list[FoldedNode]] = {name: [] for name in self.nodes}
        for folded in self.nodes.values():
            for value in folded.operands:
                users[value.producer.name].append(folded)
        return users

    def folded_into(self, node: Node) -> FoldedNode | None:
        """Return the drawn node that shows a folded node, or `None` for an unused input."""
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
        """Fold a `getitem` of a tuple into its producer's edges. Return False for other nodes."""
        operand = self.value(node.refs[0]) if node.op == "operator.getitem" and node.refs else None
        if operand is None or not is_projection(node, self.graph.by_name.get(node.refs[0])):
            return False
        # Only for a tuple: `getitem` of a tensor is indexing, an op with its own box.
        path = (*operand.path, node.args[1])
        self._values[node.name] = DrawnValue(operand.producer, path, value_label(node))
        self.nodes[operand.producer.name].projections.append(node)
        return True

    def _connect(self, folded: FoldedNode) -> None:
        # A dict for fast lookup: the output node can read tens of thousands of values.
        operands: dict[tuple[str, tuple[int, ...]], DrawnValue] = {}
        for name in dict.fromkeys(folded.node.refs):
            value = self.value(name)
            if value is not None:
                operands.setdefault((value.producer.name, value.path), value)
            elif name in self._inputs:
                folded.folded_inputs.append(self._inputs[name])
                # Every user shows the parameter, but only the first user marks its change.
                self._first_users.setdefault(name, folded)
        folded.operands += operands.values()
        producers = {producer for producer, _ in operands}
        for name in dict.fromkeys(ref.name for ref in folded.node.after):
            value = self.value(name)
            # An edge that carries a value already keeps the order.
            if value is not None and value.producer.name not in producers:
                producers.add(value.producer.name)
                folded.after.append(value.producer)


def _leaves(value: Arg, path: str = "") -> Iterator[tuple[str, Ref]]:
    """Yield the references in a returned structure, each with its path."""
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
    """The label and style of a drawable's box, chosen by the kind of drawing.

    Attributes:
        lines: lines of the label, as plain text.
        attributes: DOT attributes, including colours.
        classes: names of CSS classes, without `tg-`.
        sides: in the drawing of a difference, the lines before and after, if they differ.
    """

    lines: list[str]
    attributes: dict[str, str]
    classes: tuple[str, ...] = ()
    sides: tuple[list[str], list[str]] | None = None


@dataclass(slots=True)
class Drawable:
    """A node on a canvas, with the nodes folded into it.

    `Canvas.draw` gives a drawable its own box, styled by its `Look`, or folds it into a group.

    Attributes:
        graph: name of the graph.
        folded: the node and the nodes folded into it.
        cluster: cluster of the node.
        mark: change mark in drawings of differences and of surplus ops; `None` if unchanged.
        only: the only side of a difference that has the node; "" for both.
        no_box: True if the node has no box and is drawn only as a port at its users.
        notes: facts that a group counts over its members, for example "saved for backward".
        lines: lines of the label in addition to the node's own lines.
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
        """The node without the nodes folded into it."""
        return self.folded.node

    @property
    def is_old(self) -> bool:
        """True if only the old graph of a difference has the node."""
        return self.only == "before"

    @property
    def computed(self) -> list[Node]:
        """The node and the projections folded into it."""
        return [self.folded.node, *self.folded.projections]


class Edge(NamedTuple):
    """An edge between drawables.

    Attributes:
        tail, head: numbers of the drawables.
        value: position in the tail's result, one index per nested projection.
        label: label of the edge, as plain text.
        kind: "value", "added", "removed", "changed", "order" (the tail must run before the head),
            "body" (from a call to the called graph) or "cut" (interrupted by a graph break).
        sides: for a changed edge, the labels before and after.
        only: the only side of a difference that has the edge; "" for both.
    """

    tail: int
    head: int
    value: tuple[int, ...] = ()
    label: str = ""
    kind: str = "value"
    sides: tuple[str, str] | None = None
    only: OnlySide = ""
