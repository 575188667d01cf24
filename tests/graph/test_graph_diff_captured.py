"""One edit of a real model is one finding of the whole capture, its backward included."""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

import pytest_torchgraph
from pytest_torchgraph import Capture, Graph, GraphDiff
from pytest_torchgraph.graph.diff import match

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


class Shifted(Block):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x - (self.down(self.act(self.up(self.norm(x)))) + 1)


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


def flat(x: torch.Tensor, weights: list[tuple[torch.Tensor, ...]], edit: type[Block]) -> Any:
    """Compute the same without modules."""
    for i, (gain, bias, up, up_bias, down, down_bias) in enumerate(weights):
        edited = edit if i == 1 else Block
        normed = x
        if edited is not Unnormed:
            normed = nn.functional.layer_norm(x, (8,), gain, bias)
        h = nn.functional.linear(normed, up, up_bias)
        if edited is Cloned:
            h = h.clone()
        h = torch.relu(h) if edited is Rectified else nn.functional.gelu(h)
        h = nn.functional.linear(h, down, down_bias)
        x = h - x if edited is Swapped else (normed if edited is Rewired else x) - h
    return x


def captured(style: str, edit: type[Block], via: str) -> Capture:
    """Capture forward and backward of three blocks, the middle one edited."""
    x = torch.linspace(-1, 1, 16).reshape(2, 8)
    if style == "modules":
        return pytest_torchgraph.capture(Net(edit), x, via=via)
    shapes = [(8,), (8,), (16, 8), (16,), (8, 16), (8,)]
    weights = [tuple(torch.ones(s, requires_grad=True) for s in shapes) for _ in range(3)]
    return pytest_torchgraph.capture(flat, x, weights, edit, via=via)


EDITS: dict[type[Block], tuple[str, str, str]] = {
    Cloned: ("added", "aten.clone.default", ""),
    Rectified: ("changed", "aten.relu.default", "act"),
    Unnormed: ("removed", "aten.native_layer_norm.default", "norm"),
    Swapped: ("rewired", "aten.sub.Tensor", ""),
    Rewired: ("rewired", "aten.sub.Tensor", ""),
}


@pytest.mark.slow(
    "further models and backends",
    only=[
        "*aot",
        "Rectified-modules-dispatch",
        "Rewired-modules-dispatch",
        "Swapped-modules-dispatch",
        "Unnormed-modules-dispatch",
    ],
)
@pytest.mark.parametrize("style", ["modules", "flat"])
@pytest.mark.parametrize("edit", EDITS, ids=lambda edit: edit.__name__)
def test_edit_of_a_captured_model_is_one_finding(edit: type[Block], style: str, via: str) -> None:
    kind, op, part = EDITS[edit]
    before, after = captured(style, Block, via), captured(style, edit, via)
    assert before.backward.nodes
    diff = pytest_torchgraph.diff(before, after)
    assert len(diff.findings) == 1, diff
    (finding,) = diff.findings
    assert finding.kind == kind
    assert finding.graph == "forward"
    assert finding.changes[0].node.op == op
    if style == "modules":
        assert finding.module == ".".join(filter(None, ("blocks.1", part)))
    backward = {change.graph for change in finding.consequences}
    assert backward <= {"backward"}
    assert bool(finding.consequences) or edit is Cloned, "the backward of it differs as well"


@pytest.mark.slow("further models and backends", unless=["dispatch"])
def test_diff_text_has_module_source_line_before_after_and_consequences(via: str) -> None:
    diff = pytest_torchgraph.diff(
        captured("modules", Block, via), captured("modules", Swapped, via)
    )
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


@pytest.mark.slow("further models and backends", unless=["dispatch"])
def test_unchanged_backward_is_paired_in_order(via: str, monkeypatch: pytest.MonkeyPatch) -> None:
    before, after = captured("modules", Block, via), captured("modules", Shifted, via)
    kinds: list[str] = []
    run = match._Matcher.run
    monkeypatch.setattr(
        match._Matcher, "run", lambda self: kinds.append(self.a.graph.kind) or run(self)
    )
    in_order = pytest_torchgraph.diff(before, after)
    assert kinds == ["forward"]
    monkeypatch.setattr(match, "_agree_in_order", lambda *_: False)
    matched = pytest_torchgraph.diff(before, after)
    assert kinds == ["forward", "forward", "backward"]
    assert in_order.to_json() == matched.to_json()


@pytest.mark.slow("further models and backends", unless=["dispatch"])
def test_second_capture_of_a_model_has_no_difference(via: str) -> None:
    for style in ("modules", "flat"):
        assert not pytest_torchgraph.diff(captured(style, Block, via), captured(style, Block, via))


@pytest.mark.slow("further models and backends", unless=["dispatch"])
def test_edit_in_two_blocks_is_one_finding_with_both_consequences(via: str) -> None:
    net = Net(Block)
    net.blocks[0] = Rectified()
    net.blocks[2] = Rectified()
    x = torch.linspace(-1, 1, 16).reshape(2, 8)
    after = pytest_torchgraph.capture(net, x, via=via)
    diff = pytest_torchgraph.diff(captured("modules", Block, via), after)
    (finding,) = diff.findings
    assert [place.module for place in finding.places] == ["blocks.0.act", "blocks.2.act"]
    for place in finding.places:
        # gelu saves its input for the backward, a value of `up`; relu saves its own output
        block = place.module.removesuffix(".act")
        modules = {change.node.module for change in place.consequences}
        assert modules == {f"{block}.act", f"{block}.up"}, finding


