"""Assertions about collectives and their overlap with computation."""

from __future__ import annotations

import difflib
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from ..errors import CaptureError
from ..ops.matching import ATEN_LEVELS
from ..words import counted, grouped
from .checks import bounds, device_of, format_bounds, format_locations, need_a_limit, need_any_graph
from .collectives import Collective, format_over, format_size, format_wait
from .failures import UnexpectedOps, failed
from .model import Graph, Symbol
from .sizes import advice

KINDS = tuple(
    "all_reduce all_gather reduce_scatter all_to_all broadcast send recv reduce gather scatter "
    "barrier other".split()
)
"""Kinds of collectives."""

MAX_LISTED = 8
"""Maximum number of collectives that a message lists. Further collectives are only counted."""


def assert_collectives(
    graphs: Sequence[Graph],
    captured: Sequence[Collective],
    expected: Mapping[str, Any],
    group: str | None,
    bytes_: Any,
    exact: bool,
    device: str | None,
) -> None:
    """See `OpChecks.assert_collectives`.

    Args:
        graphs: the graphs to check.
        captured: all collectives in these graphs.
        device: device type requested for the capture.
    """
    __tracebackhide__ = True
    _check_arguments(expected)
    need_any_graph(graphs)
    device_type = device_of(graphs, device)
    counts = {kind: bounds(count, device_type) for kind, count in expected.items()}
    if not exact:
        if not counts:
            raise TypeError("assert_collectives({}, exact=False) checks nothing: name a kind")
        weight = [] if bytes_ is None else [bounds(bytes_, device_type)]
        need_a_limit("assert_collectives with exact=False", [*counts.values(), *weight])
    in_group = select_group(graphs, captured, group)
    problems: list[str] = []
    unexpected: list[Collective] = []
    heaviest: Sequence[Collective] = ()

    def report(problem: str, wrong: Sequence[Collective]) -> None:
        problems.extend((problem, *list_collectives(wrong)))
        unexpected.extend(wrong)

    # Any of these may belong to the group, so a count of the group alone could be wrong.
    unknown = [collective for collective in captured if group and not collective.group]
    if unknown:
        report(
            f"  {counted(len(unknown), 'collective')} over an unknown group, possibly {group} "
            "(omit group= to count all groups):",
            unknown,
        )
    for kind, (low, high) in counts.items():
        of_kind = [collective for collective in in_group if collective.kind == kind]
        if len(of_kind) < low or (high is not None and len(of_kind) > high):
            report(f"  {kind}: expected {format_bounds(low, high)}, found {len(of_kind)}", of_kind)
    if exact:
        others = [collective for collective in in_group if collective.kind not in expected]
        for kind in dict.fromkeys(collective.kind for collective in others):
            of_kind = [collective for collective in others if collective.kind == kind]
            report(f"  {kind}: expected none (exact=True), found {len(of_kind)}", of_kind)
    if bytes_ is not None:
        relevant = [collective for collective in in_group if exact or collective.kind in expected]
        problem, heaviest = _check_bytes(relevant, bytes_, device_type)
        if problem:
            listed_ids = set(map(id, unexpected))
            unlisted = [collective for collective in heaviest if id(collective) not in listed_ids]
            problems += [problem, *list_collectives(unlisted)]
    if problems:
        title = "collectives differ" + (f" in group {group}" if group is not None else "")
        nodes = [collective.node for collective in unexpected]
        shows = UnexpectedOps(graphs, nodes, title) if nodes else None
        if not unexpected and not heaviest:  # no problem lists any collective
            problems += _list_captured(captured)
        raise failed("\n".join([f"{title}:", *problems]), shows)


def _check_arguments(expected: Mapping[str, Any]) -> None:
    if not isinstance(expected, Mapping):
        raise TypeError(
            "expected a mapping from kind to count, such as {'all_reduce': 2}, not "
            f"{type(expected).__name__}"
        )
    for kind in expected:
        check_kind(kind)


def check_kind(kind: str) -> None:
    """Raise `ValueError` for an unknown kind of collective."""
    if kind not in KINDS:
        close = difflib.get_close_matches(str(kind), KINDS, n=1)
        hint = f": did you mean {close[0]!r}?" if close else f": use {', '.join(KINDS)}"
        raise ValueError(f"{kind!r} is not a kind of collective{hint}")


def select_group(
    graphs: Sequence[Graph], captured: Sequence[Collective], group: str | None
) -> list[Collective]:
    """Return the collectives over a group, or all collectives if the group is `None`.

    Raises:
        ValueError: for an unknown group.
    """
    groups = {name for top in graphs for graph in top.walk() for name in graph.groups}
    groups.update(collective.group for collective in captured)
    if group is not None and group not in groups:
        names = ", ".join(sorted(groups - {""}))
        remedy = f"Pass one of these groups: {names}" if names else "Omit group="
        problem = (
            f"nothing to check: no collective runs over group {group!r}, and no mesh has a "
            f"dimension of this name. {remedy}"
        )
        raise ValueError("\n".join([problem, *_list_captured(captured)]))
    return [collective for collective in captured if group is None or collective.group == group]


