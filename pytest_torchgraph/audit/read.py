"""Convert the observations of a watch to `TestFacts`.

`facts_of_test` adds to the facts of the record (`facts_of`) what only a test has: fixtures, unused
calls of `torch.compile`, and each function (`_functions`). `_causes` finds the causes in a record:
graph breaks, recompiles, callables that ran eagerly, cache bypasses, or that nothing was compiled.
"""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import replace
from typing import Any

from ..convert import source_lines
from ..graph.events import SKIPPED
from ..watching.cache_lookups import SWITCHED_OFF, CacheBypass
from ..watching.observe import BACKWARD, CompileId
from ..watching.recompiles import FIRST_DYNAMIC, Recompile
from ..watching.record import WatchRecord
from .facts import Cause, CauseKind, CodePlace, FunctionFacts, TestFacts
from .suite_watch import TestObservation

NO_OPS = "Dynamo found no tensor operation"
SERVED_WITHOUT_GRAPH = "served from Dynamo's cache, without a graph"
NEVER_CALLED = "the result of torch.compile was never called"
UNSEEN = "Dynamo skips the code, since an earlier test"

ADDRESS = re.compile(r"0x[0-9a-f]{6,}|\b\d{9,}\b")
"""Addresses and ids of objects, which differ in each run."""


def relative(file: str) -> str:
    """Return a path for a baseline. `torch.fx` numbers the files that it generates in a process."""
    return re.sub(r"(?<=^<eval_with_key>)\.\d+$", "", source_lines.relative(file))


def facts_of_test(observation: TestObservation) -> TestFacts:
    """Convert the observations of a test to facts."""
    facts = facts_of(observation.record)
    functions = tuple(_functions(observation))
    causes = facts.causes
    # Calls of `torch.compile` in a test that called nothing compiled.
    causes += () if facts.uses_compile else _causes_of_unused_calls(observation.compile_calls)
    # In another test order, another test sets up the fixture.
    if observation.in_wider_fixture:
        causes = tuple(
            replace(cause, shared=cause.shared or cause.kind in ("recompile", "limit"))
            for cause in causes
        )
    shared = facts.shared or observation.in_wider_fixture
    return replace(
        facts, causes=causes, shared=shared, nested=observation.nested, functions=functions
    )


def _functions(observation: TestObservation) -> Iterator[FunctionFacts]:
    """Yield the facts about each compiled function. A module has the name of its class."""
    record = observation.record
    lines: dict[str, int] = {}
    ops: defaultdict[str, set[int]] = defaultdict(set)
    backends: defaultdict[str, set[str]] = defaultdict(set)
    calls: Counter[str] = Counter()
    backwards: set[str] = set()
    for callee in record.callables:
        key = f"{relative(callee.file)} | {callee.name}"
        lines.setdefault(key, callee.line)
        backends[key] |= {callee.backend} - {""}
        calls[key] += callee.entries
    calls.subtract(observation.fixture_calls)

    def key_of(compiled: Any) -> str:
        """Return the key of the code of a compilation or a run, and note its line."""
        # The name of the callable that has this code, such as a module's; else the code's own, as
        # after a graph break.
        names = (callee.name for callee in record.callables if callee.names_of(compiled))
        key = f"{relative(compiled.file)} | {next(names, compiled.function)}"
        lines.setdefault(key, compiled.line)
        return key

    for compilation in record.compiled:
        if compilation.ops and not compilation.failure and compilation.file:
            ops[key_of(compilation)].add(compilation.ops)
    for run, count in record.runs.items():
        if count and run.part == BACKWARD and run.file:
            backwards.add(key_of(run))
    for key, line in sorted(lines.items()):
        yield FunctionFacts(
            key,
            line,
            called=calls[key] > 0,
            ops=tuple(sorted(ops[key])),
            backends=tuple(sorted(backends[key])),
            backward=key in backwards,
            nested=observation.nested,
        )


def _causes_of_unused_calls(calls: Iterable[CodePlace]) -> tuple[Cause, ...]:
    """Return a cause for each `torch.compile` call whose result the test never ran."""
    return _merge_causes(
        Cause("nothing", relative(call.file), call.function, NEVER_CALLED, "", call.line)
        for call in calls
    )


def facts_of(record: WatchRecord) -> TestFacts:
    """Convert the record of a watch to facts."""
    graphs = [
        compilation
        for compilation in record.compiled
        if compilation.ops and not compilation.failure
    ]
    compiles = bool(graphs or record.executions)
    frames: defaultdict[str, float] = defaultdict(float)
    for compilation in graphs:
        frames[f"{relative(compilation.file)}:{compilation.line} {compilation.function}"] += (
            compilation.seconds
        )
    causes = _merge_causes(_causes(record, compiles))
    callable_places = dict.fromkeys(
        f"{relative(callee.file)}:{callee.line} {callee.name}" for callee in record.callables
    )
    return TestFacts(
        calls=sum(callee.entries for callee in record.callables),
        eager_calls=sum(callee.uncompiled.total() for callee in record.callables),
        graphs=len(graphs),
        backwards=sum(1 for run, n in record.runs.items() if run.part == BACKWARD and n),
        ops=sum(compilation.ops for compilation in graphs),
        seconds=round(sum(compilation.seconds for compilation in record.compiled), 6),
        compiles=compiles,
        causes=causes,
        frames=tuple(frames),
        frame_seconds=tuple(round(seconds, 6) for seconds in frames.values()),
        callables=tuple(callable_places),
        backends=tuple(sorted({callee.backend for callee in record.callables if callee.backend})),
        shared=(
            bool(record.ran_earlier)
            or bool(_compiled_before(record))
            or any(cause.shared for cause in causes)
        ),
    )


