"""JUnit properties (`--junitxml`) with the compilation facts of each test that uses torch.compile.

The properties are added to the report of a test's teardown, and only in the process that writes the
file. Without `--junitxml` the properties are not added, so no other plugin prints them.
"""

from __future__ import annotations

from typing import Any

import pytest

from ...audit.facts import TestFacts
from ...audit.session import outcome_of
from ...audit.suite_watch import ATTRIBUTE
from ...audit.summary import describe, totals
from ...words import one_line
from .document import suite_totals

PREFIX = "torchgraph_"


class JUnitProperties:
    """Plugin of the reporting process that adds properties to tests and to the suite."""

    def __init__(self, config: pytest.Config) -> None:
        self._config = config

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Add the properties of a test to its last report."""
        facts = getattr(report, ATTRIBUTE, None)
        if facts is not None:
            report.user_properties += properties(TestFacts.from_json(facts))

    @pytest.hookimpl(tryfirst=True)
    def pytest_sessionfinish(self) -> None:
        """Add the totals to the suite if a test uses torch.compile or the audit is incomplete."""
        outcome = outcome_of(self._config)
        file = self._file()
        if outcome is None or file is None or not (outcome.facts or outcome.broken):
            return
        for name, value in suite_totals(outcome).items():
            file.add_global_property(f"{PREFIX}{name}", str(value))
        if outcome.verdict is not None:
            file.add_global_property(f"{PREFIX}worse", str(len(outcome.verdict.worse)))
            file.add_global_property(f"{PREFIX}better", str(len(outcome.verdict.better)))
        if outcome.broken:
            file.add_global_property(f"{PREFIX}broken", one_line(outcome.broken))

    def _file(self) -> Any:
        """Return the plugin that `record_testsuite_property` uses; `None` without one."""
        plugins = self._config.pluginmanager.get_plugins()
        return next((plugin for plugin in plugins if hasattr(plugin, "add_global_property")), None)


def properties(facts: TestFacts) -> list[tuple[str, object]]:
    """Return the properties of a test: its counts and the description of each cause."""
    causes = [("cause", one_line(describe(cause))) for cause in facts.causes]
    return [(f"{PREFIX}{name}", value) for name, value in (*totals([facts]).items(), *causes)]
