"""The content of a drawing: boxes in clusters, and edges, of one graph, of several, or of two.

Half of the nodes of a captured graph are not steps of the computation. Parameters, buffers,
constants and values saved by the forward become lines in the boxes of their users. `getitem`
projections become part of the edge from their producer. Only the remaining nodes have boxes.

In this room, a box is a node of the drawing, and a node is always a node of the drawn graph.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from contextlib import suppress
from dataclasses import dataclass, field
from functools import lru_cache
from typing import TYPE_CHECKING, Literal, NamedTuple

from ..errors import CaptureError
from ..graph.collectives import collectives_of, format_bytes, format_wait
from ..graph.higher_order import body_names
from ..graph.model import Graph, Node, is_projection
from ..graph.text import ops_in_words
from ..words import grouped
from .labels import Line, Mark, eager_label, op_label, same, value_label

if TYPE_CHECKING:
    from .colours import Heat

OnlySide = Literal["", "before", "after"]
"""The only side of a difference that has an element; "" if both sides have it."""
FOLDED_INPUTS = frozenset({"parameter", "buffer", "constant", "saved"})
"""Placeholder kinds that are drawn as lines in the boxes of their users."""
MAX_NESTING = 16
"""Maximum nesting of module clusters. In a longer path, the levels before the last are left out."""
MAX_RETURNED = 6
"""Maximum number of results with edges to the return box. If a graph returns more results, only the
last one has an edge; the tooltip of the box lists all.
"""
SAVED = "saved for backward"


class Segment(NamedTuple):
    """One cluster in a `ClusterPath`.

    Attributes:
        kind: "module", "body" (a subgraph of a higher-order op), "graph", "eager" (an eager graph)
            or "legend".
        label: label of the cluster; the path for a module.
        key: distinguishes clusters with the same label.
    """

    kind: str
    label: str
    key: str = ""


ClusterPath = tuple[Segment, ...]
"""A cluster as its path through the nested clusters, outermost first; () for none."""


@lru_cache(maxsize=4096)
def module_cluster(path: str, base: ClusterPath = (), inside: str = "") -> ClusterPath:
    """Return the cluster of a module.

    Args:
        path: path of the module; "" returns `base`.
        base: the enclosing cluster.
        inside: module that `base` already represents; its clusters are not repeated.
    """
    parts = path.split(".") if path else []
    # Skip the levels that the caller's module has already. Another module keeps all its levels.
    start = inside.count(".") + 1 if inside and f"{path}.".startswith(f"{inside}.") else 0
    ends = [*range(start + 1, len(parts) + 1)]
    del ends[MAX_NESTING - 1 : -1]
    return base + tuple(Segment("module", ".".join(parts[:end])) for end in ends)


def graph_cluster(graph: Graph, number: int, before: int | None = None) -> ClusterPath:
    """Return the cluster of a graph, labelled with its name and number of ops.

    Args:
        graph: the graph.
        number: distinguishes graphs with the same label.
        before: run count of an eager graph on the old side of a difference; see `eager_label`.
    """
    name = f"{eager_label(graph, before)}," if graph.eager else f"{graph.name}:"
    kind = "eager" if graph.eager else "graph"
    return (Segment(kind, f"{name} {ops_in_words(graph)}", str(number)),)


@dataclass(frozen=True, slots=True)
class Element:
    """The meaning of a box or cluster in the SVG, keyed by the element's `id`.

    Attributes:
        kind: for a box "node" (one op), "group" (several nodes) or "break" (a graph break); for a
            cluster "module", "body", "graph" or "eager".
        graph: name of the graph, "" for a cluster or a break.
        nodes: names of the nodes shown in the box, and of the nodes folded into it.
        label: label of a cluster, group or break; the path for a module.
        change: "added", "removed", "changed", "rewired", "surplus" (an unexpected op), or "" for
            none.
        is_old: True if the nodes are from the old graph of a difference.
    """

    kind: str
    graph: str = ""
    nodes: tuple[str, ...] = ()
    label: str = ""
    change: str = ""
    is_old: bool = False


class DrawnValue(NamedTuple):
    """A value that flows into a box.

    Attributes:
        box: the box that produces it.
        path: position in the result of the box, one index per nested projection; () for all of it.
        label: dtype and shape, "" if unknown.
    """

    box: Box
    path: tuple[int | str, ...]
    label: str

    @property
    def text(self) -> str:
        """Label of an edge that carries this value."""
        index = "".join(f"[{i}]" for i in self.path)
        return f"{index} {self.label}".strip()


@dataclass(slots=True, eq=False)
class Box:
    """A node with the nodes folded into it. It is drawn alone, or in a group of several.

    Attributes:
        graph: name of the graph.
        node: the node.
        cluster: cluster of the node.
        operands: values of other boxes that the node reads.
        after: boxes that must run before the node although the node does not read their results.
        inputs: nodes in `FOLDED_INPUTS`, and attributes, that the node reads.
        projections: `getitem` nodes that select one of the node's results.
        lines: lines of the label in addition to those of the node.
        saved: True if one of its values is saved for the backward.
        mark: the change of the node; `None` if unchanged.
        side: the only side of a difference that has the node; "" for both.
        fixed: for a graph break or a whole graph, the label, the tooltip and the meaning.
    """

    graph: str
    node: Node
    cluster: ClusterPath = ()
    operands: list[DrawnValue] = field(default_factory=list)
    after: list[Box] = field(default_factory=list)
    inputs: list[Node] = field(default_factory=list)
    projections: list[Node] = field(default_factory=list)
    lines: list[str] = field(default_factory=list)
    saved: bool = False
    mark: Mark | None = None
    side: OnlySide = ""
    fixed: tuple[list[Line], list[str], Element] | None = None

    @property
    def computed(self) -> list[Node]:
        """The node and the projections folded into it."""
        return [self.node, *self.projections]

    @property
    def names(self) -> list[str]:
        """Names of all nodes in the box."""
        return [node.name for node in (self.node, *self.inputs, *self.projections)]


class Edge(NamedTuple):
    """An edge between boxes.

    Attributes:
        tail, head: the boxes.
        value: position in the tail's result, one index per nested projection.
        label: label of the edge.
        kind: "value", "added", "removed", "changed", "order" (the tail must run before the head),
            "body" (from a call to the called graph) or "cut" (interrupted by a graph break).
        side: the only side of a difference that has the edge; "" for both.
    """

    tail: Box
    head: Box
    value: tuple[int | str, ...] = ()
    label: Line = same("")
    kind: str = "value"
    side: OnlySide = ""


class DrawnGraph:
    """The boxes of a graph, without its subgraphs.

    `_folded` has the inputs without a box, by name, and `_first_user` the first box that reads each
    of them.

    Attributes:
        graph: the graph.
        boxes: the boxes, keyed by the name of the node, in graph order.
        values: the values of the boxes, keyed by the name of the node or projection.
        bodies: its subgraphs, in the same scene; `Scene.add_graph` adds them.

    Args:
        graph, base, inside: as in `Scene.add_graph`.
    """

    def __init__(self, graph: Graph, base: ClusterPath = (), inside: str = ""):
        self.graph = graph
        self.boxes: dict[str, Box] = {}
        self.values: dict[str, DrawnValue] = {}
        self.bodies: list[DrawnGraph] = []
        self._folded: dict[str, Node] = {}
        self._first_user: dict[str, Box] = {}
        for node in graph.nodes:
            # A value saved by another graph of the step has a box, with an edge from that graph.
            is_linked = node.op == "saved" and ":" in node.name
            is_input = node.kind == "placeholder" and node.op in FOLDED_INPUTS and not is_linked
            if is_input or node.kind == "get_attr":
                self._folded[node.name] = node
            elif not self._add_projection(node):
                box = Box(graph.name, node, module_cluster(node.module, base, inside))
                self._connect(box)
                self.boxes[node.name] = box
                self.values[node.name] = DrawnValue(box, (), value_label(node))

    def shown_in(self, node: Node) -> Box | None:
        """Return the box that shows a node of the graph or of a body, or `None`."""
        # By identity, because a node of a body can have the name of a node of the graph.
        if self.graph.by_name.get(node.name) is not node:
            return next(filter(None, (body.shown_in(node) for body in self.bodies)), None)
        value = self.values.get(node.name)
        return self._first_user.get(node.name) if value is None else value.box

    def _add_projection(self, node: Node) -> bool:
        """Fold a `getitem` of a tuple into its producer's edges.

        Return False, and change nothing, for any other node.
        """
        operand = (
            self.values.get(node.refs[0]) if node.op == "operator.getitem" and node.refs else None
        )
        if operand is None or not is_projection(node, self.graph.by_name.get(node.refs[0])):
            return False  # `getitem` of a tensor is indexing, an op with its own box
        self.values[node.name] = DrawnValue(
            operand.box, (*operand.path, node.args[1]), value_label(node)
        )
        operand.box.projections.append(node)
        return True

    def _connect(self, box: Box) -> None:
        """Set what a new box reads: `operands`, `inputs` and `after`.

        The producers must have their boxes, so the boxes are added in graph order.
        """
        # A dict for fast lookup: the output node can read tens of thousands of values.
        operands: dict[tuple[Box, tuple[int | str, ...]], DrawnValue] = {}
        for name in dict.fromkeys(box.node.refs):
            if (value := self.values.get(name)) is not None:
                operands.setdefault((value.box, value.path), value)
            elif name in self._folded:
                box.inputs.append(self._folded[name])
                # Every user shows the parameter, but only the first user marks its change.
                self._first_user.setdefault(name, box)
        if box.node.kind == "output" and len(operands) > MAX_RETURNED:
            # The edges would hide everything else. One of them keeps the box below its graph.
            returned = [value for value in self.values.values() if value[:2] in operands]
            operands = {returned[-1][:2]: returned[-1]}
        box.operands += operands.values()
        # An edge that carries a value already keeps the order.
        tails = {tail for tail, _ in operands}
        earlier = (self.values[ref.name].box for ref in box.node.after if ref.name in self.values)
        box.after += [tail for tail in dict.fromkeys(earlier) if tail not in tails]

    def annotate(self) -> None:
        """Add what only the drawing of a whole graph says: saved values, and collectives."""
        for name, lines in collective_lines(self.graph).items():
            self.boxes[name].lines += lines
        saved = grouped(
            (value.box, "".join(f"[{i}]" for i in value.path))
            for ref in self.graph.saved
            if (value := self.values.get(ref.name)) is not None
        )
        for box, indices in saved.items():
            box.lines.append(f"{SAVED} {', '.join(filter(None, indices))}".strip())
            box.saved = True


def collective_lines(graph: Graph) -> dict[str, list[str]]:
    """Return lines for the boxes of a graph's own collectives, keyed by node name."""
    lines: dict[str, list[str]] = {}
    with suppress(CaptureError):  # graphs of torch functions do not record their collectives
        for collective in collectives_of((graph,)):
            # Compared by identity, because a node of a body can have the name of one of the graph.
            if graph.by_name.get(collective.node.name) is collective.node and collective.group:
                of_node = lines.setdefault(collective.node.name, [])
                kind = f"{collective.kind} over {collective.group}"
                of_node.append(f"{kind}, {format_bytes(collective)} B")
                # Inductor orders collectives later, during code generation.
                if graph.level != "post_grad" and (wait := format_wait(collective)):
                    of_node.append(f"waited for {wait}")
    return lines


