"""`pytest-torchgraph merge`: one page from the pages of several runs."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from projects import Run
from report.audits import broken_at, compiling, made

from pytest_torchgraph.cli import main
from pytest_torchgraph.report.page.gather import read_page
from pytest_torchgraph.report.page.html import Parts
from pytest_torchgraph.report.page.html import page as html_of
from pytest_torchgraph.report.page.run_data import RunData
from pytest_torchgraph.report.surfaces.document import audit_document

NET = """
    import os

    import pytest
    from graphs import graph


    @pytest.mark.parametrize("number", range(2))
    def test_chain(graph_snapshot, number):
        assert graph() == graph_snapshot


    def test_without_graphs():
        pass
"""
OTHER = """
    from graphs import graph


    def test_block(graph_snapshot):
        assert graph() == graph_snapshot


    def test_block_again(graph_snapshot):
        assert graph() == graph_snapshot


    def test_wrong(graph_snapshot):
        assert graph() == graph_snapshot
        raise ValueError("no such thing")
"""


@pytest.fixture
def shards(pytester: pytest.Pytester, run: Run) -> tuple[Path, Path]:
    """Write the pages of two shards whose comparisons all fail because of the same edit."""
    pytester.makepyfile(test_net=NET, test_other=OTHER)
    run("--torchgraph-update")
    run("--torchgraph-report=1.html", "test_net.py", OP="gelu").assert_outcomes(failed=2, passed=1)
    run("--torchgraph-report=2.html", "test_other.py", OP="gelu").assert_outcomes(failed=3)
    return pytester.path / "1.html", pytester.path / "2.html"


def merged(out: Path, *pages: Path) -> dict[str, Any]:
    assert main(["merge", *map(str, pages), "-o", str(out)]) == 0
    return read_page(out)[0]


def test_merge_of_an_edit_in_two_shards_is_one_cause(
    shards: tuple[Path, Path], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "all.html"
    data = merged(out, *shards)
    assert capsys.readouterr().out == f"{out}: 5 tests from 2 pages, 5 failed\n"
    assert [test["id"] for test in data["tests"]] == [
        "test_net.py::test_chain[0]",
        "test_net.py::test_chain[1]",
        "test_other.py::test_block",
        "test_other.py::test_block_again",
        "test_other.py::test_wrong",
    ]
    (cause,) = data["causes"]["list"]
    assert data["causes"]["heading"] == "1 cause in 5 tests"
    assert len(cause["files"]) == 5
    assert data["about"].endswith("1 further test without graphs; 2 pages merged")
    assert {**merged(out, out), "run": ""} == {**data, "run": ""}  # a page into itself


def test_merge_joins_the_audits_of_shards(tmp_path: Path) -> None:
    clean, broken = compiling(), compiling(broken_at(7))
    facts = [
        {"test_a.py::test_0": broken},
        {"test_b.py::test_1": broken, "test_b.py::test_2": clean},
    ]
    every = {**facts[0], **facts[1]}
    before = dict.fromkeys(every, clean)
    pages = []
    for number, shard in enumerate(facts):
        parts = Parts()
        run = RunData(
            versions={"torch": f"2.{number}", "pytest": "9.0", "Python": ""},
            audit=audit_document(made(shard, before, said=("worse",))),
            facts={test: each.to_json() for test, each in shard.items()},
        )
        pages.append(tmp_path / f"{number}.html")
        pages[-1].write_text(html_of(run.data(parts), parts.texts), "utf-8")
    data = merged(tmp_path / "all.html", *pages)
    whole = audit_document(made(every, before, said=("worse",)))
    assert data["audit"]["causes"] == whole["causes"]
    assert data["audit"]["totals"] == whole["totals"]
    assert data["audit"]["baseline"]["verdict"] == whole["baseline"]["verdict"]
    assert data["about"] == "torch 2.0 and 2.1, pytest 9.0; 2 pages merged"
