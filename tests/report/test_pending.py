"""Files that a failed comparison leaves for `review`, and their removal."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from projects import Run, files

from pytest_torchgraph.cli import main

TESTS = """
    import os

    import pytest
    from graphs import Capture, graph

    EDIT = os.environ.get("EDIT", "relu")

    def test_equal(graph_snapshot):
        assert graph(EDIT) == graph_snapshot

    def test_another_failure(graph_snapshot):
        assert graph("sin") == graph_snapshot
        assert "EDIT" not in os.environ

    def test_not_equal(graph_snapshot):
        assert graph("cos") == graph_snapshot(name="a")
        assert graph("exp") != graph_snapshot(name="a")
        if "EDIT" in os.environ:
            assert graph("cos") != graph_snapshot(name="a")

    @pytest.mark.xfail(condition="EDIT" in os.environ, reason="not done yet")
    def test_expected(graph_snapshot):
        assert graph(EDIT) == graph_snapshot

    @pytest.mark.parametrize("first, second", [("relu", EDIT), (EDIT, "relu"), (EDIT, "abs")])
    def test_several(graph_snapshot, first, second):
        equal = [graph(op) == graph_snapshot(name="x") for op in (first, second)]
        assert all(equal) or EDIT == "relu"

    def test_the_same_again(graph_snapshot):
        for _ in range(2):
            graph(EDIT) == graph_snapshot(name="x")

    def test_unreadable(graph_snapshot):
        assert graph("tan") == graph_snapshot
"""


def left(directory: Path) -> dict[str, dict[str, Any]]:
    """Return the files left for review, by test name."""
    updates = map(json.loads, map(Path.read_text, directory.glob("*.update.json")))
    return {data["test"].partition("::")[2]: data for data in updates}


@pytest.mark.slow("runs pytest several times")
def test_pending_file_equals_that_of_an_update(pytester: pytest.Pytester, run: Run) -> None:
    pytester.makepyfile(test_a=TESTS)
    run("--torchgraph-update")
    home = pytester.path / "__snapshots__" / "test_a"
    (home / "test_unreadable.tgraph").write_text("torchgraph 1\n\nwhat\n")
    before = files(pytester)
    result = run("--torchgraph-artifacts=out", EDIT="gelu")
    assert files(pytester) == before
    updates = left(pytester.path / "out")
    refused = {name for name, data in updates.items() if data["refused"]}
    assert refused == {name for name in updates if name.startswith("test_several")}
    assert len(refused) == 3
    assert all(
        "several comparisons of this test use this file" in updates[name]["refused"]
        for name in refused
    )
    assert updates.keys() - refused == {"test_equal", "test_the_same_again", "test_unreadable"}
    assert updates["test_equal"]["accept"] == "pytest test_a.py::test_equal --torchgraph-update"
    assert (
        "__snapshots__/test_a/test_unreadable.tgraph:3:5" in updates["test_unreadable"]["headline"]
    )
    result.stdout.fnmatch_lines(["review:      pytest-torchgraph review out"])

    assert main(["review", "--accept", "out", "--test=test_a.py::test_unreadable"]) == 0
    assert main(["review", "--accept", "out"]) == 2
    accepted = files(pytester)
    for name in ("equal", "the_same_again[x]", "unreadable"):
        (home / f"test_{name}.tgraph").unlink()
    tests = (f"test_a.py::test_{name}" for name in ("equal", "the_same_again", "unreadable"))
    run("--torchgraph-update", *tests, EDIT="gelu")
    assert accepted == files(pytester)


@pytest.mark.slow("runs pytest several times")
def test_pending_file_is_in_the_cache_until_the_test_passes(
    pytester: pytest.Pytester, project: Run, stored: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    cache = pytester.path / ".pytest_cache" / "d" / "torchgraph"
    project(OP="gelu")
    assert left(cache).keys() == {"test_step"}
    capsys.readouterr()
    assert main(["review", "--list"]) == 1
    output = capsys.readouterr().out
    assert "~ aten.relu -> aten.gelu in layer.0" in output
    assert "cache-clear" not in output
    before = stored.read_bytes()
    stored.write_bytes(before.replace(b"relu", b"tanh"))
    assert main(["review", "--list"]) == 1
    output = capsys.readouterr().out
    assert "changed after the comparison: run the test again" in output
    assert "discard the changes of earlier runs:  pytest --cache-clear" in output
    stored.write_bytes(before)
    project("--torchgraph-update", OP="gelu")
    assert not left(cache)
    stored.unlink()
    project()
    assert left(cache)["test_step"]["digests"] == {
        stored.relative_to(pytester.path).as_posix(): None
    }
    project("-p", "no:cacheprovider", OP="relu")
    assert main(["review", "--accept", str(cache)]) == 0
    project().assert_outcomes(passed=1)
    assert not left(cache)


def test_passing_run_makes_no_directory(pytester: pytest.Pytester, project: Run) -> None:
    project("--torchgraph-artifacts=out").assert_outcomes(passed=1)
    assert not (pytester.path / "out").exists()
    assert not (pytester.path / ".pytest_cache" / "d" / "torchgraph").exists()


CONFTEST = """
    import importlib.metadata
    import os

    real = importlib.metadata.version

    def version(name):
        return os.environ["RELEASE"] if name == "torch" else real(name)

    importlib.metadata.version = version
