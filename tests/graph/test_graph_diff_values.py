"""Headings name changed arguments, sizes, dtypes and checkpoints, and the class and the line."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from torch import nn
from torch.utils.checkpoint import checkpoint
from torch_releases import skip_before

import pytest_torchgraph
from pytest_torchgraph import Capture, GraphDiff

# -- captures --------------------------------------------------------------------------------------


class Layer(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.fc = nn.Linear(3, 3)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.fc(x).sin()  # type: ignore[no-any-return]


class Net(nn.Module):
    def __init__(self, checkpointed: tuple[int, ...] = (), *, edited: bool = False) -> None:
        super().__init__()
        self.layers = nn.ModuleList([Layer() for _ in range(4)])
        self.checkpointed = checkpointed
        self.edited = edited

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        for number, layer in enumerate(self.layers):
            if number in self.checkpointed:
                x = checkpoint(layer, x, use_reentrant=False)
            else:
                x = layer(x)
        return x.tanh() if self.edited else x


def capture(net: object, via: str = "aot") -> Capture:
    return pytest_torchgraph.capture(net, torch.ones(2, 3), via=via)  # type: ignore[arg-type]


def line_of(code: str) -> str:
    lines = Path(__file__).read_text(encoding="utf-8").splitlines()
    (number,) = (n for n, line in enumerate(lines, 1) if line.strip().startswith(code))
    return f"tests/graph/test_graph_diff_values.py:{number}"


def test_op_of_the_forward_is_in_the_model_itself() -> None:
    sides = capture(Net(), "dispatch"), capture(Net(edited=True), "dispatch")
    diff = pytest_torchgraph.diff(*sides)
    line = line_of("return x.tanh()")
    assert diff.heading() == f"1 edit: aten.tanh added in the model itself (Net, {line})"
    assert str(diff).splitlines()[1].startswith("+ added in the model itself [forward]  ")


def test_op_of_a_function_is_in_no_module() -> None:
    net = Net()
    targets = (lambda x: net(x).exp(), lambda x: net(x).exp().neg())
    diff = pytest_torchgraph.diff(*(capture(target, "dispatch") for target in targets))
    assert diff.heading().startswith("1 edit: aten.neg added (tests/graph/")
    assert str(diff).splitlines()[1].startswith("+ added in (no module) [forward]  ")


def compared(before: Capture, after: Capture, folder: Path) -> list[GraphDiff]:
    """Compare captures, a file with a capture, and two files."""
    paths = folder / "before.tgraph", folder / "after.tgraph"
    for path, side in zip(paths, (before, after), strict=True):
        path.write_text(side.to_text(), encoding="utf-8")
    return [
        pytest_torchgraph.diff(before, after),
        pytest_torchgraph.diff(pytest_torchgraph.load(paths[0]), after),
        pytest_torchgraph.diff(*paths),
    ]


@pytest.mark.slow("compiles several models")
def test_checkpoint_that_came_or_went_has_its_modules_and_line(tmp_path: Path) -> None:
    sides = capture(Net()), capture(Net((1, 2)))
    live, stored, files = compared(*sides, tmp_path)
    line = line_of("x = checkpoint(")
    text = f"1 edit: recomputed in layers.{{1, 2}} (checkpoint at {line})"
    assert live.heading() == stored.heading() == text
    assert str(live).splitlines()[1] == f"~ {text.removeprefix('1 edit: ')}"
    assert files.heading() == "1 edit: recomputed in layers.{1, 2}"
    assert live.findings[0].cost.saved_bytes == -72
    live, stored, _ = compared(*sides[::-1], tmp_path)
    went = "1 edit: no longer recomputed in layers.{1, 2}"
    assert live.heading().startswith(f"{went} (checkpoint at ")
    assert stored.heading() == went


def test_checkpoint_of_an_eager_backward_has_its_modules() -> None:
    skip_before("2.13", "a checkpoint reads the random state, which is aten.empty")
    diff = pytest_torchgraph.diff(*(capture(Net(n), "dispatch") for n in ((), (1, 2))))
    # The sine, the last op, is not recomputed.
    assert diff.heading() == "1 edit: recomputed in layers.{1, 2}.fc (checkpoint)"


class Normed(nn.Module):
    def __init__(self, *, checkpointed: bool) -> None:
        super().__init__()
        self.checkpointed = checkpointed
        self.body = nn.Sequential(nn.LayerNorm(4), nn.Linear(4, 4), nn.GELU())

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        body = self.body
        return checkpoint(body, x, use_reentrant=False) if self.checkpointed else body(x)  # type: ignore[no-any-return]


def test_checkpoint_of_a_norm_is_no_lost_projection() -> None:
    x = torch.ones(2, 4, requires_grad=True)
    sides = [
        pytest_torchgraph.capture(Normed(checkpointed=checkpointed), x)
        for checkpointed in (False, True)
    ]
    heading = pytest_torchgraph.diff(*sides).heading()
    assert heading.startswith("1 edit: recomputed in body.{0, 1} (checkpoint at ")


class Dropping(nn.Module):
    def __init__(self, *, checkpointed: bool) -> None:
        super().__init__()
        self.checkpointed = checkpointed
        self.layers = nn.ModuleList([nn.Sequential(Layer(), nn.Dropout(), Layer())])

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        layer = self.layers[0]
        return checkpoint(layer, x, use_reentrant=False) if self.checkpointed else layer(x)  # type: ignore[no-any-return]


def test_checkpoint_of_a_random_op_is_no_other_op() -> None:
    sides = [capture(Dropping(checkpointed=checkpointed)) for checkpointed in (False, True)]
    diff = pytest_torchgraph.diff(*sides)
    assert diff.heading().startswith("1 edit: recomputed in layers.0")
    assert "rewired" not in str(diff)
    assert " -> " not in diff.heading()


def test_graph_is_described_by_its_number_of_ops() -> None:
    captured = capture(nn.LayerNorm(3))
    assert captured.forward.op_counts.total() == 1
    assert repr(captured.forward) == "<Graph forward: forward at aot, 1 op>"
    assert "forward (1 op)" in repr(captured)


def test_exchanged_outputs_are_a_finding_beside_an_edit() -> None:
    def step(x: torch.Tensor, *, edited: bool, exchanged: bool) -> dict[str, object]:
        first, second = x.sin(), x.cos()
        if exchanged:
            first, second = second, first
        other = x.tanh() if edited else x.relu()
        return {"loss": first, "logits": second, "other": other, "ok": exchanged}

    def captured(**options: bool) -> Capture:
        return pytest_torchgraph.capture(step, torch.ones(3), via="dispatch", **options)

    before = captured(edited=False, exchanged=False)
    assert len(pytest_torchgraph.diff(before, captured(edited=True, exchanged=False)).findings) == 1
    found = pytest_torchgraph.diff(before, captured(edited=True, exchanged=True))
    assert len(found.findings) == 2
    for name in ("loss", "logits", "ok"):
        assert f"output '{name}'" in found.to_text()
