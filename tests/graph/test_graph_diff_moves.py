"""A moved op or module is one edit. Ops that read a different value then are consequences."""

from __future__ import annotations

import pytest
from graph.build import difference, graph
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


@pytest.mark.parametrize("back", [False, True])
def test_returned_value_is_a_consequence_of_a_move(back: bool) -> None:
    def text(cos: str, norm: str, returned: str) -> str:
        lines = [
            "%second/n = my.norm.default(%x, %second.w) : f32[2, 3]",
            f"%first/n = my.norm.default(%{norm}, %first.w) : f32[2, 3]",
            f"%cos = aten.cos.default(%{cos}) : f32[2, 3]",
            f"%add = aten.add.Tensor(%{cos}, %cos) : f32[2, 3]",
        ]
        if norm == "add":
            lines.append(lines.pop(1))
        return "\n".join([*lines, f"return %{returned}"])

    inputs = "%x = input : f32[2, 3]\n%first.w = parameter : f32[3]\n%second.w = parameter : f32[3]"
    sides = [
        graph(text(*values), inputs=inputs)
        for values in (("second/n", "add", "first/n"), ("first/n", "second/n", "add"))
    ]
    (finding,) = difference(*(sides[::-1] if back else sides)).findings
    assert [change.node.module for change in finding.changes] == ["first"]
    assert finding.consequences[-1].node.kind == "output"


@pytest.mark.parametrize("reverse", [False, True])
def test_op_that_reads_another_value_without_a_move_is_an_edit(reverse: bool) -> None:
    def two(norm: str, other: str) -> str:
        return f"""
            %a = aten.sin(%x) : f32[2, 3]
            %b = aten.tan(%y) : f32[2, 3]
            %n = aten.cos(%{norm}) : f32[2, 3]
            %m = aten.neg(%n) : f32[2, 3]
            %o = aten.exp(%{other}) : f32[2, 3]
            return [%a, %b, %m, %o]
            """

    sides = [graph(two("a", "a")), graph(two("b", "b"))]
    diff = difference(*(sides[::-1] if reverse else sides))
    assert [finding.changes[0].node.name for finding in diff.findings] == ["n", "o"]
    assert not any(finding.consequences for finding in diff.findings)


def test_move_is_not_traced_through_ops_with_two_operands() -> None:
    def added(to: str, read: str) -> str:
        return f"""
            %a = aten.sin(%x) : f32[2, 3]
            %b = aten.tan(%y) : f32[2, 3]
            %s = aten.add.Tensor(%{to}, %y) : f32[2, 3]
            %r = aten.neg(%{read}) : f32[2, 3]
            return [%a, %b, %s, %r]
            """

    diff = difference(graph(added("a", "s")), graph(added("b", "a")))
    assert sorted(finding.changes[0].node.name for finding in diff.findings) == ["r", "s"]
