"""Stored graphs that no test compares any more: which they are, and when they may be removed.

Only the process that reports knows enough: with pytest-xdist the controller, to which every report
brings the files that its test compared. A file is stale if its test file ran, completely and
green, and nothing compared it; or if the test file is gone. Whenever anything is missing that could
have compared it, it is kept, and the reason is said.
"""

from __future__ import annotations

import re
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from ..devices import KNOWN
from .files import TEMPORARY
from .names import SUFFIX

DIRECTORY = "__snapshots__"
FILTERS = {
    "keyword": "-k",
    "markexpr": "-m",
    "deselect": "--deselect",
    "lf": "--last-failed",
    "last_failed": "--last-failed",
    "stepwise": "--stepwise",
    "collectonly": "--collect-only",
}
LEFT_OVER = 3600.0
"""Seconds after which a file that was being written belongs to a process that is gone."""

_LEFT_OUT = "torchgraph_left_out"
_PARAMETERS = re.compile(r"\[([^\[\]]*)\]")
_WORD = re.compile(r"[a-z]+")


@dataclass
class Stale:
    """What a run found.

    Attributes:
        files: the stale ones, in order.
        reason: why they may not be removed, "" if they may.
        kept: why the files of some test files were not judged, by test file.
        concerns_us: whether there is anything to say.
    """

    files: list[Path] = field(default_factory=list)
    reason: str = ""
    kept: dict[str, str] = field(default_factory=dict)
    concerns_us: bool = False


class Tracker:
    """A plugin that follows a run: what ran, what it compared, what was left out."""

    def __init__(self, config: pytest.Config):
        self.config = config
        self.compared: set[Path] = set()
        self.ran: set[str] = set()
        self.kept: dict[str, str] = {}
        self.problem = ""

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """One phase of one test."""
        file = report.nodeid.partition("::")[0]
        self.ran.add(file)
        self.compared.update(map(Path, getattr(report, "torchgraph_compared", ())))
        if report.failed:
            self.left_out(f"{report.nodeid} failed")
        elif report.skipped:
            what = "did not pass, as expected" if hasattr(report, "wasxfail") else "was skipped"
            self.kept.setdefault(file, f"{report.nodeid} {what}")

    def pytest_collectreport(self, report: pytest.CollectReport) -> None:
        """One file, which may not have been collected."""
        if report.failed:
            self.left_out(f"{report.nodeid} could not be collected")
        elif report.skipped:
            file = report.nodeid.partition("::")[0]
            self.ran.add(file)
            self.kept.setdefault(file, f"{file} was skipped when it was imported")

    def pytest_keyboard_interrupt(self) -> None:
        """The run was broken off, also by `pytest.exit`, which may say that all is well."""
        self.left_out("the run was interrupted")

    def pytest_deselected(self, items: Sequence[pytest.Item]) -> None:
        """Tests that do not run."""
        if items:
            self.left_out(f"{items[0].nodeid} was deselected")

    @pytest.hookimpl(optionalhook=True)
    def pytest_testnodedown(self, node: object) -> None:
        """A worker of pytest-xdist ended."""
        output = getattr(node, "workeroutput", None)
        if output is None:
            self.left_out("a worker of pytest-xdist was lost")
        elif output.get(_LEFT_OUT):
            self.left_out(output[_LEFT_OUT])

    def pytest_sessionfinish(self, session: pytest.Session) -> None:
        """In a worker of pytest-xdist: tell the controller."""
        output = getattr(session.config, "workeroutput", None)
        if output is not None:
            output[_LEFT_OUT] = self.problem

    def left_out(self, what: str) -> None:
        """Not everything ran."""
        self.problem = self.problem or what

    def judge(self, exitstatus: int) -> Stale:
        """What is stale after the run."""
        stale = Stale(reason=self._reason(exitstatus), kept=dict(self.kept))
        words = {word for path in self.compared for word in _devices_in(path.stem)}
        prune = bool(self.config.option.torchgraph_prune)
        stale.concerns_us = prune
        if stale.reason:
            return stale
        for path in self._candidates():
            if path in self.compared or _devices_in(path.stem) - words:
                continue
            stale.files.append(path)
        stale.concerns_us = prune or bool(stale.files)
        return stale

    def _reason(self, exitstatus: int) -> str:
        if hasattr(self.config, "workerinput"):  # its terminal summary is called as well
            return "a worker of pytest-xdist does not know what the others compared"
        option = self.config.option
        for name, shown in FILTERS.items():
            if getattr(option, name, None):
                return f"{shown} was given, so not all tests ran"
        for argument in self.config.invocation_params.args:
            path = str(argument).partition("::")[0]
            if "::" in str(argument) or (path.endswith(".py") and not path.startswith("-")):
                return f"only {argument} was run"
        if self.problem:
            return self.problem
        if exitstatus != pytest.ExitCode.OK:
            return f"the run ended with exit status {int(exitstatus)}"
        return ""

    def _candidates(self) -> Iterator[Path]:
        root = self.config.rootpath
        homes = {(root / file).parent for file in self.ran}
        for file in sorted(self.ran - self.kept.keys()):
            path = root / file
            yield from sorted((path.parent / DIRECTORY / path.stem).glob(f"*.{SUFFIX}"))
        for home in sorted(homes):
            for directory in sorted((home / DIRECTORY).glob("*")):
                if directory.is_dir() and not (home / f"{directory.name}.py").exists():
                    yield from sorted(directory.glob(f"*.{SUFFIX}"))


def _devices_in(stem: str) -> set[str]:
    """The accelerators that the parameters in a file's name speak of.

    Where none of them took part in the run, the file is of a machine that has it.
    """
    words = {
        word
        for parameters in _PARAMETERS.findall(stem)
        for word in _WORD.findall(parameters.lower())
    }
    return words & ({*KNOWN, "gpu", "rocm"} - {"cpu"})


def remove(stale: Stale) -> Iterator[tuple[Path, str]]:
    """Remove the files, and what writing left over beside them; each with what went wrong."""
    for directory in sorted({path.parent for path in stale.files}):
        for temporary in directory.glob(f".*.{TEMPORARY}"):
            if time.time() - temporary.stat().st_mtime > LEFT_OVER:
                temporary.unlink(missing_ok=True)
    for path in stale.files:
        try:
            path.unlink()
        except OSError as error:
            yield path, error.strerror or str(error)
            continue
        yield path, ""
        if not any(path.parent.iterdir()):
            path.parent.rmdir()
