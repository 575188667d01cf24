"""The plugin that saves a run: `--torchgraph-save-run=DIR`."""

from __future__ import annotations

import os
from collections.abc import Generator
from contextlib import ExitStack, suppress
from dataclasses import asdict, replace
from importlib import metadata
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from ..audit.facts import Cause
from ..audit.suite_watch import SuiteWatch, TestObservation
from ..context import CONTEXT
from ..errors import CaptureError, TorchGraphError
from ..files import decode
from ..graph.events import GraphBreak
from ..graph.program import Program
from ..graph.text import Header
from ..settings import config as settings
from ..snapshot.run import PLUGIN as RUN_RECORD
from ..snapshot.run import TROUBLE
from ..torch_release import torch_version, why_unsupported
from ..words import counted, one_line
from .stored import Repeat, RunInfo, RunWriter, SavedCapture, SavedRecord

if TYPE_CHECKING:
    from ..api.result import Capture

_RUN = "torchgraph_save_run"
"""Key of `workerinput` with the id of the run, and of `workeroutput` with a worker's problem."""
_ATTRIBUTE = "torchgraph_run"
"""Attribute of a teardown report with the record of its test: a forked test runs in a child."""
_MOST_TEXT = 2000
"""Maximum length of a reason, in characters."""
_LIMIT = "the recompile limit"


def install(config: pytest.Config, directory: Path) -> None:
    """Register the plugins that save the tests of this process, and the run as a whole.

    Raises:
        pytest.UsageError: if the directory has anything but a saved run, or torch is unsupported.
    """
    if reason := why_unsupported():
        raise pytest.UsageError(f"--torchgraph-save-run: {reason}")
    worker: dict[str, Any] | None = getattr(config, "workerinput", None)
    run_id = os.urandom(8).hex() if worker is None else worker[_RUN]
    release = torch_version().partition("+")[0]
    # Before any test: setuptools, which inductor imports, adds packages of its own to the path.
    versions = {} if worker is not None else _versions()
    info = RunInfo(run_id, release, versions, isolated=settings.get(config).save_run_isolation)
    name = "main" if worker is None else worker["workerid"]
    writer = RunWriter(directory, info, name)
    saver = RunSaver(writer)
    if worker is None:
        try:
            writer.prepare()
        except (TorchGraphError, OSError) as error:
            raise pytest.UsageError(f"--torchgraph-save-run: {error}") from None
        config.pluginmanager.register(RunKeeper(writer, saver), "torchgraph-run-keeper")
    config.pluginmanager.register(saver, "torchgraph-run-saver")


def _versions() -> dict[str, str]:
    """Return the versions of all installed packages."""
    found: dict[str, str] = {}
    for each in metadata.distributions():
        with suppress(Exception):  # of a package that is only half removed
            found[str(each.metadata["Name"])] = str(each.version)
    return dict(sorted(found.items()))


