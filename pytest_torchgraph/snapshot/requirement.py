"""Whether graphs can be stored here: `graph_snapshot` needs syrupy, which is not always there.

The package does not require it. syrupy adds `--snapshot-update` to every run, as pytest-snapshot
and snapshottest do, and two plugins with the same option end the run before it starts. It also
fails a run in which a file of another tool in a `__snapshots__` directory is not used.
"""

from __future__ import annotations

import re
from importlib import metadata, util

import pytest

PLUGIN = "syrupy"
LOWEST = (5, 3)

INSTALL = (
    "pip install 'pytest-torchgraph[snapshot]'\n"
    f"beside a torch that must stay: pip install 'syrupy>={'.'.join(map(str, LOWEST))}'"
)
SWITCHED_OFF = (
    "graph_snapshot stores graphs with the plugin syrupy, which is switched off in this run: "
    "remove '-p no:syrupy', or deselect the tests that use graph_snapshot"
)


def why_not_stored(config: pytest.Config) -> str:
    """Why this run can store and compare no graphs, and what to do; "" where it can."""
    lowest = ".".join(map(str, LOWEST))
    needs = f"graph_snapshot stores graphs with the plugin syrupy {lowest} or newer"
    if not config.pluginmanager.hasplugin(PLUGIN):
        if util.find_spec(PLUGIN) is None:
            return f"{needs}, which is not installed: {INSTALL}"
        return SWITCHED_OFF
    version = metadata.version(PLUGIN)
    found = re.match(r"(?a)(\d+)\.(\d+)", version)
    if found and (int(found[1]), int(found[2])) < LOWEST:
        return f"{needs}, this is {version}: {INSTALL}"
    return ""
