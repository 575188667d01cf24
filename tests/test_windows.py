"""Behaviour specific to Windows, as far as other systems can test it."""

from __future__ import annotations

import os
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

from pytest_torchgraph.convert import relative
from pytest_torchgraph.settings.config import rerun_command


def test_source_file_has_slashes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "sep", "\\")
    monkeypatch.setattr(sys, "path", [r"D:\a\nets"])
    assert relative(r"D:\a\nets\layers\gate.py") == "layers/gate.py"


def test_test_command_on_another_drive_has_the_absolute_path(
    request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def relpath(path: str, start: str) -> str:
        raise ValueError("path is on mount 'D:', start on mount 'C:'")

    invoked = pytest.Config.InvocationParams(args=(), plugins=None, dir=tmp_path)
    monkeypatch.setattr(request.config, "invocation_params", invoked)
    monkeypatch.setattr(os.path, "relpath", relpath)
    test = f"{__file__}::{request.node.name}"
    join = subprocess.list2cmdline if os.name == "nt" else shlex.join
    assert rerun_command(request.node) == join(["pytest", test])
