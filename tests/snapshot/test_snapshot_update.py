"""`--torchgraph-update`: written files, messages, and files that it does not touch."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from projects import Run, files, stored_graphs

from pytest_torchgraph.graph import format_document, parse_document

SUITE = """
import pytest
from graphs import graph

@pytest.mark.parametrize("size", [1, 2, 3])
def test_sized(size, graph_snapshot):
    assert graph("mm", *["relu"] * size) == graph_snapshot

def test_step(graph_snapshot):
    assert graph() == graph_snapshot
    assert graph() == graph_snapshot(name="again")
"""


WORKERS = pytest.mark.parametrize("workers", [(), ("-p", "xdist", "-n2")], ids=["one", "n2"])


def listed(result: pytest.RunResult) -> list[str]:
    """Return the lines of an update about files."""
    words = ("created  ", "updated  ", "renamed  ", "removed  ", "unchanged  ")
    return [line for line in result.outlines if line.startswith(words)]


@pytest.mark.slow("bodies and ops are printed alike at every level", unless=["one"])
@WORKERS
def test_update_lists_written_files_and_repeats_nothing(
    pytester: pytest.Pytester, run: Run, workers: tuple[str, ...]
) -> None:
    pytester.makepyfile(test_net=SUITE)
    names = ["test_sized[1]", "test_sized[2]", "test_sized[3]", "test_step", "test_step[again]"]
    paths = [f"__snapshots__/test_net/{name}.tgraph" for name in names]
    counts = ["2 ops", "3 ops", "4 ops", "1 op", "1 op"]

    result = run(*workers, "--torchgraph-update")
    result.assert_outcomes(passed=4)
    assert listed(result) == [
        f"created  {path}: forward {count}" for path, count in zip(paths, counts, strict=True)
    ]
    result.stdout.fnmatch_lines(["=* stored graphs =*"])
    before = files(pytester)
    assert sorted(before) == paths
    times = {path: os.stat(pytester.path / path).st_mtime_ns for path in paths}

    again = run(*workers, "--torchgraph-update")
    again.assert_outcomes(passed=4)
    assert listed(again) == [f"unchanged  {path}" for path in paths]
    assert files(pytester) == before
    assert {path: os.stat(pytester.path / path).st_mtime_ns for path in paths} == times

    changed = run(*workers, "--torchgraph-update", OP="gelu")
    changed.assert_outcomes(passed=4)
    what = "1 edit: aten.relu -> aten.gelu in layer.0"
    assert listed(changed) == [
        *(f"updated  {path}: {what}" for path in paths[3:]),
        *(f"unchanged  {path}" for path in paths[:3]),
    ]


CHANGES = """
import os
from graphs import Capture, graph
from pytest_torchgraph.graph import Graph

later = "OP" in os.environ
STRIDED = " stride [1, 16]" if later else " stride [16, 1]"

def test_added(graph_snapshot):
    assert graph("mm", *["clone"] * later) == graph_snapshot

def test_far_apart(graph_snapshot):
    ops = ["relu"] * 21
    if later:
        ops[::5] = ["gelu"] * 5
    assert graph(*ops) == graph_snapshot

def test_graphs(graph_snapshot):
    backward = [graph("mul", name="backward")] * later
    assert Capture(graph("mm"), *backward) == graph_snapshot

def test_many_graphs(request):
    if later:
        graph_snapshot = request.getfixturevalue("graph_snapshot")
        names = [f"g{i}" for i in range(5)]
        assert Capture(*(graph("mm", name=f"{name}: forward") for name in names)) == graph_snapshot

def test_replaced(graph_snapshot):
    assert graph(*["mean", "sub", "var", "rsqrt"] if later else ["softmax"]) == graph_snapshot

def test_counts(graph_snapshot):
    assert graph(*["relu"] * (1 + later), *["mm"] * later) == graph_snapshot(detail="ops")

def test_detail(graph_snapshot):
    assert graph("mm") == graph_snapshot(detail="full" if later else "ops")

def test_strides(graph_snapshot):
    assert graph("mm", stride=STRIDED) == graph_snapshot(detail="full")

