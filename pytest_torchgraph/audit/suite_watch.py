"""Watch what each test of a run compiles.

Watching starts when `torch._dynamo` is imported, because nothing can be compiled before. The
observers are then installed, and an idle recorder, which stores nothing, prevents their removal. So
watching a test that compiles nothing costs only two short calls. After a test that compiled
something, the observers are removed, because their counters would keep all compiled code of the run
alive. The next test installs them again.
"""

from __future__ import annotations

import contextlib
from collections import Counter
from collections.abc import Generator, Iterator, Mapping
from dataclasses import dataclass, field
from types import FrameType
from typing import TYPE_CHECKING, Any

import pytest

from ..watching.dynamo_import import DynamoFinder, is_imported

if TYPE_CHECKING:
    from ..watching.observe import EventRecorder
    from ..watching.record import WatchRecord
    from .compile_calls import SettingsTracker
    from .facts import CodePlace, LeakedSetting


@dataclass(frozen=True)
class TestObservation:
    """Observations from one test.

    Attributes:
        record: the compilations, calls and runs.
        compile_calls: the calls of `torch.compile`.
        in_wider_fixture: True if a fixture that outlives the test used compiled code.
        nested: True if Dynamo resumes inside called functions.
        fixture_calls: the number of calls of compiled callables by fixtures that outlive the test,
            by file and name as in `FunctionFacts.key`.
    """

    record: WatchRecord
    compile_calls: tuple[CodePlace, ...] = ()
    in_wider_fixture: bool = False
    nested: bool = False
    fixture_calls: Mapping[str, int] = field(default_factory=dict)


