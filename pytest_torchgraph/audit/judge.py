"""What became worse since the baseline, and what became better.

Each thing is compared where it does not depend on the order of the tests: a false alarm makes
people switch a check off.

    compiled functions   over the whole run: ops of their graphs, backend, backward
    every test           causes that the whole baseline has nowhere; what it calls compiled
    a test that shares   nothing more: which test compiles shared code is a matter of order
    all others           counts of causes, ops and backward graphs, backends
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, field

from .baseline import Entry, Function, ReleaseSection, functions_of
from .facts import Cause, TestFacts
from .summary import describe


@dataclass(frozen=True, slots=True)
class AuditChange:
    """One thing that differs in one test.

    Attributes:
        test: the id of the test.
        text: what differs, the same for the same thing in another test.
        place: the code, as `file:line function`, where the text does not name it.
        cause: the cause that is new or more frequent, None where something else differs.
    """

    test: str
    text: str
    place: str = ""
    cause: Cause | None = None


@dataclass
class Verdict:
    """What differs from the baseline.

    Attributes:
        worse, better: what became so.
        new: the tests that call compiled code and are not in the baseline.
        gone: the tests of the baseline that were not run.
        renamed: old and new ids of tests that compile the same, one gone and one new.
        vacuous: whether tests of the baseline were to run, and none was compared.
        compared: what was compared.
    """

    worse: list[AuditChange] = field(default_factory=list)
    better: list[AuditChange] = field(default_factory=list)
    new: list[str] = field(default_factory=list)
    gone: list[str] = field(default_factory=list)
    renamed: list[tuple[str, str]] = field(default_factory=list)
    vacuous: bool = False
    compared: Compared = field(default_factory=lambda: Compared())


@dataclass(frozen=True, slots=True)
class Compared:
    """How many tests and functions were compared with the baseline, and how.

    Attributes:
        whole: the tests of which every count was compared.
        shared: the tests that share compiled code, of which only calls and new causes were.
        functions: the compiled functions, over all tests.
    """

    whole: int = 0
    shared: int = 0
    functions: int = 0

    @property
    def tests(self) -> int:
        """All tests."""
        return self.whole + self.shared


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
        facts: of each test that calls compiled code.
        passed: the ids of the tests that passed, or failed as expected. No others are compared.
        places: where tests are, as `file:line`, for those that call nothing compiled any more.
        missing: the tests of the baseline that are not there any more, and may have been renamed;
            None for all that did not run.
    """
    places = places or {}
    seen = {cause.key for each in facts.values() for cause in each.causes}
    verdict = Verdict()
    known = {key for entry in before.tests.values() for key in entry.causes}
    lost = _lost_calls(before, facts, passed)
    in_functions = _in_functions(before, facts, passed, known)
    for test in sorted(passed):
        of_test = facts.get(test)
        old = before.tests.get(test)
        if old is None and of_test is not None:
            verdict.new.append(test)
            verdict.worse += _new_causes(test, of_test, known)
        if old is None:
            continue
        worse = [*lost.get(test, ()), *in_functions.worse.get(test, ())]
        if of_test is None and (lost.get(test) or not (old.shared or old.calls)):
            text = "no longer uses torch.compile"
            worse = [AuditChange(test, text, places.get(test, ""))]
        elif of_test is not None:
            if not _not_comparable(old, of_test):  # its own count of backward graphs is compared
                worse = [change for change in worse if change.text != NO_BACKWARD]
            worse += _worse(test, old, of_test, known, worse)
            if not worse:
                # A break that is gone is why more ops are compiled.
                better = [*_better(test, old, of_test, seen)]
                verdict.better += better or in_functions.better.get(test, [])
        verdict.worse += worse
    compared = before.tests.keys() & passed
    sharing = {
        test
        for test in compared
        if test in facts and _not_comparable(before.tests[test], facts[test])
    }
    verdict.compared = Compared(
        len(compared) - len(sharing), len(sharing), len(in_functions.compared)
    )
    verdict.gone = sorted(before.tests.keys() - passed - facts.keys())
    candidates = [test for test in verdict.gone if missing is None or test in missing]
    _pair_renamed(verdict, before, facts, candidates)
    return verdict


