"""A batch norm that a quantizer no longer folds follows from the op that prevents it."""

from __future__ import annotations

import pytest
import torch
import torch.ao.quantization.fx._decomposed
from torch import Tensor, nn
from torch.nn import functional as F
from torch_releases import skip_before

from pytest_torchgraph import GraphDiff, diff, from_fx

QUANTIZED = torch.ops.quantized_decomposed


def rounded(x: Tensor, scale: float) -> Tensor:
    limits = (scale, 0, -128, 127, torch.int8)
    result: Tensor = QUANTIZED.dequantize_per_tensor(
        QUANTIZED.quantize_per_tensor(x, *limits), *limits
    )
    return result


def cloned(x: Tensor) -> Tensor:
    return x.clone()


class Convolved(nn.Module):
    """A convolution with a quantized weight, and perhaps a clone after it."""

    def __init__(self, *, bias: bool, clones: bool, rounds: bool, stride: int) -> None:
        super().__init__()
        self.conv = nn.Conv2d(3, 3, 3, padding=1, bias=bias)
        self.clones, self.rounds, self.stride = clones, rounds, stride

    def forward(self, x: Tensor) -> Tensor:
        weight = rounded(self.conv.weight, 0.125) if self.rounds else self.conv.weight
        y = F.conv2d(x, weight, self.conv.bias, self.stride, 1)
        return cloned(y) if self.clones else y


class Quantized(nn.Module):
    """Two convolutions, whose batch norms may be folded into their biases."""

    def __init__(
        self,
        *,
        is_folded: bool,
        clones: bool,
        rounds: bool = True,
        is_compressed: bool = False,
        stride: int = 1,
    ) -> None:
        super().__init__()
        self.is_folded, self.rounds, self.scale = is_folded, rounds, 0.5 if is_folded else 0.25
        self.first, self.second = (
            Convolved(
                bias=is_folded, clones=clones, rounds=rounds and not is_compressed, stride=stride
            )
            for _ in "12"
        )
        self.bn1, self.bn2 = nn.BatchNorm2d(3), nn.BatchNorm2d(3)

    def forward(self, x: Tensor) -> Tensor:
        x = self.first(x)
        if not self.is_folded:
            x = self.bn1(x)
        x = self.second(x.relu())
        if not self.is_folded:
            x = self.bn2(x)
        return (rounded(x, self.scale) if self.rounds else x).sigmoid()


def compared(before: Quantized, after: Quantized, *, is_stored: bool = False) -> GraphDiff:
    example = torch.ones(1, 3, 8, 8)
    old, new = (
        from_fx(torch.export.export(module.eval(), (example,), strict=True).module())
        for module in (before, after)
    )
    return diff(type(old).from_text(old.to_text()) if is_stored else old, new)


def ops_of_edits(graph_diff: GraphDiff) -> set[str]:
    places = [place for finding in graph_diff.findings for place in finding.places]
    return {change.node.op for place in places for change in place.changes}


@pytest.mark.parametrize("is_stored", [False, True])
def test_unfolded_batch_norms_are_consequences_of_the_op_between(is_stored: bool) -> None:
    skip_before("2.10", "torch.export keeps parameters in another order, and unused buffers")
    before, after = Quantized(is_folded=True, clones=False), Quantized(is_folded=False, clones=True)
    graph_diff = compared(before, after, is_stored=is_stored)
    (finding,) = graph_diff.findings
    assert [place.module for place in finding.places] == ["first", "second"]
    assert ops_of_edits(graph_diff) == {"aten.clone.default"}
    ops = {change.node.op for place in finding.places for change in place.consequences}
    assert ops == {
        "aten.batch_norm.default",
        "aten.conv2d.default",
        "get_attr",
        "quantized_decomposed.dequantize_per_tensor.default",
        "quantized_decomposed.quantize_per_tensor.default",
    }


def test_unfolded_batch_norms_of_compressed_weights_are_consequences() -> None:
    skip_before("2.10", "torch.export keeps parameters in another order, and unused buffers")
    before = Quantized(is_folded=True, clones=False, is_compressed=True)
    graph_diff = compared(before, Quantized(is_folded=False, clones=True, is_compressed=True))
    assert ops_of_edits(graph_diff) == {"aten.clone.default"}


def test_batch_norms_that_are_folded_again_are_consequences() -> None:
    skip_before("2.10", "torch.export keeps parameters in another order, and unused buffers")
    before, after = Quantized(is_folded=False, clones=True), Quantized(is_folded=True, clones=False)
    assert ops_of_edits(compared(before, after)) == {"aten.clone.default"}


def test_batch_norm_next_to_its_convolution_is_an_edit() -> None:
    before = Quantized(is_folded=True, clones=False)
    graph_diff = compared(before, Quantized(is_folded=False, clones=False))
    assert "aten.batch_norm.default" in ops_of_edits(graph_diff)


def test_batch_norm_of_a_model_that_is_not_quantized_is_an_edit() -> None:
    before = Quantized(is_folded=True, clones=False, rounds=False)
    graph_diff = compared(before, Quantized(is_folded=False, clones=True, rounds=False))
    assert "aten.batch_norm.default" in ops_of_edits(graph_diff)


def test_stride_of_a_convolution_before_an_unfolded_batch_norm_is_an_edit() -> None:
    before = Quantized(is_folded=True, clones=False)
    graph_diff = compared(before, Quantized(is_folded=False, clones=True, stride=2))
    assert {"aten.conv2d.default", "aten.batch_norm.default"} <= ops_of_edits(graph_diff)
