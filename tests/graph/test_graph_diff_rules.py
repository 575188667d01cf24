"""The reasons of a finding: each rule, where it is told, and when there are none."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from graph.build import difference, graph, written
from graph.rule_examples import EXAMPLES, Example

from pytest_torchgraph import Finding, diff
from pytest_torchgraph.cli import main
from pytest_torchgraph.graph import RULES

FOLLOWS = {rule.name for rule in RULES if rule.kind == "follows"}
ORDER = [rule.name for rule in RULES]


def test_each_rule_has_one_example() -> None:
    assert sorted(EXAMPLES) == sorted(ORDER)


@pytest.mark.parametrize("name", ORDER)
def test_rule_is_a_reason(name: str) -> None:
    """Also: who says what belongs to an edit says why, for every change."""
    findings = EXAMPLES[name].difference().findings
    assert any(name in finding.reasons for finding in findings), findings
    for finding in findings:
        assert list(finding.reasons) == [rule for rule in ORDER if rule in finding.reasons]
        for place in finding.places:
            joined = {reason for reason in place.reasons if reason.rule not in FOLLOWS}
            assert joined or len(place.changes) < 2
            followed = {reason.node for reason in place.reasons if reason.rule in FOLLOWS}
            assert followed == {change.node.name for change in place.consequences}


def test_edit_of_one_node_has_no_reasons() -> None:
    (finding,) = Example("x.sin() * y", "x.cos() * y").difference().findings
    assert finding.reasons == ()
    assert "why" not in finding.to_text(why=True)


def test_text_has_each_reason_with_its_nodes() -> None:
    changes = Example("x.relu() * y", "x.sin().exp() * y", trains=True).difference()
    (finding,) = changes.findings
    text = changes.to_text(why=True)
    lines = [line for line in text.splitlines() if line.startswith("    why")]
    assert [line.split("why     ")[1].partition(":")[0] for line in lines] == [*finding.reasons]
    assert "    why     reads the result: + %exp reads + %sin" in lines
    assert any("gradient of a value: " in line and " [forward]" in line for line in lines)
    # The value that an op of the backward takes is named, and the common reader of two operands.
    assert "[backward] takes + %exp [forward]" in text
    assert "- %relu is the same operand as + %exp, see %mul" in text
    assert "why" not in changes.to_text()


def test_reasons_of_all_places_are_told_once() -> None:
    layers = "layers=nn.Sequential(*(nn.Sequential(nn.Linear(6, 6), RMSNorm()) for _ in range(3)))"
    other = layers.replace("RMSNorm()", "nn.LayerNorm(6, elementwise_affine=False)")
    (finding,) = Example("layers(x)", "layers(x)", layers, other).difference().findings
    assert len(finding.places) == 3
    assert finding.reasons[:2] == ("same operand slot", "reads the result")
    lines = finding.to_text(why=True).splitlines()
    first = next(k for k, line in enumerate(lines) if line.startswith("    why     same operand"))
    assert lines[first + 1] == "            ... and 2 more in other places"


def test_gradients_of_two_edits_in_one_module_follow_their_own() -> None:
    """Also on one line: each takes an operand of its own edit."""
    first, second = (
        Example(
            "x.exp() - y.sqrt()",
            "(a := x.exp()) * a.cos() - (b := y.sqrt()) * b.cosh()",
            trains=True,
        )
        .difference()
        .findings
    )
    ops = ("sin", "sinh")
    for finding, own, other in ((first, *ops), (second, *ops[::-1])):
        names = {change.node.op for change in finding.places[0].consequences}
        assert f"aten.{own}.default" in names
        assert f"aten.{other}.default" not in names


SIDES = (
    "%x = input : f32[2]\n%y = aten.relu.default(%x) : f32[2]\nreturn %y",
    "%x = input : f32[2]\n%s = aten.sin.default(%x) : f32[2]\n%y = aten.exp.default(%s) : f32[2]\n"
    "return %y",
)


def test_json_has_reasons_which_survive() -> None:
    (finding,) = difference(*(graph(side, inputs="") for side in SIDES)).findings
    assert finding.reasons
    data = json.loads(json.dumps(finding.to_json()))
    assert data["reasons"] == [*finding.reasons]
    again = Finding.from_json(data)
    assert again.reasons == finding.reasons
    assert f"    why     {finding.reasons[0]}" in again.to_text(why=True).splitlines()
    del data["reasons"]  # of a page that an older release wrote
    assert Finding.from_json(data).reasons == ()


@pytest.mark.parametrize("names", [["a"], ["a", "b"]])
def test_command_says_why(
    names: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for side, text in zip(("old", "new"), SIDES, strict=True):
        (tmp_path / side).mkdir()
        for name in names:
            (tmp_path / side / f"{name}.tgraph").write_text(written(text))
    sides = [str(tmp_path / side) for side in ("old", "new")]
    if len(names) == 1:
        sides = [f"{side}/a.tgraph" for side in sides]
    assert main(["diff", *sides, "--why"]) == 1
    said = capsys.readouterr().out
    assert "    why     reads the result: + %y reads + %s" in said
    assert main(["diff", *sides]) == 1
    assert "why" not in capsys.readouterr().out
    (finding,) = diff(*sides).findings
    assert "reads the result" in finding.reasons