def _lost_calls(
    before: ReleaseSection, facts: Mapping[str, TestFacts], passed: Collection[str]
) -> dict[str, list[AuditChange]]:
    """What tests called compiled, and do not call compiled any more, by test.

    A test that calls something else instead has lost nothing, and neither has one of whose calls
    another test makes now: the result is kept for all of them, and the first one calls.
    """
    compared = [test for test in sorted(passed) if test in before.tests]
    now = {test: set(facts[test].called) if test in facts else set() for test in compared}
    callers_before = Counter(key for test in compared for key in before.tests[test].calls)
    callers = Counter(key for keys in now.values() for key in keys)
    changes: dict[str, list[AuditChange]] = {}
    for test in compared:
        old = set(before.tests[test].calls)
        if len(now[test]) >= len(old):
            continue
        for key in sorted(old - now[test]):
            if callers[key] < callers_before[key]:
                file, _, name = key.partition(" | ")
                text = f"no longer compiled, or no longer called: {name} in {file}"
                changes.setdefault(test, []).append(AuditChange(test, text))
    return changes


@dataclass
class _InFunctions:
    """What differs in compiled functions over the run, by the tests that use them.

    Attributes:
        compared: the keys of the functions that were compared.
        worse, better: what became so.
    """

    compared: set[str] = field(default_factory=set)
    worse: dict[str, list[AuditChange]] = field(default_factory=dict)
    better: dict[str, list[AuditChange]] = field(default_factory=dict)


def _in_functions(
    before: ReleaseSection,
    facts: Mapping[str, TestFacts],
    passed: Collection[str],
    known: Collection[str],
) -> _InFunctions:
    """Compare compiled functions over the run.

    A new cause in a test that uses a function explains what else differs in it.
    """
    result = _InFunctions()
    now = functions_of(facts.values())
    for key in sorted(before.functions.keys() & now.keys()):
        result.compared.add(key)
        users = {
            test: each
            for test, of_test in facts.items()
            for each in of_test.functions
            if each.key == key and test in passed
        }
        if any(_new_causes(test, facts[test], known) for test in users):
            continue
        callers = [test for test, entry in before.tests.items() if key in entry.calls]
        all_ran = all(test in passed for test in callers) and bool(callers)
        worse, better = _function_changes(before.functions[key], now[key], all_ran=all_ran)
        for changes, text in ((result.worse, worse), (result.better, better)):
            for test, function in users.items() if text else ():
                changes.setdefault(test, []).append(AuditChange(test, text, function.place))
    return result


NO_BACKWARD = "no backward graph ran any more"


def _function_changes(old: Function, now: Function, *, all_ran: bool) -> tuple[str, str]:
    """What is worse in a function, and what is better; "" for nothing.

    Which variants of a function are compiled may depend on the order: with 8 rows and then 16 the
    second is dynamic, and some of its graphs hold arithmetic on sizes. So a number of ops that is
    missing says nothing by itself; only a new number in its place does.

    Args:
        old: what the baseline has.
        now: what this run has.
        all_ran: whether all tests ran that call it in the baseline.
    """
    if old.backends and now.backends and not set(old.backends) & set(now.backends):
        return f"another backend: {_names(old.backends)} -> {_names(now.backends)}", ""
    if old.nested != now.nested or not now.ops:
        return "", ""
    new, missing = set(now.ops) - set(old.ops), set(old.ops) - set(now.ops)
    counts = f"{_numbers(old.ops)} -> {_numbers(now.ops)}"
    if new and missing and min(new) < max(missing):
        return f"fewer ops compiled: {counts}", ""
    if old.backward and not now.backward and all_ran:
        return NO_BACKWARD, ""
    if new and missing:
        return "", f"more ops compiled: {counts}"
    return "", ""


def merged_functions(before: ReleaseSection, now: Mapping[str, Function]) -> dict[str, Function]:
    """The functions to record: those of this run, and what another order of tests explains.

    Args:
        before: the baseline.
        now: what the run has.
    """
    functions = dict(before.functions)
    for key, function in now.items():
        old = functions.get(key)
        if old is not None and not any(_function_changes(old, function, all_ran=True)):
            function = old | function
        functions[key] = function
    return functions


def _numbers(ops: tuple[int, ...]) -> str:
    return ", ".join(map(str, ops))


def is_as_before(
    old: Entry, facts: TestFacts, known: Collection[str], seen: Collection[str]
) -> bool:
    """Whether another order of the tests explains all that differs, so that `record` keeps a line.

    Args:
        old: what the baseline has about the test.
        facts: of the test now.
        known: what identifies the causes of the whole baseline.
        seen: the same of the whole run.
    """
    if not _not_comparable(old, facts) or any(_better("", old, facts, seen)):
        return False
    return all(cause.key in known for cause in facts.causes)


