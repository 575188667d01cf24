"""Data of a whole page, collected in the reporting process and written at the end of the run.

With pytest-xdist, the reporting process is the controller. The data of a test arrive with its
reports, and are compressed when the test ends. If a worker crashes, only the data of its running
test are lost.

`RunData` needs no pytest session, because `gather.merge_pages` combines pages without running
tests.
"""

from __future__ import annotations

import platform
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

import pytest

from ...audit.facts import TestFacts
from ...audit.session import outcome_of
from ...files import decode, write
from ...torch_release import torch_version
from ...words import counted, grouped, one_line
from ..causes import PLUGIN, FailedComparisons
from ..comparisons import Comparisons
from ..surfaces import audit_document
from .html import DETAILS, FORMAT, PARTS, Data, Parts, search_text, summary

RED = ("failed", "error", "crashed")
"""Outcomes of tests that failed."""


_TEST: Data = {
    "id where part": str,
    "outcome": Literal["passed", "failed", "error", "crashed", "skipped", "xfailed", "xpassed"],
    "seconds": float,
    "place": tuple[str, int],
    "facts": dict[str, int],
}
_FINDING: Data = {
    "sign what where before after": str,
    "modules sources files with": list[str],
    "form": str | None,
    "places": int,
    "ranks": list[int] | None,
    "cost": dict[str, int | None],
    "identity": dict[str, Any],
    "recomputed": list[tuple[str, int, int]] | None,
    "reasons": list[str] | None,
}
_COMPARISON: Data = {
    "problem": str,
    "releases": tuple[str, str] | None,
    "difference": {"findings": [_FINDING], "left": int},
}
_CHANGE: Data = {"text file function": str, "line": int, "tests": list[str]}
_VERDICT: Data = {
    "worse better": [_CHANGE],
    "new gone": list[str],
    "renamed": list[tuple[str, str]],
}
_AUDIT: Data = {
    "mode broken isolated settings_left tests": Any,
    "totals": {"tests": int},
    "baseline": {"file": str, "said": list[str], "compared": int, "verdict": _VERDICT},
}
_PAGE: Data = {"search run": str, "tests": [_TEST], "audit": _AUDIT}
_RUN: Data = {
    "versions": {"torch pytest Python": str},
    "others crashed": int,
    "accept": str,
    "failures": dict[str, str],
    "comparisons": dict[str, list[dict[str, Any]]],
    "facts": dict[str, Any],
    "shards": list[str],
}
"""Types of the parts of a page that `RunData` reads; see `files.decode`."""


