"""`review --accept` and `review --list`: without a terminal, without running a test."""

from __future__ import annotations

import json
import shlex
import shutil
from collections.abc import Callable
from fnmatch import fnmatch
from pathlib import Path
from typing import Any

import pytest
from cli.conftest import Run, undocumented
from cli.review.left import COUNTS, FIRST, HOME, NEW, SECOND, Left

from pytest_torchgraph.cli import main


def test_accept_stores_the_bytes_of_an_update(
    left: Left, updated: dict[str, bytes], run: Run
) -> None:
    output = run("review", "--accept", str(left.directory), code=0)
    assert left.stored() == updated
    assert output.count("updated  ") == 16
    assert f"created  {HOME}/test_new.tgraph: no graph is stored" in output
    assert b"detail ops" in updated[f"{HOME}/test_net[9].tgraph"]
    output = run("review", "--accept", str(left.directory), code=0)
    assert output == "nothing to write: all chosen graphs are already stored\n"


@pytest.mark.slow("several reviews")
def test_cause_numbers_stay_after_an_accept(left: Left, run: Run) -> None:
    def numbers() -> dict[int, list[str]]:
        data = json.loads(run("review", left.directory, "--format=json", code=1))
        return {cause["number"]: cause["waiting"] for cause in data["causes"]}

    before = numbers()
    assert [len(before[k]) for k in (FIRST, SECOND, COUNTS, NEW)] == [13, 4, 1, 1]
    accepted = run("review", "--accept", str(left.directory), f"--cause={FIRST}", code=2)
    assert accepted.count(": this file also has cause 2. Accept that cause too, or undo its") == 2
    assert [len(numbers()[k]) for k in (FIRST, SECOND, COUNTS, NEW)] == [2, 4, 1, 1]
    run("review", "--accept", str(left.directory), f"--cause={NEW}", code=0)
    listed = run("review", left.directory, "--list", code=1)
    assert listed.startswith(
        "3 causes in 5 stored graphs; 12 other graphs already accepted\n  1  ~ aten.g"
    )
    assert "(2 files)\n" in listed.splitlines(keepends=True)[1]
    assert "11 of 13 files already accepted; 2 files also have cause 2" in listed
    assert "test_net[0].tgraph" not in listed
    run("review", "--accept", str(left.directory), code=0)
    assert run("review", left.directory, "--list", code=0).startswith("no pending changes")
    assert run("review", left.directory, code=0).startswith("no pending changes")


def test_review_json_has_the_commands_and_stores_nothing(left: Left, run: Run) -> None:
    stored = left.stored()
    listed = json.loads(run("review", left.directory, "--format=json", code=1))
    assert left.stored() == stored
    assert undocumented(listed) == []
    assert listed["accept"] == f"pytest-torchgraph review --accept {left.directory}"
    first = listed["causes"][FIRST - 1]
    assert first["accept"] == f"{listed['accept']} --cause={FIRST}"
    run(*shlex.split(listed["accept"])[1:], code=0)
    listed = json.loads(run("review", left.directory, "--format=json", code=0))
    assert [listed["accept"], *(cause["accept"] for cause in listed["causes"])] == [""] * 5


