"""The texts that a review shows about a cause, and about one stored graph."""

from __future__ import annotations

from collections.abc import Iterator

from ...graph.diff.joining import some
from ...graph.diff.words import cost_text
from ...words import counted
from .difference import Difference
from .listing import notes
from .waiting import NumberedCause, State, Update, Waiting

MAX_SOURCES = 3


def cause_details(
    waiting: Waiting, cause: NumberedCause, states: dict[str, tuple[State, str]]
) -> list[str]:
    """What a cause is, what it costs, and in which tests and stored graphs it is."""
    words = cause.words.to_json()
    lines = [f"{words['sign']} {words['what']}"]
    if words["where"]:
        lines.append(f"in      {words['where']}")
    if words["sources"]:
        lines.append(f"line    {some(words['sources'], MAX_SOURCES)}")
    if words["before"]:
        lines.append(f"before  {words['before']}")
    if words["after"]:
        lines.append(f"after   {words['after']}")
    if costs := cost_text(cause.words.cost):
        lines.append(f"costs   {costs}")
    if note := notes(waiting, cause, states):
        lines.append(f"note    {note}")
    files, places = counted(len(cause.updates), "graph"), counted(words["places"], "place")
    lines += ["", f"{places} in {files}:"]
    for update in cause.updates:
        state, why = states[update.target]
        others = sorted(waiting.causes_by_target[update.target] - {cause.number})
        if state == "waits":
            mark = f" (has cause {', '.join(map(str, others))} as well)" if others else ""
        else:
            mark = f" ({state}{': ' if why else ''}{why})"
        lines.append(f"  {update.saved.test}{mark}")
    return lines


def update_details(update: Update) -> list[str]:
    """What is wrong with one stored graph, its findings, and the difference of the texts."""
    difference = update.difference
    lines = [f"test    {update.saved.test}", f"file    {update.target}"]
    lines += [difference.headline, *difference.details, ""]
    return [*lines, *_findings(difference), *difference.text_lines()]


def _findings(difference: Difference) -> Iterator[str]:
    """All findings, with every node that they changed."""
    comparison = difference.comparison
    for finding in comparison.diff.findings if comparison is not None else ():
        size = sum(len(place.changes) + len(place.consequences) for place in finding.places)
        yield from finding.to_text(limit=size).splitlines()
    if comparison is not None and comparison.diff:
        yield ""
