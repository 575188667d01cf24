"""`--format=json`: one document on stdout with all facts, and the exit codes of the text."""

from __future__ import annotations

import json
import shlex
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from cli.conftest import Run, undocumented

from pytest_torchgraph.cli import main

Data = dict[str, Any]
STORED = """torchgraph 4
via aot, torch 2.13.0

forward {
  %x = input : f32[2, 4]
  %w = parameter : f32[4, 4]
  %fc/mm = aten.mm.default(%x, %w) : f32[2, 4]
  return %fc/mm
  save %x
}
"""
RANKS = """torchgraph 4
via aot, torch 2.13.0
mesh tp=2

rank 0

forward {
  %x = input : f32[2]
  %abs = aten.abs.default(%x) : f32[2]
  return %abs
}

rank 1

forward {
  %x = input : f32[2]
  %neg = aten.neg.default(%x) : f32[2]
  return %neg
}
"""
COUNTS = """torchgraph 4
via aot, torch 2.13.0, detail ops

forward {
  2 aten.abs.default
}
"""


@pytest.fixture
def data(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, run: Run) -> Callable[..., Data]:
    """Run a command on files in the working directory, and parse its output."""
    monkeypatch.chdir(tmp_path)
    for name, text in (("one", STORED), ("ranks", RANKS), ("counts", COUNTS), ("bad", "what\n")):
        Path(f"{name}.tgraph").write_text(text)

    def data(*words: object, code: int = 0) -> Data:
        parsed: Data = json.loads(run(*words, "--format=json", code=code))
        return parsed

    return data


def test_show_json_has_graphs_and_nodes(data: Callable[..., Data]) -> None:
    shown = data("show", "one.tgraph")
    (capture,) = shown.pop("captures")
    assert shown == {"version": 1, "torch": "2.13.0", "via": "aot"}
    (graph,) = capture.pop("graphs")
    assert capture == {"ranks": [], "graph_breaks": [], "costs": {}}
    *_, node, _ = graph.pop("nodes")
    assert node == {
        "name": "fc/mm",
        "kind": "call_function",
        "op": "aten.mm.default",
        "module": "fc",
        "inputs": ["x", "w"],
        "result": "f32[2, 4]",
        "text": "%fc/mm = aten.mm.default(%x, %w) : f32[2, 4]",
    }
    assert graph == {
        "name": "forward",
        "kind": "forward",
        "level": "aot",
        "eager": False,
        "runs": 1,
        "ops": {"aten.mm.default": 1},
        "saved": ["x"],
        "subgraphs": [],
    }
    (capture,) = data("show", "one.tgraph", "--cost")["captures"]
    assert capture["costs"]["fc"]["flops"] == 64


def test_show_json_has_each_rank_and_counts(data: Callable[..., Data]) -> None:
    captures = data("show", "ranks.tgraph")["captures"]
    ops = [(each["ranks"], *each["graphs"][0]["ops"]) for each in captures]
    assert ops == [([0], "aten.abs.default"), ([1], "aten.neg.default")]
    (capture,) = data("show", "ranks.tgraph", "--rank=1")["captures"]
    assert [*capture["graphs"][0]["ops"]] == ["aten.neg.default"]
    (capture,) = data("show", "counts.tgraph")["captures"]
    counts = {"name": "forward", "runs": 1, "ops": {"aten.abs.default": 2}, "nodes": None}
    assert capture["graphs"] == [counts]


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ("show bad.tgraph", "bad.tgraph"),
        ("show one.tgraph --graph=backward", "no graph 'backward': it has forward"),
        ("show counts.tgraph --cost", "only op counts are stored"),
        ("show one.tgraph --rank=1", "leave out --rank"),
        ("show ranks.tgraph --rank=2", "no rank 2"),
        ("show one.tgraph --stage=aot", "--stage applies to logs"),
        ("diff one.tgraph bad.tgraph", "bad.tgraph"),
        ("review none", "none"),
        ("review one.tgraph", "is a file"),
    ],
)
def test_json_of_an_error_is_empty(
    words: str, message: str, data: object, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main([*shlex.split(words), "--format=json"]) == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert message in err


def test_show_json_has_no_other_form(data: object, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit, match="2"):
        main(["show", "one.tgraph", "--ops", "--format=json"])
    out, err = capsys.readouterr()
    assert out == ""
    assert "not allowed with argument --ops" in err


def test_show_json_of_a_step_names_its_graph_breaks(
    data: Callable[..., Data], tmp_path: Path
) -> None:
    import torch

    from pytest_torchgraph import capture

    def broken(x: torch.Tensor) -> torch.Tensor:
        x = x.abs()
        torch._dynamo.graph_break()
        return x.neg()

    Path("broken.tgraph").write_text(capture(broken, torch.ones(3)).to_text())
    (step,) = data("show", "broken.tgraph")["captures"]
    (found,) = step["graph_breaks"]
    assert found["function"].endswith("broken")
    assert found["kind"] == "Call to `torch._dynamo.graph_break()`"
    text = Path("broken.tgraph").read_text()
    Path("old.tgraph").write_text(text[: text.index("links")])
    (step,) = data("show", "old.tgraph")["captures"]
    assert step["graph_breaks"] is None  # unknown, and not "none"


def test_json_keys_are_documented(data: Callable[..., Data]) -> None:
    Path("new.tgraph").write_text(STORED.replace("mm", "add"))
    assert undocumented(data("show", "one.tgraph", "--cost")) == []
    assert undocumented(data("diff", "one.tgraph", "new.tgraph", code=1)) == []
    assert undocumented({"heading": [{"unknown": 1}]}) == ["unknown"]
