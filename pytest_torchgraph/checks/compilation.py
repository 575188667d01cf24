"""Assertions on compilation: graph breaks, recompiles, and the number of graphs."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from textwrap import indent
from typing import TYPE_CHECKING, Any

from ..context import CONTEXT
from ..convert.source_lines import is_user_file, relative
from ..device_types import FIXTURE
from ..graph.census import calls
from ..graph.checks import bounds, device_of, device_types, format_bounds, need_a_limit
from ..graph.failures import Failure, failed
from ..settings.paths import allows, is_within, patterns
from ..watching.guards import IN_TORCH
from ..watching.observe import first_line
from ..words import listed
from .eager import switched_off, what_ran_uncompiled, why_no_graph, why_no_recompile_possible

if TYPE_CHECKING:
    from ..graph.events import GraphBreak
    from ..watching.compilations import Compilation
    from ..watching.recompiles import Recompile
    from ..watching.record import WatchRecord
    from .subject import Subject


@dataclass(frozen=True, slots=True)
class UnexpectedBreaks(Failure):
    """Unexpected graph breaks.

    Attributes:
        capture: the checked capture.
    """

    capture: Subject


def need_graphs(
    capture: Subject, *, allow: str | Sequence[str] | None = None, unreported: bool = False
) -> None:
    """Fail if a watch has no graph, or if code ran eagerly that should be compiled.

    Args:
        capture: the checked capture; everything except a watch passes.
        allow: regular expressions for tolerated eager calls, searched in `"kind: reason"`; `None`
            for checks without this argument.
        unreported: ignore frames that Dynamo abandoned, because they are among the graph breaks.

    Raises:
        AssertionError: with the cause.
    """
    __tracebackhide__ = True
    record = capture.watched
    if record is None:
        return
    if not capture.graphs:
        raise AssertionError(f"no graph was compiled:\n{why_no_graph(record)}")
    need_compiled(record, allow=allow, unreported=unreported)
    need_device(capture)


def need_device(capture: Subject) -> None:
    """Fail if the test is parametrized for a device and no compiled graph has a tensor on it.

    Raises:
        AssertionError: with the devices of the graphs.
    """
    __tracebackhide__ = True
    expected, present = CONTEXT.device, device_types(capture.graphs)
    if capture.graphs and expected is not None and expected not in present:
        raise AssertionError(
            f"nothing on {expected} was compiled in this test with {FIXTURE}={expected} (only on "
            f"{', '.join(sorted(present)) or 'no device'}): create model and inputs with "
            "device=graph_device"
        )


def need_counted(capture: Subject, total: Any, allow: str | Sequence[str]) -> None:
    """Act like `need_graphs`, but accept runs of compiled code if no graph is expected.

    Args:
        capture: the checked capture.
        total: the expected number of graphs, as in `assert_graph_count`.
        allow: see `need_graphs`.

    Raises:
        AssertionError: with the cause.
    """
    __tracebackhide__ = True
    record = capture.watched
    if record is not None and total is not None and bounds(total, _device(capture)) == (0, 0):
        _need_runs(capture, record, allow)
    else:
        need_graphs(capture, allow=allow)


def need_compiled(
    record: WatchRecord,
    *,
    allow: str | Sequence[str] | None = None,
    unreported: bool = False,
) -> None:
    """Fail if code ran eagerly that should be compiled; see `need_graphs`.

    Raises:
        AssertionError: with the cause of each eager call.
    """
    __tracebackhide__ = True
    uncompiled = what_ran_uncompiled(record, allow=allow or (), unreported=unreported)
    if uncompiled:
        kinds = ", ".join(f'"{kind}: "' for kind in dict.fromkeys(each.kind for each in uncompiled))
        raise AssertionError(
            "\n".join(
                [
                    "some calls ran eagerly, so the graphs do not contain everything that ran:",
                    *(f"  {call}" for call in uncompiled),
                    *([] if allow is None else [f"to allow them, pass allow=[{kinds}]"]),
                ]
            )
        )
    if record.disabled and not allows(
        patterns(allow or ()), f"disabled: {switched_off(record.disabled)}"
    ):
        raise AssertionError(switched_off(record.disabled))


def assert_graph_breaks(
    capture: Subject,
    count: Any,
    most: Any,
    allow: str | Sequence[str],
    within: Any,
) -> None:
    """See `Capture.assert_graph_breaks`."""
    __tracebackhide__ = True
    low, high = _limits(capture, count, most, "assert_graph_breaks")
    record = capture.record("graph breaks")
    if capture.watched is None:  # for a watch, any number asserts that something was compiled
        need_a_limit("assert_graph_breaks", [(low, high)])
    counted = counted_breaks(record, allow, within)
    wrong = len(counted) < low or (high is not None and len(counted) > high)
    if wrong and counted:
        message = breaks_in_words(counted, low, high, len(record.breaks))
        raise failed(message, UnexpectedBreaks(capture))
    need_graphs(capture, allow=allow, unreported=True)
    need_code_within(record, within)
    if wrong:
        raise AssertionError(f"graph breaks: expected {format_bounds(low, high)}, found none")


def need_code_within(record: WatchRecord, within: Any) -> None:
    """Fail if no compiled code is in `within`.

    Raises:
        AssertionError: with the files that were compiled.
    """
    __tracebackhide__ = True
    files = {file for each in record.compiled if not each.failure for file in each.files}
    if any(is_within(file, within) for file in (*files, *(each.path for each in record.breaks))):
        return
    shown = sorted(relative(file) for file in files if is_user_file(file))
    raise AssertionError(
        f"no code within={within!r} was compiled. Compiled code is in: "
        f"{listed(shown, 5, 'file') or 'torch only'}"
    )


def counted_breaks(
    record: WatchRecord, allow: str | Sequence[str] = (), within: Any = None
) -> list[GraphBreak]:
    """Return the graph breaks in `within` that `allow` does not match."""
    allowed = patterns(allow)
    is_within("", within)
    return [
        each
        for each in record.breaks
        if is_within(each.path, within) and not allows(allowed, f"{each.kind}: {each.reason}")
    ]


def breaks_in_words(counted: list[GraphBreak], low: int, high: int | None, there: int) -> str:
    """Return the message for a wrong number of graph breaks, with each break.

    Args:
        counted: the breaks that count.
        low, high: the expected number; `high` is `None` for no limit.
        there: the number of all breaks.
    """
    tolerated = there - len(counted)
    rest = f" ({tolerated} more are allowed)" if tolerated else ""
    return (
        f"graph breaks: expected {format_bounds(low, high)}, found {len(counted)}{rest}\n"
        + "\n".join(_shown(number, each) for number, each in enumerate(counted, 1))
    )


def is_inside(each: Recompile, within: Any) -> bool:
    """Return True if a recompilation is in `within`. A backward's belongs to all code."""
    return not each.path or is_within(each.path, within)


