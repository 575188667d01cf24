"""The audit where torch is too old, or not installed: nothing can be watched."""

from __future__ import annotations

import pytest


def refuse(config: pytest.Config, reason: str) -> None:
    """Say in the section `torchgraph audit` that nothing was watched.

    Args:
        config: of this run.
        reason: why torch is not supported.

    Raises:
        pytest.UsageError: where more was asked for than to show.
    """
    mode = config.option.torchgraph_audit
    if mode != "show":
        raise pytest.UsageError(f"--torchgraph-audit={mode}: {reason}")
    config.pluginmanager.register(_NothingWatched(reason), "torchgraph-audit")


class _NothingWatched:
    """Prints the section, in the process that reports."""

    def __init__(self, reason: str) -> None:
        self._reason = reason

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        """Print the section `torchgraph audit`."""
        terminalreporter.section("torchgraph audit")
        terminalreporter.line(f"nothing was watched: {self._reason}")
