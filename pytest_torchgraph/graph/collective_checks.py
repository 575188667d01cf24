"""Assertions about collectives: communication in graphs, and its overlap with compute."""

from __future__ import annotations

import difflib
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from ..errors import CaptureError
from ..ops.names import ATEN_LEVELS
from .checks import bounds, device_of, format_bounds, format_locations, need_a_limit, need_any_graph
from .collectives import Collective, format_over, format_size
from .failures import UnexpectedOps, failed
from .model import Graph

KINDS = (
    "all_reduce",
    "all_gather",
    "reduce_scatter",
    "all_to_all",
    "broadcast",
    "send",
    "recv",
    "reduce",
    "gather",
    "scatter",
    "barrier",
    "other",
)
"""Kinds of collectives."""

MOST = 8
"""Maximum number of collectives listed in a message; the rest is counted."""


def assert_collectives(
    graphs: Sequence[Graph],
    everything: Sequence[Collective],
    expected: Mapping[str, Any],
    group: str | None,
    bytes_: Any,
    exact: bool,
    device: str | None,
) -> None:
    """See `OpChecks.assert_collectives`.

    Args:
        graphs: the graphs to check.
        everything: all collectives in them.
        device: device type requested for the capture.
    """
    __tracebackhide__ = True
    _check_arguments(expected)
    need_any_graph(graphs)
    place = device_of(graphs, device)
    counts = {kind: bounds(count, place) for kind, count in expected.items()}
    if not exact:
        weight = [] if bytes_ is None or not counts else [bounds(bytes_, place)]
        need_a_limit("assert_collectives with exact=False", [*counts.values(), *weight])
    found = over_group(graphs, everything, group)
    wrong: list[str] = []
    unexpected: list[Collective] = []
    heavy: Sequence[Collective] = ()
    unknown = [each for each in everything if group and not each.group]
    if unknown:
        wrong.append(f"  {len(unknown)} over an unknown group, possibly {group}:")
        wrong += listed(unknown)
        unexpected += unknown
    for kind, (low, high) in counts.items():
        those = [each for each in found if each.kind == kind]
        if len(those) < low or (high is not None and len(those) > high):
            wrong.append(f"  {kind}: expected {format_bounds(low, high)}, found {len(those)}")
            wrong += listed(those)
            unexpected += those
    if exact:
        others = [each for each in found if each.kind not in expected]
        for kind in dict.fromkeys(each.kind for each in others):
            those = [each for each in others if each.kind == kind]
            wrong.append(f"  {kind}: expected none (exact=True), found {len(those)}")
            wrong += listed(those)
            unexpected += those
    if bytes_ is not None:
        those = [each for each in found if exact or each.kind in expected]
        problem, heavy = _wrong_bytes(those, bytes_, place)
        if problem:
            known = {id(each) for each in unexpected}
            wrong += [problem, *listed([each for each in heavy if id(each) not in known])]
    if wrong:
        title = "collectives differ" + (f" in group {group}" if group is not None else "")
        nodes = [each.node for each in unexpected]
        shows = UnexpectedOps(graphs, nodes, title) if nodes else None
        if not everything:
            wrong.append("  no collective was captured")
        elif not unexpected and not heavy:
            wrong += ["collectives captured:", *listed(everything)]
        raise failed("\n".join([f"{title}:", *wrong]), shows)


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


def over_group(
    graphs: Sequence[Graph], everything: Sequence[Collective], group: str | None
) -> list[Collective]:
    """Return the collectives over a group, `None` for all.

    Raises:
        ValueError: for an unknown group.
    """
    known = {name for top in graphs for graph in top.walk() for name in graph.groups}
    known.update(each.group for each in everything)
    if group is not None and group not in known:
        there = ", ".join(sorted(known - {""})) or "no group"
        raise ValueError(
            f"the check would be vacuous, because no collective runs over group {group!r}, and no "
            "mesh has this dimension: " + "\n".join([f"groups: {there}", *listed(everything)])
        )
    return [each for each in everything if group is None or each.group == group]


