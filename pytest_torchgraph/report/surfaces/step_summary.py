"""The summary of a step of GitHub Actions: what an audit found, as tables in markdown."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from ...audit.outcome import Outcome
from ...audit.summary import CauseOverTests, causes_over_tests, summary_lines
from ...words import counted, markdown_code, markdown_text
from . import markdown
from .annotations import TITLES
from .document import ChangeOverTests, Place, changes_over_tests, place_of_cause
from .markdown import Table
from .workspace import Workspace

LIMIT = 1024 * 1024
"""How many bytes of a step GitHub takes; of a longer summary it shows nothing."""
MARGIN = 1024
"""How many of them stay free for other writers."""
WHOLE = 10_000
"""The width of lines that are not cut."""
SHOWN = 20
"""How many rows of a table are seen without a click."""


def append_summary(path: Path, outcome: Outcome, workspace: Workspace) -> None:
    """Append the summary to what other steps' programs have written.

    Raises:
        OSError: where that cannot be done.
    """
    taken = path.stat().st_size if path.exists() else 0
    lines = summary(outcome, workspace, LIMIT - MARGIN - taken)
    with path.open("a", encoding="utf-8", errors="backslashreplace", newline="\n") as file:
        file.write("\n" * (taken > 0) + "\n".join(lines) + "\n")


def summary(outcome: Outcome, workspace: Workspace, budget: int) -> list[str]:
    """The lines of the summary, which take at most so many bytes.

    Raises:
        OSError: where not even the first lines fit.
    """
    lines = [*_head(outcome)]
    if markdown.size(lines) > budget:
        raise OSError("the summary of this step is full")
    for table in _tables(outcome, workspace):
        lines += table.lines(budget - markdown.size(lines))
    return lines


def _head(outcome: Outcome) -> Iterator[str]:
    yield "### torchgraph audit"
    yield ""
    if outcome.broken:
        broken = markdown_text(outcome.broken)
        yield f"**This run could not be watched**, and this is not all: {broken}"
        yield ""
    if outcome.facts or not outcome.broken:  # else nobody knows
        yield markdown_text(next(iter(summary_lines(outcome.facts, outcome.tests, width=WHOLE))))
        yield ""
    verdict = outcome.verdict
    if verdict is None or not (verdict.worse or verdict.better):
        for line in outcome.said:
            yield from (markdown_text(line), "")
    elif verdict.worse:
        worse = len(changes_over_tests(verdict.worse))
        yield f"**{counted(worse, 'change')} for the worse** since {markdown_code(outcome.file)}"
        yield ""


def _tables(outcome: Outcome, workspace: Workspace) -> Iterator[Table]:
    verdict = outcome.verdict
    if verdict is not None:
        columns = ("tests", "what", "the first test")
        worse, better = (
            [_change(each, workspace) for each in changes_over_tests(changes)]
            for changes in (verdict.worse, verdict.better)
        )
        if worse:
            yield Table(f"Worse than {markdown_code(outcome.file)}", columns, worse)
        if better:
            heading = (
                f"Better than {markdown_code(outcome.file)}: --torchgraph-audit=record keeps that"
            )
            yield Table(heading, columns, better)
        if verdict.renamed:
            rows = [
                [markdown_code(old), markdown_code(new)] for old, new in sorted(verdict.renamed)
            ]
            yield Table("Renamed, it seems", ("old", "new"), rows, folded=True)
    causes = [_cause(each, outcome, workspace) for each in causes_over_tests(outcome.facts)]
    titles = ("tests", "what", "line", "code or reason", "the first test")
    if outcome.mode == "check":
        shown, folded = [], causes
    else:
        shown, folded = causes[:SHOWN], causes[SHOWN:]
    if shown:
        yield Table("Causes", titles, shown)
    if outcome.settings:
        rows = [[*map(markdown_code, each)] for each in outcome.settings]
        heading = "Settings that tests leave changed"
        yield Table(heading, ("setting", "before", "after", "the first test"), rows)
    if folded:
        what = counted(len(folded), "more cause" if shown else "cause")
        yield Table(what, titles, folded, folded=True)


def _change(each: ChangeOverTests, workspace: Workspace) -> list[str]:
    if each.place.shown in each.text:
        what = markdown.link(markdown_code(each.text), workspace.link(each.place))
    else:
        what = f"{markdown_code(each.text)} in {_line(each.place, workspace)}"
    return [str(len(each.tests)), what, markdown_code(each.tests[0])]


def _cause(each: CauseOverTests, outcome: Outcome, workspace: Workspace) -> list[str]:
    cause = each.cause
    place = place_of_cause(cause, outcome.facts[each.tests[0]])
    return [
        str(len(each.tests)),
        TITLES[cause.kind],
        _line(place, workspace),
        markdown_code(cause.code or cause.text),
        markdown_code(each.tests[0]),
    ]


def _line(place: Place, workspace: Workspace) -> str:
    return markdown.link(markdown_code(place.shown), workspace.link(place))
