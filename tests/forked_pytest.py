"""What a fork for a project without torch finds imported: pytest, and what our plugin imports."""

from __future__ import annotations

import importlib
import sys

from _pytest.config import default_plugins

for name in default_plugins:
    importlib.import_module(f"_pytest.{name}")
plugin = importlib.import_module("pytest_torchgraph.plugin")
for name in (*plugin.pytest_plugins, "pytest_torchgraph.plugin"):
    importlib.import_module(name)
    del sys.modules[name]  # pytest rewrites assertions of plugins, and says where it comes too late