def _wrong_bytes(
    found: Sequence[Collective], limit: Any, device: str
) -> tuple[str, list[Collective]]:
    """Return the problem with the bytes, "" if there is none, and the collectives to look at."""
    low, high = bounds(limit, device)
    unknown = [each for each in found if each.bytes is None]
    if unknown:
        return "  bytes: unknown, because a size is symbolic", unknown
    total = sum(each.bytes or 0 for each in found)
    if low <= total and (high is None or total <= high):
        return "", []
    problem = f"  bytes: expected {format_bounds(low, high)}, found {total}"
    return problem, sorted(found, key=lambda each: -(each.bytes or 0))


def listed(found: Sequence[Collective]) -> Iterator[str]:
    """Yield lines that describe collectives and their places; equal lines are counted."""
    equal: Counter[tuple[str, ...]] = Counter(map(_described, found))
    for (what, *where), count in list(equal.items())[:MOST]:
        yield f"      {what}" + (f"  ({count} times)" if count > 1 else "")
        yield from (f"          {line}" for line in where)
    rest = sum(list(equal.values())[MOST:])
    if rest:
        yield f"      ... and {rest} more"


def _described(each: Collective) -> tuple[str, ...]:
    """Describe a collective and its place in lines."""
    what = f"{format_over(each, each.graph)}, {format_size(each)}"
    return what, *format_locations([each.node])


def assert_overlapped(
    graphs: Sequence[Graph],
    everything: Sequence[Collective],
    group: str | None,
    kind: str | None,
    at_least: int,
    exposed: Any,
    device: str | None,
) -> None:
    """See `OpChecks.assert_overlapped`.

    Args:
        graphs: the graphs to check.
        everything: all collectives in them.
        device: device type requested for the capture.
    """
    __tracebackhide__ = True
    if kind is not None:
        check_kind(kind)
    if isinstance(at_least, bool) or not isinstance(at_least, int):
        raise TypeError(f"at_least={at_least!r} is not a number of ops: pass an int of at least 1")
    if at_least < 1:
        raise ValueError(f"at_least={at_least} holds for every collective: pass at least 1")
    need_any_graph(graphs)
    _need_known_views(graphs)
    low, high = bounds(exposed, device_of(graphs, device))
    which = ", ".join(
        [f"kind {kind}"] * (kind is not None) + [f"group {group}"] * (group is not None)
    )
    if not everything:
        raise AssertionError("no collective was captured, so none can be overlapped")
    found = [each for each in over_group(graphs, everything, group) if kind in (None, each.kind)]
    if not found:
        there = "\n".join(["collectives captured:", *listed(everything)])
        raise AssertionError(f"no collective matches ({which})\n{there}")
    need_a_limit("assert_overlapped", [(low, high)])
    bare = [each for each in found if len(each.overlap) < at_least]
    if len(bare) < low or (high is not None and len(bare) > high):
        title = "exposed collectives" + (f" ({which})" if which else "")
        lines = [f"{title}: expected {format_bounds(low, high)}, found {len(bare)} of {len(found)}"]
        lines += _explained(bare, at_least)
        shows = UnexpectedOps(graphs, [each.node for each in bare], title) if bare else None
        raise failed("\n".join(lines), shows)


def _need_known_views(graphs: Sequence[Graph]) -> None:
    for graph in graphs:
        if graph.level not in ATEN_LEVELS:
            raise CaptureError(
                f"overlap is unknown in a graph at level {graph.level!r}, which does not separate "
                "views from ops that compute: capture via 'aot', 'inductor' or 'dispatch'"
            )


def _explained(bare: Sequence[Collective], at_least: int) -> Iterator[str]:
    """Describe each collective, its place, and the ops between its start and its wait."""
    alike: dict[str, list[Collective]] = {}
    for each in bare:
        alike.setdefault(_between(each, at_least), []).append(each)
    for between, those in alike.items():
        yield f"  {between}:"
        yield from listed(those)


def _between(each: Collective, at_least: int) -> str:
    if each.distance is None:
        return (
            "no wait in the graph: the collective is synchronous, or its wait is in another graph"
        )
    if each.overlap:
        computed = f"{', '.join(each.overlap)} (fewer than {at_least})"
        return f"computed before the wait: {computed}"
    if each.distance:
        return f"none of the {each.distance} calls before the wait computes"
    return "waited for immediately after it starts"
