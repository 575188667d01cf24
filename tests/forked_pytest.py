"""Modules that a fork for a project without torch has imported: pytest and our plugin's imports."""

from __future__ import annotations

import importlib
import sys

from _pytest.config import default_plugins

for name in default_plugins:
    importlib.import_module(f"_pytest.{name}")
plugin = importlib.import_module("pytest_torchgraph.plugin")
for name in (*plugin.pytest_plugins, "pytest_torchgraph.plugin"):
    importlib.import_module(name)
    # pytest rewrites assertions of plugins, and warns if a plugin is already imported.
    del sys.modules[name]
