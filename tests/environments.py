"""Environments with missing or replaced packages, made of links to this environment's packages."""

from __future__ import annotations

import os
import sys
import sysconfig
from collections.abc import Callable, Iterable
from pathlib import Path

import pytest

RunIn = Callable[..., pytest.RunResult]

ROOT = Path(__file__).parents[1]


def make_environment(
    home: Path, *, without: Iterable[str] = (), stubs: dict[str, str] | None = None
) -> Path:
    """Make a directory with this environment's packages, for `PYTHONPATH` of a `python -S`.

    Args:
        home: the directory to create.
        without: names of modules to omit, with their metadata.
        stubs: versions of modules to replace by empty ones.
    """
    stubs = stubs or {}
    missing = {*without, *stubs}
    home.mkdir()
    for site in {sysconfig.get_path("purelib"), sysconfig.get_path("platlib")}:
        for entry in Path(site).iterdir():
            name = entry.name.partition("-")[0].partition(".")[0].lower()
            if name not in missing:
                (home / entry.name).symlink_to(entry)
    for name, version in stubs.items():
        (home / name).mkdir()
        (home / name / "__init__.py").write_text(f"__version__ = {version!r}\n")
        information = home / f"{name}-{version}.dist-info"
        information.mkdir()
        (information / "METADATA").write_text(f"Name: {name}\nVersion: {version}\n")
    return home


def runner(pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch, environment: Path) -> RunIn:
    """Run pytest with our plugin, and those named with `-p`, in such an environment."""
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([str(environment), str(ROOT)]))
    monkeypatch.setenv("PYTEST_DISABLE_PLUGIN_AUTOLOAD", "1")
    monkeypatch.setenv("PYTHONDONTWRITEBYTECODE", "1")
    monkeypatch.delenv("PYTEST_ADDOPTS", raising=False)

    def run(*args: str) -> pytest.RunResult:
        command = [sys.executable, "-S", "-m", "pytest", "-p", "pytest_torchgraph.plugin"]
        return pytester.run(*command, *args)

    return run
