"""Artifacts of one run: 16 stored graphs that differ by two edits, and one new graph."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from cli.review.left import CONFTEST, EDITED, TESTS, Left, stored_in
from projects import GRAPHS


def run_tests(project: Path, *options: str, **environment: str) -> subprocess.CompletedProcess[str]:
    """Run the tests of a project with only syrupy and our plugin."""
    kept = {k: v for k, v in os.environ.items() if not k.startswith(("PYTEST_", "GITHUB_"))}
    plugins = ("-p", "syrupy", "-p", "pytest_torchgraph.plugin")
    return subprocess.run(
        [sys.executable, "-m", "pytest", "--tb=no", *plugins, *options],
        cwd=project,
        env={**kept, "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1", **environment},
        capture_output=True,
        text=True,
    )


@pytest.fixture(scope="session")
def built(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """Return the project with the old graphs and a run's artifacts in `out`, and a copy of it in
    which an update has stored the new graphs."""
    project = tmp_path_factory.mktemp("machine") / "project"
    project.mkdir()
    for name, text in (("graphs", GRAPHS), ("test_a", TESTS), ("conftest", CONFTEST)):
        (project / f"{name}.py").write_text(text)
    (project / "pytest.ini").touch()
    first = run_tests(project, "--torchgraph-update")
    assert "16 passed" in first.stdout, first.stdout + first.stderr
    updated = project.with_name("updated")
    shutil.copytree(project, updated)
    second = run_tests(project, "--torchgraph-artifacts=out", **EDITED)
    assert "17 failed" in second.stdout, second.stdout + second.stderr
    assert "review:      pytest-torchgraph review out" in second.stdout
    third = run_tests(updated, "--torchgraph-update", **EDITED)
    assert "17 passed" in third.stdout, third.stdout + third.stderr
    return project, updated


@pytest.fixture
def left(built: tuple[Path, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Left:
    """A separate checkout as the working directory, and the artifacts outside it."""
    return checkout(built[0], tmp_path, monkeypatch)


def checkout(project: Path, home: Path, monkeypatch: pytest.MonkeyPatch, *without: str) -> Left:
    """Copy a project and its artifacts, without the files of these names."""
    root, directory = home / "checkout", home / "downloaded"
    ignored = shutil.ignore_patterns("out", ".pytest_cache", *without)
    shutil.copytree(project, root, ignore=ignored)
    shutil.copytree(project / "out", directory, ignore=ignored)
    monkeypatch.chdir(root)
    return Left(root, directory)


@pytest.fixture
def few(built: tuple[Path, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Left:
    """As `left`, of the tests test_other and test_new only: two updates and a new file."""
    return checkout(built[0], tmp_path, monkeypatch, "test_net*", "*.test_net*")


@pytest.fixture
def updated(built: tuple[Path, Path]) -> dict[str, bytes]:
    """The files that an update stores."""
    return stored_in(built[1])


@pytest.fixture
def changed() -> Callable[[dict[str, bytes], dict[str, bytes]], set[str]]:
    """Return the names of files that were changed, added or removed."""
    return lambda before, after: {
        name for name in before.keys() | after.keys() if before.get(name) != after.get(name)
    }


@pytest.fixture
def root(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return a directory, with an empty checkout in it as the working directory."""
    (tmp_path / "repo" / ".git").mkdir(parents=True)
    monkeypatch.chdir(tmp_path / "repo")
    return tmp_path