class SuiteWatch:
    """A watch over a suite, one test at a time.

    Args:
        isolated: if True, reset Dynamo before each test, so that Dynamo forgets what it compiled.
        with_graphs: if True, the records have the graphs that torch prints.

    Attributes:
        broken: the internal error that stopped the watch; `None` if there was none.
    """

    def __init__(self, *, isolated: bool = False, with_graphs: bool = False) -> None:
        self.broken: Exception | None = None
        self._isolated = isolated
        self._with_graphs = with_graphs
        # True if anything may have been compiled since the last reset: now, at import.
        self._compiled = True
        self._running = False
        self._recorder: EventRecorder | None = None
        self._idle_recorder: EventRecorder | None = None
        self._settings: SettingsTracker | None = None
        self._calls: list[CodePlace] = []
        self._in_wider_fixture = False
        self._fixture_calls: Counter[str] = Counter()
        self._stack = contextlib.ExitStack()
        self._finder = None if is_imported() else DynamoFinder(self._start_if_running)

    def begin(self) -> None:
        """Start watching now, or as soon as Dynamo is imported."""
        self._running = True
        if is_imported():
            self._reset_dynamo()
            self._open()

    def end(self, test: str) -> TestObservation | None:
        """Return the observations since `begin`; `None` if there are none.

        Args:
            test: the id of the test.
        """
        self._running = False
        recorder, self._recorder = self._recorder, None
        if recorder is None:  # Dynamo is not imported, or the watch is broken
            return None
        from ..watching.observe import HUB

        HUB.close(recorder)
        self._compiled |= recorder.was_paused or not recorder.saw_nothing
        # The counters of the idle recorder would keep the compiled code of this test alive.
        if recorder.events and self._idle_recorder is not None:
            HUB.close(self._idle_recorder)
            self._idle_recorder = None
        if recorder.broken is not None:
            self.broken = self.broken or recorder.broken
            return None
        self._note_settings(test)
        # The watch is paused during captures, so a compiled callable that seems unused may have run
        # inside a capture.
        calls = () if recorder.was_paused else tuple(self._calls)
        self._calls = []
        in_wider_fixture, self._in_wider_fixture = self._in_wider_fixture, False
        fixture_calls, self._fixture_calls = self._fixture_calls, Counter()
        if recorder.saw_nothing and not calls:
            return None
        from ..torch_private import nested_graph_breaks
        from ..watching.record import record_of

        try:
            record = record_of(recorder)
        except Exception as error:  # do not fail the test with our error
            self.broken = self.broken or error
            return None
        return TestObservation(
            record, calls, in_wider_fixture, nested_graph_breaks(), fixture_calls
        )

    @contextlib.contextmanager
    def wider_fixture(self, test: str) -> Iterator[None]:
        """Attribute compilations and calls inside this context to a fixture of wider scope.

        Args:
            test: the id of the first test that needs the fixture.
        """
        before = self._record()
        self._note_settings(test)
        calls = len(self._calls)
        try:
            yield
        finally:
            # The fixture, not the test, called `torch.compile` and changed settings.
            del self._calls[calls:]
            self._note_settings("")
            after = self._record()
            if _state(before) != _state(after):
                self._in_wider_fixture = True
                self._fixture_calls += _calls(after) - _calls(before)
                self._compiled = True
                self._reset_dynamo()

    @contextlib.contextmanager
    def apart(self, owner: str) -> Iterator[list[TestObservation]]:
        """Observe this context apart from the test, as if the test had not begun.

        Args:
            owner: the name of what runs in the context.

        Yields:
            A list that has the observation afterwards, if there is one.
        """
        recorder, calls = self._recorder, self._calls
        if recorder is not None:
            from ..watching.observe import HUB

            HUB.close(recorder)
        self._recorder, self._calls = None, []
        self.begin()
        found: list[TestObservation] = []
        try:
            yield found
        finally:
            observation = self.end(owner)
            found += [] if observation is None else [observation]
            self._calls, self._running = calls, True
            if recorder is None:  # Dynamo may have been imported inside
                self.begin()
            else:
                self._reset_dynamo()
                HUB.open(recorder)
                self._recorder = recorder

    def settings_left(self) -> list[LeakedSetting]:
        """Return the settings of torch that tests changed and did not restore."""
        return [] if self._settings is None else self._settings.all()

    def close(self) -> None:
        """Remove the observers, the recorders and the import hook."""
        self.end("")
        self._stack.close()
        if self._idle_recorder is not None:
            from ..watching.observe import HUB

            HUB.close(self._idle_recorder)
            self._idle_recorder = None
        if self._finder is not None:
            self._finder.remove()

    def _start_if_running(self) -> None:
        """Start watching a test that imports Dynamo. An import between tests starts nothing."""
        if self._running:
            self._open()

    def _open(self) -> None:
        """Start recording the running test. Install the observers before the first test."""
        if self.broken is not None:
            return
        try:
            from ..watching.observe import HUB, EventRecorder, IdleRecorder

            if self._settings is None:
                self._observe()
            if self._idle_recorder is None:
                keeper = IdleRecorder()
                HUB.open(keeper)
                self._idle_recorder = keeper
            recorder = EventRecorder(passive=True, with_graphs=self._with_graphs)
            HUB.open(recorder)
            self._recorder = recorder
        except Exception as error:  # do not break the user's import or test with our error
            self.broken = error

    def _observe(self) -> None:
        """Observe settings and calls of `torch.compile`, which the watch itself ignores."""
        from .. import torch_private
        from .compile_calls import SettingsTracker

        self._settings = SettingsTracker()
        torch_private.leave_alone(__package__)
        self._stack.enter_context(torch_private.on_compile_call(self._note_compile_call))

    def _note_compile_call(self, frame: FrameType) -> None:
        """Note a test's call of `torch.compile`, given a frame of torch inside the call."""
        if self._recorder is None or not self._recorder.is_open:
            return
        try:
            from .compile_calls import compile_call

            call = compile_call(frame)
            if call is not None:
                self._calls.append(call)
        except Exception as error:  # do not break the user's call with our error
            self.broken = self.broken or error

    def _note_settings(self, test: str) -> None:
        """Attribute changed settings to a test, or to none for ""; see `SettingsTracker.look`."""
        if self._settings is not None and self.broken is None:
            try:
                self._settings.look(test)
            except Exception as error:  # do not break the test's report with our error
                self.broken = error

    def _record(self) -> WatchRecord | None:
        """Return the record of the test so far; `None` without a working recorder."""
        if self._recorder is None or self._recorder.broken:
            return None
        from ..watching.record import record_of

        return record_of(self._recorder)

    def _reset_dynamo(self) -> None:
        """Reset Dynamo if tests are isolated, and anything was compiled since the last reset."""
        if self._isolated and self._compiled and is_imported():
            from ..torch_private import reset_dynamo

            reset_dynamo()
            self._compiled = False


