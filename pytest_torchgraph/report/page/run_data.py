"""The data of a whole page, gathered where the run reports and written at its end.

Knows no pytest: `merging` makes a page of pages where no test runs.

With pytest-xdist that is the controller. The data of a test come with its reports, and are packed
when it is over; a worker that crashes loses only those of the test that it was running.
"""

from __future__ import annotations

import platform
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from ...audit.report import outcome_of
from ...snapshot.files import write_text
from ...torch_release import torch_version
from ...words import counted
from ..causes import PLUGIN, FailedComparisons
from ..comparisons import Comparisons
from ..surfaces.document import audit_document
from .html import DETAILS, FORMAT, Data, Parts, summary, words

RED = ("failed", "error", "crashed")
"""Outcomes of tests that failed."""


@dataclass
class RunData:
    """What a run tells of, all but the details of its tests.

    Attributes:
        versions: of torch, pytest and Python, by their names; "" where it is not known.
        others: how many tests did not use graphs.
        crashed: how many workers crashed.
        tests: the summaries of the tests that used graphs, in the order of the page.
        words: what the search looks into, of each of these, by its id.
        failures: what these say that failed, by id; not those of which a comparison failed.
        comparisons: those that failed.
        accept: the command that stores what they captured, "" where there is none.
        audit: what an audit found, see `surfaces.document`; None where there is none.
        facts: what it is made of, by the ids of the tests.
        shards: the pages that it is made of; none where it is one run.
    """

    versions: dict[str, str]
    others: int = 0
    crashed: int = 0
    tests: list[Data] = field(default_factory=list)
    words: dict[str, str] = field(default_factory=dict)
    failures: dict[str, str] = field(default_factory=dict)
    comparisons: Comparisons = field(default_factory=Comparisons)
    accept: str = ""
    audit: Data | None = None
    facts: dict[str, Data] = field(default_factory=dict)
    shards: Sequence[str] = ()

    def data(self, parts: Parts) -> Data:
        """The data of the page.

        Args:
            parts: with the details of the tests; what else is large is added.
        """
        causes = self._causes()
        return {
            "format": FORMAT,
            "about": self._about(),
            "warning": self._warning(),
            "audit": self.audit,
            "causes": causes,
            "failures": self._failures(with_causes=causes is not None),
            "tests": self.tests,
            "search": parts.add([self.words[test["id"]] for test in self.tests]),
            "run": parts.add(
                {
                    "versions": self.versions,
                    "others": self.others,
                    "crashed": self.crashed,
                    "failures": self.failures,
                    "comparisons": self.comparisons.tests,
                    "accept": self.accept,
                    "facts": self.facts,
                    "shards": list(self.shards),
                }
            ),
        }

    @classmethod
    def of_page(cls, data: Mapping[str, Any], parts: Parts) -> RunData:
        """What the data of a page were made of."""
        run: Data = parts.get(data["run"])
        texts = parts.get(data["search"])
        words = {test["id"]: text for test, text in zip(data["tests"], texts, strict=True)}
        comparisons = Comparisons(run.pop("comparisons"))
        return cls(
            **run, comparisons=comparisons, tests=data["tests"], words=words, audit=data["audit"]
        )

    def _about(self) -> str:
        about = ", ".join(f"{name} {version}" for name, version in self.versions.items() if version)
        if self.others:
            about += f"; {counted(self.others, 'further test')} without graphs"
        if self.shards:
            about += f"; {counted(len(self.shards), 'page')} put together"
        return about

    def _warning(self) -> str:
        workers = "a worker" if self.crashed == 1 else f"{self.crashed} workers"
        return f"{workers} crashed" if self.crashed else ""

    def _causes(self) -> Data | None:
        """The causes of the failed comparisons; None where at most one failed.

        None as well where they are not known, which the end of the run says.
        """
        from ...graph.diff.words import cost_text

        try:
            found = self.comparisons.causes
        except Exception:
            return None
        if not found:
            return None
        return {
            "heading": self.comparisons.heading(),
            "releases": self.comparisons.releases(),
            "accept": self.accept,
            "list": [{**cause.to_json(), "costs": cost_text(cause.cost)} for cause in found],
        }

    def _failures(self, *, with_causes: bool) -> list[Data]:
        """What failed but for comparisons, equal headlines once; none where one test failed."""
        red = sum(test["outcome"] in RED for test in self.tests)
        if red < 2 and not with_causes:
            return []
        groups: dict[str, list[str]] = {}
        for test, headline in sorted(self.failures.items()):
            groups.setdefault(headline, []).append(test)
        found = sorted(groups.items(), key=lambda each: (-len(each[1]), each[0]))
        return [{"headline": headline, "tests": tests} for headline, tests in found]


ATTRIBUTE = "torchgraph_page"
"""Attribute of a report with the data of its test, from `collect`; a dictionary with `PARTS`."""

PARTS = ("captures", "ranks", "differences", "pictures")
"""Keys of a test's data; each phase can add to their lists."""


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
        """The data of the page; the large ones are in `parts`."""
        outcome = outcome_of(self.config)
        if outcome is not None and outcome.facts:
            self.torch = self.torch or torch_version()
        for test in self.tests:
            self._close(test)
        failed: FailedComparisons | None = self.config.pluginmanager.get_plugin(PLUGIN)
        return RunData(
            versions={
                "torch": self.torch,
                "pytest": pytest.__version__,
                "Python": platform.python_version(),
            },
            others=self.others,
            crashed=len(self.crashed),
            tests=sorted(self.tests.values(), key=lambda test: (test["place"], test["id"])),
            words=self.words,
            failures=self.failures,
            comparisons=Comparisons(failed.tests if failed is not None else {}),
            accept=failed.accept() if failed is not None else "",
            audit=audit_document(outcome) if outcome is not None else None,
            facts={t: facts.to_json() for t, facts in outcome.facts.items()} if outcome else {},
        ).data(self.parts)

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
