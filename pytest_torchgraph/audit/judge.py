"""What became worse since the baseline, and what became better.

What a test compiles may depend on the tests before it, where they share compiled code. Of such a
test only causes count that the whole baseline has nowhere: a false alarm makes people switch a
check off.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, field

from .baseline import Entry, Section
from .facts import Cause, TestFacts
from .summary import describe


@dataclass(frozen=True, slots=True)
class Change:
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
    """

    worse: list[Change] = field(default_factory=list)
    better: list[Change] = field(default_factory=list)
    new: list[str] = field(default_factory=list)
    gone: list[str] = field(default_factory=list)
    renamed: list[tuple[str, str]] = field(default_factory=list)
    vacuous: bool = False


def judge(
    before: Section,
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
    known = {key for entry in before.values() for key in entry.causes}
    for test in sorted(passed):
        of_test = facts.get(test)
        old = before.get(test)
        if old is None and of_test is not None:
            verdict.new.append(test)
            verdict.worse += _new_causes(test, of_test, known)
        elif old is not None and of_test is None and not old.shared:
            text = "no longer uses torch.compile"
            verdict.worse.append(Change(test, text, places.get(test, "")))
        elif old is not None and of_test is not None:
            worse = list(_worse(test, old, of_test, known))
            verdict.worse += worse
            verdict.better += () if worse else _better(test, old, of_test, seen)
    verdict.gone = sorted(before.keys() - passed - facts.keys())
    candidates = [test for test in verdict.gone if missing is None or test in missing]
    _pair_renamed(verdict, before, facts, candidates)
    return verdict


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


def _new_causes(test: str, facts: TestFacts, known: Collection[str]) -> Iterator[Change]:
    """The causes that the baseline has nowhere: what is tolerated once is, in whichever test."""
    for cause in facts.causes:
        if cause.key not in known and not cause.shared:
            yield _of_cause(test, cause, facts)


def _of_cause(test: str, cause: Cause, facts: TestFacts, more: str = "") -> Change:
    return Change(test, describe(cause) + more, "" if cause.file else _place(facts), cause)


def _not_comparable(old: Entry, facts: TestFacts) -> bool:
    """Whether counts may differ though the code is the same.

    That is by the order of the tests, and by the setting `nested_graph_breaks`.
    """
    return old.shared or facts.shared or old.nested != facts.nested


def _worse(test: str, old: Entry, facts: TestFacts, known: Collection[str]) -> Iterator[Change]:
    """What is worse in a test; what follows from it is not said again."""
    found = list(_new_causes(test, facts, known))
    yield from found
    if _not_comparable(old, facts):
        return
    place = _place(facts)
    now = Entry.of(facts)
    if old.compiles and not now.compiles:
        if not found:
            nothing = [cause for cause in facts.causes if cause.kind == "nothing"]
            yield from (_of_cause(test, cause, facts) for cause in nothing)
            if not nothing:
                yield Change(test, "compiles nothing", place)
        return
    if now.backends != old.backends:
        text = f"another backend: {_names(old.backends)} -> {_names(now.backends)}"
        found.append(Change(test, text, place))
        yield found[-1]
    for cause in facts.causes:
        if cause.count > old.causes.get(cause.key, cause.count):
            times = f", {old.causes[cause.key]} -> {cause.count} times"
            found.append(_of_cause(test, cause, facts, times))
            yield found[-1]
    if now.backwards < old.backwards and not found:
        text = f"fewer backward graphs ran: {old.backwards} -> {now.backwards}"
        found.append(Change(test, text, place))
        yield found[-1]
    if now.ops < old.ops and not found and _recompiles(now) >= _recompiles(old):
        yield Change(test, f"fewer ops compiled: {old.ops} -> {now.ops}", place)


def _recompiles(entry: Entry) -> int:
    """How often code was compiled again, which counts its ops again."""
    return sum(n for key, n in entry.causes.items() if key.startswith(("recompile |", "limit |")))


def _place(facts: TestFacts) -> str:
    """The code that a test compiles first, else that it calls first."""
    return (facts.frames or facts.callables or ("",))[0]


def _names(backends: tuple[str, ...]) -> str:
    return ", ".join(backends) or "none"


def _better(test: str, old: Entry, facts: TestFacts, seen: Collection[str]) -> Iterator[Change]:
    """What is better in a test: of one that depends on the order, a break that no test has."""
    if _not_comparable(old, facts):
        breaks = (key for key in old.causes if key.startswith("break |"))
        yield from (Change(test, f"gone: {key}") for key in breaks if key not in seen)
        return
    now = Entry.of(facts)
    for key, times in old.causes.items():
        if now.causes.get(key, 0) < times:
            count = now.causes.get(key, 0)
            yield Change(test, f"{key}: {times} -> {count} times" if count else f"gone: {key}")
    if now.compiles and not old.compiles:
        yield Change(test, "compiles something")
    elif now.ops > old.ops:
        yield Change(test, f"more ops compiled: {old.ops} -> {now.ops}")


def _pair_renamed(
    verdict: Verdict, before: Section, facts: Mapping[str, TestFacts], candidates: list[str]
) -> None:
    """Tests of which one is gone and another one, that compiles the same, is new."""
    for test in verdict.new:
        entry = Entry.of(facts[test])
        same = [old for old in candidates if before[old] == entry]
        name = test.rpartition("::")[2]
        same.sort(key=lambda old: (old.rpartition("::")[2] != name, old))
        if same:
            candidates.remove(same[0])
            verdict.renamed.append((same[0], test))
