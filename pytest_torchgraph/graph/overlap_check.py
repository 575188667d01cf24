"""The assertion that collectives run while something is computed."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from ..errors import CaptureError
from ..ops.levels import ATEN_LEVELS
from .checks import bounds, device_of, format_bounds, need_a_limit, need_any_graph
from .collective_checks import check_kind, listed, over_group
from .collectives import Collective
from .failures import UnexpectedOps, failed
from .model import Graph


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
        graphs: what is checked.
        everything: all collectives in it.
        device: the device type that was asked for.
    """
    __tracebackhide__ = True
    if kind is not None:
        check_kind(kind)
    if isinstance(at_least, bool) or not isinstance(at_least, int):
        raise TypeError(f"at_least={at_least!r} is no number of ops")
    if at_least < 1:
        raise ValueError(f"at_least={at_least} holds for every collective: ask for 1 at least")
    need_any_graph(graphs)
    _need_known_views(graphs)
    low, high = bounds(exposed, device_of(graphs, device))
    which = ", ".join(
        [f"kind {kind}"] * (kind is not None) + [f"group {group}"] * (group is not None)
    )
    if not everything:
        raise AssertionError("no collective was captured at all, so that none could be overlapped")
    found = [each for each in over_group(graphs, everything, group) if kind in (None, each.kind)]
    if not found:
        there = "\n".join(["collectives captured:", *listed(everything)])
        raise AssertionError(f"no collective to be overlapped ({which})\n{there}")
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
                f"in a graph at level {graph.level!r} it is not known which ops compute and which "
                "are views: capture via 'aot', 'inductor' or 'dispatch'"
            )


def _explained(bare: Sequence[Collective], at_least: int) -> Iterator[str]:
    """Each collective, where it is, and what is between its start and its wait."""
    alike: dict[str, list[Collective]] = {}
    for each in bare:
        alike.setdefault(_between(each, at_least), []).append(each)
    for between, those in alike.items():
        yield f"  {between}:"
        yield from listed(those)


def _between(each: Collective, at_least: int) -> str:
    if each.distance is None:
        return "no wait was found, for it is at once, or outside of the graph"
    if each.overlap:
        computed = f"{', '.join(each.overlap)}, which is fewer than {at_least}"
        return f"until the wait this computes: {computed}"
    if each.distance:
        return f"of {each.distance} calls until the wait none computes"
    return "waited for directly after the start"