def test_input(graph_snapshot):
    text = "torchgraph 1\\n\\nforward @ aot {\\n  %x = input : f32[SIZE]\\n  return %x\\n}\\n"
    assert Graph.from_text(text.replace("SIZE", "4" if later else "2")) == graph_snapshot
"""
SUMMARIES = {
    "test_added": "1 edit: aten.clone added in layer.1",
    "test_counts": "2 op counts differ: forward: aten.mm.default 0 -> 1; "
    "forward: aten.relu.default 1 -> 2",
    "test_detail": "detail 'full', was 'ops'",
    "test_far_apart": "1 edit in 5 places: aten.relu -> aten.gelu in layer.{0, 5, 10, 15, 20}",
    "test_graphs": "1 graph added: stored: forward; now: forward, backward",
    "test_input": "1 edit: size 2 -> 4 of input %x",
    "test_replaced": "1 edit: aten.softmax -> 4 ops in layer",
    "test_strides": "only strides or devices differ",
}


def test_update_describes_each_file_in_one_line(pytester: pytest.Pytester, run: Run) -> None:
    pytester.makepyfile(test_net=CHANGES)
    run("--torchgraph-update").assert_outcomes(passed=9)
    result = run("--torchgraph-update", OP="later")
    result.assert_outcomes(passed=9)
    lines_by_test = {
        line.partition("test_net/")[2].partition(".tgraph: ")[0]: line for line in listed(result)
    }
    created = lines_by_test.pop("test_many_graphs")
    assert created.endswith(": g0 1 op, g1 1 op, g2 1 op and 2 more")
    assert {
        stem: line.partition(".tgraph: ")[2] for stem, line in lines_by_test.items()
    } == SUMMARIES


RENAMED = """
import os
from graphs import Capture
from pytest_torchgraph.graph import Graph

def step():
    layer, lines, last = os.environ.get("LAYER", "layer"), [], "x"
    for number in range(9):
        for op in ("sin", "cos", "tan", "exp"):
            name = f"{layer}.{number}/{op}"
            lines.append(f"  %{name} = aten.{op}.default(%{last}) : f32[2]")
            last = name
    body = ["  %x = input : f32[2]", *lines, f"  return %{last}"]
    return Capture(
        Graph.from_text("\\n".join(["torchgraph 1", "", "forward @ aot {", *body, "}", ""]))
    )

def test_step(graph_snapshot):
    assert step() == graph_snapshot

def test_counts(graph_snapshot):
    assert step() == graph_snapshot(detail="ops")

def test_full(graph_snapshot):
    assert step() == graph_snapshot(detail="full")
"""


@pytest.mark.slow("runs pytest for a second")
def test_update_lists_files_with_new_names_as_renamed(pytester: pytest.Pytester, run: Run) -> None:
    pytester.makepyfile(test_net=RENAMED)
    run("--torchgraph-update").assert_outcomes(passed=3)
    before = files(pytester)
    renamed = run(LAYER="block")
    renamed.assert_outcomes(passed=3)
    assert not stored_graphs(renamed)
    assert files(pytester) == before
    result = run("--torchgraph-update", LAYER="block")
    result.assert_outcomes(passed=3)
    home = "__snapshots__/test_net"
    assert listed(result) == [
        f"renamed  {home}/test_full.tgraph: 36 names: layer -> block",
        f"renamed  {home}/test_step.tgraph: 36 names: layer -> block",
        f"unchanged  {home}/test_counts.tgraph",
    ]
    after = files(pytester)
    assert {path: text.replace(b"layer", b"block") for path, text in before.items()} == after


@pytest.mark.slow("runs pytest several times")
def test_update_keeps_an_equal_file_in_another_form(pytester: pytest.Pytester, run: Run) -> None:
    pytester.makepyfile(test_net=RENAMED)
    run("--torchgraph-update").assert_outcomes(passed=3)
    path = pytester.path / "__snapshots__" / "test_net" / "test_step.tgraph"
    document = parse_document(path.read_text())
    flat, folded = (
        format_document(document.graphs, document.header, fold=fold) for fold in (False, True)
    )
    assert len(folded.splitlines()) < len(flat.splitlines())
    for text in (folded, flat, flat.replace("torchgraph 4", "torchgraph 1")):
        path.write_text(text)
        before = files(pytester)
        listing = listed(run("--torchgraph-update"))
        assert {line.split()[0] for line in listing} == {"unchanged"}
        assert files(pytester) == before
    # Equal bytes are not parsed, because parsing takes many times as long.
    pytester.makeconftest(
        """
        import pytest_torchgraph.snapshot.compare

        def broken(text):
            raise AssertionError("read")

        pytest_torchgraph.snapshot.compare.parse_text = broken
        """
    )
    path.write_text(flat)
    run().assert_outcomes(passed=3)
    path.write_text(flat.replace("tan", "erf"))
    run().assert_outcomes(passed=2, failed=1)
    pytester.makeconftest("")
    path.write_text(folded)
    listing = listed(run("--torchgraph-update", LAYER="block"))
    assert f"renamed  {path.relative_to(pytester.path)}: 36 names: layer -> block" in listing


SUITE_WIDE = """
import os
import pytest
from graphs import Capture, graph

