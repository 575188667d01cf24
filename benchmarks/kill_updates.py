"""Kills `pytest --torchgraph-update` with SIGKILL at random moments, and looks at what is stored.

`python benchmarks/kill_updates.py 200`. Every second run has two workers of pytest-xdist,
which are killed with it. Updates change all files between two contents; whatever is neither of
them, or is missing, is an error. The moments are drawn from the time in which the update writes:
from shortly before the first file that it changes to its end, as measured before.
"""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path

FILES = 60
GRAPHS = """
import os
from pytest_torchgraph.graph import Graph

def graph():
    op = os.environ["OP"]
    lines = ["torchgraph 1", "", "forward @ aot {", "  %x = input : f32[2]"]
    last = "x"
    for i in range(100):
        lines.append(f"  %n.{i}/op = aten.{op}.of{i}(%{last}) : f32[2]")
        last = f"n.{i}/op"
    return Graph.from_text("\\n".join([*lines, f"  return %{last}", "}\\n"]))
"""
TESTS = f"""
import pytest
from graphs import graph

@pytest.mark.parametrize("number", range({FILES}))
def test_step(number, graph_snapshot):
    assert graph() == graph_snapshot
"""


class Project:
    """A folder with stored graphs, and updates of it that can be killed."""

    def __init__(self, folder: Path):
        self.folder = folder
        (folder / "graphs.py").write_text(GRAPHS)
        (folder / "test_net.py").write_text(TESTS)
        self.stored = folder / "__snapshots__" / "test_net"

    def start(self, op: str, workers: bool) -> subprocess.Popen[bytes]:
        """Begin an update to the graphs of this op."""
        environment = {
            **os.environ,
            "OP": op,
            "PYTHONPATH": str(Path(__file__).parents[1]),
            "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1",
        }
        plugins = ["-p", "pytest_torchgraph.plugin", "-p", "no:cacheprovider"]
        plugins += ["-p", "xdist", "-n2"] if workers else []
        return subprocess.Popen(
            [sys.executable, "-m", "pytest", "-q", *plugins, "--torchgraph-update"],
            cwd=self.folder,
            env=environment,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
        )

    def update(self, op: str) -> dict[str, bytes]:
        """A whole update, and what is stored then."""
        assert self.start(op, workers=False).wait() == 0
        return self.files()

    def files(self) -> dict[str, bytes]:
        """What is stored."""
        return {path.name: path.read_bytes() for path in self.stored.glob("*.tgraph")}

    def changed(self, since: float) -> bool:
        """Whether any file is newer."""
        return any(path.stat().st_mtime > since for path in self.stored.glob("*.tgraph"))

    def spell(self, op: str, workers: bool) -> tuple[float, float]:
        """When an update writes its first file and when it ends, in seconds after its start."""
        start = time.time()
        running = self.start(op, workers)
        while not self.changed(start):
            time.sleep(0.001)
        first = time.time() - start
        assert running.wait() == 0
        return first, time.time() - start


def main(count: int) -> None:
    """Print what the kills left behind."""
    found: Counter[str] = Counter()
    with tempfile.TemporaryDirectory() as folder:
        project = Project(Path(folder))
        contents = {op: project.update(op) for op in ("relu", "gelu")}
        spells = {False: project.spell("relu", False), True: project.spell("gelu", True)}
        ops = ["relu", "gelu"]
        while found["killed"] < count:
            workers = bool(found["killed"] % 2)
            first, end = spells[workers]
            running = project.start(ops[0], workers)
            time.sleep(random.uniform(0.9 * first, end))
            alive = running.poll() is None
            if alive:
                os.killpg(running.pid, signal.SIGKILL)
            running.wait()
            time.sleep(0.05)  # until the workers are gone as well
            stored = project.files()
            assert stored.keys() == contents["relu"].keys(), "a file was lost"
            new = sum(stored[name] == contents[ops[0]][name] for name in stored)
            old = sum(stored[name] == contents[ops[1]][name] for name in stored)
            found["torn files"] += len(stored) - new - old
            left = list(project.stored.glob(".*.tgraph-tmp"))
            if alive:
                found["killed"] += 1
                found["killed between the first file and the last"] += 0 < new < len(stored)
                found["killed inside a write, a temporary file left over"] += bool(left)
            for path in left:
                os.utime(path, (0, 0))
            if new > old:
                ops.reverse()
        project.update("neg")
        assert not list(project.stored.glob(".*.tgraph-tmp")), "an update removes what is left over"
    print(f"updates of {FILES} files")
    for what in sorted(found):
        print(f"{found[what]:5}  {what}")
    assert not found["torn files"]


if __name__ == "__main__":
    main(int(sys.argv[1]) if sys.argv[1:] else 200)
