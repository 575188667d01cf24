"""A moved op or module is one edit. Ops that read a different value then are consequences."""

from __future__ import annotations

import functools
from collections.abc import Callable

import pytest
import torch
from graph.build import difference, graph
from torch import Tensor, nn

import pytest_torchgraph
from pytest_torchgraph import Capture, GraphDiff

LAYERS = 3


class RMSNorm(nn.Module):
    """A norm as libraries write it: several ops, two of which read the input."""

    def __init__(self, size: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(size))

    def forward(self, x: Tensor) -> Tensor:
        return self.weight * (x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + 1e-6))


class Functional(nn.Module):
    """A norm without a module in the graph. Its op belongs to the block."""

    def __init__(self, size: int) -> None:
        super().__init__()
        self.size = size

    def __call__(self, x: Tensor) -> Tensor:
        return nn.functional.layer_norm(x, (self.size,))


Norm = Callable[[int], nn.Module]


class Block(nn.Module):
    def __init__(self, norm: Norm, other: Norm) -> None:
        super().__init__()
        self.norm1, self.norm2 = norm(8), other(8)
        self.mix, self.up, self.down = nn.Linear(8, 8), nn.Linear(8, 16), nn.Linear(16, 8)

    def feed_forward(self, x: Tensor) -> Tensor:
        return self.down(torch.relu(self.up(x)))

    def forward(self, x: Tensor) -> Tensor:
        x = x + self.mix(self.norm1(x))
        return x + self.feed_forward(self.norm2(x))


class Moved(Block):
    def forward(self, x: Tensor) -> Tensor:
        x = self.norm1(x + self.mix(x))
        return x + self.feed_forward(self.norm2(x))


class AllMoved(Block):
    def forward(self, x: Tensor) -> Tensor:
        x = self.norm1(x + self.mix(x))
        return self.norm2(x + self.feed_forward(x))


class Parallel(Block):
    def forward(self, x: Tensor) -> Tensor:
        return x + self.mix(self.norm1(x)) + self.feed_forward(self.norm2(x))


class Net(nn.Module):
    def __init__(self, block: type[Block], norm: Norm, other: Norm = nn.LayerNorm) -> None:
        super().__init__()
        self.embed, self.head = nn.Linear(8, 8), nn.Linear(8, 2)
        self.layers = nn.ModuleList(block(norm, other) for _ in range(LAYERS))

    def forward(self, x: Tensor) -> Tensor:
        x = self.embed(x)
        for layer in self.layers:
            x = layer(x)
        return self.head(x)


@functools.cache
def captured(block: type[Block], norm: Norm, via: str) -> Capture:
    return pytest_torchgraph.capture(Net(block, norm), torch.ones(2, 3, 8), via=via)


def compared(
    before: type[Block], after: type[Block], norm: Norm = nn.LayerNorm, via: str = "aot"
) -> GraphDiff:
    return pytest_torchgraph.diff(captured(before, norm, via), captured(after, norm, via))


@pytest.mark.slow(
    "further cases; a few are in every run", unless=["*-dispatch", "to pre-norm-LayerNorm-aot"]
)
@pytest.mark.parametrize(
    ("norm", "via"),
    [(nn.LayerNorm, "aot"), (Functional, "aot"), (RMSNorm, "aot"), (RMSNorm, "dispatch")],
)
@pytest.mark.parametrize("back", [False, True], ids=["to post-norm", "to pre-norm"])
def test_moved_norm_is_one_edit_in_each_layer(norm: Norm, via: str, back: bool) -> None:
    sides = (Moved, Block) if back else (Block, Moved)
    diff = compared(*sides, norm, via)
    (finding,) = diff.findings
    assert len(finding.places) == LAYERS
    assert finding.kind == "rewired"
    before, after = finding.before, finding.after
    assert before is not None
    assert after is not None
    assert before.op == after.op
    if norm is not Functional:
        assert finding.module == "layers.0.norm1"
    follows = [
        change
        for place in finding.places
        for change in place.consequences
        if change.graph == "forward" and change.node.is_call
    ]
    modules = {change.node.module.partition("layers.0.")[2] for change in follows}
    assert "mix" in modules
    assert len(diff.rewired) >= len(follows) + LAYERS


@pytest.mark.slow("large graphs")
def test_two_moved_norms_are_two_findings() -> None:
    for sides in ((Block, AllMoved), (AllMoved, Block)):
        diff = compared(*sides)
        assert [len(finding.places) for finding in diff.findings] == [LAYERS, LAYERS]
        assert [finding.module for finding in diff.findings] == [
            "layers.0.norm1",
            "layers.0.norm2",
        ]


