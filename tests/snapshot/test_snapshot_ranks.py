"""`ranks == graph_snapshot`: equal ranks are stored once, and a difference names its ranks."""

from __future__ import annotations

import re
from collections.abc import Callable

import pytest
from projects import Run, files, section, stored_graphs

FILE = "__snapshots__/test_net/test_step.tgraph"

RANKS = '''
"""Ranks without torch; the variable RANKS has the ops of each, "relu * 4; gelu" for five ranks."""
import json
import os

from graphs import Capture, graph


class Ranks(list):
    mesh = {"dp": 2, "tp": 4}

    @property
    def world_size(self):
        return 8

    @property
    def ranks(self):
        return tuple(json.loads(os.environ.get("NUMBERS", "[0, 1, 2, 3, 4, 5, 6, 7]")))


def ranks():
    made = Ranks()
    made.mesh = json.loads(os.environ.get("MESH", '{"dp": 2, "tp": 4}'))
    for each in os.environ.get("RANKS", "relu * 8").split(";"):
        ops, _, times = each.partition("*")
        for _ in range(int(times or 1)):
            made.append(Capture(graph(*ops.split(), stride=os.environ.get("STRIDE", ""))))
    return made
'''

STEP = """
import os
from collective import Ranks, ranks
from graphs import Capture, graph

def test_step(graph_snapshot):
    value = Capture(graph()) if "ONE" in os.environ else ranks()
    assert value == graph_snapshot(detail=os.environ.get("DETAIL"))
"""


@pytest.fixture
def stored(pytester: pytest.Pytester, run: Run, store: Callable[..., object]) -> Run:
    """A project with eight stored ranks, all of them relu and gelu."""
    pytester.makepyfile(test_net=STEP, collective=RANKS)
    store(passed=1, RANKS="relu gelu * 8")
    return run


def text(pytester: pytest.Pytester) -> str:
    return files(pytester)[FILE].decode()


def headings(pytester: pytest.Pytester) -> list[str]:
    return re.findall(r"^ranks? .*", text(pytester), re.MULTILINE)


def test_equal_ranks_are_stored_once(stored: Run, pytester: pytest.Pytester) -> None:
    head = "torchgraph 4\nvia aot, torch 2.13.0\nmesh dp=2, tp=4\n\nranks 0-7\n\nforward {\n"
    assert text(pytester).startswith(head)
    assert text(pytester).count("forward {") == 1
    before = files(pytester)
    stored(RANKS="relu gelu * 8").assert_outcomes(passed=1)
    again = stored("--torchgraph-update", RANKS="relu gelu * 8")
    assert stored_graphs(again) == [f"unchanged  {FILE}"]
    assert files(pytester) == before


def test_missing_ranks_snapshot_fails(pytester: pytest.Pytester, run: Run) -> None:
    pytester.makepyfile(test_net=STEP, collective=RANKS)
    result = run(RANKS="relu * 4; gelu * 4")
    result.assert_outcomes(failed=1)
    result.stdout.fnmatch_lines(["*no graph is stored for this comparison yet*"])
    assert files(pytester) == {}
    update = run("--torchgraph-update", RANKS="relu * 4; gelu * 4")
    what = "ranks 0-3: forward 1 op; ranks 4-7: forward 1 op"
    assert stored_graphs(update) == [f"created  {FILE}: {what}"]


def test_differing_ranks_are_named(stored: Run) -> None:
    result = stored(RANKS="relu gelu * 3; relu gelu neg * 1; relu gelu * 4")
    result.assert_outcomes(failed=1)
    says = "rank 3 differs from the stored graphs (ranks 0-2, 4-7 equal): 1 edit: aten.neg added"
    result.stdout.fnmatch_lines([f"*graphs == stored: {says}*"])
    lines = section(result)
    assert lines[0].startswith(says)
    assert lines[1] == "rank 3:"
    assert sum(line.startswith("  + added in") for line in lines) == 1


