"""Puts the page's data of a test into its reports, in the process that runs the test."""

from __future__ import annotations

import sys
from collections.abc import Generator, Sequence
from typing import TYPE_CHECKING, cast

import pytest

from ...api.listeners import subscribed
from ...snapshot import RECORD, REPORTED
from ...snapshot.changes import brief
from .collect import Data, capture_data
from .parts import Parts
from .session import ATTRIBUTE

if TYPE_CHECKING:
    from ...api.result import Capture
    from ...ranks.ranks import Ranks

PICTURES = pytest.StashKey[list[Data]]()
"""The data of the picture of a test's failed check, moved into the report of the phase."""


class Gatherer:
    """A plugin that keeps the captures of the running test until they are in its report.

    Attributes:
        captures: the captures of the test, each once.
        ranks: those that are captures of ranks, together.
        sent: the digests of the parts that reports have brought: equal graphs are sent once.
    """

    def __init__(self) -> None:
        self.captures: list[Capture] = []
        self.ranks: list[Ranks] = []
        self.sent: set[str] = set()

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_protocol(self) -> Generator[None, object, object]:
        """Listen while a test runs, with the fixtures of its class and module."""
        with subscribed(self._keep):
            try:
                return (yield)
            finally:
                self._forget()

    def _keep(self, made: Capture | Sequence[Capture]) -> None:
        if isinstance(made, Sequence):
            each_of = {id(each) for each in made}
            self.captures = [each for each in self.captures if id(each) not in each_of]
            self.ranks.append(cast("Ranks", made))
        elif not any(each is made for each in self.captures):
            self.captures.append(made)

    def _new(self, parts: Parts) -> Data:
        """The parts that no earlier report of this process has."""
        new = {key: text for key, text in parts.texts.items() if key not in self.sent}
        self.sent |= new.keys()
        return new

    def _forget(self) -> None:
        self.captures.clear()
        self.ranks.clear()

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_runtest_makereport(
        self, item: pytest.Item
    ) -> Generator[None, pytest.TestReport, pytest.TestReport]:
        """Put the data that there are by now into the report of a phase."""
        report = yield
        data: Data = {
            "differences": item.stash[RECORD].shown if RECORD in item.stash else [],
            "pictures": item.stash.get(PICTURES, []),
        }
        if report.when != "setup":
            parts = Parts()
            data["captures"] = [_data(capture, parts) for capture in self.captures]
            data["ranks"] = [_ranks_data(ranks, parts) for ranks in self.ranks]
            data["parts"] = self._new(parts)
            self._forget()
        item.stash[PICTURES] = []
        if RECORD in item.stash:
            item.stash[RECORD].shown = []
        if any(data.values()) or hasattr(report, REPORTED):
            torch = sys.modules.get("torch")
            data["torch"] = str(getattr(torch, "__version__", ""))
            vars(report)[ATTRIBUTE] = data
        return report


def _data(capture: Capture, parts: Parts) -> Data:
    """The data of a capture, or a note of what went wrong: that must change no outcome."""
    try:
        return capture_data(capture, parts)
    except Exception as error:
        note = f"cannot be shown: {brief(error)}"
        return {"via": capture.via, "note": note, "graphs": [], "breaks": [], "recompiles": []}


def _ranks_data(ranks: Ranks, parts: Parts) -> Data:
    """The data of ranks, or a note as for a capture."""
    from .ranks import ranks_data

    try:
        return ranks_data(ranks, parts)
    except Exception as error:
        return {"note": f"{ranks!r} cannot be shown: {brief(error)}", "classes": []}