def _compiled_before(record: WatchRecord) -> dict[str, str]:
    """Return the compile id of each first compilation that followed one before the watch began.

    The keys are the frame parts of the compile ids: "1" of "1/0".
    """
    first_ids: dict[str, CompileId] = {}
    for compilation in record.compiled:
        if compilation.id is not None and compilation.id.frame is not None:
            first_ids.setdefault(str(compilation.id).rpartition("/")[0], compilation.id)
    # The last part of an id counts the compilations of a frame. If the first one here has another
    # number than 0, the frame was compiled before.
    return {frame: str(id) for frame, id in first_ids.items() if id.compile}


def _causes(record: WatchRecord, compiles: bool) -> list[Cause]:
    """Return all causes in a record; those with one identity are not merged yet.

    Args:
        record: the record of the watch.
        compiles: True if anything ran compiled.
    """
    causes = [
        Cause(
            "break",
            graph_break.file,
            graph_break.function,
            graph_break.kind.removeprefix(SKIPPED),
            graph_break.code,
            graph_break.line,
            graph_break.occurrences,
        )
        for graph_break in record.breaks
    ]
    causes += _causes_of_recompiles(record)
    explained: set[tuple[str, str | int]] = {(cause.file, cause.function) for cause in causes}
    # Also by line, because lambdas have no name of their own.
    explained |= {(cause.file, cause.line) for cause in causes if cause.file}
    causes += _causes_of_eager_runs(record, compiles, explained)
    causes += map(_cause_of_bypass, record.cache_bypasses)
    if record.callables and not compiles and not causes:
        text = NO_OPS if record.compiled else SERVED_WITHOUT_GRAPH
        causes.append(Cause("nothing", "", "", text, "", 0, shared=not record.compiled))
    return causes


def _causes_of_recompiles(record: WatchRecord) -> Iterator[Cause]:
    """Yield a cause for each recompile limit that was reached, then for each other recompile.

    It is shared if another test compiled the code first: without that test, it would not be a
    recompile, or the limit would not be reached.
    """
    limit_hits = [recompile for recompile in record.recompiles if recompile.limit_hit]
    limited_functions = {(recompile.file, recompile.function) for recompile in limit_hits}
    within_limit = [
        recompile
        for recompile in record.recompiles
        if (recompile.file, recompile.function) not in limited_functions  # report only the limit
    ]
    before = _compiled_before(record)
    for recompile in (*limit_hits, *within_limit):
        frame = recompile.compile_id.rpartition("/")[0]
        is_first = recompile.compile_id in before.values()
        yield Cause(
            "limit" if recompile.limit_hit else "recompile",
            recompile.file,
            recompile.function,
            "the recompile limit" if recompile.limit_hit else "",
            "",
            recompile.line,
            # Of a frame that was compiled before, only the first recompile here depends on it.
            shared=frame in before if recompile.limit_hit else is_first,
            # Without the suffix about a dynamic size, whose compile id depends on what ran before.
            guard=next(iter(recompile.reasons), "").partition(FIRST_DYNAMIC)[0],
            guard_place=_guard_place(recompile),
        )


def _cause_of_bypass(bypass: CacheBypass) -> Cause:
    """Return the cause of a cache bypass: an op and its line, or the reason alone."""
    # A switch of the whole cache has nothing to do with the line of the graph.
    source = bypass.source
    if source is None or bypass.reason.startswith(SWITCHED_OFF):
        return Cause("bypass", "", "", bypass.reason, "", 0)
    code = source.code if bypass.op else ""
    text = bypass.op or bypass.reason
    return Cause("bypass", source.file, source.function, text, code, source.line)


def _guard_place(recompile: Recompile) -> str:
    """Return the line that installed the latest compilation's guard; "" if there is none."""
    source = next((guard.source for guard in recompile.failed_guards), None)
    return "" if source is None else f"{source} {source.function}"


def _causes_of_eager_runs(
    record: WatchRecord, compiles: bool, explained: set[tuple[str, str | int]]
) -> Iterator[Cause]:
    """Yield a cause for each callable that ran eagerly.

    Args:
        record: the record of the watch.
        compiles: True if anything ran compiled.
        explained: the (file, function) and (file, line) pairs that another cause explains.
    """
    kind: CauseKind = "eager" if compiles else "nothing"
    if record.disabled:
        if record.callables:
            yield Cause(kind, "", "", f"torch.compile is switched off by {record.disabled}", "", 0)
        return
    for callee in record.callables:
        # The name in the code, as in `explained`; a module is called by its class.
        identity = (
            relative(callee.file),
            callee.name if callee.code is None else callee.code.co_name,
        )
        for cause, times in callee.uncompiled.items():
            file = relative(cause.file) if cause.file else ""
            if {identity, (file, cause.function), (file, cause.line)} & explained:
                continue
            if cause.earlier:
                yield Cause(kind, *identity, UNSEEN, "", callee.line, times, shared=True)
            else:
                reason = ADDRESS.sub("…", cause.reason)
                yield Cause(kind, file, cause.function, reason, "", cause.line, times)


def _merge_causes(causes: Iterable[Cause]) -> tuple[Cause, ...]:
    """Merge causes with one identity: the first, with the sum of the counts.

    The result is shared only if all are: otherwise it also exists in another test order.
    """
    merged: dict[str, Cause] = {}
    for cause in causes:
        earlier = merged.get(cause.key)
        if earlier is not None:
            count, shared = earlier.count + cause.count, earlier.shared and cause.shared
            cause = replace(earlier, count=count, shared=shared)
        merged[cause.key] = cause
    return tuple(merged.values())