def _shown(number: int, each: GraphBreak) -> str:
    lines = [f"  {number}. {each.file}:{each.line} in {each.function}: {each.code}"]
    lines.append(f"     {each.kind}")
    if each.reason:
        lines.append(f"     {each.reason}")
    if each.module:
        lines.append(f"     module {each.module}")
    hints = each.hint.splitlines()
    lines += [f"     {'' if line.startswith(IN_TORCH) else 'hint: '}{line}" for line in hints]
    if len(each.stack) > 1:
        lines += [f"     from {frame}" for frame in each.stack[-4:-1][::-1]]
    if each.occurrences > 1:
        lines.append(f"     reached {each.occurrences} times during compilation")
    return "\n".join(lines)


def assert_recompiles(capture: Subject, count: Any, most: Any, allow: str | Sequence[str]) -> None:
    """See `Capture.assert_recompiles`."""
    __tracebackhide__ = True
    low, high = _limits(capture, count, most, "assert_recompiles")
    record = capture.record("recompilations")
    recompiles = record.recompiles
    wrong = len(recompiles) < low or (high is not None and len(recompiles) > high)
    if any(each.limit_hit for each in recompiles) or (wrong and recompiles):
        raise AssertionError(recompiles_in_words(recompiles, low, high))
    _need_runs(capture, record, allow)
    if wrong:
        raise AssertionError(f"recompilations: expected {format_bounds(low, high)}, found none")
    impossible = "" if recompiles else why_no_recompile_possible(record)
    if impossible:
        raise AssertionError(impossible)


