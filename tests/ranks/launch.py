"""Run pytest under `torchrun`."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path


def torchrun(directory: Path, *options: str, **env: str) -> subprocess.CompletedProcess[str]:
    """Run pytest in a directory on two ranks."""
    launcher = [sys.executable, "-m", "torch.distributed.run", "--nproc-per-node=2", "--standalone"]
    pytest_options = ["-m", "pytest", "-q", "-p", "no:cacheprovider", "-p", "no:randomly"]
    path = ":".join(filter(None, sys.path))
    return subprocess.run(
        [*launcher, "--log-dir=logs", "--redirects=3", *pytest_options, *options],
        env={**os.environ, "PYTHONPATH": path, "OMP_NUM_THREADS": "1", **env},
        cwd=directory,
        capture_output=True,
        text=True,
        timeout=300,  # a deadlock of the ranks would never end
    )


def logs(directory: Path) -> dict[int, str]:
    """Return each rank's output in the last run."""
    newest = max((directory / "logs").iterdir(), key=lambda path: path.stat().st_mtime_ns)
    outputs = {int(path.parent.name): path.read_text() for path in newest.rglob("stdout.log")}
    assert sorted(outputs) == [0, 1]
    return outputs
