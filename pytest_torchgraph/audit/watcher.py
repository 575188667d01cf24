"""The process that runs tests: it watches each of them."""

from __future__ import annotations

from collections.abc import Generator
from typing import TYPE_CHECKING, Any

import pytest

from .suite_watch import SuiteWatch

if TYPE_CHECKING:
    from .facts import SettingLeft

BROKEN = "torchgraph_audit_broken"
"""The key under which a worker of pytest-xdist sends what kept it from watching."""
ATTRIBUTE = "torchgraph_audit"
"""Attribute of the report of a test's teardown: its facts, as `TestFacts.to_json` gives them."""
SETTINGS = "torchgraph_audit_settings"
"""The key under which it sends the settings that its tests left changed."""


class TestWatcher:
    """Watches each test, from its first fixture to the last one's teardown.

    Outcomes do not change. What a test saw goes with the report of its
    teardown, so that it gets from a worker of pytest-xdist to the process that reports.

    Args:
        isolated: whether Dynamo is reset before each test, and behind a fixture of wider scope that
            used compiled code.
    """

    __test__ = False

    def __init__(self, *, isolated: bool = False) -> None:
        self._watch = SuiteWatch(isolated=isolated)
        self._test = ""
        self._facts: tuple[str, dict[str, Any]] | None = None

    @property
    def broken(self) -> str:
        """What kept it from watching, "" while all is well."""
        error = self._watch.broken
        return "" if error is None else f"{type(error).__name__}: {error}"

    @property
    def settings_left(self) -> list[SettingLeft]:
        """The settings of torch that tests of this process left changed."""
        return self._watch.settings_left()

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_runtest_setup(self, item: pytest.Item) -> Generator[None, object, object]:
        """Begin before the first fixture."""
        self._test = item.nodeid
        self._watch.begin()
        return (yield)

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_fixture_setup(
        self, fixturedef: pytest.FixtureDef[object], request: pytest.FixtureRequest
    ) -> Generator[None, object, object]:
        """Tell what a fixture of wider scope compiles from what the test does."""
        if fixturedef.scope == "function":
            return (yield)
        with self._watch.wider_fixture(self._test):
            return (yield)

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_runtest_teardown(self, item: pytest.Item) -> Generator[None, object, object]:
        """End behind the last fixture."""
        try:
            return (yield)
        finally:
            seen = self._watch.end(item.nodeid)
            if seen is not None:
                from ..convert.source_lines import set_root
                from .read import facts_of_test

                set_root(item.config.rootpath)
                facts = facts_of_test(seen)
                if facts.uses_compile:
                    self._facts = item.nodeid, facts.to_json()

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Put the facts into the report, before pytest-xdist sends it or anybody reads it."""
        if self._facts is not None and report.when == "teardown":
            test, facts = self._facts
            if report.nodeid == test:
                vars(report)[ATTRIBUTE] = facts
                self._facts = None

    def pytest_sessionfinish(self, session: pytest.Session) -> None:
        """Take the observers away; in a worker of pytest-xdist, send what went wrong."""
        self._watch.close()
        output = getattr(session.config, "workeroutput", None)
        if output is not None:
            output[BROKEN] = self.broken
            output[SETTINGS] = [list(each) for each in self.settings_left]
