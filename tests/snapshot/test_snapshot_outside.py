"""Updates, prunes and the audit's baseline stay inside pytest's root directory."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest
from projects import Run, stored_graphs

pytestmark = pytest.mark.skipif(os.name != "posix", reason="links need rights on Windows")

TESTS = """
    import pytest
    from graphs import graph

    @pytest.mark.parametrize("name", ["one", "two"])
    def test_net(graph_snapshot, name):
        assert graph() == graph_snapshot
"""
HOME = "__snapshots__/test_a"
ONE, TWO = (f"{HOME}/test_net[{name}].tgraph" for name in ("one", "two"))


@pytest.fixture
def stored(pytester: pytest.Pytester, run: Run, store: Callable[..., object]) -> Run:
    """A project with the stored graphs of `TESTS`."""
    pytester.makepyfile(test_a=TESTS)
    store(passed=2)
    return run


@pytest.fixture
def outside(tmp_path: Path) -> Path:
    directory = tmp_path / "outside"
    directory.mkdir()
    return directory


def link(pytester: pytest.Pytester, name: str, to: object) -> None:
    path = pytester.path / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.symlink_to(str(to))


def test_update_replaces_links_to_files_outside(
    pytester: pytest.Pytester, run: Run, outside: Path
) -> None:
    pytester.makepyfile(test_a=TESTS)
    victim, missing = outside / "notes.tgraph", outside / "missing.tgraph"
    victim.write_text("mine")
    link(pytester, ONE, victim)
    link(pytester, TWO, missing)
    run("--torchgraph-update").assert_outcomes(passed=2)
    assert (victim.read_text(), missing.exists()) == ("mine", False)
    for name in (ONE, TWO):
        assert not (pytester.path / name).is_symlink()
        assert (pytester.path / name).read_text().startswith("torchgraph ")


@pytest.mark.parametrize("name", [HOME, "__snapshots__"])
def test_update_refuses_a_directory_that_leads_outside(
    pytester: pytest.Pytester, run: Run, outside: Path, name: str
) -> None:
    pytester.makepyfile(test_a=TESTS, test_b=TESTS.replace("two", "three"))
    link(pytester, name, outside)
    result = run("--torchgraph-update")
    assert result.ret == 2
    refused = [line for line in stored_graphs(result) if line.startswith("refused  ")]
    assert len(refused) == (2 if name == HOME else 4)
    assert not [*outside.rglob("*")]
    assert (pytester.path / "__snapshots__/test_b").is_dir() == (name == HOME)


def test_failed_comparison_in_a_directory_outside_leaves_no_update_to_accept_and_no_cause(
    pytester: pytest.Pytester, stored: Run, outside: Path
) -> None:
    (pytester.path / HOME).rename(outside / "moved")
    link(pytester, HOME, outside / "moved")
    before = [path.read_text() for path in sorted((outside / "moved").iterdir())]
    stored("--torchgraph-artifacts=out", OP="gelu").assert_outcomes(failed=2)
    left = [path.read_text() for path in (pytester.path / "out").glob("*.update.json")]
    assert sum("outside pytest's root directory" in text for text in left) == 2
    result = stored("--torchgraph-update", OP="gelu")
    assert [line.partition(":")[0] for line in stored_graphs(result)] == [
        f"refused  {ONE}",
        f"refused  {TWO}",
    ]
    assert "this update changes" not in result.stdout.str()
    assert [path.read_text() for path in sorted((outside / "moved").iterdir())] == before


@pytest.mark.slow("runs pytest four times")
def test_artifacts_replace_links_at_their_names(
    pytester: pytest.Pytester, stored: Run, outside: Path
) -> None:
    stored("--torchgraph-artifacts=out", OP="gelu").assert_outcomes(failed=2)
    artifacts = [*(pytester.path / "out").iterdir()]
    for suffix in (".update.json", ".received.tgraph", ".expected.tgraph", ".diff", ".txt"):
        assert sum(path.name.endswith(suffix) for path in artifacts) == 2
    victim, missing = outside / "notes", outside / "missing"
    victim.write_text("mine")
    for number, path in enumerate(artifacts):
        path.unlink()
        path.symlink_to((victim, missing)[number % 2])
    stored("--torchgraph-artifacts=out", OP="tanh").assert_outcomes(failed=2)
    assert [path for path in artifacts if path.is_symlink()] == []
    stored("--torchgraph-artifacts=out").assert_outcomes(passed=2)
    assert (victim.read_text(), missing.exists()) == ("mine", False)


@pytest.mark.slow("each case runs pytest twice", unless=["below"])
@pytest.mark.parametrize(
    ("ini", "linked"),
    [
        ("", ".pytest_cache/d/torchgraph"),
        ("{}/beside", "../beside"),
    ],
    ids=["below", "absolute"],
)
def test_default_artifacts_do_not_follow_a_link_outside(
    pytester: pytest.Pytester, run: Run, outside: Path, ini: str, linked: str
) -> None:
    pytester.makepyfile(test_a=TESTS)
    options = [f"-ocache_dir={ini.format(pytester.path.parent)}"] if ini else []
    run("--torchgraph-update", "-pno:cacheprovider")
    link(pytester, linked, outside)
    result = run(*options, OP="gelu")
    result.assert_outcomes(failed=2)
    lines = [line for line in result.outlines if line.startswith("torchgraph: ")]
    assert len(lines) == 1
    assert "a link leads the cache of pytest outside the root" in lines[0]
    assert not [*outside.rglob("*.update.json"), *outside.rglob("*.svg"), *outside.rglob("*.txt")]
    assert "review:" not in result.stdout.str()


@pytest.mark.parametrize("aliased", [False, True])
def test_named_artifacts_do_not_follow_a_link_of_the_branch(
    pytester: pytest.Pytester, run: Run, outside: Path, tmp_path: Path, aliased: bool
) -> None:
    pytester.makepyfile(test_a=TESTS)
    (tmp_path / "alias").symlink_to(pytester.path)
    link(pytester, "out", outside)
    base = tmp_path / "alias" if aliased else pytester.path
    result = run(f"--torchgraph-artifacts={base}/out", OP="gelu")
    result.assert_outcomes(failed=2)
    assert "a link leads" in result.stdout.str()
    assert not [*outside.rglob("*.json"), *outside.rglob("*.svg"), *outside.rglob("*.tgraph")]


@pytest.mark.slow("runs pytest three times")
def test_default_artifacts_are_below_the_cache_of_the_user(
    pytester: pytest.Pytester, stored: Run, outside: Path
) -> None:
    (pytester.path / "real").mkdir()
    link(pytester, "linked", "real")
    for cache in (outside, "linked"):
        stored(f"-ocache_dir={cache}", OP="gelu").assert_outcomes(failed=2)
        assert len([*(pytester.path / cache).glob("d/torchgraph/*.update.json")]) == 2


def test_prune_refuses_paths_outside_and_removes_the_rest(
    pytester: pytest.Pytester, stored: Run, outside: Path
) -> None:
    (outside / "mine.tgraph").write_text("mine")
    (outside / ".0123456789abcdef.tgraph-tmp").write_text("mine")
    os.utime(outside / ".0123456789abcdef.tgraph-tmp", (0, 0))
    link(pytester, f"{HOME}/linked.tgraph", outside / "mine.tgraph")
    link(pytester, "__snapshots__/test_gone", outside)
    (pytester.path / HOME / "old.tgraph").write_text("old")
    result = stored("--torchgraph-prune")
    assert result.ret == 2
    result.assert_outcomes(passed=2)
    lines = stored_graphs(result)
    assert f"removed  {HOME}/old.tgraph" in lines
    assert f"removed  {HOME}/linked.tgraph" in lines
    refused = sorted(line.partition(":")[0] for line in lines if line.startswith("refused  "))
    assert refused == ["refused  __snapshots__/test_gone/mine.tgraph"]
    assert sorted(os.listdir(outside)) == [".0123456789abcdef.tgraph-tmp", "mine.tgraph"]
    assert (pytester.path / "__snapshots__/test_gone").is_symlink()


def test_stored_fifo_is_a_failure_and_does_not_hang(pytester: pytest.Pytester, stored: Run) -> None:
    (pytester.path / ONE).unlink()
    os.mkfifo(pytester.path / ONE)
    result = stored()
    result.assert_outcomes(passed=1, failed=1)
    result.stdout.fnmatch_lines(["*cannot read the stored graph *one?.tgraph: not a regular file*"])


AUDITED = "def test_x():\n    pass\n"


def test_audit_records_no_baseline_outside_the_root(
    pytester: pytest.Pytester, run: Run, outside: Path
) -> None:
    pytester.makepyfile(test_x=AUDITED)
    victim = outside / "mine.json"
    victim.write_text("mine")
    pytester.makeini(f"[pytest]\ntorchgraph_audit_file = {victim}\n")
    result = run("--torchgraph-audit=record")
    assert result.ret == 2
    result.assert_outcomes(passed=1)
    result.stdout.fnmatch_lines([f"*: not recorded: {victim} is outside the root directory *"])
    assert victim.read_text() == "mine"


def test_baseline_that_cannot_be_read_is_one_error(pytester: pytest.Pytester, run: Run) -> None:
    pytester.makepyfile(test_x=AUDITED)
    baseline = pytester.path / "torchgraph-audit.json"
    for make in (lambda: baseline.write_text("[" * 200_000), lambda: os.mkfifo(baseline)):
        make()
        result = run("--torchgraph-audit=check")
        assert result.ret == 4
        assert "torchgraph-audit.json" in result.stderr.str()
        assert "Traceback" not in result.stderr.str()
        baseline.unlink()
