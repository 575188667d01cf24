"""`torchgraph_releases`: stored graphs for several releases of torch."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from projects import Run, files, section, stored_graphs

HOME = "__snapshots__/test_net"
BASE = f"{HOME}/test_step.tgraph"

CONFTEST = '''
"""Replace the installed torch release by RELEASE."""
import importlib.metadata
import os

real = importlib.metadata.version


def version(name):
    return os.environ["RELEASE"] if name == "torch" else real(name)


importlib.metadata.version = version
'''

STEP = """
from graphs import Capture, graph

def test_step(graph_snapshot):
    assert Capture(graph()) == graph_snapshot
"""

On = Callable[..., pytest.RunResult]


def of(release: str, stem: str = "test_step") -> str:
    return f"{HOME}/{stem}@torch-{release}.tgraph"


@pytest.fixture
def on(pytester: pytest.Pytester, run: Run) -> On:
    """Run the project on a release of torch, with a graph of these ops."""
    pytester.makeconftest(CONFTEST)
    pytester.makepyfile(test_net=STEP)

    def on(
        release: str, op: str, *args: str, listed: str = "2.11 2.13 2.15", **env: str
    ) -> pytest.RunResult:
        pytester.makeini(f"[pytest]\ntorchgraph_releases = {listed}\n")
        version = release if "dev" in release else f"{release}.1+cpu"
        return run(*args, RELEASE=version, OP=op, **env)

    return on


@pytest.fixture
def update(on: On) -> On:
    """Run an update and check that it passes."""

    def update(release: str, op: str, *args: str, **more: str) -> pytest.RunResult:
        result = on(release, op, "--torchgraph-update", *args, **more)
        assert result.ret == 0, result.outlines
        return result

    return update


@pytest.mark.slow("runs pytest several times")
def test_releases_get_files_only_for_different_graphs(
    pytester: pytest.Pytester, on: On, update: On
) -> None:
    assert stored_graphs(update("2.11", "relu")) == [f"created  {BASE}: forward 1 op"]
    base = files(pytester)
    assert stored_graphs(update("2.13", "relu")) == [f"unchanged  {BASE}"]
    assert files(pytester) == base

    differs = "1 edit: aten.relu -> aten.gelu in layer.0"
    assert stored_graphs(update("2.13", "gelu")) == [
        f"created  {of('2.13')}: compared with torch 2.11: {differs}"
    ]
    assert files(pytester).items() > base.items()
    assert files(pytester).keys() == {BASE, of("2.13")}
    for release, op in [("2.11", "relu"), ("2.13", "gelu"), ("2.15", "gelu")]:
        on(release, op).assert_outcomes(passed=1)
    for release, op in [("2.11", "gelu"), ("2.13", "relu"), ("2.15", "relu")]:
        on(release, op).assert_outcomes(failed=1)

    assert stored_graphs(update("2.13", "relu")) == [
        f"removed  {of('2.13')}: equal to the graph stored for torch 2.11"
    ]
    assert files(pytester) == base


@pytest.mark.slow("runs pytest several times")
def test_run_compares_with_the_nearest_listed_release(
    pytester: pytest.Pytester, on: On, update: On
) -> None:
    listed = "2.12 2.9 2.10 2.15"
    for release, op in [("2.12", "sin"), ("2.9", "cos"), ("2.15", "tan")]:
        update(release, op, listed=listed)
    compared = {
        "2.8": BASE,  # no release below, so the first
        "2.10": of("2.9"),
        "2.11": of("2.9"),  # not listed
        "2.12": BASE,
        "2.13": BASE,  # the release below is the first
        "2.100": of("2.15"),
        "2.16.0.dev20261122+cu130": of("2.15"),
        "2.9.0.dev20261122": of("2.9"),
    }
    found = {}
    for release in compared:
        lines = section(on(release, "exp", listed=listed))
        (found[release],) = [line[9:] for line in lines if line.startswith("file: ")]
    assert found == compared


@pytest.mark.slow("a run of pytest of its own")
def test_failure_names_the_compared_and_the_updated_release(on: On, update: On) -> None:
    update("2.13", "relu", listed="2.13 2.15")
    result = on("2.15", "gelu", listed="2.13 2.15")
    lines = section(result)
    assert lines[0] == "compared with the graph of torch 2.13: torch 2.15 has no file of its own"
    assert f"file:    {BASE}" in lines
    assert "accept:  pytest test_net.py::test_step --torchgraph-update" in lines
    assert f"writes:  {of('2.15')}" in lines
    result.stdout.fnmatch_lines(["E * compared with the graph of torch 2.13: *"])
    update("2.15", "gelu", listed="2.13 2.15")
    lines = section(on("2.15", "relu", listed="2.13 2.15"))
    assert f"file:    {of('2.15')}" in lines
    assert not [line for line in lines if line.startswith(("writes:", "compared with"))]


@pytest.mark.slow("runs pytest several times")
def test_unlisted_release_compares_and_stores_nothing(
    pytester: pytest.Pytester, on: On, update: On
) -> None:
    update("2.13", "relu", listed="2.13 2.15")
    before = files(pytester)
    on("2.14", "relu", listed="2.13 2.15").assert_outcomes(passed=1)
    failed = section(on("2.14", "gelu", listed="2.13 2.15"))
    assert failed[0] == (
        "compared with the graph of torch 2.13: torch 2.14 is not in torchgraph_releases"
    )
    why = (
        "torch 2.14 is not in torchgraph_releases = 2.13 2.15: add it, or update with a listed "
        "release"
    )
    assert f"accept:  {why}" in failed
    for workers in ((), ("-p", "xdist", "-n1")):
        refused = on("2.14", "gelu", "--torchgraph-update", *workers, listed="2.13 2.15")
        assert refused.ret == pytest.ExitCode.USAGE_ERROR
        refused.stderr.fnmatch_lines([f"ERROR: --torchgraph-update: {why}"])
    pytester.makepyfile(test_net=STEP.replace("test_step(", "test_other(") + STEP)
    two = on("2.14", "gelu", listed="2.13 2.15")
    two.assert_outcomes(failed=2)
    assert "accept all" not in two.stdout.str(), "this command would be refused"
    # syrupy's own flag also applies to other snapshots.
    on("2.14", "gelu", "--snapshot-update", listed="2.13 2.15").assert_outcomes(failed=2)
    assert files(pytester) == before


@pytest.mark.parametrize(
    ("listed", "problem"),
    [
        ("2.13.0", "'2.13.0' is not a torch release: write `torchgraph_releases = 2.13 2.15`"),
        ("2.13 latest", "'latest' is not a torch release*"),
        ("2.13, 2.15", "'2.13,' is not a torch release*"),
        ("2.05", "'2.05' is not a torch release*"),
        ("2.13 2.15 2.13", "2.13 is listed twice"),
    ],
)
def test_invalid_release_is_a_usage_error(on: On, listed: str, problem: str) -> None:
    result = on("2.13", "relu", listed=listed)
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    result.stderr.fnmatch_lines([f"ERROR: torchgraph_releases: {problem}"])


def test_releases_without_the_option_share_one_file(
    pytester: pytest.Pytester, on: On, update: On
) -> None:
    update("2.13", "relu", listed="")
    assert stored_graphs(update("2.99", "gelu", listed=""))[0].startswith(
        f"updated  {BASE}: 1 edit"
    )
    assert files(pytester).keys() == {BASE}


WHOLE = """
import pytest
from graphs import Capture, graph

