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
from collections.abc import Collection, Iterator, Mapping
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


def judge(
    before: ReleaseSection,
    facts: Mapping[str, TestFacts],
    passed: Collection[str],
    places: Mapping[str, str] | None = None,
    missing: Collection[str] | None = None,
) -> Verdict:
    """Compare a run with the baseline.

    Args:
        before: the baseline of the running release.
        facts: the facts of each test that calls compiled code.
        passed: the ids of the tests that passed, or failed as expected. Only these are compared.
        places: the location of each test, as `file:line name`, for a test that no longer calls
            compiled code.
        missing: the tests of the baseline that no longer exist and may have been renamed; `None`
            treats every test that did not run as missing.
    """
    places = places or {}
    seen_causes = {cause.key for test_facts in facts.values() for cause in test_facts.causes}
    verdict = Verdict()
    known_causes = {key for entry in before.tests.values() for key in entry.causes}
    lost_calls = _lost_calls(before, facts, passed)
    in_functions = _compare_functions(before, facts, passed, known_causes)
    for test in sorted(passed):
        test_facts = facts.get(test)
        old_entry = before.tests.get(test)
        if old_entry is None and test_facts is not None:
            verdict.new.append(test)
            verdict.worse += _new_causes(test, test_facts, known_causes)
        if old_entry is None:
            continue
        worse = [*lost_calls.get(test, ()), *in_functions.worse.get(test, ())]
        if test_facts is None and (
            lost_calls.get(test) or not (old_entry.shared or old_entry.calls)
        ):
            text = "no longer uses torch.compile"
            worse = [AuditChange(test, text, CodePlace.parse(places.get(test, "")))]
        elif test_facts is not None:
            # `_regressions` compares this test's own count of backward graphs.
            if not _counts_may_differ(old_entry, test_facts):
                worse = [change for change in worse if change.text != NO_BACKWARD]
            worse += _regressions(test, old_entry, test_facts, known_causes, worse)
            if not worse:
                # Removing a graph break also raises the op count, so report only the break.
                better = [*_improvements(test, old_entry, test_facts, seen_causes)]
                verdict.better += better or in_functions.better.get(test, [])
        verdict.worse += worse
    compared = before.tests.keys() & passed
    used = compared & facts.keys()
    sharing = sum(_counts_may_differ(before.tests[test], facts[test]) for test in used)
    verdict.compared = ComparedCounts(len(compared) - sharing, sharing, len(in_functions.compared))
    verdict.gone = sorted(before.tests.keys() - passed - facts.keys())
    candidates = [test for test in verdict.gone if missing is None or test in missing]
    _pair_renamed(verdict, before, facts, candidates)
    return verdict


def _lost_calls(
    before: ReleaseSection, facts: Mapping[str, TestFacts], passed: Collection[str]
) -> dict[str, list[AuditChange]]:
    """Return, by test, the compiled callables of the baseline that the test no longer calls.

    A callable is not lost if the test calls another one instead, or if the call moved to another
    test: if tests share a cached result, only the first of them makes the call.
    """
    compared = [test for test in sorted(passed) if test in before.tests]
    current_calls = {test: set(facts[test].called) if test in facts else set() for test in compared}
    callers_before = Counter(key for test in compared for key in before.tests[test].calls)
    callers = Counter(key for keys in current_calls.values() for key in keys)
    changes: dict[str, list[AuditChange]] = {}
    for test in compared:
        old_calls = set(before.tests[test].calls)
        if len(current_calls[test]) >= len(old_calls):  # it calls others instead
            continue
        for key in sorted(old_calls - current_calls[test]):
            # With fewer callers over the whole run, no other test makes this call instead.
            if callers[key] < callers_before[key]:
                file, _, name = key.partition(" | ")
                text = f"no longer compiled, or no longer called: {name} in {file}"
                changes.setdefault(test, []).append(AuditChange(test, text))
    return changes


@dataclass
class _FunctionDifferences:
    """Differences in compiled functions over the run.

    Attributes:
        compared: the keys of the compared functions.
        worse, better: the regressions and the improvements, by the tests that use the functions.
    """

    compared: set[str] = field(default_factory=set)
    worse: dict[str, list[AuditChange]] = field(default_factory=dict)
    better: dict[str, list[AuditChange]] = field(default_factory=dict)


def _compare_functions(
    before: ReleaseSection,
    facts: Mapping[str, TestFacts],
    passed: Collection[str],
    known_causes: Collection[str],
) -> _FunctionDifferences:
    """Compare compiled functions over the run.

    A function is skipped if one of its tests has a new cause, because the cause explains every
    other difference in the function.
    """
    result = _FunctionDifferences()
    current_functions = functions_of(facts.values())
    for key in sorted(before.functions.keys() & current_functions.keys()):
        result.compared.add(key)
        users = {
            test: function
            for test, test_facts in facts.items()
            for function in test_facts.functions
            if function.key == key and test in passed
        }
        if any(_new_causes(test, facts[test], known_causes) for test in users):
            continue
        callers = [test for test, entry in before.tests.items() if key in entry.calls]
        all_ran = all(test in passed for test in callers) and bool(callers)
        worse, better = _function_changes(
            before.functions[key], current_functions[key], all_ran=all_ran
        )
        for changes, text in ((result.worse, worse), (result.better, better)):
            for test, function in users.items() if text else ():
                changes.setdefault(test, []).append(AuditChange(test, text, function.place))
    return result


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


