"""`--torchgraph-audit` on suites that other people wrote: outcomes, false alarms, bytes.

    python benchmarks/audit_comparisons.py FOLDER [--work DIR] [--what ...] -- ARGS

FOLDER is an unpacked source distribution with its tests, of which nothing is changed; ARGS choose
tests. It is copied, so that lines can be inserted. Everything runs one after the other.

- `outcomes`: each test's outcome in two plain runs, and under show, record and check. Target: a
  test that has one outcome in both plain runs has it in all others.
- `alarms`: a baseline of a serial run and one of two workers, each compared with runs that are
  cold, in random order, in workers, with 37 lines inserted above, isolated, of some tests. Target:
  none is worse.
- `bytes`: the baseline recorded again, with another hash seed, and in two workers. Target: the same
  bytes but for tests that share compiled code in two workers.

What it costs is measured by `bench_audit.py --suite FOLDER`.
"""

from __future__ import annotations

import argparse
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from xml.etree import ElementTree

BASELINE = "torchgraph-audit.json"
OWN = ("-p", "no:randomly", "-p", "no:cacheprovider")
WORKERS = ("-n", "2")
ISOLATED = ("-o", "torchgraph_audit_isolation=on")


def shuffled(seed: int) -> tuple[str, ...]:
    return "-p", "no:cacheprovider", f"--randomly-seed={seed}"


class Suite:
    """A copy of a suite.

    Attributes:
        folder: where it is.
    """

    def __init__(self, folder: Path, work: Path, python: str, selection: list[str]) -> None:
        self.folder = work / folder.name
        if not self.folder.exists():
            shutil.copytree(folder, self.folder)
        if not any((self.folder / name).exists() for name in ("pytest.ini", "pyproject.toml")):
            (self.folder / "pytest.ini").write_text("[pytest]\n")
        self._python, self._selection = python, selection
        self._caches = work / "caches"

    @property
    def baseline(self) -> Path:
        return self.folder / BASELINE

    def run(self, *args: str, cache: str = "warm", **environment: str) -> tuple[int, str]:
        """Run the tests: exit status and what was printed."""
        done = subprocess.run(
            [self._python, "-m", "pytest", "-q", *self._selection, *args],
            cwd=self.folder,
            env={
                **os.environ,
                "TORCHINDUCTOR_CACHE_DIR": str(self._caches / cache),
                **environment,
            },
            capture_output=True,
            text=True,
            check=False,
        )
        return done.returncode, done.stdout + done.stderr

    def outcomes(self, *args: str) -> dict[str, str]:
        """The outcome of each test."""
        path = self._caches / "junit.xml"
        self._caches.mkdir(exist_ok=True)
        self.run(*OWN, f"--junitxml={path}", *args)
        return {
            f"{case.get('classname')}::{case.get('name')}": next(
                (each.tag for each in case if each.tag in ("failure", "error", "skipped")), "passed"
            )
            for case in ElementTree.parse(path).iter("testcase")
        }

    def insert_lines(self) -> None:
        """Insert 37 lines above everything."""
        for path in self.folder.rglob("*.py"):
            text = path.read_text("utf-8")
            if "from __future__" not in text:
                path.write_text("# a line\n" * 37 + text, "utf-8")


def section(printed: str) -> str:
    """The part about what is worse or better."""
    begin = max(printed.find("worse than "), 0)
    return printed[begin : printed.find("\n==", begin)]


def outcomes(suite: Suite) -> Iterator[str]:
    first, second = suite.outcomes(), suite.outcomes()
    flaky = {test for test in first if first[test] != second.get(test)}
    yield f"{len(first)} tests, {len(flaky)} with two outcomes in plain runs"
    for mode in ("show", "record", "check"):
        found = suite.outcomes(f"--torchgraph-audit={mode}")
        other = {t for t in first.keys() | found.keys() if first.get(t) != found.get(t)} - flaky
        yield f"{mode}: {len(other)} other outcomes {sorted(other)}"


def some_of(suite: Suite, some: str) -> str:
    """The `-k` that chooses some of the tests that the suite's own `-k` chooses."""
    own = suite._selection
    return f"({own[own.index('-k') + 1]}) and ({some})" if "-k" in own else some


def alarms(suite: Suite, some: str) -> Iterator[str]:
    lined = Suite(suite.folder, suite.folder.parent / "lined", suite._python, suite._selection)
    lined.insert_lines()
    plain_status, _ = suite.run(*OWN)
    runs = {
        "again": (suite, OWN),
        "cold": (suite, OWN),
        "random 2": (suite, shuffled(2)),
        "random 3": (suite, shuffled(3)),
        "workers": (suite, (*OWN, *WORKERS)),
        "workers, random 4": (suite, (*shuffled(4), *WORKERS)),
        "37 lines": (lined, OWN),
        "isolated": (suite, (*OWN, *ISOLATED)),
        "some": (suite, (*OWN, "-k", some_of(suite, some))),
    }
    for name, how in {"serial": OWN, "workers": (*OWN, *WORKERS)}.items():
        suite.baseline.unlink(missing_ok=True)
        suite.run("--torchgraph-audit=record", *how)
        shutil.copy(suite.baseline, lined.baseline)
        for run, (where, args) in runs.items():
            cache = "cold" if run == "cold" else "warm"
            shutil.rmtree(suite._caches / "cold", ignore_errors=True)
            status, printed = where.run("--torchgraph-audit=check", *args, cache=cache)
            said = section(printed)
            worse = "worse than" in said and "nothing is worse" not in printed
            bad = status != plain_status and run != "some"
            verdict = f"WORSE {said}" if worse else f"status {status}" if bad else "ok"
            if " compared)" not in printed and not worse:
                verdict = f"NOT COMPARED {printed[-300:]}"
            offers = " (offers)" if "better than" in printed else ""
            yield f"{name} -> {run}: {verdict}{offers}"


def same_bytes(suite: Suite) -> Iterator[str]:
    suite.baseline.unlink(missing_ok=True)
    suite.run("--torchgraph-audit=record", *OWN)
    first = suite.baseline.read_text()
    for name, args, seed in (
        ("again", OWN, "0"),
        ("another hash seed", OWN, "7"),
        ("two workers", (*OWN, *WORKERS), "0"),
    ):
        suite.baseline.unlink()
        suite.run("--torchgraph-audit=record", *args, PYTHONHASHSEED=seed)
        lines = set(first.splitlines()) ^ set(suite.baseline.read_text().splitlines())
        yield f"{name}: {len(lines)} other lines of {len(first.splitlines())}"
        yield from sorted(lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("folder", type=Path)
    parser.add_argument("--work", type=Path, default=Path("audited"))
    parser.add_argument("--python", default=sys.executable)
    parser.add_argument("--what", default="outcomes,alarms,bytes")
    parser.add_argument("--some", default="compile", help="-k of a run of some tests")
    cut = sys.argv.index("--") if "--" in sys.argv else len(sys.argv)
    options = parser.parse_args(sys.argv[1:cut])
    options.work.mkdir(parents=True, exist_ok=True)
    suite = Suite(options.folder, options.work.absolute(), options.python, sys.argv[cut + 1 :])
    for what in options.what.split(","):
        print(f"-- {suite.folder.name}: {what}", flush=True)
        lines = {
            "outcomes": lambda: outcomes(suite),
            "alarms": lambda: alarms(suite, options.some),
            "bytes": lambda: same_bytes(suite),
        }[what]()
        for line in lines:
            print(line, flush=True)


if __name__ == "__main__":
    main()
