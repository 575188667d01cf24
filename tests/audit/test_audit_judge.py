"""Regressions, improvements and neutral changes against the baseline of an audit."""

from __future__ import annotations

from dataclasses import replace

import pytest

from pytest_torchgraph.audit import (
    Cause,
    CodePlace,
    Entry,
    ReleaseSection,
    TestFacts,
    Verdict,
    verdict_lines,
)
from pytest_torchgraph.audit.judge import BaselineComparison

BREAK = Cause("break", "net.py", "forward", "data-dependent", "if x.sum() > 0:", 7)
OTHER = replace(BREAK, code="print(x)", line=9)
RECOMPILE = Cause("recompile", "net.py", "forward", "", "", 3)
NOTHING = Cause("nothing", "", "", "Dynamo found no tensor operation", "", 0)
GOOD = TestFacts(2, 2, 1, 8, 0.5, True, (), ("net.py:3 forward",), (), ("inductor",))
EMPTY = replace(GOOD, graphs=0, ops=0, backwards=0, compiles=False, causes=(NOTHING,))


def compare(before: TestFacts | None, after: TestFacts | None, *others: TestFacts) -> Verdict:
    """Compare a test before and after, together with other tests of the baseline."""
    section = {f"other_{n}": Entry.of(other) for n, other in enumerate(others)}
    if before is not None:
        section["test"] = Entry.of(before)
    return BaselineComparison(
        ReleaseSection(section), {} if after is None else {"test": after}, {"test"}
    ).verdict()


@pytest.mark.parametrize(
    ("after", "text"),
    [
        (replace(GOOD, causes=(BREAK,)), "graph break at net.py:7 in forward: if x.sum() > 0:"),
        (replace(GOOD, causes=(RECOMPILE,)), "recompiled: net.py:3 in forward"),
        (replace(GOOD, ops=4), "fewer ops compiled: 8 -> 4"),
        (replace(GOOD, backwards=0), "fewer backward graphs ran: 1 -> 0"),
        (replace(GOOD, backends=("eager",)), "backend changed: inductor -> eager"),
        (EMPTY, "nothing compiled: Dynamo found no tensor operation"),
        (replace(EMPTY, causes=()), "compiles nothing"),
        (None, "no longer uses torch.compile"),
    ],
)
def test_regression_is_reported_once(after: TestFacts | None, text: str) -> None:
    verdict = compare(GOOD, after)
    assert [change.text for change in verdict.worse] == [text]
    assert verdict.better == []
    lines = list(verdict_lines(verdict, "audit.json"))
    assert lines[0] == "worse than audit.json:"
    assert text in lines[1]
    assert after is None or "net.py:" in lines[1]


def test_known_break_with_a_higher_count_is_worse() -> None:
    verdict = compare(
        replace(GOOD, causes=(BREAK,)), replace(GOOD, causes=(replace(BREAK, count=4),))
    )
    assert [change.text for change in verdict.worse] == [
        "graph break at net.py:7 in forward: if x.sum() > 0:, 1 -> 4 times"
    ]


@pytest.mark.parametrize(
    "after",
    [
        GOOD,
        replace(GOOD, graphs=1),
        replace(GOOD, graphs=5),
        replace(GOOD, seconds=99.0, frames=("net.py:40 forward",)),
    ],
    ids=["the same", "fewer graphs", "more graphs", "slower and further down"],
)
def test_neutral_change_is_not_reported(after: TestFacts) -> None:
    verdict = compare(GOOD, after)
    assert (verdict.worse, verdict.better) == ([], [])


def test_known_cause_is_tolerated_in_new_and_sharing_tests() -> None:
    broken = replace(GOOD, causes=(BREAK,))
    assert compare(replace(GOOD, shared=True), broken, broken).worse == []
    assert compare(GOOD, replace(broken, shared=True), broken).worse == []
    assert compare(None, broken, broken).worse == []
    assert compare(None, broken).worse != []


@pytest.mark.parametrize(
    ("cause", "text"),
    [
        (BREAK, "graph break at net.py:7 in forward: if x.sum() > 0:, 0 -> 1 times"),
        # Another function of the same name: `forward` of another class, a local function `step`.
        (RECOMPILE, "recompiled: net.py:3 in forward, 0 -> 1 times"),
    ],
)
def test_cause_of_another_test_is_worse_in_a_test_that_shares_nothing(
    cause: Cause, text: str
) -> None:
    worse = replace(GOOD, causes=(cause,))
    assert [change.text for change in compare(GOOD, worse, worse).worse] == [text]


def test_test_that_compiles_nothing_for_another_known_reason_is_not_worse() -> None:
    other = replace(EMPTY, causes=(replace(NOTHING, text="a stance is active"),))
    assert compare(EMPTY, other, other).worse == []


