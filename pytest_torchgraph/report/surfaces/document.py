"""An audit as plain data, and the JSON file of a run: `--torchgraph-json=FILE`.

Every path is relative to pytest's rootdir, as in `TestFacts`.

The document always has all of these keys. The version number changes if a key is removed or changes
its meaning. New keys may be added at any time.

    torchgraph-run   version of this format: 1
    plugin, torch, python, pytest
                     versions; torch is null if not installed
    exit_status      exit status of pytest
    audit            compilation facts of the tests:
      mode             "show", "record" or "check"; null without --torchgraph-audit
      broken           why watching the run failed, so that the audit is incomplete; else null
      isolated         true if Dynamo was reset before each test
      totals           tests: tests run; using: tests that use torch.compile; nothing: tests among
                       these that compile nothing; calls: calls of compiled callables; eager_calls:
                       calls among these that ran no compiled code; graphs, ops, backwards,
                       graph_breaks, recompiles, cache_bypasses, compile_seconds
      causes           sorted by number of tests, descending, each with
        kind             "break", "recompile", "limit", "bypass", "eager" or "nothing"
        file, line, function
                         location; if the cause has none, the code that its first test calls; if
                         that is unknown, "" and 0
        text, code       the reason, and the source line of a graph break or a refused op
        guard, guard_place
                         for a recompile, the change (`self.calls: was 0, is 1`), and
                         `file:line function` of the code that created the guard, as in the cause's
                         first test; else ""
        keys             ids of the cause, the same in every run, test and checkout; several if
                         code in several places compiles nothing for the same reason
        places           all locations, each: file, line, function
        words            one-line summary of the above
        times            number of occurrences
        without_graph    number of its tests that compile nothing
        tests            ids of its tests, sorted
      functions        compiled functions, the slowest first, each: file, line, function, tests
                       (number of tests that compile it), seconds
      settings_left    torch settings that a test changed and did not restore, each: name, before,
                       after (texts), test (the first test that changed it)
      tests            tests that call compiled code, keyed by id:
        passed           true if it passed or failed as expected
        causes           keys of its causes
        calls, eager_calls, graphs, backwards, ops, seconds, compiles, frames, frame_seconds,
        callables, backends, shared, nested
                         compilation facts, see `TestFacts`
        functions        compiled functions that it used, named as in the baseline
      baseline         null except in the modes record and check:
        file             path of the baseline
        said             lines about the baseline in the terminal
        compared         number of its tests that were compared
        compared_functions
                         number of its functions that were compared over the run
        verdict          null if nothing was compared, else worse and better (lists of text, file,
                         line, function, tests), new and gone (ids) and renamed (old, new)
    comparisons      failed graph comparisons: a list of causes, sorted by number of tests,
                     descending, each: sign, what, where, places, cost (flops and saved_bytes over
                     all tests, after minus before, null if unknown), sources, before, after, tests
"""

from __future__ import annotations

import json
import platform
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from ... import __version__
from ...audit.facts import CodePlace, TestFacts
from ...audit.judge import AuditChange, Verdict
from ...audit.session import outcome_of
from ...audit.summary import CauseOverTests, causes_over_tests, frames_over_tests, totals
from ...audit.verdict import AuditOutcome
from ...files import write
from ...snapshot.summary import brief
from ...torch_release import torch_version
from ...words import grouped, one_line
from ..causes import PLUGIN as FAILED_COMPARISONS
from ..causes import FailedComparisons

Data = dict[str, Any]
"""JSON-serializable data."""


class ChangeOverTests(NamedTuple):
    """A change that several tests share."""

    text: str
    place: CodePlace
    tests: tuple[str, ...]


def changes_over_tests(changes: Iterable[AuditChange]) -> list[ChangeOverTests]:
    """Merge equal changes of all tests, sorted by number of tests, descending."""
    groups = grouped(((change.text, change.place), change.test) for change in changes)
    shared_changes = [ChangeOverTests(*key, tuple(sorted(tests))) for key, tests in groups.items()]
    return sorted(
        shared_changes, key=lambda change: (-len(change.tests), change.text, change.place)
    )


def suite_totals(outcome: AuditOutcome) -> Data:
    """Return the totals of a run."""
    counts = {"tests": outcome.tests, "using": len(outcome.facts)}
    return {**counts, **totals(outcome.facts.values())}


