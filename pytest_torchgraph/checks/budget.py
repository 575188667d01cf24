"""The assertion that a step costs no more than it may."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Literal

from ..graph.checks import bounds, format_bounds
from ..graph.cost.by_module import by_module
from ..graph.cost.cost import Cost
from ..graph.model import Graph

MOST = 5
"""How many modules a failure lists."""


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
        (lambda cost: cost.flops or 0) if name == "flops" else (lambda cost: cost.saved_bytes or 0)
    )
    word = "" if name != "peak_bytes" else " saved"
    largest = sorted(costs.items(), key=lambda item: (-value(item[1]), item[0]))[:MOST]
    return [
        f"{value(cost):>12}{word}  {module or '(no module)'}"
        for module, cost in largest
        if value(cost)
    ]
