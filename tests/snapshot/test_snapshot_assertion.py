"""`assert ... == graph_snapshot` in a project: stored files, matches and errors."""

from __future__ import annotations

from pathlib import Path

import pytest
from projects import Run, files, section


def test_missing_snapshot_fails_with_the_accept_command(
    pytester: pytest.Pytester, run: Run
) -> None:
    pytester.makepyfile(
        test_net="""
        import pytest
        from graphs import graph

        @pytest.mark.parametrize("x", ["it's $HOME; a"])
        def test_step(x, graph_snapshot):
            assert graph() == graph_snapshot
        """
    )
    result = run()
    result.assert_outcomes(failed=1)
    command = """pytest 'test_net.py::test_step[it'"'"'s $HOME; a]' --torchgraph-update"""
    result.stdout.fnmatch_lines(
        [
            "E       *graphs == stored: no graph is stored for this comparison yet",
            "E         accept:  " + command.replace("[", "[[]"),
        ]
    )
    assert f"accept:  {command}" in section(result)
    said = result.stdout.str().partition("short test summary info")[0]
    assert said.count("no graph is stored for this comparison yet") == 1
    assert files(pytester) == {}
    words = ["-c", f'{command.replace("pytest", "set -- ", 1)}; printf "%s\\n" "$@"']
    assert pytester.run("sh", *words).outlines == [
        "test_net.py::test_step[it's $HOME; a]",
        "--torchgraph-update",
    ]