@pytest.mark.parametrize("device", ["cpu", "cuda"])
def test_on(device, graph_snapshot, subtests):
    with subtests.test("one"):
        assert Capture(graph()) == graph_snapshot(name="one")
    with subtests.test("two"):
        assert Capture(graph("mm")) == graph_snapshot(name="two")

def test_step(graph_snapshot):
    assert Capture(graph()) == graph_snapshot
    assert Capture(graph("mm")) == graph_snapshot
"""


@pytest.mark.slow("the same without workers is in every run", unless=["one"])
@pytest.mark.parametrize("workers", [(), ("-p", "xdist", "-n2")], ids=["one", "n2"])
def test_files_of_each_comparison_of_a_test_have_their_release(
    pytester: pytest.Pytester, on: On, update: On, workers: tuple[str, ...]
) -> None:
    pytest.importorskip("_pytest.subtests", reason="pytest 9 has subtests")
    pytester.makepyfile(test_net=WHOLE)
    update("2.11", "relu", *workers)
    stems = ["test_on[cpu][one]", "test_on[cuda][one]", "test_step"]
    both = [*stems, "test_on[cpu][two]", "test_on[cuda][two]", "test_step.1"]
    assert files(pytester).keys() == {f"{HOME}/{stem}.tgraph" for stem in both}
    before = files(pytester)
    update("2.13", "gelu", *workers)
    assert files(pytester).keys() - before.keys() == {of("2.13", stem) for stem in stems}
    assert files(pytester).items() > before.items()
    assert on("2.13", "gelu", *workers).ret == 0
    assert on("2.11", "relu", *workers).ret == 0


@pytest.mark.slow("a run of pytest of its own")
def test_file_name_with_release_has_at_most_255_bytes(
    pytester: pytest.Pytester, on: On, update: On
) -> None:
    pytester.makepyfile(
        test_net="""
        import pytest
        from graphs import graph

        @pytest.mark.parametrize("n", range(218, 246), ids=lambda n: "x" * n)
        def test_step(n, graph_snapshot):
            assert graph() == graph_snapshot
        """
    )
    update("2.13", "relu", listed="2.13 2.15")
    base = files(pytester)
    assert max(len(Path(path).name) for path in base) == 255
    update("2.15", "gelu", listed="2.13 2.15")
    added = files(pytester).keys() - base.keys()
    assert len(added) == len(base) == 28
    assert max(len(Path(path).name) for path in added) == 255
    assert all(path.endswith("@torch-2.15.tgraph") for path in added)
    update("2.15", "gelu", listed="")
    assert files(pytester).keys() == base.keys() | added, (
        "names differ from those without the option"
    )
    on("2.15", "gelu", listed="2.13 2.15").assert_outcomes(passed=28)


@pytest.mark.slow("via dispatch each case is in every run")
def test_prune_removes_only_files_of_unlisted_releases(
    pytester: pytest.Pytester, on: On, update: On
) -> None:
    gone = "def test_gone(graph_snapshot):\n    assert Capture(graph()) == graph_snapshot\n"
    pytester.makepyfile(test_net=f"{STEP}\n{gone}")
    for release, op in [("2.11", "sin"), ("2.13", "cos"), ("2.15", "tan")]:
        update(release, op)
    before = files(pytester)
    assert len(before) == 6
    for release, op in [("2.11", "sin"), ("2.13", "cos"), ("2.15", "tan")]:
        assert stored_graphs(on(release, op, "--torchgraph-prune")) == ["nothing to remove"]
    assert files(pytester) == before

    # A deleted test: each release's run removes the file of that release.
    pytester.makepyfile(test_net=STEP)
    assert stored_graphs(on("2.13", "cos", "--torchgraph-prune")) == [
        f"removed  {of('2.13', 'test_gone')}",
        f"kept {HOME}/test_gone.tgraph and 1 more: this run does not use torch 2.11, 2.15",
    ]
    assert stored_graphs(on("2.14", "cos", "--torchgraph-prune"))[0] == "nothing to remove"
    assert stored_graphs(on("2.11", "sin")) == [
        f"stale, no test compares them: {HOME}/test_gone.tgraph (--torchgraph-prune removes them)"
    ]
    assert stored_graphs(on("2.11", "sin", "--torchgraph-prune"))[0] == (
        f"removed  {HOME}/test_gone.tgraph"
    )

    # A release that is no longer listed, and then no release.
    assert stored_graphs(on("2.13", "cos", "--torchgraph-prune", listed="2.11 2.13")) == [
        f"removed  {of('2.15', 'test_gone')}",
        f"removed  {of('2.15')}",
    ]
    assert files(pytester).keys() == {BASE, of("2.13")}
    assert stored_graphs(on("2.11", "sin", "--torchgraph-prune", listed="")) == [
        f"removed  {of('2.13')}"
    ]
    assert files(pytester).keys() == {BASE}


@pytest.mark.slow("a run of pytest of its own")
def test_release_file_equal_to_the_next_is_removed(
    pytester: pytest.Pytester, on: On, update: On
) -> None:
    update("2.11", "relu")
    path = pytester.path / of("2.13")
    path.write_text((pytester.path / BASE).read_text().replace("layer", "block"))
    on("2.13", "relu").assert_outcomes(passed=1)
    path.with_name("test_step.tgraph").write_text("not a graph")
    assert on("2.13", "relu", "--torchgraph-update").ret == 0, "the file of 2.11 was compared"
    assert "layer.0" in path.read_text()
    assert (pytester.path / BASE).read_text() == "not a graph"
    failed = on("2.15", "relu")  # compares with the file of 2.13
    failed.assert_outcomes(passed=1)
    path.unlink()
    on("2.13", "relu").stdout.fnmatch_lines(["*test_step.tgraph:1:1: *"])


@pytest.mark.slow("a run of pytest of its own")
def test_new_release_with_many_files_lists_causes(
    pytester: pytest.Pytester, on: On, update: On
) -> None:
    pytester.makepyfile(
        test_net="""
        import os
        import pytest
        from graphs import Capture, graph

        @pytest.mark.parametrize("k", range(11))
        def test_step(k, graph_snapshot):
            assert Capture(graph(*["sin"] * k, *os.environ["OP"].split())) == graph_snapshot
        """
    )
    update("2.13", "relu cos", listed="2.13 2.15")
    result = update("2.15", "gelu cos", listed="2.13 2.15")
    assert stored_graphs(result) == ["created  11 files (-v lists them)"]
    result.stdout.fnmatch_lines(["=* this update changes 11 of 11 stored graphs, by 1 cause =*"])
    assert len(files(pytester)) == 22


def test_new_release_with_another_detail_gets_its_own_file(
    pytester: pytest.Pytester, on: On, update: On
) -> None:
    update("2.11", "relu")
    pytester.makepyfile(
        test_net=STEP.replace("== graph_snapshot", '== graph_snapshot(detail="ops")')
    )
    on("2.13", "relu").assert_outcomes(passed=1)
    assert stored_graphs(update("2.13", "relu")) == [
        f"created  {of('2.13')}: compared with torch 2.11: detail 'ops', was 'dataflow'"
    ]


# -- in every order --------------------------------------------------------------------------------

ORDERS = """
import importlib.metadata
import os
from itertools import permutations
from pathlib import Path

