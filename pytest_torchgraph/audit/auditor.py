"""The plugins of pytest behind `--torchgraph-audit`: one watches each test, one reports."""

from __future__ import annotations

import shutil
from collections.abc import Generator

import pytest

from .facts import TestFacts
from .suite_watch import SuiteWatch
from .summary import summary_lines

_BROKEN = "torchgraph_audit_broken"
"""The key under which a worker of pytest-xdist sends what kept it from watching."""


def install(config: pytest.Config) -> None:
    """Register the plugin that watches and, unless in a worker, the one that reports."""
    watcher = TestWatcher()
    config.pluginmanager.register(watcher, "torchgraph-audit-watcher")
    if not hasattr(config, "workerinput"):
        config.pluginmanager.register(AuditReport(watcher), "torchgraph-audit")


class TestWatcher:
    """Watches each test, from its first fixture to the last one's teardown.

    Outcomes do not change, and nothing is reset. What a test saw goes with the report of its
    teardown, so that it gets from a worker of pytest-xdist to the process that reports.
    """

    __test__ = False

    def __init__(self) -> None:
        self._watch = SuiteWatch()

    @property
    def broken(self) -> str:
        """What kept it from watching, "" while all is well."""
        error = self._watch.broken
        return "" if error is None else f"{type(error).__name__}: {error}"

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_runtest_setup(self) -> Generator[None, object, object]:
        """Begin before the first fixture."""
        self._watch.begin()
        return (yield)

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_runtest_makereport(
        self, call: pytest.CallInfo[None]
    ) -> Generator[None, pytest.TestReport, pytest.TestReport]:
        """End behind the last fixture, and put the facts into the report."""
        report = yield
        if call.when == "teardown":
            record = self._watch.end()
            if record is not None:
                from .read import facts_of

                facts = facts_of(record)
                if facts.uses_compile:
                    report.__dict__["torchgraph_audit"] = facts.to_json()
        return report

    def pytest_sessionfinish(self, session: pytest.Session) -> None:
        """Take the observers away; in a worker of pytest-xdist, send what went wrong."""
        self._watch.close()
        output = getattr(session.config, "workeroutput", None)
        if output is not None:
            output[_BROKEN] = self.broken


class AuditReport:
    """Gathers the facts of all tests, and prints the summary."""

    def __init__(self, watcher: TestWatcher) -> None:
        self._watcher = watcher
        self._facts: dict[str, TestFacts] = {}
        self._tests: set[str] = set()
        self._broken = ""

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Keep the facts of a test; a test that was repeated counts as it ran last."""
        self._tests.add(report.nodeid)
        if report.when == "setup":
            self._facts.pop(report.nodeid, None)
        facts = getattr(report, "torchgraph_audit", None)
        if facts is not None:
            self._facts[report.nodeid] = TestFacts.from_json(facts)

    @pytest.hookimpl(optionalhook=True)
    def pytest_testnodedown(self, node: object) -> None:
        """Note what kept a worker of pytest-xdist from watching."""
        output = getattr(node, "workeroutput", None) or {}
        self._broken = self._broken or output.get(_BROKEN, "")

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        """Print the section `torchgraph audit`."""
        terminalreporter.section("torchgraph audit")
        if broken := self._broken or self._watcher.broken:
            terminalreporter.line(
                "this run could not be watched, a mistake of pytest-torchgraph's, and what follows "
                f"is not all of it: {broken}"
            )
        verbose = terminalreporter.config.get_verbosity() > 0
        lines = summary_lines(
            self._facts, len(self._tests), width=shutil.get_terminal_size().columns, verbose=verbose
        )
        for line in lines:
            terminalreporter.line(line)