TORCH = os.environ.get("TORCH_NOW", "2.13.0")

@pytest.mark.parametrize("k", range(12))
def test_net(graph_snapshot, k):
    ops = ["sin", *["cos", "exp"] * k, os.environ.get("OP", "gelu"), "tan"]
    assert Capture(graph(*ops), torch=TORCH) == graph_snapshot

def test_two(graph_snapshot):
    assert graph("log", os.environ.get("OTHER", "log"), "tan") == graph_snapshot
    assert graph("neg", os.environ.get("OTHER", "log"), "abs") == graph_snapshot(name="again")

def test_same(graph_snapshot):
    assert graph("mm") == graph_snapshot
"""


def causes(result: pytest.RunResult) -> list[str]:
    """Return the lines of an update about causes."""
    heads = [k for k, line in enumerate(result.outlines) if "this update changes" in line]
    if not heads:
        return []
    head, *rest = result.outlines[heads[0] :]
    return [head.strip("= "), *rest[: next(k for k, line in enumerate(rest) if line[:1] == "=")]]


def test_update_of_many_files_reports_counts_and_causes(
    pytester: pytest.Pytester, run: Run
) -> None:
    pytester.makepyfile(test_net=SUITE_WIDE)
    first = run("--torchgraph-update")
    assert causes(first) == [], "a file was replaced"
    assert sum(line.startswith("created") for line in listed(first)) == 15
    changed = run("--torchgraph-update", OP="relu", OTHER="exp")
    lines = causes(changed)
    assert [line for line in lines if not line.startswith(" ")] == [
        "this update changes 14 of 15 stored graphs, by 2 causes",
        "~ aten.gelu -> aten.relu in layer.{1, 3, 5, 7, 9, and 7 more}  (12 files)",
        "~ aten.log -> aten.exp in layer.1  (2 files)",
    ]
    home = "__snapshots__/test_net"
    assert lines[-1] == f"    in {home}/test_two.tgraph, {home}/test_two[again].tgraph"
    assert listed(changed) == [
        "updated  14 files (-v lists them)",
        "unchanged  __snapshots__/test_net/test_same.tgraph",
    ]
    one = run("--torchgraph-update", "-k", "test_net and 3")
    assert causes(one) == []
    assert [line.split(": ")[-1] for line in listed(one)] == ["aten.relu -> aten.gelu in layer.7"]


@pytest.mark.slow("runs pytest several times")
def test_edit_cost_is_reported_per_test_per_run_and_by_the_update(
    pytester: pytest.Pytester, run: Run
) -> None:
    pytester.makepyfile(test_net=SUITE_WIDE)
    run("--torchgraph-update", "-k", "test_net and 3")
    run("--torchgraph-update", "-k", "test_net and 4")
    one = run("-k", "test_net and 3", OP="exp", SAVE="1")
    assert sum(line.startswith("    costs ") for line in one.outlines) == 1
    one.stdout.fnmatch_lines(["    costs   *+128 B saved"])
    both = run("-k", "test_net and (3 or 4)", OP="exp", SAVE="1")
    both.stdout.fnmatch_lines(
        ["*graphs differ: 1 cause in 2 tests*", "    costs   *+256 B saved in all"]
    )
    update = run("-k", "test_net and (3 or 4)", "--torchgraph-update", OP="exp", SAVE="1")
    (costs,) = [line for line in causes(update) if line.startswith("    costs   ")]
    assert costs.endswith("+256 B saved in all")


@pytest.mark.slow("runs pytest several times")
def test_update_on_another_torch_release_names_both_releases(
    pytester: pytest.Pytester, run: Run
) -> None:
    pytester.makepyfile(test_net=SUITE_WIDE)
    run("--torchgraph-update")
    result = run("--torchgraph-update", "-v", OP="relu", OTHER="exp", TORCH_NOW="2.15.0")
    assert causes(result)[:2] == [
        "this update changes 14 of 15 stored graphs, by 2 causes",
        "torch 2.13.0 -> 2.15.0",
    ]
    assert sum(line.startswith("updated") for line in listed(result)) == 14


@pytest.mark.slow(
    "further cases; a few are in every run",
    unless=["graph.diff.diff_graphs-! cannot describe the difference  (2 *"],
)
@pytest.mark.parametrize(
    ("broken", "told"),
    [
        ("graph.diff.diff_graphs", "! cannot describe the difference  (2 *"),
        ("graph.diff.merge_edits", "*cannot list the causes of this update: Run*: x"),
    ],
)
def test_error_while_finding_causes_does_not_stop_an_update(
    pytester: pytest.Pytester, run: Run, broken: str, told: str
) -> None:
    module, _, name = broken.rpartition(".")
    pytester.makepyfile(test_net=SUITE_WIDE)
    run("--torchgraph-update", "-k", "test_two or 3")
    pytester.makeconftest(
        f"""
        import pytest_torchgraph.{module} as module

        def {name}(*args, **kwargs):
            raise RuntimeError("x")

        module.{name} = {name}
        """
    )
    result = run("--torchgraph-update", "-k", "test_two", OTHER="exp")
    assert result.ret == 0
    result.stdout.fnmatch_lines([told])
    assert sum(line.startswith("updated") for line in listed(result)) == 2


def test_update_counts_many_renamed_files_by_names(pytester: pytest.Pytester, run: Run) -> None:
    suite = """
    import os
    import pytest
    from graphs import Capture, text
    from pytest_torchgraph.graph import Graph

    @pytest.mark.parametrize("k", range(11))
    def test_step(k, graph_snapshot):
        step = text(*["relu"] * 9).replace("layer", os.environ.get("LAYER", "layer"))
        assert Capture(Graph.from_text(step)) == graph_snapshot
    """
    pytester.makepyfile(test_net=suite)
    run("--torchgraph-update")
    result = run("--torchgraph-update", LAYER="block")
    assert listed(result) == ["renamed  11 files: layer -> block (-v lists them)"]
    assert causes(result) == []


def test_update_lists_files_of_subtests(pytester: pytest.Pytester, run: Run) -> None:
    pytest.importorskip("_pytest.subtests", reason="pytest 9 has subtests")
    pytester.makepyfile(
        test_net="""
        from graphs import graph

        def test_step(graph_snapshot, subtests):
            for op in ("mm", "relu"):
                with subtests.test(op):
                    assert graph(op) == graph_snapshot(name=op)
        """
    )
    result = run("--torchgraph-update")
    assert result.ret == 0
    assert len(listed(result)) == 2
    assert "nothing to remove" in run("--torchgraph-prune").stdout.str()
    assert len(files(pytester)) == 2


def test_update_lists_files_written_before_a_failure(pytester: pytest.Pytester, run: Run) -> None:
    pytester.makepyfile(
        test_net="""
        from graphs import graph

        def test_step(graph_snapshot):
            assert graph() == graph_snapshot
            assert 0
        """
    )
    result = run("--torchgraph-update")
    result.assert_outcomes(failed=1)
    assert listed(result) == ["created  __snapshots__/test_net/test_step.tgraph: forward 1 op"]


@pytest.mark.slow("runs pytest several times")
def test_update_refuses_two_graphs_with_one_name(pytester: pytest.Pytester, run: Run) -> None:
    pytester.makepyfile(
        test_net="""
        from graphs import graph

        def test_step(graph_snapshot):
            for op in ("relu", "relu", "gelu"):
                assert graph(op) == graph_snapshot(name="step")
        """
    )
    result = run("--torchgraph-update")
    result.assert_outcomes(failed=1)
    result.stdout.fnmatch_lines(
        ["*this test already stored a different graph in this file: pass graph_snapshot(name=*"]
    )
    (stored,) = files(pytester).values()
    assert b"aten.relu" in stored
    again = run("--torchgraph-update")
    again.assert_outcomes(failed=1)
    again.stdout.fnmatch_lines(
        ["*this test already stored a different graph in this file: pass graph_snapshot(name=*"]
    )
    assert list(files(pytester).values()) == [stored], "the second comparison rewrote the file"


@pytest.mark.slow("runs pytest several times")
def test_interrupted_update_keeps_the_old_file(
    pytester: pytest.Pytester, project: Run, stored: Path
) -> None:
    before = stored.read_bytes()
    pytester.makeconftest(
        """
        import os

        def replace(*args, **names):
            raise KeyboardInterrupt

        os.replace = replace
        """
    )
    result = project("--torchgraph-update", "-p", "no:cacheprovider", OP="gelu")
    assert result.ret == pytest.ExitCode.INTERRUPTED
    assert files(pytester) == {"__snapshots__/test_net/test_step.tgraph": before}


def test_update_of_a_loop_without_names_writes_nothing(pytester: pytest.Pytester, run: Run) -> None:
    pytester.makepyfile(
        """
        import os
        from graphs import graph

        def test_loop(graph_snapshot):
            assert graph("abs") == graph_snapshot
            for op in ("sin", "cos")[: int(os.environ.get("ROUNDS", "2"))]:
                assert graph(op, os.environ.get("OP", "exp")) == graph_snapshot
        """
    )
    result = run("--torchgraph-update")
    result.assert_outcomes(failed=1)
    result.stdout.fnmatch_lines(["*second comparison without a name*"])
    result.stdout.no_fnmatch_line("*generated*")
    assert not files(pytester)
    assert not stored_graphs(result)
    run("--torchgraph-update", ROUNDS="1").assert_outcomes(passed=1)
    before = files(pytester)
    result = run("--torchgraph-update", OP="log")
    result.assert_outcomes(failed=1)
    result.stdout.no_fnmatch_line("*updated*")
    assert files(pytester) == before
    assert not stored_graphs(result)


def test_loop_without_names_leaves_nothing_to_review(pytester: pytest.Pytester, run: Run) -> None:
    pytester.makepyfile(
        """
        from graphs import graph

        def test_loop(graph_snapshot):
            assert all([graph(op) == graph_snapshot for op in ("sin", "cos")])
        """
    )
    run("--torchgraph-artifacts=out").assert_outcomes(failed=1)
    assert not [*pytester.path.rglob("*.update.json")]


def test_conflict_in_a_stored_file_has_the_command_that_stores_it_again(
    pytester: pytest.Pytester, run: Run
) -> None:
    pytester.makepyfile(
        """
        from graphs import graph

        def test_a(graph_snapshot):
            assert graph() == graph_snapshot
        """
    )
    run("--torchgraph-update")
    (file,) = pytester.path.rglob("*.tgraph")
    text = file.read_text()
    file.write_text(f"<<<<<<< HEAD\n{text}=======\n{text}>>>>>>> other\n")
    command = next(
        line.rpartition("store the graph again with ")[2]
        for line in run().outlines
        if "merge conflict" in line
    )
    assert command.startswith("pytest ")
    assert command.endswith("::test_a --torchgraph-update")
    run(*command.split()[1:]).assert_outcomes(passed=1)
    assert file.read_text() == text
