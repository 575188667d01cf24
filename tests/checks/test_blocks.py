"""`Capture.repeated`, `assert_repeated` and `assert_shared`."""

from __future__ import annotations

import functools
import warnings

import pytest
import torch
from subjects.models import numbers
from subjects.odd_blocks import ODD, ODDITIES, Net
from torch import Tensor, nn
from torch_releases import skip_before

import pytest_torchgraph as tg
from pytest_torchgraph import CaptureError


@pytest.fixture(scope="module")
def alike():
    return tg.capture(Net().train(), numbers(2, 5, 16), via="dispatch")


def odd(name: str, via: str = "dispatch") -> tg.Capture:
    net = Net().train()
    ODDITIES[name].plant(net.layers[ODD])
    return tg.capture(net, numbers(2, 5, 16), via=via)


def test_equal_blocks_are_one_kind(alike):
    (kind,) = alike.repeated("layers.*")
    assert kind.members == ("layers.0", "layers.1", "layers.2", "layers.3")
    assert kind.diff is None
    assert kind.graph.count("aten.native_layer_norm") == 2
    assert all(node.module.startswith("layers.0") for node in kind.graph.nodes if node.is_call)
    alike.assert_repeated("layers.*")
    alike.assert_repeated("layers.*", backward=True)


def test_different_block_is_one_finding_with_module_and_line():
    capture = odd("eps")
    common, other = capture.repeated("layers.*")
    assert common.members == ("layers.0", "layers.1", "layers.3")
    assert other.members == ("layers.2",)
    (finding,) = other.diff.findings
    assert finding.places[0].module == "layers.2.norm1"
    assert finding.source.code.startswith("x = x + self.attention(self.norm1(x))")
    with pytest.raises(AssertionError) as failure:
        capture.assert_repeated("layers.*")
    message = str(failure.value)
    assert "blocks layers.*: expected 1 kind, found 2" in message
    assert "3 alike" in message
    assert "layers.{0, 1, 3}" in message
    assert "layers.2 differs from layers.0 in 1 edit" in message
    assert "odd_blocks.py" in message
    assert "1e-06" in message
    capture.assert_repeated("layers.*", kinds=2)


# Two oddities are two findings: two norms are moved, and a view is a copy for each operand.
TWO_FINDINGS = {"order of norm", "contiguous"}


@pytest.mark.slow("further oddities", unless=["dropout", "frozen weight", "no residual", "detach"])
@pytest.mark.parametrize("name", ODDITIES)
def test_different_layer_is_found_in_its_module(name):
    capture = odd(name)
    oddity = ODDITIES[name]
    block = f"layers.{ODD}"
    where = f"{block}.{oddity.module}" if oddity.module else block
    if oddity.backward:
        capture.assert_repeated("layers.*")
        with pytest.raises(
            AssertionError, match=rf"layers\.{ODD} differs from layers\.0 in 1 edit"
        ):
            capture.assert_repeated("layers.*", backward=True)
        return
    _, other = capture.repeated("layers.*")
    assert other.members == (block,)
    assert len(other.diff.findings) == (2 if name in TWO_FINDINGS else 1)
    for finding in other.diff.findings:
        assert (finding.places[0].module + ".").startswith(
            f"{block}." if name in TWO_FINDINGS else f"{where}."
        )
        assert finding.source is not None


def test_constant_that_differs_between_blocks_is_explained_once():
    net = Net().train()
    for number, block in enumerate(net.layers):
        block.factor = 1 / (number + 1)
    capture = tg.capture(net, numbers(2, 5, 16), via="dispatch")
    with pytest.raises(AssertionError) as failure:
        capture.assert_repeated("layers.*")
    message = str(failure.value)
    assert "expected 1 kind, found 4" in message
    assert message.count("1 edit") == 1
    assert "layers.{1 … 3} differ from layers.0" in message
    assert "these arguments differ between blocks" in message
    assert "0.25" in message
    assert "0.5" in message


def test_many_blocks_with_other_constants_are_counted():
    class Scaled(nn.Module):
        def __init__(self, factor):
            super().__init__()
            self.factor = factor

        def forward(self, x):
            return x * self.factor

    net = nn.Module()
    net.layers = nn.ModuleList(Scaled(number + 0.5) for number in range(12))
    net.forward = lambda x: functools.reduce(lambda y, layer: layer(y), net.layers, x)
    with pytest.raises(AssertionError, match=r"\n      ... and 4 more blocks\n"):
        tg.capture(net, numbers(2, 5, 16), via="dispatch").assert_repeated("layers.*")


def test_blocks_of_a_stored_file_are_compared(tmp_path):
    path = tmp_path / "odd.tgraph"
    path.write_text(odd("activation").to_text(), encoding="utf-8")
    stored = tg.load(path)
    assert [kind.members for kind in stored.repeated("layers.*")][1] == ("layers.2",)
    with pytest.raises(AssertionError, match=r"aten\.gelu -> aten\.relu in layers\.2\.mlp\.act"):
        stored.assert_repeated("layers.*")


