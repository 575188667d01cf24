"""`--torchgraph-update`: what it writes, what it says, what it leaves alone."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from projects import Run, files

SUITE = """
import pytest
from graphs import graph

@pytest.mark.parametrize("size", [1, 2, 3])
def test_sized(size, graph_snapshot):
    assert graph("mm", *["relu"] * size) == graph_snapshot

def test_step(graph_snapshot):
    assert graph() == graph_snapshot
    assert graph() == graph_snapshot(name="again")
"""


@pytest.mark.parametrize("workers", [(), ("-p", "xdist", "-n2")])
def test_an_update_lists_what_it_wrote_and_a_second_one_writes_nothing(
    pytester: pytest.Pytester, run: Run, workers: tuple[str, ...]
) -> None:
    pytester.makepyfile(test_net=SUITE)
    names = ["test_sized[1]", "test_sized[2]", "test_sized[3]", "test_step", "test_step[again]"]
    paths = [f"__snapshots__/test_net/{name}.tgraph" for name in names]

    def listed(result: pytest.RunResult) -> list[str]:
        return [line for line in result.outlines if line.startswith(("created  ", "updated  "))]

    result = run(*workers, "--torchgraph-update")
    result.assert_outcomes(passed=4)
    assert listed(result) == [f"created  {path}" for path in paths]
    result.stdout.fnmatch_lines(["=* stored graphs =*"])
    before = files(pytester)
    assert sorted(before) == paths
    times = {path: os.stat(pytester.path / path).st_mtime_ns for path in paths}

    again = run(*workers, "--torchgraph-update")
    again.assert_outcomes(passed=4)
    assert listed(again) == []
    assert "stored graphs" not in again.stdout.str()
    assert files(pytester) == before
    assert {path: os.stat(pytester.path / path).st_mtime_ns for path in paths} == times

    changed = run(*workers, "--torchgraph-update", OP="gelu")
    changed.assert_outcomes(passed=4)
    assert listed(changed) == [f"updated  {path}" for path in paths[3:]]
    run(*workers, OP="gelu").assert_outcomes(passed=4)


def test_only_the_graphs_of_the_tests_that_run_are_written(
    pytester: pytest.Pytester, run: Run
) -> None:
    pytester.makepyfile(test_net=SUITE)
    run("--torchgraph-update", "-k", "test_step").assert_outcomes(passed=1, deselected=3)
    assert sorted(files(pytester)) == [
        "__snapshots__/test_net/test_step.tgraph",
        "__snapshots__/test_net/test_step[again].tgraph",
    ]


def test_what_was_written_before_a_test_failed_is_listed(
    pytester: pytest.Pytester, run: Run
) -> None:
    pytester.makepyfile(
        test_net="""
        from graphs import graph

        def test_step(graph_snapshot):
            assert graph() == graph_snapshot
            assert 0
        """
    )
    result = run("--torchgraph-update")
    result.assert_outcomes(failed=1)
    result.stdout.fnmatch_lines(["created  __snapshots__/test_net/test_step.tgraph"])


def test_two_graphs_under_one_name_cannot_both_be_stored(
    pytester: pytest.Pytester, run: Run
) -> None:
    pytester.makepyfile(
        test_net="""
        from graphs import graph

        def test_step(graph_snapshot):
            for op in ("relu", "relu", "gelu"):
                assert graph(op) == graph_snapshot(name="step")
        """
    )
    result = run("--torchgraph-update")
    result.assert_outcomes(failed=1)
    result.stdout.fnmatch_lines(["this very test stored another graph there: give each a name="])
    assert b"aten.relu" in next(iter(files(pytester).values()))


def test_the_update_flag_cannot_be_set_in_a_file(pytester: pytest.Pytester, run: Run) -> None:
    pytester.makeini("[pytest]\ntorchgraph_update = true")
    pytester.makepyfile(test_net=SUITE)
    run("-W", "ignore").assert_outcomes(failed=4)
    assert files(pytester) == {}


def test_an_update_that_is_interrupted_while_writing_keeps_the_old_file(
    pytester: pytest.Pytester, project: Run, stored: Path
) -> None:
    before = stored.read_bytes()
    pytester.makeconftest(
        """
        import os

        def replace(*args):
            raise KeyboardInterrupt

        os.replace = replace
        """
    )
    result = project("--torchgraph-update", "-p", "no:cacheprovider", OP="gelu")
    assert result.ret == pytest.ExitCode.INTERRUPTED
    assert files(pytester) == {"__snapshots__/test_net/test_step.tgraph": before}