class RunSaver:
    """Writes what each test of this process compiled and captured, when the test ends.

    Args:
        writer: writes the files.

    Attributes:
        problem: the error that ended the saving; "" if there was none. Tests do not notice it.
    """

    def __init__(self, writer: RunWriter) -> None:
        self.problem = ""
        self._writer = writer
        self._watch = SuiteWatch(isolated=writer.info.isolated, with_graphs=True)
        self._captures: list[Capture] = []
        self._fixtures: dict[str, tuple[str, str, int]] = {}
        self._outcomes: dict[str, str] = {}
        self._record: tuple[str, SavedRecord] | None = None
        self._stack = ExitStack()
        self._stack.enter_context(CONTEXT.subscribed(self._note_capture))

    def _note_capture(self, captured: Any) -> None:
        """Keep a capture until the test, or the fixture that makes it, ends."""
        # Of `Ranks`, each capture was reported before. What a watch sees, ours sees as well.
        if not hasattr(captured, "mesh") and captured.via != "watch":
            self._captures.append(captured)

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_runtest_setup(self, item: pytest.Item) -> Generator[None, object, object]:
        """Start watching before the first fixture."""
        self._captures = []
        self._watch.begin()
        return (yield)

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_fixture_setup(
        self, fixturedef: pytest.FixtureDef[object], request: pytest.FixtureRequest
    ) -> Generator[None, object, object]:
        """Save what a fixture of wider scope compiles for itself, whichever test comes first."""
        if fixturedef.scope == "function":
            return (yield)
        place: str = request.node.nodeid
        index = getattr(request, "param_index", 0) if fixturedef.params else 0
        label = f"fixture {fixturedef.argname}{f'[{index}]' if index else ''}"
        label += f" of {place}" if place not in ("", ".") else ""
        # The captures so far are the test's.
        captures, self._captures = self._captures, []
        try:
            with self._watch.apart(label) as found:
                result = yield
            record = self._record_of(found[0] if found else None)
            if record is not None and not record.is_empty:
                self._fixtures[label] = fixturedef.argname, place, index
                self._write(label, record, fixture=True)
            return result
        finally:
            self._captures = captures

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_runtest_teardown(self, item: pytest.Item) -> Generator[None, object, object]:
        """Stop watching after the teardown of the last fixture, and write the graphs."""
        try:
            return (yield)
        finally:
            record = self._record_of(self._watch.end(item.nodeid))
            self._captures = []
            if record is not None:
                fixtures = tuple(sorted(self._fixtures_of(item)))
                self._record = item.nodeid, replace(record, fixtures=fixtures)

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_makereport(
        self, item: pytest.Item, call: pytest.CallInfo[None]
    ) -> Generator[None, pytest.TestReport, pytest.TestReport]:
        """Attach the record to the report, because a forked test ends in another process."""
        report = yield
        if report.when == "teardown" and self._record is not None:
            vars(report)[_ATTRIBUTE] = asdict(self._record[1])
            self._record = None
        return report

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Write the line of the test, before pytest-xdist sends the report.

        The reports of setup, call and teardown together are the outcome: a failure decides, and a
        test passes only by its call.
        """
        data = vars(report).pop(_ATTRIBUTE, None)
        if hasattr(report, "node"):  # of a worker, which has written it
            return
        test = report.nodeid
        if report.when == "setup":  # a plugin may run the test again: the last run counts
            self._outcomes[test] = ""
        outcome = self._outcomes.get(test, "")
        if report.skipped and outcome != "failed":
            outcome = "failed as expected" if hasattr(report, "wasxfail") else "skipped"
        elif not report.passed:
            outcome = "failed"
        elif report.when == "call":
            outcome = outcome or "passed"
        self._outcomes[test] = outcome
        if report.when == "teardown":
            self._outcomes.pop(test)
            if data is not None:
                self._write(test, replace(decode(SavedRecord, data), outcome=outcome))

    def pytest_sessionfinish(self, session: pytest.Session) -> None:
        """Remove the observers; in a pytest-xdist worker, send the problem."""
        self._watch.close()
        self._stack.close()
        output = getattr(session.config, "workeroutput", None)
        if output is not None:
            output[_RUN] = self.problem

    def _fixtures_of(self, item: pytest.Item) -> Generator[str, None, None]:
        """Yield the labels of the saved fixtures that a test uses.

        A fixture with the name is its fixture if it is of a collector around the test, and has the
        same parameter.
        """
        names = getattr(item, "fixturenames", ())
        indices = getattr(getattr(item, "callspec", None), "indices", {})
        places = {node.nodeid for node in item.listchain()}
        for label, (name, place, index) in self._fixtures.items():
            if name in names and place in places and indices.get(name, 0) == index:
                yield label

    def _record_of(self, observation: TestObservation | None) -> SavedRecord | None:
        """Write the graphs, and return the record; `None` after an error."""
        if self._watch.broken is not None:
            self._fail(self._watch.broken)
            return None
        try:
            captures = tuple(map(self._captured, self._captures))
            if observation is None:  # nothing was compiled or called
                return SavedRecord(captures=captures)
            from ..audit.read import ADDRESS, facts_of_test
            from ..watching.graphs import PrintedGraphs

            watched = observation.record
            facts = facts_of_test(observation)
            graphs = PrintedGraphs(watched).graphs
            program = Program(Header("watch", self._writer.info.torch), graphs)
            return SavedRecord(
                compiles=facts.compiles,
                graphs=self._writer.write_graphs(program) if graphs else "",
                captures=captures,
                breaks=tuple(map(_portable, watched.breaks)),
                recompiles=tuple(
                    Repeat(
                        each.function,
                        each.file,
                        each.line,
                        tuple(ADDRESS.sub("…", reason[:_MOST_TEXT]) for reason in each.reasons),
                        each.limit_hit,
                        next((guard.source for guard in each.failed_guards), None),
                    )
                    for each in watched.recompiles
                ),
                eager=(
                    *(each for each in facts.causes if each.kind in ("eager", "nothing")),
                    # The facts have no number of calls past a recompile limit.
                    *(
                        Cause("limit", each.file, each.function, _LIMIT, "", each.line, each.count)
                        for each in watched.eager_calls
                        if each.kind == "limit"
                    ),
                ),
                # Without isolation, a test may run code that a fixture compiled.
                shared=facts.shared or bool(self._fixtures and not self._writer.info.isolated),
            )
        except Exception as error:  # outcomes of tests do not change
            self._fail(error)
            return None

    def _captured(self, capture: Capture) -> SavedCapture:
        """Write the graphs of a capture, and return its record."""
        share = None
        with suppress(CaptureError):  # of a mechanism that does not compile
            share = round(capture.compiled_share, 6)
        try:
            program = Program(capture.header, capture.program)
        except CaptureError as error:
            return SavedCapture(problem=str(error)[:_MOST_TEXT])
        breaks: tuple[GraphBreak, ...] = ()
        with suppress(CaptureError):  # of a mechanism that has no graph breaks
            breaks = tuple(map(_portable, capture.breaks))
        return SavedCapture(self._writer.write_graphs(program), share, breaks)

    def _write(self, name: str, record: SavedRecord, *, fixture: bool = False) -> None:
        if self.problem:  # the run is not complete, whatever follows
            return
        try:
            self._writer.write_record(name, record, fixture=fixture)
        except Exception as error:  # outcomes of tests do not change
            self._fail(error)

    def _fail(self, error: Exception) -> None:
        """End the saving because of an error. The first one is kept."""
        if not self.problem:
            name = "" if isinstance(error, TorchGraphError) else f"{type(error).__name__}: "
            self.problem = one_line(f"{name}{error}")


def _portable(cut: GraphBreak) -> GraphBreak:
    """Return a graph break without paths of this machine."""
    from ..audit.read import ADDRESS

    reason, hint = (ADDRESS.sub("…", text[:_MOST_TEXT]) for text in (cut.reason, cut.hint))
    return replace(cut, reason=reason, hint=hint, stack=(), compile_id="", path="")


class RunKeeper:
    """Writes `run.json`, and says what was saved. Not in a pytest-xdist worker.

    Args:
        writer: writes the files.
        saver: the plugin that saves the tests of this process.
    """

    def __init__(self, writer: RunWriter, saver: RunSaver) -> None:
        self._writer = writer
        self._saver = saver
        self._ended: set[str] = set()
        self._problem = ""
        self._line = ""

    @pytest.hookimpl(optionalhook=True)
    def pytest_configure_node(self, node: Any) -> None:
        """Tell a pytest-xdist worker the id of the run."""
        node.workerinput[_RUN] = self._writer.info.id

    @pytest.hookimpl(optionalhook=True)
    def pytest_testnodedown(self, node: object) -> None:
        """Note the problem of a worker."""
        output = getattr(node, "workeroutput", None)
        problem = "a pytest-xdist worker crashed" if output is None else output.get(_RUN, "")
        self._problem = self._problem or problem

    def pytest_collectreport(self, report: pytest.CollectReport) -> None:
        """Note tests that are missing because their file could not be collected."""
        if report.failed:
            self._problem = self._problem or f"{report.nodeid} could not be collected"

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Note a test that ended."""
        if report.when == "teardown":
            self._ended.add(report.nodeid)

    @pytest.hookimpl(trylast=True)
    def pytest_sessionfinish(self, session: pytest.Session) -> None:
        """Write whether the run is complete."""
        record = session.config.pluginmanager.getplugin(RUN_RECORD)
        missing = record.expected - self._ended
        problem = self._saver.problem or self._problem
        if missing:
            total = counted(len(record.expected), "collected test")
            problem = problem or f"{len(missing):,} of {total} did not end"
        info = replace(self._writer.info, complete=not problem, problem=problem)
        shown = settings.display_path(session.config, self._writer.directory)
        try:
            self._writer.write_info(info)
        except (TorchGraphError, OSError) as error:
            self._line = f"not saved: {error}"
            if session.exitstatus == pytest.ExitCode.OK:
                session.exitstatus = TROUBLE
            return
        self._line = (
            f"{shown}: {counted(len(self._ended), 'test')}. It has lines of your code, paths, and "
            "the versions of installed packages: look before you upload it"
        )
        if problem:
            self._line += f"\nnot complete: {problem}"

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        """Say what was saved."""
        if self._line:
            terminalreporter.section("torchgraph saved run")
            for line in self._line.splitlines():
                terminalreporter.line(one_line(line))
