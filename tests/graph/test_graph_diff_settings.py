"""The same change of the same argument is one edit, whichever lines of code the calls are on."""

from __future__ import annotations

from pathlib import Path

import pytest
from graph.build import written
from subjects.models import numbers
from torch import Tensor, nn

import pytest_torchgraph as tg


class Net(nn.Module):
    """Norms that are called on three lines, in two classes of lists and by themselves."""

    def __init__(self, *eps: float) -> None:
        super().__init__()
        first, second, last = eps if len(eps) == 3 else eps * 3
        self.first = nn.ModuleList(nn.LayerNorm(4, eps=first) for _ in range(2))
        self.second = nn.ModuleList(nn.LayerNorm(4, eps=second) for _ in range(3))
        self.last = nn.LayerNorm(4, eps=last)

    def forward(self, x: Tensor) -> Tensor:
        for norm in self.first:
            x = norm(x.sin())
        for norm in self.second:
            x = x + norm(x)
        return self.last(x).exp()


def compared(*sides: tuple[float, ...]) -> tg.GraphDiff:
    old, new = (tg.capture(Net(*eps), numbers(2, 4), via="dispatch") for eps in sides)
    return tg.diff(old, new)


def test_setting_of_all_norms_is_one_edit() -> None:
    (finding,) = compared((1e-5,), (1e-3,)).findings
    assert len(finding.places) == 6
    assert {place.module for place in finding.places} == {
        *("first.0", "first.1", "second.0", "second.1", "second.2", "last")
    }


def test_other_values_are_another_edit() -> None:
    findings = compared((1e-5,), (1e-3, 1e-3, 1e-4)).findings
    assert [len(finding.places) for finding in findings] == [5, 1]
    # From other values to the same one, too.
    assert len(compared((1e-5, 1e-6, 1e-6), (1e-3,)).findings) == 2


def scaled(relu: str, *more: str) -> str:
    ops = [f"%a = {relu}", "%b = aten.sin.default(%a) : f32[2]", *more]
    lines = ["%x = input : f32[2]", *ops, f"return %{ops[-1].split()[0][1:]}"]
    return "\n".join(lines)


@pytest.mark.parametrize(
    ("old", "new", "count"),
    [
        ("aten.leaky_relu.default(%b, 0.1)", "aten.leaky_relu.default(%b, 0.2)", 1),
        ("aten.leaky_relu.default(%b, 0.1)", "aten.leaky_relu.default(%b, 0.3)", 2),
        ("aten.elu.default(%b, 0.1)", "aten.elu.default(%b, 0.2)", 2),
        ("aten.leaky_relu.default(%b, 0.1, 1)", "aten.leaky_relu.default(%b, 0.2, 2)", 2),
    ],
)
def test_the_op_and_each_changed_argument_count(old: str, new: str, count: int) -> None:
    first = "aten.leaky_relu.default(%x, 0.1) : f32[2]"
    sides = [
        scaled(first, f"%c = {old} : f32[2]"),
        scaled(first.replace("0.1", "0.2"), f"%c = {new} : f32[2]"),
    ]
    before, after = (tg.Graph.from_text(written(side)) for side in sides)
    assert len(tg.diff(before, after).findings) == count


def test_an_operand_that_changes_beside_a_setting_is_not_hidden() -> None:
    relu = "aten.leaky_relu.default"
    sides = [
        scaled(f"{relu}(%x, {slope}) : f32[2]", f"%c = {relu}(%{read}, {slope}) : f32[2]")
        for slope, read in ((0.1, "b"), (0.2, "x"))
    ]
    before, after = (tg.Graph.from_text(written(side)) for side in sides)
    assert len(tg.diff(before, after).findings) == 2


def norms(eps: str, last: str, size: str = "2, 4") -> tg.Graph:
    lines = [
        "%x = input : f32[2, 4]",
        f"%y = input : f32[{size}]",
        "%z = aten.relu_.default(%x) : f32[2, 4] !mutates %x",
        f"%n1 = my.norm.default(%x, {eps}) : f32[2, 4]",
        f"%n2 = my.norm.default(%y, {eps}) : {last}",
        "return [%n1, %n2]",
    ]
    return tg.Graph.from_text(written("\n".join(lines)))


HIDDEN = {
    "dtype": "f16[2, 4]",
    "size": "f32[2, 8]",
    "layout": "f32[2, 4] sparse_coo",
    "effect": "f32[2, 4] !mutates %y",
    "order": "f32[2, 4] after %z",
}


@pytest.mark.parametrize("case", HIDDEN)
def test_what_else_changes_in_one_place_of_a_setting_is_shown(case: str) -> None:
    old, new = norms("0.1", "f32[2, 4]"), norms("0.2", HIDDEN[case])
    (same,) = tg.diff(old, norms("0.2", "f32[2, 4]")).findings
    assert len(same.places) == 2
    diff = tg.diff(old, new)
    assert len(diff.findings) == 2
    assert f"%n2 = my.norm.default(%y, 0.2) : {HIDDEN[case]}" in diff.to_text(None)


def test_an_input_that_changes_beside_a_setting_is_not_hidden() -> None:
    diff = tg.diff(norms("0.1", "f32[2, 4]"), norms("0.2", "f32[9]", "9"))
    assert len(diff.findings) == 2


def test_setting_is_one_cause_in_all_files(tmp_path: Path) -> None:
    for side, eps in (("old", 1e-5), ("new", 1e-3)):
        (tmp_path / side).mkdir()
        net = Net(eps)
        for name, module in (("whole", net), ("last", net.last), ("block", net.second[0])):
            text = tg.capture(module, numbers(2, 4), via="dispatch").to_text()
            (tmp_path / side / f"{name}.tgraph").write_text(text)
    (finding,) = tg.diff(tmp_path / "old", tmp_path / "new").findings
    assert len(finding.files) == 3