@pytest.mark.slow("further models and backends", unless=["dispatch"])
def test_model_without_training_has_a_removed_backward(via: str) -> None:
    x = torch.ones(2, 8)
    both = pytest_torchgraph.capture(Net(Block), x, via=via)
    with torch.no_grad():
        one = pytest_torchgraph.capture(Net(Block), x, via=via)
    diff = pytest_torchgraph.diff(both, one)
    assert [finding.summary.partition(" (")[0] for finding in diff.findings] == [
        "forward graph 'forward' removed",
        "inference graph 'inference' added",
        "backward graph 'backward' removed",
    ]


@pytest.mark.slow("via dispatch each case is in every run", unless=["dispatch"])
def test_diff_against_a_stored_capture_has_the_same_edit(via: str, tmp_path: Path) -> None:
    path = tmp_path / "step.tgraph"
    path.write_text(captured("modules", Block, via).to_text(), encoding="utf-8")
    live = pytest_torchgraph.diff(captured("modules", Block, via), captured("modules", Cloned, via))
    stored = pytest_torchgraph.diff(pytest_torchgraph.load(path), captured("modules", Cloned, via))
    assert str(stored) == str(live)
    assert "1 edit: aten.clone added in blocks.1" in str(stored)


@pytest.mark.slow("further models and backends", unless=["dispatch"])
def test_a_changed_constant_and_a_wider_layer_are_each_one_finding(via: str) -> None:
    def difference(edit: Callable[[Net], object]) -> GraphDiff:
        net = Net(Block)
        edit(net)
        x = torch.linspace(-1, 1, 16).reshape(2, 8)
        return pytest_torchgraph.diff(
            captured("modules", Block, via), pytest_torchgraph.capture(net, x, via=via)
        )

    diff = difference(lambda net: setattr(net.blocks[1].norm, "eps", 1e-3))
    assert [(f.kind, f.module) for f in diff.findings] == [("changed", "blocks.1.norm")]
    assert "1e-05)" in str(diff)
    assert "0.001)" in str(diff)

    def widen(net: Net) -> None:
        net.blocks[1].up, net.blocks[1].down = nn.Linear(8, 24), nn.Linear(24, 8)

    (finding,) = difference(widen).findings
    assert [place.module for place in finding.places] == ["blocks.1"]
    modules = {change.node.module for change in finding.changes}
    assert {"blocks.1.up", "blocks.1.down"} <= modules
    assert "f32[8, 24]" in str(finding)


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


def activated(act: nn.Module, via: str) -> Capture:
    """Capture three blocks, the middle one with another activation."""
    net = Net(Block)
    net.blocks[1].act = act
    return pytest_torchgraph.capture(net, torch.linspace(-1, 1, 16).reshape(2, 8), via=via)


@pytest.mark.slow(
    "a few ops and edits are in every run",
    unless=[
        "GELU-Hardswish-dispatch",
        "ReLU-Hardsigmoid-dispatch",
        "ReLU-Mish-dispatch",
        "ReLU-ReLU6-dispatch",
    ],
)
@pytest.mark.parametrize("act", [nn.Hardswish, nn.SiLU, nn.Hardsigmoid, nn.Mish, nn.ReLU6])
@pytest.mark.parametrize("other", [nn.ReLU, nn.GELU, nn.Sigmoid])
def test_in_place_activation_with_a_saved_copy_is_one_op(
    act: type[nn.Module], other: type[nn.Module], via: str
) -> None:
    in_place, plain = activated(act(inplace=True), via), activated(other(), via)
    for before, after in ((in_place, plain), (plain, in_place)):
        diff = pytest_torchgraph.diff(before, after)
        (finding,) = diff.findings
        assert (finding.kind, finding.module) == ("changed", "blocks.1.act"), diff
        assert finding.before is not None, diff
        assert finding.after is not None, diff
        assert "clone" not in finding.before.op + finding.after.op, diff
        (copied,) = finding.changes[1:]
        assert copied.node.op == "aten.clone.default", diff


class Dropped(nn.Module):
    """In aot, a dropout in eval mode is a clone, like a copy of its input."""

    def __init__(self, copies: int) -> None:
        super().__init__()
        self.fc1, self.drop1 = nn.Linear(8, 8), nn.Dropout(0.0)
        self.fc2, self.drop2 = nn.Linear(8, 8), nn.Dropout(0.0)
        self.fc3 = nn.Linear(8, 8)
        self.copies = copies

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = self.fc2(self.drop1(torch.relu(self.fc1(x))))
        for _ in range(self.copies):
            x = x.clone()
        return self.fc3(self.drop2(x))  # type: ignore[no-any-return]


@pytest.mark.slow("further models and backends", unless=["*dispatch"])
@pytest.mark.parametrize("copies", [1, 2])
def test_added_op_among_equal_ops_is_identified_by_its_module(copies: int, via: str) -> None:
    x = torch.linspace(-1, 1, 16).reshape(2, 8)
    plain = pytest_torchgraph.capture(Dropped(0), x, via=via)
    copied = pytest_torchgraph.capture(Dropped(copies), x, via=via)
    if via == "aot":
        modules = [node.module for node in copied.forward.find("aten.clone")]
        assert modules == ["drop1", *[""] * copies, "drop2"]
    for before, after, kind in ((plain, copied, "added"), (copied, plain, "removed")):
        (finding,) = pytest_torchgraph.diff(before, after).findings
        assert [(c.kind, c.node.op, c.node.module) for c in finding.changes] == [
            (kind, "aten.clone.default", "")
        ] * copies, finding


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
