"""Modules that `__init__` defines in another order: only the order of the gradients differs."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from torch import nn

import pytest_torchgraph
from pytest_torchgraph import Capture


class Net(nn.Module):
    def __init__(self, names: str):
        super().__init__()
        for name in names:
            setattr(self, name, nn.BatchNorm1d(4) if name == "n" else nn.Linear(4, 4))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = self.a(x)
        return self.b(self.n(x).sin())  # type: ignore[no-any-return]


def capture(names: str, via: str) -> Capture:
    return pytest_torchgraph.capture(Net(names), torch.ones(2, 4), via=via)


def load(text: str, folder: Path) -> Capture:
    (folder / "stored.tgraph").write_text(text)
    loaded = pytest_torchgraph.load(folder / "stored.tgraph")
    assert isinstance(loaded, Capture)
    return loaded


@pytest.mark.parametrize("via", ["aot", "dispatch"])
def test_another_order_of_definitions_is_no_difference(via: str, tmp_path: Path) -> None:
    before, after = capture("abn", via), capture("nba", via)
    loaded = load(before.to_text(), tmp_path)
    for old in (before, loaded):
        assert old == after
        assert after == old
        assert not pytest_torchgraph.diff(old, after)


def test_gradients_of_two_exchanged_parameters_are_a_difference(tmp_path: Path) -> None:
    before, after = capture("abn", "aot"), capture("nba", "aot")
    head, _, returned = before.to_text(fold=False).rpartition("return [")
    weights = [line for line in returned.split("\n") if "/t." in line]
    assert len(weights) == 2
    for old, new in (weights[0], "    %?,"), weights[::-1], ("    %?,", weights[1]):
        returned = returned.replace(old, new)
    exchanged = load(f"{head}return [{returned}", tmp_path)
    assert exchanged != before
    assert exchanged != after
    assert "the return" in pytest_torchgraph.diff(exchanged, after).heading()
