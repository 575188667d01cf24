"""The texts that a review shows about a cause, and about one stored graph."""

from __future__ import annotations

from collections.abc import Iterator
from difflib import unified_diff

from ...errors import TorchGraphError
from ...graph.diff.cause_table import some
from ...graph.diff.words import cost_text
from ...snapshot.files import read_text
from ...words import counted
from .listing import notes
from .waiting import NumberedCause, State, Update, Waiting

MAX_SOURCES = 3


def cause_details(
    waiting: Waiting, cause: NumberedCause, states: dict[str, tuple[State, str]]
) -> list[str]:
    """What a cause is, what it costs, and in which tests and stored graphs it is."""
    words = cause.words
    lines = [f"{words.first.sign} {words.first.what}"]
    if words.where:
        lines.append(f"in      {words.where}")
    if words.sources:
        lines.append(f"line    {some(words.sources, MAX_SOURCES)}")
    if words.first.before:
        lines.append(f"before  {words.first.before}")
    if words.first.after:
        lines.append(f"after   {words.first.after}")
    if costs := cost_text(words.cost):
        lines.append(f"costs   {costs}")
    if note := notes(waiting, cause, states):
        lines.append(f"note    {note}")
    files, places = counted(len(cause.updates), "graph"), counted(words.places, "place")
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
    saved = update.saved
    lines = [f"test    {saved.test}", f"file    {update.target}"]
    if picture := update.beside(".svg"):
        lines.append(f"picture {picture}")
    lines += [saved.headline, *saved.details, ""]
    return [*lines, *_findings(update), *_text_difference(update)]


def _findings(update: Update) -> Iterator[str]:
    """All findings as the run wrote them, else in short."""
    text = update.beside(".txt")
    if text is not None:
        yield from text.read_text(encoding="utf-8", errors="replace").splitlines()[2:]
        yield ""
    elif update.saved.difference["findings"]:
        for finding in update.findings:
            yield f"{finding.sign} {finding.what}"
            if finding.before:
                yield f"    before  {finding.before}"
            if finding.after:
                yield f"    after   {finding.after}"
        yield ""


def _text_difference(update: Update) -> list[str]:
    """The texts with one line a node, where the run left them, else as they are stored."""
    left = update.beside(".diff")
    if left is not None:
        return left.read_text(encoding="utf-8", errors="replace").splitlines()
    try:
        stored = read_text(update.path)
    except TorchGraphError as error:
        return [str(error)]
    after = update.saved.text
    if stored is None or after is None:
        return (after or "").splitlines()
    return list(unified_diff(stored.splitlines(), after.splitlines(), "stored", "now", lineterm=""))