def test_shared_test_is_judged_only_by_new_causes() -> None:
    shared = replace(GOOD, shared=True)
    for before, after in ((shared, GOOD), (GOOD, shared)):
        assert compare(before, replace(after, ops=1, graphs=1, backwards=0)).worse == []
        assert compare(before, replace(after, causes=(OTHER,))).worse != []


def test_shared_test_that_uses_nothing_is_not_worse() -> None:
    assert compare(replace(GOOD, shared=True), None).worse == []


def test_nested_graph_breaks_on_one_side_are_judged_by_new_causes() -> None:
    broken = replace(GOOD, causes=(BREAK,))
    nested = replace(broken, nested=True)
    for before, after in ((broken, nested), (nested, broken)):
        more = replace(after, ops=3, causes=(replace(BREAK, count=3),))
        assert compare(before, more).worse == []
        assert compare(before, replace(after, causes=(OTHER,))).worse != []


@pytest.mark.parametrize(
    ("before", "after", "text"),
    [
        (replace(GOOD, causes=(BREAK,)), GOOD, "no longer occurs: break | net.py | forward"),
        (EMPTY, GOOD, "compiles graphs now"),
        (replace(GOOD, ops=4), GOOD, "more ops compiled: 4 -> 8"),
    ],
)
def test_improvement_is_reported_with_the_command(
    before: TestFacts, after: TestFacts, text: str
) -> None:
    verdict = compare(before, after)
    assert verdict.worse == []
    assert any(change.text.startswith(text) for change in verdict.better)
    lines = list(verdict_lines(verdict, "audit.json"))
    assert lines[:2] == [
        "nothing is worse than audit.json (1 test compared)",
        "compared: all counts of 1 test",
    ]
    assert "--torchgraph-audit=record" in lines[2]


def test_code_compiled_by_an_earlier_test_is_not_a_cause() -> None:
    again = replace(GOOD, shared=True, causes=(replace(RECOMPILE, shared=True),))
    assert compare(GOOD, again).worse == []
    assert compare(None, again).worse == []
    assert compare(None, replace(again, causes=(RECOMPILE,))).worse != []


def test_test_that_stops_compiling_is_worse_next_to_another() -> None:
    (change,) = compare(GOOD, EMPTY, EMPTY).worse
    assert change.text == "nothing compiled: Dynamo found no tensor operation"
    assert change.place == CodePlace("net.py", 3, "forward")


def test_consequences_of_a_cause_are_not_reported() -> None:
    broken = replace(GOOD, causes=(BREAK,), ops=4, backwards=0)
    assert [change.text[:11] for change in compare(GOOD, broken).worse] == ["graph break"]
    assert compare(replace(GOOD, causes=(OTHER,)), broken).better == []


def test_fewer_ops_after_fewer_recompiles_are_not_worse() -> None:
    verdict = compare(replace(GOOD, causes=(RECOMPILE,)), replace(GOOD, ops=4))
    assert verdict.worse == []
    assert [change.text for change in verdict.better] == [
        "no longer occurs: recompile | net.py | forward"
    ]


def test_lost_call_is_reported_at_the_test() -> None:
    before = ReleaseSection({"t.py::test_one": Entry.of(GOOD)})
    verdict = BaselineComparison(before, {}, {"t.py::test_one"}).verdict(
        {"t.py::test_one": "t.py:7 test_one"}
    )
    (change,) = verdict.worse
    assert change.place == CodePlace("t.py", 7, "test_one")


def test_change_in_several_places_is_one_line() -> None:
    facts = {
        f"test_{n}": replace(GOOD, ops=4, frames=(f"net.py:{n} forward",)) for n in range(10, 15)
    }
    before = ReleaseSection({test: Entry.of(GOOD) for test in facts})
    lines = list(
        verdict_lines(BaselineComparison(before, facts, set(facts)).verdict(), "audit.json")
    )
    places = "net.py:10 in forward, net.py:11 in forward, net.py:12 in forward and 2 more"
    assert lines[1:-2] == [
        f"  5 tests  {places}: fewer ops compiled: 8 -> 4  test_10 and 4 more",
    ]


def test_tests_that_failed_or_did_not_run_are_not_compared() -> None:
    before = ReleaseSection({"failed": Entry.of(GOOD), "skipped": Entry.of(GOOD)})
    verdict = BaselineComparison(before, {"failed": EMPTY}, set()).verdict()
    assert (verdict.worse, verdict.gone) == ([], ["skipped"])


def test_renamed_test_is_reported_as_renamed() -> None:
    verdict = BaselineComparison(
        ReleaseSection({"t.py::test_old": Entry.of(GOOD)}),
        {"t.py::test_new": GOOD},
        {"t.py::test_new"},
    ).verdict()
    assert verdict.renamed == [("t.py::test_old", "t.py::test_new")]
    lines = list(verdict_lines(verdict, "audit.json"))
    assert lines[-1] == (
        "probably renamed, because both compile the same code: t.py::test_old -> t.py::test_new"
    )
