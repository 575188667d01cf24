"""The plugin that reports an audit, or reports that torch is missing or too old.

This module imports little, so that the audit costs nothing in a suite that compiles nothing.
"""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from ..errors import OutsideRootError
from ..files import inside, write
from ..settings import config as settings
from ..settings.config import pytest_command
from ..settings.paths import active_filter
from ..snapshot.run import TROUBLE
from ..torch_release import running_release
from ..words import counted, one_line
from .suite_watch import ATTRIBUTE, BROKEN, SETTINGS, TestWatcher

if TYPE_CHECKING:
    from .baseline import Baseline, ReleaseSection
    from .facts import LeakedSetting, TestFacts
    from .judge import Verdict
    from .verdict import AuditOutcome


PLUGIN = "torchgraph-audit"
"""Plugin name of `AuditReport`."""

LOG_WIDTH = 200
"""Columns of output that does not go to a terminal."""


class AuditReport:
    """Plugin that collects all facts, records or checks the baseline, and prints the section.

    Raises:
        pytest.UsageError: if the mode needs a baseline that cannot be read.
    """

    def __init__(self, config: pytest.Config, watcher: TestWatcher) -> None:
        config_settings = settings.get(config)
        self._mode = config_settings.audit
        self._isolated = config_settings.audit_isolation
        self._path = config_settings.audit_file
        self._shown_path = settings.display_path(config, self._path)
        self._watcher = watcher
        self._baseline = _baseline(config, self._path, self._mode)
        self._facts: dict[str, TestFacts] = {}
        self._tests: set[str] = set()
        self._places: dict[str, str] = {}
        self._passed: set[str] = set()
        self._broken = ""
        self._interrupted = False
        self._deselected = False
        self._settings: list[LeakedSetting] = []
        self._outcome_lines: list[str] = []
        self._colour = ""
        self._verdict: Verdict | None = None
        self._compared = 0

    @property
    def outcome(self) -> AuditOutcome:
        """Results of the audit; complete after the session has finished."""
        from .verdict import AuditOutcome

        return AuditOutcome(
            mode=self._mode,
            file=self._shown_path,
            isolated=bool(self._mode) and self._isolated,
            tests=len(self._tests),
            facts=dict(sorted(self._facts.items())),
            settings=tuple(self._settings),
            passed=self._passed,
            verdict=self._verdict,
            compared=self._compared,
            broken=self._broken,
            said=tuple(self._outcome_lines),
        )

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Store the facts of a test. If the test is repeated, its last run counts."""
        test = report.nodeid
        self._tests.add(test)
        if report.when == "setup":
            self._facts.pop(test, None)  # from an earlier run of a repeated test
            file, line, name = report.location
            name = name.rpartition(".")[2].partition("[")[0]
            self._places[test] = f"{file}:{(line or 0) + 1} {name}"
        if report.when == "call" and (report.passed or hasattr(report, "wasxfail")):
            self._passed.add(test)
        elif report.failed:
            self._passed.discard(test)
        facts = getattr(report, ATTRIBUTE, None)
        if facts is not None:
            from .facts import TestFacts

            self._facts[test] = TestFacts.from_json(facts)

    def pytest_deselected(self) -> None:
        """Record that a plugin deselected tests, for example to run one shard."""
        self._deselected = True

    def pytest_keyboard_interrupt(self) -> None:
        """Record that the run was interrupted. After `pytest.exit`, the exit status may be 0."""
        self._interrupted = True

    @pytest.hookimpl(optionalhook=True)
    def pytest_testnodedown(self, node: object) -> None:
        """Collect the errors and the changed settings of a pytest-xdist worker."""
        output = getattr(node, "workeroutput", None) or {}
        self._broken = self._broken or output.get(BROKEN, "")
        if settings := output.get(SETTINGS):
            from .facts import LeakedSetting

            self._settings += [LeakedSetting(*values) for values in settings]

    @pytest.hookimpl(tryfirst=True)
    def pytest_sessionfinish(self, session: pytest.Session, exitstatus: int) -> None:
        """Record or check the baseline, unless the run was cut short."""
        self._broken = self._broken or self._watcher.broken
        self._settings += self._watcher.settings_left
        if self._mode in ("", "show"):
            return
        ended_normally = exitstatus in (pytest.ExitCode.OK, pytest.ExitCode.TESTS_FAILED)
        if not ended_normally or self._interrupted or session.shouldfail or session.shouldstop:
            self._outcome_lines = [f"{self._shown_path}: not {self._mode}ed: the run stopped early"]
        elif self._broken:
            self._outcome_lines = [
                f"{self._shown_path}: not {self._mode}ed, because the audit is incomplete (see "
                "the error above)"
            ]
            _fail(session, exitstatus, self._mode == "check")
        elif self._mode == "record":
            try:
                self._outcome_lines = [self._record(session.config)]
            except OutsideRootError as error:
                self._outcome_lines = [f"{self._shown_path}: not recorded: {error.reason}"]
                self._colour = "red"
                session.exitstatus = TROUBLE
        else:
            from .baseline import ReleaseSection
            from .judge import judge
            from .verdict import verdict_lines

            section = self._baseline.get(running_release(), ReleaseSection())
            missing = self._missing(session.config, section)
            verdict = judge(section, self._facts, self._passed, self._places, missing)
            self._verdict = verdict
            self._compared = verdict.compared.tests
            includes_baseline = self._holds_the_baseline(session.config, section, missing)
            verdict.vacuous = bool(section.tests) and includes_baseline and not self._compared
            self._outcome_lines = list(verdict_lines(verdict, self._shown_path, width=_width()))
            failed = bool(verdict.worse) or verdict.vacuous
            self._colour = "red" if failed else "green"
            _fail(session, exitstatus, failed)

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        """Print the section `torchgraph audit`. Without a mode, print it only on an error."""
        if not (self._mode or self._broken):
            return
        from .summary import summary_lines

        terminalreporter.section("torchgraph audit")
        if self._broken:
            problem = (
                "incomplete audit, because of an internal error in pytest-torchgraph (please "
                f"report it): {self._broken}"
            )
            terminalreporter.line(one_line(problem))
        if not self._mode:
            return
        verbose = terminalreporter.config.option.verbose > 0
        lines = summary_lines(
            self._facts,
            len(self._tests),
            width=_width(),
            verbose=verbose,
            settings=self._settings,
            isolated=self._isolated,
        )
        for line in lines:
            terminalreporter.line(one_line(line))
        for number, line in enumerate(self._outcome_lines):
            colour = {self._colour: True} if self._colour and number == 0 else {}
            terminalreporter.line(one_line(line), **colour)

    def _missing(self, config: pytest.Config, section: ReleaseSection) -> set[str]:
        """Return the tests of the baseline that no longer exist, as far as this run shows it."""
        if active_filter(config) or any("::" in argument for argument in config.args):
            return set()
        files_run = {test.partition("::")[0] for test in self._tests}
        files = {test: test.partition("::")[0] for test in section.tests.keys() - self._tests}
        return {
            test
            for test, file in files.items()
            if file in files_run or not (config.rootpath / file).exists()
        }

    def _holds_the_baseline(
        self, config: pytest.Config, section: ReleaseSection, missing: set[str]
    ) -> bool:
        """Return True if this run includes tests of the baseline, or should include them.

        A shard or a manual selection may include none of them.
        """
        if missing or not self._tests.isdisjoint(section.tests):
            return True
        is_selection = config.args_source is pytest.Config.ArgsSource.ARGS or self._deselected
        return not (is_selection or active_filter(config))

    def _record(self, config: pytest.Config) -> str:
        """Write the baseline: update the tests that passed, and keep all other entries.

        A test keeps its line if test order explains every difference. The old id of a renamed test
        is removed.
        """
        from .baseline import Entry, ReleaseSection, functions_of, to_text
        from .judge import is_explained_by_order, judge, merged_functions

        release = running_release()
        old_section = self._baseline.get(release, ReleaseSection())
        tests = dict(old_section.tests)
        known_causes = {key for entry in tests.values() for key in entry.causes}
        seen_causes = {
            cause.key for test_facts in self._facts.values() for cause in test_facts.causes
        }
        missing = self._missing(config, old_section)
        for old, _ in judge(old_section, self._facts, self._passed, missing=missing).renamed:
            del tests[old]
        for test in self._passed:
            old_entry, facts = tests.get(test), self._facts.get(test)
            if (
                old_entry
                and facts
                and is_explained_by_order(old_entry, facts, known_causes, seen_causes)
            ):
                continue
            tests.pop(test, None)
            if facts:
                tests[test] = Entry.of(facts)
        passed_facts = [facts for test, facts in self._facts.items() if test in self._passed]
        current = functions_of(passed_facts)
        functions = merged_functions(old_section, current)
        # All tests of the baseline passed, so a function that is not in this run is unused.
        if old_section.tests.keys() - missing <= self._passed:
            functions = {key: function for key, function in functions.items() if key in current}
        text = to_text({**self._baseline, release: ReleaseSection(tests, functions)})
        test_count = counted(len(tests), "test")
        if self._path.is_file() and self._path.read_text("utf-8") == text:
            return f"unchanged  {self._shown_path}: {test_count} with torch {release}"
        write(self._path, text, root=config.rootpath)
        return f"recorded  {self._shown_path}: {test_count} with torch {release}"


def outcome_of(config: pytest.Config) -> AuditOutcome | None:
    """Return the results of this run's audit; `None` without an audit, and in a worker."""
    report: AuditReport | _UnwatchedReport | None = config.pluginmanager.get_plugin(PLUGIN)
    return report.outcome if report is not None else None


