"""Calibrated scales and zero points are consequences of an edit; other constants are edits."""

from __future__ import annotations

import pytest
import torch
from graph.build import difference, graph
from graph.rule_examples import Example, rounded

from pytest_torchgraph import Graph, diff, from_fx

RELUS = ".relu().relu().relu().relu()"
SCALES: dict[str, tuple[str, str, list[int], list[int]]] = {
    "after an edit": (
        "rounded(rounded(x.relu(), .5, 3).relu(), 1.5, 1)",
        "rounded(rounded(x.relu().clone(), .25, -4).relu(), 1.25, 2)",
        *([1], [4]),
    ),
    "of the operands of an edit": (
        *("rounded(x, .5, 3).relu()", "F.gelu(rounded(x, .25, -4))"),
        *([1], [2]),
    ),
    "before an edit that does not touch them": (
        *("rounded(x, .5, 3).relu().relu().relu()", "F.gelu(rounded(x, .25, -4).relu().relu())"),
        *([1, 2], [0, 0]),
    ),
    "without an edit": (
        "rounded(rounded(x, .5, 3).relu(), 1.5, 1)",
        "rounded(rounded(x, .25, -4).relu(), 1.25, 2)",
        *([4], [0]),
    ),
    "of the nearest edit": (
        f"rounded(rounded(x.relu(), .5, 3){RELUS}.relu(), 1.5, 1)",
        f"rounded(F.gelu(rounded(F.gelu(x), .25, -4){RELUS}), 1.25, 2)",
        *([1, 1], [2, 2]),
    ),
    "with another lowest value": (
        *("rounded(x.relu(), .5, 3).relu().relu()",),
        "rounded(x.relu(), .25, -4, -127).relu().relu().clone()",
        *([2, 1], [0, 0]),
    ),
    "beside another constant": (
        *("rounded(x.relu(), .5, 3) * 2", "rounded(F.gelu(x), .25, -4) * 3"),
        *([1, 1], [0, 2]),
    ),
}
"""Lines before and after; the numbers of changes and of consequences of each finding."""


@pytest.mark.parametrize("name", SCALES)
def test_scale_follows_from_an_edit_or_is_one(name: str) -> None:
    before, after, changes, consequences = SCALES[name]
    found = Example(before, after, stored=True).difference().findings
    places = [finding.places for finding in found]
    assert [sum(len(place.changes) for place in each) for each in places] == changes, found
    follow = [sum(len(place.consequences) for place in each) for each in places]
    assert follow == consequences, found


def test_edit_keeps_its_details_beside_a_scale_that_follows() -> None:
    def quantized(scale: float, inputs: str) -> Graph:
        op = "quantized_decomposed.quantize_per_tensor.default"
        lines = f"%q = {op}(%x, {scale}, 3, -128, 127, torch.int8) : i8[2, 3]\nreturn %q"
        return graph(lines, inputs="\n".join(f"%{name} = input : f32[2, 3]" for name in inputs))

    (finding,) = difference(quantized(0.5, "xy"), quantized(0.25, "yx")).findings
    assert len(finding.consequences) == 1
    assert finding.details == ("was: x, y", "is: y, x")


def test_scales_of_a_stored_graph_are_consequences_although_results_lack_strides() -> None:
    """A stored graph has no strides and no device, unlike the captured graph."""

    def captured(scale: float, copies: bool) -> Graph:
        class Rounded(torch.nn.Module):
            def forward(self, x: torch.Tensor) -> torch.Tensor:
                x = x.t().clone() if copies else x.t()
                return torch.relu(rounded(x, scale, 0))

        return from_fx(torch.export.export(Rounded(), (torch.ones(2, 3),)).module())

    stored = Graph.from_text(captured(0.5, False).to_text())
    (finding,) = diff(stored, captured(0.25, True)).findings
    assert [change.node.op for change in finding.changes] == ["aten.clone.default"]
    assert len(finding.consequences) == 2
