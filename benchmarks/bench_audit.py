"""What `--torchgraph-audit=show` costs a whole run of pytest: time on the processor.

`python benchmarks/bench_audit.py [--pairs N] [--suite FOLDER [ARGUMENTS]]`. Pairs of runs
with and without it follow each other, the one that goes first alternates, and caches are warm. The
suites are those of `audit_suites.py`, or any other: `--suite ../kornia tests/test_compile.py -x`.
Targets: at most 1.02 for 500 trivial and 300 eager tests, at most 1.05 for a suite that compiles.
"""

from __future__ import annotations

import argparse
import os
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))

from benchmarks.audit_suites import write
from benchmarks.timing import table

ROOT = Path(__file__).parents[1]
OPTION = "--torchgraph-audit=show"
TARGETS = {"trivial": 1.02, "eager": 1.02, "causes": 1.05}


def seconds(folder: Path, arguments: list[str]) -> tuple[float, str]:
    """Seconds on the processor of one run with all its processes, and the last line it printed."""
    path = os.pathsep.join(filter(None, [str(ROOT), os.environ.get("PYTHONPATH", "")]))
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "--tb=no"]
    environment = {**os.environ, "PYTHONHASHSEED": "0", "OMP_NUM_THREADS": "1"}
    environment.pop("PYTHONDONTWRITEBYTECODE", None)  # compiled files are among the warm caches
    before = os.times()
    run = subprocess.run(
        [*command, *arguments],
        cwd=folder,
        env={**environment, "PYTHONPATH": path},
        capture_output=True,
        text=True,
        check=False,
    )
    after = os.times()
    taken = (
        after.children_user - before.children_user + after.children_system - before.children_system
    )
    return taken, (run.stdout.strip().splitlines() or [run.stderr])[-1].partition(" in ")[0]


def measure(name: str, folder: Path, arguments: list[str], pairs: int) -> list[object]:
    """A row of the table."""
    taken: list[tuple[float, float]] = []
    outcomes = set()
    for number in range(pairs + 1):
        pair = {}
        for option in ([], [OPTION]) if number % 2 else ([OPTION], []):
            pair[len(option)], outcome = seconds(folder, [*arguments, *option])
            outcomes.add(outcome)
        taken.append((pair[0], pair[1]))
    del taken[0]  # caches
    ratios = sorted(audited / plain for plain, audited in taken)
    return [
        name,
        " | ".join(sorted(outcomes)),
        statistics.median(plain for plain, _ in taken),
        statistics.median(audited for _, audited in taken),
        statistics.median(ratios),
        f"{ratios[0]:.3f} to {ratios[-1]:.3f}",
        TARGETS.get(name, 1.05),
    ]


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--pairs", type=int, default=5)
    parser.add_argument("--suite", type=Path)
    options, arguments = parser.parse_known_args()
    heads = ["suite", "outcome", "plain (s)", "audited (s)", "ratio", "of the pairs", "target"]
    if options.suite is not None:
        row = measure(options.suite.name, options.suite, arguments, options.pairs)
        table(heads, [row])
        return
    rows = []
    with tempfile.TemporaryDirectory() as folder:
        for kind in TARGETS:
            write(kind, Path(folder, kind))
            rows.append(measure(kind, Path(folder, kind), arguments, options.pairs))
    table(heads, rows)


if __name__ == "__main__":
    main()
