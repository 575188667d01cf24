"""Names of stored files: readable, portable, and never shared by two tests."""

from __future__ import annotations

from pathlib import Path

import pytest
from projects import Run, files

from pytest_torchgraph.snapshot.file_names import MAX_BYTES, picture_stem

NAMES = """
import pytest
from pytest_torchgraph.snapshot.file_names import stem_of

@pytest.fixture(autouse=True)
def show(request, capsys):
    with capsys.disabled():
        for index in (0, 1, "forward"):
            print(f"\\n{request.node.nodeid} -> {stem_of(request.node, index)!r}")
"""


def stems(result: pytest.RunResult) -> dict[str, list[str]]:
    stems_by_test: dict[str, list[str]] = {}
    for line in result.outlines:
        nodeid, arrow, stem = line.partition(" -> ")
        if arrow:
            stems_by_test.setdefault(nodeid.partition("::")[2], []).append(eval(stem))
    return stems_by_test


def test_ordinary_tests_have_their_own_name(pytester: pytest.Pytester, run: Run) -> None:
    pytester.makeconftest(NAMES)
    pytester.makepyfile(
        """
        import pytest

        def test_step(): pass

        @pytest.mark.parametrize("size", [16, 1.5, "a b", "layer.0-x"])
        def test_sized(size): pass

        class TestNet:
            class TestInner:
                def test_step(self): pass
        """
    )
    assert stems(run("-q")) == {
        "test_step": ["test_step", "test_step.1", "test_step[forward]"],
        "test_sized[16]": ["test_sized[16]", "test_sized[16].1", "test_sized[16][forward]"],
        "test_sized[1.5]": ["test_sized[1.5]", "test_sized[1.5].1", "test_sized[1.5][forward]"],
        "test_sized[a b]": ["test_sized[a b]", "test_sized[a b].1", "test_sized[a b][forward]"],
        "test_sized[layer.0-x]": [
            "test_sized[layer.0-x]",
            "test_sized[layer.0-x].1",
            "test_sized[layer.0-x][forward]",
        ],
        "TestNet::TestInner::test_step": [
            "TestNet.TestInner.test_step",
            "TestNet.TestInner.test_step.1",
            "TestNet.TestInner.test_step[forward]",
        ],
    }


def test_hostile_tests_never_share_a_name(pytester: pytest.Pytester, run: Run) -> None:
    pytester.makeconftest(NAMES)
    long = "x" * 300
    ids = ["cuda:0", "cuda0", "cuda-0", "A", "a", "a/b", "../../a", "a::b", "a][forward", "", " "]
    ids += [long, long + "y", "\\x00", "\u00e9", "e\u0301", "*", "?", "a.", "[", "]", "."]
    pytester.makeini(
        "[pytest]\n"
        "disable_test_id_escaping_and_forfeit_all_rights_to_community_support = true\n"
        "python_functions = test_* aux"
    )
    pytester.makepyfile(
        f"""
        import pytest

        @pytest.mark.parametrize("x", {ids!r}, ids={ids!r})
        def test_x(x): pass

        def test_a(): pass
        def aux(): pass

        class TestNET:
            def test_a(self): pass

        class Test{long}:
            def test_a(self): pass
        """
    )
    stems_by_test = stems(run("-q"))
    assert len(stems_by_test) == len(ids) + 4
    names = [stem for group in stems_by_test.values() for stem in group]
    assert len(names) == 3 * len(stems_by_test)
    assert len({name.lower() for name in names}) == len(names)
    for name in names:
        assert len(f"{name}.tgraph".encode()) <= MAX_BYTES
        assert name.isprintable()
        assert not set(name) & set('\\/?*:|"<>')
        assert Path("x", f"{name}.tgraph").parent == Path("x")
    assert stems_by_test["test_x[a]"][0] == "test_x[a]"
    assert stems_by_test["test_x[cuda:0]"][0].startswith("test_x[cuda-0]-")
    assert stems_by_test["test_a"][0] == "test_a"
    assert stems_by_test["TestNET::test_a"][0] == "TestNET.test_a"
    assert stems_by_test["aux"][0].startswith("aux-")


def test_snapshot_name_depends_only_on_the_test(pytester: pytest.Pytester, run: Run) -> None:
    pytester.makeconftest(NAMES)
    pytester.makepyfile(
        """
        import pytest

        @pytest.mark.parametrize("x", ["A", "a", "cuda:0"])
        def test_x(x): pass
        """
    )
    every = stems(run("-q"))
    assert len(every) == 3
    for nodeid, expected in every.items():
        alone = stems(run("-q", f"test_snapshot_name_depends_only_on_the_test.py::{nodeid}"))
        assert alone == {nodeid: expected}


def test_hostile_tests_store_all_files(pytester: pytest.Pytester, run: Run) -> None:
    pytester.makepyfile(
        test_net="""
        import pytest
        from graphs import graph

        @pytest.mark.parametrize("op", ["cuda:0", "cuda0", "A", "a", "../../../a", "x" * 300])
        def test_x(op, graph_snapshot):
            ops = {"cuda:0": "mm", "cuda0": "bmm", "A": "add", "a": "sub"}.get(op, "relu")
            assert graph(ops) == graph_snapshot
            assert graph(ops, "neg") == graph_snapshot(name="Out/../x")
        """
    )
    run("-W", "error", "--torchgraph-update").assert_outcomes(passed=6)
    stored_files = files(pytester)
    assert len(stored_files) == 12
    assert all(path.startswith("__snapshots__/test_net/test_x[") for path in stored_files)
    assert not list(pytester.path.parent.glob("*.tgraph"))
    run("-W", "error").assert_outcomes(passed=6)


def test_pictures_of_different_comparisons_have_different_names() -> None:
    stems = {
        picture_stem(nodeid, name)
        for nodeid in ("a/test_x.py::test_y[A]", "b/test_x.py::test_y[A]", "a/test_x.py::test_y[a]")
        for name in ("test_y", "test_y[forward]")
    }
    assert len({stem.lower() for stem in stems}) == 6
    hostile = picture_stem("a/../test.py::test_y[../../x\n\0:]" + "y" * 500, "n")
    assert "/" not in hostile
    assert hostile.isprintable()
    assert len(hostile.encode()) < MAX_BYTES
