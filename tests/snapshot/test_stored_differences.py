"""`diff(before, after) == graph_snapshot`: what a pass did, as a small text."""

from __future__ import annotations

from importlib.metadata import version
from pathlib import Path

import pytest
from projects import Run, stored_graphs

TEST = '''
from pytest_torchgraph import Graph, diff

BEFORE = """torchgraph 1

inference @ aot {
  %x = input : f32[2]
  %a = aten.sin.default(%x) : f32[2]
  %b = aten.cos.default(%a) : f32[2]
  return %b
}
"""


def graph(new):
    return Graph.from_text(BEFORE.replace("aten.cos", new))


def test_pass(graph_snapshot):
    assert diff(graph("aten.cos"), graph("aten.tan")) == graph_snapshot
'''
STORED = """\
~ changed in (no module) [inference]
    before  %b = aten.cos.default(%a) : f32[2]
    after   %b = aten.tan.default(%a) : f32[2]
"""


def stored(pytester: pytest.Pytester) -> dict[str, str]:
    directory = pytester.path / "__snapshots__" / "test_it"
    return {path.name: path.read_text() for path in sorted(directory.glob("*"))}


def test_difference_is_stored_and_compared(pytester: pytest.Pytester, run: Run) -> None:
    pytester.makepyfile(test_it=TEST)
    result = run()
    result.assert_outcomes(failed=1)
    result.stdout.fnmatch_lines(
        ["*no difference is stored*__snapshots__/test_it/test_pass.diff.txt*", "*to store it: *"]
    )
    assert stored(pytester) == {}
    run("--torchgraph-update").assert_outcomes(passed=1)
    assert stored(pytester) == {"test_pass.diff.txt": STORED}
    run().assert_outcomes(passed=1)
    pytester.makepyfile(test_it=TEST.replace("aten.tan", "aten.exp"))
    result = run()
    result.assert_outcomes(failed=1)
    result.stdout.fnmatch_lines(
        [
            "*the difference is not the stored one*",
            "*-*aten.tan*",
            "*+*aten.exp*",
            "*to store it: *",
        ]
    )
    result = run("--torchgraph-update")
    result.stdout.fnmatch_lines(["*test_pass.diff.txt*aten.exp*"])
    assert "aten.exp" in stored(pytester)["test_pass.diff.txt"]


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        ("aten.tan", "aten.cos", ["*nothing to compare, because there is no difference*"]),
        (
            "== graph_snapshot",
            "!= graph_snapshot",
            ["*no difference is stored*", "*!= stores nothing: compare with =="],
        ),
    ],
)
def test_empty_difference_or_inequality_fails_and_stores_nothing(
    pytester: pytest.Pytester, run: Run, old: str, new: str, said: list[str]
) -> None:
    pytester.makepyfile(test_it=TEST.replace(old, new))
    for options in ((), ("--torchgraph-update",)):
        result = run(*options)
        result.assert_outcomes(failed=1)
        result.stdout.fnmatch_lines(said)
    assert stored(pytester) == {}


def test_names_numbers_and_inequality(pytester: pytest.Pytester, run: Run) -> None:
    body = TEST.partition("def test_pass")[0]
    body += """
def test_pass(graph_snapshot):
    before = graph("aten.cos")
    assert diff(before, graph("aten.tan")) == graph_snapshot
    assert before == graph_snapshot
    assert diff(before, graph("aten.exp")) == graph_snapshot(name="exp")
    assert diff(before, graph("aten.tan")) != graph_snapshot(name="exp")
"""
    pytester.makepyfile(test_it=body)
    run("--torchgraph-update").assert_outcomes(passed=1)
    names = ["test_pass.1.tgraph", "test_pass.diff.txt", "test_pass[exp].diff.txt"]
    assert [*stored(pytester)] == names
    run().assert_outcomes(passed=1)


@pytest.mark.slow("a run of pytest of its own")
def test_source_lines_are_not_stored(pytester: pytest.Pytester, run: Run) -> None:
    body = """
import torch
from pytest_torchgraph import capture, diff

def old(x):
    return torch.sin(x) + 1

def new(x):
    return torch.cos(x) + 1

def test_pass(graph_snapshot):
    found = diff(capture(old, torch.ones(2)), capture(new, torch.ones(2)))
    assert "test_it.py" in str(found)
    assert found == graph_snapshot
"""
    pytester.makepyfile(test_it=body)
    run("--torchgraph-update").assert_outcomes(passed=1)
    (text,) = stored(pytester).values()
    assert "test_it.py" not in text
    assert "aten.cos" in text
    pytester.makepyfile(test_it="\n\n" + body)
    run().assert_outcomes(passed=1)


def test_difference_that_is_stored_for_an_older_release_is_unchanged(
    pytester: pytest.Pytester, run: Run
) -> None:
    pytester.makepyfile(test_it=TEST)
    running = ".".join(version("torch").split(".")[:2])
    run("--torchgraph-update", f"-otorchgraph_releases={running}")
    result = run("--torchgraph-update", f"-otorchgraph_releases=2.1 {running}")
    assert stored_graphs(result) == ["unchanged  __snapshots__/test_it/test_pass.diff.txt"]


@pytest.mark.slow("starts pytest three times")
def test_stale_difference_is_pruned(pytester: pytest.Pytester, run: Run) -> None:
    pytester.makepyfile(test_it=TEST)
    run("--torchgraph-update")
    pytester.makepyfile(test_it=TEST.replace("test_pass", "test_renamed"))
    result = run("--torchgraph-update", "--torchgraph-prune")
    result.assert_outcomes(passed=1)
    assert [*stored(pytester)] == ["test_renamed.diff.txt"]
    assert Path(pytester.path, "test_it.py").exists()
