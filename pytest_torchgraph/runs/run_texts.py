"""The difference of two runs, as text, Markdown and plain data."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass, field
from typing import Any, Literal

from ..graph.diff import (
    Finding,
    cost_text,
    finding_lines,
    list_some,
    problem_finding,
    shorten,
    source_text,
)
from ..graph.model import Source
from ..words import counted, first_lines, grouped, listed, markdown_code, markdown_text, one_line

JSON_VERSION = 1
MOST_CHARACTERS = 64_000
"""Maximum length of the Markdown: a comment on GitHub has 65,536 characters, some of the action."""
_TESTS = 5
"""Maximum number of tests to name, unless all are asked for."""
HIDDEN = "graphs that are not compared may differ too: mend the causes, and save a run again"
"""The note if a cause hides others."""
_FILES = 10
"""Maximum number of files of tests to list."""

RunCauseKind = Literal["share", "eager", "break", "recompile", "edit"]
"""Kinds of causes, the worst first.

- `share`: a test that compiled compiles nothing, or less of a capture is compiled; or the reverse.
- `eager`: calls of compiled callables that run eagerly in one run.
- `break`: a graph break that one run has. It explains the graphs of its tests.
- `recompile`: a recompile that one run has.
- `edit`: a difference of the graphs.
"""


@dataclass(frozen=True)
class RunCause:
    """One cause of differences between two runs, with all tests that have it.

    Attributes:
        kind: see `RunCauseKind`.
        text: the cause in one line.
        source: the line of the user's code; `None` if unknown.
        tests: the ids of the tests.
        finding: the finding of an edit or a graph break; `None` for other kinds.
        ops: of a graph break, the ops that any of its tests gained or lost, with how many, casts
            first: the graphs of these tests are not compared.
        hides: True if graphs are not compared because of it.
    """

    kind: RunCauseKind
    text: str
    source: Source | None
    tests: tuple[str, ...]
    finding: Finding | None = field(default=None, repr=False)
    ops: tuple[str, ...] = ()
    hides: bool = False


@dataclass(frozen=True, repr=False)
class RunDiff:
    """The difference of two saved runs; false if there are no causes.

    Attributes:
        causes: each cause once, the worst first.
        added, removed: the ids of tests that only the second or only the first run has.
        renamed: the old and the new id of each test whose record is equal.
        not_compared: maps the id of each other test of both runs to the reason.
        compared: the ids of the tests that were compared, in the second run. Tests that compile and
            capture nothing in both runs are not among them.
        notes: what to know first: other versions, and runs that are not complete.
        complete: False if one of the runs is not complete.
    """

    causes: tuple[RunCause, ...]
    added: tuple[str, ...] = ()
    removed: tuple[str, ...] = ()
    renamed: tuple[tuple[str, str], ...] = ()
    not_compared: Mapping[str, str] = field(default_factory=dict)
    compared: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()
    complete: bool = True

    def __bool__(self) -> bool:
        return bool(self.causes)

    @property
    def findings(self) -> tuple[Finding, ...]:
        """The findings of all causes that have one."""
        return tuple(cause.finding for cause in self.causes if cause.finding is not None)

    @property
    def exit_status(self) -> int:
        """1 if there are causes, 2 if nothing or only a part could be compared, else 0."""
        if self.causes:
            return 1
        return 0 if self.compared and self.complete else 2

    def heading(self) -> str:
        """Return one line: the numbers of causes and tests."""
        tests = counted(len(self.compared), "test")
        if self.causes:
            touched = len({test for cause in self.causes for test in cause.tests})
            text = f"{counted(len(self.causes), 'cause')} in {touched:,} of {tests}"
            hides = any(cause.hides for cause in self.causes)
            return f"{text}, which may hide others" if hides else text
        if not self.compared:
            return (
                "nothing was compared: no test that passed in both runs compiled or captured "
                "anything"
            )
        return f"no difference in {tests}"

    def to_text(self, limit: int | None = 10, *, why: bool = False) -> str:
        """Return the difference as text, without its notes and heading.

        Args:
            limit: maximum number of causes to list; `None` for all.
            why: True to list the reasons of each edit; see `Finding.to_text`.
        """
        tests = None if limit is None else _TESTS
        lines: list[str] = []
        for cause in self.causes[:limit]:
            lines += _cause_lines(cause, limit, why)
        lines += _rest(self, limit)
        for title, names in _lists(self):
            lines.append(f"{title}: {listed(names, tests)}")
        return "\n".join(map(one_line, lines))

    def to_markdown(self) -> str:
        """Return the difference as Markdown for a comment, at most 65,536 characters long.

        The worst causes are listed, and the rest is counted. Nothing of a run is parsed as markup.
        """
        head = [f"**{markdown_text(self.heading())}**", ""]
        notes = [shorten(note) for note in self.notes]
        head += [*(f"- {markdown_text(note)}" for note in notes), ""] if notes else []
        head += _verdicts(self)
        tail = [
            f"- {markdown_text(shorten(title))}: {_code(names)}"
            for title, names in [*_lists(self)][:20]
        ]
        table = ["| | cause | where | tests |", "|---|---|---|---:|"]
        # 200 characters for the line that counts the rest.
        room = MOST_CHARACTERS - sum(len(line) + 1 for line in (*head, *table, *tail)) - 200
        rows: list[str] = []
        for cause in self.causes:
            row = _row(cause)
            room -= len(row) + 1
            if room < 0:
                break
            rows.append(row)
        lines = [*head, *(table if rows else ()), *rows]
        lines += ["", *map(markdown_text, _rest(self, len(rows))), ""] if rows else []
        return "\n".join([*lines, *tail]).rstrip()

    def to_json(self) -> dict[str, Any]:
        """Return the difference as plain data, with `version` and the attributes."""
        return {
            "version": JSON_VERSION,
            "heading": self.heading(),
            "notes": [*self.notes],
            "complete": self.complete,
            "causes": [
                {
                    "kind": cause.kind,
                    "text": cause.text,
                    "source": None if cause.source is None else asdict(cause.source),
                    "tests": [*cause.tests],
                    "finding": None if cause.finding is None else cause.finding.to_json(),
                    "ops": [*cause.ops],
                }
                for cause in self.causes
            ],
            "added": [*self.added],
            "removed": [*self.removed],
            "renamed": [[*pair] for pair in self.renamed],
            "not_compared": dict(self.not_compared),
            "compared": [*self.compared],
        }

    def __str__(self) -> str:
        return "\n".join(filter(None, (*self.notes, self.heading(), self.to_text())))

    def __repr__(self) -> str:
        return f"<RunDiff: {self.heading()}>"


def _rest(diff: RunDiff, limit: int | None) -> list[str]:
    """Return a line that counts the causes beyond a limit, and their tests; empty if none is."""
    rest = () if limit is None else diff.causes[limit:]
    tests = {test for cause in rest for test in cause.tests}
    more = counted(len(rest), "more cause")
    return [f"... and {more} in {counted(len(tests), 'test')}"] if rest else []


def _cause_lines(cause: RunCause, limit: int | None, why: bool) -> Iterator[str]:
    """Yield the lines of a cause for a terminal."""
    finding = cause.finding
    # An edit without a finding is a number of captures that only one run has.
    if cause.kind == "edit" and finding is not None:
        yield from finding_lines([finding], "test", limit, why=why)
        return
    most = None if limit is None else _TESTS
    yield f"! {cause.text}  ({counted(len(cause.tests), 'test')})"
    if finding is None and cause.source is not None:
        yield f"    {source_text(cause.source)}"
    if finding is not None and finding.graph_break is not None:
        reason = finding.graph_break.reason.splitlines()
        yield from (f"    {line}" for line in first_lines(reason, 3))
    if cause.ops:
        yield f"    ops: {listed(cause.ops, most)}"
    yield f"    in {list_some(cause.tests, most)}"


def _with_ops(cause: RunCause, limit: int | None = _TESTS) -> str:
    """Return the text of a cause, with the ops that its tests gained or lost."""
    return cause.text + (f"; ops: {listed(cause.ops, limit)}" if cause.ops else "")


def _lists(diff: RunDiff) -> Iterator[tuple[str, list[str]]]:
    """Yield what was not compared, and what only one run has: a title, and the names of tests."""
    by_reason = grouped((reason, test) for test, reason in diff.not_compared.items())
    for reason, tests in by_reason.items():
        yield f"not compared, {counted(len(tests), 'test')}, {reason}", tests
    renamed = [f"{old} -> {new}" for old, new in diff.renamed]
    for title, names in (
        ("only in base", [*diff.removed]),
        ("only in head", [*diff.added]),
        ("renamed", renamed),
    ):
        if names:
            yield f"{title}, {counted(len(names), 'test')}", names


def _verdicts(diff: RunDiff) -> list[str]:
    """Return a line for each file of tests with causes, the most causes first.

    Empty if the heading already says as much: one file was compared, or nothing differs.
    """
    compared = grouped((_file_of(test), test) for test in diff.compared)
    # Each cause of a test in the file, by number.
    by_file = grouped(
        (_file_of(test), (number, test))
        for number, cause in enumerate(diff.causes)
        for test in cause.tests
    )
    if len(compared) < 2 or not by_file:
        return []
    lines: list[str] = []
    for file, hits in sorted(by_file.items(), key=lambda item: -len({n for n, _ in item[1]})):
        causes, tests = map(set, zip(*hits, strict=True))
        total = counted(len(compared[file]), "test")
        causes_text = counted(len(causes), "cause")
        lines.append(f"- {_code([file])}: {causes_text} in {len(tests):,} of {total}")
    same = counted(len(compared) - len(lines), "file")
    return [*first_lines(lines, _FILES, "file"), f"- no difference in {same}", ""]


def _file_of(test: str) -> str:
    return test.partition("::")[0]


def _row(cause: RunCause) -> str:
    """Return a row of the Markdown table."""
    where = markdown_code(source_text(cause.source))
    cost = cost_text(cause.finding.cost) if cause.finding is not None else ""
    where += f"<br>{markdown_text(cost)}" if cost else ""
    text = _with_ops(cause)
    text = markdown_code(text if len(text) < 400 else f"{text[:400]} …")
    return f"| {cause.kind} | {text} | {where} | {len(cause.tests):,}: {_code(cause.tests)} |"


def _code(names: Any) -> str:
    """Return a few names as Markdown code, and count the rest."""
    return listed([markdown_code(shorten(name)) for name in names], _TESTS)


def page_data(diff: RunDiff) -> dict[str, Any]:
    """Return the data of a page (`report.page`) with the causes, and with what is not compared."""
    rows = [*map(_page_row, diff.causes)]
    for title, names in _lists(diff):
        rows.append({**problem_finding(title).to_json(), "sign": "", "files": names, "costs": ""})
    return {
        "about": "two saved runs",
        "warning": "; ".join(diff.notes),
        "causes": {"heading": diff.heading(), "releases": [], "accept": "", "list": rows},
        "tests": [],
    }


def _page_row(cause: RunCause) -> dict[str, Any]:
    """Return a cause as a row of the page, which has the data of a finding."""
    finding = cause.finding
    # The text of a graph break says more: what is not compared because of it.
    text = _with_ops(cause, None)
    shown = finding if finding is not None and cause.kind == "edit" else problem_finding(text)
    return {
        **shown.to_json(),
        "files": cause.tests,
        "sources": [source_text(cause.source)] if cause.source else [],
        "costs": cost_text(shown.cost),
    }
