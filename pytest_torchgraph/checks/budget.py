"""The assertion on the cost of a step: FLOPs, saved bytes, peak memory, recomputed FLOPs."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, Literal

from ..errors import CaptureError
from ..graph.checks import bounds, format_bounds
from ..graph.cost import (
    Recomputed,
    by_module,
    flops_by_node,
    kept,
    producer_of,
    saved_bytes,
    why_none_counted,
)
from ..graph.diff import abridged
from ..graph.model import Graph, Source
from ..words import CHECK_BACKWARD, counted, grouped, is_index

MOST = 5
"""Maximum number of modules, or ops, in a failure message."""

_WHERE_MORE = (
    "  to see every module: print(capture.cost_table()). To see only the outer modules: "
    "print(capture.cost_table(depth=1))"
)

Figure = Literal["flops", "saved_bytes", "peak_bytes", "recomputed_flops"]


def assert_budget(
    graphs: Sequence[Graph],
    requested: Mapping[Figure, Any],
    figures: Mapping[Figure, Callable[[], int]],
    device: str,
    recomputed: Sequence[Recomputed] = (),
) -> None:
    """See `Capture.assert_budget`.

    Args:
        graphs: the graphs, for the failure message.
        requested: the given limits, by name.
        figures: functions that compute each cost.
        device: device type of the capture.
        recomputed: recomputed ops, for a limit on them.
    """
    limits = {name: limit for name, limit in requested.items() if limit is not None}
    if not limits:
        raise TypeError(
            "assert_budget() checks nothing: pass flops, saved_bytes, peak_bytes or "
            "recomputed_flops"
        )
    problems: list[str] = []
    unknown: list[CaptureError] = []  # each has a line in `problems` too
    for name, limit in limits.items():
        low, high = _limits(limit, device)
        if low <= 0 and high is None:
            raise TypeError(f"{name}={limit!r} checks nothing: pass a maximum, a minimum or both")
        try:
            measured = figures[name]()
        except CaptureError as error:
            unknown.append(error)
            problems.append(f"  {name}: {error}")
            continue
        if name == "flops" and not measured and (reason := why_none_counted(graphs)):
            problems.append(f"  flops: no FLOPs were counted, because {reason}")
        # With a limit of 0, a capture without a backward is right to save nothing.
        if name == "saved_bytes" and high != 0 and all(g.kind == "inference" for g in graphs):
            problems.append(
                "  saved_bytes: nothing is saved for the backward, because no graph has a "
                f"backward: {CHECK_BACKWARD}"
            )
        if measured < low or (high is not None and measured > high):
            problems.append(f"  {name}: expected {format_bounds(low, high)}, found {measured}")
            if name == "recomputed_flops":
                largest = _most_recomputed(recomputed)
            elif name == "flops":
                largest = _most_flops(graphs)
            else:
                largest = _most_saved(graphs)
            if name == "peak_bytes":
                problems.append(
                    "      of these, saved for the backward "
                    f"({saved_bytes(graphs)} bytes in total):"
                )
            problems += [f"      {line}" for line in largest]
            if name == "peak_bytes":
                problems.append(
                    "      the rest: gradients and intermediate results that are live at the peak"
                )
    # No limit is exceeded, but a cost is unknown: this is no failure of the model.
    if unknown and len(unknown) == len(problems):
        raise unknown[0]
    if problems:
        exceeded = any(": expected " in line for line in problems)
        hint = [_WHERE_MORE] * (exceeded and any(n.module for g in graphs for n in g.nodes))
        raise AssertionError("\n".join(["budget exceeded:", *problems, *hint]))


def _limits(limit: Any, device: str) -> tuple[int, int | None]:
    """Return the minimum and the maximum of a limit. A single int is the maximum."""
    if isinstance(limit, Mapping):
        return bounds({name: _as_pair(value) for name, value in limit.items()}, device)
    return bounds(_as_pair(limit), device)


def _as_pair(limit: Any) -> Any:
    """Return a limit as a pair. Anything invalid is returned as it is, for `bounds` to refuse."""
    if isinstance(limit, tuple | list):
        return type(limit)(map(_as_int, limit))
    limit = _as_int(limit)
    return (0, limit) if isinstance(limit, int) and not isinstance(limit, bool) else limit


def _as_int(value: Any) -> Any:
    """Convert an integral float to int, because large limits are written as 1e9."""
    return int(value) if isinstance(value, float) and value.is_integer() else value


def _most_flops(graphs: Sequence[Graph]) -> Iterator[str]:
    """Yield lines for the modules with the most FLOPs, and one line for the rest.

    The lines add up to the total. Layers share a line if they have equal FLOPs and their paths
    differ only in numbers.
    """
    # By the form of the path, such as `layers.0.mlp` for all layers, and the FLOPs.
    modules_by_cost: dict[tuple[str, int], list[str]] = {}
    costs_by_module = by_module(graphs)
    if [*costs_by_module] == [""]:  # no op has a module
        yield from _most_flops_by_line(graphs)
        return
    for module, cost in costs_by_module.items():
        if cost.flops:
            form = ".".join("0" if is_index(part) else part for part in module.split("."))
            modules_by_cost.setdefault((form, cost.flops), []).append(module)
    sums = {key: key[1] * len(modules) for key, modules in modules_by_cost.items()}
    largest = sorted(sums, key=lambda key: (-sums[key], key))
    for key in largest[:MOST]:
        per_module = f"  ({key[1]} each)" if len(modules_by_cost[key]) > 1 else ""
        yield f"{sums[key]:>12}  {abridged(modules_by_cost[key]) or '(no module)'}{per_module}"
    if omitted := largest[MOST:]:
        count = sum(len(modules_by_cost[key]) for key in omitted)
        yield f"{sum(sums[key] for key in omitted):>12}  in {counted(count, 'more module')}"


def _most_flops_by_line(graphs: Sequence[Graph]) -> Iterator[str]:
    """Return lines for the ops with the most FLOPs, for a capture without modules (a watch)."""
    entries = []
    for graph in graphs:
        for name, flops in flops_by_node(graph).items():
            node = graph[name]
            entries.append((node.op, node.source, node.module, (flops or 0) * graph.runs))
    return _by_line(entries, "FLOP")


def _most_saved(graphs: Sequence[Graph]) -> Iterator[str]:
    """Return lines for the ops with the most saved bytes, with modules and source lines."""
    entries = []
    for saved_value in kept(graphs):
        # For a projection of an op's results, the op.
        producer = producer_of(saved_value.graph, saved_value.node) or saved_value.node
        module = saved_value.node.module
        entries.append((producer.op, producer.source, module, saved_value.bytes))
    return _by_line(entries, "saved")


def _most_recomputed(recomputed: Sequence[Recomputed]) -> Iterator[str]:
    """Return lines for the ops with the most recomputed FLOPs, in the format of `_most_saved`."""
    entries = [
        (entry.op, entry.original.source, entry.original.module, entry.cost.flops or 0)
        for entry in recomputed
        if entry.counts
    ]
    return _by_line(entries, "recomputed")


def _by_line(entries: Iterable[tuple[str, Source | None, str, int]], word: str) -> Iterator[str]:
    """Yield the largest sums per op and source line, with the modules, and the sum of the rest.

    The calls of an op on one source line are one entry, regardless of their modules. The lines add
    up to the total.

    Args:
        entries: op, source line, module and size of each call.
        word: what the sizes are.
    """
    groups = grouped(((op, source), (module, size)) for op, source, module, size in entries if size)
    sizes = {key: sum(size for _, size in calls) for key, calls in groups.items()}
    largest = sorted(sizes.items(), key=lambda item: -item[1])
    for (op, source), size in largest[:MOST]:
        modules = abridged(filter(None, dict.fromkeys(module for module, _ in groups[op, source])))
        yield f"{size:>12} {word}  {f'{modules}: ' if modules else ''}{op}"
        if source is not None:
            yield f"{'':>14}{source}: {source.code}"
    if omitted := largest[MOST:]:
        size = sum(size for _, size in omitted)
        yield f"{size:>12} {word}  by {counted(len(omitted), 'more op')}"
