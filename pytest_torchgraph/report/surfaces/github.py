"""An audit on GitHub Actions: annotations with paths in the checkout, and a summary of the step."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal
from urllib.parse import quote

import pytest

from ...audit.facts import CauseKind
from ...audit.report import outcome_of
from ...audit.summary import CauseOverTests, causes_over_tests, summary_lines
from ...audit.verdict import AuditOutcome
from ...graph.diff.joining import some
from ...snapshot.summary import brief
from ...words import counted, markdown_code, markdown_text
from .document import (
    NOWHERE,
    ChangeOverTests,
    CodePlace,
    changes_over_tests,
    describe_over_tests,
    place_of_cause,
)

_INSTALLED = frozenset({"site-packages", "dist-packages"})
"""Directories of installed packages: a virtual environment may lie in the workspace."""


class Workspace:
    """Finds the files that facts name.

    Args:
        config: of the run.
        environment: the variables that GitHub sets: `GITHUB_WORKSPACE`, and for links
            `GITHUB_SERVER_URL`, `GITHUB_REPOSITORY` and `GITHUB_SHA`.
    """

    def __init__(self, config: pytest.Config, environment: Mapping[str, str]) -> None:
        root = environment.get("GITHUB_WORKSPACE") or str(config.rootpath)
        self._root = Path(os.path.realpath(root))
        self._homes = (config.rootpath, config.invocation_params.dir)
        address = [
            environment.get(f"GITHUB_{name}", "") for name in ("SERVER_URL", "REPOSITORY", "SHA")
        ]
        server, repository, commit = address
        self._blob = f"{server}/{repository}/blob/{commit}" if all(address) else ""
        self._found: dict[str, str] = {}

    def path(self, file: str) -> str:
        """The path of a file from the workspace on, with `/`; "" for one that is not in it.

        Args:
            file: as facts have it: relative to pytest's rootdir, the working directory, or an entry
                of the import path.
        """
        if file not in self._found:
            self._found[file] = next(self._paths(file), "") if file else ""
        return self._found[file]

    def link(self, place: CodePlace) -> str:
        """The address of a line on GitHub, "" where it has none."""
        path = self.path(place.file)
        return f"{self._blob}/{quote(path)}#L{place.line}" if path and self._blob else ""

    def _paths(self, file: str) -> Iterator[str]:
        for home in (*map(str, self._homes), *filter(None, sys.path)):
            path = Path(os.path.realpath(Path(home, file)))
            if path.is_relative_to(self._root) and path.is_file():
                inside = path.relative_to(self._root)
                if _INSTALLED.isdisjoint(inside.parts):
                    yield inside.as_posix()


Level = Literal["error", "warning"]

MOST = 10
"""How many annotations of a level GitHub shows."""
TESTS = 3
"""How many tests an annotation names."""

TITLES: dict[CauseKind, str] = {
    "break": "graph break",
    "recompile": "recompilation",
    "limit": "recompile limit",
    "bypass": "compiled anew in every process",
    "eager": "ran eagerly",
    "nothing": "nothing is compiled",
}


@dataclass(frozen=True, slots=True)
class Annotation:
    """A text at a line of code, or at none.

    Attributes:
        level: how GitHub shows it.
        title: a few words.
        text: what is to be said; may have several lines.
        place: the line; of one without a file, and outside of the workspace, the text alone is
            shown.
    """

    level: Level
    title: str
    text: str
    place: CodePlace = NOWHERE

    def command(self, workspace: Workspace) -> str:
        """The line that makes the annotation."""
        path = workspace.path(self.place.file)
        properties = {"file": path, "line": str(self.place.line)} if path else {}
        properties["title"] = f"torchgraph: {self.title}"
        listed = ",".join(f"{name}={_property(value)}" for name, value in properties.items())
        return f"::{self.level} {listed}::{_data(self.text)}"


def annotations_of(outcome: AuditOutcome) -> list[Annotation]:
    """What is to be said of an audit, at most `MOST`, the costliest first.

    After a check that is what is worse, or that nothing was compared. What the baseline tolerates
    is not said. In the other modes it is each cause.
    """
    found = [*_problems(outcome)]
    if outcome.mode == "check":
        found += _worse(outcome)
    else:
        found += _causes(outcome)
    if len(found) <= MOST:
        return found
    left = len(found) - MOST + 1
    text = f"and {left} more, in the step summary and in the log's section torchgraph audit (-v)"
    return [*found[: MOST - 1], Annotation(found[-1].level, f"{left} more", text)]


def _problems(outcome: AuditOutcome) -> Iterator[Annotation]:
    level: Level = "error" if outcome.mode == "check" else "warning"
    if outcome.broken:
        text = f"this run could not be watched, and nothing of it is judged: {outcome.broken}"
        yield Annotation(level, "not watched", text)
    elif outcome.mode == "check" and not outcome.verdict:
        yield Annotation(level, "not checked", "\n".join(outcome.said))
    elif outcome.verdict and outcome.verdict.vacuous:
        yield Annotation(level, "nothing was compared", outcome.said[0])


def _worse(outcome: AuditOutcome) -> Iterator[Annotation]:
    title = f"worse than {outcome.file}"
    for each in changes_over_tests(outcome.verdict.worse if outcome.verdict else ()):
        yield Annotation("error", title, _with_tests(each.text, each.place, each.tests), each.place)


def _causes(outcome: AuditOutcome) -> Iterator[Annotation]:
    for each in causes_over_tests(outcome.facts):
        place = CodePlace.parse(each.cause.guard_place)
        if not place.file:
            place = place_of_cause(each.cause, outcome.facts[each.tests[0]])
        said = "\n".join(filter(None, (describe_over_tests(each), each.cause.guard)))
        text = _with_tests(said, place, each.tests)
        yield Annotation("warning", TITLES[each.cause.kind], text, place)


def _with_tests(text: str, place: CodePlace, tests: Sequence[str]) -> str:
    if place.file and place.file not in text:
        text += f" ({place.shown})"
    return f"{text}\n{counted(len(tests), 'test')}: {some(tests, TESTS)}"


def _data(text: str) -> str:
    return text.replace("%", "%25").replace("\r", "%0D").replace("\n", "%0A")


def _property(text: str) -> str:
    return _data(text).replace(":", "%3A").replace(",", "%2C")


def link(shown: str, address: str) -> str:
    """A link around markdown; what is shown alone where there is no address."""
    return f"[{shown}]({address})" if address else shown


@dataclass(frozen=True, slots=True)
class Table:
    """A table with a heading.

    Attributes:
        heading: one line.
        columns: their titles.
        rows: the cells, as markdown.
        folded: whether a click shows it.
    """

    heading: str
    columns: Sequence[str]
    rows: Sequence[Sequence[str]]
    folded: bool = False

    def lines(self, budget: int) -> Iterator[str]:
        """The lines, in at most so many bytes; a last one says how many rows are left out."""
        head = [
            f"<details><summary>{self.heading}</summary>" if self.folded else f"#### {self.heading}"
        ]
        head += ["", _row(self.columns), _row(["---"] * len(self.columns))]
        foot = ["", "</details>", ""] if self.folded else [""]
        left_out = ["", f"{len(self.rows)} more are left out: GitHub takes no longer summary."]
        budget -= size([*head, *left_out, *foot])
        if budget < 0:
            return
        yield from head
        for number, row in enumerate(map(_row, self.rows)):
            budget -= size([row])
            if budget < 0:
                left = len(self.rows) - number
                yield from ("", f"{left} more are left out: GitHub takes no longer summary.")
                break
            yield row
        yield from foot


def size(lines: Sequence[str]) -> int:
    """How many bytes lines take in a file."""
    return sum(len(line.encode("utf-8", "backslashreplace")) + 1 for line in lines)


def _row(cells: Sequence[str]) -> str:
    return f"| {' | '.join(cells)} |"


LIMIT = 1024 * 1024
"""How many bytes of a step GitHub takes; of a longer summary it shows nothing."""
MARGIN = 1024
"""How many of them stay free for other writers."""
WHOLE = 10_000
"""The width of lines that are not cut."""
SHOWN = 20
"""How many rows of a table are seen without a click."""


def append_summary(path: Path, outcome: AuditOutcome, workspace: Workspace) -> None:
    """Append the summary to what other steps' programs have written.

    Raises:
        OSError: where that cannot be done.
    """
    taken = path.stat().st_size if path.exists() else 0
    lines = summary(outcome, workspace, LIMIT - MARGIN - taken)
    with path.open("a", encoding="utf-8", errors="backslashreplace", newline="\n") as file:
        file.write("\n" * (taken > 0) + "\n".join(lines) + "\n")


def summary(outcome: AuditOutcome, workspace: Workspace, budget: int) -> list[str]:
    """The lines of the summary, which take at most so many bytes.

    Raises:
        OSError: where not even the first lines fit.
    """
    lines = [*_head(outcome)]
    if size(lines) > budget:
        raise OSError("the summary of this step is full")
    for table in _tables(outcome, workspace):
        lines += table.lines(budget - size(lines))
    return lines


def _head(outcome: AuditOutcome) -> Iterator[str]:
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


def _tables(outcome: AuditOutcome, workspace: Workspace) -> Iterator[Table]:
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
        rows = [[markdown_code(cell) for cell in each] for each in outcome.settings]
        heading = "Settings that tests leave changed"
        yield Table(heading, ("setting", "before", "after", "the first test"), rows)
    if folded:
        what = counted(len(folded), "more cause" if shown else "cause")
        yield Table(what, titles, folded, folded=True)


def _change(each: ChangeOverTests, workspace: Workspace) -> list[str]:
    if each.place.shown in each.text:
        what = link(markdown_code(each.text), workspace.link(each.place))
    else:
        what = f"{markdown_code(each.text)} in {_line(each.place, workspace)}"
    return [str(len(each.tests)), what, markdown_code(each.tests[0])]


def _cause(each: CauseOverTests, outcome: AuditOutcome, workspace: Workspace) -> list[str]:
    cause = each.cause
    place = place_of_cause(cause, outcome.facts[each.tests[0]])
    return [
        str(len(each.tests)),
        TITLES[cause.kind],
        _line(place, workspace),
        markdown_code(cause.code or cause.text),
        markdown_code(each.tests[0]),
    ]


def _line(place: CodePlace, workspace: Workspace) -> str:
    return link(markdown_code(place.shown), workspace.link(place))


class GitHub:
    """A plugin of the process that reports.

    It reads `GITHUB_WORKSPACE` and `GITHUB_STEP_SUMMARY`, which GitHub sets for each step.
    """

    def __init__(self, config: pytest.Config) -> None:
        self._config = config
        self._workspace = Workspace(config, os.environ)
        self._summary = os.environ.get("GITHUB_STEP_SUMMARY", "")
        self._problem = ""

    @pytest.hookimpl(trylast=True)
    def pytest_sessionfinish(self) -> None:
        """Append to the summary of the step. A failure to do so changes no outcome."""
        outcome = outcome_of(self._config)
        if outcome is None or not self._summary:
            return
        try:
            append_summary(Path(self._summary), outcome, self._workspace)
        except Exception as error:
            self._problem = brief(error)

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        """Print the annotations, each at the start of a line: GitHub sees no other."""
        outcome = outcome_of(self._config)
        if outcome is None:
            return
        for annotation in annotations_of(outcome):
            terminalreporter.write_line(annotation.command(self._workspace))
        if self._problem:
            line = f"torchgraph: the summary of this step was not written: {self._problem}"
            terminalreporter.write_line(line, red=True)
