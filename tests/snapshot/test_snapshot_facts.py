"""Stored graphs with returned values, run counts, and values of constants."""

from __future__ import annotations

from dataclasses import replace

import pytest
from projects import GRAPHS, Run, files

from pytest_torchgraph.graph import (
    Detail,
    Graph,
    Header,
    Program,
    Ref,
    format_document,
    format_sections,
    parse_document,
    parse_text,
)
from pytest_torchgraph.snapshot.compare import compare

graphs: dict[str, object] = {}
exec(GRAPHS, graphs)
HEADER = Header("aot", "2.13.0")
PLAIN: Graph = replace(graphs["graph"](name="forward"), counted=True, output=())  # type: ignore[operator]
NAMED = replace(PLAIN, output=(("logits", Ref("layer.0/relu")),))
OFTEN = replace(PLAIN, runs=6)


def two(first: Graph, second: Graph) -> Program:
    """Return the program of two ranks."""
    sections = [((rank,), Program(HEADER, (own,))) for rank, own in enumerate((first, second))]
    return Program.of_ranks({"tp": 2}, sections)


def against(stored: Graph, now: Graph, detail: Detail = "dataflow", version: int = 4) -> str | None:
    """Return None for a match, else the problem and the details as one text."""
    text = format_document((stored,), HEADER, detail)
    document = parse_document(text.replace("torchgraph 4", f"torchgraph {version}", 1))
    mismatch = compare(document, Program(HEADER, (now,)), detail)
    return None if mismatch is None else "\n".join([mismatch.problem, *mismatch.details])


def test_stored_facts_are_compared() -> None:
    assert against(NAMED, NAMED) is None
    assert against(NAMED, replace(PLAIN, output=(("loss", Ref("layer.0/relu")),))) == ""
    assert against(NAMED, PLAIN) == ""


@pytest.mark.parametrize("detail", ["ops", "dataflow", "full"])
def test_stored_runs_are_compared(detail: Detail) -> None:
    assert against(OFTEN, OFTEN, detail) is None
    assert against(OFTEN, PLAIN, detail) == "forward ran once, stored: 6"
    assert against(OFTEN, replace(OFTEN, runs=2), detail) == "forward ran 2 times, stored: 6"
    assert against(OFTEN, replace(OFTEN, counted=False), detail) is None


def test_file_of_an_older_version_matches_any_fact() -> None:
    assert against(PLAIN, NAMED, version=1) is None
    assert against(PLAIN, OFTEN, version=1) is None
    assert against(PLAIN, NAMED) == ""
    assert against(PLAIN, OFTEN) == "forward ran 6 times, stored: 1"


def test_ranks_with_facts_are_of_version_4() -> None:
    text = format_sections({"tp": 2}, [((0,), (PLAIN,)), ((1,), (OFTEN,))], HEADER)
    assert text.startswith("torchgraph 4\nvia aot, torch 2.13.0\nmesh tp=2\n")
    again = parse_text(text)
    subject = two(PLAIN, OFTEN)
    assert compare(again, subject, "dataflow") is None
    assert subject.to_text("dataflow") == text
    other = two(PLAIN, PLAIN)
    mismatch = compare(again, other, "dataflow")
    assert mismatch is not None
    assert (mismatch.problem, mismatch.details) == (
        "rank 1 differs from the stored graphs (rank 0 equal)",
        (),
    )


SUITE = """
from dataclasses import replace
from os import environ

from graphs import graph
from pytest_torchgraph.graph import Ref

def test_net(graph_snapshot):
    now = graph()
    if "NAME" in environ:
        leaf = environ["NAME"], Ref("layer.0/relu")
        now = replace(now, output=(leaf,), runs=int(environ.get("RUNS", 1)), counted=True)
    assert now == graph_snapshot
"""


@pytest.mark.slow("runs pytest for a second")
def test_update_adds_facts_to_an_older_file_once(pytester: pytest.Pytester, run: Run) -> None:
    pytester.makepyfile(test_net=SUITE)
    run("--torchgraph-update").assert_outcomes(passed=1)
    ((name, text),) = files(pytester).items()
    (pytester.path / name).write_bytes(text.replace(b"torchgraph 4\n", b"torchgraph 1\n"))
    passed = run(NAME="logits", RUNS="3")
    passed.assert_outcomes(passed=1)
    line = "not compared  __snapshots__/test_net/test_net.tgraph: "
    assert f"{line}return values, run counts (--torchgraph-update adds them)" in passed.outlines

    updated = run("--torchgraph-update", NAME="logits", RUNS="3")
    line = "updated  __snapshots__/test_net/test_net.tgraph: now includes: "
    assert f"{line}return values, run counts" in updated.outlines
    (new,) = files(pytester).values()
    assert new.startswith(b"torchgraph 4\n")
    failed = run(NAME="loss", RUNS="3")
    failed.assert_outcomes(failed=1)
    failed.stdout.fnmatch_lines(["*output 'loss' is new: %layer.0/relu*"])


HOOKED = '''
from pytest_torchgraph.graph import Graph

TEXT = """torchgraph 1

backward @ compiled_autograd {
  %hook = input
  %x = input : f32[4]
  %call_hook = torch._dynamo.external_utils.call_hook(%hook, %x) : f32[4] !opaque
  return %call_hook
}
"""

def test_net(graph_snapshot):
    assert Graph.from_text(TEXT) == graph_snapshot
'''


def test_code_whose_ops_are_unknown_is_listed_as_not_compared(
    pytester: pytest.Pytester, run: Run
) -> None:
    pytester.makepyfile(test_net=HOOKED)
    run("--torchgraph-update").assert_outcomes(passed=1)
    passed = run()
    passed.assert_outcomes(passed=1)
    passed.stdout.fnmatch_lines(
        ["not compared  *test_net.tgraph: ops of Python code: %call_hook in backward"]
    )


CONSTANTS = '''
from os import environ

from pytest_torchgraph.graph import parse_text

TEXT = """torchgraph 4

inference @ aot {
  %x = input : f32[2]
  %c = constant(1.0) : f32[]
  %d = constant(2.0) : f32[]
  %y = aten.mul.Tensor(%x, %c) : f32[2]
  %z = aten.mul.Tensor(%y, %d) : f32[2]
  return %z
}
"""

def test_net(graph_snapshot):
    (now,) = parse_text(TEXT.replace(environ.get("GONE", "-"), "")).graphs
    assert now == graph_snapshot
'''


@pytest.mark.slow("a run of pytest of its own")
def test_value_of_one_of_several_constants_is_added(pytester: pytest.Pytester, run: Run) -> None:
    pytester.makepyfile(test_net=CONSTANTS)
    run("--torchgraph-update", GONE="(2.0)").assert_outcomes(passed=1)
    line = "not compared  __snapshots__/test_net/test_net.tgraph: values of constants"
    assert f"{line} (--torchgraph-update adds them)" in run().outlines
    line = "updated  __snapshots__/test_net/test_net.tgraph: now includes: values of constants"
    assert line in run("--torchgraph-update").outlines
    assert not any("not compared" in line for line in run().outlines)
