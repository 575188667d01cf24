"""The audit where torch is too old, or not installed: nothing can be watched."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from .outcome import AuditOutcome


def refuse(config: pytest.Config, reason: str) -> None:
    """Say in the section `torchgraph audit` that nothing was watched.

    Args:
        config: of this run.
        reason: why torch is not supported.

    Raises:
        pytest.UsageError: where more was asked for than to show.
    """
    mode = config.option.torchgraph_audit or ""
    if mode not in ("", "show"):
        raise pytest.UsageError(f"--torchgraph-audit={mode}: {reason}")
    if not hasattr(config, "workerinput"):
        from .report import PLUGIN

        config.pluginmanager.register(_NothingWatched(mode, reason), PLUGIN)


class _NothingWatched:
    """Prints the section, in the process that reports."""

    def __init__(self, mode: str, reason: str) -> None:
        self._mode = mode
        self._reason = reason
        self._tests: set[str] = set()

    @property
    def outcome(self) -> AuditOutcome:
        """That nothing was watched, so that no file of this run says that nothing is compiled."""
        from .outcome import AuditOutcome

        return AuditOutcome(
            mode=self._mode,
            file="",
            isolated=False,
            tests=len(self._tests),
            facts={},
            settings=(),
            passed=(),
            verdict=None,
            compared=0,
            broken=self._reason,
            said=(),
        )

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Count the tests."""
        self._tests.add(report.nodeid)

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        """Print the section `torchgraph audit`."""
        if not self._mode:
            return
        terminalreporter.section("torchgraph audit")
        terminalreporter.line(f"nothing was watched: {self._reason}")
