"""The assertion that no op ran eagerly, and the reasons why nothing was compiled.

A check on a watch is vacuous if there was nothing to check. The functions here return the causes
in words; "" or an empty list means that there was something to check.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from ..graph.events import EagerOp, GraphBreak
from ..graph.failures import UnexpectedOps, failed
from ..graph.model import Graph, Node
from ..ops import registry
from ..ops.names import is_glob, matches
from ..ops.patterns import pattern_name, refuse_impossible
from ..settings.paths import allows, patterns
from ..watching.record import EagerCall, WatchRecord, eager_calls_of
from ..words import counted, listed

if TYPE_CHECKING:
    from .subject import Subject


_FILE = re.compile(r"(?P<file>.+\.py)(?::(?P<line>\d+))?\Z")


def assert_no_eager_ops(capture: Subject, allow: Any) -> None:
    """See `Capture.assert_no_eager_ops`."""
    __tracebackhide__ = True
    if isinstance(allow, str) or callable(allow):
        allow = (allow,)
    patterns = [_pattern(each) for each in allow]
    _refuse_everything(allow)
    ops = capture.eager_ops

    def allowed(op: EagerOp) -> bool:
        if op.by_engine or any(pattern(op) for pattern in patterns):
            return True
        return op.follows is not None and allowed(op.follows)

    found = [op for op in ops if not allowed(op)]
    if not found:
        return
    title = f"{counted(len(found), 'op')} ran eagerly, outside compiled graphs"
    lines = [f"{title}:", *_lines(found, capture.eager)]
    if any(op.source is not None for op in found):
        lines.append("to allow ops of a file or line: allow=['model.py:31']")
    nodes = _nodes(found, capture.eager)
    raise failed("\n".join(lines), UnexpectedOps(capture.eager, nodes, title))


def _pattern(allowed: Any) -> Callable[[EagerOp], bool]:
    """Return the predicate for an entry of `allow`.

    Raises:
        ValueError: if an op pattern cannot match any eager op.
    """
    place = _FILE.match(allowed) if isinstance(allowed, str) else None
    if place is not None:
        file, line = place["file"], place["line"]

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
        shown = globs[0] if len(globs) == 1 else globs
        raise ValueError(f"allow={shown!r} allows every op, so it checks nothing: name single ops")


def _lines(found: Sequence[EagerOp], graphs: Sequence[Graph]) -> list[str]:
    """Return the ops by graph and line, with the causes."""
    by_name = {graph.name: graph for graph in graphs}
    places: dict[tuple[str, GraphBreak | None, str, str], list[str]] = {}
    for op in found:
        source = op.source
        place = "unknown line in your code"
        if source is not None:
            place = f"{source} in {source.function}: {source.code}"
        places.setdefault((op.graph, op.cause, place, op.module), []).append(op.op)
    lines: list[str] = []
    last: tuple[str, GraphBreak | None] | None = None
    for (name, cause, place, module), ops in places.items():
        graph = by_name[name]
        if last is None or name != last[0]:
            runs = f", ran {graph.runs} times" if graph.runs > 1 else ""
            lines.append(f"  {name} ({graph.kind}{runs})")
        if (name, cause) != last:
            lines += [f"    {line}" for line in _cause(cause)]
        last = name, cause
        where = f" [{module}]" if module else ""
        lines += [f"    {place}{where}", f"      {listed(dict.fromkeys(ops), 6)}"]
    return lines


def _cause(cause: GraphBreak | None) -> list[str]:
    if cause is None:
        return []
    lines = [f"because of: {cause.kind}: {cause.reason}"]
    if cause.hint:
        lines += [f"  {line}" for line in cause.hint.splitlines()]
    return lines


def _nodes(found: Sequence[EagerOp], graphs: Sequence[Graph]) -> list[Node]:
    """Return the nodes of these op calls."""
    wanted = {(op.graph, op.op) for op in found}
    return [node for graph in graphs for node in graph.nodes if (graph.name, node.op) in wanted]


def switched_off(setting: str) -> str:
    """Return the cause if a setting disables all compilation."""
    return f"torch.compile is disabled by {setting}"


def why_no_graph(record: WatchRecord) -> str:
    """Explain why a watch has no graph, one line per cause.

    Args:
        record: the record of the watch.
    """
    about = f" for {record.part}" if record.part else ""
    if not record.opened:
        return "the watch was not entered: use `with graph_capture.watch() as capture:`"
    causes = []
    if record.disabled:
        causes.append(switched_off(record.disabled))
    causes += map(str, record.eager_calls)
    causes += [f"{each.kind}: {each.reason} ({each.file}:{each.line})" for each in record.breaks]
    if causes:
        return "\n".join(f"  {cause}" for cause in dict.fromkeys(causes))
    ran = ", ".join(f"{run} {n} times" for run, n in record.executions.items())
    if ran and record.warmed_up:
        return (
            f"  compiled code ran{about} ({ran}), but nothing was compiled after the warm-up, so "
            "there are neither graphs nor graph breaks to check. Check a graph_capture.watch() "
            "around the first call instead, or use assert_no_recompiles() here"
        )
    if ran:
        return (
            f"  compiled code ran{about} ({ran}), but it was compiled before the watch and served "
            "from Dynamo's cache. Open the watch before the first call, or call "
            "torch._dynamo.reset() first. To check warm calls, use assert_no_recompiles()"
        )
    if record.compiled:
        functions = ", ".join(dict.fromkeys(each.function or "?" for each in record.compiled))
        return f"  Dynamo found no tensor operation in {functions}"
    if record.callables:
        names = ", ".join(dict.fromkeys(callee.name for callee in record.callables))
        return f"  Dynamo's cache served {names}, but without a graph"
    if record.compiled_in_all:
        there = listed(dict.fromkeys(record.compiled_in_all))
        return (
            f"  no compiled function or module was called{about} inside the watch; compiled: "
            f"{there}. The graph of a compiled function contains the functions that it calls: name "
            "the compiled function"
        )
    return (
        f"  no compiled function or module was called{about} inside the watch. torch.compile(...) "
        "compiles nothing by itself: call its result inside the watch"
    )


def what_ran_uncompiled(
    record: WatchRecord, *, allow: str | Sequence[str] = (), unreported: bool = False
) -> list[EagerCall]:
    """Return the calls of compiled callables that ran eagerly although other code ran compiled.

    Args:
        record: the record of the watch.
        allow: regular expressions for calls to omit, searched in `"kind: reason"`.
        unreported: omit frames that are among the graph breaks.
    """
    reported = {
        (each.function, each.file, each.line)
        for each in record.compiled
        if unreported and each.failure and not each.limit_hit
    }
    disabled = unreported and any("torch.compiler.disable" in each.kind for each in record.breaks)
    allowed = patterns(allow)
    return [
        call
        for call, cause in eager_calls_of(record.callables, record.recompiles)
        if not allows(allowed, f"{call.kind}: {call.reason}")
        and not (cause is not None and cause[2:5] in reported)
        and not (disabled and call.kind == "disabled")
    ]


def why_no_recompile_possible(record: WatchRecord) -> str:
    """Explain why no recompilation was possible: no compiled code was called again.

    Args:
        record: the record of the watch.
    """
    again = [frame for frame, count in record.frames.items() if count > 1]
    tried = [each for each in record.compiled if each.is_recompilation]
    if again or tried or record.ran_earlier:
        return ""
    called = ", ".join(f"{run} once" for run in record.executions)
    return (
        f"nothing could recompile: no compiled code ran twice ({called}), and none was compiled "
        "before the watch. Call the compiled function twice inside the watch, or warm it up "
        "before the watch"
    )
