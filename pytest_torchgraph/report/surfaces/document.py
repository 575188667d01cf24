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
import re
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from ... import __version__
from ...audit.facts import Cause, TestFacts
from ...audit.judge import AuditChange, Verdict
from ...audit.session import outcome_of
from ...audit.summary import CauseOverTests, causes_over_tests, describe, frames_over_tests
from ...audit.verdict import AuditOutcome
from ...files import write
from ...snapshot.summary import brief
from ...torch_release import torch_version
from ...words import grouped, one_line
from ..causes import PLUGIN as FAILED_COMPARISONS
from ..causes import FailedComparisons

Data = dict[str, Any]
"""JSON-serializable data."""

_PLACE = re.compile(r"(.+):(\d+) (.+)")


class CodePlace(NamedTuple):
    """A line of code. `file` is "" if the location is unknown."""

    file: str = ""
    line: int = 0
    function: str = ""

    @classmethod
    def parse(cls, text: str) -> CodePlace:
        """Parse `file:line function`, the format in facts and changes."""
        match = _PLACE.fullmatch(text)
        return cls(match[1], int(match[2]), match[3]) if match else cls()

    @property
    def shown(self) -> str:
        """The location as `file:line in function`, "" if unknown."""
        return f"{self.file}:{self.line} in {self.function}" if self.file else ""


NOWHERE = CodePlace()


def place_of_cause(cause: Cause, facts: TestFacts) -> CodePlace:
    """Return the location of a cause, else of the code that its test calls first."""
    if cause.file:
        return CodePlace(cause.file, cause.line, cause.function)
    return CodePlace.parse((facts.callables or facts.frames or ("",))[0])


def place_of_change(change: AuditChange) -> CodePlace:
    """Return the location of a change.

    For a recompile, this is the line that created the guard. Otherwise it is the location of the
    cause or, if unknown, the code that the test compiles or calls first.
    """
    cause = change.cause
    if cause is not None and (guard := CodePlace.parse(cause.guard_place)).file:
        return guard
    if cause is not None and cause.file:
        return CodePlace(cause.file, cause.line, cause.function)
    return CodePlace.parse(change.place)


class ChangeOverTests(NamedTuple):
    """A change that several tests share."""

    text: str
    place: CodePlace
    tests: tuple[str, ...]


def changes_over_tests(changes: Iterable[AuditChange]) -> list[ChangeOverTests]:
    """Merge equal changes of all tests, sorted by number of tests, descending."""
    groups = grouped(((change.text, place_of_change(change)), change.test) for change in changes)
    shared_changes = [ChangeOverTests(*key, tuple(sorted(tests))) for key, tests in groups.items()]
    return sorted(
        shared_changes, key=lambda change: (-len(change.tests), change.text, change.place)
    )


def count_causes(facts: TestFacts, *kinds: str) -> int:
    """Return how often causes of these kinds occurred."""
    return sum(cause.count for cause in facts.causes if cause.kind in kinds)


def totals(outcome: AuditOutcome) -> Data:
    """Return the totals over all tests."""
    all_facts = outcome.facts.values()
    return {
        "tests": outcome.tests,
        "using": len(outcome.facts),
        "nothing": sum(not facts.compiles for facts in all_facts),
        "calls": sum(facts.calls for facts in all_facts),
        "eager_calls": sum(facts.eager_calls for facts in all_facts),
        "graphs": sum(facts.graphs for facts in all_facts),
        "ops": sum(facts.ops for facts in all_facts),
        "backwards": sum(facts.backwards for facts in all_facts),
        "graph_breaks": sum(count_causes(facts, "break") for facts in all_facts),
        # An attempt that reaches the recompile limit counts as a recompile.
        "recompiles": sum(count_causes(facts, "recompile", "limit") for facts in all_facts),
        "cache_bypasses": sum(count_causes(facts, "bypass") for facts in all_facts),
        "compile_seconds": round(sum(facts.seconds for facts in all_facts), 6),
    }


def audit_document(outcome: AuditOutcome) -> Data:
    """Return an audit as plain data; the module docstring lists the keys."""
    return {
        "mode": outcome.mode or None,
        "broken": outcome.broken or None,
        "isolated": outcome.isolated,
        "totals": totals(outcome),
        "causes": [
            _cause(shared_cause, outcome.facts) for shared_cause in causes_over_tests(outcome.facts)
        ],
        "functions": _functions(outcome.facts),
        "settings_left": [setting._asdict() for setting in outcome.settings],
        "tests": {test: _test(outcome, test) for test in sorted(outcome.facts)},
        "baseline": _baseline(outcome),
    }


def _cause(shared_cause: CauseOverTests, facts: Mapping[str, TestFacts]) -> Data:
    cause = shared_cause.cause
    return {
        "kind": cause.kind,
        **place_of_cause(cause, facts[shared_cause.tests[0]])._asdict(),
        "text": cause.text,
        "code": cause.code,
        "guard": cause.guard,
        "guard_place": cause.guard_place,
        "keys": sorted({own_cause.key for _, own_cause in _records_of_cause(shared_cause, facts)}),
        "places": [place._asdict() for place in places_of(shared_cause, facts)],
        "words": describe_over_tests(shared_cause),
        "times": shared_cause.times,
        "without_graph": shared_cause.tests_without_graph,
        "tests": sorted(shared_cause.tests),
    }


def describe_over_tests(shared_cause: CauseOverTests) -> str:
    """Describe a cause with its first location and the number of further locations."""
    return describe(shared_cause.cause, len(shared_cause.places) - 1)


def places_of(shared_cause: CauseOverTests, facts: Mapping[str, TestFacts]) -> list[CodePlace]:
    """Return the locations of a cause, sorted.

    A cause has several locations if code compiles nothing for the same reason in several places.
    """
    places = {
        place_of_cause(cause, facts[test]) for test, cause in _records_of_cause(shared_cause, facts)
    }
    return sorted(place for place in places if place.file)


def _records_of_cause(
    shared_cause: CauseOverTests, facts: Mapping[str, TestFacts]
) -> Iterator[tuple[str, Cause]]:
    """Yield each test that met a cause, with that test's own record of the cause."""
    for test in shared_cause.tests:
        for cause in facts[test].causes:
            # "nothing" causes with the same reason have one key per location.
            same_reason = (
                cause.kind == shared_cause.cause.kind == "nothing"
                and cause.text == shared_cause.cause.text
            )
            if same_reason or cause.key == shared_cause.cause.key:
                yield test, cause


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
    return {
        "file": outcome.file,
        "said": list(outcome.said),
        "compared": outcome.compared,
        "compared_functions": 0 if verdict is None else verdict.compared.functions,
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
    failed: FailedComparisons | None = config.pluginmanager.get_plugin(FAILED_COMPARISONS)
    if failed is None:
        return []
    causes = [cause.to_json() for cause in failed.every_cause]
    return [{**cause, "tests": sorted(cause.pop("files"))} for cause in causes]
