"""The process that runs tests: it watches each of them."""

from __future__ import annotations

from collections.abc import Generator

import pytest

from .suite_watch import SuiteWatch

BROKEN = "torchgraph_audit_broken"
"""The key under which a worker of pytest-xdist sends what kept it from watching."""
ATTRIBUTE = "torchgraph_audit"
"""Attribute of the report of a test's teardown: its facts, as `TestFacts.to_json` gives them."""


class TestWatcher:
    """Watches each test, from its first fixture to the last one's teardown.

    Outcomes do not change, and nothing is reset. What a test saw goes with the report of its
    teardown, so that it gets from a worker of pytest-xdist to the process that reports.
    """

    __test__ = False

    def __init__(self) -> None:
        self._watch = SuiteWatch()

    @property
    def broken(self) -> str:
        """What kept it from watching, "" while all is well."""
        error = self._watch.broken
        return "" if error is None else f"{type(error).__name__}: {error}"

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_runtest_setup(self) -> Generator[None, object, object]:
        """Begin before the first fixture."""
        self._watch.begin()
        return (yield)

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_runtest_makereport(
        self, item: pytest.Item, call: pytest.CallInfo[None]
    ) -> Generator[None, pytest.TestReport, pytest.TestReport]:
        """End behind the last fixture, and put the facts into the report."""
        report = yield
        if call.when == "teardown":
            record = self._watch.end()
            if record is not None:
                from ..convert.source_lines import set_root
                from .read import facts_of

                set_root(item.config.rootpath)
                facts = facts_of(record)
                if facts.uses_compile:
                    report.__dict__[ATTRIBUTE] = facts.to_json()
        return report

    def pytest_sessionfinish(self, session: pytest.Session) -> None:
        """Take the observers away; in a worker of pytest-xdist, send what went wrong."""
        self._watch.close()
        output = getattr(session.config, "workeroutput", None)
        if output is not None:
            output[BROKEN] = self.broken
