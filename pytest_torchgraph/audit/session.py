"""The plugin that reports an audit, or reports that torch is missing or too old."""

from __future__ import annotations

from pathlib import Path

import pytest

from ..errors import OutsideRootError
from ..files import inside, write
from ..settings import config as settings
from ..settings.config import pytest_command
from ..settings.paths import active_filter
from ..snapshot.run import TROUBLE
from ..torch_release import running_release
from ..words import counted, one_line
from .baseline import Baseline, BaselineError, OldBaselineError, ReleaseSection, read, to_text
from .facts import LeakedSetting, TestFacts
from .judge import BaselineComparison
from .suite_watch import ATTRIBUTE, BROKEN, SETTINGS, TestWatcher
from .summary import summary_lines
from .verdict import AuditOutcome, verdict_lines

PLUGIN = "torchgraph-audit"
"""Plugin name of `AuditReport`."""


class AuditReport:
    """Plugin that collects all facts, records or checks the baseline, and prints the section.

    Args:
        config: the configuration of this run.
        watcher: the plugin that watches the tests of this process; `None` if it cannot.
        unwatched: the reason why no test is watched: the installed torch is not supported.

    Attributes:
        outcome: the results.

    Raises:
        pytest.UsageError: if the mode needs a baseline that cannot be read, or tests to be watched.
    """

    def __init__(
        self, config: pytest.Config, watcher: TestWatcher | None, unwatched: str = ""
    ) -> None:
        config_settings = settings.get(config)
        mode = config_settings.audit
        if unwatched and mode not in ("", "show"):
            raise pytest.UsageError(f"--torchgraph-audit={mode}: {unwatched}")
        self.outcome = AuditOutcome(
            mode,
            settings.display_path(config, config_settings.audit_file),
            isolated=bool(mode) and config_settings.audit_isolation,
            broken=unwatched,
        )
        self._path = config_settings.audit_file
        self._watcher = watcher
        self._baseline = _baseline(config, self._path, mode)
        # Ids of the tests that ran, and where each of them is, as `file:line name`.
        self._tests: set[str] = set()
        self._places: dict[str, str] = {}
        self._interrupted = False
        self._deselected = False
        self._colour = ""  # of the first of `outcome.said`

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Store the facts of a test. If the test is repeated, its last run counts."""
        test = report.nodeid
        self._tests.add(test)
        self.outcome.tests = len(self._tests)
        if report.when == "setup":
            self.outcome.facts.pop(test, None)  # from an earlier run of a repeated test
            file, line, name = report.location
            name = name.rpartition(".")[2].partition("[")[0]
            self._places[test] = f"{file}:{(line or 0) + 1} {name}"
        if report.when == "call" and (report.passed or hasattr(report, "wasxfail")):
            self.outcome.passed.add(test)
        elif report.failed:
            self.outcome.passed.discard(test)
        facts = getattr(report, ATTRIBUTE, None)
        if facts is not None:
            self.outcome.facts[test] = TestFacts.from_json(facts)

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
        self.outcome.broken = self.outcome.broken or output.get(BROKEN, "")
        self.outcome.settings += [LeakedSetting(*values) for values in output.get(SETTINGS, ())]

    @pytest.hookimpl(tryfirst=True)
    def pytest_sessionfinish(self, session: pytest.Session, exitstatus: int) -> None:
        """Record or check the baseline, unless the run was cut short."""
        outcome = self.outcome
        if self._watcher is not None:
            outcome.broken = outcome.broken or self._watcher.broken
            outcome.settings += self._watcher.settings_left
        outcome.facts = dict(sorted(outcome.facts.items()))
        if outcome.mode in ("", "show"):
            return
        refused = f"{outcome.file}: not {outcome.mode}ed"
        ended_normally = exitstatus in (pytest.ExitCode.OK, pytest.ExitCode.TESTS_FAILED)
        failed = False
        if not ended_normally or self._interrupted or session.shouldfail or session.shouldstop:
            outcome.said = [f"{refused}: the run stopped early"]
        elif outcome.broken:
            outcome.said = [f"{refused}, because the audit is incomplete (see the error above)"]
            failed = outcome.mode == "check"
        elif outcome.mode == "record":
            try:
                outcome.said = [self._record(session.config)]
            except OutsideRootError as error:
                outcome.said = [f"{outcome.file}: not recorded: {error.reason}"]
                self._colour = "red"
                session.exitstatus = TROUBLE
        else:
            failed = self._check(session.config)
            self._colour = "red" if failed else "green"
        # A run that failed for another reason keeps its status.
        if failed and exitstatus == pytest.ExitCode.OK:
            session.exitstatus = pytest.ExitCode.TESTS_FAILED

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        """Print the section `torchgraph audit`. Without a mode, print it only on an error."""
        outcome = self.outcome
        lines: list[str] = []
        # Without a mode, another option, such as `--torchgraph-json`, asked for the facts.
        if self._watcher is None:
            lines += [f"no test was watched: {outcome.broken}"] * bool(outcome.mode)
        elif outcome.broken:
            lines.append(
                "incomplete audit, because of an internal error in pytest-torchgraph (please "
                f"report it): {outcome.broken}"
            )
        if outcome.mode and self._watcher is not None:
            lines += summary_lines(
                outcome.facts,
                outcome.tests,
                verbose=terminalreporter.config.option.verbose > 0,
                settings=outcome.settings,
                isolated=outcome.isolated,
            )
        if lines:
            terminalreporter.section("torchgraph audit")
        for line in lines:
            terminalreporter.line(one_line(line))
        for number, line in enumerate(outcome.said):
            colour = {self._colour: True} if self._colour and number == 0 else {}
            terminalreporter.line(one_line(line), **colour)

    def _missing(self, config: pytest.Config, section: ReleaseSection) -> set[str]:
        """Return the tests of the baseline that no longer exist, as far as this run shows it."""
        # With a selection inside a file, a test that did not run may still exist.
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

    def _check(self, config: pytest.Config) -> bool:
        """Compare the run with the baseline. Return True if that fails the run."""
        outcome = self.outcome
        section = self._baseline.get(running_release(), ReleaseSection())
        missing = self._missing(config, section)
        comparison = BaselineComparison(section, outcome.facts, outcome.passed, missing)
        verdict = outcome.verdict = comparison.verdict(self._places)
        includes_baseline = self._holds_the_baseline(config, section, missing)
        verdict.vacuous = bool(section.tests) and includes_baseline and not verdict.compared.tests
        outcome.said = list(verdict_lines(verdict, outcome.file))
        return bool(verdict.worse) or verdict.vacuous

    def _record(self, config: pytest.Config) -> str:
        """Write the baseline, and return a line about it."""
        release = running_release()
        section = self._baseline.get(release, ReleaseSection())
        missing = self._missing(config, section)
        section = BaselineComparison(
            section, self.outcome.facts, self.outcome.passed, missing
        ).recorded()
        text = to_text({**self._baseline, release: section})
        done = "unchanged"
        if not self._path.is_file() or self._path.read_text("utf-8") != text:
            write(self._path, text, root=config.rootpath)
            done = "recorded"
        tests = counted(len(section.tests), "test")
        return f"{done}  {self.outcome.file}: {tests} with torch {release}"


def outcome_of(config: pytest.Config) -> AuditOutcome | None:
    """Return the results of this run's audit; `None` without an audit, and in a worker."""
    report: AuditReport | None = config.pluginmanager.get_plugin(PLUGIN)
    return report.outcome if report is not None else None


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
    command = " ".join(pytest_command(settings.get(config).rank))
    try:
        baseline = read(path, pytest=command)
    except BaselineError as error:
        # Recording replaces a baseline of an older release, but no file that is damaged.
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
