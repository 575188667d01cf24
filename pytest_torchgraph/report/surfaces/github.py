"""An audit on GitHub Actions: annotations with paths in the checkout, and a step summary."""

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
from ...audit.session import outcome_of
from ...audit.summary import CauseOverTests, causes_over_tests, summary_lines
from ...audit.verdict import AuditOutcome
from ...graph.diff import list_some
from ...snapshot.summary import brief
from ...words import counted, markdown_code, markdown_text, one_line, printable
from .document import (
    NOWHERE,
    ChangeOverTests,
    CodePlace,
    changes_over_tests,
    describe_over_tests,
    place_of_cause,
)

_INSTALLED = frozenset({"site-packages", "dist-packages"})
"""Directories of installed packages, for example of a virtual environment in the workspace."""


class Workspace:
    """Converter of the file names in facts to paths and links of the checkout.

    Args:
        config: pytest config of the run.
        environment: environment variables: `GITHUB_WORKSPACE`, and for links `GITHUB_SERVER_URL`,
            `GITHUB_REPOSITORY` and `GITHUB_SHA`.
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
        self._path_of_file: dict[str, str] = {}

    def path(self, file: str) -> str:
        """Return a file's path relative to the workspace, with `/`, or "" if the file is outside.

        Args:
            file: path as in facts: relative to pytest's rootdir, the working directory, or an entry
                of the import path.
        """
        if file not in self._path_of_file:
            self._path_of_file[file] = next(self._paths(file), "") if file else ""
        return self._path_of_file[file]

    def link(self, place: CodePlace) -> str:
        """Return the URL of a line on GitHub; "" if the file is not in the workspace."""
        path = self.path(place.file)
        return f"{self._blob}/{quote(path)}#L{place.line}" if path and self._blob else ""

    def _paths(self, file: str) -> Iterator[str]:
        for home in (*map(str, self._homes), *filter(None, sys.path)):
            path = Path(os.path.realpath(Path(home, file)))
            if path.is_relative_to(self._root) and path.is_file():
                path_in_root = path.relative_to(self._root)
                if _INSTALLED.isdisjoint(path_in_root.parts):
                    yield path_in_root.as_posix()


Level = Literal["error", "warning"]

MOST = 10
"""Maximum number of annotations per level that GitHub shows."""
TESTS = 3
"""Maximum number of tests named in an annotation."""

TITLES: dict[CauseKind, str] = {
    "break": "graph break",
    "recompile": "recompile",
    "limit": "recompile limit",
    "bypass": "cache bypass",
    "eager": "ran eagerly",
    "nothing": "nothing compiled",
}


@dataclass(frozen=True, slots=True)
class Annotation:
    """A text, usually attached to a line of code.

    Attributes:
        level: severity on GitHub.
        title: short title.
        text: message; may span several lines.
        place: the line of code. If the file is unknown or outside the workspace, GitHub shows only
            the text.
    """

    level: Level
    title: str
    text: str
    place: CodePlace = NOWHERE

    def command(self, workspace: Workspace) -> str:
        """Return the workflow command that creates the annotation."""
        path = workspace.path(self.place.file)
        properties = {"file": path, "line": str(self.place.line)} if path else {}
        properties["title"] = f"torchgraph: {self.title}"
        property_list = ",".join(f"{name}={_property(value)}" for name, value in properties.items())
        return f"::{self.level} {property_list}::{_data(self.text)}"


def annotations_of(outcome: AuditOutcome) -> list[Annotation]:
    """Return at most `MOST` annotations of an audit, the most important first.

    In the mode "check", these are the changes for the worse, or one annotation if nothing was
    compared. Causes that the baseline tolerates are left out. In the other modes, every cause has
    an annotation.
    """
    annotations = [*_problems(outcome)]
    if outcome.mode == "check":
        annotations += _worse(outcome)
    else:
        annotations += _causes(outcome)
    if len(annotations) <= MOST:
        return annotations
    omitted = len(annotations) - MOST + 1
    text = (
        f"and {omitted} more: see the step summary, or the section 'torchgraph audit' of the "
        "log (-v lists all)"
    )
    return [*annotations[: MOST - 1], Annotation(annotations[-1].level, f"{omitted} more", text)]


def _problems(outcome: AuditOutcome) -> Iterator[Annotation]:
    level: Level = "error" if outcome.mode == "check" else "warning"
    if outcome.broken:
        text = f"incomplete audit, so nothing was compared: {outcome.broken}"
        yield Annotation(level, "not watched", text)
    elif outcome.mode == "check" and not outcome.verdict:
        yield Annotation(level, "not checked", "\n".join(outcome.said))
    elif outcome.verdict and outcome.verdict.vacuous:
        yield Annotation(level, "nothing was compared", outcome.said[0])


def _worse(outcome: AuditOutcome) -> Iterator[Annotation]:
    title = f"worse than {outcome.file}"
    for change in changes_over_tests(outcome.verdict.worse if outcome.verdict else ()):
        yield Annotation(
            "error", title, _with_tests(change.text, change.place, change.tests), change.place
        )


def _causes(outcome: AuditOutcome) -> Iterator[Annotation]:
    for shared_cause in causes_over_tests(outcome.facts):
        place = CodePlace.parse(shared_cause.cause.guard_place)
        if not place.file:
            place = place_of_cause(shared_cause.cause, outcome.facts[shared_cause.tests[0]])
        text = _with_tests(describe_over_tests(shared_cause), place, shared_cause.tests)
        yield Annotation("warning", TITLES[shared_cause.cause.kind], text, place)


def _with_tests(text: str, place: CodePlace, tests: Sequence[str]) -> str:
    if place.file and place.file not in text:
        text += f" ({place.shown})"
    return f"{text}\n{counted(len(tests), 'test')}: {list_some(tests, TESTS)}"


def _data(text: str) -> str:
    return printable(text).replace("%", "%25").replace("\n", "%0A")


def _property(text: str) -> str:
    return _data(text).replace(":", "%3A").replace(",", "%2C")


def link(shown: str, address: str) -> str:
    """Return a markdown link, or only the text if `address` is empty."""
    return f"[{shown}]({address})" if address else shown


@dataclass(frozen=True, slots=True)
class Table:
    """A table with a heading.

    Attributes:
        heading: one line.
        columns: titles of the columns.
        rows: cells, as markdown.
        folded: True if the table is collapsed until clicked.
    """

    heading: str
    columns: Sequence[str]
    rows: Sequence[Sequence[str]]
    folded: bool = False

    def lines(self, budget: int) -> Iterator[str]:
        """Yield the lines of the table, ending with the number of omitted rows if any.

        Args:
            budget: maximum size in bytes. If the head of the table does not fit, nothing is
                yielded.
        """
        head = [
            f"<details><summary>{self.heading}</summary>" if self.folded else f"#### {self.heading}"
        ]
        head += ["", _row(self.columns), _row(["---"] * len(self.columns))]
        foot = ["", "</details>", ""] if self.folded else [""]
        note = "{} more omitted: GitHub limits the size of a summary."
        budget -= size([*head, "", note.format(len(self.rows)), *foot])
        if budget < 0:
            return
        yield from head
        for number, row in enumerate(map(_row, self.rows)):
            budget -= size([row])
            if budget < 0:
                yield from ("", note.format(len(self.rows) - number))
                break
            yield row
        yield from foot


def size(lines: Sequence[str]) -> int:
    """Return the size of the lines in a file, in bytes."""
    return sum(len(line.encode("utf-8", "backslashreplace")) + 1 for line in lines)


def _row(cells: Sequence[str]) -> str:
    return f"| {' | '.join(cells)} |"


LIMIT = 1024 * 1024
"""Maximum size of a step summary in bytes. GitHub shows nothing of a longer summary."""
MARGIN = 1024
"""Bytes left free for other writers."""
WHOLE = 10_000
"""Width that avoids truncating lines."""
MAX_VISIBLE_ROWS = 20
"""Number of table rows visible without a click."""


def append_summary(path: Path, outcome: AuditOutcome, workspace: Workspace) -> None:
    """Append the summary to the text that other programs of the step have written.

    Raises:
        OSError: if the file cannot be written or has no room.
    """
    bytes_used = path.stat().st_size if path.exists() else 0
    lines = summary(outcome, workspace, LIMIT - MARGIN - bytes_used)
    with path.open("a", encoding="utf-8", errors="backslashreplace", newline="\n") as file:
        file.write("\n" * (bytes_used > 0) + "\n".join(lines) + "\n")


def summary(outcome: AuditOutcome, workspace: Workspace, budget: int) -> list[str]:
    """Return the lines of the summary, at most `budget` bytes.

    Raises:
        OSError: if not even the first lines fit.
    """
    lines = [*_head(outcome)]
    if size(lines) > budget:
        raise OSError("the file of the step summary is full")
    for table in _tables(outcome, workspace):
        lines += table.lines(budget - size(lines))
    return lines


def _head(outcome: AuditOutcome) -> Iterator[str]:
    yield "### torchgraph audit"
    yield ""
    if outcome.broken:
        reason = markdown_text(outcome.broken)
        yield f"**Incomplete audit**: {reason}"
        yield ""
    if outcome.facts or not outcome.broken:  # else the counts are unknown
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
        columns = ("tests", "what", "first test")
        worse, better = (
            [_change_row(change, workspace) for change in changes_over_tests(changes)]
            for changes in (verdict.worse, verdict.better)
        )
        if worse:
            yield Table(f"Worse than {markdown_code(outcome.file)}", columns, worse)
        if better:
            advice = "pytest --torchgraph-audit=record keeps this"
            heading = f"Better than {markdown_code(outcome.file)}: {advice}"
            yield Table(heading, columns, better)
        if verdict.renamed:
            rows = [
                [markdown_code(old), markdown_code(new)] for old, new in sorted(verdict.renamed)
            ]
            yield Table("Probably renamed", ("old", "new"), rows, folded=True)
    causes = [
        _cause_row(shared_cause, outcome, workspace)
        for shared_cause in causes_over_tests(outcome.facts)
    ]
    cause_columns = ("tests", "what", "line", "code or reason", "first test")
    if outcome.mode == "check":
        visible, folded = [], causes
    else:
        visible, folded = causes[:MAX_VISIBLE_ROWS], causes[MAX_VISIBLE_ROWS:]
    if visible:
        yield Table("Causes", cause_columns, visible)
    if outcome.settings:
        rows = [[markdown_code(cell) for cell in setting] for setting in outcome.settings]
        heading = "Torch settings that tests changed and did not restore"
        yield Table(heading, ("setting", "before", "after", "first test"), rows)
    if folded:
        heading_text = counted(len(folded), "more cause" if visible else "cause")
        yield Table(heading_text, cause_columns, folded, folded=True)


def _change_row(change: ChangeOverTests, workspace: Workspace) -> list[str]:
    if change.place.shown in change.text:
        linked_text = link(markdown_code(change.text), workspace.link(change.place))
    else:
        linked_text = f"{markdown_code(change.text)} in {_line(change.place, workspace)}"
    return [str(len(change.tests)), linked_text, markdown_code(change.tests[0])]


def _cause_row(
    shared_cause: CauseOverTests, outcome: AuditOutcome, workspace: Workspace
) -> list[str]:
    cause = shared_cause.cause
    place = place_of_cause(cause, outcome.facts[shared_cause.tests[0]])
    return [
        str(len(shared_cause.tests)),
        TITLES[cause.kind],
        _line(place, workspace),
        markdown_code(cause.code or cause.text),
        markdown_code(shared_cause.tests[0]),
    ]


def _line(place: CodePlace, workspace: Workspace) -> str:
    return link(markdown_code(place.shown), workspace.link(place))


class GitHub:
    """Plugin of the reporting process that writes annotations and the step summary.

    GitHub sets `GITHUB_WORKSPACE` and `GITHUB_STEP_SUMMARY` for each step.
    """

    def __init__(self, config: pytest.Config) -> None:
        self._config = config
        self._workspace = Workspace(config, os.environ)
        self._summary = os.environ.get("GITHUB_STEP_SUMMARY", "")
        self._problem = ""

    @pytest.hookimpl(trylast=True)
    def pytest_sessionfinish(self) -> None:
        """Append to the summary of the step. An error changes no outcome."""
        outcome = outcome_of(self._config)
        if outcome is None or not self._summary:
            return
        try:
            append_summary(Path(self._summary), outcome, self._workspace)
        except Exception as error:
            self._problem = brief(error)

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        """Print the annotations, each at the start of a line, where GitHub parses them."""
        outcome = outcome_of(self._config)
        if outcome is None:
            return
        for annotation in annotations_of(outcome):
            terminalreporter.write_line(annotation.command(self._workspace))
        if self._problem:
            line = f"torchgraph: cannot write the GitHub step summary: {self._problem}"
            terminalreporter.write_line(one_line(line), red=True)