import pytest
from graphs import Capture, graph

LISTED = ("2.11", "2.13", "2.15")
OPS = {"0": "sin", "1": "cos", "2": "tan"}
STEP = os.environ["STEP"]


@pytest.mark.parametrize("graphs", os.environ["PATTERNS"].split())
@pytest.mark.parametrize("order", ["".join(order) for order in permutations("012")])
def test_step(order, graphs, graph_snapshot, monkeypatch):
    turn = int(order[int(STEP)] if STEP.isdigit() else STEP.removeprefix("on"))
    monkeypatch.setattr(importlib.metadata, "version", lambda name: LISTED[turn])
    ops = graphs.split("to")["LATER" in os.environ]
    assert Capture(graph(OPS[ops[turn]])) == graph_snapshot
"""
PATTERNS = ("000", "001", "010", "011", "012")
"""The releases, of three, that have equal graphs."""


def owner(path: str, listed: str) -> str:
    """Return the release that a stored file belongs to."""
    tag = path.removesuffix(".tgraph").rpartition("@torch-")[2]
    return tag if tag in RELEASES else listed.split()[0]


RELEASES = ("2.11", "2.13", "2.15")


class Rounds:
    """Updates of one test for each order of three releases and each pattern of equal graphs."""

    def __init__(self, pytester: pytest.Pytester, on: On, listed: str, patterns: str):
        self.pytester, self.on, self.listed, self.patterns = pytester, on, listed, patterns
        pytester.makepyfile(test_net=ORDERS)

    def run(self, step: str, *args: str, **env: str) -> pytest.RunResult:
        return self.on(
            "2.11", "relu", *args, listed=self.listed, STEP=step, PATTERNS=self.patterns, **env
        )

    def update(self, **env: str) -> None:
        """Update on each release, and check that it changes no file of another release."""
        for step in range(3):
            before = files(self.pytester)
            assert self.run(str(step), "--torchgraph-update", **env).ret == 0
            after = files(self.pytester)
            for path in before.keys() | after.keys():
                if before.get(path) != after.get(path):
                    turn = int(path.partition("[")[2][step])
                    assert owner(path, self.listed) == RELEASES[turn], path

    def wrong(self, **env: str) -> set[str]:
        """Return the tests that do not compare with the graph of their own release."""
        return {
            f"{line} on {release}"
            for number, release in enumerate(RELEASES)
            for line in self.run(f"on{number}", "-rf", **env).outlines
            if line.startswith("FAILED")
        }


@pytest.mark.slow("the same without workers is in every run")
@pytest.mark.parametrize("listed", ["2.11 2.13 2.15", "2.15 2.11 2.13"])
def test_compared_release_is_independent_of_the_order_of_updates(
    pytester: pytest.Pytester, on: On, listed: str
) -> None:
    rounds = Rounds(pytester, on, listed, " ".join(PATTERNS))
    rounds.update()
    assert rounds.wrong() == set()
    for _ in range(2):
        rounds.update()
        assert rounds.wrong() == set()
    before = files(pytester)
    rounds.update()
    assert files(pytester) == before, "a further update changed files"


@pytest.mark.slow("several changes at once are in every run")
def test_two_rounds_of_updates_suffice_after_an_edit_in_any_order(
    pytester: pytest.Pytester, on: On
) -> None:
    edits = [f"{old}to{new}" for old in PATTERNS for new in PATTERNS]
    rounds = Rounds(pytester, on, "2.11 2.13 2.15", " ".join(edits))
    rounds.update()
    assert rounds.wrong() == set()
    rounds.update(LATER="1")
    # 2.15 was updated while its graph equalled the graph that 2.13 had stored before the edit.
    late = rounds.wrong(LATER="1")
    assert any("test_step[201-" in line for line in late)
    assert not any("test_step[012-" in line for line in late), (
        "in ascending order one round suffices"
    )
    rounds.update(LATER="1")
    assert rounds.wrong(LATER="1") == set()
