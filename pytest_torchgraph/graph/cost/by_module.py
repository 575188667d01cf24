"""What graphs cost, by the modules in which their ops are."""

from __future__ import annotations

from collections.abc import Sequence

from ...ops.levels import SAVING_LEVELS
from ..model import Graph
from .cost import Cost
from .flops import flops_of
from .saved import saved_storages


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
