"""A baseline with several writers: other orders, shards of a CI run, branches in git."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest
from projects import Run
from sample_suite import FILES

from pytest_torchgraph.audit import Baseline, BaselineError, Entry, ReleaseSection
from pytest_torchgraph.audit.baseline import read, to_text
from pytest_torchgraph.cli import main

FILE = "torchgraph-audit.json"
ISOLATED = ("-o", "torchgraph_audit_isolation=on")


@pytest.fixture
def suite(pytester: pytest.Pytester, run: Run) -> Run:
    for name, text in FILES.items():
        (pytester.path / name).write_text(text)
    return run


def recorded(pytester: pytest.Pytester, run: Run, *args: str) -> bytes:
    assert run("--torchgraph-audit=record", *args).ret == 0
    return (pytester.path / FILE).read_bytes()


@pytest.mark.slow("runs pytest in a new process")
def test_removed_break_of_shared_code_is_reported_and_recorded(
    pytester: pytest.Pytester, suite: Run
) -> None:
    recorded(pytester, suite)
    (pytester.path / "net.py").write_text(FILES["net.py"].replace('print("traced")', "y = y * 2"))
    result = suite("--torchgraph-audit=check", "test_shared.py")
    assert result.ret == 0
    result.stdout.fnmatch_lines(["better than *", "*no longer occurs: break | net.py | traced | *"])
    assert b"| traced |" not in recorded(pytester, suite, "test_shared.py")


@pytest.mark.slow("several changes at once are in every run")
def test_merged_shards_equal_the_whole_run(pytester: pytest.Pytester, suite: Run) -> None:
    whole = recorded(pytester, suite, *ISOLATED)
    path = pytester.path / FILE
    shards = {
        "a": ("test_shared.py",),
        "b": ("-k", "own and not chain"),
        "c": ("-k", "chain or half or traced"),
    }
    for base in (None, whole):
        for name, how in shards.items():
            path.unlink()
            if base is not None:
                path.write_bytes(base)
            (pytester.path / f"{name}.json").write_bytes(recorded(pytester, suite, *ISOLATED, *how))
        path.unlink()
        if base is not None:
            path.write_bytes(base)
        assert main(["merge", *(f"{name}.json" for name in shards), "-o", FILE]) == 0
        assert path.read_bytes() == whole


RENAMED = FILES["test_own.py"].replace("def test_trained", "def test_learned")


@pytest.mark.slow("runs pytest in a new process")
def test_renamed_test_is_reported_and_recorded(pytester: pytest.Pytester, suite: Run) -> None:
    before = recorded(pytester, suite)
    (pytester.path / "test_own.py").write_text(RENAMED)
    words = "probably renamed, because both compile the same code: test_own.py::test_trained -> *"
    filtered = suite("--torchgraph-audit=check", "-k", "learned or traced")
    assert filtered.ret == 0
    filtered.stdout.no_fnmatch_line(words)
    result = suite("--torchgraph-audit=check")
    assert result.ret == 0
    result.stdout.fnmatch_lines([words])
    after = recorded(pytester, suite)
    assert (
        after
        == b"\n".join(
            sorted(before.replace(b"test_trained", b"test_learned").splitlines(), key=_order(after))
        )
        + b"\n"
    )


def _order(text: bytes) -> object:
    lines = text.splitlines()
    return lambda line: lines.index(line)


# -- git ---------------------------------------------------------------------------------------

TESTS = ("test_b.py::test_one", "test_b.py::test_three", "test_d.py::test_one")


def section(*tests: str, graphs: int = 1) -> Baseline:
    return {"2.13": ReleaseSection({test: Entry(graphs, 3, compiles=True) for test in tests})}


class Repository:
    """A repository with a baseline, and branches that change it."""

    def __init__(self, folder: Path, attributes: str = "") -> None:
        (folder / ".gitattributes").write_text(attributes)
        self.path = folder / FILE
        self._folder = folder
        self.git("init", "-q", "-b", "main")
        self.git("config", "user.email", "a@b.c")
        self.git("config", "user.name", "A")
        self.commit(section(*TESTS))

    def git(self, *args: str) -> int:
        environment = {"PATH": "/usr/bin:/bin", "HOME": str(self._folder)}
        done = subprocess.run(
            ["git", *args], cwd=self._folder, env=environment, capture_output=True, check=False
        )
        return done.returncode

    def commit(self, baseline: Baseline) -> None:
        self.path.write_text(to_text(baseline))
        self.git("add", "-A")
        assert self.git("commit", "-q", "-m", "baseline") == 0

    def merged(self, ours: Baseline, theirs: Baseline) -> bool:
        """Return True if git merges two branches without a conflict."""
        self.git("checkout", "-q", "-b", "theirs")
        self.commit(theirs)
        self.git("checkout", "-q", "main")
        self.commit(ours)
        return self.git("merge", "-q", "theirs") == 0


@pytest.mark.parametrize(
    ("ours", "theirs", "alone"),
    [
        ("test_a.py::test", "test_e.py::test", True),  # the first and the last line
        ("test_b.py::test_two", "test_c.py::test", False),  # around one line
        ("test_c.py::test_x", "test_c.py::test_y", False),  # at the same place
        ("test_e.py::test_x", "test_e.py::test_y", False),  # both after the last line
    ],
)
def test_two_branches_that_each_add_a_test(
    tmp_path: Path, ours: str, theirs: str, alone: bool
) -> None:
    repository = Repository(tmp_path)
    done = repository.merged(section(*TESTS, ours), section(*TESTS, theirs))
    if alone:
        assert done
    elif not done:  # keeping both sides is correct
        with pytest.raises(BaselineError, match="merge conflict: resolve it"):
            read(repository.path)
        marks = ("<<<<<<< ", "=======", ">>>>>>> ")
        lines = repository.path.read_text().splitlines(keepends=True)
        repository.path.write_text("".join(line for line in lines if not line.startswith(marks)))
    assert read(repository.path) == section(*TESTS, ours, theirs)


def test_union_merge_of_baselines_has_no_conflict(tmp_path: Path) -> None:
    repository = Repository(tmp_path, f"{FILE} merge=union\n")
    one, two = "test_c.py::test_x", "test_c.py::test_y"
    assert repository.merged(section(*TESTS, one), section(*TESTS, two))
    assert read(repository.path) == section(*TESTS, one, two)


def test_duplicate_test_in_a_merged_baseline_is_an_error(tmp_path: Path) -> None:
    repository = Repository(tmp_path, f"{FILE} merge=union\n")
    assert repository.merged(section(*TESTS, graphs=2), section(*TESTS, graphs=3))
    with pytest.raises(BaselineError, match="test_one occurs twice"):
        read(repository.path)