def audit_document(outcome: AuditOutcome) -> Data:
    """Return an audit as plain data; the module docstring lists the keys."""
    return {
        "mode": outcome.mode or None,
        "broken": outcome.broken or None,
        "isolated": outcome.isolated,
        "totals": suite_totals(outcome),
        "causes": [_cause(shared_cause) for shared_cause in causes_over_tests(outcome.facts)],
        "functions": _functions(outcome.facts),
        "settings_left": [setting._asdict() for setting in outcome.settings],
        "tests": {test: _test(outcome, test) for test in sorted(outcome.facts)},
        "baseline": _baseline(outcome),
    }


def _cause(shared_cause: CauseOverTests) -> Data:
    """Return one of `causes`; the module docstring lists the keys of this and the other parts."""
    cause = shared_cause.cause
    places = {facts.place_of(own_cause) for _, facts, own_cause in shared_cause.records}
    return {
        "kind": cause.kind,
        **shared_cause.place._asdict(),
        "text": cause.text,
        "code": cause.code,
        "guard": cause.guard,
        "guard_place": cause.guard_place,
        "keys": sorted({own_cause.key for _, _, own_cause in shared_cause.records}),
        "places": [place._asdict() for place in sorted(places) if place.file],
        "words": shared_cause.text,
        "times": shared_cause.times,
        "without_graph": shared_cause.without_graph,
        "tests": sorted(shared_cause.tests),
    }


def _test(outcome: AuditOutcome, test: str) -> Data:
    facts = outcome.facts[test]
    data = facts.to_json()
    data["causes"] = [cause.key for cause in facts.causes]
    data["functions"] = [function.key for function in facts.functions]
    return {"passed": test in outcome.passed, **data}


def _functions(facts: Mapping[str, TestFacts]) -> list[Data]:
    """Return the compiled functions, the slowest first."""
    tests, seconds = frames_over_tests(facts)
    return [
        {
            **CodePlace.parse(frame)._asdict(),
            "tests": tests[frame],
            "seconds": round(seconds[frame], 6),
        }
        for frame in sorted(tests, key=lambda frame: (-seconds[frame], frame))
    ]


def _baseline(outcome: AuditOutcome) -> Data | None:
    if outcome.mode not in ("record", "check"):
        return None
    verdict = outcome.verdict
    compared = (verdict or Verdict()).compared
    return {
        "file": outcome.file,
        "said": list(outcome.said),
        "compared": compared.tests,
        "compared_functions": compared.functions,
        "verdict": _verdict(verdict) if verdict is not None else None,
    }


def _verdict(verdict: Verdict) -> Data:
    return {
        "worse": [_change(change) for change in changes_over_tests(verdict.worse)],
        "better": [_change(change) for change in changes_over_tests(verdict.better)],
        "new": sorted(verdict.new),
        "gone": sorted(verdict.gone),
        "renamed": [list(pair) for pair in sorted(verdict.renamed)],
    }


def _change(change: ChangeOverTests) -> Data:
    return {"text": change.text, **change.place._asdict(), "tests": list(change.tests)}


VERSION = 1


class RunJson:
    """Plugin of the reporting process that writes the JSON file at the end of the run."""

    def __init__(self, config: pytest.Config, path: Path) -> None:
        self._config = config
        self._path = path
        self._problem = ""

    @pytest.hookimpl(trylast=True)
    def pytest_sessionfinish(self, session: pytest.Session) -> None:
        """Write the file. An error is reported in the summary and changes no outcome."""
        try:
            outcome = outcome_of(self._config)
            assert outcome is not None
            data = run_document(outcome, int(session.exitstatus))
            data["comparisons"] = _comparisons(self._config)
            write(self._path, json.dumps(data, indent=1) + "\n")
        except Exception as error:
            self._problem = brief(error)

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        """Print the path of the file, or the error that prevented writing it."""
        failed = self._problem and f"the JSON of this run was not written: {self._problem}"
        line = f"torchgraph: {failed or f'JSON of this run in {self._path}'}"
        terminalreporter.write_line(one_line(line), red=bool(failed))


def run_document(outcome: AuditOutcome, exit_status: int) -> Data:
    """Return the document with an empty list of comparisons."""
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
    """Return the causes of failed comparisons, with tests where a finding has files."""
    failed: FailedComparisons | None = config.pluginmanager.get_plugin(FAILED_COMPARISONS)
    if failed is None:
        return []
    causes = [cause.to_json() for cause in failed.every_cause]
    return [{**cause, "tests": sorted(cause.pop("files"))} for cause in causes]