def test_accept_command_works_in_the_current_directory(
    pytester: pytest.Pytester, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytester.makeini("[pytest]\npythonpath = .")
    sub = pytester.mkdir("sub")
    (sub / "test_net.py").write_text(
        "from graphs import graph\n"
        "def test_step(graph_snapshot): assert graph() == graph_snapshot\n"
    )
    monkeypatch.chdir(sub)
    result = run()
    assert "accept:  pytest test_net.py::test_step --torchgraph-update" in section(result)
    run("test_net.py::test_step", "--torchgraph-update").assert_outcomes(passed=1)


def test_changed_graph_fails_and_leaves_the_file(project: Run, stored: Path) -> None:
    before = stored.read_bytes()
    result = project(OP="gelu")
    result.assert_outcomes(failed=1)
    result.stdout.fnmatch_lines(["E*graphs == stored: 1 edit: aten.relu -> aten.gelu in layer.0"])
    assert stored.read_bytes() == before


def test_renamed_nodes_match_and_an_update_rewrites_them(project: Run, stored: Path) -> None:
    text = stored.read_text()
    stored.write_text(text.replace("layer.0/relu", "act").replace("2.13.0", "2.9.0"))
    project().assert_outcomes(passed=1)
    assert "%act" in stored.read_text()
    result = project("--torchgraph-update")
    result.assert_outcomes(passed=1)
    assert stored.read_text() == text
    result.stdout.fnmatch_lines(
        ["renamed  __snapshots__/test_net/test_step.tgraph: 1 name: act -> layer.0/relu"]
    )


def test_options_apply_to_one_comparison_or_in_advance(pytester: pytest.Pytester, run: Run) -> None:
    pytester.makepyfile(
        test_net="""
        from graphs import graph

        def test_step(graph_snapshot):
            first = graph_snapshot(name="first")
            second = graph_snapshot(name="second", detail="ops")
            assert graph("mm") == first
            assert graph("t") == second
            assert graph("neg") == graph_snapshot
            assert graph("mm") == first
        """
    )
    run("--torchgraph-update").assert_outcomes(passed=1)
    texts = {Path(path).name: data.decode() for path, data in files(pytester).items()}
    assert sorted(texts) == [
        "test_step.2.tgraph",
        "test_step[first].tgraph",
        "test_step[second].tgraph",
    ]
    assert "aten.mm.default(%x)" in texts["test_step[first].tgraph"]
    assert "1 aten.t.default" in texts["test_step[second].tgraph"]
    assert "aten.neg.default(%x)" in texts["test_step.2.tgraph"]
    run().assert_outcomes(passed=1)


@pytest.mark.slow(
    "further cases; a few are in every run",
    unless=[
        "graph() == graph_snapshot(exclude=3)-TypeError: * unexpected keyword argument",
        "{} == graph_snapshot-TypeError: graph_snapshot cannot compare a dict: pass a capture",
    ],
)
@pytest.mark.parametrize(
    ("expression", "message"),
    [
        ("graph() == graph_snapshot(detail='most')", "ValueError: detail must be one of ops, data"),
        ("graph() == graph_snapshot(name='')", "ValueError: name must be a non-empty str"),
        ("graph() == graph_snapshot(exclude=3)", "TypeError: * unexpected keyword argument"),
        ("{} == graph_snapshot", "TypeError: graph_snapshot cannot compare a dict: pass a capture"),
    ],
)
def test_wrong_use_of_graph_snapshot_raises_at_its_line(
    pytester: pytest.Pytester, run: Run, expression: str, message: str
) -> None:
    pytester.makepyfile(
        test_net=f"""
        from graphs import graph

        def test_step(graph_snapshot):
            assert {expression}
        """
    )
    for arguments in ([], ["--torchgraph-update"]):
        result = run(*arguments)
        result.assert_outcomes(failed=1)
        result.stdout.fnmatch_lines([f">       assert {expression}", f"E       {message}*"])
        result.stdout.fnmatch_lines(["test_net.py:4: *Error"])
        assert files(pytester) == {}


BROKEN = {
    "empty": ("", "1:1: not a graph*"),
    "merge": ("torchgraph 1\n<<<<<<< HEAD\n", "2:1: merge conflict at '<<<<<<< HEAD': *"),
    "nothing": ("torchgraph 1\n", "*: the file contains no graph*"),
}


@pytest.mark.slow("further cases; a few are in every run", unless=["empty"])
@pytest.mark.parametrize("case", sorted(BROKEN))
def test_broken_snapshot_is_an_error_with_place_and_remedy(
    project: Run, stored: Path, case: str
) -> None:
    content, problem = BROKEN[case]
    good = stored.read_bytes()
    broken = content.encode("utf-8", "surrogateescape")
    stored.write_bytes(broken)
    result = project()
    result.assert_outcomes(failed=1)
    path = "__snapshots__/test_net/test_step.tgraph"
    result.stdout.fnmatch_lines(
        [f"E       pytest_torchgraph.errors.GraphFormatError: {path}:{problem}--torchgraph-update"]
    )
    if case != "merge":
        result.stdout.fnmatch_lines(["E *restore the file from version control, or store*"])
    assert stored.read_bytes() == broken
    result = project("--torchgraph-update")
    result.assert_outcomes(passed=1)
    result.stdout.fnmatch_lines([f"updated  {path}: cannot read the stored graph (*)"])
    assert stored.read_bytes() == good


def test_format_error_has_the_path_as_an_attribute(
    pytester: pytest.Pytester, project: Run, stored: Path
) -> None:
    stored.write_text("torchgraph 1\n\nforward @ fx {\n  nonsense\n")
    pytester.makepyfile(
        test_net="""
        import os
        import pytest
        from graphs import graph
        from pytest_torchgraph.errors import GraphFormatError

        def test_step(graph_snapshot):
            with pytest.raises(GraphFormatError) as caught:
                graph() == graph_snapshot
            assert os.path.samefile(caught.value.path, "__snapshots__/test_net/test_step.tgraph")
            assert caught.value.line == 4
        """
    )
    project().assert_outcomes(passed=1)


def test_unwritable_snapshot_directory_is_an_error(pytester: pytest.Pytester, run: Run) -> None:
    pytester.makepyfile(
        test_net="""
        from graphs import graph

        def test_step(graph_snapshot):
            assert graph() == graph_snapshot
        """
    )
    (pytester.path / "__snapshots__").write_text("in the way")
    result = run("--torchgraph-update")
    result.assert_outcomes(failed=1)
    result.stdout.re_match_lines(
        [
            r"E +pytest_torchgraph\.errors\.TorchGraphError: cannot write "
            r".*__snapshots__/test_net/test_step\.tgraph: (Not a directory|File exists)"
        ]
    )
    assert (pytester.path / "__snapshots__").read_text() == "in the way"
    assert "INTERNALERROR" not in result.stdout.str()


def test_unreadable_snapshot_is_an_error(project: Run, stored: Path) -> None:
    stored.unlink()
    stored.mkdir()
    for arguments in ([], ["--torchgraph-update"]):
        result = project(*arguments)
        result.assert_outcomes(failed=1)
        result.stdout.fnmatch_lines(["*TorchGraphError: cannot read the stored graph *Is a dir*"])


def test_snapshot_with_less_detail_must_be_updated(project: Run, stored: Path) -> None:
    stored.write_text("torchgraph 1\ndetail ops\n\nforward @ aot {\n  1 aten.relu.default\n}\n")
    result = project()
    result.assert_outcomes(failed=1)
    assert section(result)[:3] == [
        "the stored file has only detail 'ops', but the comparison needs 'dataflow'",
        "compare with graph_snapshot(detail='ops'), or store the graph again",
        "file:    __snapshots__/test_net/test_step.tgraph",
    ]
    project("--torchgraph-update").assert_outcomes(passed=1)
    assert "detail" not in stored.read_text()


def test_exceptions_of_comparisons_are_freed(pytester: pytest.Pytester, run: Run) -> None:
    pytester.makepyfile(
        test_net="""
        import gc, weakref
        from pathlib import Path
        import pytest
        from graphs import graph
        from pytest_torchgraph.errors import TorchGraphError

        class Thing: pass
        refs = []

        def test_error(graph_snapshot):
            thing = Thing()
            refs.append(weakref.ref(thing))
            Path("__snapshots__/test_net/test_error.tgraph").mkdir(parents=True)
            with pytest.raises(TorchGraphError):
                graph() == graph_snapshot

        def test_gone():
            gc.collect()
            assert refs[0]() is None
        """
    )
    run("--torchgraph-update").assert_outcomes(passed=2)


@pytest.mark.slow("runs pytest in a new process")
def test_captures_and_fx_graphs_can_be_stored(pytester: pytest.Pytester, run: Run) -> None:
    pytester.makepyfile(
        test_net="""
        import os
        import torch

        class Net(torch.nn.Module):
            def __init__(self):
                super().__init__()
                self.fc = torch.nn.Linear(4, 4)

            def forward(self, x):
                x = self.fc(x).relu()
                return x.exp() if "EXTRA" in os.environ else x

        def test_capture(graph_capture, graph_snapshot):
            captured = graph_capture(Net(), torch.ones(2, 4))
            assert captured == graph_snapshot
            assert captured.forward == graph_snapshot(name="forward")

        def test_fx(graph_snapshot):
            module = torch.fx.symbolic_trace(Net())
            assert module == graph_snapshot
            assert module.graph == graph_snapshot(name="graph")

        def test_exported(graph_snapshot):
            assert torch.export.export(Net(), (torch.ones(2, 4),)) == graph_snapshot
        """
    )
    run("--torchgraph-update").assert_outcomes(passed=3)
    assert len(files(pytester)) == 5
    assert all(b"relu" in data for data in files(pytester).values())
    run().assert_outcomes(passed=3)
    run("-p", "xdist", "-n2", PYTHONHASHSEED="7").assert_outcomes(passed=3)
    result = run(EXTRA="1")
    result.assert_outcomes(failed=3)
    result.stdout.fnmatch_lines(["E*graphs == stored: * added*"])
