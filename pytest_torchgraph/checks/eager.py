"""The assertion that no op ran eagerly, and the reasons why nothing was compiled.

A check on a watch fails if there is nothing to check, and the functions here explain why. A
function that returns "" or an empty list found no reason.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from typing import Any

from ..graph.events import EagerOp, GraphBreak
from ..graph.failures import UnexpectedOps, failed
from ..graph.find import refuse_hidden
from ..graph.model import Graph, Node
from ..ops import registry
from ..ops.impossible import pattern_name, refuse_impossible
from ..ops.matching import is_glob, matches
from ..settings.paths import allows, patterns
from ..watching.record import EagerCall, WatchRecord, eager_calls_of
from ..words import counted, listed
from .subject import Subject

_SERVED = (
    "it was compiled before the watch and served from Dynamo's cache. Open the watch before the "
    "first call, or call torch._dynamo.reset() first. To check warm calls, use "
    "assert_no_recompiles()"
)
_SERVED_AFTER_WARM_UP = (
    "nothing was compiled after the warm-up, so there are neither graphs nor graph breaks to "
    "check. Put a graph_capture.watch() around the first call and check that instead, or use "
    "assert_no_recompiles() here"
)
_NO_OPS = "it computes nothing, or only in code that Dynamo or torch.compiler.disable skips"
_FILE = re.compile(r"(?P<file>.+\.py)(?::(?P<line>\d+))?\Z")
"""An entry of `allow` that is a file or a line."""


def _pattern(allowed: Any) -> Callable[[EagerOp], bool]:
    """Return the predicate for an entry of `allow`.

    Raises:
        ValueError: if an op pattern cannot match any eager op.
    """
    location = _FILE.match(allowed) if isinstance(allowed, str) else None
    if location is not None:
        file, line = location["file"], location["line"]

        def is_there(op: EagerOp) -> bool:
            source = op.source
            return (
                source is not None
                and (source.file == file or source.file.endswith(f"/{file}"))
                and (line is None or source.line == int(line))
            )

        return is_there
    name = pattern_name(allowed)
    refuse_impossible(allowed, ("dispatch",))
    return lambda op: matches(op.op, name)


def _refuse_everything(allow: Sequence[Any]) -> None:
    """Refuse op patterns that together match most ops of torch, for example `"aten.*"`.

    Raises:
        ValueError: if more than half of the ops that an eager run can dispatch are allowed.
    """
    globs = [name for name in allow if isinstance(name, str) and is_glob(name)]
    allowed = {op for name in globs for op in registry.matching(name)}
    ops = [op for op in registry.registered() if op.startswith("aten.") if not op.endswith("out")]
    if 2 * len(allowed.intersection(ops)) > len(ops):
        allowed_text = globs[0] if len(globs) == 1 else globs
        raise ValueError(
            f"allow={allowed_text!r} allows every op, so nothing is checked: name individual ops"
        )


def _lines(eager_ops: Sequence[EagerOp], graphs: Sequence[Graph]) -> list[str]:
    """Return lines that list the ops by graph and source line, with the causes."""
    by_name = {graph.name: graph for graph in graphs}
    places: dict[tuple[str, GraphBreak | None, str, str], list[str]] = {}
    for op in eager_ops:
        source = op.source
        location = "unknown line in your code"
        if source is not None:
            location = f"{source} in {source.function}: {source.code}"
        places.setdefault((op.graph, op.cause, location, op.module), []).append(op.op)
    lines: list[str] = []
    previous: tuple[str, GraphBreak | None] | None = None
    for (name, cause, location, module), ops in places.items():
        graph = by_name[name]
        if previous is None or name != previous[0]:
            runs = f", ran {graph.runs} times" if graph.runs > 1 else ""
            lines.append(f"  {name} ({graph.kind}{runs})")
        if (name, cause) != previous:
            lines += [f"    {line}" for line in _cause(cause)]
        previous = name, cause
        module_text = f" [{module}]" if module else ""
        lines += [f"    {location}{module_text}", f"      {listed(dict.fromkeys(ops), 6)}"]
    return lines


def _cause(cause: GraphBreak | None) -> list[str]:
    """Return the lines about why ops ran eagerly, empty if unknown."""
    if cause is None:
        return []
    lines = [f"because of: {cause.kind}: {cause.reason}"]
    if cause.hint:
        lines += [f"  {line}" for line in cause.hint.splitlines()]
    return lines


def _nodes(eager_ops: Sequence[EagerOp], graphs: Sequence[Graph]) -> list[Node]:
    """Return the nodes that eager ops belong to, for the picture."""
    op_keys = {(op.graph, op.op) for op in eager_ops}
    return [node for graph in graphs for node in graph.nodes if (graph.name, node.op) in op_keys]


def format_disabled(setting: str) -> str:
    """Return the text about a setting that disables all compilation."""
    return f"torch.compile is disabled by {setting}"


def why_no_graph(record: WatchRecord) -> str:
    """Explain why a watch has no graph, one line per cause.

    Args:
        record: the record of the watch.
    """
    scope_text = f" for {record.part}" if record.part else ""
    if not record.opened:
        return "the watch was not entered: use `with graph_capture.watch() as capture:`"
    causes = []
    if record.disabled:
        causes.append(format_disabled(record.disabled))
    causes += map(str, record.eager_calls)
    causes += [
        f"{graph_break.kind}: {graph_break.reason} ({graph_break.file}:{graph_break.line})"
        for graph_break in record.breaks
    ]
    if causes:
        return "\n".join(f"  {cause}" for cause in dict.fromkeys(causes))
    runs_text = ", ".join(
        f"{run} once" if n == 1 else f"{run} {n} times" for run, n in record.executions.items()
    )
    if runs_text:  # code ran, but it was compiled before the watch
        reason = _SERVED_AFTER_WARM_UP if record.warmed_up else _SERVED
        places = "".join(f"\n  {place}" for place in record.compiled_earlier)
        return f"  compiled code ran{scope_text} ({runs_text}), but {reason}{places}"
    names = [compilation.function or "?" for compilation in record.compiled]
    # Something was compiled or called, and yet there is neither a graph nor a reason.
    if names := names or [callee.name for callee in record.callables]:
        functions = ", ".join(dict.fromkeys(names))
        if not record.compiled and all(callee.raised for callee in record.callables):
            return f"  {functions} raised an exception, so no compiled code ran"
        return f"  Dynamo found no tensor operations in {functions}: {_NO_OPS}"
    matching = f" that matches {record.part}" if record.part else ""
    advice = "torch.compile(...) compiles nothing by itself: call its result inside the watch"
    if record.compiled_in_all:
        advice = (
            f"The compiled functions are: {listed(dict.fromkeys(record.compiled_in_all))}. A "
            "function that they call is part of their graphs: pass the name of the compiled "
            "function instead"
        )
    return f"  no compiled function or module{matching} was called inside the watch. {advice}"


def find_uncompiled_calls(
    record: WatchRecord, *, allow: str | Sequence[str], unreported: bool
) -> list[EagerCall]:
    """Return the calls of compiled callables that ran eagerly although other code ran compiled.

    Args:
        record: the record of the watch.
        allow: regular expressions for calls to omit, searched in `"kind: reason"`.
        unreported: True to omit frames that the graph breaks report.
    """
    reported = {
        (compilation.function, compilation.file, compilation.line)
        for compilation in record.compiled
        if unreported and compilation.failure and not compilation.limit_hit
    }
    # The break at a call of a disabled function reports that this function ran eagerly.
    disabled = unreported and any(
        "torch.compiler.disable" in graph_break.kind for graph_break in record.breaks
    )
    allowed = patterns(allow)
    return [
        call
        for call, cause in eager_calls_of(record.callables, record.recompiles)
        if not allows(allowed, f"{call.kind}: {call.reason}")
        and not (cause is not None and (cause.function, cause.file, cause.line) in reported)
        and not (disabled and call.kind == "disabled")
    ]


def why_no_recompile_possible(record: WatchRecord) -> str:
    """Explain why no recompilation was possible: no compiled code was called again.

    Args:
        record: the record of the watch.

    Returns:
        "" if one was possible, or if that is unknown.
    """
    # Code that was compiled before the watch could have been compiled again in its first run here.
    ran_twice = any(count > 1 for count in record.frames.values())
    if ran_twice or record.ran_earlier or any(c.is_recompilation for c in record.compiled):
        return ""
    if record.log is not None:  # which does not show how often the code ran
        return ""
    runs_text = ", ".join(f"{run} ran once" for run in record.executions)
    return (
        f"nothing could recompile: no compiled code ran twice ({runs_text}), and none was compiled "
        "before the watch. Call the compiled function twice inside the watch, or warm it up "
        "before the watch"
    )


class EagerChecks(Subject):
    """The assertion on ops that ran eagerly; see `Capture`."""

    def assert_no_eager_ops(self, allow: Any = ()) -> None:
        """Assert that no op ran eagerly, outside every compiled graph.

        Ops that the autograd engine runs between compiled graphs are ignored: zeros for unused
        outputs, sums of gradients, and the backward of an output that AOTAutograd turned into a
        view.

        Args:
            allow: ops that may run eagerly, as one entry or a sequence. An entry is an op (a
                pattern as in `assert_op_counts`), a file (`"model.py"`, or the end of its path) or
                a line (`"model.py:31"`). The backward ops of an allowed op are also allowed.

        Raises:
            AssertionError: if other ops ran eagerly. The message lists each line, the ops that ran
                there, and the graph break or skipped frame that kept them out of compiled graphs.
            CaptureError: if eager ops were not recorded; see `eager`. This includes a capture
                loaded from a file without eager ops, because earlier releases of this package did
                not store them.
            ValueError: if an op pattern cannot match anything, or matches every op.
        """
        # An op is callable.
        if isinstance(allow, str) or callable(allow):
            allow = (allow,)
        allowed_patterns = [_pattern(entry) for entry in allow]
        _refuse_everything(allow)
        ops = self.eager_ops
        refuse_hidden([graph for graph in self.graphs if graph.level == "compiled_autograd"])

        def allowed(op: EagerOp) -> bool:
            if op.by_engine or any(is_allowed(op) for is_allowed in allowed_patterns):
                return True
            return op.follows is not None and allowed(op.follows)

        eager_ops = [op for op in ops if not allowed(op)]
        if not eager_ops:
            return
        title = f"{counted(len(eager_ops), 'op')} ran eagerly, outside compiled graphs"
        lines = [f"{title}:", *_lines(eager_ops, self.eager)]
        sources = [str(op.source) for op in eager_ops if op.source is not None]
        for source in sources[:1]:
            lines.append(f"to allow ops of a file or line, pass allow=[{source!r}]")
        nodes = _nodes(eager_ops, self.eager)
        raise failed("\n".join(lines), UnexpectedOps(self.eager, nodes, title))
