"""One edited line, or one replaced torch module, is one finding under any module names."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from torch import nn

import pytest_torchgraph
from pytest_torchgraph import Capture, GraphDiff
from pytest_torchgraph.graph import merge_edits


class Scale(nn.Module):
    """A norm. Its only line is edited."""

    edited = False

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        squared = x.abs() if self.edited else x.pow(2)
        return x * squared.mean(-1, keepdim=True).rsqrt()


class Layer(nn.Module):
    residual = True

    def __init__(self, width: int):
        super().__init__()
        self.norm1, self.norm2 = Scale(), Scale()
        self.up, self.down = nn.Linear(width, 2 * width), nn.Linear(2 * width, width)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        h = self.down(self.up(self.norm1(x)).relu())
        return self.norm2(x + h if self.residual else h)


class Decoder(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.ModuleList(Layer(4) for _ in range(3))
        self.norm = Scale()

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        for layer in self.layers:
            x = layer(x)
        return self.norm(x)


class Convolved(nn.Sequential):
    grouped = False

    def __init__(self, width: int, out: int):
        norm = nn.GroupNorm(2, out) if self.grouped else nn.BatchNorm2d(out)
        super().__init__(nn.Conv2d(width, out, 3, padding=1), norm, nn.Hardswish())


class Convnet(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.stem = Convolved(3, 4)
        self.blocks = nn.Sequential(Convolved(4, 4), Convolved(4, 8), Convolved(8, 8))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.blocks(self.stem(x))


@pytest.fixture
def difference(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., GraphDiff]:
    """Return a function that captures, edits a class, captures again, and compares both."""

    def difference(
        make: Callable[[], nn.Module], edit: tuple[type, str], *shape: int, train: bool = True
    ) -> GraphDiff:
        def captured() -> Capture:
            torch.manual_seed(0)
            with torch.set_grad_enabled(train):
                return pytest_torchgraph.capture(
                    make().train(train), torch.randn(shape), via="dispatch"
                )

        with monkeypatch.context() as patch:
            stored = tmp_path / "stored.tgraph"
            stored.write_text(captured().to_text(), encoding="utf-8")
            patch.setattr(*edit, not getattr(*edit))
            return pytest_torchgraph.diff(pytest_torchgraph.load(stored), captured())

    return difference


def test_edited_line_of_a_class_is_one_finding_under_any_module_names(
    difference: Callable[..., GraphDiff],
) -> None:
    diff = difference(Decoder, (Scale, "edited"), 2, 4)
    (finding,) = diff.findings
    assert len(finding.places) == 7
    assert finding.source is not None
    assert "squared = x.abs()" in finding.source.code
    assert diff.heading().startswith("1 edit in 7 places: aten.pow.Tensor_Scalar -> aten.abs in ")
    assert "layers.{0 … 2}.norm1" in diff.heading()


def test_replaced_torch_module_is_one_cause_in_training_and_inference(
    difference: Callable[..., GraphDiff],
) -> None:
    """A batch norm runs a different op in each. The sizes differ, and it counts its batches."""
    diffs = [
        (str(train), difference(Convnet, (Convolved, "grouped"), 2, 3, 6, 6, train=train))
        for train in (True, False)
    ]
    (cause,) = merge_edits([(label, finding) for label, diff in diffs for finding in diff.findings])
    assert cause.files == ("True", "False")
    assert len(cause.places) == 8
    for _, diff in diffs:
        assert len(diff.findings) == 1
        assert "-> aten.native_group_norm" in diff.heading()


class Halves(nn.Module):
    """Layers of one class between other layers, with or without a convolution on the skip path."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.last = Layer(4), Layer(4)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.last(self.first(x.sin()).cos().exp())


class Inside(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.net = Halves()

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.net(x.abs()).tanh()


def test_module_removed_from_a_class_is_one_cause_anywhere(
    difference: Callable[..., GraphDiff],
) -> None:
    """The line no longer exists, so a removed module is identified by its name in the class."""
    diffs = [
        (make.__name__, difference(make, (Layer, "residual"), 2, 4)) for make in (Halves, Inside)
    ]
    (cause,) = merge_edits([(label, finding) for label, diff in diffs for finding in diff.findings])
    assert cause.files == ("Halves", "Inside")
    assert len(cause.places) == 4
    assert [len(found.findings) for _, found in diffs] == [1, 1]


class Stage(nn.Module):
    """Convolutions in a block and in its `Sequential`."""

    def __init__(self, width: int, out: int):
        super().__init__()
        self.conv1, self.conv2 = nn.Conv2d(width, out, 3, padding=1), nn.Conv2d(out, out, 1)
        self.down = nn.Sequential(nn.Conv2d(width, out, 1))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.conv2(self.conv1(x).relu()) + self.down(x)


class Stages(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(3, 4, 1)
        self.blocks = nn.Sequential(Stage(4, 4), Stage(4, 8))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.blocks(self.conv1(x))


def test_edited_line_of_a_torch_class_is_one_finding(monkeypatch: pytest.MonkeyPatch) -> None:
    """The modules are in different classes and have different names there."""

    def captured() -> Capture:
        return pytest_torchgraph.capture(
            Stages(), torch.ones(1, 3, 4, 4), via="dispatch", backward=False
        )

    before, forward = captured(), nn.Conv2d.forward

    def cloned(self: nn.Conv2d, x: torch.Tensor) -> torch.Tensor:
        return forward(self, x).clone()

    cloned.__code__ = cloned.__code__.replace(co_name="forward")
    monkeypatch.setattr(nn.Conv2d, "forward", cloned)
    (finding,) = pytest_torchgraph.diff(before, captured()).findings
    assert len(finding.places) == 7
    assert finding.source is not None
    assert finding.source.code == "return forward(self, x).clone()"
