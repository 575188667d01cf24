"""The wheel has only the package, and installing it changes nothing else."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest
from environments import ROOT, make_environment

PACKAGE = "pytest_torchgraph"

SUITE = """
import pytest

def test_plain(): pass

def test_capture(graph_capture): assert 0

@pytest.mark.torchgraph
def test_marked(): assert 0
"""


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    pytest.importorskip("hatchling")
    built = tmp_path_factory.mktemp("dist")
    command = [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", built]
    subprocess.run(command, cwd=ROOT, check=True, capture_output=True)
    (path,) = built.iterdir()
    return path


@pytest.mark.slow("further models and backends")
def test_wheel_has_only_the_package(wheel: Path) -> None:
    package = {
        path.relative_to(ROOT).as_posix()
        for path in (ROOT / PACKAGE).rglob("*")
        if path.is_file() and "__pycache__" not in path.parts
    }
    assert {f"{PACKAGE}/py.typed", f"{PACKAGE}/report/page/script/head.js"} <= package
    with zipfile.ZipFile(wheel) as archive:
        names = set(archive.namelist())
    beside = {name.partition("/")[2] for name in names - package}
    assert names >= package
    assert beside == {"METADATA", "WHEEL", "RECORD", "entry_points.txt", "licenses/LICENSE"}


@pytest.mark.slow("further models and backends")
def test_links_of_the_readme_work_on_pypi(wheel: Path) -> None:
    with zipfile.ZipFile(wheel) as archive:
        (name,) = (name for name in archive.namelist() if name.endswith("/METADATA"))
        text = archive.read(name).decode("utf-8")
    text = re.sub(r"^```.*?^```", "", text, flags=re.DOTALL | re.MULTILINE)
    links = re.findall(r"\]\(([^)\s]+)\)", text)
    assert len(links) > 5
    assert [link for link in links if not link.startswith(("https://", "#"))] == []
    assert "HFPR_VERSION" not in text


@pytest.mark.slow("further models and backends")
@pytest.mark.parametrize("torch", ["2.6.0+cpu", "2.10.0+cpu"])
def test_wheel_install_changes_no_other_package(
    wheel: Path, tmp_path: Path, torch: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The environment has a stub of this torch release: empty, with the metadata that pip reads."""
    for name in [name for name in os.environ if name.startswith(("PYTHONPATH", "PYTEST_"))]:
        monkeypatch.delenv(name)

    def run(*words: str | Path, code: int = 0) -> str:
        done = subprocess.run(words, cwd=tmp_path, capture_output=True, text=True, check=False)
        assert done.returncode == code, done.stdout + done.stderr
        return done.stdout

    run(sys.executable, "-m", "venv", "--without-pip", "env")
    (site,) = (tmp_path / "env").glob("[Ll]ib/**/site-packages")
    site.rmdir()
    make_environment(site, without=[PACKAGE], stubs={"torch": torch})
    for editable in site.glob(f"*{PACKAGE}*"):
        editable.unlink()
    python = Path(sys.executable.replace(sys.prefix, str(tmp_path / "env"), 1))
    pip = (sys.executable, "-m", "pip", "--disable-pip-version-check", "--python", python)
    report = run(*pip, "install", "--dry-run", "--quiet", "--report=-", wheel)
    would_be = [package["metadata"]["name"] for package in json.loads(report)["install"]]
    assert would_be == ["pytest-torchgraph"]
    run(*pip, "install", "--no-deps", wheel)

    if torch.startswith("2.6"):
        (tmp_path / "test_suite.py").write_text(SUITE)
        printed = run(python, "-m", "pytest", "-rs", "-p", "no:cacheprovider")
        assert "1 passed, 2 skipped" in printed
        assert printed.count("needs torch 2.9 or newer, but this is 2.6.0") == 2
