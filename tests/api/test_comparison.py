"""`compare`: two files, or the files of two directories, without torch."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from projects import GRAPHS

from pytest_torchgraph import Comparison, GraphFormatError, TorchGraphError, compare

exec(GRAPHS, stored := {"__name__": "graphs"})
text = stored["text"]


def directory(path: Path, files: dict[str, str]) -> Path:
    path.mkdir()
    for name, content in files.items():
        file = path / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(content)
    return path


def compared(tmp_path: Path, old: dict[str, str], new: dict[str, str]) -> Comparison:
    return compare(directory(tmp_path / "old", old), directory(tmp_path / "new", new))


def test_one_edit_in_many_files_is_one_cause_with_all_of_them(tmp_path: Path) -> None:
    names = [f"tests/__snapshots__/test_{k}/step.tgraph" for k in range(40)]
    found = compared(
        tmp_path,
        {name: text("sin", "gelu", "cos") for name in names} | {"same.tgraph": text("relu")},
        {name: text("sin", "relu", "cos") for name in names} | {"same.tgraph": text("relu")},
    )
    assert found
    (cause,) = found.causes
    assert cause.files == tuple(sorted(names))
    assert cause.places == 40
    assert cause.finding.before.op == "aten.gelu.default"  # type: ignore[union-attr]
    assert found.changed == cause.files
    lines = str(found).splitlines()
    assert lines[0] == "40 of 41 files differ by 1 cause"
    assert lines[1] == "~ aten.gelu -> aten.relu in layer.1  (40 places, 40 files)"
    assert lines[-1].endswith("step.tgraph and 37 more")
    assert len(lines) == 5


def test_causes_are_in_the_order_of_how_many_files_they_are_in(tmp_path: Path) -> None:
    old = {"a.tgraph": text("sin"), "b.tgraph": text("cos"), "c.tgraph": text("cos")}
    new = {"a.tgraph": text("exp"), "b.tgraph": text("tanh"), "c.tgraph": text("tanh")}
    found = compared(tmp_path, old, new)
    assert [cause.files for cause in found.causes] == [("b.tgraph", "c.tgraph"), ("a.tgraph",)]


def test_a_file_on_one_side_is_listed_and_is_a_difference(tmp_path: Path) -> None:
    both = {"a.tgraph": text("sin")}
    found = compared(
        tmp_path, both | {"x/gone.tgraph": text("cos")}, both | {"x/came.tgraph": text("cos")}
    )
    assert found
    assert (found.added, found.removed) == (("x/came.tgraph",), ("x/gone.tgraph",))
    assert found.changed == ()
    assert str(found).splitlines() == [
        "1 file added; 1 file removed",
        "+ added: x/came.tgraph",
        "- removed: x/gone.tgraph",
    ]


def test_a_malformed_file_is_named_and_hides_no_other_difference(tmp_path: Path) -> None:
    broken = text("sin").replace("%x = input", "%x = ")
    found = compared(
        tmp_path,
        {"a.tgraph": text("sin"), "b.tgraph": text("sin"), "c.tgraph": "\n"},
        {"a.tgraph": broken, "b.tgraph": text("cos"), "c.tgraph": "\n"},
    )
    assert found
    assert list(found.unreadable) == ["a.tgraph", "c.tgraph"]
    assert "a.tgraph:5:" in found.unreadable["a.tgraph"]
    assert [cause.files for cause in found.causes] == [("b.tgraph",)]
    assert "2 files cannot be read" in found.heading()
    assert f"! {tmp_path}" in str(found)


@pytest.mark.parametrize("mark", ["<<<<<<< HEAD\n", ""])
def test_the_same_malformed_text_on_both_sides_is_no_equality(tmp_path: Path, mark: str) -> None:
    bad = text("sin").replace("  return", f"{mark}  rturn")
    files = {"a.tgraph": bad if mark else bad.replace(" {\n", "\n")}
    assert list(compared(tmp_path, files, files).unreadable) == ["a.tgraph"]


def test_files_that_cannot_be_opened_are_named(tmp_path: Path) -> None:
    old = directory(tmp_path / "old", {"a.tgraph": text("sin")})
    new = directory(tmp_path / "new", {})
    (new / "a.tgraph").symlink_to(tmp_path / "nowhere")
    found = compare(old, new)
    assert list(found.unreadable) == ["a.tgraph"]
    assert "No such file" in found.unreadable["a.tgraph"]


def test_nothing_to_compare_is_an_error(tmp_path: Path) -> None:
    empty = directory(tmp_path / "empty", {"readme.txt": "nothing"})
    with pytest.raises(TorchGraphError, match=r"there is no \.tgraph file in .*empty"):
        compare(empty, empty)
    file = directory(tmp_path / "one", {"a.tgraph": text("sin")}) / "a.tgraph"
    with pytest.raises(TorchGraphError, match=r"is a directory and .*a\.tgraph is a file"):
        compare(empty, file)
    for pair in ((empty, tmp_path / "none"), (tmp_path / "none", file)):
        with pytest.raises(FileNotFoundError):
            compare(*pair)
    assert compare(empty, file.parent).added == ("a.tgraph",)


def test_two_files_are_compared_and_a_malformed_one_raises(tmp_path: Path) -> None:
    where = directory(tmp_path / "d", {"a.tgraph": text("sin"), "b.tgraph": text("cos"), "c": "no"})
    found = compare(str(where / "a.tgraph"), where / "b.tgraph")
    assert [cause.files for cause in found.causes] == [("b.tgraph",)]
    assert not compare(where / "a.tgraph", where / "a.tgraph")
    with pytest.raises(GraphFormatError, match="c:1:1"):
        compare(where / "a.tgraph", where / "c")


def test_equal_graphs_are_no_difference_whatever_their_origin_and_names(tmp_path: Path) -> None:
    other = text("sin").replace("via aot", "via dispatch").replace("2.13.0", "2.15.0")
    found = compared(
        tmp_path,
        {"a.tgraph": text("sin"), "b.tgraph": text("sin")},
        {"a.tgraph": other, "b.tgraph": text("sin").replace("layer.0", "block.0")},
    )
    assert not found
    assert found.renamed == ("b.tgraph",)
    assert str(found).splitlines() == [
        "no difference in 2 files",
        "= other names, strides or devices alone: b.tgraph",
    ]


def test_a_new_release_of_torch_joins_what_it_did_everywhere(tmp_path: Path) -> None:
    """The clone goes from two places that have nothing else in common."""
    old = {"a.tgraph": text("sin", "clone", "cos"), "b.tgraph": text("exp", "relu", "clone")}
    new = {"a.tgraph": text("sin", "cos"), "b.tgraph": text("exp", "relu")}
    assert len(compared(tmp_path, old, new).causes) == 2
    (tmp_path / "later").mkdir()
    later = {name: each.replace("2.13.0", "2.15.0") for name, each in new.items()}
    found = compared(tmp_path / "later", old, later)
    assert [cause.files for cause in found.causes] == [("a.tgraph", "b.tgraph")]
    assert set(found.releases.values()) == {("2.13.0", "2.15.0")}
    assert "torch 2.13.0 -> 2.15.0" in str(found)


def test_op_counts_are_compared_where_one_file_holds_them_alone(tmp_path: Path) -> None:
    counts = (
        "torchgraph 1\nvia aot, torch 2.13.0, detail ops\n\nforward {\n  1 aten.sin.default\n}\n"
    )
    files = dict.fromkeys(("a.tgraph", "b.tgraph", "c.tgraph"), counts)
    new = {"a.tgraph": text("cos"), "b.tgraph": text("sin"), "c.tgraph": text("cos")}
    found = compared(tmp_path, files, new)
    assert found
    assert found.changed == ("a.tgraph", "c.tgraph")
    assert found.counts["a.tgraph"][0] == "forward: aten.cos.default  0 -> 1"
    assert str(found).splitlines() == [
        "2 of 3 files differ",
        "~ op counts: forward: aten.cos.default  0 -> 1, forward: aten.sin.default  1 -> 0",
        "    in a.tgraph, c.tgraph",
    ]


def test_artifacts_are_compared_with_what_was_stored(tmp_path: Path) -> None:
    files = {
        "a.expected.tgraph": text("sin"),
        "a.received.tgraph": text("cos"),
        "b.received.tgraph": text("sin"),
    }
    found = compare(directory(tmp_path / "art", files))
    assert [cause.files for cause in found.causes] == [("a",)]
    assert found.added == ("b",)
    with pytest.raises(TorchGraphError, match=r"no \.tgraph file in .*: no test left its texts"):
        compare(directory(tmp_path / "none", {"a.tgraph": text("sin")}))
    with pytest.raises(TorchGraphError, match="is a file: say what to compare it with"):
        compare(tmp_path / "none" / "a.tgraph")


def test_comparing_imports_no_torch(tmp_path: Path) -> None:
    new = directory(tmp_path / "new", {"a.tgraph": text("sin")})
    old = directory(tmp_path / "old", {"a.tgraph": text("cos")})
    code = (
        "import sys, pytest_torchgraph as t\n"
        f"assert len(t.compare({str(old)!r}, {str(new)!r}).causes) == 1\n"
        "print([m for m in ('torch', 'pytest', 'numpy') if m in sys.modules])"
    )
    result = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, env=os.environ
    )
    assert result.stdout.strip() == "[]"
