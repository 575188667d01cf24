"""The page of a run, gathered in the process that reports and written at its end.

With pytest-xdist that is the controller. The data of a test come with its reports; a worker that
crashes loses only those of the test that it was running.
"""

from __future__ import annotations

import platform
from pathlib import Path
from typing import Any

import pytest

from ...audit.report import outcome_of
from ...snapshot.files import write_text
from ...torch_release import torch_version
from ..causes import PLUGIN, FailedComparisons
from ..surfaces.document import audit_document
from .collect import Data

ATTRIBUTE = "torchgraph_page"
"""Attribute of a report with the data of its test, from `collect`; a dictionary with `PARTS`."""

PARTS = ("captures", "ranks", "differences", "pictures")
"""Keys of a test's data; each phase can add to their lists."""


class Page:
    """A plugin that writes the page.

    Attributes:
        config: of the run.
        path: the file to write.
        tests: the data of each test that used graphs, by its id.
        others: how many tests did not use graphs.
        crashed: ids of the tests that a worker was running when it crashed.
        torch: the version of torch, "" while no test used it.
        problem: why the page could not be written, "" if it could.
    """

    def __init__(self, config: pytest.Config, path: Path):
        self.config = config
        self.path = path
        self.tests: dict[str, Data] = {}
        self.others = 0
        self.crashed: list[str] = []
        self.torch = ""
        self.problem = ""

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Add the data of a phase to those of its test."""
        data: Data | None = getattr(report, ATTRIBUTE, None)
        crashed = report.when not in ("setup", "call", "teardown")
        if data is None and report.nodeid not in self.tests and not crashed:
            self.others += report.when == "call"
            return
        if report.when == "setup" or crashed:
            self.tests.pop(report.nodeid, None)  # of an earlier attempt, if there was one
        test = self.tests.setdefault(report.nodeid, _new_test(report))
        if data is not None:
            self.torch = data.get("torch") or self.torch
            for part in PARTS:
                test[part] += data.get(part, ())
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
        """Write the page. A failure to do so is reported in the summary, and changes no outcome."""
        from .html import page

        try:
            write_text(self.path, page(self.data()))
        except Exception as error:
            self.problem = f"{type(error).__name__}: {error}"

    def data(self) -> Data:
        """The data of the page."""
        audit = self._audit()
        if audit is not None and audit["totals"]["using"]:
            self.torch = self.torch or torch_version()
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
            "audit": audit,
            "causes": self._causes(),
            "tests": sorted(self.tests.values(), key=lambda test: (test["place"], test["id"])),
        }

    def _audit(self) -> Data | None:
        """What an audit found, which the page begins with; None where there is none."""
        outcome = outcome_of(self.config)
        return audit_document(outcome) if outcome is not None else None

    def _causes(self) -> Data | None:
        """The causes of the failed comparisons; None where at most one failed.

        None as well where they are not known, which the end of the run says.
        """
        failed: FailedComparisons | None = self.config.pluginmanager.get_plugin(PLUGIN)
        try:
            if failed is None or not failed.causes:
                return None
        except Exception:
            return None
        from ...graph.diff.words import cost_text

        return {
            "heading": failed.heading(),
            "releases": failed.releases(),
            "accept": failed.accept(),
            "list": [
                {**cause.to_json(), "costs": cost_text(cause.cost)} for cause in failed.causes
            ],
        }

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        """Print the path of the page, or why there is none."""
        if self.problem:
            line = f"torchgraph: the page was not written: {self.problem}"
            terminalreporter.write_line(line, red=True)
        else:
            terminalreporter.write_line(f"torchgraph: page of this run in {self.path}")


def _new_test(report: pytest.TestReport) -> Data:
    path, line, _ = report.location
    return {
        "id": report.nodeid,
        "outcome": "passed",
        "seconds": 0.0,
        "message": "",
        "where": path if line is None else f"{path}:{line + 1}",
        "place": [path, line or 0],
        **{part: [] for part in PARTS},
    }


def _message(report: pytest.TestReport) -> str:
    longrepr: Any = report.longrepr
    if isinstance(longrepr, tuple):  # of a skip: file, line, reason
        return str(longrepr[2])
    return str(report.longreprtext)
