"""A test that requests graph_snapshot without comparing fails, because it checks nothing."""

from __future__ import annotations

import pytest
from projects import Run, stored_graphs

HEAD = "import pytest\nfrom graphs import graph\n"

UNUSED = {
    "forgotten": """
def test_step(graph_snapshot):
    graph()
""",
    "an empty loop": """
def test_step(graph_snapshot):
    for name in []:
        assert graph() == graph_snapshot(name=name)
""",
    "only named": """
def test_step(graph_snapshot):
    forward = graph_snapshot(name="forward")
""",
    "a method": """
class TestNet:
    def test_step(self, graph_snapshot):
        pass
""",
    "wrapped": """
import functools

def logged(test):
    @functools.wraps(test)
    def call(*args, **kwargs):
        return test(*args, **kwargs)
    return call

@logged
def test_step(graph_snapshot):
    graph()
""",
    "a fixture of the project's": """
@pytest.fixture
def graph_snapshot(graph_snapshot):
    return graph_snapshot(detail="full")

def test_step(graph_snapshot):
    graph()
""",
}


@pytest.mark.slow(
    "further cases; a few are in every run", unless=["forgotten", "a method", "wrapped"]
)
@pytest.mark.parametrize("case", UNUSED)
def test_graph_snapshot_without_a_comparison_fails(
    pytester: pytest.Pytester, run: Run, case: str
) -> None:
    pytester.makepyfile(test_net=HEAD + UNUSED[case])
    result = run(*["--torchgraph-update"] * (case in ("only named", "wrapped")))
    result.assert_outcomes(failed=1)
    result.stdout.fnmatch_lines(
        ["graph_snapshot was requested, but nothing was compared with it*", "*pytest.skip*"]
    )
    assert "hidden" not in result.stdout.str()
    assert not pytester.path.joinpath("__snapshots__").exists()


USED = {
    "equal": """
def test_step(graph_snapshot):
    assert graph() == graph_snapshot
""",
    "assert_match": """
def test_step(graph_snapshot):
    graph_snapshot.assert_match(graph())
""",
    "through a helper": """
class Checks:
    def __init__(self, snapshot):
        self.snapshot = snapshot

    def check(self, name):
        assert graph() == self.snapshot(name=name)

def test_step(graph_snapshot):
    Checks(graph_snapshot).check("forward")
""",
    "another's": """
@pytest.fixture
def check(graph_snapshot):
    def compare():
        assert graph() == graph_snapshot
    return compare

def test_step(check):
    pass
""",
    "used by marker": """
@pytest.mark.usefixtures("graph_snapshot")
def test_step():
    pass
""",
    "not ours": """
@pytest.fixture
def graph_snapshot():
    return 1

def test_step(graph_snapshot):
    pass
""",
    "refused": """
def test_step(graph_snapshot):
    with pytest.raises(TypeError):
        assert 1 == graph_snapshot
""",
    "subtests": """
def test_step(graph_snapshot, subtests):
    with subtests.test("there"):
        assert graph() == graph_snapshot(name="there")
""",
}


@pytest.mark.slow("further cases; a few are in every run", unless=["not ours", "refused"])
@pytest.mark.parametrize("case", USED)
def test_graph_snapshot_with_a_comparison_passes(
    pytester: pytest.Pytester, run: Run, case: str
) -> None:
    if case == "subtests" and pytest.version_tuple < (9,):
        pytest.skip("pytest has no subtests before 9")
    pytester.makepyfile(test_net=HEAD + USED[case])
    run("--torchgraph-update").assert_outcomes(passed=1)
    run().assert_outcomes(passed=1)


OWN = """
def test_skipped(graph_snapshot):
    pytest.skip("not here")

@pytest.mark.skip
def test_marked(graph_snapshot):
    pass

def test_expected(graph_snapshot):
    pytest.xfail("known")

@pytest.mark.xfail
def test_known(graph_snapshot):
    raise ValueError

def test_error(graph_snapshot):
    raise ValueError("its own")

@pytest.mark.xfail(strict=True)
def test_passes_where_it_should_not(graph_snapshot):
    pass
"""


def test_unused_graph_snapshot_keeps_other_outcomes(pytester: pytest.Pytester, run: Run) -> None:
    pytester.makepyfile(test_net=HEAD + OWN)
    result = run()
    result.assert_outcomes(skipped=2, xfailed=2, failed=2)
    result.stdout.fnmatch_lines(["*ValueError: its own*", "*XPASS(strict)*"])
    result.stdout.no_fnmatch_line("*nothing was compared*")


def test_unused_graph_snapshot_in_a_skipped_subtest(pytester: pytest.Pytester, run: Run) -> None:
    if pytest.version_tuple < (9,):
        pytest.skip("pytest has no subtests before 9")
    body = """
def test_step(graph_snapshot, subtests):
    with subtests.test("there"):
        pytest.skip("not here")
        assert graph() == graph_snapshot(name="there")
"""
    pytester.makepyfile(test_net=HEAD + body)
    run().assert_outcomes(passed=1)


def test_unused_graph_snapshot_with_setup_only(pytester: pytest.Pytester, run: Run) -> None:
    pytester.makepyfile(test_net=HEAD + UNUSED["forgotten"])
    for option in ("--setup-only", "--setup-plan", "--collect-only"):
        assert run(option).ret == 0


def test_unused_graph_snapshot_is_checked_for_each_rerun(
    pytester: pytest.Pytester, run: Run
) -> None:
    body = """
tries = []

def test_step(graph_snapshot):
    tries.append(1)
    if len(tries) == 1:
        assert graph() == graph_snapshot
        raise ValueError("flaky")
"""
    pytester.makepyfile(test_net=HEAD + body)
    result = run("-p", "pytest_rerunfailures", "--reruns=1", "--torchgraph-update")
    result.assert_outcomes(failed=1)
    result.stdout.fnmatch_lines(["graph_snapshot was requested*"])


def test_prune_removes_nothing_after_a_forgotten_comparison(
    pytester: pytest.Pytester, run: Run
) -> None:
    pytester.makepyfile(test_net=HEAD + USED["equal"])
    run("--torchgraph-update").assert_outcomes(passed=1)
    pytester.makepyfile(test_net=HEAD + UNUSED["forgotten"])
    run("--torchgraph-prune").assert_outcomes(failed=1)
    assert pytester.path.joinpath("__snapshots__/test_net/test_step.tgraph").exists()


def test_update_without_a_comparison_says_so(pytester: pytest.Pytester, run: Run) -> None:
    pytester.makepyfile("def test_plain(): pass")
    said = "nothing stored: no test compared graphs"
    assert stored_graphs(run("--torchgraph-update"))[0] == said
    collected = run("--torchgraph-update", "--collect-only")
    assert "nothing stored" not in collected.stdout.str()
    assert "nothing stored" not in run().stdout.str()
