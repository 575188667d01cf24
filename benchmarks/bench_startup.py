"""What the plugin costs a project that does not use it: `pytest --collect-only` on one test.

`python benchmarks/bench_startup.py`. Target: a few milliseconds over syrupy alone, and torch
not imported.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))

from benchmarks.timing import medians, table

CONFTEST = """
import sys

def pytest_unconfigure():
    if "torch" in sys.modules:
        raise RuntimeError("torch was imported")
"""
ENVIRONMENT = {
    **os.environ,
    "PYTHONPATH": str(Path(__file__).parents[1]),
    "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1",
}


def main() -> None:
    """Print the table."""
    with tempfile.TemporaryDirectory() as folder:
        Path(folder, "test_one.py").write_text("def test_one():\n    pass\n", encoding="utf-8")
        Path(folder, "conftest.py").write_text(CONFTEST, encoding="utf-8")

        def run(*plugins: str) -> None:
            options = [part for plugin in plugins for part in ("-p", plugin)]
            command = [sys.executable, "-m", "pytest", "--collect-only", "-q", *options]
            done = subprocess.run(
                command, cwd=folder, env=ENVIRONMENT, capture_output=True, text=True, check=False
            )
            assert done.returncode == 0, done.stdout + done.stderr
            assert "1 test collected" in done.stdout, done.stdout

        times = medians(
            {
                "pytest alone": run,
                "with syrupy": lambda: run("syrupy"),
                "with syrupy and torchgraph": lambda: run("syrupy", "pytest_torchgraph.plugin"),
            },
            repeat=15,
        )
    unit = times["with syrupy"]
    rows = [
        (name, 1000 * taken, taken / unit, 1000 * (taken - unit)) for name, taken in times.items()
    ]
    table(("pytest --collect-only", "ms", "ratio", "ms over syrupy"), rows)
    print("torch was not imported in any of them.")


if __name__ == "__main__":
    main()
