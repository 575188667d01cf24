"""Assertions about ops in relation: which uses the result of which, and which comes first."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterator, Sequence
from dataclasses import replace
from typing import Any

from ..words import counted
from .census import calls, runs
from .checks import bounds, device_of, format_bounds, format_locations, need_a_limit, need_any_graph
from .dataflow import Dataflow
from .failures import UnexpectedOps, failed
from .find import count as count_of
from .find import find
from .model import Graph, Node
from .pattern import Match, Pattern, find_pattern, parse
from .select import nodes_of

MOST = 5
"""How many places a message lists; the rest is counted."""


def assert_pattern(
    graphs: Sequence[Graph], pattern: str, count: Any = None, device: str | None = None
) -> None:
    """See `OpChecks.assert_pattern`."""
    __tracebackhide__ = True
    parsed = parse(pattern)
    need_any_graph(graphs)
    low, high = (1, None) if count is None else bounds(count, device_of(graphs, device))
    need_a_limit("assert_pattern", [(low, high)])
    found = find_pattern(graphs, parsed)
    times = _times(found)
    if times < low:
        lines = [f"{pattern}: expected {format_bounds(low, high)}, found {times}"]
        lines += _listed(found)
        lines += _instead(graphs, parsed, found)
        raise AssertionError("\n".join(lines))
    if high is not None and times > high:
        raise _unexpected(graphs, f"{pattern}: expected {format_bounds(low, high)}", found)


def assert_no_pattern(graphs: Sequence[Graph], pattern: str) -> None:
    """See `OpChecks.assert_no_pattern`."""
    __tracebackhide__ = True
    parsed = parse(pattern)
    need_any_graph(graphs)
    found = find_pattern(graphs, parsed)
    if found:
        raise _unexpected(graphs, f"{pattern}: expected none", found)


def _times(found: Sequence[Match]) -> int:
    return sum(match.times for match in found)


def _unexpected(graphs: Sequence[Graph], title: str, found: Sequence[Match]) -> AssertionError:
    lines = [f"{title}, found {_times(found)}", *_listed(found)]
    nodes = list(dict.fromkeys(node for match in found for node in match.nodes))
    return failed("\n".join(lines), UnexpectedOps(graphs, nodes, title))


def _listed(found: Sequence[Match]) -> Iterator[str]:
    for match in found[:MOST]:
        yield f"  {match}" + (f"  ({match.times} times)" if match.times > 1 else "")
        yield from (f"      {line}" for line in format_locations(match.nodes))
    if found[MOST:]:
        yield f"  ... and {len(found) - MOST} more"


def _instead(graphs: Sequence[Graph], pattern: Pattern, found: Sequence[Match]) -> Iterator[str]:
    """What there is of each part, and what the nodes of the right-hand side use."""
    for part in pattern.parts:
        yield f"there is {sum(count_of(graphs, op) for op in part)} times {' | '.join(part)}"
    yield from _how_far(graphs, pattern, _times(found))
    matched = {id(match.nodes[-1]) for match in found}
    used: Counter[str] = Counter()
    places: dict[str, list[Node]] = {}
    wanted = {id(node) for op in pattern.parts[-1] for node in find(graphs, op)} - matched
    for graph in graphs:
        flow = Dataflow(graph)
        for use in flow.uses:
            if use.node is None or id(use.node) not in wanted:
                continue
            operands = [flow.uses[number] for number in use.uses]
            ops = [op for operand in operands for op in operand.names]
            words = f"{' and '.join(use.ops)} uses {', '.join(dict.fromkeys(ops)) or 'nothing'}"
            used[words] += use.times
            places.setdefault(words, []).append(use.node)
    for words, times in used.most_common(MOST):
        yield f"  {words}" + (f"  ({times} times)" if times > 1 else "")
        yield from (f"      {line}" for line in format_locations(places[words], 2))


def _how_far(graphs: Sequence[Graph], pattern: Pattern, found: int) -> Iterator[str]:
    """How often the beginning of a pattern is found, and all of it at any distance.

    Args:
        found: how often it is found as it is.
    """
    for count in range(len(pattern.parts) - 1, 1, -1) if not found else ():
        begin = replace(pattern, parts=pattern.parts[:count], arrows=pattern.arrows[: count - 1])
        if times := _times(find_pattern(graphs, begin)):
            parts = [" | ".join(part) for part in begin.parts]
            arrows = [f" {arrow} " for arrow in (*begin.arrows, "")]
            words = "".join(f"{part}{arrow}" for part, arrow in zip(parts, arrows, strict=True))
            yield f"there is {times} times {words.strip()}"
            break
    far = replace(pattern, arrows=("~>",) * len(pattern.arrows))
    if far != pattern and (times := _times(find_pattern(graphs, far))) > found:
        yield f"with ~> for -> (at any distance) it is found {counted(times, 'time')}"


def assert_order(graphs: Sequence[Graph], first: Any, second: Any) -> None:
    """See `OpChecks.assert_order`."""
    __tracebackhide__ = True
    need_any_graph(graphs)
    before, after = find(graphs, first), find(graphs, second)
    for op, nodes in ((first, before), (second, after)):
        if not nodes:
            raise AssertionError(f"{op} does not occur, so nothing can be said about its order")
    firsts, seconds = set(map(id, before)), set(map(id, after))
    together = False
    for graph in graphs:
        comparable, wrong = _order(graph, firsts, seconds)
        together = together or comparable
        if wrong is not None:
            early, late = wrong
            title = f"{first} after {second} in {graph.name}"
            lines = [
                f"{title}: expected every {first} before every {second}",
                f"  %{early.name} comes first",
                *(f"      {line}" for line in format_locations([early])),
                f"  %{late.name} comes after it",
                *(f"      {line}" for line in format_locations([late])),
            ]
            raise failed("\n".join(lines), UnexpectedOps(graphs, [early, late], title))
    if not together:
        places = [
            f"  {graph.name}: {sum(c.times for c in calls([graph]) if id(c.node) in firsts)} of "
            f"{first}, {sum(c.times for c in calls([graph]) if id(c.node) in seconds)} of {second}"
            for graph in graphs
        ]
        raise AssertionError(
            "\n".join([f"no graph holds both {first} and {second}, so they have no order", *places])
        )


def _order(
    graph: Graph, firsts: Collection[int], seconds: Collection[int]
) -> tuple[bool, tuple[Node, Node] | None]:
    """Whether nodes of both kinds have an order, and a second one with a first one behind it.

    What is in two bodies of one op, such as the branches of a `cond`, has none. A body that runs
    again, as that of a loop, comes after itself.

    Args:
        firsts, seconds: the nodes by their `id`.
    """
    comparable, before, after = False, False, None
    for node in graph.nodes:
        called = runs(graph, node)
        inside = [node, *nodes_of(run.body for run in called)]
        one = next((each for each in inside if id(each) in firsts), None)
        other = next((each for each in inside if id(each) in seconds), None)
        if one is not None and after is not None:
            return True, (after, one)
        comparable = comparable or (before and other is not None)
        if one is not None and other is not None:
            for run in called:
                if run.times != 1 and one is not node and other is not node:
                    return True, (other, one)
                orders, wrong = _order(run.body, firsts, seconds)
                if wrong is not None:
                    return True, wrong
                comparable = comparable or orders
        before = before or one is not None
        after = after or other
    return comparable, None
