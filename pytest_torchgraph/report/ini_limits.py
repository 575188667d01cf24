"""The word at the end of a run that the ini file's limits had nothing to look at."""

from __future__ import annotations

from collections.abc import Generator

import pytest

from ..marker import COMPILED, MAXIMA
from ..settings import config as settings
from ..settings.options import MARKER

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
