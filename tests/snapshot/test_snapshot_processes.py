"""Stored graphs under torchrun with several processes, each of them with its own files."""

from __future__ import annotations

import pytest
from projects import Run, files, section, stored_graphs

from pytest_torchgraph.settings.config import rank_of_process

HOME = "__snapshots__/test_net"

STEP = """
from graphs import Capture, graph

def test_step(graph_snapshot):
    assert Capture(graph()) == graph_snapshot
"""


def process(rank: int, world: int = 2) -> dict[str, str]:
    """Return the environment of one process, as torchrun sets it."""
    return {"RANK": str(rank), "WORLD_SIZE": str(world), "OP": f"relu {'gelu ' * rank}".strip()}


def of(rank: int, world: int = 2, release: str = "") -> str:
    return f"{HOME}/test_step@rank-{rank}-of-{world}{release}.tgraph"


@pytest.fixture
def both(pytester: pytest.Pytester, run: Run) -> Run:
    """A project with stored graphs for both ranks, different for each."""
    pytester.makepyfile(test_net=STEP)
    for rank in (0, 1):
        update = run("--torchgraph-update", **process(rank))
        assert stored_graphs(update) == [f"created  {of(rank)}: forward {rank + 1} op{'s' * rank}"]
    return run


@pytest.mark.slow("a run of pytest of its own")
def test_each_rank_compares_with_its_own_file(both: Run, pytester: pytest.Pytester) -> None:
    before = files(pytester)
    assert sorted(before) == [of(0), of(1)]
    for rank in (0, 1):
        both(**process(rank)).assert_outcomes(passed=1)
    both(**process(0)).assert_outcomes(passed=1)
    result = both(**process(1) | {"OP": "relu"})
    result.assert_outcomes(failed=1)
    lines = section(result)
    assert f"file:    {of(1)}" in lines
    command = "torchrun --nproc-per-node=2 -m pytest test_net.py::test_step --torchgraph-update"
    assert f"accept:  {command}" in lines
    assert files(pytester) == before


@pytest.mark.slow("runs pytest in a new process")
def test_process_files_differ_by_world_size(both: Run, pytester: pytest.Pytester) -> None:
    for env in ({}, process(1, 4)):
        result = both(**env)
        result.assert_outcomes(failed=1)
        result.stdout.fnmatch_lines(["*no graph is stored for this comparison yet*"])
        said = "RANK and WORLD_SIZE are set, so this process is rank-1-of-4 and has a stored file"
        assert (said in result.stdout.str()) is bool(env)
    before = files(pytester)
    both("--torchgraph-update").assert_outcomes(passed=1)
    assert files(pytester).keys() - before.keys() == {f"{HOME}/test_step.tgraph"}
    assert before.items() <= files(pytester).items()


@pytest.mark.slow("runs pytest several times")
def test_rank_keeps_files_of_other_ranks(both: Run, pytester: pytest.Pytester) -> None:
    both("--torchgraph-update").assert_outcomes(passed=1)
    pytester.makepyfile(test_net=STEP.replace("test_step", "test_other"))
    for env in ({}, process(1)):
        both("--torchgraph-update", **env).assert_outcomes(passed=1)
    stale = {1: of(1), None: f"{HOME}/test_step.tgraph"}
    for rank, path in stale.items():
        env = {} if rank is None else process(rank)
        before = files(pytester)
        assert stored_graphs(both(**env)) == [
            f"stale, no test compares them: {path} (--torchgraph-prune removes them)"
        ]
        assert stored_graphs(both("--torchgraph-prune", **env)) == [f"removed  {path}"]
        assert before.keys() - files(pytester).keys() == {path}
    assert of(0) in files(pytester)


@pytest.mark.slow("runs pytest in a new process")
def test_texts_pages_and_json_of_two_processes(both: Run, pytester: pytest.Pytester) -> None:
    options = ("--torchgraph-artifacts=art", "--torchgraph-report=page.html")
    for rank in (0, 1):
        both(*options, "--torchgraph-json=run.json", **process(rank) | {"OP": "sin"})
    names = sorted(path.name for path in (pytester.path / "art").iterdir())
    ranks = [name for name in names if "@rank-0-of-2." in name]
    assert [name.replace("@rank-0", "@rank-1") for name in ranks] != ranks
    ends = {name.rpartition("@rank-0-of-2")[2] for name in ranks}
    assert {".expected.tgraph", ".received.tgraph", ".diff", ".txt"} <= ends
    others = [name for name in names if "@rank-1-of-2." in name]
    assert {name.rpartition("@rank-1-of-2")[2] for name in others} == ends
    assert len(names) == 2 * len(ranks)
    for name in ("page.html", "page@rank-1-of-2.html", "run.json", "run@rank-1-of-2.json"):
        assert (pytester.path / name).is_file(), name


@pytest.mark.slow("runs pytest in a new process")
def test_ranks_and_releases(pytester: pytest.Pytester, run: Run) -> None:
    pytester.makepyfile(test_net=STEP)
    pytester.makeini("[pytest]\ntorchgraph_releases = 2.0 2.13\n")
    run("--torchgraph-update", **process(1)).assert_outcomes(passed=1)
    assert sorted(files(pytester)) == [of(1, release="@torch-2.13")]
    run(**process(1)).assert_outcomes(passed=1)


@pytest.mark.parametrize(
    ("rank", "world", "expected"),
    [
        ("1", "2", "rank-1-of-2"),
        ("0", "2", "rank-0-of-2"),
        ("0", "1", ""),
        ("", "", ""),
        ("0", "", ""),
        ("2", "2", ""),
        ("-1", "2", ""),
        ("one", "2", ""),
        ("²", "4", ""),
        ("01", "02", "rank-1-of-2"),
    ],
)
def test_process_suffix_of_rank_and_world(rank: str, world: str, expected: str) -> None:
    assert rank_of_process({"RANK": rank, "WORLD_SIZE": world}) == expected
    assert rank_of_process({}) == ""
