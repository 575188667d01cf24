"""Coexistence with syrupy: neither plugin touches the other's files."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from projects import Run, files

MIXED = """
import os
import pytest
from graphs import graph

def test_first():
    pass

@pytest.mark.parametrize("device", ["cpu", "cuda:0"])
def test_step(device, graph_snapshot):
    assert graph() == graph_snapshot
    assert graph() == graph_snapshot(name="second")

def test_text(snapshot):
    assert os.environ.get("TEXT", "text") == snapshot

class TestLast:
    def test_last(self, graph_snapshot):
        assert graph() == graph_snapshot
"""


@pytest.fixture
def mixed(pytester: pytest.Pytester, store: Callable[..., dict[str, bytes]]) -> dict[str, bytes]:
    """A project with graphs and a text of syrupy, all stored."""
    pytester.makepyfile(test_mixed=MIXED)
    stored_files = store("--snapshot-update", passed=5)
    assert len(stored_files) == 6, sorted(stored_files)
    return stored_files


def test_syrupy_reports_no_stale_graph_and_still_removes_its_own(
    pytester: pytest.Pytester, run: Run, mixed: dict[str, bytes]
) -> None:
    text = 'def test_text(snapshot):\n    assert "text" == snapshot'
    pytester.makepyfile(test_mixed=text)
    result = run()
    result.assert_outcomes(passed=1)
    assert result.ret == 0
    assert "unused" not in result.stdout.str()
    assert files(pytester) == mixed
    pytester.makepyfile(test_mixed=f'{text}(name="other")')
    result = run("--snapshot-update")
    result.assert_outcomes(passed=1)
    syrupys = result.stdout.str().partition("stored graphs")[0]
    assert "tgraph" not in syrupys
    now = files(pytester)
    assert sorted(now) == sorted(mixed)
    amber = now["__snapshots__/test_mixed.ambr"]
    assert b"test_text[other]" in amber
    assert b"# name: test_text\n" not in amber


def test_torchgraph_update_keeps_snapshots_of_syrupy(
    pytester: pytest.Pytester, run: Run, mixed: dict[str, bytes]
) -> None:
    result = run("--torchgraph-update", TEXT="changed", OP="gelu")
    result.assert_outcomes(passed=4, failed=1)
    result.stdout.fnmatch_lines(["FAILED test_mixed.py::test_text*"])
    now = files(pytester)
    changed = {path for path in now if now[path] != mixed[path]}
    assert changed == {path for path in mixed if path.endswith(".tgraph")}


@pytest.mark.slow("a run of pytest of its own")
def test_syrupys_update_flags_update_graphs_as_well(
    pytester: pytest.Pytester, run: Run, mixed: dict[str, bytes]
) -> None:
    result = run("--snapshot-update", OP="gelu")
    result.assert_outcomes(passed=5)
    result.stdout.fnmatch_lines(["updated  __snapshots__/test_mixed/TestLast.test_last.tgraph: *"])
    last = pytester.path / "__snapshots__/test_mixed/TestLast.test_last.tgraph"
    last.unlink()
    result = run("--snapshot-update-new-only")
    result.assert_outcomes(passed=3, failed=2)
    assert last.exists()
    run("-k", "last").assert_outcomes(passed=1, deselected=4)


def test_ignored_and_temporary_files_stay(
    pytester: pytest.Pytester, run: Run, mixed: dict[str, bytes]
) -> None:
    others = {
        f"__snapshots__/test_mixed/{name}": b"mine"
        for name in ("notes.md", ".0123456789abcdef.tgraph-tmp")
    }
    for name, content in others.items():
        (pytester.path / name).write_bytes(content)
    result = run("--snapshot-update", "--snapshot-ignore-file-extensions=md")
    result.assert_outcomes(passed=5)
    assert result.ret == 0
    assert files(pytester) == {**mixed, **others}


def test_comparison_texts_are_freed_before_the_session_ends(
    pytester: pytest.Pytester, run: Run, mixed: dict[str, bytes]
) -> None:
    pytester.makeconftest(
        """
        def pytest_sessionfinish(session):
            results = [
                result
                for assertion in session.config._syrupy._assertions
                for result in assertion.executions.values()
                if result.snapshot_location.endswith(".tgraph")
            ]
            kept = [r for r in results if r.asserted_data or r.recalled_data or r.exception]
            print(f"results: {len(results)}, kept: {len(kept)}")
        """
    )
    result = run("-s", OP="gelu")
    result.assert_outcomes(passed=2, failed=3)
    result.stdout.fnmatch_lines(["*results: 3, kept: 0"])