def recompiles_in_words(recompiles: Sequence[Recompile], low: int, high: int | None) -> str:
    """Return the message for a wrong number of recompilations, with each of them."""
    head = f"recompilations: expected {format_bounds(low, high)}, found {len(recompiles)}"
    limit = [each for each in recompiles if each.limit_hit]
    if limit:
        head = (
            f"recompile limit reached: {limit[0].function} runs eagerly from then on "
            f"({len(recompiles)} recompilations)"
        )
    return "\n".join([head, *(indent(str(each), "  ") for each in recompiles)])


def _need_runs(capture: Subject, record: WatchRecord, allow: str | Sequence[str]) -> None:
    __tracebackhide__ = True
    if not record.executions and not capture.graphs:
        raise AssertionError(f"no compiled code ran:\n{why_no_graph(record)}")
    if capture.watched is not None:
        need_compiled(record, allow=allow)
        need_device(capture)


def assert_single_backward_graph(capture: Subject) -> None:
    """See `Capture.assert_single_backward_graph`."""
    __tracebackhide__ = True
    record = capture.record("compiled-autograd graphs")
    captures = [each for each in record.compiled if each.is_capture]
    problems = list(_capture_problems(record, captures))
    problems += _backward_problems(capture, record, captures)
    if problems:
        raise AssertionError("\n".join(["no single backward graph:", *problems]))
    if capture.watched is not None:
        need_compiled(record)
        need_device(capture)


def _capture_problems(record: WatchRecord, captures: Sequence[Compilation]) -> Iterator[str]:
    """Return the messages if compiled autograd did not capture exactly one backward."""
    if len(captures) > 1:
        yield f"compiled autograd captured the backward {len(captures)} times instead of once:"
        again = [each for each in record.recompiles if each.function == "backward"]
        yield from (indent(str(each), "  ") for each in again)
    if captures:
        return
    ran = [run for run in record.executions if run.startswith("!")]
    if ran:
        yield (
            "compiled autograd captured no backward in the watch: the backward that ran was "
            f"captured before ({', '.join(ran)}). Open the watch before the first backward, or "
            "call torch._dynamo.reset() first"
        )
    elif not record.executions:
        yield f"no compiled code ran:\n{why_no_graph(record)}"
    else:
        yield (
            "compiled autograd captured no backward: set torch._dynamo.config.compiled_autograd = "
            "True before calling torch.compile(...), and call backward() inside compiled code"
        )


def _backward_problems(
    capture: Subject, record: WatchRecord, captures: Sequence[Compilation]
) -> Iterator[str]:
    """Return the messages if Dynamo did not compile each captured backward as one graph."""
    inner = [
        each
        for each in record.compiled
        if each.id is not None and each.id.autograd is not None and not each.is_capture
    ]
    graphs = [each for each in inner if each.texts("dynamo") and not each.failure]
    if captures and len(graphs) > len(captures):
        yield f"Dynamo compiled the captured backward as {len(graphs)} graphs instead of one"
    failures = [first_line(each.reason) for each in inner if each.failure]
    yield from dict.fromkeys(f"compiling the backward failed: {reason}" for reason in failures)
    breaks = [each for each in record.breaks if each.compile_id.startswith("!")]
    for number, each in enumerate(breaks, 1):
        yield f"graph break in the backward:\n{_shown(number, each)}"
    if captures and not any(record.executions.get(str(each.id)) for each in captures):
        yield "the captured backward never ran"
    if captures and not graphs and not failures and capture.watched is not None:
        yield "Dynamo compiled no graph for the captured backward"


def _limits(capture: Subject, count: Any, most: Any, name: str) -> tuple[int, int | None]:
    if count is None and most is None:
        raise TypeError(f"{name}() checks nothing: give count= or max=")
    device = _device(capture)
    low, high = (0, None) if count is None else bounds(count, device)
    limit = None if most is None else bounds(most, device)[1]
    if limit is not None:
        high = limit if high is None else min(high, limit)
    return low, high


def _device(capture: Subject) -> str:
    """Return the device type that selects counts: the graphs', else the test's."""
    expected = None if capture.graphs else CONTEXT.device
    return device_of(capture.graphs, capture.device or expected)


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
    if capture.watched is None:  # for a watch, any number asserts that something was compiled
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