@dataclass
class RunData:
    """Data of a run, except the details of its tests.

    Attributes:
        versions: versions of torch, pytest and Python, keyed by name; "" if unknown.
        others: number of tests that did not use graphs.
        crashed: number of workers that crashed.
        tests: summaries of the tests that used graphs, in the order of the page.
        search_texts: search text of each test in `tests`, keyed by id.
        failures: headlines of the failures of these tests, keyed by id.
        comparisons: failed comparisons.
        accept: command that stores the captured graphs of failed comparisons, "" if there is none.
        audit: result of the audit, see `surfaces.document`; `None` if there was no audit.
        facts: audit facts, keyed by test id.
        shards: pages that were combined; empty for a single run.
    """

    versions: dict[str, str]
    others: int = 0
    crashed: int = 0
    tests: list[Data] = field(default_factory=list)
    search_texts: dict[str, str] = field(default_factory=dict)
    failures: dict[str, str] = field(default_factory=dict)
    comparisons: Comparisons = field(default_factory=Comparisons)
    accept: str = ""
    audit: Data | None = None
    facts: dict[str, Data] = field(default_factory=dict)
    shards: Sequence[str] = ()

    def data(self, parts: Parts) -> Data:
        """Return the data of the page.

        Args:
            parts: details of the tests. Other large data are added to these parts.
        """
        failed = {test["id"] for test in self.tests if test["outcome"] in RED}
        causes = self._causes(failed)
        # The keys of `_RUN` are attributes of this class, several in one text.
        run = {name: getattr(self, name) for names in _RUN for name in names.split()}
        workers = "a worker" if self.crashed == 1 else f"{self.crashed} workers"
        return {
            "format": FORMAT,
            "about": self._about(),
            "warning": f"{workers} crashed" if self.crashed else "",
            "audit": self.audit,
            "causes": causes,
            "failures": self._failures(failed, causes),
            "tests": self.tests,
            "search": parts.add([self.search_texts[test["id"]] for test in self.tests]),
            "run": parts.add({**run, "comparisons": self.comparisons.tests}),
        }

    @classmethod
    def of_page(cls, data: Mapping[str, Any], parts: Parts) -> RunData:
        """Return the run data that a page was made from.

        Raises:
            AttributeError, TypeError, ValueError, LookupError: for a malformed page.
        """
        page: Data = decode(_PAGE, data, "page")
        # The facts stay plain data, and are only checked here.
        run: Data = decode(_RUN, parts.get(page["run"]), "run")
        texts = decode(list[str], parts.get(page["search"]), "search")
        decode(dict[str, TestFacts], run["facts"], "facts")
        for test, failed in run["comparisons"].items():
            run["comparisons"][test] = decode([_COMPARISON], failed, test)
        return cls(
            **{**run, "comparisons": Comparisons(run["comparisons"])},
            tests=page["tests"],
            search_texts={
                test["id"]: text for test, text in zip(page["tests"], texts, strict=True)
            },
            audit=page["audit"],
        )

    def _about(self) -> str:
        """Return the line about the run: versions, tests without graphs, merged pages."""
        about = ", ".join(f"{name} {version}" for name, version in self.versions.items() if version)
        if self.others:
            about += f"; {counted(self.others, 'further test')} without graphs"
        if self.shards:
            about += f"; {counted(len(self.shards), 'page')} merged"
        return about

    def _causes(self, failed: Collection[str]) -> Data | None:
        """Return the causes of the failed comparisons, or `None` if nothing else failed.

        The page then opens with the only failed test.
        """
        from ...graph.diff import cost_text

        try:
            # A single failed comparison has causes only if another test failed.
            comparisons = self.comparisons
            causes = comparisons.every_cause if len(failed) > 1 else comparisons.causes
        except Exception:  # the terminal summary reports this error
            return None
        if not causes:
            return None
        return {
            "heading": comparisons.heading(),
            "releases": comparisons.releases(),
            "accept": self.accept,
            "list": [{**cause.to_json(), "costs": cost_text(cause.cost)} for cause in causes],
        }

    def _failures(self, failed: Collection[str], causes: Data | None) -> list[Data]:
        """Return the failed tests that no cause lists, grouped by headline.

        Empty if fewer than two tests failed and the page shows no causes.
        """
        if len(failed) < 2 and causes is None:
            return []
        listed = {test for cause in (causes or {"list": ()})["list"] for test in cause["files"]}
        groups = grouped((self.failures.get(test, ""), test) for test in sorted({*failed} - listed))
        failures = sorted(groups.items(), key=lambda group: (-len(group[1]), group[0]))
        return [{"headline": headline, "tests": tests} for headline, tests in failures]


ATTRIBUTE = "torchgraph_page"
"""Report attribute with the data of its test: a dictionary with the keys in `PARTS`."""


