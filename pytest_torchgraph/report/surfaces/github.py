"""An audit on GitHub Actions: annotations with paths in the checkout, and a step summary.

The summary has the lines of the terminal. Only annotations lead to lines of code.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Literal, NamedTuple

import pytest

from ...audit.facts import CodePlace
from ...audit.session import outcome_of
from ...audit.summary import KINDS, causes_over_tests, summary_lines
from ...audit.verdict import AuditOutcome
from ...graph.diff import list_some
from ...snapshot.summary import brief
from ...words import counted, markdown_text, one_line, printable
from .document import changes_over_tests

_INSTALLED = frozenset({"site-packages", "dist-packages"})
"""Directories of installed packages, for example of a virtual environment in the workspace."""


class Workspace:
    """Converter of the file names in facts to paths of the checkout.

    Args:
        config: pytest config of the run.
        root: the directory of the checkout.
    """

    def __init__(self, config: pytest.Config, root: str) -> None:
        self._root = Path(os.path.realpath(root))
        self._homes = (config.rootpath, config.invocation_params.dir)
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

    def _paths(self, file: str) -> Iterator[str]:
        """Yield the paths in the checkout that a file name of facts may mean; the first counts."""
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


class Annotation(NamedTuple):
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
    place: CodePlace = CodePlace()

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
    found = _worse(outcome) if outcome.mode == "check" else _causes(outcome)
    annotations = [*_problems(outcome), *found]
    if len(annotations) <= MOST:
        return annotations
    omitted = len(annotations) - MOST + 1
    text = (
        f"and {omitted} more: see the step summary, or the section 'torchgraph audit' of the "
        "log (-v lists all)"
    )
    return [*annotations[: MOST - 1], Annotation(annotations[-1].level, f"{omitted} more", text)]


def _problems(outcome: AuditOutcome) -> Iterator[Annotation]:
    """Yield an annotation if the audit is incomplete, or if nothing was compared."""
    level: Level = "error" if outcome.mode == "check" else "warning"
    if outcome.broken:
        text = f"incomplete audit, so nothing was compared: {outcome.broken}"
        yield Annotation(level, "not watched", text)
    elif outcome.mode == "check" and not outcome.verdict:
        yield Annotation(level, "not checked", "\n".join(outcome.said))
    elif outcome.verdict and outcome.verdict.vacuous:
        yield Annotation(level, "nothing was compared", outcome.said[0])


def _worse(outcome: AuditOutcome) -> Iterator[Annotation]:
    """Yield an annotation for each change for the worse."""
    title = f"worse than {outcome.file}"
    for change in changes_over_tests(outcome.verdict.worse if outcome.verdict else ()):
        yield Annotation(
            "error", title, _with_tests(change.text, change.place, change.tests), change.place
        )


def _causes(outcome: AuditOutcome) -> Iterator[Annotation]:
    """Yield an annotation for each cause; for a recompile, at the line that created the guard."""
    for shared_cause in causes_over_tests(outcome.facts):
        guard = CodePlace.parse(shared_cause.cause.guard_place)
        place = guard if guard.file else shared_cause.place
        text = _with_tests(shared_cause.text, place, shared_cause.tests)
        yield Annotation("warning", KINDS[shared_cause.cause.kind][0], text, place)


def _with_tests(text: str, place: CodePlace, tests: Sequence[str]) -> str:
    """Add the place, unless the text names it, and the tests."""
    if place.file and place.file not in text:
        text += f" ({place.shown})"
    return f"{text}\n{counted(len(tests), 'test')}: {list_some(tests, TESTS)}"


def _data(text: str) -> str:
    """Escape the text of a workflow command."""
    return printable(text).replace("%", "%25").replace("\n", "%0A")


def _property(text: str) -> str:
    """Escape the value of a property of a workflow command."""
    return _data(text).replace(":", "%3A").replace(",", "%2C")


LIMIT = 1024 * 1024
"""Maximum size of a step summary in bytes. GitHub shows nothing of a longer summary."""
MARGIN = 1024
"""Bytes left free for a note, and for other writers."""


def append_summary(path: Path, outcome: AuditOutcome) -> None:
    """Append the summary to the text that other programs of the step have written.

    Raises:
        OSError: if the file cannot be written or has no room.
    """
    bytes_used = path.stat().st_size if path.exists() else 0
    lines = summary(outcome, LIMIT - MARGIN - bytes_used)
    with path.open("a", encoding="utf-8", errors="backslashreplace", newline="\n") as file:
        file.write("\n" * (bytes_used > 0) + "\n".join(lines) + "\n")


def summary(outcome: AuditOutcome, budget: int) -> list[str]:
    """Return the lines of the summary, at most `budget` bytes besides a note.

    Raises:
        OSError: if not even one line fits.
    """
    lines = ["### torchgraph audit", ""]
    lines += [f"- {markdown_text(line)}" for line in _lines(outcome)]
    for number, line in enumerate(lines):
        budget -= len(line.encode("utf-8", "backslashreplace")) + 1
        if budget < 0:
            if number < 3:  # heading, empty line, and the first line of the audit
                raise OSError("the file of the step summary is full")
            omitted = counted(len(lines) - number, "more line")
            note = f"{omitted} omitted: GitHub limits the size of a summary."
            return [*lines[:number], "", note]
    return lines


def _lines(outcome: AuditOutcome) -> Iterator[str]:
    """Yield the lines of the terminal, all causes among them."""
    if outcome.broken:
        yield f"incomplete audit: {outcome.broken}"
    if outcome.facts or not outcome.broken:  # else the counts are unknown
        yield from summary_lines(
            outcome.facts,
            outcome.tests,
            verbose=True,
            settings=outcome.settings,
            isolated=outcome.isolated,
        )
    yield from outcome.said


class GitHub:
    """Plugin of the reporting process that writes annotations and the step summary.

    GitHub sets `GITHUB_WORKSPACE` and `GITHUB_STEP_SUMMARY` for each step.
    """

    def __init__(self, config: pytest.Config) -> None:
        self._config = config
        root = os.environ.get("GITHUB_WORKSPACE") or str(config.rootpath)
        self._workspace = Workspace(config, root)
        self._summary = os.environ.get("GITHUB_STEP_SUMMARY", "")
        self._problem = ""

    @pytest.hookimpl(trylast=True)
    def pytest_sessionfinish(self) -> None:
        """Append to the summary of the step. An error changes no outcome."""
        outcome = outcome_of(self._config)
        if outcome is None or not self._summary:
            return
        try:
            append_summary(Path(self._summary), outcome)
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
