"""An inserted op changes only its own line and its users' lines, via each mechanism with modules.

`benchmarks/bench_churn.py` measures the same in a BERT of 12 layers.
"""

from __future__ import annotations

from collections.abc import Callable
from difflib import unified_diff

import pytest
import torch
from torch import Tensor, nn

from pytest_torchgraph import Capture, capture, diff
from pytest_torchgraph.snapshot import program_of

MECHANISMS = ("dispatch", "fx", "dynamo", "aot", "export")
Op = Callable[[Tensor], Tensor]


class Inner(nn.Module):
    """A linear layer with an optional op after it."""

    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(8, 8)
        self.op: Op | None = None

    def forward(self, x: Tensor) -> Tensor:
        x = self.linear(x)
        return self.op(x) if self.op else x


class Layer(nn.Module):
    """One value with three users, a softmax and a norm."""

    def __init__(self) -> None:
        super().__init__()
        self.query, self.key, self.out = Inner(), Inner(), Inner()
        self.norm = nn.LayerNorm(8)

    def forward(self, x: Tensor) -> Tensor:
        weights = torch.softmax(self.query(x) @ self.key(x).transpose(0, 1), -1)
        return self.norm(x + torch.relu(self.out(weights @ x)))


def captured(via: str, path: str = "", op: Op | None = None) -> Capture:
    """Capture three layers, with `op` in the module at `path`."""
    torch.manual_seed(0)
    layers = nn.Sequential(*(Layer() for _ in range(3)))
    if op is not None:
        layers.get_submodule(path).op = op  # type: ignore[assignment]
    return capture(layers, torch.linspace(-1, 1, 32).reshape(4, 8), via=via)


@pytest.fixture(scope="module", params=MECHANISMS)
def via(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture(scope="module")
def base(via: str) -> Capture:
    return captured(via)


def changed(before: Capture, after: Capture) -> tuple[list[str], list[str]]:
    """Return the removed and the added lines of the text."""
    texts = [
        program_of(state).to_text("full", fold=False).splitlines() for state in (before, after)
    ]
    lines = list(unified_diff(*texts, n=0, lineterm=""))[2:]
    return [line[1:] for line in lines if line[0] == "-"], [
        line[1:] for line in lines if line[0] == "+"
    ]


@pytest.mark.slow("further mechanisms", only=["aot", "dynamo"])
def test_inserted_op_changes_its_own_line_and_its_users_lines(via: str, base: Capture) -> None:
    edited = captured(via, "1.out", torch.clone)
    removed, added = changed(base, edited)
    assert removed
    assert len(added) == len(removed) + 1
    assert [line for line in removed if "%1.out.linear" not in line] == []
    assert [line for line in added if "%1.out/clone" not in line] == []
    assert len(diff(base, edited).findings) == 1


@pytest.mark.slow("further mechanisms", only=["aot", "dynamo"])
def test_inserted_op_with_a_backward_changes_only_lines_of_its_module(
    via: str, base: Capture
) -> None:
    edited = captured(via, "1.key", torch.tanh)
    removed, added = changed(base, edited)
    assert added
    assert len(removed) <= 5
    assert [line for line in (*removed, *added) if "1.key" not in line] == []
    assert len(diff(base, edited).findings) == 1
