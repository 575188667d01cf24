"""The commands, `diff` and `load` on files with the graphs of several ranks."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from cli.conftest import Run

from pytest_torchgraph import Capture, GraphFormatError, Ranks, TorchGraphError, diff, load

GRAPH = """forward {
  %x = input : f32[2, 4]
  %relu = aten.relu.default(%x) : f32[2, 4]
  return %relu
}
"""
HEAD = "torchgraph 4\nvia aot, torch 2.13.0\nmesh dp=2, tp=4\n"
ONE = f"torchgraph 4\nvia aot, torch 2.13.0\n\n{GRAPH}"


def text(**ranks: str) -> str:
    """Return a file with a section for each op, as `relu="ranks 0-3"`."""
    sections = [f"\n{own}\n\n{GRAPH.replace('relu', op)}" for op, own in ranks.items()]
    return "".join([HEAD, *sections])


OLD = text(relu="ranks 0-7")
NEW = text(relu="ranks 0-3", tanh="ranks 4-6", sin="rank 7")


@pytest.fixture
def files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    counts = (
        HEAD.replace("13.0", "13.0, detail ops")
        + "\nranks 0-7\n\nforward {{\n  {} aten.relu.default\n}}\n"
    )
    every = {
        "old": OLD,
        "new": NEW,
        "one": ONE,
        "none": "",
        "mesh": OLD.replace("dp=2, tp=4", "tp=4, dp=2"),
        "some": text(relu="ranks 0-3"),
        "counts": counts.format(1),
        "more": counts.format(2),
        "bad": OLD.replace("ranks 0-7", "ranks 0-8"),
    }
    for name, content in every.items():
        Path(f"{name}.tgraph").write_text(content)
    return tmp_path


@pytest.fixture
def run(run: Run) -> Run:
    """Run a command with names of `files`."""
    return lambda *words, code: run(
        *(f"{word}.tgraph" if word in NAMES else word for word in words), code=code
    )


NAMES = ("old", "new", "one", "none", "mesh", "some", "counts", "more", "bad")


def test_show(files: Path, run: Run) -> None:
    for name in ("old", "new", "counts"):
        assert run("show", name, code=0) == Path(f"{name}.tgraph").read_text()
    alone = run("show", "new", "--rank", "5", code=0)
    assert alone == ONE.replace("relu", "tanh")
    assert "aten.sin" in run("show", "new", "--rank=7", "--ops", code=0)
    assert "choose a rank, such as --rank=0" in run("show", "new", "--ops", code=2)
    said = run("show", "new", "--rank", "8", code=2)
    assert "new.tgraph has no rank 8: it has ranks 0-7" in said
    said = run("show", "one", "--rank", "0", code=2)
    assert "stores a single capture, not ranks" in said
    assert "bad.tgraph:5:7: rank 8 is out of range" in run("show", "bad", code=2)


def test_diff(files: Path, run: Run) -> None:
    assert run("diff", "old", "old", code=0) == ""
    lines = run("diff", "old", "new", code=1).splitlines()
    assert lines[0].startswith("2 edits: aten.relu -> aten.tanh")
    assert [line for line in lines if line.startswith("rank")] == ["ranks 4-6:", "rank 7:"]
    data = json.loads(run("diff", "old", "new", "--format=json", code=1))
    assert [(finding["what"], finding["ranks"]) for finding in data["findings"]] == [
        ("aten.relu -> aten.tanh", [4, 5, 6]),
        ("aten.relu -> aten.sin", [7]),
    ]
    table = run("diff", "old", "new", "--format=markdown", code=1).splitlines()
    assert table[2].endswith("| ranks |")
    assert [row.split(" | ")[-1] for row in table[4:]] == ["3: `4`, `5`, `6` |", "1: `7` |"]
    one = run("diff", "old", "new", "--rank=4", "--format=json", code=1)
    (finding,) = json.loads(one)["findings"]
    assert (finding["what"], finding["ranks"]) == ("aten.relu -> aten.tanh", None)
    assert run("diff", "old", "new", "--rank", "0", code=0) == ""


def test_diff_of_ranks_with_other_ranks_or_one_capture(files: Path, run: Run) -> None:
    for name in ("mesh", "some"):
        said = run("diff", "old", name, code=2)
        assert "differ: before ranks 0-7 of mesh (dp=2, tp=4), now ranks" in said
    assert "choose a rank, such as --rank=0" in run("diff", "one", "old", code=2)
    assert "1 graph removed\nranks 0-7:" in run("diff", "old", "none", code=1)
    assert "1 graph added\nranks 0-3:" in run("diff", "none", "some", code=1)
    said = run("diff", "counts", "more", code=1)
    assert said == "ranks 0-7: forward: aten.relu.default  1 -> 2\n"
    alone = (
        "only op counts are compared: counts.tgraph was stored with detail='ops', so it has no "
        "graphs\n"
    )
    assert run("diff", "counts", "old", code=0) == alone


def test_diff_of_files(files: Path) -> None:
    counts = diff("counts.tgraph", "more.tgraph")
    assert counts.files is not None
    assert counts.files.counts == {
        "more.tgraph": ("ranks 0-7: forward: aten.relu.default  1 -> 2",)
    }
    assert str(counts).startswith("op counts differ\nranks 0-7: forward: aten.relu")
    with pytest.raises(GraphFormatError, match=r"mesh\.tgraph.*the meshes differ"):
        diff("old.tgraph", "mesh.tgraph")


def test_render(files: Path, run: Run) -> None:
    run("render", "new", "out.dot", "--rank", "7", code=0)
    assert "aten.sin" in Path("out.dot").read_text()
    run("render", "new", "out.dot", "--rank", "7", "--against", "old.tgraph", code=0)
    assert "choose a rank, such as --rank=0" in run("render", "new", "out.dot", code=2)


def test_ranks_are_loaded(files: Path) -> None:
    ranks = load("new.tgraph")
    assert ranks.mesh == {"dp": 2, "tp": 4}
    assert ranks.ranks == tuple(range(8))
    assert [rank_capture.rank for rank_capture in ranks] == list(range(8))
    ranks[:4].assert_same_graphs()
    with pytest.raises(AssertionError, match=r"rank 7 \(dp=1, tp=3\) compared with ranks 0-3"):
        ranks.assert_same_graphs()
    assert load("new.tgraph") == ranks
    assert isinstance(load("one.tgraph"), Capture)
    with pytest.raises(GraphFormatError, match="only op counts"):
        load("counts.tgraph")
    with pytest.raises(GraphFormatError, match=r"bad\.tgraph:5:7: rank 8 is out of range"):
        load("bad.tgraph")


def test_difference_of_ranks(files: Path) -> None:
    old, new = load("old.tgraph"), load("new.tgraph")
    assert str(diff(old, new)) == str(diff("old.tgraph", "new.tgraph"))
    assert [node.op for node in diff(old[7:], new[7:]).added] == [
        node.op for node in diff(old[7], new[7]).added
    ]
    assert not diff(new, Ranks(new[::-1], new.mesh))
    assert not diff(new, "new.tgraph")
    assert [finding.ranks for finding in diff("old.tgraph", new).findings] == [(4, 5, 6), (7,)]


def test_diff_of_ranks_compares_equal_rank_numbers(files: Path) -> None:
    old = load("old.tgraph")
    with pytest.raises(
        TorchGraphError, match=r"the ranks differ: before ranks 0-7 of .*ranks 0-3 of"
    ):
        diff(old, old[:4])
    with pytest.raises(TorchGraphError, match=r"the meshes differ.* of mesh \(tp=4, dp=2\)"):
        diff(old, load("mesh.tgraph"))
    with pytest.raises(TorchGraphError, match="nothing to compare: no rank was captured"):
        diff(old[:0], old[:0])
    with pytest.raises(
        TypeError, match=r"ranks can only be compared with ranks, not with a Capture"
    ):
        diff(old, old[0])
    with pytest.raises(TypeError, match=r"ranks can only be compared with ranks, not with a Graph"):
        diff(old[0].forward, old)


def test_show_prints_collectives_of_each_class(files: Path, run: Run) -> None:
    reduce = '%tanh = _c10d_functional.all_reduce.default(%x, "sum", "tp")'
    Path("new.tgraph").write_text(NEW.replace("%tanh = aten.tanh.default(%x)", reduce))
    blocks = run("show", "new", "--collectives", code=0).split("\n\n")
    assert [part.splitlines()[0] for part in blocks] == ["ranks 0-3", "ranks 4-6", "rank 7"]
    assert ["all_reduce" in part for part in blocks] == [False, True, False]
    one = run("show", "new", "--collectives", "--rank=5", code=0)
    assert one == blocks[1].split("\n", 1)[1] + "\n"
    told_none = run("show", "counts", "--collectives", code=2)
    assert "only op counts are stored" in told_none
