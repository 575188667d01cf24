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
    found: dict[str, tuple[Node, ...]] = {
        node.name: (node,)
        for node in graph.nodes
        if node.is_call and _matches(node, pattern.parts[0])
    }
    for arrow, part in zip(pattern.arrows, pattern.parts[1:], strict=True):
        if not found:
            return
        wanted = [node for node in graph.nodes if node.is_call and _matches(node, part)]
        if arrow == "->":
            found = _direct(graph, wanted, found)
        else:
            found = _at_any_distance(graph, wanted, found)
    yield from (Match(nodes, graph) for nodes in found.values())


def _matches(node: Node, alternatives: Sequence[str]) -> bool:
    return any(matches(node.op, op) for op in alternatives)


def _direct(
    graph: Graph, wanted: Sequence[Node], found: Mapping[str, tuple[Node, ...]]
) -> dict[str, tuple[Node, ...]]:
    extended: dict[str, tuple[Node, ...]] = {}
    for node in wanted:
        left = next((each for each in operands(graph, node) if each.name in found), None)
        if left is not None:
            extended[node.name] = (*found[left.name], node)
    return extended


def _at_any_distance(
    graph: Graph, wanted: Sequence[Node], found: Mapping[str, tuple[Node, ...]]
) -> dict[str, tuple[Node, ...]]:
    names = {node.name for node in wanted}
    extended: dict[str, tuple[Node, ...]] = {}
    nearest: dict[str, tuple[int, int, str]] = {}  # distance, minus position, and name
    for position, node in enumerate(graph.nodes):
        ways = [
            (distance + 1, place, name)
            for used in operands(graph, node)
            if used.name in nearest
            for distance, place, name in (nearest[used.name],)
        ]
        best = min(ways, default=None)
        if best is not None and node.name in names:
            extended[node.name] = (*found[best[2]], node)
        if node.name in found:
            nearest[node.name] = (0, -position, node.name)
        elif best is not None:
            nearest[node.name] = best
    return extended
