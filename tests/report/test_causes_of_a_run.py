"""The end of a run with several failed comparisons lists each cause once."""

from __future__ import annotations

import json
from collections.abc import Callable

import pytest
from graph.build import graph
from projects import Run

from pytest_torchgraph.graph import Header, Program
from pytest_torchgraph.report.causes import FailedComparisons
from pytest_torchgraph.report.comparisons import MAX_FINDINGS, data_of
from pytest_torchgraph.snapshot import REPORTED, Comparison, read_stored

TESTS = """
    import os

    import pytest
    from graphs import Capture, graph

    TORCH = os.environ.get("TORCH_NOW", "2.13.0")

    @pytest.mark.parametrize("k", range(int(os.environ.get("COUNT", "2"))))
    def test_net(graph_snapshot, k):
        ops = ["sin", *["cos", "exp"] * k, os.environ.get("OP", "gelu"), "tan"]
        assert Capture(graph(*ops), torch=TORCH) == graph_snapshot

    def test_other(graph_snapshot):
        assert Capture(graph("log", os.environ.get("OTHER", "log"))) == graph_snapshot
"""


@pytest.fixture
def few(pytester: pytest.Pytester, run: Run, store: Callable[..., object]) -> Run:
    """Two files, each with two tests of chains of different lengths, and one more; all stored."""
    pytester.makepyfile(test_a=TESTS, test_b=TESTS)
    store(passed=6)
    return run


def end(result: pytest.RunResult) -> list[str]:
    """Return the lines of the section at the end of a run, without pytest's last line."""
    heads = [k for k, line in enumerate(result.outlines) if " graphs differ: " in line]
    assert len(heads) == 1, result.stdout.str()
    *lines, last = result.outlines[heads[0] :]
    assert " in " in last
    assert "failed" in last
    return lines


@pytest.mark.parametrize("text", ["not a graph", "\udcff"])
def test_unreadable_stored_graph_leaves_the_causes_and_the_page_of_others(
    few: Run, pytester: pytest.Pytester, text: str
) -> None:
    path = pytester.path / "__snapshots__/test_a/test_net[0].tgraph"
    path.write_text(text, errors="surrogateescape")
    result = few("--torchgraph-report=page.html", OP="relu")
    result.assert_outcomes(failed=4, passed=2)
    lines = end(result)
    assert any("aten.gelu -> aten.relu" in line and "3 tests" in line for line in lines)
    assert "FAILED test_a.py::test_net[0]" in result.stdout.str()
    page = (pytester.path / "page.html").read_text()
    assert "test_b.py::test_net[1]" in page


@pytest.mark.slow("runs pytest for a second")
def test_missing_snapshot_is_not_a_cause(pytester: pytest.Pytester, run: Run) -> None:
    pytester.makepyfile(test_a=TESTS)
    result = run()
    result.assert_outcomes(failed=3)
    result.stdout.fnmatch_lines(
        [
            "*= graphs not stored: 1 cause in 3 tests =*",
            "! no graph is stored for this comparison yet  (3 tests)",
        ]
    )
    assert sum(line.startswith("! no graph") for line in result.outlines) == 1
    run("--torchgraph-update", "-k", "test_net").assert_outcomes(passed=2, deselected=1)
    result = run(OP="relu")
    result.stdout.fnmatch_lines(["*= graphs differ: 2 causes in *"])


@pytest.mark.slow("the same with another process, plugin, option or mechanism")
@pytest.mark.parametrize("how", [("-q", "--tb=no"), ("-p", "xdist", "-n2")])
def test_edit_that_fails_40_tests_is_one_cause(
    pytester: pytest.Pytester, run: Run, how: tuple[str, ...]
) -> None:
    pytester.makepyfile(test_a=TESTS, test_b=TESTS)
    run("--torchgraph-update", COUNT="20").assert_outcomes(passed=42)
    result = run(*how, COUNT="20", OP="relu")
    result.assert_outcomes(failed=40, passed=2)
    title, *lines = end(result)
    assert title.strip("= ") == "graphs differ: 1 cause in 40 tests"
    assert lines == [
        "~ aten.gelu -> aten.relu in layer.{1, 3, 5, 7, 9, and 15 more}  (40 tests)",
        "    before  %layer.1/gelu = aten.gelu.default(%layer.0/sin) : f32[2, 16]",
        "    after   %layer.1/relu = aten.relu.default(%layer.0/sin) : f32[2, 16]",
        "    in test_a.py::test_net[0], test_a.py::test_net[10], test_a.py::test_net[11] "
        "and 37 more",
        "accept all:  pytest --lf --torchgraph-update",
        "review:      pytest-torchgraph review",
    ]


