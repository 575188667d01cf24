"""The end of a run in which several comparisons failed: each cause once, with its tests.

The findings of a failed comparison are plain data in the test's report, which pytest-xdist brings
from the worker; the process that reports joins them. Importing this module imports no graphs.
"""

from __future__ import annotations

from collections.abc import Generator, Iterator
from typing import TYPE_CHECKING, Any

import pytest

from ..settings import config as settings
from ..snapshot import DIFFERENCES
from ..snapshot.changes import brief
from ..torch_release import running_release
from ..words import counted
from .pending import review_command

if TYPE_CHECKING:
    from ..graph.diff.described import CauseInWords, Described
    from ..snapshot.compare import Mismatch

PLUGIN = "torchgraph-causes"
"""The name under which `FailedComparisons` is registered."""
MAX_FINDINGS = 50
"""How many findings of one comparison a report brings; the others are counted."""
UPDATE_FAILED = "pytest --lf --torchgraph-update"
"""The command that stores what the failed tests captured."""


def difference_data(mismatch: Mismatch, limit: int = MAX_FINDINGS) -> dict[str, Any]:
    """The plain data of a failed comparison, of bounded size.

    Args:
        mismatch: the comparison.
        limit: how many of its findings there are at most; the others are counted.
    """
    from ..graph.diff.described import described

    findings = mismatch.findings
    return {
        "problem": mismatch.problem or "the graphs differ",
        "releases": mismatch.releases,
        "findings": [described(each).data() for each in findings[:limit]],
        "left": max(0, len(findings) - limit),
    }


def unknown_difference(mismatch: Mismatch) -> dict[str, Any]:
    """The same where finding out what differs failed."""
    problem = mismatch.problem or "what differs could not be found out"
    return {"problem": problem, "releases": mismatch.releases, "findings": [], "left": 0}


def findings_of(data: dict[str, Any]) -> Iterator[Described]:
    """The findings in what `difference_data` gave; where there are none, the problem."""
    from ..graph.diff.described import Described, problem_described

    for finding in data["findings"]:
        yield Described.from_data(finding)
    if not data["findings"]:
        yield problem_described(data["problem"])


class FailedComparisons:
    """A plugin of the process that reports: the comparisons that failed.

    Attributes:
        config: of the run.
        tests: the data of a test's failed comparisons, by its id.
    """

    def __init__(self, config: pytest.Config):
        self.config = config
        self.tests: dict[str, list[dict[str, Any]]] = {}
        self._every_cause: list[CauseInWords] | None = None

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Keep the failed comparisons of a phase; those of an earlier attempt count no more."""
        if report.when == "setup":
            self.tests.pop(report.nodeid, None)
        data = getattr(report, DIFFERENCES, None)
        if data and report.failed:
            self.tests.setdefault(report.nodeid, []).extend(data)
            self._every_cause = None

    @property
    def causes(self) -> list[CauseInWords]:
        """The causes, those of most tests first; none where at most one comparison failed."""
        return self.every_cause if sum(map(len, self.tests.values())) > 1 else []

    @property
    def every_cause(self) -> list[CauseInWords]:
        """The same, also where one comparison failed."""
        if self._every_cause is None:
            from ..graph.diff.described import causes_in_words

            upgraded = [
                test for test, every in self.tests.items() if any(e["releases"] for e in every)
            ]
            self._every_cause = causes_in_words([*self._items()], upgraded=upgraded)
        return self._every_cause

    def _items(self) -> Iterator[tuple[str, Described]]:
        for test, every in sorted(self.tests.items()):
            for data in every:
                yield from ((test, finding) for finding in findings_of(data))

    def heading(self) -> str:
        """How many causes there are in how many tests."""
        left = sum(data["left"] for every in self.tests.values() for data in every)
        more = f", {counted(left, 'further finding')} not listed" if left else ""
        size = f"{counted(len(self.causes), 'cause')} in {counted(len(self.tests), 'test')}"
        return f"{size}{more}"

    def releases(self) -> list[str]:
        """The releases of torch that were compared where they differ, as `2.13.0 -> 2.15.0`."""
        pairs = (
            data["releases"] for every in self.tests.values() for data in every if data["releases"]
        )
        return [*dict.fromkeys(f"{old} -> {new}" for old, new in pairs)]

    def accept(self) -> str:
        """The command that stores what all these tests captured; "" where there is none."""
        chosen = settings.get(self.config)
        known = self.config.pluginmanager.hasplugin("cacheprovider")
        stores = chosen.releases.stores(running_release())
        # Ranks in processes of their own have one cache, in which one of them says what failed.
        return UPDATE_FAILED if known and stores and not chosen.rank else ""

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> Generator[None]:
        """Print the causes behind everything else, so that they are seen without scrolling."""
        yield
        try:
            lines = [*self._lines()]
            heading = f"graphs differ: {self.heading()}" if lines else ""
        except Exception as error:  # the sections of the tests have it all
            terminalreporter.line(f"torchgraph: the causes are not known: {brief(error)}")
            return
        if lines:
            terminalreporter.section(heading)
        for line in lines:
            terminalreporter.line(line)

    def _lines(self) -> Iterator[str]:
        """The lines of the section; none where at most one comparison failed."""
        if not self.causes:
            return
        from ..graph.diff.cause_table import cause_lines

        yield from (f"torch {pair}" for pair in self.releases())
        yield from cause_lines(self.causes, "test")
        if accept := self.accept():
            yield f"accept all:  {accept}"
        if review := review_command(self.config):
            yield f"review:      {review}"
