"""A batch norm that a quantizer no longer folds follows from the op that prevents it."""

from __future__ import annotations

import pytest
from graph.rule_examples import Example

FOLDED = "conv=Folded(is_folded=True)"
UNFOLDED = "conv=Folded(is_folded=False), bn=nn.BatchNorm2d(1).eval()"
PLAIN = "conv=nn.Conv2d(1, 1, 3), bn=nn.BatchNorm2d(1).eval()"
WITHOUT_BIAS = PLAIN.replace("3)", "3, bias=False)")
LINE = "bn(conv(x).clone())"

FOLLOWS = {
    "unfolded": Example("conv(x)", LINE, FOLDED, UNFOLDED, via="export"),
    "stored": Example("conv(x)", LINE, FOLDED, UNFOLDED, via="export", stored=True),
    "folded again": Example(LINE, "conv(x)", UNFOLDED, FOLDED, via="export"),
    "weight that is not quantized": Example(
        "dequantize(quantize(conv(x[None, None]), 0.5), 0.5)",
        "dequantize(quantize(bn(conv(x[None, None]).clone()), 0.25), 0.25)",
        *(PLAIN, WITHOUT_BIAS),
        via="export",
    ),
}
EDITS = {
    "next to its convolution": Example("conv(x)", "bn(conv(x))", FOLDED, UNFOLDED, via="export"),
    "in a model that is not quantized": Example(
        *("conv(x[None, None])", "bn(conv(x[None, None]).clone())", PLAIN, WITHOUT_BIAS),
        via="export",
    ),
    "of a convolution with another stride": Example(
        *("conv(x)", LINE, FOLDED, UNFOLDED.replace("False", "False, stride=2")), via="export"
    ),
}


def ops_of_edits(example: Example) -> set[str]:
    places = [place for finding in example.difference().findings for place in finding.places]
    return {change.node.op for place in places for change in place.changes}


@pytest.mark.parametrize("name", FOLLOWS)
def test_unfolded_batch_norm_is_a_consequence_of_the_op_between(name: str) -> None:
    # The program has a buffer of the norm that no op reads.
    assert ops_of_edits(FOLLOWS[name]) - {"buffer"} == {"aten.clone.default"}


@pytest.mark.parametrize("name", EDITS)
def test_another_batch_norm_is_an_edit(name: str) -> None:
    assert "aten.batch_norm.default" in ops_of_edits(EDITS[name])
