"""An edited activation is one finding in its module: in-place, shared, or next to an equal op."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import nn

import pytest_torchgraph
from pytest_torchgraph import Finding, GraphDiff

pytestmark = pytest.mark.parametrize("via", ["aot", "dispatch"])
Act = Callable[[], nn.Module]


class Block(nn.Module):
    """A linear layer, its activation, and a dropout in eval mode, which is a copy."""

    def __init__(self, act: nn.Module) -> None:
        super().__init__()
        self.fc = nn.Linear(8, 8)
        self.act = act
        self.drop = nn.Dropout(0.0)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.drop(self.act(self.fc(x)))  # type: ignore[no-any-return]


def blocks(act: Act, edit: Callable[[nn.Sequential], object] = lambda _: None) -> nn.Sequential:
    """Return three blocks after an edit."""
    model = nn.Sequential(*(Block(act()) for _ in range(3)))
    edit(model)
    return model


def difference(before: nn.Module, after: nn.Module, via: str) -> GraphDiff:
    x = torch.linspace(-1, 1, 16).reshape(2, 8)
    return pytest_torchgraph.diff(
        *(pytest_torchgraph.capture(model, x, via=via) for model in (before, after))
    )


def followed_in(finding: Finding) -> list[set[str]]:
    """Return, for each place, the modules of its consequences, rewired nodes excluded."""
    return [
        {c.node.module for c in place.consequences if c.node.is_call and c.kind != "rewired"}
        for place in finding.places
    ]


@pytest.mark.slow("further cases; a few are in every run", unless=["*dispatch"])
@pytest.mark.parametrize(("old", "new"), [(nn.Hardswish, nn.ReLU), (nn.SiLU, nn.Tanh)])
def test_in_place_activation_is_one_op_in_its_own_module(old: Act, new: Act, via: str) -> None:
    def in_place() -> nn.Module:
        act = old()
        act.inplace = True  # type: ignore[assignment]
        return act

    diff = difference(blocks(in_place), blocks(new), via)
    (finding,) = diff.findings
    paths = [f"{k}.act" for k in range(3)]
    assert [place.module for place in finding.places] == paths, diff
    assert followed_in(finding) == [{path} for path in paths], diff
    one = blocks(in_place, lambda model: setattr(model[1], "act", new()))
    diff = difference(blocks(in_place), one, via)
    (finding,) = diff.findings
    assert [place.module for place in finding.places] == ["1.act"], diff
    assert followed_in(finding) == [{"1.act"}], diff


@pytest.mark.slow("further cases; a few are in every run", unless=["dispatch"])
def test_shared_activation_keeps_its_path_and_names_its_callers(
    via: str,
) -> None:
    gelu, relu = nn.GELU(), nn.ReLU()
    diff = difference(blocks(lambda: gelu), blocks(lambda: relu), via)
    assert diff.heading().startswith(
        "1 edit in 3 places: aten.gelu -> aten.relu in 0.act × 3, fed by {0 … 2}.fc (ReLU, "
    )
    (finding,) = diff.findings
    assert [place.module for place in finding.places] == ["0.act"] * 3
    assert followed_in(finding) == [{"0.act"}] * 3, diff
    for k, place in enumerate(finding.places):
        took = {c.before.name for c in place.consequences if c.before is not None}
        assert f"{k}.fc/addmm" in took, diff


def then(op: Callable[[torch.Tensor], torch.Tensor], part: str) -> Callable[[nn.Module], None]:
    """Return an edit that adds an op to the forward of a part of the second block."""

    def edit(model: nn.Module) -> None:
        module = model.get_submodule(f"1.{part}")
        kind = type(module)

        def forward(self: nn.Module, x: torch.Tensor) -> torch.Tensor:
            return op(kind.forward(self, x))

        module.__class__ = type(f"Edited{kind.__name__}", (kind,), {"forward": forward})

    return edit


@pytest.mark.slow("further cases; a few are in every run", unless=["*dispatch"])
@pytest.mark.parametrize(
    ("act", "op", "part"),
    [
        (nn.GELU, torch.clone, "act"),  # next to the clone of the dropout
        (nn.Tanh, torch.tanh, "fc"),
        (nn.Tanh, torch.tanh, "act"),
        (nn.ReLU, torch.relu, "fc"),
    ],
)
def test_op_inserted_next_to_an_equal_op_is_in_the_edited_module(
    act: Act, op: Callable[[torch.Tensor], torch.Tensor], part: str, via: str
) -> None:
    diff = difference(blocks(act), blocks(act, then(op, part)), via)
    (finding,) = diff.findings
    assert [place.module for place in finding.places] == [f"1.{part}"], diff
    assert [change.kind for change in finding.changes] == ["added"], diff
    assert followed_in(finding) in ([set()], [{f"1.{part}"}]), diff
