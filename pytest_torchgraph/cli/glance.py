"""A glance at a log of torch: its functions, with what slows them down, the worst first."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

from ..words import counted, first_lines, format_ranks, grouped, listed, one_line
from .formats import BREAK, named

if TYPE_CHECKING:
    from ..api.result import Capture
    from ..watching.compilations import Compilation
    from ..watching.record import WatchRecord

MOST_OPS, MOST_EVENTS = 5, 4
"""Maximum number of ops, and of breaks and of recompiles, to list for a function."""
_SECONDS = re.compile(r"\b\d+\.\d s\b")
# A call in the text of a graph. One of the two groups is the op, the other is empty.
_CALL = re.compile(r"= (?:torch\.ops\.(\w+\.\w+)[\w.]*|[\w.]*?(\w+))\(")
_STAGES = (("forward", "inference", "backward"), ("dynamo",), ("compiled_autograd",))
"""Stages of which one has the ops of a compilation: the first that was printed."""
_RECOMPILE = ("file", "line", "function", "reasons", "hint", "limit_hit")
"""Attributes of a recompile in the JSON."""


def glance(captures: Sequence[Capture]) -> str:
    """Return the glance at the processes of a log.

    Ranks whose lines differ only in times share those of the rank that compiled longest.
    """
    parts = []
    for process in map(data, captures):
        head = f"torch {process['torch'] or 'of an unknown release'}"
        if process["truncated"]:
            head += f"\nTRUNCATED: {one_line(process['truncated'])}"
        text = f"{head}\n" + "\n".join(_lines(process))
        # The times decide the order of the functions, too.
        key = tuple(sorted(_SECONDS.sub("", text).splitlines()))
        parts.append((key, (_total(process, "seconds"), text, process["rank"])))
    texts = []
    for alike in grouped(parts).values():
        known = [rank for _, _, rank in alike if rank is not None]
        _, text, _ = max(alike, key=lambda part: part[0])
        texts.append(f"{format_ranks(known)}, {text}" if known else text)
    return "\n\n".join(texts)


def data(capture: Capture) -> dict[str, Any]:
    """Return what the log of one process says, as plain data, the worst function first."""
    record = capture.record("compilations")
    log = record.log
    assert log is not None
    by_function = grouped(((c.function, c.file), c) for c in record.compiled)
    functions = [_function(record, compilations) for compilations in by_function.values()]
    functions.sort(key=_cost, reverse=True)
    # "unsaved" is an event of a graph that no cache has stored, not of a lookup.
    lookups = [event for c in record.compiled for event in c.lookups]
    found = Counter(f"{e.cache} {e.state}" for e in lookups if e.state != "unsaved")
    return {
        "rank": capture.rank,
        "torch": log.torch,
        "truncated": log.truncated,
        "functions": functions,
        "cache": dict(sorted(found.items())),
        "never_cached": [*dict.fromkeys(bypass.reason for bypass in record.cache_bypasses)],
        "no_cuda_graph": [*map(str, record.cudagraph_skips)],
    }


def _function(record: WatchRecord, compilations: Sequence[Compilation]) -> dict[str, Any]:
    """Return what a log says about one function, as plain data.

    Args:
        record: the record of the process.
        compilations: all compilations of the function, in order.
    """
    from ..convert.source_lines import relative

    first = compilations[0]
    ids = {str(c.id) for c in compilations}
    texts = [text for c in compilations for text in _printed(c)]
    ops = Counter("".join(names) for text in texts for names in _CALL.findall(text))
    recompiles = [each for each in record.recompiles if each.compile_id in ids]
    return {
        "function": first.function,
        "file": relative(first.file) if first.file else "",
        # The pieces of a function after a graph break begin further down.
        "line": min(c.line for c in compilations),
        "compilations": len(compilations),
        "graphs": len(texts),
        "seconds": sum(c.seconds for c in compilations),
        "ops": dict(ops.most_common()),
        "failures": [f"{c.id}: {' '.join(c.reason.split())}" for c in compilations if c.failure],
        "graph_breaks": [named(cut, BREAK) for cut in record.breaks if cut.compile_id in ids],
        "recompiles": [{**named(each, _RECOMPILE), "text": str(each)} for each in recompiles],
    }


def _cost(function: dict[str, Any]) -> tuple[int, float]:
    """Return the sort key of a function: its breaks and recompiles, then its compile time."""
    return len(function["graph_breaks"]) + len(function["recompiles"]), function["seconds"]


def _total(process: dict[str, Any], name: str) -> Any:
    """Return the sum of a number over all functions of a process."""
    return sum(function[name] for function in process["functions"])


def _lines(process: dict[str, Any]) -> Iterator[str]:
    """Yield the totals of a process, its caches, and a paragraph for each function."""
    functions = process["functions"]
    yield ", ".join(
        [
            counted(len(functions), "function"),
            counted(_total(process, "graphs"), "graph"),
            counted(sum(len(each["graph_breaks"]) for each in functions), "graph break"),
            counted(sum(len(each["recompiles"]) for each in functions), "recompile"),
            f"{_total(process, 'seconds'):.1f} s to compile",
        ]
    )
    if cache := process["cache"]:
        yield "cache: " + ", ".join(f"{n} {state}" for state, n in cache.items())
    reasons = [one_line(reason) for reason in process["never_cached"]]
    yield from (f"    never cached: {reason}" for reason in reasons[:MOST_EVENTS])
    skips = process["no_cuda_graph"][:MOST_EVENTS]
    yield from (f"no CUDA graph: {one_line(skip)}" for skip in skips)
    for function in functions:
        yield ""
        yield from _function_lines(function)


def _function_lines(function: dict[str, Any]) -> Iterator[str]:
    """Yield the lines about a function, see `_function`. Long reasons of torch are cut."""
    place = f" ({function['file']}:{function['line']})" if function["file"] else ""
    parts = [
        counted(function["compilations"], "compilation"),
        counted(function["graphs"], "graph"),
        f"{function['seconds']:.1f} s",
    ]
    yield f"{function['function'] or 'without Dynamo'}{place}: {', '.join(parts)}"
    if ops := function["ops"]:
        yield f"    ops        {listed((f'{n} {op}' for op, n in ops.items()), MOST_OPS)}"
    cuts = [
        f"{cut['file']}:{cut['line']} in {cut['function']}: {cut['code']} ({cut['kind']})"
        for cut in function["graph_breaks"]
    ]
    again = [each["text"].splitlines()[0] for each in function["recompiles"]]
    kinds = ("failed", function["failures"]), ("break", cuts), ("recompile", again)
    for word, items in kinds:
        lines = [f"{word:<10} {item[:300]}" for item in items]
        yield from (f"    {line}" for line in first_lines(lines, MOST_EVENTS, word))


def _printed(compilation: Compilation) -> list[str]:
    """Return the texts of the graphs that a compilation has in the end."""
    for stages in _STAGES:
        if texts := [graph.text for graph in compilation.printed if graph.stage in stages]:
            return texts
    return []
