"""Killed processes, full disks, read-only directories, several writers: no file is lost or torn."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from projects import Run, files

UPDATE = "--torchgraph-update"
SUITE = """
import os
import pytest
from graphs import graph

@pytest.mark.parametrize("place", ["first", "large", "last"])
def test_step(place, graph_snapshot):
    size = int(os.environ.get("SIZE", 1)) if place == "large" else 1
    op = os.environ.get("OP", "relu")
    assert graph(*[f"{op}{k or ''}" for k in range(size)]) == graph_snapshot  # no two are alike
"""


posix = pytest.mark.skipif(os.name != "posix", reason="processes are forked and killed")


def broken_writes(how: str, path: Path) -> list[str]:
    """Run `broken_writes.py`."""
    script = Path(__file__).with_name("broken_writes.py")
    done = subprocess.run(
        [sys.executable, script, how, path], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout.splitlines()


@posix
def test_process_killed_at_any_step_leaves_a_whole_file(
    tmp_path: Path,
) -> None:
    lines = broken_writes("kill", tmp_path / "x.tgraph")
    steps = [line.partition(":")[0] for line in lines]
    order = ["before open", "after open", "before write", "after write", "before flush"]
    order += ["before fsync", "after fsync", "before chmod", "before replace", "after replace"]
    at = [steps.index(step) for step in order]
    assert at == sorted(at)
    contents = {line.partition(": ")[2].partition(",")[0] for line in lines}
    assert contents == {"old", "new", "nothing"}, "a file is torn"
    last = steps.index("before replace")
    assert all(": old," in line for line in lines[: last + 1])
    assert lines[last + 1] == "after replace: new, 0 left over"
    assert lines[last] == "before replace: old, 1 left over"


def test_error_at_any_step_keeps_the_old_file_and_no_other(
    tmp_path: Path,
) -> None:
    lines = broken_writes("full", tmp_path / "x.tgraph")
    steps = [line.partition(":")[0] for line in lines]
    for step in ("open", "write", "flush", "fsync", "chmod", "replace"):
        assert f"before {step}: old, 0 left over" in lines
        assert step == "chmod" or f"before {step}: nothing, 0 left over" in lines
    assert {line.partition(": ")[2] for line in lines} == {
        "old, 0 left over",
        "nothing, 0 left over",
        "new, 0 left over",
    }
    assert all("after replace" in line for line in lines if ": new" in line)
    assert len(steps) > 20


@posix
def test_file_written_by_two_processes_is_always_whole(tmp_path: Path) -> None:
    lines = broken_writes("race", tmp_path / "x.tgraph")
    reads = {line.partition(":")[0]: int(line.partition(": ")[2]) for line in lines}
    assert reads.keys() <= {"old", "new"}, "the file is torn or missing"
    assert sum(reads.values()) > 40
    assert [path.name for path in tmp_path.iterdir()] == ["x.tgraph"]


@pytest.fixture
def mounted(pytester: pytest.Pytester, run: Run) -> Run:
    """Run pytest with a separate small file system at `__snapshots__`.

    The first argument is a shell command that runs after mounting and before pytest. The final
    content is in the directory `after`.
    """
    trial = [
        "unshare",
        "-rm",
        "sh",
        "-c",
        "mkdir -p there && mount -t tmpfs tmpfs there && mount -o remount,ro there",
    ]
    try:
        possible = subprocess.run(trial, cwd=pytester.path, capture_output=True, check=False)
    except FileNotFoundError:
        pytest.skip("the command unshare is missing")
    if possible.returncode:
        pytest.skip(f"no file system can be mounted: {possible.stderr.decode()}")

    def mounted(prepare: str, *arguments: str, **environment: str) -> pytest.RunResult:
        script = (
            "mv __snapshots__ stored; mkdir __snapshots__;"
            "mount -t tmpfs -o size=96k tmpfs __snapshots__ && cp -r stored/. __snapshots__ &&"
            f'{prepare} && "$@"; status=$?; cp -a __snapshots__ after; exit $status'
        )
        words = [sys.executable, "-m", "pytest", "-p", "pytest_torchgraph.plugin", *arguments]
        settings = [f"{name}={value}" for name, value in environment.items()]
        return pytester.run(
            "unshare", "-rm", "sh", "-c", script, "sh", "env", *settings, *words, timeout=60
        )

    pytester.makepyfile(test_net=SUITE)
    run(UPDATE).assert_outcomes(passed=3)
    return mounted


def after(pytester: pytest.Pytester) -> dict[str, bytes]:
    there = pytester.path / "after"
    return {
        f"__snapshots__/{path.relative_to(there).as_posix()}": path.read_bytes()
        for path in there.rglob("*")
        if path.is_file()
    }


@pytest.mark.slow("runs pytest several times")
def test_full_disk_keeps_the_old_file_and_names_it(pytester: pytest.Pytester, mounted: Run) -> None:
    before = files(pytester)
    result = mounted("true", UPDATE, OP="gelu", SIZE="3000")
    result.assert_outcomes(passed=2, failed=1)
    large = "__snapshots__/test_net/test_step[large].tgraph"
    (error,) = [line for line in result.outlines if line.startswith("E ")]
    assert error.endswith(f"{large}: No space left on device")
    assert "TorchGraphError: cannot write /" in error
    result.stdout.fnmatch_lines(["FAILED *large*", "*1 failed, 2 passed*"])
    now = after(pytester)
    assert now.keys() == before.keys(), "a half-written file is left"
    assert now[large] == before[large]
    assert all(b"gelu" in data for path, data in now.items() if path != large)


@pytest.mark.slow("a run of pytest of its own")
def test_read_only_directory_keeps_the_old_files_and_names_them(
    pytester: pytest.Pytester, mounted: Run
) -> None:
    before = files(pytester)
    prepare = "mount -o remount,ro __snapshots__"
    result = mounted(prepare, UPDATE, OP="gelu")
    result.assert_outcomes(failed=3)
    errors = [line for line in result.outlines if line.startswith("E ")]
    for path, error in zip(sorted(before), sorted(errors), strict=True):
        assert f"cannot write {pytester.path}/{path}: Read-only file" in error
    assert after(pytester) == before


@pytest.mark.slow("mounts a file system; another run with one is in every run")
def test_read_only_directory_with_matching_graphs_passes(
    pytester: pytest.Pytester, mounted: Run
) -> None:
    prepare = "mount -o remount,ro __snapshots__"
    result = mounted(prepare, UPDATE)
    result.assert_outcomes(passed=3)
    assert result.ret == 0