def _new_causes(test: str, facts: TestFacts, known: Collection[str]) -> list[AuditChange]:
    """The causes that the baseline has nowhere: what is tolerated once is, in whichever test."""
    return [
        _of_cause(test, cause, facts)
        for cause in facts.causes
        if cause.key not in known and not cause.shared
    ]


def _of_cause(test: str, cause: Cause, facts: TestFacts, more: str = "") -> AuditChange:
    return AuditChange(test, describe(cause) + more, "" if cause.file else _place(facts), cause)


def _not_comparable(old: Entry, facts: TestFacts) -> bool:
    """Whether counts may differ though the code is the same.

    That is by the order of the tests, and by the setting `nested_graph_breaks`.
    """
    return old.shared or facts.shared or old.nested != facts.nested


def _worse(
    test: str, old: Entry, facts: TestFacts, known: Collection[str], said: Collection[AuditChange]
) -> Iterator[AuditChange]:
    """What is worse in a test; what follows from it is not said again.

    Args:
        test: its id.
        old: what the baseline has.
        facts: of the test now.
        known: what identifies the causes of the whole baseline.
        said: what is said of the functions that it uses.
    """
    found = _new_causes(test, facts, known)
    yield from found
    found += said
    if _not_comparable(old, facts):
        return
    place = _place(facts)
    now = Entry.of(facts)
    if old.compiles and not now.compiles:
        if not found:
            nothing = [cause for cause in facts.causes if cause.kind == "nothing"]
            yield from (_of_cause(test, cause, facts) for cause in nothing)
            if not nothing:
                yield AuditChange(test, "compiles nothing", place)
        return
    if now.backends != old.backends:
        text = f"another backend: {_names(old.backends)} -> {_names(now.backends)}"
        found.append(AuditChange(test, text, place))
        yield found[-1]
    for cause in facts.causes:
        if cause.count > old.causes.get(cause.key, cause.count):
            times = f", {old.causes[cause.key]} -> {cause.count} times"
            found.append(_of_cause(test, cause, facts, times))
            yield found[-1]
    if now.backwards < old.backwards and not found:
        text = f"fewer backward graphs ran: {old.backwards} -> {now.backwards}"
        found.append(AuditChange(test, text, place))
        yield found[-1]
    if now.ops < old.ops and not found and _recompiles(now) >= _recompiles(old):
        yield AuditChange(test, f"fewer ops compiled: {old.ops} -> {now.ops}", place)


def _recompiles(entry: Entry) -> int:
    """How often code was compiled again, which counts its ops again."""
    return sum(n for key, n in entry.causes.items() if key.startswith(("recompile |", "limit |")))


def _place(facts: TestFacts) -> str:
    """The code that a test compiles first, else that it calls first."""
    return (facts.frames or facts.callables or ("",))[0]


def _names(backends: tuple[str, ...]) -> str:
    return ", ".join(backends) or "none"


def _better(
    test: str, old: Entry, facts: TestFacts, seen: Collection[str]
) -> Iterator[AuditChange]:
    """What is better in a test: of one that depends on the order, a break that no test has."""
    if _not_comparable(old, facts):
        breaks = (key for key in old.causes if key.startswith("break |"))
        yield from (AuditChange(test, f"gone: {key}") for key in breaks if key not in seen)
        return
    now = Entry.of(facts)
    for key, times in old.causes.items():
        if now.causes.get(key, 0) < times:
            count = now.causes.get(key, 0)
            yield AuditChange(test, f"{key}: {times} -> {count} times" if count else f"gone: {key}")
    if now.compiles and not old.compiles:
        yield AuditChange(test, "compiles something")
    elif now.ops > old.ops:
        yield AuditChange(test, f"more ops compiled: {old.ops} -> {now.ops}")


def _pair_renamed(
    verdict: Verdict, before: ReleaseSection, facts: Mapping[str, TestFacts], candidates: list[str]
) -> None:
    """Tests of which one is gone and another one, that compiles the same, is new."""
    for test in verdict.new:
        entry = Entry.of(facts[test])
        same = [old for old in candidates if before.tests[old] == entry]
        name = test.rpartition("::")[2]
        same.sort(key=lambda old: (old.rpartition("::")[2] != name, old))
        if same:
            candidates.remove(same[0])
            verdict.renamed.append((same[0], test))
