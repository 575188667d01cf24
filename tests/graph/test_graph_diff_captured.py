"""One edit of a real model is one finding of the whole capture, its backward included."""

from __future__ import annotations

import functools
import inspect
import re
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from torch import nn

import pytest_torchgraph
from pytest_torchgraph import Capture, Graph

pytestmark = pytest.mark.parametrize("via", ["aot", "dispatch"])


class Block(nn.Module):
    """An MLP with a residual connection. Each subclass has one edit."""

    def __init__(self) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(8)
        self.up = nn.Linear(8, 16)
        self.act: nn.Module = nn.GELU()
        self.down = nn.Linear(16, 8)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x - self.down(self.act(self.up(self.norm(x))))


class Cloned(Block):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x - self.down(self.act(self.up(self.norm(x)).clone()))  # edited


class Rectified(Block):
    def __init__(self) -> None:
        super().__init__()
        self.act = nn.ReLU()


class Unnormed(Block):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x - self.down(self.act(self.up(x)))


class Swapped(Block):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.down(self.act(self.up(self.norm(x)))) - x  # edited


class Rewired(Block):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        normed = self.norm(x)
        return normed - self.down(self.act(self.up(normed)))  # edited


class Net(nn.Module):
    def __init__(self, edited: type[Block]) -> None:
        super().__init__()
        self.blocks = nn.Sequential(Block(), edited(), Block())

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.blocks(x)  # type: ignore[no-any-return]


@functools.cache
def captured(edit: type[Block], via: str) -> Capture:
    """Capture forward and backward of three blocks, the middle one edited."""
    x = torch.linspace(-1, 1, 16).reshape(2, 8)
    return pytest_torchgraph.capture(Net(edit), x, via=via)


EDITS: dict[type[Block], tuple[str, str, str]] = {
    Cloned: ("added", "aten.clone.default", ""),
    Rectified: ("changed", "aten.relu.default", "act"),
    Unnormed: ("removed", "aten.native_layer_norm.default", "norm"),
    Swapped: ("rewired", "aten.sub.Tensor", ""),
    Rewired: ("rewired", "aten.sub.Tensor", ""),
}


@pytest.mark.slow("further models and backends", only=["*aot"])
@pytest.mark.parametrize("edit", EDITS, ids=lambda edit: edit.__name__)
def test_edit_of_a_captured_model_is_one_finding(edit: type[Block], via: str) -> None:
    kind, op, part = EDITS[edit]
    before, after = captured(Block, via), captured(edit, via)
    assert before.backward.nodes
    assert not pytest_torchgraph.diff(before, captured(Block, via))
    (finding,) = pytest_torchgraph.diff(before, after).findings
    assert finding.kind == kind
    assert finding.graph == "forward"
    assert finding.changes[0].node.op == op
    assert finding.module == ".".join(filter(None, ("blocks.1", part)))
    backward = {change.graph for change in finding.consequences}
    assert backward <= {"backward"}
    assert bool(finding.consequences) or edit is Cloned, "the backward of it differs as well"


@pytest.mark.slow("further models and backends", unless=["dispatch"])
def test_diff_text_has_module_source_line_before_after_and_consequences(via: str) -> None:
    diff = pytest_torchgraph.diff(captured(Block, via), captured(Swapped, via))
    number = next(
        start + i
        for lines, start in [inspect.getsourcelines(Swapped)]
        for i, line in enumerate(lines)
        if "# edited" in line
    )
    lines = str(diff).splitlines()
    assert lines[0].startswith("1 edit: aten.sub.Tensor rewired in blocks.1 (Swapped, ")
    assert re.fullmatch(
        rf"> rewired in blocks\.1 \[forward\]  \S*{Path(__file__).name}:{number}: "
        rf"return self\.down\(self\.act\(self\.up\(self\.norm\(x\)\)\)\) - x.*",
        lines[1],
    )
    x, y = "%blocks.0/sub", "%blocks.1.down/addmm"
    assert lines[2:4] == [
        f"    before  %blocks.1/sub = aten.sub.Tensor({x}, {y}) : f32[2, 8]",
        f"    after   %blocks.1/sub = aten.sub.Tensor({y}, {x}) : f32[2, 8]",
    ]
    assert lines[4] == "    follows in backward: 4 rewired"
    assert len(lines) == 9


