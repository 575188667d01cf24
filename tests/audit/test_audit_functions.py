"""The audit compares compiled functions over the whole run, for any order of the tests."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import replace

import pytest
from projects import Run

from pytest_torchgraph.audit import (
    Cause,
    CodePlace,
    Entry,
    Function,
    ReleaseSection,
    TestFacts,
    Verdict,
    verdict_lines,
)
from pytest_torchgraph.audit.baseline import functions_of, merge
from pytest_torchgraph.audit.facts import FunctionFacts
from pytest_torchgraph.audit.judge import BaselineComparison, merged_functions

FILE = "torchgraph-audit.json"
COMPILED = FunctionFacts("lib.py | norm", 3, True, (5,), ("inductor",))
SERVED = replace(COMPILED, ops=())
OTHER = FunctionFacts("lib.py | other", 9, True, (2,), ("inductor",))
FIRST = TestFacts(1, 1, 0, 5, 0.5, True, (), ("lib.py:3 norm",), functions=(COMPILED,))
SECOND = TestFacts(1, 0, 0, 0, 0.0, True, shared=True, functions=(SERVED,))
BREAK = Cause("break", "lib.py", "norm", "print", "print(x)", 4)


def section(facts: Mapping[str, TestFacts]) -> ReleaseSection:
    entries = {test: Entry.of(each) for test, each in facts.items()}
    return ReleaseSection(entries, functions_of(facts.values()))


def compare(before: Mapping[str, TestFacts], after: Mapping[str, TestFacts]) -> Verdict:
    return BaselineComparison(section(before), after, before.keys()).verdict()


def using(*functions: FunctionFacts, shared: bool = True) -> TestFacts:
    return replace(FIRST, shared=shared, functions=functions)


def test_fewer_ops_in_shared_code_are_worse_in_any_test() -> None:
    before = {"a": FIRST, "b": SECOND}
    for compiles, served in (("a", "b"), ("b", "a")):
        cut = replace(COMPILED, ops=(1,))
        verdict = compare(before, {compiles: using(cut), served: SECOND})
        assert {
            (regression.test, regression.text, regression.place) for regression in verdict.worse
        } == {(test, "fewer ops compiled: 5 -> 1", CodePlace("lib.py", 3, "norm")) for test in "ab"}
        assert compare(before, {compiles: using(COMPILED), served: SECOND}).worse == []


@pytest.mark.parametrize(
    ("before", "after", "text"),
    [
        ((5,), (1,), "fewer ops compiled: 5 -> 1"),
        ((5, 7), (2, 7), "fewer ops compiled: 5, 7 -> 2, 7"),
        ((1, 50), (1, 10), "fewer ops compiled: 1, 50 -> 1, 10"),
        ((5, 7), (5,), ""),
        ((5,), (5, 7), ""),
        ((5, 5), (5, 3), ""),
        ((5,), (), ""),
        ((4,), (8,), ""),
    ],
)
def test_missing_variant_is_not_worse(
    before: tuple[int, ...], after: tuple[int, ...], text: str
) -> None:
    """Another order compiles other variants: for 8 rows, or for any number."""
    verdict = compare(
        {"a": using(replace(COMPILED, ops=before))}, {"a": using(replace(COMPILED, ops=after))}
    )
    assert [regression.text for regression in verdict.worse] == [text] * bool(text)


def test_more_ops_in_shared_code_are_better() -> None:
    verdict = compare(
        {"a": using(replace(COMPILED, ops=(4,)))}, {"a": using(replace(COMPILED, ops=(8,)))}
    )
    assert [improvement.text for improvement in verdict.better] == ["more ops compiled: 4 -> 8"]


def test_another_backend_of_shared_code_is_worse() -> None:
    verdict = compare({"b": SECOND}, {"b": using(replace(SERVED, backends=("eager",)))})
    assert [regression.text for regression in verdict.worse] == [
        "backend changed: inductor -> eager"
    ]


def test_backend_of_two_functions_is_one_change_of_one_test() -> None:
    before = replace(using(COMPILED, OTHER, shared=False), backends=("inductor",))
    now = [replace(function, backends=("eager",)) for function in (COMPILED, OTHER)]
    after = replace(using(*now, shared=False), backends=("eager",))
    lines = list(verdict_lines(compare({"a": before}, {"a": after}), FILE))
    assert lines[:3] == [
        f"worse than {FILE}:",
        "   1 test  lib.py:3 in norm, lib.py:9 in other: backend changed: inductor -> eager  a",
        "this fails the run. To accept it: pytest --torchgraph-audit=record",
    ]


def test_lost_backward_of_shared_code_is_worse_if_all_tests_ran() -> None:
    trained = replace(COMPILED, backward=True)
    before = {"a": using(trained), "b": using(SERVED)}
    now = {"a": using(COMPILED), "b": using(SERVED)}
    assert {regression.text for regression in compare(before, now).worse} == {
        "the backward graph no longer runs"
    }
    assert BaselineComparison(section(before), {"a": using(COMPILED)}, {"a"}).verdict().worse == []


def test_new_cause_explains_differences_of_a_function() -> None:
    broken = replace(using(replace(COMPILED, ops=(2, 3))), causes=(BREAK,))
    assert [regression.text for regression in compare({"a": FIRST}, {"a": broken}).worse] == [
        "graph break at lib.py:4 in norm: print(x)"
    ]


@pytest.mark.parametrize("shared", [True, False])
def test_lost_call_of_a_shared_test_is_worse(shared: bool) -> None:
    before = {"a": FIRST, "b": using(SERVED, OTHER, shared=shared)}
    verdict = compare(before, {"a": FIRST, "b": using(SERVED, shared=shared)})
    assert [(regression.test, regression.text) for regression in verdict.worse] == [
        ("b", "no longer compiled, or no longer called: other in lib.py")
    ]


def test_shared_test_without_compiled_calls_is_worse() -> None:
    verdict = BaselineComparison(
        section({"a": FIRST, "b": SECOND}), {"a": FIRST}, {"a", "b"}
    ).verdict()
    assert [(regression.test, regression.text) for regression in verdict.worse] == [
        ("b", "no longer uses torch.compile")
    ]


def test_call_moved_to_another_test_is_not_worse() -> None:
    """The first test that needs the result caches it for all others."""
    idle = replace(FIRST, functions=(OTHER,))
    before = {"a": using(COMPILED, OTHER), "b": idle}
    assert compare(before, {"a": idle, "b": using(COMPILED, OTHER)}).worse == []


def test_renamed_function_is_not_worse() -> None:
    renamed = replace(COMPILED, key="lib.py | normalize")
    assert compare({"a": FIRST}, {"a": using(renamed)}).worse == []


def test_verdict_counts_the_compared_functions() -> None:
    facts = {"a": FIRST, "b": SECOND, "c": using(SERVED, OTHER)}
    assert list(verdict_lines(compare(facts, facts), "audit.json")) == [
        "nothing is worse than audit.json (3 tests and 2 functions compared)",
        "compared: all counts of 1 test; calls and new causes of 2 tests, which share compiled "
        "code; ops, backend and backward of 2 functions",
    ]


def test_record_keeps_variants_of_other_orders() -> None:
    before = section({"a": using(replace(COMPILED, ops=(5, 7)))})
    key = COMPILED.key
    for ops, kept in (((5,), (5, 7)), ((5, 7, 9), (5, 7, 9)), ((2,), (2,)), ((8, 9), (8, 9))):
        recorded = merged_functions(before, {key: Function(ops, ("inductor",))})
        assert recorded[key].ops == kept


def test_shards_that_compiled_other_variants_record_all_of_them() -> None:
    shards = [{"2.13": ReleaseSection({}, {"f": Function((n,), ("eager",))})} for n in (3, 5)]
    (merged,) = merge(shards).values()
    assert merged.functions == {"f": Function((3, 5), ("eager",))}


LIBRARY = """
    import torch


    def compiled(function):
        return torch.compile(function, backend="aot_eager")


    @compiled
    def norm(x):
        return (x - x.mean()) / (x.std() + 1)


    @compiled
    def other(x):
        return x.sin() * 2
