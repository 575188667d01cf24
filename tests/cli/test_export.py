"""`python -m pytest_torchgraph export`."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlparse

import pytest

from pytest_torchgraph.cli import main
from pytest_torchgraph.graph import Graph

OLD = """torchgraph 1

forward @ aot {
  %x = input : f32[2, 4]
  %relu = aten.relu.default(%x) : f32[2, 4]
  return %relu
}
"""
NEW = OLD.replace("relu", "tanh")


@pytest.fixture
def files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    for name, text in (("old", OLD), ("new", NEW)):
        Path(f"{name}.tgraph").write_text(text)
    Path("counts.tgraph").write_text(Graph.from_text(OLD).to_text("ops"))
    return tmp_path


def run(*words: str, code: int, capsys: pytest.CaptureFixture[str]) -> str:
    assert main(["export", *words]) == code
    out, err = capsys.readouterr()
    return out if code != 2 else err


def asked(address: str) -> Any:
    return json.loads(parse_qs(urlparse(address).query)["data"][0])


def test_export_of_one_file_is_one_collection(
    files: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    printed = run("--model-explorer", "out/f.json", "old.tgraph", code=0, capsys=capsys)
    path, address = printed.splitlines()
    assert Path(path) == Path("out/f.json")
    (collection,) = json.loads(Path(path).read_text(encoding="utf-8"))
    assert collection["label"] == "old.tgraph"
    assert [graph["id"] for graph in collection["subgraphs"]] == ["forward"]
    assert asked(address)["models"] == [{"url": str(files / "out" / "f.json")}]
    assert "sync" not in asked(address)


def test_export_of_two_files_is_two_collections_and_a_mapping(
    files: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    words = ("--model-explorer=f.json", "old.tgraph", "new.tgraph")
    path, mapping, address = run(*words, code=0, capsys=capsys).splitlines()
    assert (path, mapping) == ("f.json", "f.mapping.json")
    labels = [
        collection["label"] for collection in json.loads(Path(path).read_text(encoding="utf-8"))
    ]
    assert labels == ["old.tgraph", "new.tgraph"]
    assert json.loads(Path(mapping).read_text(encoding="utf-8"))["mapping"]["relu"] == "relu"
    panes = asked(address)["uiState"]["paneStates"]
    assert [
        (pane["selectedCollectionLabel"], pane["selectedGraphId"], pane["selectedNodeId"])
        for pane in panes
    ] == [
        ("f.json (old.tgraph)", "old/forward", "relu"),
        ("f.json (new.tgraph)", "new/forward", "relu"),
    ]
    assert asked(address)["sync"] == {"mode": "match_node_id"}


def test_export_distinguishes_files_with_the_same_name(
    files: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (files / "next").mkdir()
    (files / "next" / "old.tgraph").write_text(NEW)
    run("--model-explorer=f.json", "old.tgraph", "next/old.tgraph", code=0, capsys=capsys)
    labels = [
        collection["label"] for collection in json.loads(Path("f.json").read_text(encoding="utf-8"))
    ]
    assert labels == ["old old.tgraph", "new old.tgraph"]


def test_export_of_equal_files(files: Path, capsys: pytest.CaptureFixture[str]) -> None:
    printed = run("--model-explorer=f.json", "old.tgraph", "old.tgraph", code=0, capsys=capsys)
    panes = asked(printed.splitlines()[-1])["uiState"]["paneStates"]
    assert [pane["selectedNodeId"] for pane in panes] == ["", ""]


SAVES = OLD.replace("return %relu", "return %relu\n  save %relu")


def test_costs_are_node_data(files: Path, capsys: pytest.CaptureFixture[str]) -> None:
    Path("saves.tgraph").write_text(SAVES)
    words = ("--model-explorer=f.json", "saves.tgraph", "--heat=saved_bytes")
    _, path, address = run(*words, code=0, capsys=capsys).splitlines()
    assert path == "f.saved_bytes.json"
    data = json.loads(Path(path).read_text(encoding="utf-8"))["forward"]
    assert data["results"] == {"relu": {"value": 2 * 4 * 4}}
    assert data["name"] == "bytes saved for backward"
    assert asked(address)["nodeData"] == [str(files / path)]


@pytest.mark.parametrize(
    ("words", "problem"),
    [
        (("--model-explorer=f.txt", "old.tgraph"), "f.txt: model-explorer reads only .json files"),
        (
            ("--model-explorer=f.json", "counts.tgraph"),
            "counts.tgraph:1:1: only op counts are stored",
        ),
        (
            ("--model-explorer=f.json", "old.tgraph", "counts.tgraph"),
            "counts.tgraph:1:1: only op counts are stored",
        ),
        (("--model-explorer=f.json", "gone.tgraph"), "gone.tgraph"),
        (
            ("--model-explorer=f.json", "old.tgraph", "new.tgraph", "--heat=flops"),
            "--heat applies to one file, not to a diff",
        ),
        (("--model-explorer=old.tgraph/f.json", "old.tgraph"), "old.tgraph"),
    ],
)
def test_export_error_writes_nothing(
    files: Path, capsys: pytest.CaptureFixture[str], words: tuple[str, ...], problem: str
) -> None:
    assert problem in run(*words, code=2, capsys=capsys)
    assert [*files.rglob("*.json")] == []


def test_export_does_not_overwrite_its_input(
    files: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    Path("old.json").write_text(OLD)
    output = run("--model-explorer=old.json", "old.json", "new.tgraph", code=2, capsys=capsys)
    assert "old.json is an input file: choose another output file" in output
    assert Path("old.json").read_text() == OLD