@pytest.mark.slow("runs pytest several times")
def test_two_edits_are_two_causes_sorted_by_tests(few: Run) -> None:
    lines = end(few("-p", "no:cacheprovider", OP="relu", OTHER="abs", TORCH_NOW="2.15.0"))
    assert "2 causes in 6 tests" in lines[0]
    assert lines[1] == "torch 2.13.0 -> 2.15.0"
    heads = [line for line in lines if line.startswith("~")]
    assert [line.rpartition("(")[2] for line in heads] == [
        "4 tests)",
        "2 tests)",
    ]
    assert "accept" not in "\n".join(lines)  # the last failures have unknown causes


def test_single_failed_comparison_has_no_causes_section(few: Run) -> None:
    result = few("-k", "test_other", "test_a.py", OTHER="abs")
    result.assert_outcomes(failed=1, deselected=2)
    assert "graphs differ" not in result.stdout.str()
    result = few("test_a.py")
    result.assert_outcomes(passed=3)
    assert "graphs differ" not in result.stdout.str()


def test_rerun_that_passes_is_not_a_cause(pytester: pytest.Pytester, run: Run) -> None:
    pytester.makepyfile(
        test_a="""
        import os
        from pathlib import Path
        from graphs import Capture, graph

        def captured(name):
            again = Path(name).exists() or "FIRST" not in os.environ
            Path(name).touch()
            return Capture(graph("sin" if again else "cos"))

        def test_one(graph_snapshot):
            assert captured("one") == graph_snapshot

        def test_two(graph_snapshot):
            assert captured("two") == graph_snapshot
        """
    )
    run("--torchgraph-update").assert_outcomes(passed=2)
    for name in ("one", "two"):
        (pytester.path / name).unlink()
    result = run("-p", "pytest_rerunfailures", "--reruns=1", FIRST="1")
    assert "2 rerun" in result.stdout.str()
    assert "graphs differ" not in result.stdout.str()


# -- the data of a report --------------------------------------------------------------------------


def failed(*new: str, old: str = "sin") -> Comparison:
    """A comparison of ops in a row, each in its own module and followed by a product."""

    def chain(*words: str) -> Program:
        lines, last = [], "x"
        for k, word in enumerate(words):
            lines.append(f'%m{k}/op = aten.{word}.default(%{last}) : f32[2, 3] in "m{k}"')
            lines.append(f"%mm{k} = aten.mm.default(%m{k}/op, %y) : f32[2, 3]")
            last = f"mm{k}"
        return Program(Header(), (graph("\n".join([*lines, f"return %{last}"])),))

    return Comparison(chain(*new), chain(*[old] * len(new)))


def test_report_data_are_plain_and_of_bounded_size() -> None:
    data = data_of(failed(*[f"op{k}" for k in range(MAX_FINDINGS + 7)]))
    assert len(data["difference"]["findings"]) == MAX_FINDINGS
    assert data["difference"]["left"] == 7
    assert json.loads(json.dumps(data)) == json.loads(json.dumps(data, default=repr))
    assert len(json.dumps(data)) < 1000 * MAX_FINDINGS


def test_problem_of_stored_op_counts_names_the_ops() -> None:
    counts = read_stored(failed("sin").current.to_text("ops"))
    details = ("forward: aten.sin.default  1 -> 0",)
    comparison = Comparison(failed("cos").current, counts, "1 op count differs", details)
    assert data_of(comparison)["problem"] == f"1 op count differs; {details[0]}"