"""
SUITE = """
    import pytest
    import torch
    from library import norm, other

    @pytest.fixture(scope="module")
    def normed():
        return norm(torch.arange(4.0))

    def test_1(): norm(torch.arange(4.0))
    def test_2(normed): norm(torch.arange(4.0))
    def test_3(): other(torch.arange(4.0)); norm(torch.arange(4.0))
    def test_4(normed): other(torch.arange(4.0))
"""


@pytest.fixture
def suite(pytester: pytest.Pytester, run: Run) -> Run:
    pytester.makepyfile(library=LIBRARY, test_all=SUITE)
    assert run("--torchgraph-audit=record").ret == 0
    return run


def edit(pytester: pytest.Pytester, old: str, new: str) -> None:
    path = pytester.path / "library.py"
    assert old in path.read_text()
    path.write_text(path.read_text().replace(old, new))


@pytest.mark.slow("runs pytest several times")
def test_function_no_longer_compiled_fails_the_run(pytester: pytest.Pytester, suite: Run) -> None:
    calls = {
        name.rpartition(":")[2]: entry and entry["calls"]
        for name, entry in next(
            iter(json.loads((pytester.path / FILE).read_text())["torch"].values())
        )["tests"].items()
    }
    assert calls["test_2"] == ["library.py | norm"]
    assert calls["test_4"] == ["library.py | other"]  # the call in its fixture belongs to no test
    edit(pytester, "@compiled\ndef other", "def other")
    for chosen in ((), ("-k", "test_3")):
        result = suite(*chosen, "--torchgraph-audit=check")
        assert result.ret == 1
        result.stdout.fnmatch_lines(
            [
                f"worse than {FILE}:",
                "*no longer compiled, or no longer called: other in library.py*",
            ]
        )
