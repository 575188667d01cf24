"""The assertions. Each says what *was* there when it fails, and none passes on nothing."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from .errors import CaptureError
from .failures import Surplus, failed
from .graph.model import Graph, Node, Result, TensorMeta
from .graph.ops import calls, count_ops, matches
from .patterns import find, pattern_name

if TYPE_CHECKING:
    from .capturing.eager import Eager, Outcome
    from .capturing.result import Capture
    from .capturing.tolerances import Tolerance


def assert_op_counts(
    graphs: Sequence[Graph],
    expected: Mapping[Any, Any],
    *,
    exact: bool = False,
    device: str | None = None,
) -> None:
    """See `Capture.assert_op_counts`."""
    __tracebackhide__ = True
    if not isinstance(expected, Mapping):
        raise TypeError(f"expected a mapping from op to count, not {type(expected).__name__}")
    if not expected:
        raise TypeError("assert_op_counts({}) checks nothing: name at least one op")
    _need_graphs(graphs)
    wrong: list[str] = []
    surplus: list[Node] = []
    for op, count in expected.items():
        low, high = bounds(count, device_of(graphs, device))
        nodes = find(graphs, op)
        if high is not None and len(nodes) > high:
            surplus += nodes
        if len(nodes) < low or (high is not None and len(nodes) > high):
            wrong.append(f"  {pattern_name(op)}: expected {say(low, high)}, found {len(nodes)}")
            wrong += [f"      {line}" for line in places(nodes)]
    if exact:
        patterns = [pattern_name(op) for op in expected]
        for op, count in sorted(count_ops(graphs).items()):
            if not any(matches(op, pattern) for pattern in patterns):
                wrong.append(f"  {op}: matched by no pattern (exact=True), found {count}")
                surplus += [node for node in calls(graphs) if node.op == op]
    if wrong:
        shows = Surplus(graphs, surplus, "op counts differ") if surplus else None
        raise failed("\n".join(["op counts differ:", *wrong, *inventory(graphs)]), shows)


def assert_no_ops(graphs: Sequence[Graph], ops: tuple[Any, ...]) -> None:
    """See `Capture.assert_no_ops`."""
    __tracebackhide__ = True
    if not ops:
        raise TypeError("assert_no_ops() checks nothing: name at least one op")
    _need_graphs(graphs)
    wrong: list[str] = []
    surplus: list[Node] = []
    for op in ops:
        nodes = find(graphs, op)
        surplus += nodes
        if nodes:
            wrong.append(f"  {pattern_name(op)}: found {len(nodes)}")
            wrong += [f"      {line}" for line in places(nodes)]
    if wrong:
        title = "ops that should not be there"
        raise failed("\n".join([f"{title}:", *wrong]), Surplus(graphs, surplus, title))


def assert_graph_count(capture: Capture, forward: Any, backward: Any, total: Any) -> None:
    """See `Capture.assert_graph_count`."""
    __tracebackhide__ = True
    wrong: list[str] = []
    for word, expected, graphs in (
        ("forward", forward, capture.forwards),
        ("backward", backward, capture.backwards),
        ("total", total, capture.graphs),
    ):
        if expected is None:
            continue
        low, high = bounds(expected, device_of(capture.graphs, capture.device))
        if len(graphs) < low or (high is not None and len(graphs) > high):
            wrong.append(f"  {word}: expected {say(low, high)}, found {len(graphs)}")
    if wrong:
        there = [
            f"  {graph.name}: {graph.kind}, {sum(1 for _ in calls([graph]))} ops"
            for graph in capture.graphs
        ]
        raise AssertionError(
            "\n".join(["graph count differs:", *wrong, "graphs captured:", *(there or ["  none"])])
        )


def assert_matches_eager(
    capture: Capture,
    comparison: tuple[Eager, Callable[[], Outcome]] | None,
    rtol: Tolerance,
    atol: Tolerance,
) -> None:
    """See `Capture.assert_matches_eager`."""
    __tracebackhide__ = True
    _need_graphs(capture.graphs)
    if comparison is None:
        raise CaptureError(
            "there is no run to compare with: the capture was loaded from a file, or made with "
            "fake=True or by watch()"
        )
    from .capturing.eager import difference
    from .capturing.tolerances import is_all_nan

    eager, ran = comparison
    expected, outcome = eager.run(), ran()
    problem = difference(expected, outcome, rtol, atol)
    if problem is not None:
        raise AssertionError(problem)
    grads = outcome.grads
    if grads and not any(bool(grad.count_nonzero()) for grad in grads.values()):
        raise AssertionError(
            f"all {len(grads)} gradients are zero, so nothing is known about them: choose a "
            "loss_fn that depends on the output"
        )
    values = [*outcome.outputs.values(), *grads.values()]
    if values and all(is_all_nan(value) for value in values):
        raise AssertionError(
            "all outputs and gradients are NaN, so nothing is known about them: give the target "
            "inputs and parameters that it computes numbers from"
        )


def bounds(count: Any, device: str) -> tuple[int, int | None]:
    """The least and the greatest number that a count allows; None is no limit.

    Raises:
        TypeError: for what is not an int, a pair, or a mapping of these by device type.
        ValueError: for a negative count, or a mapping without the capture's device.
    """
    if isinstance(count, Mapping):
        if device not in count:
            raise ValueError(
                f"no count is given for device {device!r}, on which this was captured; there is "
                f"one for {', '.join(map(repr, count)) or 'no device'}"
            )
        return bounds(count[device], device)
    if isinstance(count, tuple | list) and len(count) == 2:
        low, high = count
    else:
        low = high = count
    low = 0 if low is None and isinstance(count, tuple | list) else low
    for value in (low, high):
        if isinstance(value, bool) or not isinstance(value, int | None):
            raise TypeError(
                f"{count!r} is no count: an int, a (min, max) pair, or a mapping by device type"
            )
    if low is None:
        raise TypeError("None is no count")
    if low < 0 or (high is not None and high < low):
        raise ValueError(f"{count!r} allows no count at all")
    return low, high


def device_of(graphs: Iterable[Graph], device: str | None = None) -> str:
    """The device type that graphs run on: of an accelerator where one takes part."""
    if device is not None:
        return device
    found = device_types(graphs)
    accelerators = sorted(found - {"cpu", "meta"})
    return accelerators[0] if accelerators else "meta" if found == {"meta"} else "cpu"


def device_types(graphs: Iterable[Graph]) -> set[str]:
    """The types of the devices that any result is on."""
    found: set[str] = set()

    def look(result: Result) -> None:
        if isinstance(result, TensorMeta) and result.device:
            found.add(result.device.partition(":")[0])
        elif isinstance(result, tuple):
            for item in result:
                look(item)

    for top in graphs:
        for graph in top.walk():
            for node in graph.nodes:
                look(node.result)
    return found


def say(low: int, high: int | None) -> str:
    """Bounds in words."""
    if high is None:
        return f"at least {low}"
    if low == high:
        return str(low)
    return f"{low} to {high}" if low else f"at most {high}"


def places(nodes: Sequence[Node], limit: int = 5) -> list[str]:
    """Where nodes are: module path and source line, one line for each place."""
    lines: dict[str, int] = {}
    for node in nodes:
        place = f"%{node.name}"
        if node.source is not None:
            place = f"{node.module or '(no module)'}  {node.source}: {node.source.code}"
        lines[place] = lines.get(place, 0) + 1
    shown = [
        line + (f"  ({count} times)" if count > 1 else "")
        for line, count in list(lines.items())[:limit]
    ]
    if len(lines) > limit:
        shown.append(f"... and {len(lines) - limit} more places")
    return shown


def inventory(graphs: Sequence[Graph], limit: int = 30) -> list[str]:
    """All ops that occur, with their counts."""
    counts = sorted(count_ops(graphs).items(), key=lambda item: (-item[1], item[0]))
    lines = [f"  {count:4} {op}" for op, count in counts[:limit]]
    if len(counts) > limit:
        lines.append(f"  ... and {len(counts) - limit} more ops")
    return ["ops captured:", *(lines or ["  none"])]


def _need_graphs(graphs: Sequence[Graph]) -> None:
    __tracebackhide__ = True
    if not graphs:
        raise AssertionError("no graph was captured, so nothing can be said about its ops")
