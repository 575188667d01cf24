"""The script `pytest-torchgraph`, as pip writes it, also where the package is not installed."""

from __future__ import annotations

import os
import sys
from pathlib import Path

if sys.version_info >= (3, 11):
    import tomllib

# A path after `#!` must not hold a space.
_SCRIPT = """\
#!/bin/sh
'''exec' "{python}" "$0" "$@"
' '''
import sys
from {module} import {function}
sys.exit({function}())
"""


def entry_point() -> str:
    """Return the function that the script calls, from pyproject.toml."""
    text = (Path(__file__).parents[1] / "pyproject.toml").read_text(encoding="utf-8")
    if sys.version_info < (3, 11):
        return "pytest_torchgraph.cli:main"
    scripts: dict[str, str] = tomllib.loads(text)["project"]["scripts"]
    assert [*scripts] == ["pytest-torchgraph"]
    return scripts["pytest-torchgraph"]


def write_script(directory: Path) -> Path:
    """Write the script into a directory, and return its path."""
    module, _, function = entry_point().partition(":")
    path = directory / "pytest-torchgraph"
    directory.mkdir(parents=True, exist_ok=True)
    path.write_text(_SCRIPT.format(python=sys.executable, module=module, function=function))
    path.chmod(0o755)
    return path


def environment_with(script: Path) -> dict[str, str]:
    """Return the environment with the script on the PATH, and this checkout importable."""
    home = str(Path(__file__).parents[1])
    return {
        **os.environ,
        "PATH": os.pathsep.join([str(script.parent), os.environ["PATH"]]),
        "PYTHONPATH": os.pathsep.join(filter(None, [home, os.environ.get("PYTHONPATH", "")])),
    }