def _width() -> int:
    """Return the terminal width, or `LOG_WIDTH` if the output goes to a log, as in CI."""
    return shutil.get_terminal_size(fallback=(LOG_WIDTH, 24)).columns


def _fail(session: pytest.Session, exitstatus: int, failed: bool) -> None:
    """Set exit status 1 if the audit failed and the run would have succeeded."""
    if failed and exitstatus == pytest.ExitCode.OK:
        session.exitstatus = pytest.ExitCode.TESTS_FAILED


def _baseline(config: pytest.Config, path: Path, mode: str) -> Baseline:
    """Return the baseline; empty if the mode needs none.

    Raises:
        pytest.UsageError: if the baseline cannot be read, or lacks the release of a check.
    """
    if mode in ("", "show") or (mode == "record" and not path.exists()):
        return {}
    if mode == "record":
        try:
            inside(path, config.rootpath)
        except OutsideRootError:  # reported at the end of the run, after all tests have run
            return {}
    from .baseline import BaselineError, OldBaselineError, read

    command = " ".join(pytest_command(settings.get(config).rank))
    try:
        baseline = read(path, pytest=command)
    except BaselineError as error:
        if mode == "record" and isinstance(error, OldBaselineError):
            return {}
        raise pytest.UsageError(f"--torchgraph-audit={mode}: {error}") from error
    release = running_release()
    if mode == "check" and release not in baseline:
        raise pytest.UsageError(
            f"--torchgraph-audit=check: {path} has no entries for torch {release}, only for "
            f"{', '.join(baseline) or 'no release'}. To add them: {command} "
            "--torchgraph-audit=record"
        )
    return baseline