@pytest.mark.slow("large graphs")
def test_ops_of_a_module_that_read_the_same_value_are_one_edit() -> None:
    before, after = (Net(block, nn.LayerNorm, RMSNorm) for block in (Block, Parallel))
    x = torch.ones(2, 3, 8)
    sides = (pytest_torchgraph.capture(module, x) for module in (before, after))
    (finding,) = pytest_torchgraph.diff(*sides).findings
    assert len(finding.places) == LAYERS
    ops = [change.node.op for change in finding.changes]
    assert ops == ["aten.pow.Tensor_Scalar", "aten.mul.Tensor"]


def test_move_text_lists_the_consequences_by_place() -> None:
    text = str(compared(Block, Moved))
    assert text.startswith(
        f"1 edit in {LAYERS} places: aten.native_layer_norm rewired in "
        f"layers.{{0 … {LAYERS - 1}}}.norm1 (LayerNorm, "
    )
    assert "    follows in forward, backward: " in text
    assert "            > %layers.0.mix/view = aten.view.default(%embed/view" in text


class Two(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.first: nn.Module = nn.LayerNorm(8)
        self.second: nn.Module = RMSNorm(8)

    def forward(self, x: Tensor) -> Tensor:
        return self.second(self.first(x.exp())).sin()


class Swapped(Two):
    def forward(self, x: Tensor) -> Tensor:
        return self.first(self.second(x.exp())).sin()


class Last(Two):
    def __init__(self) -> None:
        super().__init__()
        self.second = nn.LayerNorm(8)

    def forward(self, x: Tensor) -> Tensor:
        x = self.second(x.exp())
        return self.first(x + x.cos())


class Inner(Last):
    def forward(self, x: Tensor) -> Tensor:
        x = self.first(self.second(x.exp()))
        return x + x.cos()


def test_two_swapped_modules_are_one_move() -> None:
    diff = pytest_torchgraph.diff(*(capture_of(module) for module in (Two, Swapped)))
    (finding,) = diff.findings
    assert [change.node.module for change in finding.changes] == ["first"]
    assert [change.node.module for change in finding.consequences] == ["second", "second", ""]


@pytest.mark.slow("further cases; a few are in every run", unless=["sides1"])
@pytest.mark.parametrize("sides", [(Last, Inner), (Inner, Last)])
def test_returned_value_is_a_consequence_of_a_move(sides: tuple[type[Two], type[Two]]) -> None:
    (finding,) = pytest_torchgraph.diff(*map(capture_of, sides)).findings
    assert [change.node.module for change in finding.changes] == ["first"]
    assert finding.consequences[-1].node.kind == "output"


def capture_of(module: type[Two]) -> Capture:
    with torch.no_grad():
        return pytest_torchgraph.capture(module(), torch.ones(2, 8))


@pytest.mark.parametrize("reverse", [False, True])
def test_op_that_reads_another_value_without_a_move_is_an_edit(reverse: bool) -> None:
    def two(norm: str, other: str) -> str:
        return f"""
            %a = aten.sin(%x) : f32[2, 3]
            %b = aten.tan(%y) : f32[2, 3]
            %n = aten.cos(%{norm}) : f32[2, 3]
            %m = aten.neg(%n) : f32[2, 3]
            %o = aten.exp(%{other}) : f32[2, 3]
            return [%a, %b, %m, %o]
            """

    sides = [graph(two("a", "a")), graph(two("b", "b"))]
    diff = difference(*(sides[::-1] if reverse else sides))
    assert [finding.changes[0].node.name for finding in diff.findings] == ["n", "o"]
    assert not any(finding.consequences for finding in diff.findings)


def test_move_is_not_traced_through_ops_with_two_operands() -> None:
    def added(to: str, read: str) -> str:
        return f"""
            %a = aten.sin(%x) : f32[2, 3]
            %b = aten.tan(%y) : f32[2, 3]
            %s = aten.add.Tensor(%{to}, %y) : f32[2, 3]
            %r = aten.neg(%{read}) : f32[2, 3]
            return [%a, %b, %s, %r]
            """

    diff = difference(graph(added("a", "s")), graph(added("b", "a")))
    assert sorted(finding.changes[0].node.name for finding in diff.findings) == ["r", "s"]
