"""Stored graphs together with other pytest plugins, each of them the real one."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from projects import Run, files

UPDATE, PRUNE = "--torchgraph-update", "--torchgraph-prune"
XDIST = ("-p", "xdist", "-n2")
SUITE = """
import os
import pytest
from graphs import graph

def test_plain():
    pass

@pytest.mark.xdist_group("one")
@pytest.mark.parametrize("size", [1, 2, 3, 4])
def test_sized(size, graph_snapshot):
    assert graph(*["mm"] * size) == graph_snapshot
    assert graph(*["relu"] * size) == graph_snapshot

class TestNet:
    @pytest.mark.xdist_group("two")
    @pytest.mark.parametrize("size", [1, 2])
    def test_step(self, size, graph_snapshot):
        assert graph() == graph_snapshot(name="a")
"""


@pytest.fixture
def suite(pytester: pytest.Pytester, store: Callable[..., dict[str, bytes]]) -> dict[str, bytes]:
    """A project with two test files of stored graphs, and one stale graph."""
    pytester.makeini("[pytest]\nmarkers = xdist_group: tests that one worker runs")
    pytester.makepyfile(test_net=SUITE, test_other=SUITE)
    store(passed=14)
    stale = Path("__snapshots__/test_net/test_gone.tgraph")
    stale.write_bytes(Path("__snapshots__/test_net/test_sized[1].tgraph").read_bytes())
    stored_files = files(pytester)
    assert len(stored_files) == 21
    return stored_files


def stays_the_same(
    pytester: pytest.Pytester, run: Run, before: dict[str, bytes], *arguments: str
) -> None:
    """Check that comparing, updating and pruning work beside a plugin as without it."""
    result = run(*arguments, UPDATE, PRUNE)
    result.assert_outcomes(passed=14)
    result.stdout.fnmatch_lines(["removed  __snapshots__/test_net/test_gone.tgraph"])
    now = files(pytester)
    assert before.keys() - now.keys() == {"__snapshots__/test_net/test_gone.tgraph"}
    assert all(now[path] == before[path] for path in now)
    result = run(*arguments, UPDATE, OP="gelu")
    result.assert_outcomes(passed=14)
    updated = [line for line in result.outlines if line.startswith("updated  ")]
    assert len(updated) == 4
    run(*arguments, OP="gelu").assert_outcomes(passed=14)
    assert len(files(pytester)) == 20


@pytest.mark.slow("runs pytest in a new process")
def test_all_companion_plugins_at_once(
    pytester: pytest.Pytester, run: Run, suite: dict[str, bytes]
) -> None:
    for name in ("pytest_randomly", "pytest_rerunfailures", "pytest_html"):
        pytest.importorskip(name)
    stays_the_same(
        pytester,
        run,
        suite,
        *("-p", "randomly", "-p", "rerunfailures", "--reruns=1", *XDIST),
        *("-p", "html", "-p", "metadata", "--html=out.html"),
    )


OWN = """
import os
import pytest
from graphs import graph

@pytest.fixture
def snapshot():
    return "text"

def test_both(snapshot, graph_snapshot):
    assert graph() == graph_snapshot
    assert os.environ.get("TEXT", "text") == snapshot
    assert graph("mm") == graph_snapshot(name="other")
"""


@pytest.mark.slow("a run of pytest of its own")
def test_snapshot_fixture_of_the_users_own(pytester: pytest.Pytester, run: Run) -> None:
    pytester.makepyfile(test_net=OWN)
    run(UPDATE, "--snapshot-update").assert_outcomes(passed=1)
    before = files(pytester)
    assert len(before) == 2
    run(UPDATE, TEXT="other").assert_outcomes(failed=1)
    assert files(pytester) == before
    run(UPDATE, OP="gelu").assert_outcomes(passed=1)
    now = files(pytester)
    assert {path for path in before if now[path] != before[path]} == {
        "__snapshots__/test_net/test_both.tgraph"
    }
