"""Drawings with colours by the cost of ops."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from graph.build import document

from pytest_torchgraph import CaptureError
from pytest_torchgraph.graph import Graph, GraphBreak, diff_graphs
from pytest_torchgraph.render import CHANGE_PAINTS, program, render


def graph(body: str, title: str = "forward @ aot") -> Graph:
    return Graph.from_text(document(body, title))


STEP = graph("""
    %x = input : f32[10, 10]
    %w = parameter : f32[10, 98]
    %v = parameter : f32[98, 1]
    %up.fc/mm = aten.mm.default(%x, %w) : f32[10, 98]
    %up.act/relu = aten.relu.default(%up.fc/mm) : f32[10, 98]
    %down/mm = aten.mm.default(%up.act/relu, %v) : f32[10, 1]
    %down/max = aten.max.dim(%down/mm, 1, True) : (f32[10, 1], i64[10, 1])
    %down/values = operator.getitem(%down/max, 0) : f32[10, 1]
    %down/where = operator.getitem(%down/max, 1) : i64[10, 1]
    return %down/values
    save %down/where
    save %up.act/relu
""")
"""Two products of 19,600 and 1,960 FLOP, which save 80 and 3,920 bytes."""


def test_heat_of_a_step_is_multiplied_by_runs(look):
    again = Graph.from_text(STEP.to_text())
    again = replace(again, name="eager_0", level="dispatch", eager=True, runs=3)

    drawn = program.drawing([STEP, again], heat="flops").digraph
    seen = look(drawn)

    assert "share of all floating-point operations, 86.2 kFLOP" in drawn.source
    assert "forward: 4 ops · 21.6 kFLOP, 25.0%" in seen.clusters
    assert any(label.endswith("64.7 kFLOP, 75.0%") for label in seen.clusters)


def test_graph_break_keeps_its_colour_in_a_heat_map(look):
    cause = GraphBreak("Call", "no", "", "model.py", 3, "print(x)", "forward", (), "", "0/0")
    again = replace(STEP, name="eager_0", level="dispatch", eager=True, cause=cause)

    seen = look(program.drawing([STEP, again], heat="flops").digraph)

    (shown,) = (box for text, box in seen.boxes.items() if "graph break 1" in text)
    assert shown["color"] == CHANGE_PAINTS["removed"].border


def test_unknown_heat_is_refused(tmp_path: Path):
    dynamo = graph("%x = input\n%a = torch.relu(%x)\nreturn %a", "forward @ dynamo")

    with pytest.raises(ValueError, match="heat='time' is not a cost: use 'flops' or 'saved"):
        STEP.to_dot(heat="time")  # type: ignore[arg-type]
    with pytest.raises(CaptureError, match="FLOPs are unknown in a graph at level 'dynamo'"):
        dynamo.render(tmp_path / "a.dot", heat="flops")
    with pytest.raises(CaptureError, match="do not record what is saved for the backward"):
        dynamo.to_dot(heat="saved_bytes")
    with pytest.raises(ValueError, match="heat='flops' applies to graphs, not to a diff"):
        render(diff_graphs((STEP,), (dynamo,)), tmp_path / "a.dot", heat="flops")
    assert not list(tmp_path.iterdir())


def test_drawing_without_heat_is_unchanged():
    assert "heat" not in STEP.to_dot().source
