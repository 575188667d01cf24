"""What a test has to tell the page, put into its reports by the process that runs it."""

from __future__ import annotations

import sys
from collections.abc import Generator
from typing import TYPE_CHECKING

import pytest

from ...api.listeners import subscribed
from ...snapshot.changes import brief
from .collect import Data, capture_data
from .session import ATTRIBUTE

if TYPE_CHECKING:
    from ...api.result import Capture

DIFFERENCES = pytest.StashKey[list[Data]]()
PICTURES = pytest.StashKey[list[Data]]()
"""What a failed test has to show; emptied into its report."""


class Gatherer:
    """A plugin that keeps the captures of the running test until they are in its report."""

    def __init__(self) -> None:
        self.captures: list[Capture] = []

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_protocol(self) -> Generator[None, object, object]:
        """Listen while a test runs, with the fixtures of its class and module."""
        with subscribed(self._made):
            try:
                return (yield)
            finally:
                self.captures.clear()

    def _made(self, capture: Capture) -> None:
        if not any(each is capture for each in self.captures):
            self.captures.append(capture)

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_runtest_makereport(
        self, item: pytest.Item
    ) -> Generator[None, pytest.TestReport, pytest.TestReport]:
        """Put into the report, as plain data, what there is by now."""
        report = yield
        told: Data = {
            "differences": item.stash.get(DIFFERENCES, []),
            "pictures": item.stash.get(PICTURES, []),
        }
        if report.when != "setup":
            told["captures"] = [_data(each) for each in self.captures]
            self.captures.clear()
        for key in (DIFFERENCES, PICTURES):
            if key in item.stash:
                del item.stash[key]
        if any(told.values()) or getattr(report, "torchgraph_compared", None):
            torch = sys.modules.get("torch")
            told["torch"] = str(getattr(torch, "__version__", ""))
            vars(report)[ATTRIBUTE] = told
        return report


def _data(capture: Capture) -> Data:
    """What the page tells of a capture. What goes wrong there is told, and changes no outcome."""
    try:
        return capture_data(capture)
    except Exception as error:
        note = f"cannot be shown: {brief(error)}"
        return {"via": capture.via, "note": note, "graphs": [], "breaks": [], "recompiles": []}
