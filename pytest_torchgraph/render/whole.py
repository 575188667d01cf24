"""The drawing of a whole graph, top to bottom in the direction of data.

What makes `dot` slow is not the number of nodes but edges that span many ranks: each becomes a
chain of invisible nodes, one a rank. A residual connection, a value saved for backward or an
attention mask that every layer uses are drawn as a small port instead, a labelled stub at the
consumer.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from ..graph.model import Graph, Node, SubgraphRef
from . import labels
from .families import FAMILIES, family
from .fold import Box, Folded, Value
from .ranks import Ranks
from .scene import Place, Scene, Segment, common_place, module_place

if TYPE_CHECKING:
    import graphviz

LONG = 12
"""An edge over more ranks than this is cut."""
BUSY = 4
"""The edges of a value with more users than this are cut unless they are short."""
SHORT = 3
MAX_RETURNED = 6
"""With more results than this, each is marked at its producer instead of leading to one box."""
PORT = {"shape": "cds", "style": "filled", "fontsize": "8", "margin": "0.06,0.02"}


def to_dot(graph: Graph) -> graphviz.Digraph:
    """Draw a whole graph, its subgraphs included.

    Modules are nested clusters. Parameters, buffers and constants are lines in the boxes of their
    users, not boxes. Colours show families of ops; edges carry dtype and shape; the tooltip has the
    full node and the user's line. A value saved for backward has a double border.
    """
    title = f"{graph.name}: {graph.kind} graph at level {graph.level}, {len(graph.nodes)} nodes"
    scene = Scene(graph.name, [title])
    drawn = _Drawing(scene, graph).draw()
    _legend(scene, drawn)
    return scene.digraph()


class _Drawing:
    """Puts one graph into a scene, and with it the bodies that its nodes refer to."""

    def __init__(self, scene: Scene, graph: Graph, base: Place = (), inside: str = ""):
        self.scene = scene
        self.graph = graph
        self.base = base
        self.inside = inside
        self.folded = Folded(graph)
        self.users = self.folded.users()
        self.keys: dict[str, str] = {}
        self.families: set[str] = set()

    def draw(self) -> set[str]:
        """Draw everything; gives the families of ops that occur."""
        links, ports = self._split()
        named = {value.producer.name for values in ports.values() for value in values}
        self._marks()
        for box in self.folded.boxes.values():
            if self._has_box(box):
                self._box(box, named=box.node.name in named)
        for name, values in links.items():
            for value in values:
                self._link(value, self.keys[name])
        for name, values in ports.items():
            for value in values:
                self._port(value, self.folded.boxes[name])
        for box in self.folded.boxes.values():
            for node in box.after:
                if self._span(node.name, box.node.name) <= LONG:
                    self.scene.add_link(
                        self.keys[node.name], self.keys[box.node.name], style="dotted"
                    )
        self._bodies()
        return self.families

    # -- which edges are drawn -------------------------------------------------------------------

    def _split(self) -> tuple[dict[str, list[Value]], dict[str, list[Value]]]:
        """For each box the operands that are drawn as edges and those that are drawn as ports."""
        self.ranks = self._rank()
        nearest = {
            name: min(users, key=lambda user: self.ranks[user.node.name]).node.name
            for name, users in self.users.items()
            if users
        }
        links: dict[str, list[Value]] = {}
        ports: dict[str, list[Value]] = {}
        self.many_returned = len({v.producer.name for _, v in self.folded.returned}) > MAX_RETURNED
        for name, box in self.folded.boxes.items():
            if box.node.kind == "output" and self.many_returned:
                continue
            shortest = min(
                (self._span(value.producer.name, name) for value in box.operands), default=0
            )
            for value in box.operands:
                producer = value.producer.name
                span = self._span(producer, name)
                limit = SHORT if len(self.users[producer]) > BUSY else LONG
                if value.producer.op == "saved":
                    whole = False
                else:
                    whole = span <= limit or span == shortest or nearest[producer] == name
                (links if whole else ports).setdefault(name, []).append(value)
        return links, ports

    def _rank(self) -> Mapping[str, int]:
        ranks = Ranks(
            (value.producer.name, name)
            for name, box in self.folded.boxes.items()
            for value in box.operands
        )
        return {name: ranks.of.get(name, 0) for name in self.folded.boxes}

    def _span(self, tail: str, head: str) -> int:
        return self.ranks[head] - self.ranks[tail]

    def _has_box(self, box: Box) -> bool:
        if box.node.kind == "output":
            return not self.many_returned
        return box.node.op != "saved" or not self.users[box.node.name]

    # -- boxes -----------------------------------------------------------------------------------

    def _marks(self) -> None:
        self.saved: dict[str, list[str]] = {}
        for value in self.folded.saved:
            index = "".join(f"[{i}]" for i in value.path)
            self.saved.setdefault(value.producer.name, []).append(index)
        self.returned: dict[str, list[str]] = {}
        if self.many_returned:
            for path, value in self.folded.returned:
                self.returned.setdefault(value.producer.name, []).append(path)

    def _box(self, box: Box, *, named: bool) -> None:
        node = box.node
        lines = labels.node_lines(node)
        if named and node.kind != "placeholder":
            lines.append(f"= {node.name}")
        lines += [folded_label(param, node) for param in box.folded]
        attributes = {}
        if node.name in self.saved:
            indices = ", ".join(filter(None, self.saved[node.name]))
            lines.append(f"saved for backward {indices}".strip())
            attributes["peripheries"] = "2"
        if node.name in self.returned:
            lines.append(f"return{', '.join(self.returned[node.name])}")
            attributes["penwidth"] = "2"
        if len(lines) > labels.MAX_LINES:
            more = len(lines) - labels.MAX_LINES + 1
            lines[labels.MAX_LINES - 1 :] = [f"... and {more} more"]
        kind = family(node)
        if node.kind != "output":
            self.families.add(kind)
        border, fill = FAMILIES[kind]
        if not node.is_call:
            attributes["shape"] = "ellipse" if node.kind == "placeholder" else "box"
            attributes["style"] = "filled,bold"
        self.keys[node.name] = self.scene.add_box(
            lines,
            self._place(node),
            labels.tooltip(node),
            color=border,
            fillcolor=fill,
            **attributes,
        )

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

    # -- edges -----------------------------------------------------------------------------------

    def _link(self, value: Value, head: str) -> None:
        self.scene.add_link(self.keys[value.producer.name], head, value.edge_label)

    def _port(self, value: Value, box: Box) -> None:
        producer = value.producer
        border, fill = FAMILIES[family(producer)]
        index = "".join(f"[{i}]" for i in value.path)
        key = self.scene.add_box(
            [f"{producer.name.removeprefix(f'{box.node.module}/')}{index}"],
            self._place(box.node),
            labels.tooltip(producer),
            color=border,
            fillcolor=fill,
            **PORT,
        )
        self.scene.add_link(key, self.keys[box.node.name], value.label)

    # -- bodies of higher-order ops --------------------------------------------------------------

    def _bodies(self) -> None:
        callers: dict[str, Box] = {}
        for box in self.folded.boxes.values():
            for ref in subgraph_refs((box.node.args, box.node.kwargs)):
                callers.setdefault(ref.name, box)
        for body in self.graph.subgraphs:
            caller = callers.get(body.name)
            place = self.base if caller is None else self._place(caller.node)
            inside = self.inside if caller is None else caller.node.module
            label = f"@{body.name}" if caller is None else f"@{body.name} of {caller.node.op}"
            drawing = _Drawing(self.scene, body, (*place, Segment("body", label)), inside)
            self.families |= drawing.draw()
            if caller is not None and drawing.keys:
                first = next(iter(drawing.keys.values()))
                self.scene.add_link(
                    self.keys[caller.node.name], first, style="dashed", arrowhead="none"
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


def folded_label(node: Node, user: Node) -> str:
    """The line of a parameter in its user's box, shorter where the user's module owns it."""
    name = node.target or node.name
    if user.module and name.startswith(user.module + "."):
        owner = user.module.rpartition(".")[2]
        name = f"{owner}.{name.removeprefix(user.module + '.')}"
    return f"{labels.cut(name, labels.MAX_LINE - 16)} {labels.value_label(node)}".strip()


def _legend(scene: Scene, families: set[str]) -> None:
    for name, (border, fill) in FAMILIES.items():
        if name in families:
            place = (Segment("legend", "families of ops"),)
            scene.add_box([name], place, color=border, fillcolor=fill, fontsize="8")
