"""Record of a run: the tests that ran, and the stored graphs that they compared and wrote.

The record is kept in the process that reports, under pytest-xdist in the controller. Each test
report contains the files that its test compared and wrote. When a worker ends, it sends the first
reason why its run is incomplete.
"""

from __future__ import annotations

import json
import os
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from . import REPORTED

DIRECTORY = "__snapshots__"
"""Name of syrupy's snapshot directory beside a test file."""

TROUBLE = 2
"""Exit status of a run that refused to write or remove a file; the commands use it too."""

PLUGIN = "torchgraph-run"
_JOURNAL = "torchgraph_journal"
"""Key of `workerinput` with the path of the journal."""
_INCOMPLETE, _USED = "torchgraph_left_out", "torchgraph_used"
"""Keys of `workeroutput` with the `problem` and `used` of a worker."""


class RunRecord:
    """Plugin that records a run for `stale.judge`.

    Attributes:
        compared: the stored files that were compared.
        comparing: the ids of the tests that compared graphs.
        stored: what an update did, as in `Record`.
        replaced: maps each file that an update replaced to the tests that replaced it, each with
            the differences as plain data.
        expected: the ids of the tests that should run.
        passed: the ids of the tests whose call phase passed. Setup and teardown do not count,
            because they also have reports with `--setup-only`.
        kept: maps a test file to the reason why none of its stored files may be removed.
        unjudged: the reason for each test that was skipped or did not pass as expected, by id.
        problem: the first reason why no stored file may be removed; "" if there is none.
        used: True if a fixture of this package was used with torch.
    """

    def __init__(self, config: pytest.Config):
        self.config = config
        self.compared: set[Path] = set()
        self.comparing: set[str] = set()
        self.stored: list[tuple[str, str, str]] = []
        self.replaced: dict[str, list[tuple[str, dict[str, Any]]]] = {}
        self.expected: set[str] = set()
        self.passed: set[str] = set()
        self.kept: dict[str, str] = {}
        self.unjudged: dict[str, str] = {}
        self.problem = ""
        self.used = False
        self._journal: str = getattr(config, "workerinput", {}).get(_JOURNAL, "")
        self._collected: list[pytest.Item] = []
        self._session: pytest.Session | None = None

    def note(self, nodeid: str, *outcome: str) -> None:
        """Write an outcome of a test, as in `stored`, to the journal.

        A test has no report if its worker crashes or the run is interrupted.
        """
        with open(self._open_journal(), "a", encoding="utf-8") as journal:
            journal.write(f"{json.dumps((nodeid, outcome))}\n")

    def _open_journal(self) -> str:
        """Return the path of the journal, which all workers share. Create it on first use."""
        if not self._journal:
            descriptor, self._journal = tempfile.mkstemp(prefix="torchgraph-")
            os.close(descriptor)
        return self._journal

    @pytest.hookimpl(optionalhook=True)
    def pytest_configure_node(self, node: Any) -> None:
        """Tell a pytest-xdist worker the path of the journal."""
        node.workerinput[_JOURNAL] = self._open_journal()

    def read_journal(self) -> None:
        """Add the outcomes of tests without a report to `stored`.

        The report of a test has its final outcomes, because a test may withdraw some.
        """
        if self._journal:
            text = Path(self._journal).read_text("utf-8")
            outcomes = [json.loads(line) for line in text.splitlines()]
            unreported = [each for each in outcomes if each[0] not in self.comparing]
            self.stored += [tuple(outcome) for _, outcome in unreported]
            self.comparing.update(nodeid for nodeid, _ in unreported)

    def pytest_unconfigure(self) -> None:
        """Remove the journal. A worker leaves it to the controller."""
        if self._journal and not hasattr(self.config, "workerinput"):
            from ..files import write

            write(Path(self._journal), None)

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Record one phase of one test."""
        comparisons = getattr(report, REPORTED, None)
        if comparisons is not None:
            self.comparing.add(report.nodeid)
            self.compared.update(map(Path, comparisons["compared"]))
            self.stored.extend(
                (action, path, change) for action, path, change in comparisons["stored"]
            )
            for path, data in comparisons["replaced"]:
                self.replaced.setdefault(path, []).append((report.nodeid, data))
        if report.failed:  # in any phase
            self.mark_incomplete(f"{report.nodeid} failed")
        elif report.skipped:
            # pytest reports an expected failure as skipped, with the attribute `wasxfail`.
            reason = "failed as expected" if hasattr(report, "wasxfail") else "was skipped"
            self.unjudged.setdefault(report.nodeid, reason)
        elif report.passed and report.when == "call":
            self.passed.add(report.nodeid)

    def pytest_collectreport(self, report: pytest.CollectReport) -> None:
        """Record a test file that could not be collected or was skipped."""
        if report.failed:
            self.mark_incomplete(f"{report.nodeid} could not be collected")
        elif report.skipped:
            file = file_of(report.nodeid)
            self.kept.setdefault(file, f"{file} was skipped at import")

    def pytest_itemcollected(self, item: pytest.Item) -> None:
        """Record a collected test, which other plugins may still remove."""
        self._collected.append(item)

    def pytest_deselected(self, items: Sequence[pytest.Item]) -> None:
        """Record that tests were deselected."""
        if items:
            self.mark_incomplete(f"{items[0].nodeid} was deselected")

    def pytest_collection_finish(self, session: pytest.Session) -> None:
        """Record the tests that should run. Find tests that a plugin removed without a report."""
        remaining_ids = set(map(id, session.items))
        self.expected.update(item.nodeid for item in session.items)
        for item in self._collected:
            # Not every plugin reports the tests that it removes to `pytest_deselected`.
            if id(item) not in remaining_ids and item.nodeid not in self.expected:
                self.mark_incomplete(f"{item.nodeid} was removed by a plugin")
        self._collected.clear()

    @pytest.hookimpl(optionalhook=True)
    def pytest_xdist_node_collection_finished(self, ids: Sequence[str]) -> None:
        """Record the tests that should run, as collected by a pytest-xdist worker."""
        self.expected.update(ids)

    def pytest_keyboard_interrupt(self) -> None:
        """Record that the run was interrupted; the exit status may be 0 after `pytest.exit`."""
        self.mark_incomplete("the run was interrupted")

    @pytest.hookimpl(optionalhook=True)
    def pytest_testnodedown(self, node: object) -> None:
        """Record the problem of a pytest-xdist worker, or its loss."""
        output = getattr(node, "workeroutput", None)
        if output is None:
            # A worker that crashes never sends its `workeroutput`.
            self.mark_incomplete("a pytest-xdist worker crashed")
            return
        self.used |= output.get(_USED, False)
        if output.get(_INCOMPLETE):
            self.mark_incomplete(output[_INCOMPLETE])

    def pytest_sessionfinish(self, session: pytest.Session) -> None:
        """Send the problem to the controller if this is a pytest-xdist worker."""
        self._session = session
        output = getattr(session.config, "workeroutput", None)
        if output is not None:
            output[_INCOMPLETE], output[_USED] = self.problem, self.used

    def has_stored(self) -> bool:
        """Return True if graphs were compared, or a test file has a snapshot directory."""
        root = self.config.rootpath
        tests = (*self.passed, *self.expected, *self.unjudged)
        files = {file_of(nodeid) for nodeid in tests} | self.kept.keys()
        return bool(self.compared) or any(
            (home / DIRECTORY).is_dir() for home in {(root / file).parent for file in files}
        )

    def end_with(self, status: int = TROUBLE) -> None:
        """Set at least this exit status; by default 2: a file was not written or removed.

        The terminal summary, which removes stale files, is the last hook that can set the status.
        """
        if self._session is not None:
            self._session.exitstatus = max(self._session.exitstatus, status)

    def mark_incomplete(self, reason: str) -> None:
        """Record why the run is incomplete; the first reason counts."""
        self.problem = self.problem or reason


def file_of(nodeid: str) -> str:
    """Return the test file of a test id, relative to the root directory."""
    return nodeid.partition("::")[0]
