"""The end of a run: each cause once, with its tests, and limits of the ini file that checked
nothing.

The findings of a failed comparison are plain data in the test's report, which pytest-xdist brings
from the worker; the process that reports joins them. Importing this module imports no graphs.
"""

from __future__ import annotations

from collections.abc import Generator, Iterator

import pytest

from ..marker import COMPILED, MAXIMA
from ..settings import config as settings
from ..settings.options import MARKER
from ..snapshot import REPORTED
from ..snapshot.run import RunRecord
from ..snapshot.summary import brief
from ..torch_release import running_release
from ..words import counted
from .comparisons import Comparisons, findings_of, left_out, review_command

PLUGIN = "torchgraph-causes"
"""The name under which `FailedComparisons` is registered."""
UPDATE_FAILED = "pytest --lf --torchgraph-update"
"""The command that stores what the failed tests captured."""


class FailedComparisons(Comparisons):
    """A plugin of the process that reports: the comparisons that failed.

    Attributes:
        config: of the run.
    """

    def __init__(self, config: pytest.Config):
        super().__init__()
        self.config = config

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Keep the failed comparisons of a phase; those of an earlier attempt count no more."""
        if report.when == "setup":
            self.tests.pop(report.nodeid, None)
        if failed := getattr(report, REPORTED, {}).get("failed"):
            self.tests.setdefault(report.nodeid, []).extend(failed)
            self._every_cause = None

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
            what = "not stored" if self.are_new else "differ"
            heading = f"graphs {what}: {self.heading()}" if lines else ""
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
        from ..graph.diff.joining import finding_lines

        yield from (f"torch {pair}" for pair in self.releases())
        yield from finding_lines(self.causes, "test")
        if accept := self.accept():
            yield f"accept all:  {accept}"
        if review := review_command(self.config):
            yield f"review:      {review}"


def report_causes(reporter: pytest.TerminalReporter, run: RunRecord) -> None:
    """Print the causes, where an update replaced several stored graphs."""
    if len(run.replaced) < 2:
        return
    try:
        heading, *lines = _lines(run)
    except Exception as error:  # the graphs are stored all the same
        reporter.line(f"torchgraph: the causes of this update are not known: {brief(error)}")
        return
    reporter.section(heading, yellow=True)
    for line in lines:
        reporter.line(line)


def _lines(run: RunRecord) -> Iterator[str]:
    from ..graph.diff.joining import MAX_CAUSES, finding_head, join
    from ..graph.diff.words import cost_text

    every = [(path, data) for path, tests in sorted(run.replaced.items()) for _, data in tests]
    causes = join(
        [(path, finding) for path, data in every for finding in findings_of(data)],
        upgraded=[path for path, data in every if data["releases"]],
    )
    stored = {path for how, path, _ in run.stored if how != "created"} | run.replaced.keys()
    graphs = counted(len(stored), "stored graph")
    causes_known = counted(len(causes), "cause")
    yield f"this update changes {len(run.replaced)} of {graphs}, by {causes_known}"
    for old, new in sorted({tuple(data["releases"]) for _, data in every if data["releases"]}):
        yield f"torch {old} -> {new}"
    for cause in causes[:MAX_CAUSES]:
        tests = {test for path in cause.files for test, _ in run.replaced[path]}
        yield f"{finding_head(cause)} of {counted(len(tests), 'test')}"
        if costs := cost_text(cause.cost):
            yield f"    costs   {costs}"
    if left := causes[MAX_CAUSES:]:
        files = {path for cause in left for path in cause.files}
        yield f"... and {counted(len(left), 'more cause')} in {counted(len(files), 'file')}"
    if lost := sum(left_out(data) for _, data in every):
        yield f"{counted(lost, 'further finding')} not listed"


_ATTRIBUTE = "torchgraph_compiled"


class LimitedTests:
    """Counts the tests that were watched for their limits, and those that ran compiled code.

    Limits of the ini file hold for tests that compile nothing, too. Where no test of a run compiles
    anything they have checked nothing, and a green line alone would hide that.
    """

    def __init__(self, config: pytest.Config) -> None:
        limits = settings.get(config).limits
        named = [name for name in MAXIMA if limits.get(name) is not None]
        self._options = " and ".join(f"{MARKER}_{name}={limits[name]}" for name in named)
        self._tests = 0
        self._compiled = False

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_makereport(
        self, item: pytest.Item, call: pytest.CallInfo[None]
    ) -> Generator[None, pytest.TestReport, pytest.TestReport]:
        """Put into the report whether the test ran compiled code."""
        report = yield
        if call.when == "call" and COMPILED in item.stash:
            vars(report)[_ATTRIBUTE] = item.stash[COMPILED]
        return report

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Count a test."""
        compiled = getattr(report, _ATTRIBUTE, None)
        if compiled is not None:
            self._tests += 1
            self._compiled |= compiled

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        """Say that nothing was checked, where nothing was."""
        if self._tests and not self._compiled:
            tests = "the only test" if self._tests == 1 else f"none of {self._tests} tests"
            verb = "ran nothing" if self._tests == 1 else "ran anything"
            terminalreporter.section("torchgraph limits")
            terminalreporter.line(
                f"{tests} {verb} compiled, so {self._options} in the ini file checked nothing",
                yellow=True,
            )
