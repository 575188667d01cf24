"""A moved op or module is one edit. Ops that read a different value then are consequences."""

from __future__ import annotations

import pytest
from graph.rule_examples import Example

LAYERS = (
    "layers=nn.Sequential(*(Written('(h := {0}) + ff(norm2(h))', 'mix=nn.Linear(6, 6), norm={1}, "
    "norm2=nn.LayerNorm(6), ff=nn.Sequential(nn.Linear(6, 8), nn.ReLU(), nn.Linear(8, 6))') "
    "for _ in range(3)))"
)


def moved(norm: str, *, back: bool = False) -> Example:
    """Return an example of norms that move behind their layers, or back."""
    lines = "x + mix(norm(x))", "norm(x + mix(x))"
    sides = [LAYERS.format(line, norm) for line in (lines[::-1] if back else lines)]
    return Example("layers(x).exp()", "layers(x).exp()", *sides)


@pytest.mark.parametrize("norm", ["nn.LayerNorm(6)", "nn.RMSNorm(6)"])
@pytest.mark.parametrize("back", [False, True], ids=["to post-norm", "to pre-norm"])
def test_moved_norm_is_one_edit_in_each_layer(norm: str, back: bool) -> None:
    diff = moved(norm, back=back).difference()
    (finding,) = diff.findings
    assert [place.module for place in finding.places] == [f"layers.{k}.norm" for k in range(3)]
    assert finding.kind == "rewired"
    before, after = finding.before, finding.after
    assert before is not None
    assert after is not None
    assert before.op == after.op
    follows = [
        change
        for place in finding.places
        for change in place.consequences
        if change.graph == "forward" and change.node.is_call
    ]
    assert "layers.0.mix" in {change.node.module for change in follows}
    assert len(diff.rewired) >= len(follows) + 3


def test_move_text_lists_the_consequences_by_place() -> None:
    text = str(moved("nn.LayerNorm(6)").difference())
    assert text.startswith(
        "1 edit in 3 places: aten.native_layer_norm rewired in layers.{0 … 2}.norm (LayerNorm, "
    )
    assert "    follows in forward, backward: " in text
    assert "            > %layers.0.mix/addmm = aten.addmm.default(" in text


def test_two_swapped_modules_are_one_move() -> None:
    modules = "first=nn.LayerNorm(6), second=RMSNorm()"
    lines = "second(first(x.exp())).sin()", "first(second(x.exp())).sin()"
    (finding,) = Example(*lines, modules).difference().findings
    assert [change.node.module for change in finding.changes] == ["first"]
    forward = [change for change in finding.consequences if change.graph != "backward"]
    assert [change.node.module for change in forward] == ["second", "second", ""]
