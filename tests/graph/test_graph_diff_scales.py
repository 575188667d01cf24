"""Calibrated scales and zero points are consequences of an edit; other constants are edits."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest
import torch
import torch.ao.quantization.fx._decomposed
from torch import nn

from pytest_torchgraph import Graph, GraphDiff, diff, from_fx

ops = torch.ops
RELU, GELU, CLONE = ops.aten.relu.default, ops.aten.gelu.default, ops.aten.clone.default
Step = Any
"""An op with one operand, or scale and zero point of a quantize and dequantize pair."""


def calibrated(steps: Sequence[Step], low: int = -128) -> torch.fx.GraphModule:
    """Return a graph that runs these steps in order and also returns its input."""
    quantized = ops.quantized_decomposed
    graph = torch.fx.Graph()
    last = graph.placeholder("x")
    for step in steps:
        if isinstance(step, tuple):
            limits = (*step, low, 127, torch.int8)
            last = graph.call_function(quantized.quantize_per_tensor.default, (last, *limits))
            last = graph.call_function(quantized.dequantize_per_tensor.default, (last, *limits))
        else:
            last = graph.call_function(step, (last,))
    graph.output(last)
    return torch.fx.GraphModule(nn.Module(), graph)


def compared(before: Sequence[Step], after: Sequence[Step], low: int = -128) -> GraphDiff:
    return diff(calibrated(before), calibrated(after, low))


OLD, NEW = (0.5, 3), (0.25, -4)
LATER, NEWER = (1.5, 1), (1.25, 2)


def test_scales_after_an_edit_are_its_consequences_with_their_number() -> None:
    graph_diff = compared([RELU, OLD, RELU, LATER], [RELU, CLONE, NEW, RELU, NEWER])
    (finding,) = graph_diff.findings
    assert graph_diff.heading().startswith("1 edit: aten.clone added")
    assert [change.node.op for change in finding.changes] == ["aten.clone.default"]
    assert len(finding.consequences) == 4
    assert "    follows in main: 4 changed\n" in str(graph_diff)


def test_scales_of_the_operands_of_an_edit_are_its_consequences() -> None:
    (finding,) = compared([OLD, RELU], [NEW, GELU]).findings
    assert (finding.after and finding.after.op) == "aten.gelu.default"
    assert len(finding.consequences) == 2


def test_scales_before_an_edit_that_do_not_touch_it_are_one_finding_of_their_own() -> None:
    graph_diff = compared([OLD, RELU, RELU, RELU], [NEW, RELU, RELU, GELU])
    assert sorted(len(finding.places[0].changes) for finding in graph_diff.findings) == [1, 2]


def test_scales_without_an_edit_are_one_finding() -> None:
    (finding,) = compared([OLD, RELU, LATER], [NEW, RELU, NEWER]).findings
    assert sum(len(place.changes) for place in finding.places) == 4


def test_scales_follow_from_the_nearest_edit() -> None:
    before = [RELU, OLD, *[RELU] * 5, LATER]
    graph_diff = compared(before, [GELU, NEW, *[RELU] * 4, GELU, NEWER])
    assert [len(finding.consequences) for finding in graph_diff.findings] == [2, 2]


@pytest.mark.parametrize("low", [-127])
def test_another_constant_of_a_quantize_op_is_an_edit(low: int) -> None:
    """The dequantize op has the same constant, so both are one edit. The clone is another edit."""
    graph_diff = compared([RELU, OLD, RELU, RELU], [RELU, NEW, RELU, RELU, CLONE], low)
    assert len(graph_diff.findings) == 2
    assert {change.kind for change in graph_diff.findings[0].changes} == {"changed"}
    assert len(graph_diff.findings[0].changes) == 2


def test_changed_constant_that_is_not_a_scale_is_an_edit() -> None:
    def scaled(factor: float, *steps: Step) -> torch.fx.GraphModule:
        module = calibrated(steps)
        output = next(iter(module.graph.find_nodes(op="output")))
        with module.graph.inserting_before(output):
            args = (output.args[0], factor)
            output.args = (module.graph.call_function(ops.aten.mul.Scalar, args),)
        module.recompile()
        return module

    graph_diff = diff(scaled(2.0, RELU, OLD), scaled(3.0, GELU, NEW))
    assert len(graph_diff.findings) == 2


def test_scales_of_a_stored_graph_are_consequences_although_results_lack_strides() -> None:
    """A stored graph has no strides and no device, unlike the captured graph."""

    def captured(scale: float, copies: bool) -> Graph:
        class Rounded(nn.Module):
            def forward(self, x: torch.Tensor) -> torch.Tensor:
                x = x.t().clone() if copies else x.t()
                quantized = ops.quantized_decomposed
                limits = (scale, 0, -128, 127, torch.int8)
                x = quantized.quantize_per_tensor(x, *limits)
                x = quantized.dequantize_per_tensor(x, *limits)
                return torch.relu(x)

        return from_fx(torch.export.export(Rounded(), (torch.ones(2, 3),)).module())

    stored = Graph.from_text(captured(0.5, False).to_text())
    (finding,) = diff(stored, captured(0.25, True)).findings
    assert [change.node.op for change in finding.changes] == ["aten.clone.default"]
    assert len(finding.consequences) == 2
