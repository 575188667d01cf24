"""An audit on GitHub Actions: annotations in the log, and a summary of the step."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from ...audit.report import outcome_of
from ...snapshot.changes import brief
from .annotations import annotations_of
from .step_summary import append_summary
from .workspace import Workspace


class GitHub:
    """A plugin of the process that reports.

    It reads `GITHUB_WORKSPACE` and `GITHUB_STEP_SUMMARY`, which GitHub sets for each step.
    """

    def __init__(self, config: pytest.Config) -> None:
        self._config = config
        self._workspace = Workspace(config, os.environ)
        self._summary = os.environ.get("GITHUB_STEP_SUMMARY", "")
        self._problem = ""

    @pytest.hookimpl(trylast=True)
    def pytest_sessionfinish(self) -> None:
        """Append to the summary of the step. A failure to do so changes no outcome."""
        outcome = outcome_of(self._config)
        if outcome is None or not self._summary:
            return
        try:
            append_summary(Path(self._summary), outcome, self._workspace)
        except Exception as error:
            self._problem = brief(error)

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        """Print the annotations, each at the start of a line: GitHub sees no other."""
        outcome = outcome_of(self._config)
        if outcome is None:
            return
        for annotation in annotations_of(outcome):
            terminalreporter.write_line(annotation.command(self._workspace))
        if self._problem:
            line = f"torchgraph: the summary of this step was not written: {self._problem}"
            terminalreporter.write_line(line, red=True)