def refuse(config: pytest.Config, reason: str) -> None:
    """Report in the section `torchgraph audit` that no test was watched.

    Args:
        config: the configuration of this run.
        reason: the reason why the installed torch is not supported.

    Raises:
        pytest.UsageError: if the mode is "record" or "check".
    """
    mode = config.option.torchgraph_audit or ""
    if mode not in ("", "show"):
        raise pytest.UsageError(f"--torchgraph-audit={mode}: {reason}")
    if not hasattr(config, "workerinput"):
        config.pluginmanager.register(_UnwatchedReport(mode, reason), PLUGIN)


class _UnwatchedReport:
    """Plugin that prints in the section why no test was watched."""

    def __init__(self, mode: str, reason: str) -> None:
        self._mode = mode
        self._reason = reason
        self._tests: set[str] = set()

    @property
    def outcome(self) -> AuditOutcome:
        """Outcome with `broken` set. Without it, reports would claim that nothing compiles."""
        from .verdict import AuditOutcome

        return AuditOutcome(mode=self._mode, tests=len(self._tests), broken=self._reason)

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Count the tests."""
        self._tests.add(report.nodeid)

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        """Print the section `torchgraph audit`."""
        if not self._mode:
            return
        terminalreporter.section("torchgraph audit")
        terminalreporter.line(one_line(f"no test was watched: {self._reason}"))