class Frozen(nn.Module):
    """Fine-tuning, in which the first blocks require no gradient."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = Net().layers
        for parameter in self.layers[:2].parameters():
            parameter.requires_grad_(False)

    def forward(self, x: Tensor) -> Tensor:
        for block in self.layers:
            x = block(x)
        return x


def test_frozen_blocks_are_alike_in_the_forward():
    capture = tg.capture(Frozen().train(), numbers(2, 5, 16), via="dispatch")
    capture.assert_repeated("layers.*")
    kinds = "expected 1 kind, found"
    with pytest.raises(AssertionError, match=kinds):
        capture.assert_repeated("layers.*", backward=True)


class Divided(nn.Module):
    """A block that a graph break divides if `noisy`."""

    def __init__(self, noisy: bool) -> None:
        super().__init__()
        self.fc, self.noisy = nn.Linear(4, 4), noisy

    def forward(self, x: Tensor) -> Tensor:
        x = self.fc(x)
        if self.noisy:
            torch._dynamo.graph_break()
        return torch.relu(x) * 2


@pytest.mark.slow("compiles each part")
def test_a_block_that_a_break_divides_is_like_those_on_both_sides():
    net = nn.Sequential(*(Divided(noisy=number == 1) for number in range(4)))
    capture = tg.capture(net, numbers(2, 4).requires_grad_(), via="aot")
    assert len(capture.forwards) > 2
    capture.assert_repeated("*", backward=True)
    (kind,) = capture.repeated("*")
    assert [node.op for node in kind.graph.nodes if node.is_call][-2:] == [
        "aten.relu.default",
        "aten.mul.Tensor",
    ]
    net[2].fc = nn.Linear(4, 4, bias=False)
    with pytest.raises(AssertionError, match="2 differs from 0 in 1 edit"):
        tg.capture(net, numbers(2, 4), via="aot").assert_repeated("*")


@pytest.mark.slow("inductor generates code")
def test_inductor_seeds_do_not_split_block_kinds():
    tg.capture(Net().train(), numbers(2, 5, 16), via="inductor").assert_repeated("layers.*")
    assert len(odd("eps", "inductor").repeated("layers.*")) == 2


def test_star_in_a_block_glob_is_one_component(alike):
    (kind,) = alike.repeated("layers.*.norm1")
    assert len(kind.members) == 4
    with pytest.raises(
        ValueError, match=r"matches 'layers\*norm1'.*: did you mean layers\.\*\.norm1,"
    ):
        alike.repeated("layers*norm1")


def test_globs_that_match_nothing_or_one_module_are_refused(alike):
    with pytest.raises(
        ValueError, match=r"no module matches 'blocks\.\*'.*: choose from layers\.\*,"
    ):
        alike.repeated("blocks.*")
    with pytest.raises(ValueError, match=r"matches only one module, layers\.0"):
        alike.assert_repeated("layers.0")
    with pytest.raises(TypeError, match="not a glob"):
        alike.repeated(3)
    with pytest.raises(TypeError, match="kinds=True"):
        alike.assert_repeated("layers.*", kinds=True)
    with pytest.raises(ValueError, match="kinds=0 checks nothing"):
        alike.assert_repeated("layers.*", kinds=0)


@pytest.mark.filterwarnings("ignore:The .grad attribute of a Tensor")  # from torch
def test_block_checks_without_a_record_are_refused(alike):
    with tg.watch() as seen:
        torch.compile(nn.Linear(4, 4), backend="eager")(numbers(2, 4))
    with pytest.raises(
        CaptureError, match=r"a watch, which has no module paths.*assert_compiled_once"
    ):
        seen.repeated("layers.*")
    with tg.watch() as empty:
        pass
    with pytest.raises(CaptureError, match="a watch, which has no module paths"):
        empty.assert_repeated("layers.*")
    with pytest.raises(CaptureError, match="a watch does not record the subgraphs"):
        empty.assert_shared("layers.*")
    with pytest.raises(CaptureError, match="via 'dispatch' does not record the subgraphs"):
        alike.assert_shared("layers.*")
    forward = tg.capture(Net().eval(), numbers(2, 5, 16), via="dispatch", backward=False)
    with pytest.raises(CaptureError, match="no backward"):
        forward.assert_repeated("layers.*", backward=True)


# -- nested_compile_region -------------------------------------------------------------------------


class Region(nn.Module):
    def __init__(self, number: int, *, indexed: bool = False) -> None:
        super().__init__()
        self.linear = nn.Linear(4, 4)
        self.number = number if indexed else 0

    @torch.compiler.nested_compile_region
    def forward(self, x: Tensor) -> Tensor:
        return x + torch.relu(self.linear(x)) * (self.number + 1)


class Regions(nn.Module):
    def __init__(self, *, indexed: bool = False) -> None:
        super().__init__()
        self.layers = nn.ModuleList(Region(number, indexed=indexed) for number in range(4))

    def forward(self, x: Tensor) -> Tensor:
        for block in self.layers:
            x = block(x)
        return x


def wants_gradient() -> Tensor:
    return numbers(2, 4).requires_grad_()


def test_equal_regions_share_a_body():
    capture = tg.capture(Regions(), wants_gradient(), via="dynamo")
    capture.assert_shared("layers.*")
    capture.assert_repeated("layers.*")


def test_regions_with_an_int_attribute_are_inlined():
    """As in torchtitan #1973, a body per block: torch inlines a region that is called once."""
    if not hasattr(torch._dynamo.config, "inline_single_use_invoke_subgraph"):
        pytest.skip("this torch does not inline bodies that are called once")
    capture = tg.capture(Regions(indexed=True), wants_gradient(), via="dynamo")
    with pytest.raises(AssertionError) as failure:
        capture.assert_shared("layers.*")
    message = str(failure.value)
    assert (
        "expected at most 1 different subgraph for 4 blocks, found 0, and 4 inlined blocks"
        in message
    )
    assert "inlined, so not in any subgraph: layers.{0 … 3}" in message
    assert "torch._dynamo.config.inline_single_use_invoke_subgraph" in message


