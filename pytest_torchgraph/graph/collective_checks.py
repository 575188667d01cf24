"""The assertion about what graphs communicate."""

from __future__ import annotations

import difflib
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from .checks import bounds, device_of, format_bounds, format_locations, need_any_graph
from .collectives import Collective, collectives_of
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
"""The kinds of collectives."""

MOST = 8
"""How many collectives a message lists; the rest is counted."""


def assert_collectives(
    graphs: Sequence[Graph],
    expected: Mapping[str, Any],
    group: str | None = None,
    bytes_: Any = None,
    exact: bool = True,
    *,
    device: str | None = None,
) -> None:
    """See `OpChecks.assert_collectives`.

    Args:
        device: the device type that was asked for.
    """
    __tracebackhide__ = True
    _check_arguments(expected)
    need_any_graph(graphs)
    place = device_of(graphs, device)
    counts = {kind: bounds(count, place) for kind, count in expected.items()}
    if not exact and (bytes_ is None or not counts):
        _check_limits(counts)
    everything = collectives_of(graphs)
    found = [each for each in everything if group is None or each.group == group]
    if group is not None:
        known = {name for top in graphs for graph in top.walk() for name in graph.groups}
        _check_group(group, known.union(each.group for each in everything))
    wrong: list[str] = []
    unexpected: list[Collective] = []
    unknown = [each for each in everything if group and not each.group]
    if unknown:
        wrong.append(f"  {len(unknown)} over a group that is not known, which may be {group}:")
        wrong += _listed(unknown)
        unexpected += unknown
    for kind, (low, high) in counts.items():
        those = [each for each in found if each.kind == kind]
        if len(those) < low or (high is not None and len(those) > high):
            wrong.append(f"  {kind}: expected {format_bounds(low, high)}, found {len(those)}")
            wrong += _listed(those)
            unexpected += those
    if exact:
        others = [each for each in found if each.kind not in expected]
        for kind in dict.fromkeys(each.kind for each in others):
            those = [each for each in others if each.kind == kind]
            wrong.append(f"  {kind}: expected none (exact=True), found {len(those)}")
            wrong += _listed(those)
            unexpected += those
    if bytes_ is not None:
        wrong += _wrong_bytes(
            [each for each in found if exact or each.kind in expected], bytes_, place
        )
    if wrong:
        title = "collectives differ" + (f" in group {group}" if group is not None else "")
        nodes = [each.node for each in unexpected]
        shows = UnexpectedOps(graphs, nodes, title) if nodes else None
        if not unexpected and not everything:
            wrong.append("  no collective was captured at all")
        elif not unexpected:
            wrong += ["collectives captured:", *_listed(everything)]
        raise failed("\n".join([f"{title}:", *wrong]), shows)


def _check_limits(counts: Mapping[str, tuple[int, int | None]]) -> None:
    """Refuse what allows everything, where kinds that are not named are allowed."""
    if all(limits == (0, None) for limits in counts.values()):
        given = "{}" if not counts else "any number of each kind"
        raise TypeError(
            f"assert_collectives with {given} and exact=False checks nothing: name at least one "
            "kind with a limit, or leave exact=True, so that there may be no others"
        )


def _check_arguments(expected: Mapping[str, Any]) -> None:
    if not isinstance(expected, Mapping):
        raise TypeError(
            "expected a mapping from kind to count, as {'all_reduce': 2}, not "
            f"{type(expected).__name__}"
        )
    for kind in expected:
        if kind not in KINDS:
            close = difflib.get_close_matches(str(kind), KINDS, n=1)
            hint = f": did you mean {close[0]!r}?" if close else f": use {', '.join(KINDS)}"
            raise ValueError(f"{kind!r} is no kind of collective{hint}")


def _check_group(group: str, known: set[str]) -> None:
    if group not in known:
        there = ", ".join(sorted(known - {""})) or "no group"
        raise ValueError(
            f"no collective runs over a group {group!r}, and no mesh is known that has such a "
            f"dimension, so that a check of it would say nothing: there is {there}"
        )


def _wrong_bytes(found: Sequence[Collective], limit: Any, device: str) -> Iterator[str]:
    low, high = bounds(limit, device)
    unknown = [each for each in found if each.bytes is None]
    if unknown:
        yield "  bytes: not known, because a size is a symbol"
        yield from _listed(unknown)
        return
    total = sum(each.bytes or 0 for each in found)
    if total < low or (high is not None and total > high):
        yield f"  bytes: expected {format_bounds(low, high)}, found {total}"
        yield from _listed(sorted(found, key=lambda each: -(each.bytes or 0)))


def _listed(found: Sequence[Collective]) -> Iterator[str]:
    for each in found[:MOST]:
        yield f"      {each.kind} of {each.graph} over {each.group or 'an unknown group'}, " + (
            "unknown bytes" if each.bytes is None else f"{each.bytes} bytes"
        )
        yield from (f"          {line}" for line in format_locations([each.node]))
    if len(found) > MOST:
        yield f"      ... and {len(found) - MOST} more"