def test_edit_in_several_rank_classes_is_reported_once(
    stored: Run, pytester: pytest.Pytester
) -> None:
    update = stored("--torchgraph-update", RANKS="relu gelu * 4; relu gelu * 3; relu neg * 1")
    ranks = "rank 7 differs from the stored graphs (ranks 0-6 equal)"
    what = f"{ranks}: 1 edit: aten.gelu -> aten.neg in layer.1"
    assert stored_graphs(update) == [f"updated  {FILE}: {what}"]
    assert headings(pytester) == ["ranks 0-6", "rank 7"]

    result = stored(RANKS="sin gelu * 4; cos gelu * 3; sin neg * 1")
    result.assert_outcomes(failed=1)
    lines = section(result)
    assert lines[0].startswith("ranks 0-7 differ from the stored graphs: 2 edits")
    assert [line for line in lines if line.startswith("rank")][1:] == [
        "ranks 0-3, 7:",
        "ranks 4-6:",
    ]
    assert sum("aten.relu.default" in line for line in lines) == 2


@pytest.mark.slow("runs pytest in a new process", unless=["order of dimensions"])
@pytest.mark.parametrize(
    ("env", "problem", "lines"),
    [
        (
            {"MESH": '{"tp": 4, "dp": 2}'},
            "the captured mesh differs from the stored mesh",
            ["stored:  ranks 0-7 of dp=2, tp=4", "now:     ranks 0-7 of tp=4, dp=2"],
        ),
        (
            {"NUMBERS": "[0, 7]", "RANKS": "relu gelu * 2"},
            "captured ranks differ from the stored ranks",
            ["stored:  ranks 0-7 of dp=2, tp=4", "now:     ranks 0, 7 of dp=2, tp=4"],
        ),
        (
            {"ONE": "1"},
            "cannot compare a single capture with ranks",
            ["stored:  ranks 0-7 of dp=2, tp=4", "now:     single capture"],
        ),
        (
            {"DETAIL": "full"},
            "the stored file has only detail 'dataflow', but the comparison needs 'full'",
            ["compare with graph_snapshot(detail='dataflow'), or store the graph again"],
        ),
    ],
    ids=["order of dimensions", "other ranks", "one capture", "detail"],
)
def test_incomparable_ranks_are_refused(
    stored: Run, pytester: pytest.Pytester, env: dict[str, str], problem: str, lines: list[str]
) -> None:
    env = {"RANKS": "relu gelu * 8", **env}
    result = stored(**env)
    result.assert_outcomes(failed=1)
    assert section(result)[: 1 + len(lines)] == [problem, *lines]
    stored("--torchgraph-update", **env).assert_outcomes(passed=1)
    stored(**env).assert_outcomes(passed=1)


def test_empty_ranks_fail(stored: Run) -> None:
    for args in ((), ("--torchgraph-update",)):
        result = stored(*args, RANKS="relu * 0", NUMBERS="[]")
        result.assert_outcomes(failed=1)
        result.stdout.fnmatch_lines(["E * nothing to compare: no rank was captured*"])


def test_artifacts_of_differing_ranks(stored: Run, pytester: pytest.Pytester) -> None:
    art = pytester.path / "art"
    result = stored(
        f"--torchgraph-artifacts={art}", RANKS="relu neg * 1; relu gelu * 3; relu sin * 4"
    )
    result.assert_outcomes(failed=1)
    names = {path.name.partition(".test_step-")[2].partition(".")[2] for path in art.iterdir()}
    assert {"received.tgraph", "expected.tgraph", "diff", "rank-0.txt", "rank-4.txt"} <= names
    (diff,) = art.glob("*.diff")
    lines = diff.read_text().splitlines()
    assert [line for line in lines if line.startswith("-r")] == ["-ranks 0-7"]
    assert [line for line in lines if "rank" in line and line.startswith("+")] == [
        "+rank 0",
        "+ranks 1-3",
        "+ranks 4-7",
    ]
    (received,) = art.glob("*.received.tgraph")
    assert received.read_text().startswith("torchgraph 4\n")
