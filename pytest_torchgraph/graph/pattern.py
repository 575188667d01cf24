"""Patterns of several ops, one of which uses the result of another: `"aten.mm -> aten.gelu"`.

    pattern      = alternatives {("->" | "~>") alternatives}
    alternatives = op {"|" op}
    op           = an op, as in `Capture.assert_op_counts`

`a -> b`: b uses the result of a itself; projections (`getitem` of an op with several results) are
looked through. `a ~> b`: b uses it at any distance. An op that reads what another one wrote in
place uses that one's result. Edges do not lead into the bodies of higher-order ops.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from ..ops.names import matches
from .find import find
from .model import Graph, Node, is_projection
from .ops import op_of

_ARROW = re.compile(r"(->|~>)")


@dataclass(frozen=True, slots=True, eq=False)
class Match:
    """Nodes that a pattern matches: one for each of its parts, in order.

    Attributes:
        nodes: the nodes; the last one is of the right-hand side.
        graph: the graph, or body of a higher-order op, that they are in.
    """

    nodes: tuple[Node, ...]
    graph: Graph

    def __str__(self) -> str:
        return " .. ".join(f"%{node.name}" for node in self.nodes)


@dataclass(frozen=True, slots=True)
class Pattern:
    """A pattern.

    Attributes:
        text: as it was written.
        parts: the alternatives of each part.
        arrows: what stands between them, `->` or `~>`.
    """

    text: str
    parts: tuple[tuple[str, ...], ...]
    arrows: tuple[str, ...]


def parse(text: str) -> Pattern:
    """Read a pattern.

    Raises:
        TypeError: for what is no string.
        ValueError: for a text without an arrow, or with a part that names no op.
    """
    if not isinstance(text, str):
        raise TypeError(f"{text!r} is no pattern: pass a string, as 'aten.mm -> aten.gelu'")
    words = _ARROW.split(text)
    parts = tuple(tuple(op.strip() for op in part.split("|")) for part in words[::2])
    if not all(op and not re.search(r"[\s<>~-]", op) for part in parts for op in part):
        raise ValueError(
            f"{text!r} is no pattern: ops between '->' (uses the result) or '~>' (at any "
            "distance), '|' between alternatives, as in 'aten.mm | aten.addmm -> aten.gelu'"
        )
    if len(parts) == 1:
        raise ValueError(f"{text!r} is no pattern of several ops: use find, count or assert_no_ops")
    return Pattern(text, parts, tuple(words[1::2]))


def find_pattern(graphs: Sequence[Graph], pattern: Pattern) -> tuple[Match, ...]:
    """The matches in graphs and their bodies: one for each node of the right-hand side.

    Of several nodes that could stand on the left of `->` it is the first among the arguments, of
    `~>` the nearest, and of equally near ones the last in the order of the graph.

    Raises:
        ValueError: for an op that is in none of the graphs, and could not be in one.
    """
    for part in pattern.parts:
        for op in part:
            find(graphs, op)
    return tuple(
        match for top in graphs for graph in top.walk() for match in _in_graph(graph, pattern)
    )


def operands(graph: Graph, node: Node) -> Iterator[Node]:
    """The nodes whose results a node uses, in order, projections looked through, each once."""
    seen: set[str] = set()
    written = tuple(ref.name for ref in reversed(node.after))
    names = [*written, *reversed(node.refs)]
    while names:
        name = names.pop()
        if name in seen:
            continue
        seen.add(name)
        used = graph.by_name[name]
        refs = used.refs if used.op == "operator.getitem" else ()
        if refs and is_projection(used, graph.by_name.get(refs[0])):
            names.append(refs[0])
        elif name not in written or any(effect.kind == "mutates" for effect in used.effects):
            yield used


def _in_graph(graph: Graph, pattern: Pattern) -> Iterator[Match]:
    calls = [node for node in graph.nodes if node.is_call]
    ops = {op_of(node) for node in calls}
    parts = [{op for op in ops if _matches(op, part)} for part in pattern.parts]
    found: dict[str, tuple[Node, ...]] = {
        node.name: (node,) for node in calls if op_of(node) in parts[0]
    }
    uses = _Uses(graph)
    for arrow, part in zip(pattern.arrows, parts[1:], strict=True):
        if not found:
            return
        wanted = [node for node in calls if op_of(node) in part]
        if arrow == "->":
            found = _direct(uses, wanted, found)
        else:
            found = _at_any_distance(uses, wanted, found)
    yield from (Match(nodes, graph) for nodes in found.values())


class _Uses:
    """The `operands` of the nodes of a graph by name, each worked out once."""

    def __init__(self, graph: Graph):
        self.graph = graph
        self._known: dict[str, list[str]] = {}

    def of(self, node: Node) -> list[str]:
        """The names of the operands of a node."""
        known = self._known.get(node.name)
        if known is None:
            known = self._known[node.name] = [each.name for each in operands(self.graph, node)]
        return known


def _matches(op: str, alternatives: Sequence[str]) -> bool:
    return any(matches(op, pattern) for pattern in alternatives)


def _direct(
    uses: _Uses, wanted: Sequence[Node], found: Mapping[str, tuple[Node, ...]]
) -> dict[str, tuple[Node, ...]]:
    extended: dict[str, tuple[Node, ...]] = {}
    for node in wanted:
        left = next((name for name in uses.of(node) if name in found), None)
        if left is not None:
            extended[node.name] = (*found[left], node)
    return extended


def _at_any_distance(
    uses: _Uses, wanted: Sequence[Node], found: Mapping[str, tuple[Node, ...]]
) -> dict[str, tuple[Node, ...]]:
    names = {node.name for node in wanted}
    extended: dict[str, tuple[Node, ...]] = {}
    nearest: dict[str, tuple[int, int, str]] = {}  # distance, minus position, and name
    for position, node in enumerate(uses.graph.nodes):
        ways = [
            (distance + 1, place, name)
            for used in uses.of(node)
            if used in nearest
            for distance, place, name in (nearest[used],)
        ]
        best = min(ways, default=None)
        if best is not None and node.name in names:
            extended[node.name] = (*found[best[2]], node)
        if node.name in found:
            nearest[node.name] = (0, -position, node.name)
        elif best is not None:
            nearest[node.name] = best
    return extended
