"""Unnamed comparisons are numbered in sequence, and refused where their order is undefined."""

from __future__ import annotations

from pathlib import Path

import pytest
from projects import Run, files

UPDATE = "--torchgraph-update"


def stems(pytester: pytest.Pytester) -> list[str]:
    return sorted(Path(path).stem for path in files(pytester))


LOOPS = {
    "a function called in a loop": """
        def check(op):
            assert graph(op) == graph_snapshot
        for op in ("mm", "relu"):
            check(op)
    """,
    "recursion": """
        def check(*ops):
            if ops:
                check(*ops[1:])
                assert graph(ops[0]) == graph_snapshot
        for op in ("mm", "relu"):
            check(op)
    """,
    "syrupy's method": """
        for op in ("mm", "relu"):
            graph_snapshot.assert_match(graph(op))
    """,
}


@pytest.mark.slow("further cases; a few are in every run", unless=["syrupy's method"])
@pytest.mark.parametrize("loop", LOOPS)
def test_unnamed_comparison_in_a_loop_is_refused_with_its_line(
    pytester: pytest.Pytester, run: Run, loop: str
) -> None:
    source = "from graphs import graph\n\ndef test_step(graph_snapshot):"
    pytester.makepyfile(test_net=source + LOOPS[loop])
    (line,) = [
        number
        for number, text in enumerate(Path("test_net.py").read_text().splitlines(), 1)
        if "graph_snapshot" in text and number > 3
    ]
    result = run(UPDATE)
    result.assert_outcomes(failed=1)
    result.stdout.fnmatch_lines(
        [
            f"E *TorchGraphError: test_net.py:{line}: second comparison without a name, "
            "probably in a loop: *Write graph_snapshot(name=...)*"
        ]
    )
    assert stems(pytester) == []


def test_comparisons_in_sequence_are_numbered(pytester: pytest.Pytester, run: Run) -> None:
    pytester.makepyfile(
        test_net="""
        import pytest
        from graphs import graph

        def check(op, graph_snapshot):
            assert graph(op) == graph_snapshot

        @pytest.fixture
        def checked(graph_snapshot):
            check("t", graph_snapshot)

        def test_step(checked, graph_snapshot):
            assert graph("mm") == graph_snapshot
            assert (graph("mm") == graph_snapshot) and (graph("relu") == graph_snapshot)
            check("neg", graph_snapshot)
            check("exp", graph_snapshot)
            for op in ("mm", "relu"):
                assert graph(op) == graph_snapshot(name=op)

        @pytest.mark.parametrize("op", ["mm", "relu"])
        def test_each(op, graph_snapshot):
            assert graph(op) == graph_snapshot
        """
    )
    run(UPDATE).assert_outcomes(passed=3)
    assert stems(pytester) == [
        "test_each[mm]",
        "test_each[relu]",
        "test_step",
        *(f"test_step.{i}" for i in range(1, 6)),
        "test_step[mm]",
        "test_step[relu]",
    ]
    run().assert_outcomes(passed=3)


GIVEN = """
from hypothesis import HealthCheck, given, settings, strategies as st
from graphs import graph

relaxed = settings(
    max_examples=20, database=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)

class TestNet:
    @relaxed
    @given(size=st.integers(0, 9))
    def test_step(self, graph_snapshot, size):
        {body}
"""


def test_unnamed_comparison_under_hypothesis_is_refused(
    pytester: pytest.Pytester, run: Run
) -> None:
    body = "assert graph() == graph_snapshot"
    pytester.makepyfile(test_net=GIVEN.format(body=body))
    result = run("-p", "_hypothesis_pytestplugin", UPDATE)
    result.assert_outcomes(failed=1)
    result.stdout.fnmatch_lines(
        [
            ">*assert graph() == graph_snapshot",
            "E *TorchGraphError: comparison without a name in a Hypothesis test: the graphs "
            "would be numbered in the order of the examples. Pass graph_snapshot(name=...)*",
            "test_net.py:12: TorchGraphError",
        ]
    )
    assert stems(pytester) == []


@pytest.mark.slow("runs pytest several times")
def test_named_graph_shared_by_hypothesis_examples_is_stored(
    pytester: pytest.Pytester, run: Run
) -> None:
    body = 'assert graph() == graph_snapshot(name="step")'
    pytester.makepyfile(test_net=GIVEN.format(body=body))
    plugins = ("-p", "_hypothesis_pytestplugin")
    result = run(*plugins, UPDATE)
    result.assert_outcomes(passed=1)
    path = "__snapshots__/test_net/TestNet.test_step[[]step].tgraph"
    result.stdout.fnmatch_lines([f"created  {path}: forward 1 op"])
    run(*plugins).assert_outcomes(passed=1)
    result = run(*plugins, UPDATE)
    result.stdout.fnmatch_lines([f"unchanged  {path}"])
    failed = run(*plugins, OP="gelu")
    failed.assert_outcomes(failed=1)
    sections = [line for line in failed.outlines if line.strip("-") == " torchgraph "]
    assert len(sections) == 1, "there is a section for each example"


def test_rerun_restarts_the_numbering(pytester: pytest.Pytester, run: Run) -> None:
    pytest.importorskip("pytest_rerunfailures")
    pytester.makepyfile(
        test_net="""
        from graphs import graph
        tries = []

        def test_step(graph_snapshot):
            tries.append(1)
            assert graph("mm") == graph_snapshot
            assert graph("relu") == graph_snapshot
            assert len(tries) == 3
        """
    )
    result = run("-p", "rerunfailures", "--reruns=2", UPDATE)
    result.assert_outcomes(passed=1)
    assert stems(pytester) == ["test_step", "test_step.1"]
    run("-p", "rerunfailures", "--reruns=2").assert_outcomes(passed=1)
