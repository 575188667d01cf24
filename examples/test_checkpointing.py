"""Activation checkpointing really saves, and pays what it should: on a CPU, without running a GPU.

torchtitan checks the memory of its policies in 88 lines (`test_mem` in
`tests/unit_tests/test_activation_checkpoint.py`, 01db32e), and only where there is CUDA, by what
the allocator says before and after a forward. A block that nobody wrapped changes no result, so
that nothing else notices it.
"""

import functools

import pytest
import torch
from torch import nn
from torch.utils.checkpoint import checkpoint, create_selective_checkpoint_contexts

BLOCKS = 4


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.norm = nn.LayerNorm(16)
        self.up = nn.Linear(16, 64)
        self.down = nn.Linear(64, 16)

    def forward(self, x):
        return x + self.down(torch.nn.functional.gelu(self.up(self.norm(x))))


class Tower(nn.Module):
    """Blocks of which some are computed again in the backward."""

    def __init__(self, *checkpointed):
        super().__init__()
        self.blocks = nn.ModuleList(Block() for _ in range(BLOCKS))
        self.checkpointed = checkpointed

    def forward(self, x):
        for number, block in enumerate(self.blocks):
            again = number in self.checkpointed
            x = checkpoint(block, x, use_reentrant=False) if again else block(x)
        return x


@pytest.fixture
def x():
    return torch.ones(8, 16)


via = pytest.mark.parametrize("via", ["aot", "dispatch"])


def keeps_inputs_alone(step, x):
    """Each block keeps what it is given, and the first one is given the step's input."""
    step.assert_budget(saved_bytes=(BLOCKS - 1) * x.nbytes)


@via
def test_each_block_keeps_its_input_alone(graph_capture, x, via):
    keeps_inputs_alone(graph_capture(Tower(0, 1, 2, 3), x, via=via), x)


@via
def test_a_block_that_was_forgotten_is_named(graph_capture, x, via):
    with pytest.raises(AssertionError, match=r"saved  blocks\.2\.\w+: aten\.") as error:
        keeps_inputs_alone(graph_capture(Tower(0, 1, 3), x, via=via), x)
    assert "saved_bytes: expected at most 1536, found " in str(error.value)
    assert "test_checkpointing.py" in str(error.value)


def test_the_more_is_computed_again_the_less_is_kept(graph_capture, x):
    policies = [Tower(*range(number)) for number in range(BLOCKS + 1)]
    steps = [graph_capture(policy, x, via="dispatch") for policy in policies]
    assert [step.saved_bytes for step in steps] == sorted({s.saved_bytes for s in steps})[::-1]
    assert [step.flops for step in steps] == sorted({step.flops for step in steps})


def selective(block, x):
    """A policy that saves matrix products, and nothing else."""
    aten = torch.ops.aten
    keep = functools.partial(
        create_selective_checkpoint_contexts, [aten.mm.default, aten.addmm.default]
    )
    return checkpoint(block, x, use_reentrant=False, context_fn=keep)


class SelectiveTower(Tower):
    def forward(self, x):
        for block in self.blocks:
            x = selective(block, x)
        return x


@via
def test_a_selective_policy_recomputes_no_product(graph_capture, x, via):
    step = graph_capture(SelectiveTower(), x, via=via)
    step.assert_not_recomputed("aten.mm", "aten.addmm")
    step.assert_recomputed({"aten.gelu": BLOCKS})
    step.assert_budget(recomputed_flops=0)


@via
def test_a_policy_that_is_missing_is_named(graph_capture, x, via):
    with pytest.raises(
        AssertionError, match=r"aten\.addmm\.default \(8 times\)|aten\.addmm"
    ) as error:
        graph_capture(Tower(0, 1, 2, 3), x, via=via).assert_not_recomputed("aten.mm", "aten.addmm")
    assert "create_selective_checkpoint_contexts" in str(error.value)
