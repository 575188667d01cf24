"""What a step costs, by module, and the assertion that it costs no more."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from ..graph.checks import bounds, format_bounds
from ..graph.flops import flops_of
from ..graph.model import Graph
from ..ops.levels import SAVING_LEVELS
from .saved import saved_storages

MOST = 5
"""How many modules a failure lists."""


@dataclass(frozen=True, slots=True)
class Cost:
    """What some ops cost.

    Attributes:
        flops: floating-point operations (see `Graph.flops`); ops without a formula are left out.
        saved_bytes: the bytes that are kept for the backward (see `Capture.saved_bytes`); None
            where that is not known.
    """

    flops: int
    saved_bytes: int | None


def by_module(
    graphs: Sequence[Graph], depth: int | None = None, *, times_run: bool = True
) -> dict[str, Cost]:
    """What the ops of graphs cost, by the path of their module; see `Capture.by_module`."""
    if depth is not None and (isinstance(depth, bool) or not isinstance(depth, int) or depth < 0):
        raise ValueError(f"depth={depth!r} is no depth of modules: an int of at least 0, or None")
    flops: dict[str, int] = {}
    saved: dict[str, int] = {}
    known = all(graph.level in SAVING_LEVELS for graph in graphs)
    for graph in graphs:
        times = graph.runs if times_run else 1
        for module, count in flops_of(graph).by_module.items():
            path = _cut(module, depth)
            flops[path] = flops.get(path, 0) + count * times
        for storage in saved_storages(graph) if known else ():
            path = _cut(storage.node.module, depth)
            saved[path] = saved.get(path, 0) + storage.bytes * times
    return {
        path: Cost(flops.get(path, 0), saved.get(path, 0) if known else None)
        for path in sorted(flops.keys() | saved.keys())
    }


def _cut(path: str, depth: int | None) -> str:
    return path if depth is None else ".".join(path.split(".")[:depth])


Figure = Literal["flops", "saved_bytes", "peak_bytes"]


def assert_budget(
    graphs: Sequence[Graph],
    asked: Mapping[Figure, Any],
    figures: Mapping[Figure, Callable[[], int]],
    device: str,
) -> None:
    """See `Capture.assert_budget`.

    Args:
        graphs: the graphs, for what a failure lists.
        asked: the limits that were given, by their names.
        figures: what computes each figure.
        device: the device type of the capture.
    """
    __tracebackhide__ = True
    limits = {name: limit for name, limit in asked.items() if limit is not None}
    if not limits:
        raise TypeError("assert_budget() checks nothing: pass flops, saved_bytes or peak_bytes")
    wrong: list[str] = []
    for name, limit in limits.items():
        low, high = _limits(limit, device)
        found = figures[name]()
        if name == "saved_bytes" and high != 0 and all(g.kind == "inference" for g in graphs):
            wrong.append("  saved_bytes: nothing is kept, because no graph has a backward")
        if found < low or (high is not None and found > high):
            wrong.append(f"  {name}: expected {format_bounds(low, high)}, found {found}")
            wrong += [f"      {line}" for line in _largest(graphs, name)]
    if wrong:
        raise AssertionError("\n".join(["the budget does not hold:", *wrong]))


def _limits(limit: Any, device: str) -> tuple[int, int | None]:
    """The least and the greatest value; an int alone is the greatest."""
    if isinstance(limit, Mapping):
        return bounds({name: _as_pair(value) for name, value in limit.items()}, device)
    return bounds(_as_pair(limit), device)


def _as_pair(limit: Any) -> Any:
    return (0, limit) if isinstance(limit, int) and not isinstance(limit, bool) else limit


def _largest(graphs: Sequence[Graph], name: Figure) -> Iterable[str]:
    """The modules that cost most; a peak is not of single modules, so what is saved is shown."""
    costs = by_module(graphs)
    value: Callable[[Cost], int] = (
        (lambda cost: cost.flops) if name == "flops" else (lambda cost: cost.saved_bytes or 0)
    )
    word = "" if name != "peak_bytes" else " saved"
    largest = sorted(costs.items(), key=lambda item: (-value(item[1]), item[0]))[:MOST]
    return [
        f"{value(cost):>12}{word}  {module or '(no module)'}"
        for module, cost in largest
        if value(cost)
    ]
