"""`pytest-torchgraph diff` of directories, and its output formats."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest
from cli.conftest import Run

from pytest_torchgraph import diff
from pytest_torchgraph.cli import main

OLD = """torchgraph 1
via aot, torch 2.13.0

forward {
  %x = input : f32[2, 4]
  %fc/relu = aten.relu.default(%x) : f32[2, 4]
  return %fc/relu
}
"""
NEW = OLD.replace("relu", "tanh")
COUNTS = "torchgraph 1\nvia aot, torch 2.13.0, detail ops\n\nforward {\n  1 aten.relu.default\n}\n"


@pytest.fixture
def directories(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    for side, text in (("old", OLD), ("new", NEW), ("equal", OLD)):
        Path(side, "sub").mkdir(parents=True)
        for name in ("a", "sub/b"):
            Path(side, f"{name}.tgraph").write_text(text)
    return tmp_path


def test_compare_prints_each_cause_once(directories: Path, run: Run) -> None:
    assert run("diff", "old", "new", code=1).splitlines() == [
        "2 of 2 files differ by 1 cause",
        "~ aten.relu -> aten.tanh in fc  (2 files)",
        "    before  %fc/relu = aten.relu.default(%x) : f32[2, 4]",
        "    after   %fc/tanh = aten.tanh.default(%x) : f32[2, 4]",
        "    in a.tgraph, sub/b.tgraph",
    ]
    same = run("diff", "old", "equal", code=0)
    assert same == "no difference in 2 files\n"


def test_compare_with_an_unreadable_file_exits_2_and_shows_the_rest(
    directories: Path, run: Run
) -> None:
    Path("new/a.tgraph").write_text("what\n")
    output = run("diff", "old", "new", code=2)
    assert "! new/a.tgraph:1:1: " in output
    assert "aten.relu -> aten.tanh" in output
    data = json.loads(run("diff", "old", "new", "--format=json", code=2))
    assert "new/a.tgraph:1:1" in data["files"]["unreadable"]["a.tgraph"]


@pytest.mark.parametrize(
    ("words", "what"),
    [
        (("old",), "--torchgraph-artifacts=DIR, which saves failed"),
        (("old", "none"), "none"),
        (("old", "new/a.tgraph"), "is a directory"),
        (("old/a.tgraph",), "old/a.tgraph"),
        (("old", "new", "--rank=0"), "leave out --rank"),
        (("x", "x"), ".tgra"),
    ],
)
def test_compare_of_incomparable_paths_exits_2(
    directories: Path, words: tuple[str, ...], what: str, capsys: pytest.CaptureFixture[str]
) -> None:
    Path("x").mkdir()
    assert main(("diff", *words)) == 2
    out, err = capsys.readouterr()
    assert not out
    assert err.startswith("pytest_torchgraph: ")
    assert what in err


def test_compare_json_has_all_facts(directories: Path, run: Run) -> None:
    Path("new/c.tgraph").write_text(OLD)
    Path("old/d.tgraph").write_text(COUNTS)
    Path("new/d.tgraph").write_text(NEW)
    data = json.loads(run("diff", "old", "new", "--format=json", code=1))
    assert data == diff("old", "new").to_json()
    assert data["version"] == 2
    (cause,) = data["findings"]
    files = data["files"]
    assert cause.pop("cost")["saved_bytes"] == 0
    assert cause.pop("identity")["edits"]
    assert cause.pop("form")
    assert cause == {
        "sign": "~",
        "what": "aten.relu -> aten.tanh",
        "where": "fc",
        "places": 2,
        "sources": [],
        "before": "%fc/relu = aten.relu.default(%x) : f32[2, 4]",
        "after": "%fc/tanh = aten.tanh.default(%x) : f32[2, 4]",
        "files": ["a.tgraph", "sub/b.tgraph"],
        "modules": ["fc"],
        "ranks": None,
        "with": [],
        "reasons": [],
    }
    assert (files["added"], files["removed"], len(files["compared"])) == (["c.tgraph"], [], 3)
    assert files["changed"] == ["a.tgraph", "d.tgraph", "sub/b.tgraph"]
    assert files["counts"]["d.tgraph"][0] == "forward: aten.relu.default  1 -> 0"


def test_compare_markdown_escapes_names(directories: Path, run: Run) -> None:
    Path("old/a|`b`.tgraph").write_text(OLD)
    Path("new/a|`b`.tgraph").write_text(NEW)
    Path("new/c.tgraph").write_text(OLD)
    lines = run("diff", "old", "new", "--format=markdown", code=1).splitlines()
    assert lines == [
        "**3 of 3 files differ by 1 cause; 1 file added**",
        "",
        "| change | where | places | files |",
        "|---|---|---:|---|",
        "| `~ aten.relu -> aten.tanh` | `fc` | 3 | 3: `a.tgraph`, "
        "<code>a&#124;&#96;b&#96;.tgraph</code>, "
        "`sub/b.tgraph` |",
        "",
        "- added: `c.tgraph`",
    ]


def test_compare_sums_edit_costs_over_files(directories: Path, run: Run) -> None:
    for name in ("a", "sub/b"):
        saving = NEW.replace("}\n", "  save %fc/tanh\n}\n")
        Path(f"new/{name}.tgraph").write_text(saving)
    lines = run("diff", "old", "new", code=1).splitlines()
    assert lines[4].startswith("    costs   ")
    assert lines[4].endswith("+64 B saved in all")
    lines = run("diff", "old/a.tgraph", "new/a.tgraph", code=1).splitlines()
    assert lines[4].endswith("+32 B saved")
    data = json.loads(run("diff", "old", "new", "--format=json", code=1))
    assert data["findings"][0]["cost"]["saved_bytes"] == 64
    table = run("diff", "old", "new", "--format=markdown", code=1).splitlines()
    assert table[2] == "| change | where | places | cost | files |"
    assert table[4].split(" | ")[3].endswith("+64 B saved")


def test_compare_prints_a_name_that_is_not_utf_8(directories: Path, run: Run) -> None:
    name = os.fsdecode(b"\xff.tgraph")
    Path("old", name).write_text(OLD)
    output = run("diff", "old", "new", code=1)
    assert "- removed: \\xff.tgraph" in output.encode("utf-8").decode("utf-8")


def test_compare_cuts_long_lists_without_all(directories: Path, run: Run) -> None:
    for k in range(12):
        op = f"op{k}"
        Path(f"old/{k}.tgraph").write_text(OLD)
        Path(f"new/{k}.tgraph").write_text(OLD.replace("relu", op))
    output = run("diff", "old", "new", code=1)
    assert output.splitlines()[0] == "14 of 14 files differ by 13 causes"
    assert output.splitlines()[-1] == "... and 3 more causes in 3 files"
    output = run("diff", "old", "new", "--all", code=1)
    assert output.count("before") == 13


def test_diff_prints_json_and_markdown(directories: Path, run: Run) -> None:
    words = ("diff", "old/a.tgraph", "new/a.tgraph")
    data = json.loads(run(*words, "--format=json", code=1))
    assert data == diff("old/a.tgraph", "new/a.tgraph").to_json()
    lines = run(*words, "--format=markdown", code=1).splitlines()
    assert lines[0] == "**1 edit: aten.relu -> aten.tanh in fc**"
    assert "| `~ aten.relu -> aten.tanh` | `fc` | 1 |" in lines[-1]
    words = ("diff", "old/a.tgraph", "equal/a.tgraph")
    data = json.loads(run(*words, "--format=json", code=0))
    assert (data["findings"], data["files"]["compared"]) == ([], ["a.tgraph"])
    assert run(*words, "--format=markdown", code=0) == ""


@pytest.mark.parametrize(("options", "status"), [((), 1), (("--format=json", "--all"), 141)])
def test_diff_into_a_closed_pipe_does_not_say_that_nothing_differs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, options: tuple[str, ...], status: int
) -> None:
    """A long output fails while the diff is printed, a short one afterwards."""
    names = [tmp_path / name for name in ("old.tgraph", "new.tgraph")]
    for name, text in zip(names, (OLD, NEW), strict=True):
        name.write_text(text)
    reader, writer = os.pipe()
    os.close(reader)
    with open(writer, "w", buffering=1 if options else -1) as stream:
        monkeypatch.setattr("sys.stdout", stream)
        assert main(["diff", *map(str, names), *options]) == status


def test_diff_with_a_closed_stdout_has_its_exit_status(
    directories: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sys.stdout", None)  # as Python does after `>&-`
    assert main(["diff", str(directories / "old"), str(directories / "old")]) == 0
    assert main(["diff", str(directories / "old"), str(directories / "new")]) == 1


def test_diff_of_counts_has_the_same_forms(directories: Path, run: Run) -> None:
    Path("counts.tgraph").write_text(COUNTS)
    words = ("diff", "counts.tgraph", "new/a.tgraph")
    line = "forward: aten.relu.default  1 -> 0"
    assert line in run(*words, code=1)
    data = json.loads(run(*words, "--format=json", code=1))
    assert line in data["files"]["counts"]["a.tgraph"]
    assert f"- `{line.replace('  ', ' ')}`" in run(*words, "--format=markdown", code=1)
