"""Assertions on compilation: graph breaks, recompiles, and the number of graphs."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from textwrap import indent
from typing import TYPE_CHECKING, Any

from ..context import CONTEXT
from ..convert.source_lines import is_user_file, original_name, relative
from ..device_types import FIXTURE
from ..errors import CaptureError
from ..graph.census import calls
from ..graph.checks import bounds, device_of, device_types, format_bounds, need_a_limit
from ..graph.failures import Failure, failed
from ..settings.paths import allows, is_within, patterns
from ..watching.guard_text import IN_TORCH
from ..watching.guard_values import user_function
from ..watching.observe import first_line
from ..words import listed
from .eager import find_uncompiled_calls, format_disabled, why_no_graph, why_no_recompile_possible
from .subject import Subject

if TYPE_CHECKING:
    from ..graph.events import GraphBreak
    from ..watching.compilations import Compilation
    from ..watching.observe import CompiledCallable
    from ..watching.recompiles import Recompile
    from ..watching.record import WatchRecord


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
    """Fail if a watch has no graph, or if code ran eagerly or was compiled before the watch.

    Args:
        capture: the checked capture; everything except a watch passes.
        allow: regular expressions for tolerated eager calls, searched in `"kind: reason"`, and for
            code compiled before the watch; `None` for checks without this argument.
        unreported: True to ignore frames that Dynamo abandoned, which the graph breaks report.

    Raises:
        AssertionError: with the cause.
    """
    record = capture.watched
    if record is None:
        return
    if not capture.graphs:
        raise AssertionError(f"no graph was compiled:\n{why_no_graph(record)}")
    need_compiled(record, allow=allow, unreported=unreported)
    need_recorded(record, allow=allow)
    need_device(capture)


def need_recorded(record: WatchRecord | None, *, allow: str | Sequence[str] | None = None) -> None:
    """Fail if code ran in a watch that was compiled before it; see `need_graphs`.

    Raises:
        AssertionError: with the function, file and line of the code.
    """
    allowed = patterns(allow or ())
    earlier = record.compiled_earlier if record is not None else []
    if code := [text for text in earlier if not allows(allowed, text)]:
        lines = ["the record is incomplete, because it lacks graphs and breaks of code that ran:"]
        lines += [f"  {text}" for text in code]
        if allow is not None:
            lines.append(f"to allow this code, pass allow={code}")
        lines.append(
            "open the watch before the first call, call torch._dynamo.reset() first, or select "
            "other code with only(function=...)"
        )
        raise AssertionError("\n".join(lines))


def need_device(capture: Subject) -> None:
    """Fail if the test is parametrized for a device and no compiled graph has a tensor on it.

    Raises:
        AssertionError: with the devices of the graphs.
    """
    expected, captured_devices = CONTEXT.device, device_types(capture.graphs)
    if capture.graphs and expected is not None and expected not in captured_devices:
        raise AssertionError(
            f"nothing on {expected} was compiled in this test with {FIXTURE}={expected} (only on "
            f"{', '.join(sorted(captured_devices)) or 'no device'}): create model and inputs with "
            "device=graph_device"
        )


def need_counted(capture: Subject, total: Any, allow: str | Sequence[str]) -> None:
    """Fail like `need_graphs`, except that compiled code only needs to run if `total` is 0.

    Args:
        capture: the checked capture.
        total: the expected number of graphs, as in `assert_graph_count`.
        allow: see `need_graphs`.

    Raises:
        AssertionError: with the cause.
    """
    record = capture.watched
    # With total=0, the watch asserts that warm code is not compiled again.
    if record is not None and total is not None and bounds(total, _device(capture)) == (0, 0):
        _need_runs(capture, record, allow)
    else:
        need_graphs(capture, allow=allow)


def need_compiled(
    record: WatchRecord, *, allow: str | Sequence[str] | None = None, unreported: bool = False
) -> None:
    """Fail if code ran eagerly that should be compiled; see `need_graphs`.

    Raises:
        AssertionError: with the cause of each eager call.
    """
    uncompiled = find_uncompiled_calls(record, allow=allow or (), unreported=unreported)
    if uncompiled:
        kinds = ", ".join(f'"{kind}: "' for kind in dict.fromkeys(call.kind for call in uncompiled))
        lines = ["the graphs are incomplete, because these calls ran eagerly:"]
        lines += [f"  {call}" for call in uncompiled]
        if allow is not None:
            lines.append(f"to allow them, pass allow=[{kinds}]")
        raise AssertionError("\n".join(lines))
    disabled = format_disabled(record.disabled)
    if record.disabled and not allows(patterns(allow or ()), f"disabled: {disabled}"):
        raise AssertionError(disabled)


def need_code_within(record: WatchRecord, within: Any) -> None:
    """Fail if no compiled code is in `within`.

    Raises:
        AssertionError: with the files that were compiled.
    """
    compiled = [compilation for compilation in record.compiled if not compilation.failure]
    files = {file for compilation in compiled for file in compilation.files}
    break_paths = [graph_break.path for graph_break in record.breaks]
    if any(is_within(path, within) for path in (*files, *break_paths)):
        return
    file_names = sorted(relative(file) for file in files if is_user_file(file))
    raise AssertionError(
        f"no code within={within!r} was compiled. Compiled code is in: "
        f"{listed(file_names, 5, 'file') or 'torch only'}"
    )


def select_breaks(record: WatchRecord, allow: str | Sequence[str], within: Any) -> list[GraphBreak]:
    """Return the graph breaks in `within` that `allow` does not match."""
    allowed = patterns(allow)
    is_within("", within)  # raises for an invalid `within`, even if nothing broke
    return [
        graph_break
        for graph_break in record.breaks
        if is_within(graph_break.path, within)
        and not allows(allowed, f"{graph_break.kind}: {graph_break.reason}")
    ]


def format_breaks(counted: list[GraphBreak], low: int, high: int | None, total: int) -> str:
    """Return the message for a wrong number of graph breaks, with each break.

    Args:
        counted: the breaks that count.
        low, high: the expected number; `high` is `None` for no limit.
        total: the number of all breaks.
    """
    tolerated = total - len(counted)
    allowed_text = f" (and {tolerated} that allow= permits)" if tolerated else ""
    head = f"graph breaks: expected {format_bounds(low, high)}, found {len(counted)}{allowed_text}"
    return "\n".join([head, *(_format_break(*numbered) for numbered in enumerate(counted, 1))])


def is_recompile_within(recompile: Recompile, within: Any) -> bool:
    """Return True if a recompilation is in `within`, or is the recompilation of a backward."""
    return not recompile.path or is_within(recompile.path, within)


def _format_break(number: int, graph_break: GraphBreak) -> str:
    """Return the numbered lines about a graph break, with its callers."""
    lines = [
        f"  {number}. {graph_break.file}:{graph_break.line} in {graph_break.function}: "
        f"{graph_break.code}",
        f"     {graph_break.kind}",
    ]
    if graph_break.reason:
        lines.append(f"     {graph_break.reason}")
    if graph_break.module:
        lines.append(f"     module {graph_break.module}")
    hints = graph_break.hint.splitlines()
    lines += [f"     {'' if line.startswith(IN_TORCH) else 'hint: '}{line}" for line in hints]
    # The last frame is the line of the break itself. Its callers follow, the innermost first.
    if len(graph_break.stack) > 1:
        lines += [f"     from {frame}" for frame in graph_break.stack[-4:-1][::-1]]
    if graph_break.occurrences > 1:
        lines.append(f"     reached {graph_break.occurrences} times during compilation")
    return "\n".join(lines)


def format_recompiles(recompiles: Sequence[Recompile], low: int, high: int | None) -> str:
    """Return the message for a wrong number of recompilations, with each recompilation."""
    head = f"recompilations: expected {format_bounds(low, high)}, found {len(recompiles)}"
    limit_hits = [recompile for recompile in recompiles if recompile.limit_hit]
    if limit_hits:
        head = (
            f"recompile limit reached, so later calls to {limit_hits[0].function} run eagerly "
            f"({len(recompiles)} recompilations)"
        )
    lines = [head]
    described: set[tuple[str, ...]] = set()
    for recompile in recompiles:
        # torch repeats the guards of all earlier compilations. Print each guard and hint once.
        code = recompile.path, str(recompile.line)
        guards = {(*code, g.compile_id, g.guard or g.words): g for g in recompile.failed_guards}
        new = tuple(guard for key, guard in guards.items() if key not in described)
        described.update(guards)
        # A recompile without a new guard still needs a reason.
        words = str(replace(recompile, failed_guards=new or recompile.failed_guards[:1]))
        lines += [
            line
            for line in indent(words, "  ").splitlines()
            if line not in lines or not line.startswith("      hint: ")
        ]
    return "\n".join(lines)


def _need_runs(capture: Subject, record: WatchRecord, allow: str | Sequence[str]) -> None:
    """Fail if no compiled code ran, or if calls in a watch ran eagerly; see `need_graphs`."""
    if not record.executions and not capture.graphs:
        raise AssertionError(f"no compiled code ran:\n{why_no_graph(record)}")
    if capture.watched is not None:
        need_compiled(record, allow=allow)
        need_device(capture)


def _capture_problems(record: WatchRecord, captures: Sequence[Compilation]) -> Iterator[str]:
    """Yield a message if compiled autograd did not capture exactly one backward."""
    if len(captures) > 1:
        yield (
            f"compiled autograd captured the backward {len(captures)} times instead of once. The "
            "later captures, by compile id, and their causes:"
        )
        for recompile in record.recompiles:
            if recompile.function == "backward":
                yield indent(str(recompile), "  ")
    # The ids of captured backwards begin with "!".
    if earlier_runs := [str(run) for run in record.ran_earlier if run.id.startswith("!")]:
        yield (
            "a backward that ran was compiled before the watch (compile id "
            f"{', '.join(earlier_runs)}). Open the watch before the first backward, or call "
            "torch._dynamo.reset() first"
        )
    elif captures:
        return
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
    """Yield the reasons why Dynamo did not compile each captured backward as one graph."""
    # What Dynamo compiled of the captured backwards, not the captures themselves.
    backward_compilations = [
        c
        for c in record.compiled
        if c.id is not None and c.id.autograd is not None and not c.is_capture
    ]
    graphs = [c for c in backward_compilations if c.texts("dynamo") and not c.failure]
    if captures and len(graphs) > len(captures):
        yield f"Dynamo compiled the captured backward as {len(graphs)} graphs instead of one"
    failures = [first_line(c.reason) for c in backward_compilations if c.failure]
    yield from dict.fromkeys(f"compiling the backward failed: {reason}" for reason in failures)
    breaks = [b for b in record.breaks if b.compile_id.startswith("!")]
    for number, graph_break in enumerate(breaks, 1):
        yield f"graph break in the backward:\n{_format_break(number, graph_break)}"
    if captures and not any(record.executions.get(str(compilation.id)) for compilation in captures):
        yield "the captured backward never ran"
    # Only for a watch: a capture via "compiled_autograd" runs the backward without Dynamo.
    if captures and not graphs and not failures and capture.watched is not None:
        yield "Dynamo compiled no graph for the captured backward"


def _limits(capture: Subject, count: Any, maximum: Any, name: str) -> tuple[int, int | None]:
    """Return the smallest and the largest number that `count` and `maximum` both allow.

    Args:
        capture: the checked capture.
        count, maximum: as in `assert_graph_breaks`.
        name: name of the assertion, for the message.
    """
    if count is None and maximum is None:
        raise TypeError(f"{name}() checks nothing: pass count= or max=")
    device = _device(capture)
    low, high = (0, None) if count is None else bounds(count, device)
    # A maximum may be a mapping by device too.
    limit = None if maximum is None else bounds(maximum, device)[1]
    if limit is not None:
        high = limit if high is None else min(high, limit)
    return low, high


def _device(capture: Subject) -> str:
    """Return the device type for looking up counts: the capture's, or the test's without graphs."""
    expected = None if capture.graphs else CONTEXT.device
    return device_of(capture.graphs, capture.device or expected)


def describe_graphs(capture: Subject) -> list[str]:
    """Return a line for each graph, with its first source line, and a line about hooks."""
    lines = []
    for graph in capture.graphs:
        line = f"  {graph.name}: {graph.kind}, {sum(call.times for call in calls([graph]))} ops"
        source = next((node.source for node in graph.nodes if node.source is not None), None)
        if source is not None:
            line += f", from {source} in {original_name(source.function)}: {source.code}"
        lines.append(line)
    record = record_of_compiler(capture)
    if record is None:
        return lines
    hooks = {hook for callee in record.callables for hook in find_hooks(callee)}
    if any((c.file, c.line) in hooks for c in record.compiled):
        lines.append(
            "hooks of the compiled root module are frames of their own: compile a function that "
            "calls it, torch.compile(lambda *args: model(*args))"
        )
    return lines


def find_hooks(callee: CompiledCallable) -> Iterator[tuple[str, int]]:
    """Yield file and line of each forward hook of a module passed to torch.compile."""
    module = callee.owner and callee.owner()  # `None` for a function, or once it is freed
    for name in ("_forward_pre_hooks", "_forward_hooks"):
        for hook in getattr(module, name, {}).values():
            code = getattr(user_function(hook), "__code__", None)
            if code is not None:
                yield code.co_filename, code.co_firstlineno


def record_of_compiler(capture: Subject) -> WatchRecord | None:
    """Return the compiler's record, `None` if torch.compile did not make the capture."""
    try:
        return capture.record("compilations")
    except CaptureError:
        return None