"""


@pytest.mark.slow("further ways to end, terminals and broken files")
def test_pending_file_belongs_to_the_running_release(
    pytester: pytest.Pytester, run: Run, capsys: pytest.CaptureFixture[str]
) -> None:
    pytester.makeconftest(CONFTEST)
    pytester.makeini("[pytest]\ntorchgraph_releases = 2.13 2.15\n")
    pytester.makepyfile(
        test_a="""
        from graphs import graph

        def test_x(graph_snapshot):
            assert graph() == graph_snapshot
        """
    )
    base, own = (f"__snapshots__/test_a/test_x{tag}.tgraph" for tag in ("", "@torch-2.15"))
    run("--torchgraph-update", RELEASE="2.13.0", OP="relu")
    for op, expected in (("gelu", {base, own}), ("relu", {base})):
        run("--torchgraph-artifacts=out", RELEASE="2.15.0", OP=op).assert_outcomes(failed=1)
        assert left(pytester.path / "out")["test_x"]["target"] == own
        before = files(pytester)
        assert main(["review", "--accept", "out"]) == 0
        assert files(pytester).keys() == expected
        assert files(pytester)[base] == before[base]
        run("--torchgraph-artifacts=out", RELEASE="2.15.0", OP=op).assert_outcomes(passed=1)
        assert not left(pytester.path / "out")
    run("--torchgraph-artifacts=out", RELEASE="2.14.0", OP="tanh").assert_outcomes(failed=1)
    capsys.readouterr()
    assert main(["review", "--accept", "out"]) == 2
    assert "is not in torchgraph_releases" in capsys.readouterr().out


def test_pending_file_for_each_process_of_torchrun(
    pytester: pytest.Pytester, project: Run, stored: Path
) -> None:
    ops = ("gelu", "tanh")
    processes = [{"RANK": str(k), "WORLD_SIZE": "2", "OP": op} for k, op in enumerate(ops)]
    for process in processes:
        project("--torchgraph-artifacts=out", **process).assert_outcomes(failed=1)
    before = stored.read_bytes()
    assert main(["review", "--accept", "out"]) == 0
    assert len(files(pytester)) == 3
    assert stored.read_bytes() == before
    for process in processes:
        project("--torchgraph-artifacts=out", **process).assert_outcomes(passed=1)
    assert not [*(pytester.path / "out").glob("*.update.json")]


def test_pending_file_has_source_lines(
    pytester: pytest.Pytester, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytester.makepyfile(
        """
        import os

        import torch

        def model(x):
            return x.cos() if "EDIT" in os.environ else x.sin()

        def test_model(graph_capture, graph_snapshot):
            assert graph_capture(model, torch.ones(2), via="fx") == graph_snapshot
        """
    )
    run("--torchgraph-update").assert_outcomes(passed=1)
    monkeypatch.setenv("EDIT", "1")
    run("--torchgraph-artifacts=left").assert_outcomes(failed=1)
    (line,) = left(pytester.path / "left")["test_model"]["sources"].values()
    assert line.endswith('.py:6: return x.cos() if "EDIT" in os.environ else x.sin()')


@pytest.mark.slow("compiles in two runs of pytest")
def test_review_names_no_line_for_a_graph_break_that_is_gone(
    pytester: pytest.Pytester,
    run: Run,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    pytester.makepyfile(
        """
        import os

        import torch

        def model(x):
            x = x.sin()
            if "EDIT" not in os.environ: torch._dynamo.graph_break()
            x = x.cos()
            if "EDIT" in os.environ: torch._dynamo.graph_break()
            return x.tan()

        def test_model(graph_capture, graph_snapshot):
            assert graph_capture(model, torch.ones(2)) == graph_snapshot
        """
    )
    run("--torchgraph-update").assert_outcomes(passed=1)
    monkeypatch.setenv("EDIT", "1")
    run("--torchgraph-artifacts=left").assert_outcomes(failed=1)
    capsys.readouterr()
    assert main(["review", "left", "--list"]) == 1
    lines = capsys.readouterr().out.splitlines()
    (removed,) = (line for line in lines if "graph break removed" in line)
    (added,) = (line for line in lines if "graph break added" in line)
    assert "recorded by the run" not in removed
    assert '.py:9: if "EDIT" in os.environ' in added


ONE_LINE = """
    import os
    from dataclasses import replace

    import pytest
    from graphs import Capture, Graph, text
    from pytest_torchgraph import Source

    LINES = {"aten.exp.default": 7, "aten.abs.default": 9}


    @pytest.mark.parametrize("dtype, ops", [("f32", "sin"), ("f64", "sin"), ("bf16", "sin cos")])
    def test_net(graph_snapshot, dtype, ops):
        ops = f"{ops} {os.environ.get('EDIT', '')} tan"
        captured = Graph.from_text(text(*ops.split()).replace("f32", dtype))
        nodes = tuple(
            replace(node, source=Source("net.py", LINES.get(node.op, 1), "x = f(x)", "run"))
            for node in captured.nodes
        )
        assert Capture(replace(captured, nodes=nodes)) == graph_snapshot
"""


def test_review_has_the_causes_of_the_terminal(
    pytester: pytest.Pytester, run: Run, capsys: pytest.CaptureFixture[str]
) -> None:
    pytester.makepyfile(test_a=ONE_LINE)
    run("--torchgraph-update").assert_outcomes(passed=3)
    result = run(EDIT="exp abs")
    result.assert_outcomes(failed=3)
    result.stdout.fnmatch_lines(["*= graphs differ: 1 cause in 3 tests =*", "    net.py:7: *"])
    capsys.readouterr()
    assert main(["review", "--list"]) == 1
    heading, *lines = capsys.readouterr().out.splitlines()
    assert heading == "1 cause in 3 stored graphs"
    assert "net.py:7: x = f(x) (recorded by the run)" in "".join(lines)
