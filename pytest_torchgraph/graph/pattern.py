"""Patterns of several ops, `"aten.mm -> aten.gelu"`, and assertions about relations between ops.

    pattern      = alternatives {("->" | "~>") alternatives}
    alternatives = op {"|" op}
    op           = an op, as in `Capture.assert_op_counts`

`a -> b` means that b uses the result of a directly, or through a projection (the `getitem` of a
multi-output op). `a ~> b` means that b uses the result of a at any distance. An op that reads a
value written in place uses the result of the writing op. Patterns match across bodies of
higher-order ops: the inputs of a body are the operands of its call, and the result of the call is
the return value of the body. In a step with known `Graph.calls`, they also match across graph
breaks, and in each run of a graph. They do not follow the values that a forward saves for its
backward.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from ..ops.impossible import LISTED, pattern_name
from ..ops.matching import matches
from .census import calls, runs
from .checks import bounds, device_of, format_bounds, format_locations, need_a_limit, need_any_graph
from .dataflow import Dataflow
from .failures import UnexpectedOps, failed
from .find import count as count_of
from .find import find
from .higher_order import executed
from .model import Graph, Node
from .select import nodes_of
from .step import joined

_ARROW = re.compile(r"(->|~>)")


@dataclass(frozen=True, slots=True, eq=False)
class Match:
    """A match of a pattern: one node for each part of the pattern, in order.

    Attributes:
        nodes: the nodes; the last node matches the right-hand side.
        graph: the graph, or body of a higher-order op, that contains the last node.
        times: number of runs of the last node in this match, in one run of the outermost graph; in
            the step, if the step is divided and `Graph.calls` are known.
    """

    nodes: tuple[Node, ...]
    graph: Graph
    times: int = 1

    def __str__(self) -> str:
        return " .. ".join(map(_describe_node, self.nodes))


def _describe_node(node: Node) -> str:
    op = executed(node).op
    return f"%{node.name}" if op == node.op else f"%{node.name} (runs {op})"


@dataclass(frozen=True, slots=True)
class Pattern:
    """A parsed pattern.

    Attributes:
        text: the pattern as written.
        parts: alternatives of each part.
        arrows: arrows between the parts, `->` or `~>`.
    """

    text: str
    parts: tuple[tuple[str, ...], ...]
    arrows: tuple[str, ...]


def parse_pattern(text: str) -> Pattern:
    """Parse a pattern.

    Raises:
        TypeError: if it is not a string.
        ValueError: if it has no arrow, or a part that names no op.
    """
    if not isinstance(text, str):
        raise TypeError(f"{text!r} is not a pattern: pass a string such as 'aten.mm -> aten.gelu'")
    parts_and_arrows = _ARROW.split(text)
    parts = tuple(tuple(op.strip() for op in part.split("|")) for part in parts_and_arrows[::2])
    if not all(op and not re.search(r"[\s<>~-]", op) for part in parts for op in part):
        raise ValueError(
            f"{text!r} is not a valid pattern: write '->' (uses the result) or '~>' (at any "
            "distance) between ops, and '|' between alternatives, such as 'aten.mm | aten.addmm -> "
            "aten.gelu'"
        )
    if len(parts) == 1:
        raise ValueError(
            f"{text!r} is a pattern of a single op: use find, assert_op_counts or assert_no_ops"
        )
    return Pattern(text, parts, tuple(parts_and_arrows[1::2]))


def find_pattern(graphs: Sequence[Graph], pattern: Pattern) -> tuple[Match, ...]:
    """Return the matches in graphs and their bodies: one per node of the right-hand side.

    If several operands match the left side of `->`, the match has the first operand. For `~>`, the
    match has the nearest node, and among equally near nodes the last in graph order.

    Raises:
        CaptureError: for a higher-order op whose bodies cannot be followed.
        ValueError: for an op that no graph has, and that cannot occur in these graphs.
    """
    for part in pattern.parts:
        for op in part:
            find(graphs, op)  # for its errors
    step = joined(graphs)
    return tuple(
        match
        for graph in step.graphs
        if _may_match(graph, pattern)
        for match in matches_in(Dataflow(graph, step), pattern)
    )


def _may_match(graph: Graph, pattern: Pattern) -> bool:
    """Return False if a graph lacks an op of the pattern, so that its dataflow is not needed.

    Always return True for a graph with bodies: its dataflow raises an error for bodies that cannot
    be followed.
    """
    ops = graph.own_calls.numbers
    return bool(graph.subgraphs) or all(
        any(_matches(op, part) for op in ops) for part in pattern.parts
    )


def matches_in(flow: Dataflow, pattern: Pattern) -> Iterator[Match]:
    """Yield the matches in a graph and its bodies."""
    first, *others = [_find_ops(flow, part) for part in pattern.parts]
    paths: dict[int, tuple[int, ...]] = {number: (number,) for number in first}
    for arrow, candidates in zip(pattern.arrows, others, strict=True):
        if not paths:
            return
        extend = _extend_directly if arrow == "->" else _extend_at_any_distance
        paths = extend(flow, candidates, paths)
    # A node of a body has a use for each call of the body, but is one match.
    by_node: dict[int, Match] = {}
    for number, path in paths.items():
        use = flow.uses[number]
        nodes = tuple(
            node for use_number in path if (node := flow.uses[use_number].node) is not None
        )
        earlier = by_node.get(id(use.node))
        if earlier is None:
            by_node[id(use.node)] = Match(nodes, use.graph, use.times)
        else:
            by_node[id(use.node)] = replace(earlier, times=earlier.times + use.times)
    yield from by_node.values()


def _find_ops(flow: Dataflow, part: Sequence[str]) -> list[int]:
    """Return the numbers of the ops that match a part of a pattern."""
    return sorted(
        {number for op, numbers in flow.numbers.items() if _matches(op, part) for number in numbers}
    )


def _matches(op: str, alternatives: Sequence[str]) -> bool:
    return any(matches(op, pattern) for pattern in alternatives)


def _extend_directly(
    flow: Dataflow, candidates: Sequence[int], paths: Mapping[int, tuple[int, ...]]
) -> dict[int, tuple[int, ...]]:
    """Return matches extended by one part of the pattern, after the arrow `->`.

    Args:
        candidates: the ops that match the part.
        paths: the matches of the parts before it, by their last op.
    """
    extended: dict[int, tuple[int, ...]] = {}
    for number in candidates:
        operand = next((used for used in flow.uses[number].uses if used in paths), None)
        if operand is not None:
            extended[number] = (*paths[operand], number)
    return extended


def _extend_at_any_distance(
    flow: Dataflow, candidates: Sequence[int], paths: Mapping[int, tuple[int, ...]]
) -> dict[int, tuple[int, ...]]:
    """Return matches extended after the arrow `~>`; see `_extend_directly`."""
    # The nearest match of each op: its distance, then of equally near ones the last in the graph.
    nearest = {number: (0, -number, number) for number in paths}

    def best(operands: Iterable[int]) -> tuple[int, int, int] | None:
        route = min([nearest[used] for used in operands if used in nearest], default=None)
        return None if route is None else (route[0] + 1, route[1], route[2])

    has_changed = True
    # Another pass is needed only if an op depends on later ops: a call on the ops of its body, or a
    # loop-carried value on the previous round of the loop.
    while has_changed:
        has_changed = False
        for number, use in enumerate(flow.uses):
            if number in paths:  # its own match is the nearest, at distance 0
                continue
            route = best(use.leads)
            if route is not None and (number not in nearest or route < nearest[number]):
                nearest[number] = route
                has_changed = flow.leads_ahead
    routes = ((number, best(flow.uses[number].uses)) for number in candidates)
    return {number: (*paths[route[2]], number) for number, route in routes if route is not None}


MAX_LISTED = 5
"""Maximum number of places that a message lists. Further places are only counted."""


def assert_pattern(
    graphs: Sequence[Graph], pattern: str, count: Any = None, device: str | None = None
) -> None:
    """See `OpChecks.assert_pattern`."""
    __tracebackhide__ = True
    parsed = parse_pattern(pattern)
    need_any_graph(graphs)
    low, high = (1, None) if count is None else bounds(count, device_of(graphs, device))
    need_a_limit("assert_pattern", [(low, high)])
    found_matches = find_pattern(graphs, parsed)
    times = _count_runs(found_matches)
    if times < low:
        lines = [f"{pattern}: expected {format_bounds(low, high)}, found {times}"]
        lines += _list_matches(found_matches)
        lines += _describe_parts(graphs, parsed, found_matches)
        raise AssertionError("\n".join(lines))
    if high is not None and times > high:
        raise _unexpected_error(
            graphs, f"{pattern}: expected {format_bounds(low, high)}", found_matches
        )


def assert_no_pattern(graphs: Sequence[Graph], pattern: str) -> None:
    """See `OpChecks.assert_no_pattern`."""
    __tracebackhide__ = True
    parsed = parse_pattern(pattern)
    need_any_graph(graphs)
    found_matches = find_pattern(graphs, parsed)
    if found_matches:
        raise _unexpected_error(graphs, f"{pattern}: expected none", found_matches)


def _count_runs(found_matches: Sequence[Match]) -> int:
    return sum(match.times for match in found_matches)


def _unexpected_error(
    graphs: Sequence[Graph], title: str, found_matches: Sequence[Match]
) -> AssertionError:
    lines = [f"{title}, found {_count_runs(found_matches)}", *_list_matches(found_matches)]
    nodes = list(dict.fromkeys(node for match in found_matches for node in match.nodes))
    return failed("\n".join(lines), UnexpectedOps(graphs, nodes, title))


def _list_matches(found_matches: Sequence[Match]) -> Iterator[str]:
    for match in found_matches[:MAX_LISTED]:
        yield f"  {match}" + (f"  ({match.times} times)" if match.times > 1 else "")
        yield from (f"      {line}" for line in format_locations(match.nodes))
    if found_matches[MAX_LISTED:]:
        yield f"  ... and {len(found_matches) - MAX_LISTED} more"


def _describe_parts(
    graphs: Sequence[Graph], pattern: Pattern, found_matches: Sequence[Match]
) -> Iterator[str]:
    """Describe the matches of each part, and the operands of the right-hand nodes."""
    for part in pattern.parts:
        yield f"found {sum(count_of(graphs, op) for op in part)} of {' | '.join(part)}"
    yield from _describe_partial_matches(graphs, pattern, _count_runs(found_matches))
    matched = {id(match.nodes[-1]) for match in found_matches}
    used: Counter[str] = Counter()
    places: dict[str, list[Node]] = {}
    unmatched = {id(node) for op in pattern.parts[-1] for node in find(graphs, op)} - matched
    step = joined(graphs)
    for graph in step.graphs:
        flow = Dataflow(graph, step)
        for use in flow.uses:
            if use.node is None or id(use.node) not in unmatched:
                continue
            operands = [flow.uses[number] for number in use.uses]
            ops = [op for operand in operands for op in operand.names]
            # No op computes an input of a body directly, for example a slice passed by `map`.
            names = ", ".join(dict.fromkeys(ops)) or "no other op's result"
            words = f"{' and '.join(use.ops)} uses {names}"
            used[words] += use.times
            places.setdefault(words, []).append(use.node)
    for words, times in used.most_common(MAX_LISTED):
        yield f"  {words}" + (f"  ({times} times)" if times > 1 else "")
        yield from (f"      {line}" for line in format_locations(places[words], 2))


def _describe_partial_matches(
    graphs: Sequence[Graph], pattern: Pattern, found_count: int
) -> Iterator[str]:
    """Describe the number of matches of a pattern's start, and of the pattern at any distance.

    Args:
        found_count: number of matches of the pattern as written.
    """
    for count in range(len(pattern.parts) - 1, 1, -1) if not found_count else ():
        begin = replace(pattern, parts=pattern.parts[:count], arrows=pattern.arrows[: count - 1])
        if times := _count_runs(find_pattern(graphs, begin)):
            parts = [" | ".join(part) for part in begin.parts]
            arrows = [f" {arrow} " for arrow in (*begin.arrows, "")]
            words = "".join(f"{part}{arrow}" for part, arrow in zip(parts, arrows, strict=True))
            yield f"found {times} of {words.strip()}"
            break
    far = replace(pattern, arrows=("~>",) * len(pattern.arrows))
    if far != pattern and (times := _count_runs(find_pattern(graphs, far))) > found_count:
        yield f"with ~> instead of -> (at any distance): found {times}"


def assert_order(graphs: Sequence[Graph], first: Any, second: Any) -> None:
    """See `OpChecks.assert_order`."""
    __tracebackhide__ = True
    need_any_graph(graphs)
    before, after = find(graphs, first), find(graphs, second)
    first, second = pattern_name(first), pattern_name(second)
    for op, nodes in ((first, before), (second, after)):
        if not nodes:
            raise AssertionError(f"{op} does not occur, so it has no order: {LISTED}")
    firsts, seconds = set(map(id, before)), set(map(id, after))
    any_ordered = False
    for graph in graphs:
        is_ordered, wrong = _find_order(graph, firsts, seconds)
        any_ordered = any_ordered or is_ordered
        if wrong is not None:
            early, late = wrong
            title = f"{first} after {second} in {graph.name}"
            lines = [
                f"{title}: expected every {first} before every {second}",
                f"  %{early.name} comes first",
                *(f"      {line}" for line in format_locations([early])),
                f"  %{late.name} comes later",
                *(f"      {line}" for line in format_locations([late])),
            ]
            raise failed("\n".join(lines), UnexpectedOps(graphs, [early, late], title))
    if not any_ordered:
        lines = [f"no graph runs both {first} and {second}, so they have no order"]
        for graph in graphs:
            counts = [
                sum(call.times for call in calls([graph]) if id(call.node) in ids)
                for ids in (firsts, seconds)
            ]
            apart = ", in different subgraphs of one op" if all(counts) else ""
            lines.append(f"  {graph.name}: {counts[0]} of {first}, {counts[1]} of {second}{apart}")
        raise AssertionError("\n".join(lines))


def _find_order(
    graph: Graph, firsts: Collection[int], seconds: Collection[int]
) -> tuple[bool, tuple[Node, Node] | None]:
    """Search a graph for a first and a second node, and for a pair in the wrong order.

    Nodes in two bodies of one op, such as the branches of a `cond`, have no order. If a body runs
    several times, such as the body of a loop, every node of the body runs both before and after
    every other.

    Returns:
        True if some first node and some second node are ordered; and a pair of a second node and a
        first node that runs after it, or `None` if there is no such pair.

    Args:
        firsts, seconds: the `id`s of the nodes.
    """
    is_ordered, seen_first, seen_second = False, False, None
    for node in graph.nodes:
        body_runs = runs(graph, node)
        inside = [node, *nodes_of(run.body for run in body_runs)]
        first_node = next((candidate for candidate in inside if id(candidate) in firsts), None)
        second_node = next((candidate for candidate in inside if id(candidate) in seconds), None)
        if first_node is not None and seen_second is not None:
            return True, (seen_second, first_node)
        is_ordered = is_ordered or (seen_first and second_node is not None)
        if first_node is not None and second_node is not None:
            for run in body_runs:
                # `None` stands for a number of runs that is unknown, such as that of a loop.
                if run.times != 1 and first_node is not node and second_node is not node:
                    return True, (second_node, first_node)
                body_is_ordered, wrong = _find_order(run.body, firsts, seconds)
                if wrong is not None:
                    return True, wrong
                is_ordered = is_ordered or body_is_ordered
        seen_first = seen_first or first_node is not None
        seen_second = seen_second or second_node
    return is_ordered, None
