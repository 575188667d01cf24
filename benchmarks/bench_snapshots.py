"""Stored graphs against the same texts in a plain single-file extension of syrupy.

`python benchmarks/bench_snapshots.py [--profile]`. Both sides compare the same graphs, which
are there before the first test, in pytest runs of their own, in turns; torch is not imported. The
plain extension serializes with `to_text()`. Targets: for 1,000 tests at most 1.1 times the time and
the peak memory of it; for 100 graphs of 1 MB less.
"""

from __future__ import annotations

import argparse
import json
import os
import pstats
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))

from benchmarks.timing import table

CONFTEST = """
import json, os, resource, sys, time
import pytest
from plain import Plain

@pytest.fixture
def plain(snapshot):
    return snapshot.use_extension(Plain)

def pytest_sessionstart():
    global started
    started = time.perf_counter(), time.process_time()

@pytest.hookimpl(trylast=True)
def pytest_unconfigure():
    if "torch" in sys.modules:
        raise RuntimeError("torch was imported")
    taken = time.perf_counter() - started[0], time.process_time() - started[1]
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    with open(os.environ["FIGURES"], "w") as file:
        json.dump([*taken, peak], file)
"""

PLAIN = '''
from syrupy.extensions.single_file import SingleFileSnapshotExtension, WriteMode

class Plain(SingleFileSnapshotExtension):
    """What a project would write for texts."""

    _write_mode = WriteMode.TEXT
    file_extension = "txt"

    def serialize(self, data, **_):
        return data.to_text()
'''

MAKE = """
from dataclasses import replace
from pytest_torchgraph.graph import Graph

def chain(lines):
    text = ["torchgraph 1", "", "forward @ aot {", "  %x = input : f32[2, 16]"]
    last = "x"
    for i in range(lines):
        op = "detach" if i % 50 == 49 else ("relu", "gelu", "neg")[i % 3]
        name = f"encoder.layer.{i}.intermediate/{op}"
        text.append(f"  %{name} = aten.{op}.default(%{last}) : f32[2, 16, 768]")
        last = name
    return Graph.from_text("\\n".join([*text, f"  return %{last}", "}\\n"]))

def fresh(graph):
    # Another object, so that nothing that one of them has found out serves the next.
    return replace(graph)
"""

TESTS = """
import pytest
from make import chain, fresh

GRAPH = chain({lines})

@pytest.mark.parametrize("number", range({count}))
def test_step(number, {fixture}):
    assert fresh(GRAPH) == {fixture}
"""
SIZES = {"1,000 tests, 20 ops": (1000, 20), "100 tests, 1 MB": (100, 10_300)}
SIDES = {"plain": "plain", "graphs": "graph_snapshot"}


class Project:
    """A folder with one test file, and the runs of it."""

    def __init__(self, folder: Path, fixture: str, count: int, lines: int):
        self.folder = folder
        folder.mkdir()
        (folder / "conftest.py").write_text(CONFTEST)
        (folder / "plain.py").write_text(PLAIN)
        (folder / "make.py").write_text(MAKE)
        tests = TESTS.format(fixture=fixture, count=count, lines=lines)
        (folder / "test_net.py").write_text(tests)
        self.run("--snapshot-update")

    def profile(self) -> None:
        """Print where the time goes."""
        where = str(self.folder / "profile")
        self.run(how=("-m", "cProfile", "-o", where))
        pstats.Stats(where).sort_stats("cumulative").print_stats(60)

    def run(self, *arguments: str, how: tuple[str, ...] = ()) -> tuple[float, float, float]:
        """Seconds, seconds of processor time, and peak memory in MB."""
        environment = {
            **os.environ,
            "PYTHONPATH": str(Path(__file__).parents[1]),
            "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1",
            "FIGURES": str(self.folder / "figures"),
        }
        plugins = ["-p", "syrupy", "-p", "pytest_torchgraph.plugin"]
        command = [sys.executable, *how, "-m", "pytest", "-q", "-p", "no:cacheprovider", *plugins]
        done = subprocess.run(
            [*command, *arguments],
            cwd=self.folder,
            env=environment,
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == 0, done.stdout + done.stderr
        found = json.loads((self.folder / "figures").read_text())
        return found[0], found[1], found[2]


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--pairs", type=int, default=7)
    parser.add_argument("--profile", action="store_true", help="where the time of ours goes")
    asked = parser.parse_args()
    rows = []
    with tempfile.TemporaryDirectory() as folder:
        for title, (count, lines) in SIZES.items():
            sides = {
                name: Project(Path(folder, f"{name}{count}"), fixture, count, lines)
                for name, fixture in SIDES.items()
            }
            stored = next(sides["graphs"].folder.rglob("*.tgraph"))
            size = stored.stat().st_size / 1e6
            if asked.profile:
                print(title)
                for side in sides.values():
                    side.profile()
            pairs = []
            for number in range(asked.pairs):
                order = list(sides) if number % 2 else list(reversed(sides))
                pairs.append({name: sides[name].run() for name in order})
            for what, unit in enumerate(("s", "s of processor time", "MB at most")):
                rows.append(
                    (
                        title,
                        f"{size:.3g}",
                        unit,
                        *(statistics.median(pair[name][what] for pair in pairs) for name in sides),
                        statistics.median(
                            pair["graphs"][what] / pair["plain"][what] for pair in pairs
                        ),
                    )
                )
    table(("project", "MB a file", "figure", "syrupy alone", "graph_snapshot", "ratio"), rows)


if __name__ == "__main__":
    main()
