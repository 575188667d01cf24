"""Convert the observations of a watch to facts."""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import replace
from typing import Any

from ..convert.source_lines import relative
from ..watching.breaks import SKIPPED
from ..watching.cache_lookups import SWITCHED_OFF, CacheBypass
from ..watching.observe import BACKWARD, CompileId
from ..watching.recompiles import FIRST_DYNAMIC, Recompile
from ..watching.record import WatchRecord
from .compile_calls import CompileCall
from .facts import Cause, CauseKind, FunctionFacts, TestFacts
from .suite_watch import Seen

NO_OPS = "Dynamo found no tensor operation"
SERVED_WITHOUT_GRAPH = "served from Dynamo's cache, without a graph"
NEVER_CALLED = "torch.compile is called, but what it gives never is"
UNSEEN = "Dynamo skips the code, since an earlier test"

_ADDRESS = re.compile(r"0x[0-9a-f]{6,}|\b\d{9,}\b")
"""Addresses and ids of objects, which differ in each run."""


def facts_of_test(seen: Seen) -> TestFacts:
    """Convert the observations of a test to facts."""
    facts = facts_of(seen.record)
    functions = tuple(_functions(seen))
    never_ran = () if facts.uses_compile else _never_ran(seen.compile_calls)
    causes = facts.causes + never_ran
    # In another test order, another test sets up the fixture.
    if seen.in_wider_fixture:
        causes = tuple(replace(each, shared=_is_again(each)) for each in causes)
    shared = facts.shared or seen.in_wider_fixture
    return replace(facts, causes=causes, shared=shared, nested=seen.nested, functions=functions)


def _functions(seen: Seen) -> Iterator[FunctionFacts]:
    """Yield the facts about each compiled function; a module has the name of its class."""
    record = seen.record
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
    calls.subtract(seen.fixture_calls)

    def key_of(compiled: Any) -> str:
        names = (callee.name for callee in record.callables if callee.names_of(compiled))
        key = f"{relative(compiled.file)} | {next(names, compiled.function)}"
        lines.setdefault(key, compiled.line)
        return key

    for each in record.compiled:
        if each.ops and not each.failure and each.file:
            ops[key_of(each)].add(each.ops)
    for run, count in record.runs.items():
        if count and run.part == BACKWARD and run.file:
            backwards.add(key_of(run))
    for key, line in sorted(lines.items()):
        yield FunctionFacts(
            key,
            line,
            calls[key] > 0,
            tuple(sorted(ops[key])),
            tuple(sorted(backends[key])),
            key in backwards,
            seen.nested,
        )


def _is_again(cause: Cause) -> bool:
    return cause.shared or cause.kind in ("recompile", "limit")


def _never_ran(calls: Iterable[CompileCall]) -> tuple[Cause, ...]:
    """Return a cause for each `torch.compile` call whose result the test never ran."""
    return _together(
        Cause("nothing", relative(each.file), each.function, NEVER_CALLED, "", each.line)
        for each in calls
    )


def facts_of(record: WatchRecord) -> TestFacts:
    """Convert the record of a watch to facts."""
    graphs = [each for each in record.compiled if each.ops and not each.failure]
    compiles = bool(graphs or record.executions)
    frames: defaultdict[str, float] = defaultdict(float)
    for each in graphs:
        frames[f"{relative(each.file)}:{each.line} {each.function}"] += each.seconds
    causes = _together(_causes(record, compiles))
    called = [f"{relative(each.file)}:{each.line} {each.name}" for each in record.callables]
    return TestFacts(
        calls=sum(callee.entries for callee in record.callables),
        eager_calls=sum(callee.uncompiled.total() for callee in record.callables),
        graphs=len(graphs),
        backwards=sum(1 for run, n in record.runs.items() if run.part == BACKWARD and n),
        ops=sum(each.ops for each in graphs),
        seconds=round(sum(each.seconds for each in record.compiled), 6),
        compiles=compiles,
        causes=causes,
        frames=tuple(frames),
        frame_seconds=tuple(round(seconds, 6) for seconds in frames.values()),
        callables=tuple(dict.fromkeys(called)),
        backends=tuple(sorted({each.backend for each in record.callables if each.backend})),
        shared=(
            bool(record.ran_earlier)
            or bool(_compiled_before(record))
            or any(cause.shared for cause in causes)
        ),
    )


def _compiled_before(record: WatchRecord) -> dict[str, str]:
    """Find the code that was already compiled before the watch began.

    Return the id of its first compilation in the watch, by the frame part of the compile id.
    """
    first: dict[str, CompileId] = {}
    for each in record.compiled:
        if each.id is not None and each.id.frame is not None:
            first.setdefault(_frame(str(each.id)), each.id)
    return {frame: str(id) for frame, id in first.items() if id.compile}


def _frame(compile_id: str) -> str:
    return compile_id.rpartition("/")[0]


def _causes(record: WatchRecord, compiles: bool) -> list[Cause]:
    causes = [
        Cause(
            "break",
            each.file,
            each.function,
            each.kind.removeprefix(SKIPPED),
            each.code,
            each.line,
            each.occurrences,
        )
        for each in record.breaks
    ]
    again = [each for each in record.recompiles if not each.limit_hit]
    limits = [each for each in record.recompiles if each.limit_hit]
    limited = {(each.file, each.function) for each in limits}
    before = _compiled_before(record)
    causes += [
        Cause(
            "limit",
            each.file,
            each.function,
            "the recompile limit",
            "",
            each.line,
            shared=_frame(each.compile_id) in before,
            guard=next(iter(each.reasons), "").partition(FIRST_DYNAMIC)[0],
            guard_place=_guard_place(each),
        )
        for each in limits
    ]
    causes += [
        Cause(
            "recompile",
            each.file,
            each.function,
            "",
            "",
            each.line,
            shared=each.compile_id in before.values(),
            guard=next(iter(each.reasons), "").partition(FIRST_DYNAMIC)[0],
            guard_place=_guard_place(each),
        )
        for each in again
        if (each.file, each.function) not in limited  # report only the limit
    ]
    explained: set[tuple[str, str | int]] = {(each.file, each.function) for each in causes}
    explained |= {(each.file, each.line) for each in causes if each.file}  # lambdas have no name
    causes += _ran_eagerly(record, compiles, explained)
    causes += map(_of_bypass, record.cache_bypasses)
    if record.callables and not compiles and not causes:
        text = NO_OPS if record.compiled else SERVED_WITHOUT_GRAPH
        served = text == SERVED_WITHOUT_GRAPH
        causes.append(Cause("nothing", "", "", text, "", 0, shared=served))
    return causes


def _of_bypass(bypass: CacheBypass) -> Cause:
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


def _ran_eagerly(
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
        own = relative(callee.file), callee.name if callee.code is None else callee.code.co_name
        for cause, times in callee.uncompiled.items():
            file = relative(cause.file) if cause.file else ""
            if {own, (file, cause.function), (file, cause.line)} & explained:
                continue
            if cause.earlier:
                yield Cause(kind, *own, UNSEEN, "", callee.line, times, shared=True)
            else:
                text = _ADDRESS.sub("…", cause.reason)
                yield Cause(kind, file, cause.function, text, "", cause.line, times)


def _together(causes: Iterable[Cause]) -> tuple[Cause, ...]:
    """Merge causes of equal identity."""
    found: dict[str, Cause] = {}
    for cause in causes:
        known = found.get(cause.key)
        if known is not None:
            count, shared = known.count + cause.count, known.shared and cause.shared
            cause = replace(known, count=count, shared=shared)
        found[cause.key] = cause
    return tuple(found.values())
