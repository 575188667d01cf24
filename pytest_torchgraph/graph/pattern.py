"""Patterns of several ops, one of which uses the result of another: `"aten.mm -> aten.gelu"`.

    pattern      = alternatives {("->" | "~>") alternatives}
    alternatives = op {"|" op}
    op           = an op, as in `Capture.assert_op_counts`

`a -> b`: b uses the result of a itself; projections (`getitem` of an op with several results) are
looked through. `a ~> b`: b uses it at any distance. An op that reads what another one wrote in
place uses that one's result. Bodies of higher-order ops are looked through: what a body takes is
what its call is given, and the result of the call is what the body returns.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from ..ops.names import matches
from .dataflow import Dataflow
from .find import find
from .model import Graph, Node

_ARROW = re.compile(r"(->|~>)")


@dataclass(frozen=True, slots=True, eq=False)
class Match:
    """Nodes that a pattern matches: one for each of its parts, in order.

    Attributes:
        nodes: the nodes; the last one is of the right-hand side.
        graph: the graph, or body of a higher-order op, that the last node is in.
        times: how often the last node runs like this in one run of the outermost graph.
    """

    nodes: tuple[Node, ...]
    graph: Graph
    times: int = 1

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
        CaptureError: for a higher-order op whose bodies cannot be followed.
        ValueError: for an op that is in none of the graphs, and could not be in one.
    """
    for part in pattern.parts:
        for op in part:
            find(graphs, op)
    return tuple(
        match
        for graph in graphs
        if _may_match(graph, pattern)
        for match in matches_in(Dataflow(graph), pattern)
    )


def _may_match(graph: Graph, pattern: Pattern) -> bool:
    """Return False for a graph that lacks an op of the pattern: no dataflow is worked out.

    Of a graph with bodies it always is, for it says which of them cannot be followed.
    """
    ops = graph.own_calls.numbers
    return bool(graph.subgraphs) or all(
        any(_matches(op, part) for op in ops) for part in pattern.parts
    )


def matches_in(flow: Dataflow, pattern: Pattern) -> Iterator[Match]:
    """The matches in a graph and its bodies."""
    first, *others = [_of_ops(flow, part) for part in pattern.parts]
    found: dict[int, tuple[int, ...]] = {number: (number,) for number in first}
    for arrow, wanted in zip(pattern.arrows, others, strict=True):
        if not found:
            return
        extend = _direct if arrow == "->" else _at_any_distance
        found = extend(flow, wanted, found)
    by_node: dict[int, Match] = {}
    for number, path in found.items():
        use = flow.uses[number]
        nodes = tuple(node for each in path if (node := flow.uses[each].node) is not None)
        known = by_node.get(id(use.node))
        if known is None:
            by_node[id(use.node)] = Match(nodes, use.graph, use.times)
        else:
            by_node[id(use.node)] = replace(known, times=known.times + use.times)
    yield from by_node.values()


def _of_ops(flow: Dataflow, part: Sequence[str]) -> list[int]:
    """The numbers of the ops that a part of a pattern matches."""
    lists = [numbers for op, numbers in flow.numbers.items() if _matches(op, part)]
    return lists[0] if len(lists) == 1 else sorted({number for each in lists for number in each})


def _matches(op: str, alternatives: Sequence[str]) -> bool:
    return any(matches(op, pattern) for pattern in alternatives)


def _direct(
    flow: Dataflow, wanted: Sequence[int], found: Mapping[int, tuple[int, ...]]
) -> dict[int, tuple[int, ...]]:
    extended: dict[int, tuple[int, ...]] = {}
    for number in wanted:
        left = next((used for used in flow.uses[number].uses if used in found), None)
        if left is not None:
            extended[number] = (*found[left], number)
    return extended


def _at_any_distance(
    flow: Dataflow, wanted: Sequence[int], found: Mapping[int, tuple[int, ...]]
) -> dict[int, tuple[int, ...]]:
    nearest = {number: (0, -number, number) for number in found}

    def best(operands: Iterable[int]) -> tuple[int, int, int] | None:
        way = min([nearest[used] for used in operands if used in nearest], default=None)
        return None if way is None else (way[0] + 1, way[1], way[2])

    again = True
    while (
        again
    ):  # a second time only where a body comes after its call, or a loop hands a value back
        again = False
        for number, use in enumerate(flow.uses):
            if number in found:
                continue
            way = best(use.leads)
            if way is not None and (number not in nearest or way < nearest[number]):
                nearest[number] = way
                again = flow.has_bodies
    ways = ((number, best(flow.uses[number].uses)) for number in wanted)
    return {number: (*found[way[2]], number) for number, way in ways if way is not None}
