"""Every write and removal passes `files.write`, which a link of a stranger's branch cannot lead."""

from __future__ import annotations

import ast
import os
import socket
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from pytest_torchgraph import files
from pytest_torchgraph.errors import OutsideRootError, TorchGraphError

PACKAGE = Path(__file__).parents[1] / "pytest_torchgraph"
posix = pytest.mark.skipif(os.name != "posix", reason="links and FIFOs need rights on Windows")

# -- nothing goes around it ------------------------------------------------------------------------

WRITING = set(
    """write_text write_bytes touch mkdir makedirs mkfifo rmdir removedirs rmtree unlink remove_file
    rename renames replace symlink symlink_to hardlink_to link link_to truncate copy copy2 copyfile
    copytree copymode move chmod lchmod mkstemp mkdtemp NamedTemporaryFile TemporaryDirectory dup2
    """.split()
)
"""Names of functions that write, create or remove files. `replace` and `copy` need a module."""
MODULES = {"os", "shutil", "tempfile", "pathlib"}
ELSEWHERE = {
    "api/second_process.py": ["mkdir", "write_bytes", "write_bytes"],  # below a new directory
    "api/warm_start.py": ["TemporaryDirectory"],
    "cli/__init__.py": ["dup2", "open"],  # the null device
    "cli/review/prompt.py": ["mkdtemp"],
    "render/output/_pygraphviz.py": ["write_bytes"],  # below a new directory
    "render/output/rendering.py": ["open", "TemporaryDirectory", "write_bytes"],  # the same
    "report/artifacts.py": ["mkdtemp", "mkdir"],  # pytest's own `cache.mkdir`
    "report/surfaces/github.py": ["open"],  # appends to the step summary, which GitHub names
    "snapshot/run.py": ["open", "mkstemp", "unlink"],  # the journal, in a file of mkstemp
}
"""Calls that may stay outside `files.write`: below a new temporary directory, or not by path."""


def writing_calls(source: str) -> Iterator[str]:
    """Yield the name of each call that may write, create or remove a file."""
    for node in ast.walk(ast.parse(source)):
        if not isinstance(node, ast.Call):
            continue
        function = node.func
        name = function.attr if isinstance(function, ast.Attribute) else ""
        owner = ast.unparse(function.value) if isinstance(function, ast.Attribute) else ""
        if isinstance(function, ast.Name):
            name = owner = function.id
        if name == "open" and owner != "HUB" and not owner.startswith(("self", "recorder")):
            modes = [*node.args, *(word.value for word in node.keywords if word.arg == "mode")]
            if not any(isinstance(mode, ast.Constant) and mode.value in ("r", "rb") for mode in modes):
                if owner != "webbrowser":
                    yield name
        elif name in WRITING and (name not in ("replace", "copy", "link", "move") or owner in MODULES):
            yield name


def test_nothing_goes_around_the_one_function() -> None:
    found = {
        path.relative_to(PACKAGE).as_posix(): calls
        for path in sorted(PACKAGE.rglob("*.py"))
        if path.name != "files.py" or path.parent != PACKAGE
        if (calls := sorted(writing_calls(path.read_text(encoding="utf-8"))))
    }
    assert found == {name: sorted(calls) for name, calls in ELSEWHERE.items()}


@pytest.mark.parametrize(
    "code",
    [
        "path.write_text('x')",
        "open(path, 'w')",
        "path.open('a')",
        "os.replace(a, b)",
        "os.open(path, flags)",
        "shutil.rmtree(path)",
        "(path / name).unlink()",
        "(path / name).open(mode='xb')",
    ],
)
def test_call_that_goes_around_is_found(code: str) -> None:
    assert len([*writing_calls(code)]) == 1
    for harmless in ("text.replace('a', 'b')", "open(path, 'rb')", "path.open('rb')", "read(path)"):
        assert [*writing_calls(harmless)] == []