def test_listed_commands_keep_the_root_directory(
    left: Left, run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    root = f"--root={left.root}"
    listed = json.loads(run("review", left.directory, root, "--format=json", code=1))
    command = f"pytest-torchgraph review --accept {left.directory} {root}"
    assert listed["accept"] == command
    assert f"accept all:  {command}\n" in run("review", left.directory, root, "--list", code=1)
    run(*shlex.split(listed["accept"])[1:], code=0)


def test_causes_are_listed_with_their_numbers(left: Left, run: Run) -> None:
    listed = run("review", "--list", left.directory, code=1)
    heads = [line for line in listed.splitlines() if line[:3].strip().isdigit()]
    assert [line.partition(" in ")[0] for line in heads[:2]] == [
        "  1  ~ aten.gelu -> aten.relu",
        "  2  ~ aten.log -> aten.abs",
    ]
    assert heads[2:] == [
        "  3  ! 2 op counts differ; forward: aten.gelu.default 1 -> 0; forward: aten.relu.default "
        "0 -> 1  (1 file)",
        "  4  ! no graph is stored for this comparison yet  (1 file)",
    ]
    assert f"review --accept {left.directory} --cause=N" in listed
    table = run("review", "--format=markdown", left.directory, code=1)
    assert "| 2 | `~ aten.log -> aten.abs` |" in table


@pytest.mark.parametrize(
    ("test", "files"),
    [
        ("test_a.py::test_other", {f"test_other[{k}][last]" for k in range(2)}),
        ("test_a.py::test_net[7]", {"test_net[7]"}),
        ("test_a.py::test_new", {"test_new"}),
    ],
)
def test_accept_names_tests_by_id(
    left: Left,
    updated: dict[str, bytes],
    run: Run,
    test: str,
    files: set[str],
) -> None:
    before = left.stored()
    run("review", "--accept", str(left.directory), f"--test={test}", code=0)
    stored = {name: updated[name] for name in (f"{HOME}/{each}.tgraph" for each in files)}
    assert left.stored() == {**before, **stored}


def test_accept_dry_run_writes_nothing(left: Left, run: Run) -> None:
    before = left.stored()
    output = run("review", "--accept", str(left.directory), "--cause=4", "--dry-run", code=1)
    assert output.startswith(f"would be created  {HOME}/test_new.tgraph: ")
    assert left.stored() == before


@pytest.mark.parametrize(
    ("options", "problem"),
    [
        (["--cause=5"], "no cause 5 in *, only 1 to 4: run *"),
        (["--test=test_a.py::test_ne"], "no pending change of test test_a.py::test_ne in *"),
        (
            ["--cause=4", "--test=test_a.py::test_net"],
            "no stored graph matches both --cause and --test",
        ),
    ],
)
def test_accept_with_meaningless_arguments_exits_2(
    left: Left, run: Run, options: list[str], problem: str
) -> None:
    before = left.stored()
    output = run("review", "--accept", str(left.directory), *options, code=2)
    assert fnmatch(output.strip(), f"pytest_torchgraph: {problem}")
    assert left.stored() == before


def test_accept_of_an_unknown_number_is_refused(
    left: Left, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit):
        main(["review", "--accept", str(left.directory), "--cause=1,two"])
    assert "expected 2 or 2,3, got '1,two'" in capsys.readouterr().err


def test_accept_refuses_a_snapshot_that_changed_since(
    left: Left, changed: Callable[..., set[str]], run: Run
) -> None:
    edited = left.root / HOME / "test_other[0][last].tgraph"
    edited.write_text(edited.read_text().replace("log", "sqrt"))
    appeared = left.root / HOME / "test_new.tgraph"
    appeared.write_text(edited.read_text())
    before = left.stored()
    output = run("review", "--accept", str(left.directory), "--cause=2", "--cause=4", code=2)
    assert changed(before, left.stored()) == {f"{HOME}/test_other[1][last].tgraph"}
    for name in ("test_other[0][last]", "test_new"):
        assert (
            f"refused  {HOME}/{name}.tgraph changed after the "
            "comparison: run the test again" in output
        )
    assert ", 2 cannot be accepted" in run("review", "--list", left.directory, code=1)


def test_accept_refuses_a_deleted_test_file(left: Left, run: Run) -> None:
    before = left.stored()
    (left.root / "test_a.py").unlink()
    for option in ("--accept", "--list"):
        output = run("review", option, str(left.directory), code=2)
        assert output.count(f"{left.root} has no test file 'test_a.py'. Go to the checkout") == 17
    assert left.stored() == before


def test_shards_with_different_graphs_are_a_conflict(left: Left, run: Run) -> None:
    (left.directory / "other").mkdir()
    [file] = left.directory.glob("*test_new*.update.json")
    again = Path(shutil.copy(file, left.directory / "other"))
    assert "17 stored graphs" in run("review", "--list", left.directory, code=1)
    data = json.loads(again.read_text())
    again.write_text(json.dumps({**data, "text": data["text"].replace("abs", "neg")}))
    output = run("review", "--accept", str(left.directory), "--cause=4", code=2)
    assert output.startswith(f"refused  {HOME}/test_new.tgraph: ")
    assert "have different graphs" in output
    assert not (left.root / HOME / "test_new.tgraph").exists()


def test_accept_takes_several_shard_directories(left: Left, run: Run) -> None:
    one, other = left.directory / "one", left.directory / "other"
    for directory in (one, other):
        directory.mkdir()
    for k, file in enumerate(sorted(left.directory.glob("*.update.json"))):
        file.rename((one, other)[k % 2] / file.name)
    assert "17 stored graphs" in (listed := run("review", "--list", one, other, code=1))
    assert f"review --accept {one} {other} --cause=N" in listed
    assert "17 stored graphs" in run("review", "--list", one, other, left.directory, code=1)
    run("review", "--accept", one, other, code=0)
    assert run("review", "--list", one, other, code=0).startswith("no pending changes")


def test_review_of_a_passing_run_has_nothing_to_do(
    run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    assert "Run the tests first" in run("review", code=2)
    (tmp_path / ".pytest_cache" / "v").mkdir(parents=True)
    assert run("review", code=0) == "no pending changes\n"
    assert run("review", "--list", code=0) == "no pending changes\n"


def test_review_of_a_directory_without_artifacts_exits_2(
    left: Left, run: Run, tmp_path: Path
) -> None:
    for command in (["review"], ["review", "--list"], ["review", "--accept"]):
        assert "No such file" in run(*command, tmp_path / "nowhere", code=2)
        assert "is a file" in run(*command, left.root / "test_a.py", code=2)
        empty = tmp_path / "empty"
        empty.mkdir(exist_ok=True)
        assert f"no pending changes in {empty}: run `pytest --torchgraph-art" in run(
            *command, empty, code=2
        )


def test_review_names_artifacts_of_an_older_release(left: Left, run: Run) -> None:
    for file in left.directory.glob("*.update.json"):
        file.unlink()
    output = run("review", "--list", left.directory, code=2)
    assert "the comparisons have passed since, or an old release" in output


def saved(left: Left) -> tuple[Path, dict[str, Any]]:
    [file] = left.directory.glob("*test_new*.update.json")
    return file, json.loads(file.read_text())


@pytest.mark.parametrize(
    "target",
    [
        "../__snapshots__/test_a/test_new.tgraph",
        "C:/__snapshots__/test_new.tgraph",
        "__snapshots__/test_new.py",
        "test_new.tgraph",
    ],
)
def test_accept_writes_only_stored_graphs_of_the_checkout(few: Left, run: Run, target: str) -> None:
    file, data = saved(few)
    file.write_text(json.dumps({**data, "target": target, "digests": {target: None}}))
    before = set(few.root.parent.rglob("*"))
    output = run("review", "--accept", str(few.directory), "--test=test_a.py::test_other", code=2)
    assert f"{target!r} is not the path of a stored graph below the root directory" in output
    assert set(few.root.parent.rglob("*")) == before
    others = json.loads(run("review", "--format=json", few.directory, code=2))
    assert len(others["updates"]) == 2


@pytest.mark.parametrize(
    ("change", "problem"),
    [
        ({"torchgraph_update": 3}, "has version 3, and this release reads 1 to 2"),
        ({"text": "import os"}, "invalid line 1 of its text: "),
        ({"digests": {}}, "has no digest"),
        ({"test": "a\0b"}, "a text field has a null character"),
        ({"text": None}, "it removes a stored graph, but names no replacement"),
        ({"more": 1}, "was not written by pytest-torchgraph: ValueError: update: unknown: more"),
        (None, "is incomplete, or was not written by pytest-torchgraph: JSONDecodeError"),
    ],
)
def test_accept_reports_a_broken_file_and_accepts_the_others(
    few: Left, run: Run, change: dict[str, Any] | None, problem: str
) -> None:
    file, data = saved(few)
    torn = file.read_text()[:200]
    file.write_text(torn if change is None else json.dumps({**data, **change}))
    output = run("review", "--accept", str(few.directory), code=2)
    assert f"! {file}" in output
    assert problem in output
    assert output.count("updated  ") == 2
    assert not (few.root / HOME / "test_new.tgraph").exists()


def test_review_escapes_terminal_codes_of_artifacts(few: Left, run: Run) -> None:
    file, data = saved(few)
    data |= {"headline": "\x1b]0;title\x07", "refused": "\x1b[2J"}
    file.write_text(json.dumps(data))
    output = run("review", "--accept", str(few.directory), code=2)
    assert f"refused  {HOME}/test_new.tgraph: ?[2J\n" in output
    for form in ("text", "markdown"):
        listed = run("review", "--list", f"--format={form}", few.directory, code=1)
        assert "?[2J" in listed
        assert "\x1b" not in listed


def test_review_without_a_terminal_lists(few: Left, run: Run) -> None:
    before = few.stored()
    output = run("review", few.directory, code=1)
    assert output == run("review", "--list", few.directory, code=1)
    assert f"review --accept {few.directory} --cause=N" in output
    assert few.stored() == before


def test_review_lists_only_chosen_causes(left: Left, run: Run) -> None:
    output = run("review", "--list", "--cause=2,4", left.directory, code=1)
    assert [line[:3] for line in output.splitlines() if line[:3].strip().isdigit()] == [
        "  2",
        "  4",
    ]
    assert output.startswith("2 causes in 5 stored graphs\n")
    data = json.loads(run("review", "--format=json", "--cause=4", left.directory, code=1))
    assert [cause["number"] for cause in data["causes"]] == [4]
    assert [update["causes"] for update in data["updates"]] == [[4]]
    run("review", "--accept", left.directory, "--cause=4", code=0)
    assert run("review", "--cause=4", left.directory, code=0).startswith("no pending changes")


@pytest.mark.parametrize(
    "options", [["--dry-run"], ["--test=test_a.py"], ["--accept", "--list"]], ids=" ".join
)
def test_review_with_conflicting_options_exits_2(few: Left, run: Run, options: list[str]) -> None:
    assert "--accept" in run("review", few.directory, *options, code=2)
    assert "updated" not in run("review", "--list", few.directory, code=1)


@pytest.mark.parametrize("command", ["review", "diff"])
def test_review_help_lists_exit_codes(command: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        main([command, "--help"])
    assert ended.value.code == 0
    assert "Exit codes: 0 if" in " ".join(capsys.readouterr().out.split())