class Convolved(nn.Module):
    """Calls relu as a function, so that torch.fx traces it outside all modules."""

    def __init__(self, norm: nn.Module) -> None:
        super().__init__()
        self.conv = nn.Conv2d(3, 3, 3)
        self.norm = norm

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.relu(self.norm(self.conv(x)))


@pytest.mark.slow("further models and backends", unless=["*dispatch"])
@pytest.mark.parametrize("rewritten", [lambda model: model, torch.fx.symbolic_trace])
def test_removed_module_is_named_although_its_neighbours_moved(
    via: str, rewritten: Callable[[nn.Module], nn.Module]
) -> None:
    def two(norm: Callable[[], nn.Module]) -> nn.Module:
        return nn.Sequential(Convolved(norm()), Convolved(norm())).eval()

    x = torch.linspace(-1, 1, 192).reshape(1, 3, 8, 8)
    before = pytest_torchgraph.capture(two(lambda: nn.BatchNorm2d(3)), x, via=via)
    after = pytest_torchgraph.capture(rewritten(two(nn.Identity)), x, via=via)
    diff = pytest_torchgraph.diff(before, after)
    (finding,) = diff.findings
    assert finding.kind == "removed"
    assert [place.module for place in finding.places] == ["0.norm", "1.norm"], diff
    assert diff.heading().startswith("1 edit in 2 places: aten.")
    assert not any(node.op == "aten.relu.default" for node in (*diff.added, *diff.removed))


@pytest.mark.slow("further models and backends", unless=["dispatch"])
def test_graph_with_an_input_named_output_reads_back(via: str) -> None:
    def loss(output: torch.Tensor, target: torch.Tensor) -> torch.Tensor:
        return (output - target).square()

    capture = pytest_torchgraph.capture(loss, torch.ones(2), torch.zeros(2), via=via)
    graph = capture.forward
    assert len({node.name for node in graph.nodes}) == len(graph.nodes)
    assert Graph.from_text(graph.to_text()) == graph


class Gated(nn.Module):
    """The gated MLP of Llama, in place of one with two layers."""

    def __init__(self) -> None:
        super().__init__()
        self.up, self.gate, self.down = nn.Linear(8, 16), nn.Linear(8, 16), nn.Linear(16, 8)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.down(nn.functional.silu(self.gate(x)) * self.up(x))  # type: ignore[no-any-return]


def of_two_layers() -> nn.Module:
    return nn.Sequential(nn.Linear(8, 16), nn.SiLU(), nn.Linear(16, 8))


class Layer(nn.Module):
    def __init__(self, made: Callable[[], nn.Module]) -> None:
        super().__init__()
        self.mix_norm, self.mix = nn.RMSNorm(8), nn.Linear(8, 8)
        self.norm, self.feed_forward = nn.RMSNorm(8), made()

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = x + self.mix(self.mix_norm(x))
        return x + self.feed_forward(self.norm(x))  # type: ignore[no-any-return]


class Residual(nn.Module):
    def __init__(self, made: Callable[[], nn.Module]) -> None:
        super().__init__()
        self.layers = nn.ModuleList(Layer(made) for _ in range(5))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        for layer in self.layers:
            x = layer(x)
        return x


@pytest.mark.slow("further models and backends", unless=["dispatch"])
def test_renamed_modules_are_paired_in_each_layer(via: str) -> None:
    x = torch.linspace(-1, 1, 32).reshape(2, 2, 8)
    plain, gated = (
        pytest_torchgraph.capture(Residual(made), x, via=via) for made in (of_two_layers, Gated)
    )
    for before, after in ((plain, gated), (gated, plain)):
        found = pytest_torchgraph.diff(before, after).findings
        assert sum(len(finding.places) for finding in found) == 5, found
        assert len(found) <= 2, found  # only the first layer's input is certain
