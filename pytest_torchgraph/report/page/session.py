"""The page of a run, gathered in the process that reports and written at its end.

With pytest-xdist that is the controller. The data of a test come with its reports, and are packed
when it is over; a worker that crashes loses only those of the test that it was running.
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
from .parts import DETAILS, FORMAT, Data, Parts, summary, words

ATTRIBUTE = "torchgraph_page"
"""Attribute of a report with the data of its test, from `collect`; a dictionary with `PARTS`."""

PARTS = ("captures", "ranks", "differences", "pictures")
"""Keys of a test's data; each phase can add to their lists."""

RED = ("failed", "error", "crashed")
"""Outcomes of tests that failed."""


class Page:
    """A plugin that writes the page.

    Attributes:
        config: of the run.
        path: the file to write.
        tests: the data of each test that used graphs, by its id; of one that is over the summary.
        parts: the details of the tests that are over, and the parts that these name.
        words: what the search looks into, of each of these tests.
        failures: what the tests say that failed, by id; not those of which a comparison failed.
        others: how many tests did not use graphs.
        crashed: ids of the tests that a worker was running when it crashed.
        torch: the version of torch, "" while no test used it.
        problem: why the page could not be written, "" if it could.
    """

    def __init__(self, config: pytest.Config, path: Path):
        self.config = config
        self.path = path
        self.tests: dict[str, Data] = {}
        self.parts = Parts()
        self.words: dict[str, str] = {}
        self.failures: dict[str, str] = {}
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
        if report.when == "setup" or crashed:  # an earlier attempt counts no more
            self.tests.pop(report.nodeid, None)
            self.failures.pop(report.nodeid, None)
        test = self._open(report)
        if data is not None:
            self.torch = data.get("torch") or self.torch
            self.parts.texts.update(data.get("parts", ()))
            for part in PARTS:
                test[part] += data.get(part, ())
        test["seconds"] += getattr(report, "duration", 0.0)
        outcome = "crashed" if crashed else self._outcome(report)
        if outcome != "passed" or report.when == "call":
            test["outcome"] = outcome
        if outcome in ("failed", "error", "crashed", "skipped", "xfailed"):
            test["message"] = _message(report)
        if outcome in RED:
            self.failures[report.nodeid] = _headline(report)
        if crashed:
            self.crashed.append(report.nodeid)
        if report.when == "teardown" or crashed:
            self._close(report.nodeid)

    def _open(self, report: pytest.TestReport) -> Data:
        """The data of a test, to which a phase adds."""
        test = self.tests.get(report.nodeid) or _new_test(report)
        if "part" in test:
            test = {key: value for key, value in test.items() if key not in ("part", "facts")}
            test |= self.parts.get(self.tests[report.nodeid]["part"])
        self.tests[report.nodeid] = test
        return test

    def _close(self, test: str) -> None:
        """Pack the data of a test, so that those of thousands need little memory."""
        data = self.tests[test]
        if "part" in data:
            return
        self.words[test] = words(data)
        if data["differences"]:
            self.failures.pop(test, None)
        self.tests[test] = summary(data, self.parts.add({key: data[key] for key in DETAILS}))

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
            data = self.data()
            write_text(self.path, page(data, self.parts.texts))
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
        for test in self.tests:
            self._close(test)
        tests = sorted(self.tests.values(), key=lambda test: (test["place"], test["id"]))
        causes = self._causes()
        crashed = len(self.crashed)
        workers = "a worker" if crashed == 1 else f"{crashed} workers"
        return {
            "about": about,
            "warning": f"{workers} crashed" if crashed else "",
            "format": FORMAT,
            "audit": audit,
            "causes": causes,
            "failures": self._failures(with_causes=causes is not None),
            "tests": tests,
            "search": self.parts.add([self.words[test["id"]] for test in tests]),
        }

    def _failures(self, *, with_causes: bool) -> list[Data]:
        """What failed but for comparisons, equal headlines once; none where one test failed."""
        red = sum(test["outcome"] in RED for test in self.tests.values())
        if red < 2 and not with_causes:
            return []
        groups: dict[str, list[str]] = {}
        for test, headline in sorted(self.failures.items()):
            groups.setdefault(headline, []).append(test)
        found = sorted(groups.items(), key=lambda each: (-len(each[1]), each[0]))
        return [{"headline": headline, "tests": tests} for headline, tests in found]

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


def _headline(report: pytest.TestReport) -> str:
    """What went wrong, in one line."""
    crash = getattr(report.longrepr, "reprcrash", None)
    text = str(crash.message) if crash is not None else _message(report)
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    return lines[0] if lines else report.outcome
