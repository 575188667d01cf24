"""Modules that a fork for a project without torch has imported: pytest and our plugin's imports."""

from __future__ import annotations

import importlib
import sys
from importlib.machinery import SourceFileLoader
from pathlib import Path
from types import CodeType

from _pytest.config import default_plugins

import pytest_torchgraph

# A fork writes no bytecode, and would compile a hundred modules again.
CODES = {
    str(path): compile(path.read_bytes(), path, "exec", dont_inherit=True)
    for path in Path(pytest_torchgraph.__file__).parent.rglob("*.py")
}
get_code = SourceFileLoader.get_code


def known_code(loader: SourceFileLoader, name: str) -> CodeType | None:
    return CODES.get(loader.path) or get_code(loader, name)


SourceFileLoader.get_code = known_code  # type: ignore[method-assign]

for name in default_plugins:
    importlib.import_module(f"_pytest.{name}")
plugin = importlib.import_module("pytest_torchgraph.plugin")
for name in (*plugin.pytest_plugins, "pytest_torchgraph.plugin"):
    importlib.import_module(name)
    # pytest rewrites assertions of plugins, and warns if a plugin is already imported.
    del sys.modules[name]

# What most failures import only then.
for name in ("snapshot.compare", "report.mismatch", "graph.diff.of_files"):
    importlib.import_module(f"pytest_torchgraph.{name}")
assert "torch" not in sys.modules