def test_unshared_bodies_are_listed_with_their_calls():
    if not hasattr(torch._dynamo.config, "inline_single_use_invoke_subgraph"):
        pytest.skip("this torch does not inline bodies that are called once")
    with torch._dynamo.config.patch(inline_single_use_invoke_subgraph=False):
        capture = tg.capture(Regions(indexed=True), wants_gradient(), via="dynamo")
    with pytest.raises(AssertionError) as failure:
        capture.assert_shared("layers.*", bodies=2)
    assert "expected at most 2 different subgraphs for 4 blocks, found 4" in str(failure.value)
    assert "1 call, by layers.3" in str(failure.value)
    assert str(failure.value).endswith("capture.assert_repeated('layers.*')")
    with pytest.raises(AssertionError, match="arguments differ between blocks"):
        capture.assert_repeated("layers.*")
    capture.assert_shared("layers.*", bodies=4)


def test_the_first_region_is_inlined_if_the_input_needs_no_gradient():
    skip_before("2.13", "bodies that are called once are not inlined")
    capture = tg.capture(Regions(), numbers(2, 4), via="dynamo")
    with pytest.raises(AssertionError) as failure:
        capture.assert_shared("layers.*")
    message = str(failure.value)
    assert "3 calls, by layers.{1 … 3}" in message
    assert "inlined, so not in any subgraph: layers.0" in message
    assert "layers.0 does not require grad" in message
    capture.assert_repeated("layers.*")  # inlined or not, the blocks compute the same


def test_a_checkpointed_block_is_compared_through_its_body():
    class Checkpointed(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layers = nn.ModuleList(nn.Sequential(nn.Linear(4, 4), nn.GELU()) for _ in range(3))
            self.layers[1][1] = nn.ReLU()

        def forward(self, x: Tensor) -> Tensor:
            for block in self.layers:
                x = torch.utils.checkpoint.checkpoint(block, x, use_reentrant=False)
            return x

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        capture = tg.capture(Checkpointed(), wants_gradient(), via="dynamo")
    common, other = capture.repeated("layers.*")
    assert common.members == ("layers.0", "layers.2")
    assert other.members == ("layers.1",)


class InABranch(nn.Module):
    """The products of all layers are outside, and the layers differ only in one branch."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.ModuleList(nn.Linear(4, 4) for _ in range(2))
        for number, layer in enumerate(self.layers):
            layer.register_forward_hook(lambda _layer, _args, y, n=number: y * (n + 1.0))

    def forward(self, x: Tensor) -> Tensor:
        def all_layers(x: Tensor) -> Tensor:
            for layer in self.layers:
                x = layer(x)
            return x

        x = all_layers(x) if self.outside else x
        return torch.cond(x.sum() > 0, all_layers, torch.sin, (x,))


@pytest.mark.slow("another mechanism", only=["aot-False"])
@pytest.mark.parametrize(("via", "outside"), [("dynamo", True), ("aot", False)])
def test_a_body_that_runs_several_blocks_is_refused(via, outside):
    model = InABranch()
    model.outside = outside
    capture = tg.capture(model, numbers(2, 4), via=via, backward=False)
    with pytest.raises(CaptureError, match=r"higher_order\.cond .* runs ops of layers\.\d in a"):
        capture.assert_repeated("layers.*")


def test_body_after_the_blocks_is_not_attributed_to_them():
    class After(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layers = nn.ModuleList(nn.Linear(4, 4) for _ in range(2))

        def forward(self, x: Tensor) -> Tensor:
            for layer in self.layers:
                x = layer(x)
            return torch.cond(x.sum() > 0, torch.sin, torch.cos, (x,))

    tg.capture(After(), numbers(2, 4), via="aot", backward=False).assert_repeated("layers.*")


def test_called_modules_of_fx_are_alike():
    model = nn.Sequential(*(nn.Linear(4, 4) for _ in range(3)))
    capture = tg.capture(model, numbers(2, 4), via="fx")
    capture.assert_repeated("*")
    model[1] = nn.Linear(4, 4, bias=False)
    with pytest.raises(AssertionError, match="expected 1 kind, found 2"):
        tg.capture(model, numbers(2, 4), via="fx").assert_repeated("*")
