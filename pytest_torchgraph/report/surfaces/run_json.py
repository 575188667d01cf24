"""`--torchgraph-json=FILE`: what the tests of a run compiled, for programs.

The document has these keys, always all of them. A number of the version changes where a key changes
its meaning or goes; new keys may come at any time.

    torchgraph-run   the version of this form: 1
    plugin, torch, python, pytest
                     versions; torch is null where it is not installed
    exit_status      of pytest
    audit            what the tests compiled:
      mode             "show", "record" or "check"; null where --torchgraph-audit was not given
      broken           why the run could not be watched, so that what follows is not all; else null
      isolated         whether Dynamo was reset before each test
      totals           tests: how many ran; using: how many of them use torch.compile; nothing:
                       how many of these compile nothing; calls: of compiled callables;
                       eager_calls: how many of these ran no compiled code; graphs, ops, backwards,
                       graph_breaks, recompiles, cache_bypasses, compile_seconds
      causes           those of most tests first. Of each:
        kind             "break", "recompile", "limit", "bypass", "eager" or "nothing"
        file, line, function
                         where; of a cause without a place what its first test calls; else "" and 0
        text, code       the reason, and the line of code of a graph break or a refused op
        guard, guard_place
                         of a recompilation what changed, and `file:line function` of the line that
                         made the guard, as the first of its tests met them; else ""
        keys             what identifies the cause in every run, test and checkout; several where
                         code compiles nothing for the same reason in several places
        places           all places, each: file, line, function
        words            all of that in one line
        times            how often it happened
        without_graph    how many of its tests compile nothing
        tests            their ids, sorted
      functions        what was compiled, the slowest first, each: file, line, function, tests
                       (how many compile it), seconds
      settings_left    settings of torch that tests changed, and that nobody put back, each: name,
                       before, after (texts), test (the first one that left it so)
      tests            by id, each test that calls compiled code:
        passed           whether it passed, or failed as expected
        causes           the keys of its causes
        calls, eager_calls, graphs, backwards, ops, seconds, compiles, frames, frame_seconds,
        callables, backends, shared, nested
                         what it compiled, see `TestFacts`
        functions        the compiled functions that it used, as the baseline names them
      baseline         null without record and check, else:
        file             the baseline
        said             what the terminal says of it
        compared         how many of its tests were compared
        compared_functions
                         how many of its functions were compared over the run
        verdict          null where nothing was compared, else worse and better (lists of text,
                         file, line, function, tests), new and gone (ids) and renamed (old, new)
    comparisons      the failed comparisons of graphs: a list of causes, those of most tests first,
                     each: sign, what, where, places, cost (flops and saved_bytes over all
                     tests, after minus before, null where not known), sources, before, after, tests
"""

from __future__ import annotations

import json
import platform
from pathlib import Path

import pytest

from ... import __version__
from ...audit.outcome import AuditOutcome
from ...audit.report import outcome_of
from ...snapshot.changes import brief
from ...snapshot.files import write_text
from ...torch_release import torch_version
from ..causes import PLUGIN as FAILED_COMPARISONS
from ..causes import FailedComparisons
from .document import Data, audit_document

VERSION = 1


class RunJson:
    """A plugin of the process that reports: it writes the file at the end of the run."""

    def __init__(self, config: pytest.Config, path: Path) -> None:
        self._config = config
        self._path = path
        self._problem = ""

    @pytest.hookimpl(trylast=True)
    def pytest_sessionfinish(self, session: pytest.Session) -> None:
        """Write the file. A failure to do so is reported in the summary, and changes no outcome."""
        try:
            outcome = outcome_of(self._config)
            assert outcome is not None
            data = run_document(outcome, int(session.exitstatus))
            data["comparisons"] = _comparisons(self._config)
            write_text(self._path, json.dumps(data, indent=1) + "\n")
        except Exception as error:
            self._problem = brief(error)

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        """Print the path of the file, or why there is none."""
        if self._problem:
            line = f"torchgraph: the JSON of this run was not written: {self._problem}"
            terminalreporter.write_line(line, red=True)
        else:
            terminalreporter.write_line(f"torchgraph: JSON of this run in {self._path}")


def run_document(outcome: AuditOutcome, exit_status: int) -> Data:
    """The document, but for the comparisons."""
    return {
        "torchgraph-run": VERSION,
        "plugin": __version__,
        "torch": torch_version() or None,
        "python": platform.python_version(),
        "pytest": pytest.__version__,
        "exit_status": exit_status,
        "audit": audit_document(outcome),
        "comparisons": [],
    }


def _comparisons(config: pytest.Config) -> list[Data]:
    failed: FailedComparisons | None = config.pluginmanager.get_plugin(FAILED_COMPARISONS)
    if failed is None:
        return []
    causes = [cause.to_json() for cause in failed.every_cause]
    return [{**each, "tests": sorted(each.pop("files"))} for each in causes]
