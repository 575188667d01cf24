"""A missing graph that is stored under a former name of its test or test file."""

from __future__ import annotations

import shlex
import subprocess
from pathlib import Path

import pytest
from projects import Run, files, section

SUITE = """
import pytest
from graphs import graph

@pytest.mark.parametrize("device", ["cpu", "cuda"])
def test_on(device, graph_snapshot):
    assert graph("mm") == graph_snapshot
    assert graph() == graph_snapshot(name="again")

class TestNet:
    def test_step(self, graph_snapshot):
        assert graph("sin") == graph_snapshot
        assert graph("cos") == graph_snapshot
"""
FOUND = "an equal graph is stored under an old name: "


@pytest.fixture
def suite(pytester: pytest.Pytester, run: Run) -> Run:
    """A project with six stored graphs of `test_net.py`."""
    pytester.makepyfile(test_net=SUITE)
    run("--torchgraph-update").assert_outcomes(passed=3)
    return run


def told(result: pytest.RunResult, beginning: str) -> list[str]:
    """Return the lines of the failures with this beginning, each once."""
    return sorted({line for line in result.outlines if line.startswith(beginning)})


def test_renamed_test_file_fails_with_the_move_command(
    pytester: pytest.Pytester, suite: Run
) -> None:
    before = files(pytester)
    Path("test_net.py").rename("test_block.py")
    result = suite()
    result.assert_outcomes(failed=3)
    assert told(result, FOUND) == [
        f"{FOUND}__snapshots__/test_net/{stem}.tgraph"
        for stem in ("TestNet.test_step", "test_on[cpu]", "test_on[cuda]")
    ]
    assert f"E         {FOUND}__snapshots__/test_net/test_on[cpu].tgraph" in result.outlines
    (move,) = told(result, "move:    ")
    assert move == "move:    git mv __snapshots__/test_net __snapshots__/test_block"
    assert suite("--tb=no").ret == 1
    assert files(pytester) == before, "the files were moved"
    Path("__snapshots__/test_net").rename("__snapshots__/test_block")
    suite().assert_outcomes(passed=3)


def test_renamed_test_fails_with_a_runnable_move_command(
    pytester: pytest.Pytester, suite: Run
) -> None:
    subprocess.run(["git", "init", "-q"], check=True)
    subprocess.run(["git", "add", "."], check=True)
    renamed = SUITE.replace("test_on", "test_device").replace("TestNet", "TestBlock")
    pytester.makepyfile(test_net=renamed)
    for _ in range(2):  # each test stops at its first comparison, so two runs are needed
        result = suite()
        moves = told(result, "move:    ")
        assert len(moves) == 3
        for move in moves:
            subprocess.run(shlex.split(move.removeprefix("move:    ")), check=True)
    suite().assert_outcomes(passed=3)


def test_no_move_command_for_a_different_or_used_graph(
    pytester: pytest.Pytester, suite: Run
) -> None:
    other = SUITE.replace('"mm"', '"relu"').replace("test_on", "test_device")
    changed = (
        SUITE
        + """
def test_third(graph_snapshot):
    assert graph("mm") == graph_snapshot

@pytest.mark.parametrize("device", ["mps"])
def test_on(device, graph_snapshot):
    assert graph("mm") == graph_snapshot
"""
    )
    for text in (other, changed):
        pytester.makepyfile(test_net=text)
        result = suite()
        assert result.ret == 1
        result.stdout.fnmatch_lines(["*no graph is stored for this comparison yet"])
        assert told(result, FOUND) == []


def test_move_command_includes_files_of_all_releases(pytester: pytest.Pytester, suite: Run) -> None:
    home = Path("__snapshots__/test_net")
    for file in [*home.iterdir()]:
        file.with_name(file.name.replace(".tgraph", "@torch-2.11.tgraph")).write_bytes(
            file.read_bytes()
        )
    pytester.makepyfile(test_net=SUITE.replace("TestNet", "TestBlock"))
    lines = section(suite("-k", "TestBlock"))
    (move,) = [line for line in lines if line.startswith("move:")]
    old, new = (f"{home}/{name}.test_step" for name in ("TestNet", "TestBlock"))
    assert move == (
        f"move:    git mv {old}.tgraph {new}.tgraph && "
        f"git mv {old}@torch-2.11.tgraph {new}@torch-2.11.tgraph"
    )


def test_move_command_outside_the_root_is_runnable(
    pytester: pytest.Pytester, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    package = pytester.mkpydir("elsewhere") / "suite"
    package.mkdir()
    (package / "__init__.py").touch()
    (package / "test_out.py").write_text(
        "from graphs import graph\n\n"
        "def test_step(graph_snapshot):\n    assert graph() == graph_snapshot\n"
    )
    project = pytester.mkdir("project")
    (project / "pytest.ini").write_text("[pytest]\n")
    monkeypatch.setenv("PYTHONPATH", str(pytester.path), prepend=":")
    monkeypatch.chdir(project)
    result = run("--pyargs", "elsewhere.suite", f"--rootdir={project}", "-c", "pytest.ini")
    result.assert_outcomes(failed=1)
    (accept,) = told(result, "accept:  ")
    command = shlex.split(accept.removeprefix("accept:  "))
    run(*command[1:]).assert_outcomes(passed=1)
    run("--pyargs", "elsewhere.suite").assert_outcomes(passed=1)