def _check_bytes(
    collectives: Sequence[Collective], limit: Any, device: str
) -> tuple[str, list[Collective]]:
    """Return the problem with the bytes, and the collectives to list with it.

    The problem is "" if the bytes are within the limit.
    """
    low, high = bounds(limit, device)
    unknown = [collective for collective in collectives if collective.bytes is None]
    if unknown:
        symbols = [size for c in unknown for size in c.shape if isinstance(size, Symbol)]
        remedy = f": {advice(symbols[0])}" if symbols else ""
        return f"  bytes: unknown, because a size is symbolic{remedy}", unknown
    total = sum(collective.bytes or 0 for collective in collectives)
    if low <= total and (high is None or total <= high):
        return "", []
    problem = f"  bytes: expected {format_bounds(low, high)}, found {total}"
    return problem, sorted(collectives, key=lambda collective: -(collective.bytes or 0))


def list_collectives(collectives: Sequence[Collective]) -> Iterator[str]:
    """Yield lines that describe collectives and their places. Equal lines are counted."""
    equal: Counter[tuple[str, ...]] = Counter(map(_describe_collective, collectives))
    for (description, *locations), count in list(equal.items())[:MAX_LISTED]:
        yield f"      {description}" + (f"  ({count} times)" if count > 1 else "")
        yield from (f"          {line}" for line in locations)
    rest = sum(list(equal.values())[MAX_LISTED:])
    if rest:
        yield f"      ... and {rest} more"


def _list_captured(captured: Sequence[Collective]) -> list[str]:
    if not captured:
        return ["  no collective was captured"]
    return ["collectives captured:", *list_collectives(captured)]


def _describe_collective(collective: Collective) -> tuple[str, ...]:
    description = f"{format_over(collective)}, {format_size(collective)}"
    description += f", in graph {collective.graph!r}"
    return description, *format_locations([collective.node])


def assert_overlapped(
    graphs: Sequence[Graph],
    captured: Sequence[Collective],
    group: str | None,
    kind: str | None,
    at_least: int,
    exposed: Any,
    device: str | None,
) -> None:
    """See `OpChecks.assert_overlapped`.

    Args:
        graphs: the graphs to check.
        captured: all collectives in these graphs.
        device: device type requested for the capture.
    """
    __tracebackhide__ = True
    if kind is not None:
        check_kind(kind)
    if isinstance(at_least, bool) or not isinstance(at_least, int):
        raise TypeError(
            f"at_least={at_least!r} is not a valid number of ops: pass an int of at least 1"
        )
    if at_least < 1:
        raise ValueError(f"at_least={at_least} holds for every collective: pass at least 1")
    need_any_graph(graphs)
    _need_known_views(graphs)
    low, high = bounds(exposed, device_of(graphs, device))
    filters = {"kind": kind, "group": group}
    which = ", ".join(f"{key} {value}" for key, value in filters.items() if value is not None)
    if not captured:
        raise AssertionError(
            "no collective was captured, so none can be overlapped: use graph_ranks to capture a "
            "parallel model"
        )
    selected = [
        collective
        for collective in select_group(graphs, captured, group)
        if kind in (None, collective.kind)
    ]
    if not selected:
        lines = [f"no collective matches ({which})", *_list_captured(captured)]
        raise AssertionError("\n".join(lines))
    need_a_limit("assert_overlapped", [(low, high)])
    unoverlapped = [collective for collective in selected if len(collective.overlap) < at_least]
    if len(unoverlapped) < low or (high is not None and len(unoverlapped) > high):
        title = "exposed collectives" + (f" ({which})" if which else "")
        counts = f"{len(unoverlapped)} of {len(selected)}"
        lines = [f"{title}: expected {format_bounds(low, high)}, found {counts}"]
        # If too few are exposed, the overlapped ones are the problem, so all are listed.
        lines += _explain_exposed(selected if len(unoverlapped) < low else unoverlapped, at_least)
        nodes = [collective.node for collective in unoverlapped]
        shows = UnexpectedOps(graphs, nodes, title) if nodes else None
        raise failed("\n".join(lines), shows)


def _need_known_views(graphs: Sequence[Graph]) -> None:
    for graph in graphs:
        if graph.level not in ATEN_LEVELS:
            raise CaptureError(
                f"overlap is unknown in a graph at level {graph.level!r}, which does not separate "
                "views from ops that compute: capture via 'aot', 'inductor' or 'dispatch'"
            )


def _explain_exposed(collectives: Sequence[Collective], at_least: int) -> Iterator[str]:
    """Describe collectives and their places, grouped by what lies between start and wait."""
    by_distance = grouped(
        (_describe_distance(collective, at_least), collective) for collective in collectives
    )
    for between, group in by_distance.items():
        yield f"  {between}:"
        yield from list_collectives(group)


def _describe_distance(collective: Collective, at_least: int) -> str:
    if collective.distance is None:
        return (
            "no wait in the graph: the collective is synchronous, or its wait is in another graph"
        )
    if collective.overlap:
        fewer = f" (fewer than {at_least})" if len(collective.overlap) < at_least else ""
        return f"computed before the wait: {', '.join(collective.overlap)}{fewer}"
    if collective.distance:
        return f"waited for {format_wait(collective)}"
    return "waited for immediately after it starts"
