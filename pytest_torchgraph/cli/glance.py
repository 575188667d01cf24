"""A glance at a log of torch: its functions, with what slows them down, the worst first."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from ..words import counted, first_lines, format_ranks, grouped, listed, one_line

if TYPE_CHECKING:
    from ..api.result import Capture
    from ..graph.events import GraphBreak
    from ..watching.compilations import Compilation
    from ..watching.recompiles import Recompile
    from ..watching.record import WatchRecord

MOST_OPS, MOST_EVENTS = 5, 4
"""Maximum number of ops, and of breaks and of recompiles, to list for a function."""
_SECONDS = re.compile(r"\b\d+\.\d s\b")
_CALL = re.compile(r"= (?:torch\.ops\.(\w+\.\w+)[\w.]*|[\w.]*?(\w+))\(")
_STAGES = (("forward", "inference", "backward"), ("dynamo",), ("compiled_autograd",))
"""Stages of which one has the ops of a compilation: the first that was printed."""


def glance(captures: Sequence[Capture]) -> str:
    """Return the glance at the processes of a log.

    Ranks whose lines differ only in times share those of the rank that compiled longest.
    """
    parts = []
    for capture in captures:
        record = capture.record("compilations")
        log = record.log
        assert log is not None
        head = f"torch {log.torch or 'of an unknown release'}"
        if log.truncated:
            head += f"\nTRUNCATED: {one_line(log.truncated)}"
        text = f"{head}\n" + "\n".join(_lines(record))
        # The times decide the order of the functions, too.
        key = tuple(sorted(_SECONDS.sub("", text).splitlines()))
        seconds = sum(c.seconds for c in record.compiled)
        parts.append((key, (seconds, text, capture.rank)))
    texts = []
    for alike in grouped(parts).values():
        known = [rank for _, _, rank in alike if rank is not None]
        _, text, _ = max(alike, key=lambda part: part[0])
        texts.append(f"{format_ranks(known)}, {text}" if known else text)
    return "\n\n".join(texts)


def _lines(record: WatchRecord) -> Iterator[str]:
    functions = grouped(((c.function, c.file), c) for c in record.compiled)
    graphs = [text for c in record.compiled for text in _printed(c)]
    seconds = sum(c.seconds for c in record.compiled)
    yield ", ".join(
        [
            counted(len(functions), "function"),
            counted(len(graphs), "graph"),
            counted(len(record.breaks), "graph break"),
            counted(len(record.recompiles), "recompile"),
            f"{seconds:.1f} s to compile",
        ]
    )
    yield from _cache_lines(record)
    yield from (
        f"no CUDA graph: {one_line(str(skip))}" for skip in record.cudagraph_skips[:MOST_EVENTS]
    )
    entries = []
    for compilations in functions.values():
        ids = {str(c.id) for c in compilations}
        breaks = [cut for cut in record.breaks if cut.compile_id in ids]
        recompiles = [each for each in record.recompiles if each.compile_id in ids]
        lines = _function_lines(compilations, breaks, recompiles)
        cost = len(breaks) + len(recompiles), sum(c.seconds for c in compilations)
        entries.append((cost, lines))
    for _, lines in sorted(entries, key=lambda entry: entry[0], reverse=True):
        yield ""
        yield from lines


def _function_lines(
    compilations: Sequence[Compilation],
    breaks: Sequence[GraphBreak],
    recompiles: Sequence[Recompile],
) -> Iterator[str]:
    from ..convert.source_lines import relative

    first = compilations[0]
    texts = [text for c in compilations for text in _printed(c)]
    place = f" ({relative(first.file)}:{min(c.line for c in compilations)})" if first.file else ""
    parts = [counted(len(compilations), "compilation"), counted(len(texts), "graph")]
    parts.append(f"{sum(c.seconds for c in compilations):.1f} s")
    yield f"{first.function or 'without Dynamo'}{place}: {', '.join(parts)}"
    ops = Counter("".join(names) for text in texts for names in _CALL.findall(text))
    if ops:
        names = (f"{count} {op}" for op, count in ops.most_common())
        yield f"    ops        {listed(names, MOST_OPS)}"
    failed = [f"{c.id}: {' '.join(c.reason.split())}" for c in compilations if c.failure]
    cuts = [f"{c.file}:{c.line} in {c.function}: {c.code} ({c.kind})" for c in breaks]
    again = [str(each).splitlines()[0] for each in recompiles]
    for word, items in (("failed", failed), ("break", cuts), ("recompile", again)):
        lines = [f"{word:<10} {item[:300]}" for item in items]
        yield from (f"    {line}" for line in first_lines(lines, MOST_EVENTS, word))


def _cache_lines(record: WatchRecord) -> Iterator[str]:
    lookups = [event for c in record.compiled for event in c.lookups]
    counts = Counter(f"{e.cache} {e.state}" for e in lookups if e.state != "unsaved")
    if counts:
        yield "cache: " + ", ".join(f"{n} {state}" for state, n in sorted(counts.items()))
    reasons = dict.fromkeys(one_line(bypass.reason) for bypass in record.cache_bypasses)
    yield from (f"    never cached: {reason}" for reason in [*reasons][:MOST_EVENTS])


def _printed(compilation: Compilation) -> list[str]:
    """Return the texts of the graphs that a compilation has in the end."""
    for stages in _STAGES:
        if texts := [graph.text for graph in compilation.printed if graph.stage in stages]:
            return texts
    return []
