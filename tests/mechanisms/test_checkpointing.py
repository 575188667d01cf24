"""Activation checkpointing around random ops, for which torch also saves generator states."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint
from torch.utils.flop_counter import FlopCounterMode

from pytest_torchgraph import Aot, Inductor, capture, diff, watch

WITHOUT_SEEDS = Inductor(codegen=False, options={"fallback_random": True})
STATE = torch.get_rng_state().numel()
ROW = 2 * 8 * 4


class Layer(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(8, 8)

    def forward(self, x: Tensor) -> Tensor:
        return torch.dropout(self.linear(x), 0.5, True).relu()


class Layers(nn.Module):
    """Three layers, each recomputed in the backward."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.ModuleList(Layer() for _ in range(3))
        self.register_buffer("calls", torch.zeros(()))

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        self.calls.add_(1)
        for layer in self.layers:
            x = checkpoint(layer, x, use_reentrant=False)
        return x, x.view(-1)


class Plain(Layers):
    """The same layers without checkpointing."""

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        self.calls.add_(1)
        for layer in self.layers:
            x = layer(x)
        return x, x.view(-1)


def kept_by_torch(model: nn.Module, x: Tensor) -> int:
    """Return the bytes that a step through AOTAutograd saves, without parameters and the input."""
    own = {each.untyped_storage().data_ptr() for each in (*model.parameters(), x)}
    storages: dict[int, torch.UntypedStorage] = {}

    def pack(tensor: Tensor) -> Tensor:
        storage = tensor.untyped_storage()
        storages.setdefault(storage.data_ptr(), storage)
        return tensor

    with torch.autograd.graph.saved_tensors_hooks(pack, lambda tensor: tensor):
        output = torch.compile(model, backend="aot_eager")(x)
    del output
    torch._dynamo.reset()
    return sum(each.nbytes() for at, each in storages.items() if at not in own)


def by_watch(model: nn.Module, x: Tensor) -> Any:
    with watch() as seen:
        torch.compile(model, backend="aot_eager")(x)[0].sum().backward()
    return seen.at("aot")


WAYS: dict[str, Callable[[nn.Module, Tensor], Any]] = {
    "aot": lambda model, x: capture(model, x),
    "inductor": lambda model, x: capture(model, x, via=WITHOUT_SEEDS),
    "watch": by_watch,
}


@functools.cache
def of_layers(way: str) -> Any:
    return WAYS[way](Layers(), torch.ones(2, 8))


def test_saved_bytes_with_checkpointing_equal_torchs() -> None:
    model, x = Layers(), torch.ones(2, 8)
    captured = capture(model, x)
    assert captured.saved_bytes == kept_by_torch(model, x) == 2 * ROW + 3 * STATE


@pytest.mark.slow("runs pytest in a new process", unless=["aot"])
@pytest.mark.parametrize("way", WAYS)
def test_generator_states_are_saved_with_their_size(way: str) -> None:
    found = of_layers(way)
    assert found.saved_bytes == 2 * ROW + 3 * STATE
    assert found.peak_bytes > found.saved_bytes
    states = [
        node
        for node in (found.forward[ref.name] for ref in found.forward.saved)
        if node.result is not None and getattr(node.result, "dtype", "") == "uint8"
    ]
    assert [node.result.shape for node in states] == [(STATE,)] * 3
    assert {node.op for node in found.backward.nodes if node.name in {n.name for n in states}} == {
        "saved"
    }
    with pytest.raises(AssertionError, match="saved_bytes: expected at most 100, found"):
        found.assert_budget(saved_bytes=100)


def test_op_that_runs_with_a_generator_state_has_its_module() -> None:
    found = of_layers("aot")
    for graph, op in ((found.forward, "run_and_save"), (found.backward, "run_with")):
        nodes = [node for node in graph.nodes if node.op == f"higher_order.{op}_rng_state"]
        assert sorted(node.module for node in nodes) == ["layers.0", "layers.1", "layers.2"]
        assert {str(node.source).rpartition("/")[2].partition(":")[0] for node in nodes} == {
            "test_checkpointing.py"
        }
        assert all(node.name.startswith(f"{node.module}/") for node in nodes)


def test_checkpointing_is_one_edit() -> None:
    (finding,) = diff(capture(Plain(), torch.ones(2, 8)), of_layers("aot")).findings
    assert len(finding.places) == 3
    assert finding.cost.saved_bytes is not None
    assert finding.cost.saved_bytes > 0  # states are larger than values


def test_checkpointed_graph_returns_what_the_target_returns() -> None:
    captured = of_layers("aot")
    (output,) = (node for node in captured.forward.nodes if node.op == "output")
    assert len(output.args[0]) == 3  # type: ignore[arg-type]  # the buffer and the two outputs


@pytest.mark.slow("compiles many times")
def test_inductor_saves_seeds_in_place_of_generator_states() -> None:
    captured = capture(Layers(), torch.ones(2, 8), via=Inductor(codegen=False))
    assert captured.saved_bytes == 2 * ROW + 3 * 8


class Attention(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return nn.functional.scaled_dot_product_attention(x, x, x)


class Attended(nn.Module):
    """Torch treats attention as a random op, also without dropout."""

    def __init__(self) -> None:
        super().__init__()
        self.inside = nn.Sequential(nn.Linear(8, 8), Attention())

    def forward(self, x: Tensor) -> Tensor:
        found: Tensor = checkpoint(self.inside, x, use_reentrant=False)
        return found.exp()


def test_recomputed_random_ops_are_counted() -> None:
    with FlopCounterMode(display=False) as counter:
        Layers()(torch.ones(2, 8))[0].sum().backward()
    assert of_layers("aot").flops == counter.get_total_flops()
    x = torch.ones(2, 3, 4, 8)
    assert capture(Attended(), x).flops == capture(Attended(), x, via="dispatch").flops > 0


@pytest.mark.slow("dynamic shapes of several layers")
def test_symbolic_sizes_of_checkpointed_layers_keep_their_numbers() -> None:
    captured = capture(Layers(), torch.ones(2, 8), via=Aot(dynamic=True))
    assert captured.backward.to_text().count("s0") > 0
    assert captured.with_sizes(s0=2).saved_bytes == 2 * ROW + 3 * STATE
    captured.assert_matches_eager()


def test_recomputed_random_ops_are_found() -> None:
    captured = of_layers("aot")
    captured.assert_op_counts({"aten.native_dropout": 6, "aten.addmm": 6})
    captured.forward.assert_pattern("aten.addmm -> aten.native_dropout", count=3)
    assert captured.op_counts["aten.native_dropout"] == 6
    with pytest.raises(AssertionError, match=r"aten\.native_dropout: found 6"):
        captured.assert_no_ops("aten.native_dropout")
    by_ops = captured.backward.to_text(detail="ops")
    assert "\n  3 aten.native_dropout.default\n" in by_ops
