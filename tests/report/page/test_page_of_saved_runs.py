"""The page of the difference of two saved runs, in a browser."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from pytest_torchgraph import GraphBreak
from pytest_torchgraph.cli import main
from pytest_torchgraph.runs import RunInfo, RunWriter, SavedRecord

CUT = GraphBreak("</script><b>x</b>", "why", "", "m.py", 7, "if x.sum() > 0:", "f", (), "", "")


def saved(directory: Path, *breaks: GraphBreak) -> str:
    info = RunInfo(directory.name, "2.13.0")
    writer = RunWriter(directory, info)
    writer.prepare()
    record = SavedRecord("passed", compiles=True, breaks=breaks)
    for number in range(12):
        writer.write_record(f"test_a.py::test_<b>[{number}]", record)
    writer.write_record("test_a.py::test_other", SavedRecord("failed"))
    writer.write_info(replace(info, complete=True))
    return str(directory)


def test_page_opens_with_the_causes(opened: Any, tmp_path: Path) -> None:
    path = tmp_path / "page.html"
    runs = [saved(tmp_path / "base"), saved(tmp_path / "head", CUT)]
    assert main(["diff", *runs, "-o", str(path)]) == 1
    page = opened.open(path)
    assert page.locator("main h2").inner_text() == "1 cause in 12 of 12 tests"
    cause, rest = page.locator(".cause").all_inner_texts()
    assert "graph break added at m.py:7 in f: if x.sum() > 0:" in cause
    assert "\nm.py:7: if x.sum() > 0\n" in cause
    assert "2 more" in cause
    assert "not compared, 1 test, failed in both runs" in rest
    assert "test_a.py::test_<b>[0]" in cause
    assert not page.locator("nav").is_visible()
    page.get_by_role("button", name="print").evaluate(
        "button => { window.print = () => {}; button.click(); }"
    )
    page.locator(".paper").wait_for()
    assert "No test failed" not in page.locator(".paper").inner_text()


def test_page_without_causes(
    opened: Any, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run = saved(tmp_path / "base")
    assert main(["diff", run, run, "-o", str(tmp_path / "page.html")]) == 0
    page = opened.open(tmp_path / "page.html")
    assert page.locator("main h2").inner_text() == "no difference in 12 tests"
