"""Drawings with colours by the cost of ops."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from graph.build import document

from pytest_torchgraph import CaptureError
from pytest_torchgraph.graph import Graph, GraphBreak, diff_graphs
from pytest_torchgraph.render import CHANGE_PAINTS, HEAT_PAINTS, program, render, to_dot


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


def heat_of(box: dict[str, str]) -> str:
    """Return the step of the scale that corresponds to a box's fill."""
    (step,) = (s for s, p in HEAT_PAINTS.items() if p.fill.lower() == box["fillcolor"].lower())
    return step


def test_heat_boxes_and_modules_have_cost_and_colour(look):
    seen = look(to_dot(STEP, heat="flops"))

    up = seen.box("aten.mm\nw f32[10, 98]")
    down = seen.box("aten.mm\nv f32[98, 1]")
    assert [heat_of(up), heat_of(down)] == ["most", "medium"]
    assert heat_of(seen.box("aten.relu")) == heat_of(seen.box("x\n")) == "none"
    assert any("19.6 kFLOP, 90.9%" in text for text in seen.boxes)
    assert any("2.0 kFLOP, 9.1%" in text for text in seen.boxes)
    assert {"up · 19.6 kFLOP, 90.9%", "down · 2.0 kFLOP, 9.1%", "up.act"} <= set(seen.clusters)


def test_heat_title_and_legend_explain_the_colours(look):
    source = to_dot(STEP, heat="flops").source

    assert "colour: share of all floating-point operations, 21.6 kFLOP" in source
    legend = look(to_dot(STEP, heat="flops")).clusters["share of all"]
    words = {"30% and more", "10% and more", "3% and more", "1% and more", "under 1%", "nothing"}
    assert legend == words
    assert "families of ops" not in source


def test_saved_bytes_are_at_the_producer_of_a_projection(look):
    seen = look(to_dot(STEP, heat="saved_bytes"))

    assert heat_of(seen.box("aten.max.dim")) == "less"  # %down/where, folded into its box
    assert heat_of(seen.box("aten.relu")) == "most"
    assert any("3.9 kB, 98.0%" in text for text in seen.boxes)
    assert (
        "share of all bytes saved for backward, 4.0 kB" in to_dot(STEP, heat="saved_bytes").source
    )


def test_a_folded_block_has_the_heat_of_all_its_ops(look):
    lines = [
        f"%h.{n}/mm.{m} = aten.mm.default(%x, %x) : f32[4, 4]" for n in range(4) for m in "abc"
    ]
    layers = graph("\n".join(["%x = input : f32[4, 4]", *lines, "return %h.0/mm.a"]))

    seen = look(to_dot(layers, limit=6, heat="flops"))

    folded = [text for text in seen.boxes if "3 × aten.mm" in text]
    assert folded
    assert all("384 FLOP, 25.0%" in text for text in folded)
    assert {heat_of(seen.boxes[text]) for text in folded} == {"more"}


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


def test_each_call_of_a_body_has_its_cost(look):
    parsed = graph("""
        body: forward {
          %a = input : f32[2, 2]
          %mm = aten.mm.default(%a, %a) : f32[2, 2]
          return %mm
        }
        %x = input : f32[2, 2]
        %p = higher_order.invoke_subgraph(@body, "body", %x) : f32[2, 2]
        %q = higher_order.invoke_subgraph(@body, "body", %p) : f32[2, 2]
        return %q
    """)
    seen = look(to_dot(parsed, heat="flops"))

    calls = [text for text in seen.boxes if text.startswith("higher_order.invoke_subgraph")]
    assert [text.split("\n")[-1] for text in calls] == ["16 FLOP, 50.0%"]  # both look alike
    assert heat_of(seen.box("higher_order.invoke_subgraph")) == "most"
    assert "share of all floating-point operations, 32 FLOP" in to_dot(parsed, heat="flops").source


def test_unknown_cost_is_labelled_and_not_drawn_as_zero(look):
    parsed = graph("""
        %x = input : f32[s0, 4]
        %w = parameter : f32[4, 4]
        %a = my.op.default(%x) : f32[s0, 4]
        %b = aten.mm.default(%a, %w) : f32[s0, 4]
        return %b
    """)
    seen = look(to_dot(parsed, heat="flops"))

    assert heat_of(seen.box("my.op\nFLOP of 1 op unknown")) == "unknown"
    assert "unknown" in seen.clusters["share of all"]
    assert "unknown for 2 ops" in to_dot(parsed, heat="flops").source


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