def test_error_while_finding_causes_does_not_end_the_run(pytestconfig: pytest.Config) -> None:
    gathered = FailedComparisons(pytestconfig)
    gathered.tests = {"test_a": [{"difference": {"findings": [{}]}, "releases": None}] * 2}
    written: list[str] = []

    class Reporter:
        line = staticmethod(written.append)

    around = gathered.pytest_terminal_summary(Reporter())  # type: ignore[arg-type]
    next(around)
    assert next(around, None) is None
    assert written == ["torchgraph: cannot list the causes: KeyError: 'identity'"]


def test_findings_that_were_left_out_are_counted(pytestconfig: pytest.Config) -> None:
    gathered = FailedComparisons(pytestconfig)
    data = data_of(failed(*[f"op{k}" for k in range(MAX_FINDINGS + 7)]))
    for name in ("test_a", "test_b"):
        report = pytest.TestReport(name, (name, 1, name), {}, "failed", "", "call")
        vars(report)[REPORTED] = {"failed": [data]}
        gathered.pytest_runtest_logreport(report)
    assert gathered.heading() == f"{MAX_FINDINGS} causes in 2 tests, 14 further findings not listed"


def test_terminal_shows_the_section_of_a_cause_once(pytester: pytest.Pytester, few: Run) -> None:
    pytester.makeconftest(
        """
        REPORTS = []

        def pytest_runtest_logreport(report):
            REPORTS.append(report)

        def pytest_unconfigure():
            texts = [text for report in REPORTS for _, text in report.sections]
            print(sum("file:    __snapshots__" in text for text in texts), "whole sections")
        """
    )
    result = few(OP="relu")
    result.assert_outcomes(failed=4, passed=2)
    lines = result.outlines
    (whole,) = (k for k, line in enumerate(lines) if line.startswith("file:    "))
    assert "test_a" in lines[whole]
    short = [line for line in lines if line.endswith("(-vv prints this section in full)")]
    head = "~ aten.gelu -> aten.relu in layer.{1, 3}  (4 tests), as in test_a.py::"
    assert short == [f"{head}test_net[0] (-vv prints this section in full)"] * 3
    assert "4 whole sections" in lines
    assert few("-vv", OP="relu").stdout.str().count("file:    __snapshots__") == 4


def test_section_with_another_form_is_printed_in_full(pytester: pytest.Pytester, run: Run) -> None:
    pytester.makepyfile(
        test_a="""
        import os

        import pytest
        from graphs import graph

        @pytest.mark.parametrize("new", ["abs abs exp", "abs abs exp", "abs exp abs"])
        def test_net(graph_snapshot, new):
            assert graph("sin", *os.environ.get("OP", new).split(), "cos") == graph_snapshot
        """
    )
    run("--torchgraph-update", OP="gelu").assert_outcomes(passed=3)
    lines = run().outlines
    assert any("(3 tests, 2 forms)" in line for line in lines)
    printed = [line.rpartition("/test_")[2] for line in lines if line[:8] == "file:   "]
    assert [name[:15] for name in printed] == ["net[abs abs exp", "net[abs exp abs"]


@pytest.mark.slow("runs pytest for a second")
def test_section_with_a_cause_of_its_own_is_printed_in_full(
    pytester: pytest.Pytester, run: Run
) -> None:
    pytester.makepyfile(
        test_a="""
        import os

        import pytest
        from graphs import graph

        @pytest.mark.parametrize("more", [False, False, True, True])
        def test_net(graph_snapshot, more):
            op = os.environ.get("OP", "gelu")
            ops = ["sin", op, "tan", *[os.environ.get("OTHER", "log")] * more]
            assert graph(*ops) == graph_snapshot

        def test_new(graph_snapshot):
            assert graph("abs") == graph_snapshot

        def test_new_too(graph_snapshot):
            assert graph("abs") == graph_snapshot
        """
    )
    run("--torchgraph-update", "-k", "net")
    result = run(OP="relu", OTHER="exp")
    result.assert_outcomes(failed=6)
    printed = [line.rpartition("/test_")[2] for line in result.outlines if line[:8] == "file:   "]
    assert [name[:9] for name in printed] == ["net[False", "net[True0", "new.tgrap", "new_too.t"]