class Scene:
    """The boxes and edges of one drawing, from which `dot.draw` makes a `Drawing`.

    Args:
        name: name of the DOT graph.
        title: lines above the drawing.
        heat: cost of the nodes, if the colours show costs.
        by_change: if the colours show changes, and unchanged boxes are pale, the line above the
            drawing that says how many boxes with a mark are folded; "" for other colours.

    Attributes:
        name, title, heat, by_change: as above; lines can be added to the title.
        boxes: the boxes, in graph order.
        edges: the edges between them. An edge of the kind "hidden" is drawn only on the old side.
        old_boxes: for a difference, the box of each node of the old graphs.
        classes: known class names of modules, keyed by module path; part of cluster labels.
        old_classes: `classes` for the old graph of a difference; empty for a stored graph.
    """

    def __init__(
        self, name: str, title: Iterable[str] = (), heat: Heat | None = None, by_change: str = ""
    ):
        self.name = name
        self.title = list(title)
        self.heat = heat
        self.by_change = by_change
        self.boxes: list[Box] = []
        self.edges: list[Edge] = []
        self.old_boxes: dict[Node, Box] = {}
        self.classes: dict[str, str] = {}
        self.old_classes: dict[str, str] = {}

    def add_graph(self, graph: Graph, base: ClusterPath = (), inside: str = "") -> DrawnGraph:
        """Add the boxes and edges of a graph, each body after the op that calls it.

        Args:
            graph: the graph.
            base: enclosing cluster.
            inside: module that `base` already represents.
        """
        self.classes.update(graph.classes)
        drawn = DrawnGraph(graph, base, inside)
        drawn.annotate()
        bodies = dict(graph.subgraphs_by_name)

        def add_bodies(names: Iterable[str], caller: Box | None) -> None:
            for name in names:
                # Only the first of several calls is followed by the body.
                if (body := bodies.pop(name, None)) is None:
                    continue
                op = "" if caller is None else f" of {op_label(caller.node.op)}"
                segment = Segment("body", f"@{name}{op}", str(len(bodies)))
                around = base if caller is None else caller.cluster
                inside = "" if caller is None else caller.node.module
                added = self.add_graph(body, (*around, segment), inside)
                drawn.bodies.append(added)
                if caller is not None and added.boxes:
                    head = next(iter(added.boxes.values()))
                    self.edges.append(Edge(caller, head, kind="body"))

        for box in drawn.boxes.values():
            self.boxes.append(box)
            self.edges += [Edge(v.box, box, v.path, same(v.text)) for v in box.operands]
            self.edges += [Edge(tail, box, kind="order") for tail in box.after]
            add_bodies(body_names(box.node), box)
        add_bodies([*bodies], None)  # those that no drawn node calls by name
        return drawn

    def around(self, boxes: Collection[Box], hops: int = 1, most: int = 5) -> list[Box]:
        """Return boxes, followed by boxes at most `hops` edges away, the nearest first.

        Args:
            boxes: the boxes.
            hops: distance in edges.
            most: maximum number of operands, and of users, of each box, nearest first.
        """
        position = {box: number for number, box in enumerate(self.boxes)}
        operands = grouped((edge.head, position[edge.tail]) for edge in self.edges)
        users = grouped((edge.tail, position[edge.head]) for edge in self.edges)
        starts = {*boxes}
        found = dict.fromkeys(boxes)
        border = list(boxes)  # the boxes that the last hop has found
        for _ in range(hops):
            near: dict[int, None] = {}
            for box in border:
                # The operands of the output node can be anywhere in the graph.
                if box in starts or box.node.kind != "output":
                    near |= dict.fromkeys(sorted(set(operands.get(box, ())), reverse=True)[:most])
                    near |= dict.fromkeys(sorted(set(users.get(box, ())))[:most])
            border = [b for number in near if (b := self.boxes[number]) not in found]
            found |= dict.fromkeys(border)
        return list(found)