_NOTHING: tuple[object, ...] = (0, (), {}, ())
"""The state of an empty record."""


def _state(record: WatchRecord | None) -> object:
    """Return a value that changes if anything is compiled, called or run."""
    return None if record is None or record.state == _NOTHING else record.state


def _calls(record: WatchRecord | None) -> Counter[str]:
    """Return the number of calls of each compiled callable, by `FunctionFacts.key`."""
    from .read import relative

    calls: Counter[str] = Counter()
    for callee in () if record is None else record.callables:
        calls[f"{relative(callee.file)} | {callee.name}"] += callee.entries
    return calls


BROKEN = "torchgraph_audit_broken"
"""Key under which a pytest-xdist worker sends the error that stopped its watch."""
ATTRIBUTE = "torchgraph_audit"
"""Attribute of a teardown report with the test's facts, as returned by `TestFacts.to_json`."""
SETTINGS = "torchgraph_audit_settings"
"""Key under which a pytest-xdist worker sends the settings that its tests did not restore."""


class TestWatcher:
    """Plugin that watches each test, from the first fixture to the teardown of the last fixture.

    Test outcomes do not change. The facts are attached to the teardown report, which pytest-xdist
    sends from a worker to the process that reports.

    Args:
        isolated: if True, reset Dynamo before each test, and after a fixture of wider scope that
            used compiled code.
    """

    __test__ = False

    def __init__(self, *, isolated: bool = False) -> None:
        self._watch = SuiteWatch(isolated=isolated)
        self._test = ""
        # Id and facts of the test whose teardown has ended, for its report.
        self._facts: tuple[str, dict[str, Any]] | None = None

    @property
    def broken(self) -> str:
        """Error that stopped the watch; "" if there was none."""
        error = self._watch.broken
        return "" if error is None else f"{type(error).__name__}: {error}"

    @property
    def settings_left(self) -> list[LeakedSetting]:
        """Torch settings that tests in this process changed and did not restore."""
        return self._watch.settings_left()

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_runtest_setup(self, item: pytest.Item) -> Generator[None, object, object]:
        """Start watching before the first fixture."""
        self._test = item.nodeid
        self._watch.begin()
        return (yield)

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_fixture_setup(
        self, fixturedef: pytest.FixtureDef[object], request: pytest.FixtureRequest
    ) -> Generator[None, object, object]:
        """Separate what a fixture of wider scope compiles from what the test compiles."""
        if fixturedef.scope == "function":
            return (yield)
        with self._watch.wider_fixture(self._test):
            return (yield)

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_runtest_teardown(self, item: pytest.Item) -> Generator[None, object, object]:
        """Stop watching after the teardown of the last fixture."""
        try:
            return (yield)
        finally:
            observation = self._watch.end(item.nodeid)
            if observation is not None:
                from .read import facts_of_test

                facts = facts_of_test(observation)
                if facts.uses_compile:
                    self._facts = item.nodeid, facts.to_json()

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Attach the facts to the report before pytest-xdist sends it or a plugin reads it."""
        if self._facts is not None and report.when == "teardown":
            test, facts = self._facts
            if report.nodeid == test:
                vars(report)[ATTRIBUTE] = facts
                self._facts = None

    def pytest_sessionfinish(self, session: pytest.Session) -> None:
        """Remove the observers; in a pytest-xdist worker, send errors and changed settings."""
        self._watch.close()
        output = getattr(session.config, "workeroutput", None)
        if output is not None:
            output[BROKEN] = self.broken
            output[SETTINGS] = [list(setting) for setting in self.settings_left]
