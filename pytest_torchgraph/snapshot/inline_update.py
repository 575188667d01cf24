"""Writing the texts of `assert_graph_text` during `--torchgraph-update`.

Tests note what is to be written; their reports bring it to the process that reports, which writes
each file once, at the end. Workers of pytest-xdist write nothing.
"""

from __future__ import annotations

import hashlib
from collections.abc import Generator, Iterator
from pathlib import Path
from typing import Any

import pytest

from ..errors import OutsideRootError, TorchGraphError
from ..words import counted
from .files import read_bytes, write_text
from .inline import UPDATES, joined
from .literals import Edit, applied
from .run import RunRecord

PLUGIN = "torchgraph-texts"
_REPORTED = "torchgraph_texts"
"""Attribute of a report with what its test notes."""


class TextUpdates:
    """A plugin of pytest that collects the texts to write, and writes them."""

    def __init__(self, config: pytest.Config) -> None:
        self.config = config
        self._running: list[dict[str, Any]] = []
        self._noted: list[dict[str, Any]] = []
        UPDATES.append(self._running)

    def pytest_unconfigure(self) -> None:
        """End the update: `assert_graph_text` compares again."""
        UPDATES[:] = [noted for noted in UPDATES if noted is not self._running]

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_makereport(self) -> Generator[None, pytest.TestReport, pytest.TestReport]:
        """Move what a phase noted into its report."""
        report = yield
        vars(report)[_REPORTED] = [*self._running]
        self._running.clear()
        return report

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Collect what a test noted."""
        self._noted += getattr(report, _REPORTED, ())

    def write(self, run: RunRecord) -> None:
        """Write the files; the record of the run gets what became of each."""
        run.comparing.update(note["path"] for note in self._noted)
        for path, notes, refused in joined(self._noted):
            how, what = "updated", refused or self._written(path, notes)
            if refused or what:
                how = "refused"
                run.end_with_trouble()
            else:
                where = ", ".join(str(note["line"]) for note in notes)
                lines = "line" if len(notes) == 1 else "lines"
                what = f"{counted(len(notes), 'text')} in {lines} {where}"
            run.stored.append((how, str(path), what))

    def _written(self, path: Path, notes: list[dict[str, Any]]) -> str:
        """Write one file; return the reason if that is refused, else ""."""
        try:
            data = read_bytes(path)
            if any(note["digest"] != hashlib.sha256(data).hexdigest() for note in notes):
                return "the file changed while the tests ran: run again"
            text = applied(data.decode(), (Edit(*note["edit"]) for note in notes))
            # A text that is no Python would lose the user's file.
            compile(text.removeprefix("\ufeff"), str(path), "exec", dont_inherit=True)
            write_text(path, text, root=self.config.rootpath)
        except OutsideRootError as error:
            return error.reason
        except (OSError, TorchGraphError, SyntaxError, UnicodeError) as error:
            return str(error)
        return ""


def texts_of(config: pytest.Config) -> Iterator[TextUpdates]:
    """Yield the plugin of a run that updates."""
    plugin = config.pluginmanager.getplugin(PLUGIN)
    if plugin is not None:
        yield plugin
