"""Assertions on the number of graphs."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ..graph.census import calls
from ..graph.checks import bounds, device_of, format_bounds, need_a_limit

if TYPE_CHECKING:
    from .subject import Subject


def assert_graph_count(capture: Subject, forward: Any, backward: Any, total: Any) -> None:
    """See `Capture.assert_graph_count`."""
    __tracebackhide__ = True
    device = device_of(capture.graphs, capture.device)
    asked = [
        (word, *bounds(expected, device), graphs)
        for word, expected, graphs in (
            ("forward", forward, capture.forwards),
            ("backward", backward, capture.backwards),
            ("total", total, capture.graphs),
        )
        if expected is not None
    ]
    if capture.watched is None:  # of a watch any number says that something was compiled
        need_a_limit("assert_graph_count", [(low, high) for _, low, high, _ in asked])
    wrong: list[str] = []
    for word, low, high, graphs in asked:
        if len(graphs) < low or (high is not None and len(graphs) > high):
            wrong.append(f"  {word}: expected {format_bounds(low, high)}, found {len(graphs)}")
    if wrong:
        there = [
            f"  {graph.name}: {graph.kind}, {sum(call.times for call in calls([graph]))} ops"
            for graph in capture.graphs
        ]
        raise AssertionError(
            "\n".join(["graph count differs:", *wrong, "graphs captured:", *(there or ["  none"])])
        )
