"""A capture's text, equality, counts and levels include its eager graphs."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from pytest_torchgraph import Capture, CaptureError, Graph, diff, load
from pytest_torchgraph.api.contents import Contents, EagerPart
from pytest_torchgraph.graph import Header


def graph(op: str, name: str, level: str = "aot", kind: str = "forward") -> Graph:
    body = f"%x = input : f32[2]\n  %y = aten.{op}.default(%x) : f32[2]\n  return %y"
    return Graph.from_text(f"torchgraph 1\n\n{name}: {kind} @ {level} {{\n  {body}\n}}\n")


def eager(op: str, number: int = 0, runs: int = 1, kind: str = "forward") -> Graph:
    given = graph(op, f"eager_{number}", "dispatch", kind)
    return replace(given, eager=True, runs=runs)


FIRST, SECOND = graph("sin", "forward_0"), graph("cos", "forward_1")
ISLAND = eager("neg", runs=3)


def captured(*program: Graph) -> Capture:
    return Capture(Contents.of_program(program, sees_eager=True), Header("aot", "2.13.0"))


def of_a_step(graphs: Sequence[Graph], *islands: tuple[int, Graph], **levels: Any) -> Capture:
    """Return a capture with eager graphs after the graphs of these numbers."""
    contents = Contents(
        lambda: (tuple(graphs), None), build_eager=lambda: EagerPart(islands, []), by_level=levels
    )
    return Capture(contents, Header("aot", "2.13.0"))


def test_text_has_eager_graphs_in_program_order(tmp_path: Path) -> None:
    capture = of_a_step((FIRST, SECOND), (0, ISLAND), (-1, eager("exp", 1)))
    text = capture.to_text()

    titles = [line for line in text.splitlines() if line.endswith("{")]
    assert titles == ["eager_1 {", "forward_0: forward {", "eager_0 × 3 {", "forward_1: forward {"]
    path = tmp_path / "step.tgraph"
    path.write_text(text)
    loaded = load(path)
    assert loaded == capture
    assert loaded.to_text() == text
    assert [(eager_graph.name, eager_graph.runs) for eager_graph in loaded.eager] == [
        ("eager_1", 1),
        ("eager_0", 3),
    ]
    assert [graph.name for graph in loaded.graphs] == ["forward_0", "forward_1"]


@pytest.mark.parametrize("detail", ["ops", "dataflow", "full"])
def test_text_at_each_detail_has_eager_graphs(detail: Any) -> None:
    text = captured(FIRST, ISLAND).to_text(detail)

    assert text.startswith("torchgraph 4\n")
    assert "\neager_0 × 3 {\n" in text


def test_eager_ops_of_a_file_are_listed_per_run(tmp_path: Path) -> None:
    body = "%x = input\n  %y = aten.sin.default(%x)\n  %z = aten.cos.default(%y)\n  return %z"
    path = tmp_path / "step.tgraph"
    path.write_text(f"torchgraph 2\nvia aot\n\neager_0 × 2 {{\n  {body}\n}}\n")

    assert [eager_op.op for eager_op in load(path).eager_ops] == [
        "aten.sin.default",
        "aten.cos.default",
    ] * 2


def test_eager_ops_of_a_file_without_a_record_are_unknown(tmp_path: Path) -> None:
    path = tmp_path / "step.tgraph"
    path.write_text(captured(FIRST).to_text().replace("via aot", "via dispatch"))

    with pytest.raises(CaptureError, match="a capture via 'dispatch' compiles nothing"):
        assert load(path).eager


DIFFERENT = {
    "runs": (captured(FIRST, ISLAND), captured(FIRST, replace(ISLAND, runs=2))),
    "kind": (captured(FIRST, ISLAND), captured(FIRST, replace(ISLAND, kind="backward"))),
    "ops": (captured(FIRST, ISLAND), captured(FIRST, eager("abs", runs=3))),
    "one more": (captured(FIRST), captured(FIRST, ISLAND)),
    "its place": (captured(FIRST, ISLAND, SECOND), captured(FIRST, SECOND, ISLAND)),
    "compiled": (captured(FIRST, ISLAND), captured(FIRST, replace(ISLAND, eager=False))),
}


@pytest.mark.parametrize("case", DIFFERENT)
def test_captures_with_different_eager_graphs_differ(case: str) -> None:
    one, other = DIFFERENT[case]

    assert one != other
    assert one == captured(*one.program)
    assert hash(one) == hash(captured(*one.program))


def test_changed_runs_of_compiled_graphs_are_ignored() -> None:
    assert captured(FIRST, ISLAND) == captured(replace(FIRST, runs=7), ISLAND)


def test_at_keeps_and_compares_eager_graphs() -> None:
    dynamo = (graph("sin", "forward_0", "dynamo"), graph("cos", "forward_1", "dynamo"))
    capture = of_a_step((FIRST, SECOND), (0, ISLAND), dynamo=dynamo)
    other = of_a_step((FIRST, SECOND), (0, replace(ISLAND, runs=4)), dynamo=dynamo)

    seen = capture.at("dynamo")
    assert seen.eager == capture.eager == (ISLAND,)
    assert [graph.name for graph in seen.program] == ["forward_0", "eager_0", "forward_1"]
    assert [graph.level for graph in seen.graphs] == ["dynamo", "dynamo"]
    assert seen != other.at("dynamo")
    assert seen == of_a_step((FIRST, SECOND), (0, ISLAND), dynamo=dynamo).at("dynamo")
    assert capture.at("aot") == capture


def test_at_puts_eager_graphs_after_the_graphs_of_another_level() -> None:
    whole = graph("sin", "forward", "dynamo")
    capture = of_a_step((FIRST, SECOND), (0, ISLAND), dynamo=(whole,)).at("dynamo")

    assert [graph.name for graph in capture.program] == ["forward", "eager_0"]


def test_ops_are_counted_once_for_each_graph_of_the_program() -> None:
    assert captured(FIRST, ISLAND).op_counts == {"aten.sin.default": 1, "aten.neg.default": 1}


def test_repr_names_eager_graphs_and_runs() -> None:
    shown = repr(captured(FIRST, ISLAND, eager("exp", 1)))

    assert shown == ("<Capture via aot: forward_0 (1 op), eager_0 × 3 (1 op), eager_1 (1 op)>")


def test_eager_graph_has_no_live_module() -> None:
    with pytest.raises(CaptureError, match="eager_0 ran eagerly, op by op, so it has no live"):
        captured(FIRST, ISLAND).fx(ISLAND)


def test_diff_of_captures_covers_eager_graphs() -> None:
    graph_diff = diff(captured(FIRST, ISLAND), captured(FIRST, replace(ISLAND, runs=2)))

    assert str(graph_diff) == "1 graph changed\n~ eager_0 ran 2 times, before: 3"
    assert not diff(captured(FIRST, ISLAND), captured(FIRST, ISLAND))
