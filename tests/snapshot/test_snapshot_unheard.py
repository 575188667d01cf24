"""A failed comparison fails its test, even if the test ignores the result."""

from __future__ import annotations

import pytest
from projects import Run

WAYS = {
    "no assert": "graph() == graph_snapshot",
    "not": "assert not (graph() == graph_snapshot)",
    "swallowed": """
        try:
            assert graph() == graph_snapshot
        except AssertionError:
            pass
    """,
    "raises": """
        with pytest.raises(AssertionError):
            assert graph() == graph_snapshot
    """,
}


def project(pytester: pytest.Pytester, body: str) -> None:
    body = "\n".join(
        f"    {line[8:] if line[:8].isspace() else line}" for line in body.splitlines()
    )
    pytester.path.joinpath("test_net.py").write_text(
        f"import pytest\nfrom graphs import graph\n\ndef test_step(graph_snapshot):\n{body}\n"
    )


@pytest.mark.slow("further cases; a few are in every run", unless=["not"])
@pytest.mark.parametrize("way", WAYS)
def test_ignored_comparison_result_fails(pytester: pytest.Pytester, run: Run, way: str) -> None:
    project(pytester, WAYS[way])
    result = run()
    result.assert_outcomes(failed=1)
    result.stdout.fnmatch_lines(
        [
            "the test ignored a failed comparison with a stored graph:",
            "  __snapshots__/test_net/test_step.tgraph: no graph is stored for this comparison yet",
            "write `assert capture == graph_snapshot`*",
        ]
    )
    project(pytester, "assert graph() == graph_snapshot")
    run("--torchgraph-update").assert_outcomes(passed=1)
    project(pytester, WAYS[way])
    run(OP="tanh").assert_outcomes(failed=1)
    if way in ("no assert", "swallowed"):
        run().assert_outcomes(passed=1)


def test_not_equal_does_not_advise_an_update(pytester: pytest.Pytester, run: Run) -> None:
    project(pytester, "assert not (graph() != graph_snapshot)")
    result = run("--torchgraph-update")
    result.assert_outcomes(failed=1)
    advice = "accept:  none, because != stores nothing: compare with =="
    result.stdout.fnmatch_lines([f"E*{advice}", advice])
    assert "--torchgraph-update" not in result.stdout.str()


@pytest.mark.slow("runs pytest several times")
def test_not_equal_requires_a_stored_graph(pytester: pytest.Pytester, run: Run) -> None:
    project(pytester, "assert graph() != graph_snapshot")
    run().assert_outcomes(failed=1)
    run("--torchgraph-update").assert_outcomes(failed=1)
    assert not pytester.path.joinpath("__snapshots__").exists()
    project(pytester, "assert graph() == graph_snapshot")
    run("--torchgraph-update").assert_outcomes(passed=1)
    project(pytester, "assert not (graph() != graph_snapshot)")
    run().assert_outcomes(passed=1)
    result = run(OP="tanh")
    result.assert_outcomes(failed=1)
    result.stdout.fnmatch_lines(["E*accept:  none, because != stores nothing: compare with =="])
    assert "--torchgraph-update" not in result.stdout.str()
    project(pytester, "assert graph() != graph_snapshot")
    run().assert_outcomes(failed=1)
    run(OP="tanh").assert_outcomes(passed=1)
    run("--torchgraph-update", OP="tanh").assert_outcomes(passed=1)
    run(OP="relu").assert_outcomes(failed=1)  # the update stored nothing


def test_xfail_covers_a_failed_comparison(pytester: pytest.Pytester, run: Run) -> None:
    pytester.makepyfile(
        test_net="""
        import pytest
        from graphs import graph

        @pytest.mark.xfail(raises=AssertionError, strict=True)
        def test_step(graph_snapshot):
            assert graph() == graph_snapshot
        """
    )
    run().assert_outcomes(xfailed=1)
