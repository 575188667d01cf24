"""`diff` of two files, or of the files of two directories, without torch."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest
from projects import GRAPHS

from pytest_torchgraph import (
    FilesDiff,
    Finding,
    Graph,
    GraphDiff,
    GraphFormatError,
    TorchGraphError,
    diff,
)
from pytest_torchgraph.render import render

COUNTS = "torchgraph 1\nvia aot, torch 2.13.0, detail ops\n\nforward {\n  1 aten.sin.default\n}\n"
RANKS = """torchgraph 3
via aot, torch 2.13.0
mesh tp=4

ranks 0-1

forward {
  %x = input : f32[2, 4]
  %sin = aten.sin.default(%x) : f32[2, 4]
  return %sin
}

ranks 2-3

forward {
  %x = input : f32[2, 4]
  %cos = aten.cos.default(%x) : f32[2, 4]
  return %cos
}
"""

exec(GRAPHS, stored := {"__name__": "graphs"})
text = stored["text"]


@pytest.mark.skipif(os.name != "posix", reason="links and FIFOs need rights on Windows")
@pytest.mark.parametrize("kind", ["/dev/zero", "fifo"])
def test_link_to_a_device_in_a_directory_is_unreadable(tmp_path: Path, kind: str) -> None:
    for side, op in (("old", "relu"), ("new", "gelu")):
        (tmp_path / side).mkdir()
        lines = f"  %x = input : f32[2]\n  %a = aten.{op}.default(%x) : f32[2]\n  return %a\n"
        text = f"torchgraph 1\nvia aot, torch 2.13.0\n\nforward {{\n{lines}}}\n"
        (tmp_path / side / "good.tgraph").write_text(text)
        path = tmp_path / side / "bad.tgraph"
        if kind == "fifo":
            os.mkfifo(path)
        else:
            path.symlink_to(kind)
    difference = diff(tmp_path / "old", tmp_path / "new")
    assert difference.files is not None
    assert [*difference.files.unreadable] == ["bad.tgraph"]
    assert difference.files.changed == ("good.tgraph",)


def directory(path: Path, files: dict[str, str]) -> Path:
    path.mkdir()
    for name, content in files.items():
        file = path / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(content)
    return path


def compared(tmp_path: Path, old: dict[str, str], new: dict[str, str]) -> GraphDiff:
    return diff(directory(tmp_path / "old", old), directory(tmp_path / "new", new))


def files_of(graph_diff: GraphDiff) -> FilesDiff:
    assert graph_diff.files is not None
    return graph_diff.files


def test_edit_in_many_files_is_one_finding(tmp_path: Path) -> None:
    names = [f"tests/__snapshots__/test_{k}/step.tgraph" for k in range(40)]
    graph_diff = compared(
        tmp_path,
        {name: text("sin", "gelu", "cos") for name in names} | {"same.tgraph": text("relu")},
        {name: text("sin", "relu", "cos") for name in names} | {"same.tgraph": text("relu")},
    )
    assert graph_diff
    (finding,) = graph_diff.findings
    assert finding.files == tuple(sorted(names))
    assert len(finding.places) == 40
    assert finding.before.op == "aten.gelu.default"  # type: ignore[union-attr]
    assert files_of(graph_diff).changed == finding.files
    lines = str(graph_diff).splitlines()
    assert lines[0] == "40 of 41 files differ by 1 cause"
    assert lines[1] == "~ aten.gelu -> aten.relu in layer.1  (40 files)"
    assert lines[-1].endswith("step.tgraph and 37 more")
    assert len(lines) == 5


def test_findings_are_sorted_by_their_number_of_files(tmp_path: Path) -> None:
    old = {"a.tgraph": text("sin"), "b.tgraph": text("cos"), "c.tgraph": text("cos")}
    new = {"a.tgraph": text("exp"), "b.tgraph": text("tanh"), "c.tgraph": text("tanh")}
    graph_diff = compared(tmp_path, old, new)
    assert [finding.files for finding in graph_diff.findings] == [
        ("b.tgraph", "c.tgraph"),
        ("a.tgraph",),
    ]


def test_file_on_one_side_only_is_a_difference(tmp_path: Path) -> None:
    both = {"a.tgraph": text("sin")}
    graph_diff = compared(
        tmp_path, both | {"x/gone.tgraph": text("cos")}, both | {"x/came.tgraph": text("cos")}
    )
    assert graph_diff
    assert (files_of(graph_diff).added, files_of(graph_diff).removed) == (
        ("x/came.tgraph",),
        ("x/gone.tgraph",),
    )
    assert files_of(graph_diff).changed == ()
    assert str(graph_diff).splitlines() == [
        "1 file added; 1 file removed",
        "+ added: x/came.tgraph",
        "- removed: x/gone.tgraph",
    ]


def test_malformed_file_does_not_hide_other_differences(tmp_path: Path) -> None:
    broken = text("sin").replace("%x = input", "%x = ")
    graph_diff = compared(
        tmp_path,
        {"a.tgraph": text("sin"), "b.tgraph": text("sin"), "c.tgraph": "\n"},
        {"a.tgraph": broken, "b.tgraph": text("cos"), "c.tgraph": "\n"},
    )
    assert graph_diff
    assert list(files_of(graph_diff).unreadable) == ["a.tgraph", "c.tgraph"]
    assert "a.tgraph:5:" in files_of(graph_diff).unreadable["a.tgraph"]
    assert [finding.files for finding in graph_diff.findings] == [("b.tgraph",)]
    assert "2 files cannot be read" in graph_diff.heading()
    assert f"! {tmp_path}" in str(graph_diff)


@pytest.mark.parametrize("mark", ["<<<<<<< HEAD\n", ""])
def test_equal_malformed_files_are_not_equal(tmp_path: Path, mark: str) -> None:
    bad = text("sin").replace("  return", f"{mark}  rturn")
    files = {"a.tgraph": bad if mark else bad.replace(" {\n", "\n")}
    assert list(files_of(compared(tmp_path, files, files)).unreadable) == ["a.tgraph"]


def test_diff_of_empty_directories_is_an_error(tmp_path: Path) -> None:
    empty = directory(tmp_path / "empty", {"readme.txt": "nothing"})
    with pytest.raises(TorchGraphError, match=r"no \.tgraph file in .*empty"):
        diff(empty, empty)
    file = directory(tmp_path / "one", {"a.tgraph": text("sin")}) / "a.tgraph"
    for pair in ((empty, tmp_path / "none"), (tmp_path / "none", file)):
        with pytest.raises(FileNotFoundError):
            diff(*pair)
    assert files_of(diff(empty, file.parent)).added == ("a.tgraph",)


def test_two_files_are_compared_and_a_malformed_one_raises(tmp_path: Path) -> None:
    where = directory(tmp_path / "d", {"a.tgraph": text("sin"), "b.tgraph": text("cos"), "c": "no"})
    graph_diff = diff(str(where / "a.tgraph"), where / "b.tgraph")
    assert [finding.files for finding in graph_diff.findings] == [("b.tgraph",)]
    assert not diff(where / "a.tgraph", where / "a.tgraph")
    with pytest.raises(GraphFormatError, match="c:1:1"):
        diff(where / "a.tgraph", where / "c")


def test_files_that_differ_only_in_origin_are_equal(tmp_path: Path) -> None:
    other = text("sin").replace("via aot", "via dispatch").replace("2.13.0", "2.15.0")
    graph_diff = compared(
        tmp_path,
        {"a.tgraph": text("sin"), "b.tgraph": text("sin")},
        {"a.tgraph": other, "b.tgraph": text("sin").replace("layer.0", "block.0")},
    )
    assert not graph_diff
    assert files_of(graph_diff).renamed == ("b.tgraph",)
    assert str(graph_diff).splitlines() == [
        "no difference in 2 files",
        "= only names, strides or devices differ: b.tgraph",
    ]


def test_change_by_a_torch_release_is_one_finding(tmp_path: Path) -> None:
    """The clone is removed in two places with nothing else in common."""
    old = {"a.tgraph": text("sin", "clone", "cos"), "b.tgraph": text("exp", "relu", "clone")}
    new = {"a.tgraph": text("sin", "cos"), "b.tgraph": text("exp", "relu")}
    assert len(compared(tmp_path, old, new).findings) == 2
    (tmp_path / "later").mkdir()
    later = {name: file_text.replace("2.13.0", "2.15.0") for name, file_text in new.items()}
    graph_diff = compared(tmp_path / "later", old, later)
    assert [finding.files for finding in graph_diff.findings] == [("a.tgraph", "b.tgraph")]
    assert set(files_of(graph_diff).releases.values()) == {("2.13.0", "2.15.0")}
    assert "torch 2.13.0 -> 2.15.0" in str(graph_diff)


def test_op_counts_are_compared_if_one_file_has_only_counts(tmp_path: Path) -> None:
    files = dict.fromkeys(("a.tgraph", "b.tgraph", "c.tgraph"), COUNTS)
    new = {"a.tgraph": text("cos"), "b.tgraph": text("sin"), "c.tgraph": text("cos")}
    graph_diff = compared(tmp_path, files, new)
    assert graph_diff
    assert files_of(graph_diff).changed == ("a.tgraph", "c.tgraph")
    assert files_of(graph_diff).counts["a.tgraph"][0] == "forward: aten.cos.default  0 -> 1"
    assert str(graph_diff).splitlines() == [
        "2 of 3 files differ",
        "~ op counts: forward: aten.cos.default  0 -> 1, forward: aten.sin.default  1 -> 0",
        "    in a.tgraph, c.tgraph",
    ]


def test_artifacts_are_compared_with_stored_graphs(tmp_path: Path) -> None:
    files = {
        "a.expected.tgraph": text("sin"),
        "a.received.tgraph": text("cos"),
        "b.received.tgraph": text("sin"),
    }
    graph_diff = diff(directory(tmp_path / "art", files))
    assert [finding.files for finding in graph_diff.findings] == [("a",)]
    assert files_of(graph_diff).added == ("b",)
    with pytest.raises(TorchGraphError, match=r"no \.tgraph file in .*: run pytest --torchgraph"):
        diff(directory(tmp_path / "none", {"a.tgraph": text("sin")}))


def test_mixtures_of_sides_are_type_errors(tmp_path: Path) -> None:
    file = directory(tmp_path / "one", {"a.tgraph": text("sin"), "r.tgraph": RANKS}) / "a.tgraph"
    graph = Graph.from_text(text("sin"))
    for pair, message in (
        ((file.parent, file), r"is a directory, but .*a\.tgraph is a file"),
        ((file, file.parent), r"a\.tgraph is a file, but .* is a directory"),
        ((file,), r"a\.tgraph is a file: pass a second file"),
        ((graph,), "diff takes two sides, or one directory, not a Graph"),
        (
            (graph, file.parent),
            r"is a directory, but a Graph can only be compared with a \.tgraph file",
        ),
        (
            (file.parent, graph),
            r"is a directory, but a Graph can only be compared with a \.tgraph file",
        ),
        ((graph, file.parent / "r.tgraph"), "contains the graphs of ranks, but the other side"),
        ((graph, 3), "expected a Capture, a Graph"),
    ):
        with pytest.raises(TypeError, match=message):
            diff(*pair)
    with pytest.raises(FileNotFoundError):
        diff(graph, tmp_path / "none.tgraph")


def test_a_graph_is_compared_with_a_file_from_either_side(tmp_path: Path) -> None:
    where = directory(tmp_path / "one", {"a.tgraph": text("sin"), "counts.tgraph": COUNTS})
    graph = Graph.from_text(text("cos"))
    for graph_diff in (diff(graph, where / "a.tgraph"), diff(str(where / "a.tgraph"), graph)):
        (finding,) = graph_diff.findings
        assert (finding.files, finding.ranks, graph_diff.files) == ((), None, None)
    assert not diff(Graph.from_text(text("sin")), where / "a.tgraph")
    with pytest.raises(GraphFormatError, match="only op counts"):
        diff(graph, where / "counts.tgraph")


def test_a_difference_is_plain_data(tmp_path: Path) -> None:
    graph_diff = compared(
        tmp_path,
        {"a.tgraph": text("sin"), "b.tgraph": text("sin"), "c.tgraph": "no", "d.tgraph": COUNTS},
        {
            "a.tgraph": text("cos"),
            "b.tgraph": text("cos"),
            "c.tgraph": "no",
            "d.tgraph": text("exp"),
        },
    )
    data = json.loads(json.dumps(graph_diff.to_json()))
    assert data["version"] == 2
    assert data["heading"] == graph_diff.heading()
    assert [Finding.from_json(finding).files for finding in data["findings"]] == [
        ("a.tgraph", "b.tgraph")
    ]
    assert data["files"]["changed"] == ["a.tgraph", "b.tgraph", "d.tgraph"]
    assert data["files"]["unreadable"].keys() == {"c.tgraph"}
    assert data["files"]["counts"]["d.tgraph"] == [*files_of(graph_diff).counts["d.tgraph"]]
    alone = diff(Graph.from_text(text("sin")), Graph.from_text(text("cos"))).to_json()
    assert (alone["files"], alone["findings"][0]["files"]) == (None, [])
    assert json.dumps(alone)


def test_differing_nodes_are_listed_for_all_files(tmp_path: Path) -> None:
    names = ("a.tgraph", "b.tgraph")
    graph_diff = compared(
        tmp_path,
        {name: text("sin") for name in names},
        {name: text("sin", "cos") for name in names},
    )
    assert [node.op for node in graph_diff.added] == ["aten.cos.default"] * 2
    with pytest.raises(TorchGraphError, match="draw the difference of two files"):
        render(graph_diff, tmp_path / "x.dot")
