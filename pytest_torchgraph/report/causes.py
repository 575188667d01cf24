"""Terminal summary: each cause once with its tests, and limits of the ini file without effect.

The report of a test contains the findings of its failed comparisons as plain data, so pytest-xdist
can send them. The reporting process merges equal findings. An import of this module does not import
the graph modules.
"""

from __future__ import annotations

from collections.abc import Generator, Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from ..marker import COMPILED, MAXIMA
from ..settings import config as settings
from ..settings.options import MARKER
from ..snapshot import REPORTED
from ..snapshot.run import RunRecord
from ..snapshot.summary import brief
from ..torch_release import running_release
from ..words import counted, one_line
from .artifacts import known_directory
from .comparisons import Comparisons, review_command

PLUGIN = "torchgraph-causes"
"""Plugin name of `FailedComparisons`."""
UPDATE_FAILED = "pytest --lf --torchgraph-update"
"""Command that stores the captured graphs of the failed tests."""


class FailedComparisons(Comparisons):
    """Plugin of the reporting process that collects the failed comparisons.

    Attributes:
        config: the pytest config of the run.
    """

    def __init__(self, config: pytest.Config):
        super().__init__()
        self.config = config
        self._failed_reports: dict[str, pytest.TestReport] = {}

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Collect the failed comparisons of a phase."""
        if report.when == "setup":  # a rerun replaces the earlier attempt
            self.tests.pop(report.nodeid, None)
            self._failed_reports.pop(report.nodeid, None)
        if failed := getattr(report, REPORTED, {}).get("failed"):
            self.tests.setdefault(report.nodeid, []).extend(failed)
            self._failed_reports[report.nodeid] = report
            self._every_cause = None

    @pytest.hookimpl(tryfirst=True)
    def pytest_sessionfinish(self) -> None:
        """Make `pytest --lf` select every listed test."""
        # If only subtests of a unittest test failed, pytest reports the test itself as passed and
        # removes it from the failed tests. Report the failed subtest again before pytest saves the
        # list.
        last_failed = self.config.pluginmanager.getplugin("lfplugin")
        if last_failed is not None:
            for report in self._failed_reports.values():
                last_failed.pytest_runtest_logreport(report)

    def accept(self) -> str:
        """Return the command that stores the graphs of all failed tests; "" if there is none."""
        config_settings = settings.get(self.config)
        has_cache = self.config.pluginmanager.hasplugin("cacheprovider")
        stores = config_settings.releases.stores(running_release())
        # Ranks in separate processes share one cache, where only one rank records the failures.
        return UPDATE_FAILED if has_cache and stores and not config_settings.rank else ""

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> Generator[None]:
        """Print the causes after all other output, so they are visible without scrolling."""
        configured = settings.get(self.config).artifacts
        has_cache = self.config.pluginmanager.hasplugin("cacheprovider")
        if (configured or has_cache) and not known_directory(self.config):
            directory = configured or "the cache of pytest"
            line = (
                f"torchgraph: no pending updates are kept, because a link leads {directory} "
                "outside the root directory or into that of version control. Remove the link, or "
                "pass another --torchgraph-artifacts=DIR"
            )
            terminalreporter.line(one_line(line))
        whole_sections = [(report, report.sections) for report in self._failed_reports.values()]
        with suppress(Exception):  # then the sections are printed in full
            self._shorten_sections(terminalreporter)
        try:
            yield
        finally:
            for report, sections in whole_sections:
                report.sections = sections
        try:
            lines = [*self._lines()]
            state = "not stored" if self.are_new else "differ"
            heading = f"graphs {state}: {self.heading()}" if lines else ""
        except Exception as error:  # the section of each test still has its findings
            terminalreporter.line(one_line(f"torchgraph: cannot list the causes: {brief(error)}"))
            return
        if lines:
            terminalreporter.section(one_line(heading))
        for line in lines:
            terminalreporter.line(one_line(line))

    def _shorten_sections(self, reporter: pytest.TerminalReporter) -> None:
        """Replace the sections of a test by one line each if earlier tests show all its causes.

        The lines are only printed: reports, and so all other plugins, keep the whole sections.
        `-vv` prints the sections, as it prints the assertions that pytest truncates.
        """
        if self.config.option.verbose > 1 or len(self.tests) < 2:
            return
        from ..graph.diff import finding_heading

        shown: dict[tuple[int, str], str] = {}
        for report in (*reporter.getreports("error"), *reporter.getreports("failed")):
            # A cause and its form in this test: the same edit may look otherwise in another test.
            numbers = [k for k, cause in enumerate(self.causes) if report.nodeid in cause.files]
            failed = getattr(report, REPORTED, {}).get("failed", ())
            # A section without a finding, or with more than the data has, says more than its cause.
            whole = [d for data in failed if (d := data["difference"]) and not d["left"]]
            keys = [(k, found["form"]) for k in numbers for d in whole for found in d["findings"]]
            if len(whole) == len(failed) and shown.keys() >= {*keys}:
                causes = (
                    f"{finding_heading(self.causes[k], 'test')}, as in {test}"
                    for k, test in {key[0]: shown[key] for key in keys}.items()
                )
                line = f"{'; '.join(causes)} (-vv prints this section in full)"
                sections = {data["section"]: line for data in failed if "section" in data}
                report.sections = [
                    (name, one_line(sections[number]) if number in sections else text)
                    for number, (name, text) in enumerate(report.sections)
                ]
            elif failed:  # this test shows its causes, unless an earlier one did
                shown = {**dict.fromkeys(keys, report.nodeid), **shown}

    def _lines(self) -> Iterator[str]:
        """Yield the lines of the section if at least two comparisons failed."""
        if not self.causes:
            return
        from ..graph.diff import finding_lines

        yield from (f"torch {pair}" for pair in self.releases())
        yield from finding_lines(self.causes, "test")
        if accept := self.accept():
            yield f"accept all:  {accept}"
        if review := review_command(self.config):
            yield f"review:      {review}"


def report_causes(reporter: pytest.TerminalReporter, run: RunRecord) -> None:
    """Print the causes of an update that replaced several stored graphs."""
    if len(run.replaced) < 2:
        return
    try:
        heading, *lines = _lines_of_update(run)
    except Exception as error:  # the graphs are already stored
        problem = f"torchgraph: cannot list the causes of this update: {brief(error)}"
        reporter.line(one_line(problem))
        return
    reporter.section(one_line(heading), yellow=True)
    for line in lines:
        reporter.line(one_line(line))


def _lines_of_update(run: RunRecord) -> Iterator[str]:
    """Yield the heading of an update, then the lines of its causes, with files instead of tests."""
    from ..graph.diff import finding_lines

    update = Comparisons(
        {
            settings.display_path(run.config, Path(path)): [data for _, data in tests]
            for path, tests in run.replaced.items()
        }
    )
    # A new file was not stored before, so no update changes it.
    stored = {path for action, path, _ in run.stored if action != "created"} | run.replaced.keys()
    graphs = counted(len(stored), "stored graph")
    causes = counted(len(update.every_cause), "cause")
    yield f"this update changes {len(run.replaced)} of {graphs}, by {causes}{update.omitted()}"
    yield from (f"torch {pair}" for pair in update.releases())
    yield from finding_lines(update.every_cause)


_ATTRIBUTE = "torchgraph_compiled"


class LimitedTests:
    """Plugin that warns if no test with limits ran compiled code.

    Limits of the ini file apply to all tests, including tests that compile nothing. If no test of a
    run compiles anything, the limits check nothing, although the run is green.
    """

    def __init__(self, config: pytest.Config) -> None:
        limits = settings.get(config).limits
        limit_names = [name for name in MAXIMA if limits.get(name) is not None]
        self._options = " and ".join(f"{MARKER}_{name}={limits[name]}" for name in limit_names)
        self._tests = 0
        self._compiled = False

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_makereport(
        self, item: pytest.Item, call: pytest.CallInfo[None]
    ) -> Generator[None, pytest.TestReport, pytest.TestReport]:
        """Record in the report whether the test ran compiled code."""
        report = yield
        if call.when == "call" and COMPILED in item.stash:
            vars(report)[_ATTRIBUTE] = item.stash[COMPILED]
        return report

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Count a test that was watched for its limits."""
        compiled = getattr(report, _ATTRIBUTE, None)
        if compiled is not None:
            self._tests += 1
            self._compiled |= compiled

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        """Warn if no test ran compiled code and the limits checked nothing."""
        if self._tests and not self._compiled:
            tests = counted(self._tests, "test")
            terminalreporter.section("torchgraph limits")
            problem = (
                f"no compiled code ran in {tests}: {self._options} in the ini file checked "
                "nothing. Call a compiled function in a test, or remove the limits"
            )
            terminalreporter.line(one_line(problem), yellow=True)
