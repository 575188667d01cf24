"""A difference is computed once and shared by all reports."""

from __future__ import annotations

import json

import pytest
from projects import Run
from snapshot.test_snapshot_ranks import RANKS, STEP

COUNTING = """
import json
from pytest_torchgraph.graph.diff import group

def counted(*args, matcher=group.match_graphs):
    calls.append(1)
    return matcher(*args)

calls = []
group.match_graphs = counted

def pytest_unconfigure():
    with open("calls.json", "w") as file:
        json.dump(len(calls), file)
"""
EVERYTHING = (
    "--torchgraph-report=p.html",
    "--torchgraph-artifacts=art",
    "--torchgraph-json=r.json",
)


def calls_of_the_matcher(pytester: pytest.Pytester) -> int:
    return int(json.loads((pytester.path / "calls.json").read_text()))


def test_failing_comparison_is_matched_once(pytester: pytest.Pytester, project: Run) -> None:
    with (pytester.path / "conftest.py").open("a") as file:
        file.write(COUNTING)
    project(*EVERYTHING, OP="gelu sin").assert_outcomes(failed=1)
    assert calls_of_the_matcher(pytester) == 1
    page = (pytester.path / "p.html").read_text(encoding="utf-8")
    assert "aten.gelu" in json.dumps(json.loads((pytester.path / "r.json").read_text()))
    assert "torchgraph" in page
    assert [*pytester.path.glob("art/*.svg")]


def test_ranks_are_matched_once_for_each_class_of_equal_ranks(
    pytester: pytest.Pytester, run: Run
) -> None:
    pytester.makepyfile(test_net=STEP, collective=RANKS, conftest=COUNTING)
    run("--torchgraph-update", RANKS="relu gelu * 8").assert_outcomes(passed=1)
    run(*EVERYTHING, RANKS="relu gelu * 4; relu sin * 2; cos gelu * 2").assert_outcomes(failed=1)
    assert calls_of_the_matcher(pytester) == 2


ASSERTED = """
from graphs import graph
from pytest_torchgraph import diff

def test_call():
    assert not diff(graph("relu", "sin"), graph("gelu", "sin"))

def test_name():
    found = diff(graph("relu"), graph("gelu"))
    assert not found

def test_other_assertion():
    found = diff(graph("relu"), graph("gelu"))
    assert not found.added, "nothing is added"
    assert False

def test_equal():
    assert diff(graph("relu"), graph("relu"))
"""


def test_assertion_about_a_difference_shows_its_findings(
    pytester: pytest.Pytester, run: Run
) -> None:
    pytester.makepyfile(test_net=ASSERTED)
    result = run()
    result.assert_outcomes(failed=4)
    shown = result.stdout.str()
    assert "assert not <GraphDiff: 1 edit: aten.relu -> aten.gelu in layer.0>" in shown
    assert "assert <GraphDiff: no difference>" in shown
    assert "Finding(" not in shown
    before = "    before  %layer.0/relu = aten.relu.default(%x) : f32[2, 16]"
    assert result.outlines.count(before) == 2
