"""The stack of a graph break starts in the user's code, for any runner and any directory."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from projects import Run

BREAKS = """
import torch

def test_stack(graph_capture):
    def breaks(x):
        torch._dynamo.graph_break()
        return x + 1

    with graph_capture.watch() as seen:
        torch.compile(breaks, backend="eager")(torch.ones(2))
    (found,) = seen.breaks
    assert [each.function for each in found.stack] == ["test_stack", "breaks"]
"""


@pytest.mark.slow("runs pytest for a second")
def test_break_stack_in_a_directory_named_like_a_runner(
    pytester: pytest.Pytester, run: Run
) -> None:
    for directory in ("pytest", "xdist", "pluggy"):
        (pytester.mkdir(directory) / f"test_{directory}.py").write_text(BREAKS)
    run().assert_outcomes(passed=3)


@pytest.mark.slow("inductor compiles C++ for each case")
def test_break_stack_run_by_the_command(pytester: pytest.Pytester) -> None:
    command = shutil.which("pytest", path=str(Path(sys.executable).parent))
    assert command is not None
    test = pytester.makepyfile(BREAKS)
    done = subprocess.run([command, test], capture_output=True, text=True)
    assert done.returncode == 0, done.stdout