def is_explained_by_order(
    old: Entry, facts: TestFacts, known_causes: Collection[str], seen_causes: Collection[str]
) -> bool:
    """Return True if test order explains every difference, so `record` keeps the test's line.

    Args:
        old: the test's entry in the baseline.
        facts: the facts of the test in this run.
        known_causes: the keys of all causes in the baseline.
        seen_causes: the keys of all causes in this run.
    """
    if not _counts_may_differ(old, facts) or any(_improvements("", old, facts, seen_causes)):
        return False
    return all(cause.key in known_causes for cause in facts.causes)


def _new_causes(test: str, facts: TestFacts, known_causes: Collection[str]) -> list[AuditChange]:
    """Return the causes that appear nowhere in the baseline.

    A cause recorded for one test is tolerated in new tests, and in tests that share compiled code.
    """
    return [
        _change_of_cause(test, cause, facts)
        for cause in facts.causes
        if cause.key not in known_causes and not cause.shared
    ]


def _change_of_cause(test: str, cause: Cause, facts: TestFacts, suffix: str = "") -> AuditChange:
    guard = CodePlace.parse(cause.guard_place)
    return AuditChange(
        test, describe(cause) + suffix, guard if guard.file else facts.place_of(cause)
    )


def _counts_may_differ(old: Entry, facts: TestFacts) -> bool:
    """Return True if a test's counts may differ although the code is unchanged.

    The causes are test order and the setting `nested_graph_breaks`.
    """
    return old.shared or facts.shared or old.nested != facts.nested


def _regressions(
    test: str,
    old: Entry,
    facts: TestFacts,
    known_causes: Collection[str],
    reported: Collection[AuditChange],
) -> list[AuditChange]:
    """Return the regressions of a test, without their consequences.

    Args:
        test: the id of the test.
        old: the entry of the test in the baseline.
        facts: the facts of the test in this run.
        known_causes: the keys of all causes in the baseline.
        reported: the regressions already reported for the functions that the test uses.
    """
    regressions = _new_causes(test, facts, known_causes)
    if _counts_may_differ(old, facts):
        return regressions
    location = facts.place_of(None)
    current = Entry.of(facts)
    if old.compiles and not current.compiles:
        if regressions or reported:
            return regressions
        nothing_causes = [cause for cause in facts.causes if cause.kind == "nothing"]
        regressions = [_change_of_cause(test, cause, facts) for cause in nothing_causes]
        return regressions or [AuditChange(test, "compiles nothing", location)]
    if current.backends != old.backends:
        text = f"backend changed: {_names(old.backends)} -> {_names(current.backends)}"
        if text not in {change.text for change in reported}:
            regressions.append(AuditChange(test, text, location))
    for cause in facts.causes:
        # Without an entry, the cause is new and already reported, or other tests have it. A test
        # that compiled nothing may compile nothing for another reason.
        counted = cause.key in known_causes and cause.kind != "nothing"
        recorded = old.causes.get(cause.key, 0 if counted else cause.count)
        if cause.count > recorded:
            times = f", {recorded} -> {cause.count} times"
            regressions.append(_change_of_cause(test, cause, facts, times))
    if regressions or reported:
        return regressions
    if current.backwards < old.backwards:
        text = f"fewer backward graphs ran: {old.backwards} -> {current.backwards}"
        return [AuditChange(test, text, location)]
    # Every recompile counts its ops again, so fewer recompiles also mean fewer ops.
    if current.ops < old.ops and _recompiles(current) >= _recompiles(old):
        return [AuditChange(test, f"fewer ops compiled: {old.ops} -> {current.ops}", location)]
    return []


def _recompiles(entry: Entry) -> int:
    """Return the number of recompiles."""
    return sum(n for key, n in entry.causes.items() if key.startswith(("recompile |", "limit |")))


def _names(backends: tuple[str, ...]) -> str:
    return ", ".join(backends) or "none"


def _improvements(
    test: str, old: Entry, facts: TestFacts, seen_causes: Collection[str]
) -> Iterator[AuditChange]:
    """Yield the improvements of a test.

    For a test whose counts may differ, yield only graph breaks that no test has any more.
    """
    if _counts_may_differ(old, facts):
        for key in old.causes:
            if key.startswith("break |") and key not in seen_causes:
                yield AuditChange(test, f"no longer occurs: {key}")
        return
    current = Entry.of(facts)
    for key, times in old.causes.items():
        count = current.causes.get(key, 0)
        if count < times:
            text = f"{key}: {times} -> {count} times" if count else f"no longer occurs: {key}"
            yield AuditChange(test, text)
    if current.compiles and not old.compiles:
        yield AuditChange(test, "compiles graphs now")
    elif current.ops > old.ops:
        yield AuditChange(test, f"more ops compiled: {old.ops} -> {current.ops}")


def _pair_renamed(
    verdict: Verdict, before: ReleaseSection, facts: Mapping[str, TestFacts], candidates: list[str]
) -> None:
    """Pair each new test with a missing test that compiled the same code.

    If there are several, prefer a test with the same name in another file or class.
    """
    for test in verdict.new:
        entry = Entry.of(facts[test])
        equal_tests = [old for old in candidates if before.tests[old] == entry]
        name = test.rpartition("::")[2]
        equal_tests.sort(key=lambda old: (old.rpartition("::")[2] != name, old))
        if equal_tests:
            candidates.remove(equal_tests[0])
            verdict.renamed.append((equal_tests[0], test))
