"""The page of a run, gathered in the process that reports and written at its end.

With pytest-xdist that is the controller. What a test has to tell comes with its reports, as plain
data; a worker that crashes takes only the test with it that it was running.
"""

from __future__ import annotations

import platform
from pathlib import Path
from typing import Any

import pytest

from ...snapshot.files import write_text
from .collect import Data

ATTRIBUTE = "torchgraph_page"
"""Attribute of a report with what its test has to tell: captures, differences, pictures."""

PARTS = ("captures", "differences", "pictures")


class Page:
    """A plugin that writes the page."""

    def __init__(self, config: pytest.Config, path: Path):
        self.config = config
        self.path = path
        self.tests: dict[str, Data] = {}
        self.others = 0
        self.crashed: list[str] = []
        self.torch = ""
        self.problem = ""

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """One phase of one test."""
        told: Data | None = getattr(report, ATTRIBUTE, None)
        crashed = report.when not in ("setup", "call", "teardown")
        if told is None and report.nodeid not in self.tests and not crashed:
            self.others += report.when == "call"
            return
        if report.when == "setup" or crashed:
            self.tests.pop(report.nodeid, None)  # from another attempt, if at all
        test = self.tests.setdefault(report.nodeid, _empty(report))
        if told is not None:
            self.torch = told.get("torch") or self.torch
            for part in PARTS:
                test[part] += told.get(part, ())
        test["seconds"] += getattr(report, "duration", 0.0)
        outcome = "crashed" if crashed else self._outcome(report)
        if outcome != "passed" or report.when == "call":
            test["outcome"] = outcome
        if outcome in ("failed", "error", "crashed", "skipped", "xfailed"):
            test["message"] = _message(report)
        if crashed:
            self.crashed.append(report.nodeid)

    def _outcome(self, report: pytest.TestReport) -> str:
        status = self.config.hook.pytest_report_teststatus(report=report, config=self.config)
        category = str(status[0] if isinstance(status, tuple) else "")
        if category in ("passed", "failed", "error", "skipped", "xfailed", "xpassed"):
            return category
        return "passed" if report.passed else "failed"

    @pytest.hookimpl(trylast=True)
    def pytest_sessionfinish(self) -> None:
        """Write the page. What goes wrong there is said, and changes no outcome."""
        from .html import page

        try:
            write_text(self.path, page(self.data()))
        except Exception as error:
            self.problem = f"{type(error).__name__}: {error}"

    def data(self) -> Data:
        """What the page shows."""
        versions = [f"pytest {pytest.__version__}", f"Python {platform.python_version()}"]
        if self.torch:
            versions.insert(0, f"torch {self.torch}")
        about = ", ".join(versions)
        if self.others:
            noun = "test" if self.others == 1 else "tests"
            about += f"; {self.others} further {noun} without graphs"
        crashed = len(self.crashed)
        workers = "a worker" if crashed == 1 else f"{crashed} workers"
        return {
            "about": about,
            "warning": f"{workers} crashed" if crashed else "",
            "tests": sorted(self.tests.values(), key=lambda test: (test["place"], test["id"])),
        }

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        """Say where the page is."""
        if self.problem:
            line = f"torchgraph: the page was not written: {self.problem}"
            terminalreporter.write_line(line, red=True)
        else:
            terminalreporter.write_line(f"torchgraph: page of this run in {self.path}")


def _empty(report: pytest.TestReport) -> Data:
    path, line, _ = report.location
    found: Data = {"id": report.nodeid, "outcome": "passed", "seconds": 0.0, "message": ""}
    found["where"] = path if line is None else f"{path}:{line + 1}"
    found["place"] = [path, line or 0]
    for part in PARTS:
        found[part] = []
    return found


def _message(report: pytest.TestReport) -> str:
    longrepr: Any = report.longrepr
    if isinstance(longrepr, tuple):  # of a skip: file, line, reason
        return str(longrepr[2])
    return str(report.longreprtext)
