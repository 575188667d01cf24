"""The same change of the same argument is one edit, whichever lines of code the calls are on."""

from __future__ import annotations

from pathlib import Path

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


def test_setting_is_one_cause_in_all_files(tmp_path: Path) -> None:
    for side, eps in (("old", 1e-5), ("new", 1e-3)):
        (tmp_path / side).mkdir()
        net = Net(eps)
        for name, module in (("whole", net), ("last", net.last), ("block", net.second[0])):
            text = tg.capture(module, numbers(2, 4), via="dispatch").to_text()
            (tmp_path / side / f"{name}.tgraph").write_text(text)
    (finding,) = tg.diff(tmp_path / "old", tmp_path / "new").findings
    assert len(finding.files) == 3
