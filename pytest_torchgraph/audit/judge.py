"""Comparison of an audited run with its baseline: regressions and improvements.

A fact is compared only if it does not depend on test order, because people disable a check that
raises false alarms.

    compiled functions   over the whole run: ops of their graphs, backend, backward
    every test           causes that appear nowhere in the baseline; its compiled callables
    a test that shares   nothing else, because test order decides which test compiles shared code
    all other tests      counts of causes, ops and backward graphs; backends
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Set
from dataclasses import dataclass, field
from typing import NamedTuple

from .baseline import Entry, Function, ReleaseSection, functions_of
from .facts import Cause, CodePlace, TestFacts
from .summary import describe


class AuditChange(NamedTuple):
    """A difference from the baseline in one test.

    Attributes:
        test: the id of the test.
        text: the difference, with the same words in every test that has it.
        place: for a recompile, the line that created the guard. Otherwise the location of the
            cause or, if unknown, the code that the test calls or compiles first.
    """

    test: str
    text: str
    place: CodePlace = CodePlace()


@dataclass(frozen=True, slots=True)
class ComparedCounts:
    """Number of tests and functions compared with the baseline, by kind of comparison.

    Attributes:
        whole: tests compared by every count.
        shared: tests that share compiled code, compared only by calls and new causes.
        functions: compiled functions, compared over all tests.
    """

    whole: int = 0
    shared: int = 0
    functions: int = 0

    @property
    def tests(self) -> int:
        """Number of all tests compared."""
        return self.whole + self.shared


@dataclass
class Verdict:
    """All differences between a run and the baseline.

    Attributes:
        worse, better: the regressions and the improvements.
        new: the tests that call compiled code and are missing from the baseline.
        gone: the tests of the baseline that did not run.
        renamed: (old id, new id) of tests that were probably renamed: the old test is gone, the new
            test is not in the baseline, and both compile the same code.
        vacuous: True if the run should include tests of the baseline, but compared none.
        compared: the number of tests and functions compared.
    """

    worse: list[AuditChange] = field(default_factory=list)
    better: list[AuditChange] = field(default_factory=list)
    new: list[str] = field(default_factory=list)
    gone: list[str] = field(default_factory=list)
    renamed: list[tuple[str, str]] = field(default_factory=list)
    vacuous: bool = False
    compared: ComparedCounts = ComparedCounts()


class BaselineComparison:
    """A run and its baseline.

    Args:
        before: the baseline of the running release.
        facts: the facts of each test that calls compiled code.
        passed: the ids of the tests that passed, or failed as expected. Only these are compared.
        missing: the tests of the baseline that no longer exist and may have been renamed; `None`
            treats every test that did not run as missing.
    """

    def __init__(
        self,
        before: ReleaseSection,
        facts: Mapping[str, TestFacts],
        passed: Set[str],
        missing: Set[str] | None = None,
    ) -> None:
        self._before = before
        self._facts = facts
        self._passed = passed
        self._missing = before.tests.keys() if missing is None else missing
        # Keys of the causes of any test, in the baseline and in this run.
        self._known = {key for entry in before.tests.values() for key in entry.causes}
        self._seen = {cause.key for test in facts.values() for cause in test.causes}

    def verdict(self, places: Mapping[str, str] | None = None) -> Verdict:
        """Return all differences.

        Args:
            places: the location of each test, as `file:line name`, for a test that no longer calls
                compiled code.
        """
        verdict = Verdict()
        before, facts = self._before.tests, self._facts
        worse = self._lost_calls()
        better: dict[str, list[AuditChange]] = {}
        functions = self._compare_functions(worse, better)
        for test in sorted(self._passed):
            old, current = before.get(test), facts.get(test)
            changes = worse.get(test, [])
            if old is None and current is not None:
                verdict.new.append(test)
                changes = self._new_causes(test)
            elif old is not None and current is not None:
                # `_regressions` compares this test's own count of backward graphs.
                if not _counts_may_differ(old, current):
                    changes = [change for change in changes if change.text != NO_BACKWARD]
                changes += self._regressions(test, old, current, changes)
                if not changes:
                    # Removing a graph break also raises the op count: report only the break.
                    own = [*self._improvements(test, old, current)]
                    verdict.better += own or better.get(test, [])
            # The test has no facts now. If it called compiled callables, `_lost_calls` has decided.
            # If it shared compiled code, test order decides which test has the facts.
            elif old is not None and (changes or not (old.shared or old.calls)):
                place = CodePlace.parse((places or {}).get(test, ""))
                changes = [AuditChange(test, "no longer uses torch.compile", place)]
            verdict.worse += changes
        compared = before.keys() & self._passed
        used = compared & facts.keys()
        sharing = sum(_counts_may_differ(before[test], facts[test]) for test in used)
        verdict.compared = ComparedCounts(len(compared) - sharing, sharing, functions)
        verdict.gone = sorted(before.keys() - self._passed - facts.keys())
        candidates = [test for test in verdict.gone if test in self._missing]
        _pair_renamed(verdict, self._before, facts, candidates)
        return verdict

    def recorded(self) -> ReleaseSection:
        """Return the section to record: new entries of tests that passed, and all other entries.

        A test keeps its entry if test order explains every difference. The old id of a renamed test
        is removed.
        """
        tests = dict(self._before.tests)
        for old_id, _ in self.verdict().renamed:
            del tests[old_id]
        for test in self._passed:
            old, facts = tests.get(test), self._facts.get(test)
            if old and facts and _counts_may_differ(old, facts):
                is_known = all(cause.key in self._known for cause in facts.causes)
                if is_known and not any(self._improvements(test, old, facts)):
                    continue
            tests.pop(test, None)
            if facts:
                tests[test] = Entry.of(facts)
        current = functions_of(f for test, f in self._facts.items() if test in self._passed)
        functions = merged_functions(self._before, current)
        # If all tests of the baseline passed, a function that is not in this run is unused.
        if self._before.tests.keys() - self._missing <= self._passed:
            functions = {key: function for key, function in functions.items() if key in current}
        return ReleaseSection(tests, functions)

    def _lost_calls(self) -> dict[str, list[AuditChange]]:
        """Return, by test, the compiled callables of the baseline that the test no longer calls.

        A callable is not lost if the test calls another one instead, or if the call moved to
        another test: if tests share a cached result, only the first of them makes the call.
        """
        before, nothing = self._before.tests, TestFacts()
        compared = [test for test in self._passed if test in before]
        calls = {test: {*self._facts.get(test, nothing).called} for test in compared}
        # Callers of each callable now, minus those in the baseline, over the compared tests.
        callers = Counter(key for keys in calls.values() for key in keys)
        callers.subtract(key for test in compared for key in before[test].calls)
        lost: dict[str, list[AuditChange]] = {}
        for test in compared:
            old = before[test].calls
            if len(calls[test]) >= len(old):  # it calls others instead
                continue
            for key in sorted({*old} - calls[test]):
                # With fewer callers over the whole run, no other test makes this call instead.
                if callers[key] < 0:
                    file, _, name = key.partition(" | ")
                    text = f"no longer compiled, or no longer called: {name} in {file}"
                    lost.setdefault(test, []).append(AuditChange(test, text))
        return lost

    def _compare_functions(
        self, worse: dict[str, list[AuditChange]], better: dict[str, list[AuditChange]]
    ) -> int:
        """Compare compiled functions over the run, and return their number.

        A function is skipped if one of its tests has a new cause, because the cause explains every
        other difference in the function.

        Args:
            worse, better: take the changes, by the tests that use the functions.
        """
        functions = functions_of(self._facts.values())
        compared = sorted(self._before.functions.keys() & functions.keys())
        for key in compared:
            users = {
                test: function.place
                for test, facts in self._facts.items()
                for function in facts.functions
                if function.key == key and test in self._passed
            }
            if any(map(self._new_causes, users)):
                continue
            # A function that no test called itself, such as one after a graph break, may belong to
            # any test: then it is unknown if all ran.
            callers = {test for test, entry in self._before.tests.items() if key in entry.calls}
            all_ran = bool(callers) and callers <= self._passed
            old = self._before.functions[key]
            texts = _function_changes(old, functions[key], all_ran=all_ran)
            for changes, text in zip((worse, better), texts, strict=True):
                for test, place in users.items() if text else ():
                    changes.setdefault(test, []).append(AuditChange(test, text, place))
        return len(compared)

    def _new_causes(self, test: str) -> list[AuditChange]:
        """Return the causes of a test that appear nowhere in the baseline.

        A cause recorded for one test is tolerated in new tests, and in tests that share compiled
        code.
        """
        facts = self._facts[test]
        return [
            _change_of_cause(test, cause, facts)
            for cause in facts.causes
            if cause.key not in self._known and not cause.shared
        ]

    def _regressions(
        self, test: str, old: Entry, facts: TestFacts, reported: Collection[AuditChange]
    ) -> list[AuditChange]:
        """Return the regressions of a test, without their consequences.

        Args:
            test: the id of the test.
            old: the entry of the test in the baseline.
            facts: the facts of the test in this run.
            reported: the regressions already reported for the functions that the test uses.
        """
        regressions = self._new_causes(test)
        if _counts_may_differ(old, facts):
            return regressions
        current, place = Entry.of(facts), facts.place_of(None)
        if old.compiles and not current.compiles:
            if regressions or reported:
                return regressions
            nothing_causes = [cause for cause in facts.causes if cause.kind == "nothing"]
            regressions = [_change_of_cause(test, cause, facts) for cause in nothing_causes]
            return regressions or [AuditChange(test, "compiles nothing", place)]
        if current.backends != old.backends:
            text = f"backend changed: {_names(old.backends)} -> {_names(current.backends)}"
            if text not in {change.text for change in reported}:
                regressions.append(AuditChange(test, text, place))
        for cause in facts.causes:
            # Without an entry, the cause is new and already reported, or other tests have it: then
            # any count is more than 0. A test that compiled nothing may compile nothing for another
            # reason: then no count is.
            counted = cause.key in self._known and cause.kind != "nothing"
            recorded = old.causes.get(cause.key, 0 if counted else cause.count)
            if cause.count > recorded:
                times = f", {recorded} -> {cause.count} times"
                regressions.append(_change_of_cause(test, cause, facts, times))
        text = ""
        if current.backwards < old.backwards:
            text = f"fewer backward graphs ran: {old.backwards} -> {current.backwards}"
        # Every recompile counts its ops again, so fewer recompiles also mean fewer ops.
        elif current.ops < old.ops and _recompiles(current) >= _recompiles(old):
            text = f"fewer ops compiled: {old.ops} -> {current.ops}"
        if text and not regressions and not reported:
            return [AuditChange(test, text, place)]
        return regressions

    def _improvements(self, test: str, old: Entry, facts: TestFacts) -> Iterator[AuditChange]:
        """Yield the improvements of a test.

        For a test whose counts may differ, yield only graph breaks that no test has any more.
        """
        current, may_differ = Entry.of(facts), _counts_may_differ(old, facts)
        for key, times in old.causes.items():
            count = current.causes.get(key, 0)
            if may_differ and (not key.startswith("break |") or key in self._seen):
                continue
            if count < times:
                text = f"{key}: {times} -> {count} times" if count else f"no longer occurs: {key}"
                yield AuditChange(test, text)
        if may_differ:
            return
        if current.compiles and not old.compiles:
            yield AuditChange(test, "compiles graphs now")
        elif current.ops > old.ops:
            yield AuditChange(test, f"more ops compiled: {old.ops} -> {current.ops}")


NO_BACKWARD = "the backward graph no longer runs"


def _function_changes(old: Function, now: Function, *, all_ran: bool) -> tuple[str, str]:
    """Return the regression and the improvement of a function; "" if there is none.

    Args:
        old: the function in the baseline.
        now: the function in this run.
        all_ran: True if every test that calls the function in the baseline ran.
    """
    if old.backends and now.backends and not set(old.backends) & set(now.backends):
        return f"backend changed: {_names(old.backends)} -> {_names(now.backends)}", ""
    # Another `nested_graph_breaks` setting changes op counts.
    if old.nested != now.nested or not now.ops:
        return "", ""
    # Test order may decide which variants of a function are compiled. For example, with 8 rows and
    # then 16, the second graph is dynamic, and a dynamic graph may contain arithmetic on sizes. So
    # a missing op count is a difference only if there is also a new count.
    new, missing = set(now.ops) - set(old.ops), set(old.ops) - set(now.ops)
    counts = " -> ".join(", ".join(map(str, ops)) for ops in (old.ops, now.ops))
    if new and missing and min(new) < max(missing):
        return f"fewer ops compiled: {counts}", ""
    # A test that did not run may be the one that runs the backward.
    if old.backward and not now.backward and all_ran:
        return NO_BACKWARD, ""
    if new and missing:
        return "", f"more ops compiled: {counts}"
    return "", ""


def merged_functions(before: ReleaseSection, now: Mapping[str, Function]) -> dict[str, Function]:
    """Return the functions to record: the baseline's, updated from this run.

    A function that differs only because of test order keeps the variants of the baseline and of
    this run.

    Args:
        before: the baseline.
        now: the functions of this run.
    """
    functions = dict(before.functions)
    for key, function in now.items():
        old = functions.get(key)
        if old is not None and not any(_function_changes(old, function, all_ran=True)):
            function = old | function
        functions[key] = function
    return functions


def _change_of_cause(test: str, cause: Cause, facts: TestFacts, suffix: str = "") -> AuditChange:
    """Return the change that a cause of a test is, with a suffix for its text."""
    guard = CodePlace.parse(cause.guard_place)
    place = guard if guard.file else facts.place_of(cause)
    return AuditChange(test, describe(cause) + suffix, place)


def _counts_may_differ(old: Entry, facts: TestFacts) -> bool:
    """Return True if a test's counts may differ although the code is unchanged.

    The causes are test order and the setting `nested_graph_breaks`.
    """
    return old.shared or facts.shared or old.nested != facts.nested


def _recompiles(entry: Entry) -> int:
    """Return the number of recompiles."""
    return sum(n for key, n in entry.causes.items() if key.startswith(("recompile |", "limit |")))


def _names(backends: tuple[str, ...]) -> str:
    return ", ".join(backends) or "none"


def _pair_renamed(
    verdict: Verdict, before: ReleaseSection, facts: Mapping[str, TestFacts], candidates: list[str]
) -> None:
    """Add to `verdict.renamed` each new test with a missing test that compiled the same code.

    If there are several, prefer a test with the same name in another file or class.

    Args:
        verdict: the verdict with its new tests.
        before: the baseline.
        facts: the facts of the new tests.
        candidates: the missing tests. A paired one is removed, because it has one new name.
    """
    for test in verdict.new:
        entry = Entry.of(facts[test])
        equal_tests = [old for old in candidates if before.tests[old] == entry]
        name = test.rpartition("::")[2]
        equal_tests.sort(key=lambda old: (old.rpartition("::")[2] != name, old))
        if equal_tests:
            candidates.remove(equal_tests[0])
            verdict.renamed.append((equal_tests[0], test))
