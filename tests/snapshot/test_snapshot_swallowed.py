"""A failed comparison fails its test, and an update lists every file that it replaced."""

from __future__ import annotations

import sys

import pytest
from projects import Run
from projects import stored_graphs as lines

TESTS = """
import contextlib, unittest
import pytest
from graphs import graph
from pytest_torchgraph import GraphTestCase

@pytest.fixture
def compared(graph_snapshot):
    graph("sin") == graph_snapshot(name="fixture")

@pytest.fixture
def skipping(graph_snapshot):
    graph("sin") == graph_snapshot(name="fixture")
    pytest.skip("later")

@pytest.fixture
def at_end(graph_snapshot):
    yield
    graph("sin") == graph_snapshot(name="fixture")
    pytest.skip("later")

def test_skip(graph_snapshot):
    with contextlib.suppress(AssertionError):
        assert graph("sin") == graph_snapshot
    pytest.skip("later")

def test_import(graph_snapshot):
    graph("sin") == graph_snapshot
    pytest.importorskip("no_such_module")

def test_xfail(graph_snapshot):
    graph("sin") == graph_snapshot
    pytest.xfail("later")

def test_unittest_skip(graph_snapshot):
    graph("sin") == graph_snapshot
    raise unittest.SkipTest("later")

def test_ignored(graph_snapshot):
    graph("sin") == graph_snapshot

def test_in_fixture(compared):
    pass

def test_fixture_skips(skipping):
    pass

def test_teardown_skips(at_end):
    pass

class TestNet(GraphTestCase):
    def test_skips(self):
        with contextlib.suppress(AssertionError):
            self.assertGraph(graph("sin"))
        self.skipTest("later")

    @unittest.expectedFailure
    def test_expected(self):
        self.assertGraph(graph("sin"))

@pytest.mark.xfail
def test_marked(graph_snapshot):
    assert graph("sin") == graph_snapshot

@pytest.mark.xfail
def test_marked_skip(graph_snapshot):
    graph("sin") == graph_snapshot
    pytest.skip("later")

def test_skip_without_comparison(graph_snapshot):
    pytest.skip("later")
"""
FAILED = (
    "test_skip test_import test_xfail test_unittest_skip test_ignored TestNet::test_skips"
).split()
ERRORS = "test_in_fixture test_fixture_skips test_teardown_skips".split()


@pytest.mark.slow("with workers", unless=["one"])
@pytest.mark.parametrize("workers", [(), ("-p", "xdist", "-n2")], ids=["one", "n2"])
def test_failed_comparison_fails_a_test_that_skips(
    pytester: pytest.Pytester, run: Run, workers: tuple[str, ...]
) -> None:
    pytester.makepyfile(test_net=TESTS)
    result = run("-rA", *workers)
    outcomes = dict(
        reversed(line.split(" - ")[0].split(" ", 1))
        for line in result.outlines
        if line.startswith(("PASSED ", "FAILED ", "SKIPPED ", "XFAIL ", "ERROR "))
        and "test_net.py::" in line
    )
    names = {name.removeprefix("test_net.py::"): outcome for name, outcome in outcomes.items()}
    assert {name for name, outcome in names.items() if outcome == "FAILED"} == set(FAILED)
    assert {name for name, outcome in names.items() if outcome == "ERROR"} == set(ERRORS)
    assert {name for name, outcome in names.items() if outcome == "XFAIL"} == {
        "TestNet::test_expected",
        "test_marked",
        "test_marked_skip",
    }
    result.assert_outcomes(failed=6, errors=3, xfailed=3, skipped=1, passed=1)
    result.stdout.fnmatch_lines(["*the test ignored a failed comparison with a stored graph:*"])


def test_skip_after_a_comparison_that_passes_stays_a_skip(
    pytester: pytest.Pytester, run: Run
) -> None:
    source = """
        import pytest
        from graphs import graph

        def test_it(graph_snapshot):
            assert graph() == graph_snapshot
            assert graph() == graph_snapshot(name="other")
        """
    pytester.makepyfile(test_net=source)
    run("--torchgraph-update").assert_outcomes(passed=1)
    differs = source.replace("graph() == graph_snapshot(", 'graph("sin") != graph_snapshot(')
    pytester.makepyfile(test_net=f"{differs}    pytest.skip('later')\n")
    run().assert_outcomes(skipped=1)


CRASHES = """
import os
from graphs import graph

def test_one(graph_snapshot):
    assert graph() == graph_snapshot
    {crash}

def test_two(graph_snapshot):
    assert graph() == graph_snapshot
"""


@pytest.mark.slow("a run of pytest of its own", only=["os._exit(3)"])
@pytest.mark.skipif(sys.platform == "win32", reason="signals")
@pytest.mark.parametrize("crash", ["os._exit(3)", "os.kill(os.getpid(), 2)"])
def test_update_lists_the_files_of_a_lost_test(
    pytester: pytest.Pytester, run: Run, crash: str
) -> None:
    pytester.makepyfile(test_net=CRASHES.format(crash=""))
    run("--torchgraph-update").assert_outcomes(passed=2)
    pytester.makepyfile(test_net=CRASHES.format(crash=crash))
    workers = ("-p", "xdist", "-n2") if "_exit" in crash else ()
    result = run("--torchgraph-update", *workers, OP="sin")
    files = [line.partition(":")[0] for line in lines(result)]
    assert "updated  __snapshots__/test_net/test_one.tgraph" in files
    assert not any(line.startswith("nothing stored") for line in files)
    assert len(files) == len(set(files))


@pytest.mark.skipif(sys.platform == "win32", reason="permissions")
def test_comparison_that_cannot_be_written_is_not_reported_as_passed(
    pytester: pytest.Pytester, project: Run, tmp_path_factory: pytest.TempPathFactory
) -> None:
    directory = pytester.path / "__snapshots__"
    outside = tmp_path_factory.mktemp("outside") / "moved"
    directory.rename(outside)
    directory.symlink_to(outside)
    result = project("--torchgraph-update", OP="sin")
    result.assert_outcomes(failed=1)
    assert not any("passed" in line for line in result.outlines if "snapshot" in line[:12])
    assert "1 snapshot failed." in result.outlines


def test_conflicting_text_blocks_only_itself(pytester: pytest.Pytester, run: Run) -> None:
    source = """
    import pytest
    from graphs import graph
    from pytest_torchgraph import assert_graph_text

    @pytest.mark.parametrize("op", ["relu", "sin"])
    def test_apart(op):
        assert_graph_text(graph(op), "", "ops")

    def test_alone():
        assert_graph_text(graph("cos"), "", "ops")

    @pytest.mark.parametrize("op", ["exp", "log"])
    def test_again(op):
        assert_graph_text(graph(op), "", "ops")
    """
    path = pytester.makepyfile(test_net=source)
    result = run("--torchgraph-update")
    assert result.ret == 2
    text = path.read_text()
    assert text.count('""') == 2 + text.count('"""')
    assert "aten.cos.default" in text
    assert [line.partition(":")[0] for line in lines(result) if line] == [
        "refused  test_net.py",
        "refused  test_net.py",
        "updated  test_net.py",
    ]
    run("-k", "test_alone").assert_outcomes(passed=1)
