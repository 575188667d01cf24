"""Assertions about the ops of graphs.

The message of a failing assertion lists the captured ops. An assertion raises an error if it has no
graph or no op to check.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from ..ops.impossible import pattern_name
from ..ops.matching import is_glob, matches
from ..words import first_lines, grouped
from .census import OpCall, calls
from .failures import UnexpectedOps, failed
from .find import find_calls, times
from .model import Graph, Node
from .select import Selection, inside, nodes_of, tensors

MAX_PLACES = 5
"""Maximum number of places of an op that a message lists. Further places are only counted."""
MAX_OPS = 30
"""Maximum number of captured ops that a message lists. Further ops are only counted."""


def assert_op_counts(
    graphs: Sequence[Graph],
    expected: Mapping[Any, Any],
    *,
    exact: bool = False,
    device: str | None = None,
    selected: Selection | None = None,
) -> None:
    """See `Capture.assert_op_counts`."""
    __tracebackhide__ = True
    if not isinstance(expected, Mapping):
        raise TypeError(
            "expected a mapping from op to count, such as {'aten.mm': 2}, not "
            f"{type(expected).__name__}"
        )
    if not expected:
        raise TypeError("assert_op_counts({}) checks nothing: name at least one op")
    need_any_graph(graphs)
    limits = {op: bounds(count, device_of(graphs, device)) for op, count in expected.items()}
    if not exact:
        need_a_limit("assert_op_counts", limits.values())
    problems: list[str] = []
    unexpected: list[Node] = []
    for op, (low, high) in limits.items():
        matching = find_calls(graphs, op, selected)
        count = times(matching, selected)
        too_many = high is not None and count > high
        if too_many:
            unexpected += [call.node for call in matching]
        if too_many or count < low:
            problems.append(
                f"  {pattern_name(op)}: expected {format_bounds(low, high)}, found {count}"
            )
            problems += [f"      {line}" for line in format_places(matching, op, selected)]
    if exact:
        for name, others in _find_unmatched(graphs, expected, selected):
            count = times(others, selected)
            problems.append(f"  {name}: matches no pattern (exact=True), found {count}")
            unexpected += [call.node for call in others]
    if problems:
        title = f"op counts differ{f' ({selected})' if selected else ''}"
        shows = UnexpectedOps(graphs, unexpected, title) if unexpected else None
        captured = format_op_counts(graphs, selected)
        raise failed("\n".join([f"{title}:", *problems, *captured]), shows)


def _find_unmatched(
    graphs: Sequence[Graph], expected: Iterable[Any], selected: Selection | None
) -> list[tuple[str, list[OpCall]]]:
    """Return the ops that no expected pattern matches, with their calls, sorted by name."""
    patterns = [pattern_name(op) for op in expected]
    calls_by_op = grouped(
        (call.op, call) for call in calls(graphs) if not selected or call in selected
    )
    return [
        (op, ops)
        for op, ops in sorted(calls_by_op.items())
        if not any(matches(op, pattern) for pattern in patterns)
    ]


def assert_no_ops(
    graphs: Sequence[Graph], ops: tuple[Any, ...], *, selected: Selection | None = None
) -> None:
    """See `Capture.assert_no_ops`."""
    __tracebackhide__ = True
    if not ops:
        raise TypeError("assert_no_ops() checks nothing: name at least one op")
    need_any_graph(graphs)
    problems: list[str] = []
    unexpected: list[Node] = []
    for op in ops:
        matching = find_calls(graphs, op, selected)
        if count := times(matching, selected):
            unexpected += [call.node for call in matching]
            problems.append(f"  {pattern_name(op)}: found {count}")
            problems += [f"      {line}" for line in format_places(matching, op, selected)]
    if problems:
        title = f"unexpected ops{f' ({selected})' if selected else ''}"
        shows = UnexpectedOps(graphs, unexpected, title)
        raise failed("\n".join([f"{title}:", *problems]), shows)


def bounds(count: Any, device: str) -> tuple[int, int | None]:
    """Return the minimum and the maximum that a count allows. `None` means no limit.

    Args:
        count: an int, a (min, max) pair in which `None` means no limit, or a mapping from a device
            type to an int or a pair.
        device: device type on which the graphs run.

    Raises:
        TypeError: if the count is not an int, a pair, or a mapping of these by device type.
        ValueError: for a negative count, or a mapping without the capture's device.
    """
    if isinstance(count, Mapping):
        if device not in count:
            raise ValueError(
                f"missing count for device {device!r} (given: "
                f"{', '.join(map(repr, count)) or 'no device'})"
            )
        return bounds(count[device], device)
    is_pair = isinstance(count, tuple | list) and len(count) == 2
    low, high = count if is_pair else (count, count)
    # `None` is a limit inside a pair, but alone it is no count.
    if count is None or any(
        isinstance(value, bool) or not isinstance(value, int | None) for value in (low, high)
    ):
        raise TypeError(
            f"{count!r} is not a valid count: pass an int, a (min, max) pair, or a mapping by "
            "device type, such as {'cuda': 2}"
        )
    low = low or 0
    if low < 0 or (high is not None and high < low):
        raise ValueError(
            f"no number satisfies the count {count!r}: pass (min, max) with 0 <= min <= max"
        )
    return low, high


def need_a_limit(name: str, limits: Iterable[tuple[int, int | None]]) -> None:
    """Reject limits that can never fail.

    Args:
        name: name of the assertion.
        limits: results of `bounds`.

    Raises:
        TypeError: if every limit allows any number.
    """
    if all(limit == (0, None) for limit in limits):
        raise TypeError(
            f"{name} checks nothing, because (0, None) allows any count: pass a minimum or a "
            "maximum"
        )


def device_of(graphs: Iterable[Graph], device: str | None) -> str:
    """Return the device type on which graphs run: an accelerator if any result is on one.

    Args:
        device: the device type, if the capture records it.
    """
    if device is not None:
        return device
    types = device_types(graphs)
    accelerators = sorted(types - {"cpu", "meta"})
    return accelerators[0] if accelerators else "meta" if types == {"meta"} else "cpu"


def device_types(graphs: Iterable[Graph]) -> set[str]:
    """Return the device types of all results."""
    return {
        tensor.device.partition(":")[0]
        for node in nodes_of(graphs)
        for tensor in tensors(node.result)
        if tensor.device
    }


def format_bounds(low: int, high: int | None) -> str:
    """Format bounds in words."""
    if high is None:
        return f"at least {low}"
    if low == high:
        return str(low)
    return f"{low} to {high}" if low else f"at most {high}"


def format_locations(nodes: Sequence[Node], limit: int = MAX_PLACES) -> list[str]:
    """Format the module path and source line of nodes, one line per place.

    Args:
        limit: maximum number of listed places. Further places are only counted, so that a message
            stays readable.
    """
    lines = Counter(_format_place(node, node.module) for node in nodes)
    return _list_lines(lines, limit)


def format_places(op_calls: Sequence[OpCall], op: Any, selected: Selection | None) -> list[str]:
    """Format the places of calls of `op`, one line for each place and module.

    If `op` is a glob, which says little about the calls, a line begins with the op of the call.
    """
    lines: Counter[str] = Counter()
    is_any = is_glob(pattern_name(op))
    for call in op_calls:
        name = f"{call.op}  " if is_any else ""
        for module, count in call.modules.items():
            if not (selected and selected.module) or inside(module, selected.module):
                lines[name + _format_place(call.node, module)] += count
    return _list_lines(lines, MAX_PLACES)


def _format_place(node: Node, module: str) -> str:
    if node.source is None:
        return f"%{node.name}"
    return f"{module or '(no module)'}  {node.source}: {node.source.code}"


def _list_lines(lines: Mapping[str, int], limit: int) -> list[str]:
    shown = [line + (f"  ({count} times)" if count > 1 else "") for line, count in lines.items()]
    return first_lines(shown, limit, "place")


def format_op_counts(graphs: Sequence[Graph], selected: Selection | None) -> list[str]:
    """Format the ops that occur, with their counts, most frequent first.

    Args:
        selected: filter of the ops; `None` for all.
    """
    totals: Counter[str] = Counter()
    for call in calls(graphs):
        if not selected or call in selected:
            totals[call.op] += selected.times(call) if selected else call.times
    counts = sorted(totals.items(), key=lambda item: (-item[1], item[0]))
    lines = first_lines([f"{count:4} {op}" for op, count in counts], MAX_OPS, "op")
    return ["ops captured:", *(f"  {line}" for line in lines or ["none"])]


def need_any_graph(graphs: Sequence[Graph]) -> None:
    """Fail if there is no graph or no node, because an assertion about ops would check nothing."""
    __tracebackhide__ = True
    if not any(graph.nodes for graph in graphs):
        problem = "the graph has no nodes" if graphs else "no graph was captured"
        raise AssertionError(f"{problem}, so no op can be checked: capture code that runs ops")
