"""Stored graphs together with other pytest plugins, each of them the real one."""

from __future__ import annotations

from pathlib import Path

import pytest
from projects import Run, files, section

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
def suite(pytester: pytest.Pytester, run: Run) -> dict[str, bytes]:
    """A project with two test files of stored graphs, and one stale graph."""
    pytester.makeini("[pytest]\nmarkers = xdist_group: tests that one worker runs")
    pytester.makepyfile(test_net=SUITE, test_other=SUITE)
    run(UPDATE).assert_outcomes(passed=14)
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


@pytest.mark.slow("the same with another process, plugin, option or mechanism")
@pytest.mark.parametrize("workers", [(), XDIST], ids=["one", "n2"])
def test_rerunfailures(
    pytester: pytest.Pytester, run: Run, suite: dict[str, bytes], workers: tuple[str, ...]
) -> None:
    pytest.importorskip("pytest_rerunfailures")
    pytester.makepyfile(
        test_flaky="""
        import pytest
        from graphs import graph
        tries = []

        def test_flaky(graph_snapshot):
            tries.append(1)
            assert graph("mm" if len(tries) > 1 else "relu") == graph_snapshot
            assert graph() == graph_snapshot
        """
    )
    reruns = ("-p", "rerunfailures", "--reruns=2", *workers)
    result = run(*reruns, UPDATE)
    result.assert_outcomes(passed=15)
    flaky = "__snapshots__/test_flaky/test_flaky.tgraph"
    result.stdout.fnmatch_lines([f"created  {flaky}: forward 1 op"])
    assert b"aten.relu" in files(pytester)[flaky], "no assertion failed, so no test was rerun"

    Path(flaky).write_bytes(Path(flaky).read_bytes().replace(b"relu", b"mm"))
    before = files(pytester)
    result = run(*reruns, PRUNE)
    result.assert_outcomes(passed=15)
    assert "1 rerun" in result.stdout.str()
    assert before.keys() - files(pytester).keys() == {"__snapshots__/test_net/test_gone.tgraph"}
    assert "- torchgraph -" not in result.stdout.str()

    result = run(*reruns, OP="gelu", PYTEST_ADDOPTS="-k flaky")
    result.assert_outcomes(failed=1, deselected=14 if not workers else 0)
    assert section(result)[0] == "1 edit: aten.relu -> aten.gelu in layer.0", (
        "once, whatever ran again"
    )


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

{fixture}

def test_both(snapshot, graph_snapshot):
    assert graph() == graph_snapshot
    assert os.environ.get("TEXT", "text") == snapshot
    assert graph("mm") == graph_snapshot(name="other")
"""
OWN_FIXTURES = {
    "amber": "",
    "another extension of syrupy": """
from syrupy.extensions.json import JSONSnapshotExtension

@pytest.fixture
def snapshot(snapshot):
    return snapshot.use_extension(JSONSnapshotExtension)
""",
    "another plugin's": """
@pytest.fixture
def snapshot():
    return "text"
""",
}


@pytest.mark.slow("further cases; a few are in every run", unless=["another plugin's"])
@pytest.mark.parametrize("whose", OWN_FIXTURES)
def test_snapshot_fixture_of_the_users_own(pytester: pytest.Pytester, run: Run, whose: str) -> None:
    pytester.makepyfile(test_net=OWN.format(fixture=OWN_FIXTURES[whose]))
    run(UPDATE, "--snapshot-update").assert_outcomes(passed=1)
    before = files(pytester)
    graphs = {path for path in before if path.endswith(".tgraph")}
    assert len(graphs) == 2
    assert len(before) == (2 if "plugin" in whose else 3)
    run().assert_outcomes(passed=1)
    run(UPDATE, TEXT="other").assert_outcomes(failed=1)
    assert files(pytester) == before
    run(UPDATE, OP="gelu").assert_outcomes(passed=1)
    now = files(pytester)
    assert {path for path in before if now[path] != before[path]} == {
        "__snapshots__/test_net/test_both.tgraph"
    }
    if "plugin" not in whose:
        run("--snapshot-update", TEXT="other", OP="gelu").assert_outcomes(passed=1)
        later = files(pytester)
        assert {path for path in later if later[path] != now[path]} == before.keys() - graphs