class Page:
    """Plugin that writes the page.

    Attributes:
        config: pytest config of the run.
        path: file to write.
        tests: data of each test that used graphs, keyed by id. After the end of a test, only the
            summary is kept.
        parts: details of finished tests, and the parts that the details refer to.
        search_texts: search text of each finished test, keyed by id.
        failures: headlines of test failures, keyed by id.
        others: number of tests that did not use graphs.
        crashed: ids of tests that were running when a worker crashed.
        torch: version of torch, "" if no test has used torch yet.
        problem: error that prevented writing the page, "" if there was none.
    """

    def __init__(self, config: pytest.Config, path: Path):
        self.config = config
        self.path = path
        self.tests: dict[str, Data] = {}
        self.parts = Parts()
        self.search_texts: dict[str, str] = {}
        self.failures: dict[str, str] = {}
        self.others = 0
        self.crashed: list[str] = []
        self.torch = ""
        self.problem = ""

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Add the data of a phase to the data of its test."""
        data: Data | None = getattr(report, ATTRIBUTE, None)
        # pytest-xdist reports the test of a crashed worker itself, with `when` "???".
        crashed = report.when not in ("setup", "call", "teardown")
        if data is None and report.nodeid not in self.tests and not crashed:
            # One of the three phases counts the test.
            self.others += report.when == "call"
            return
        if report.when == "setup" or crashed:  # a rerun replaces the earlier attempt
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
        # A setup or teardown that passed says nothing about the test.
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
        """Return the data of a test, to which the data of a phase can be added.

        A new test is added to `tests`. The details of a finished test are unpacked.
        """
        test = self.tests.get(report.nodeid) or _new_test(report)
        if "part" in test:
            test = {key: value for key, value in test.items() if key not in ("part", "facts")}
            test |= self.parts.get(self.tests[report.nodeid]["part"])
        self.tests[report.nodeid] = test
        return test

    def _close(self, test: str) -> None:
        """Compress the data of a finished test, because a run can have thousands of tests."""
        data = self.tests[test]
        if "part" in data:
            return
        self.search_texts[test] = search_text(data)
        self.tests[test] = summary(data, self.parts.add({key: data[key] for key in DETAILS}))

    def _outcome(self, report: pytest.TestReport) -> str:
        """Return the outcome of a phase, as in `_TEST`."""
        # The hook distinguishes xfail and xpass. `report.outcome` does not.
        status = self.config.hook.pytest_report_teststatus(report=report, config=self.config)
        category = str(status[0] if isinstance(status, tuple) else "")
        if category in ("passed", "failed", "error", "skipped", "xfailed", "xpassed"):
            return category
        return "passed" if report.passed else "failed"

    # Called last, because the audit judges the run in the same hook and the page has the verdict.
    @pytest.hookimpl(trylast=True)
    def pytest_sessionfinish(self) -> None:
        """Write the page. An error is reported in the summary and changes no outcome."""
        from .html import page

        try:
            data = self.data()
            write(self.path, page(data, self.parts.texts))
        except Exception as error:
            self.problem = f"{type(error).__name__}: {error}"

    def data(self) -> Data:
        """Return the data of the page. Large data are in `parts`."""
        outcome = outcome_of(self.config)
        # A test of the audit used torch, even if no test captured anything.
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
            search_texts=self.search_texts,
            failures=self.failures,
            comparisons=Comparisons(failed.tests if failed is not None else {}),
            accept=failed.accept() if failed is not None else "",
            audit=audit_document(outcome) if outcome is not None else None,
            facts={t: facts.to_json() for t, facts in outcome.facts.items()} if outcome else {},
        ).data(self.parts)

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        """Print the path of the page, or the error that prevented writing it."""
        failed = self.problem and f"the page was not written: {self.problem}"
        line = f"torchgraph: {failed or f'page of this run in {self.path}'}"
        terminalreporter.write_line(one_line(line), red=bool(failed))


def _new_test(report: pytest.TestReport) -> Data:
    """Return the data of a test before its first phase."""
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
    """Return the text of a failure, or the reason of a skip."""
    longrepr: Any = report.longrepr
    if isinstance(longrepr, tuple):  # a skip: file, line, reason
        return str(longrepr[2])
    return str(report.longreprtext)


def _headline(report: pytest.TestReport) -> str:
    """Return a one-line summary of a failure."""
    crash = getattr(report.longrepr, "reprcrash", None)
    text = str(crash.message) if crash is not None else _message(report)
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    return lines[0] if lines else report.outcome