def wrong_counts(capture: Subject, *counts: tuple[str, Any, int], limit_for: str) -> dict[str, str]:
    """Return a line for each count outside its expected bounds, by the words for the count.

    Args:
        counts: words, the expected count (`None` for any), and the actual count.
        limit_for: name of the check, which must limit a count; "" if it need not.

    Raises:
        TypeError: if the check must limit a count, and any count is allowed.
    """
    device = device_of(capture.graphs, capture.device)
    limits = {
        words: bounds(expected, device) for words, expected, _ in counts if expected is not None
    }
    if limit_for:
        need_a_limit(limit_for, limits.values())
    lines = {}
    for words, _, actual in counts:
        low, high = limits.get(words, (0, None))
        if actual < low or (high is not None and actual > high):
            lines[words] = f"  {words}: expected {format_bounds(low, high)}, found {actual}"
    return lines


class CompilationChecks(Subject):
    """Assertions on what torch.compile did; see `Capture`."""

    def assert_graph_count(
        self,
        forward: Any = None,
        backward: Any = None,
        total: Any = None,
        *,
        update: Any = None,
        allow: str | Sequence[str] = (),
    ) -> None:
        """Assert the number of graphs.

        `assert_graph_count()` expects one forward and one backward. If any count is given, omitted
        counts are not checked. A count is an int, a `(min, max)` pair with `None` for no limit, or
        a mapping of these by device type: `{"cpu": 2, "cuda": (1, None)}`.

        Args:
            forward: number of forward and inference graphs.
            backward: number of backward graphs that ran.
            update: number of graphs of the update of a training step.
            total: number of all graphs. With `total=0`, a watch passes if compiled code ran and
                nothing was compiled.
            allow: regular expressions for tolerated `EagerCall`s of a watch, searched in
                `"kind: reason"`, and for code in it that was compiled before it, searched in
                `"compiled before the watch: FUNCTION (FILE:LINE)"`.

        Raises:
            AssertionError: if a count differs, with the graphs; if a watch has no graphs, with the
                cause; or if calls in a watch ran eagerly, or code that was compiled before it.
            TypeError: if every given count allows any number. For a watch, these counts are valid
                and assert that something was compiled.
            CaptureError: for `update` on a capture that was made without `updates=`.
        """
        if forward is None and backward is None and total is None and update is None:
            forward = backward = 1
        need_counted(self, total, allow)
        if update is not None:
            self.phase("update")  # raises for a capture without `updates=`
        updates = sum(graph.kind == "update" for graph in self.graphs)
        problems = wrong_counts(
            self,
            ("forward", forward, len(self.forwards)),
            ("backward", backward, len(self.backwards)),
            ("update", update, updates),
            ("total", total, len(self.graphs)),
            # For a watch, any number asserts that something was compiled.
            limit_for="" if self.watched is not None else "assert_graph_count",
        )
        if problems:
            graph_lines = describe_graphs(self) or ["  none"]
            problem_lines = problems.values()
            lines = ["graph count differs:", *problem_lines, "graphs captured:", *graph_lines]
            raise AssertionError("\n".join(lines))

    def assert_no_graph_breaks(self, allow: str | Sequence[str] = (), within: Any = None) -> None:
        """Assert that there were no graph breaks.

        Args:
            allow: regular expressions, or literal parts, for tolerated breaks and `EagerCall`s of a
                watch, searched in `"kind: reason"`, and for code that was compiled before the
                watch; see `assert_graph_count`.
            within: a path, an importable package, or a sequence of these. Only breaks in this code
                count.

        Raises:
            AssertionError: if graphs broke, with each break, its line and its reason; if no graph
                was compiled, with the cause; if calls ran eagerly without a reported break, with
                these calls.
            CaptureError: if the capture did not go through torch.compile.
            ValueError: if `within` is neither a path nor a package.
        """
        self.assert_graph_breaks(0, allow=allow, within=within)

    def assert_graph_breaks(
        self,
        count: Any = None,
        max: Any = None,
        allow: str | Sequence[str] = (),
        within: Any = None,
    ) -> None:
        """Assert the number of distinct graph breaks; see `assert_no_graph_breaks`.

        `assert_graph_breaks(max=2)` fails on the third break. Breaks with the same file, line and
        kind count once.

        Args:
            count: an int, a `(min, max)` pair with `None` for no limit, or a mapping of these by
                device type.
            max: the maximum number.
            allow, within: see `assert_no_graph_breaks`. Tolerated breaks do not count.

        Raises:
            AssertionError, CaptureError, ValueError: see `assert_no_graph_breaks`.
            TypeError: if neither `count` nor `max` is given, or if they allow any number. For a
                watch, any number is valid and asserts that something was compiled.
        """
        low, high = _limits(self, count, max, "assert_graph_breaks")
        record = self.record("graph breaks")
        if self.watched is None:  # for a watch, any number asserts that something was compiled
            need_a_limit("assert_graph_breaks", [(low, high)])
        counted = select_breaks(record, allow, within)
        is_out_of_bounds = len(counted) < low or (high is not None and len(counted) > high)
        # A wrong number of breaks says more than what the watch lacks, so it is reported first.
        if is_out_of_bounds and counted:
            message = format_breaks(counted, low, high, len(record.breaks))
            raise failed(message, UnexpectedBreaks(self))
        need_graphs(self, allow=allow, unreported=True)
        need_code_within(record, within)
        if is_out_of_bounds:
            raise AssertionError(f"graph breaks: expected {format_bounds(low, high)}, found none")

    def assert_no_recompiles(self, *, allow: str | Sequence[str] = ()) -> None:
        """Assert that nothing was recompiled.

        The check needs code that could have been recompiled: compiled code that ran twice, or that
        was compiled before the watch.

        Args:
            allow: regular expressions for tolerated `EagerCall`s of a watch, searched in
                `"kind: reason"`.

        Raises:
            AssertionError: if code was recompiled, with each recompilation and its reasons; if
                calls ran eagerly, with these calls; or if no recompilation was possible.
            CaptureError: if the capture did not go through torch.compile.
        """
        self.assert_recompiles(0, allow=allow)

    def assert_recompiles(
        self, count: Any = None, max: Any = None, *, allow: str | Sequence[str] = ()
    ) -> None:
        """Assert the number of recompilations. Reaching Dynamo's recompile limit always fails.

        Args:
            count: an int, a `(min, max)` pair with `None` for no limit, or a mapping of these by
                device type.
            max: the maximum number.
            allow: tolerated eager calls; see `assert_no_recompiles`.

        Raises:
            AssertionError, CaptureError: see `assert_no_recompiles`.
            TypeError: if neither `count` nor `max` is given.
        """
        low, high = _limits(self, count, max, "assert_recompiles")
        record = self.record("recompilations")
        recompiles = record.recompiles
        is_out_of_bounds = len(recompiles) < low or (high is not None and len(recompiles) > high)
        if any(recompile.limit_hit for recompile in recompiles) or (
            is_out_of_bounds and recompiles
        ):
            raise AssertionError(format_recompiles(recompiles, low, high))
        _need_runs(self, record, allow)
        if is_out_of_bounds:
            raise AssertionError(f"recompilations: expected {format_bounds(low, high)}, found none")
        impossible = "" if recompiles else why_no_recompile_possible(record)
        if impossible:
            raise AssertionError(impossible)

    def assert_single_backward_graph(self) -> None:
        """Assert that compiled autograd captured the whole backward as one graph, and that it ran.

        There must be one capture, compiled to one graph without graph breaks.

        Raises:
            AssertionError: if there is not exactly one capture and one graph, with the reason for
                each additional capture; if a graph broke; or if the backward did not run.
            CaptureError: if the capture did not go through torch.compile.
        """
        record = self.record("compiled-autograd graphs")
        captures = [compilation for compilation in record.compiled if compilation.is_capture]
        problems = list(_capture_problems(record, captures))
        problems += _backward_problems(self, record, captures)
        if problems:
            raise AssertionError("\n".join(["no single backward graph:", *problems]))
        # As in `need_graphs`, whose other conditions are reported above.
        if self.watched is not None:
            need_compiled(record)
            need_device(self)
