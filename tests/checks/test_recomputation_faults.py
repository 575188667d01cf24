"""Planted faults of activation checkpointing are named by op, module and line."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional
from torch.utils.checkpoint import checkpoint, create_selective_checkpoint_contexts

import pytest_torchgraph as tg
from pytest_torchgraph import Capture

aten = torch.ops.aten


class Exp(torch.autograd.Function):
    """Recomputes the forward's result in its backward."""

    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        ctx.save_for_backward(x)
        return x.exp()

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> Tensor:  # type: ignore[override]
        (x,) = ctx.saved_tensors
        return grad * x.exp()


class Block(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.norm = nn.BatchNorm1d(16)
        self.conv = nn.Conv1d(1, 1, 3, padding=1)
        self.up = nn.Linear(16, 32)
        self.down = nn.Linear(32, 16)

    def forward(self, x: Tensor) -> Tensor:
        x = self.norm(x)
        x = self.conv(x.unsqueeze(1)).squeeze(1)
        x = functional.scaled_dot_product_attention(*(x[None, None],) * 3)[0, 0]
        x = functional.dropout(x.to(torch.float64).to(torch.float32), 0.1)
        x = Exp.apply(x)
        return self.down(functional.gelu(self.up(x)))


class Model(nn.Module):
    """Two blocks run by `run`. `after` gets the result of the last one."""

    def __init__(self, run: Callable[..., Tensor], after: Callable[[Tensor], Tensor]) -> None:
        super().__init__()
        self.blocks = nn.ModuleList(Block() for _ in range(2))
        self.run, self.after = run, after

    def forward(self, x: Tensor) -> Tensor:
        for number, block in enumerate(self.blocks):
            x = self.run(block, x, number)
        return self.after(x)


def whole(block: Any, x: Tensor, number: int) -> Tensor:
    return checkpoint(block, x, use_reentrant=False)  # type: ignore[no-any-return]


def but_the_second(block: Any, x: Tensor, number: int) -> Tensor:
    return block(x) if number else whole(block, x, number)  # type: ignore[no-any-return]


def nested(block: Any, x: Tensor, number: int) -> Tensor:
    again = functools.partial(checkpoint, block, use_reentrant=True)
    return checkpoint(again, x, use_reentrant=True)  # type: ignore[no-any-return]


def plain(block: Any, x: Tensor, number: int) -> Tensor:
    return block(x)  # type: ignore[no-any-return]


def keeping(*ops: Any) -> Callable[..., Tensor]:
    policy = functools.partial(create_selective_checkpoint_contexts, [*ops])

    def run(block: Any, x: Tensor, number: int) -> Tensor:
        return checkpoint(block, x, use_reentrant=False, context_fn=policy)  # type: ignore[no-any-return]

    return run


def summed(x: Tensor) -> Tensor:
    return x.sum()


def squared(x: Tensor) -> Tensor:
    return (x * x).sum()


def captured(run: Callable[..., Tensor], after: Any = summed, via: Any = "dispatch") -> Capture:
    torch.manual_seed(0)
    x = torch.linspace(-1, 1, 128).reshape(8, 16).requires_grad_()
    return tg.capture(Model(run, after), x, via=via)


def not_recomputed(op: str) -> Callable[[Capture], None]:
    return lambda capture: capture.assert_not_recomputed(op)


def not_saved(op: str, module: str = "blocks.*") -> Callable[[Capture], None]:
    return lambda capture: capture.assert_not_saved(op, module=module)


PRODUCTS = keeping(aten.addmm.default, aten.mm.default)
FAULTS: dict[str, tuple[Any, Callable[[Capture], None], str]] = {
    "attention left out of the policy": (
        (PRODUCTS,),
        not_recomputed("aten._scaled_dot_product*"),
        r"blocks\.\{0, 1\}: aten\._scaled_dot.* \(2 times, recomputed by a checkpoint\) .*: "
        r"x = functional\.scaled_dot",
    ),
    "a convolution computed again": (
        (PRODUCTS,),
        not_recomputed("aten.convolution"),
        r"blocks\.\{0, 1\}\.conv: aten\.convolution.* x = self\.conv\(",
    ),
    "batch norm computed again": (
        (PRODUCTS,),
        not_recomputed("aten.native_batch_norm"),
        r"blocks\.\{0, 1\}\.norm: aten\.native_batch_norm.* x = self\.norm\(x\)",
    ),
    "a cast computed again": (
        (PRODUCTS,),
        not_recomputed("aten._to_copy"),
        r"blocks\.\{0, 1\}: aten\._to_copy.* \(4 times, recomputed by a checkpoint\) "
        r".*\.to\(torch\.float64\)",
    ),
    "dropout drawn again": (
        (PRODUCTS,),
        not_recomputed("aten.bernoulli_"),
        r"blocks\.\{0, 1\}: aten\.bernoulli_.* x = functional\.dropout",
    ),
    "a product computed again": (
        (whole,),
        not_recomputed("aten.addmm"),
        r"blocks\.\{0, 1\}\.up: aten\.addmm.* self\.down\(functional\.gelu\(self\.up",
    ),
    "a function that computes again in its backward": (
        (plain,),
        not_recomputed("aten.exp"),
        r"blocks\.\{0, 1\}: aten\.exp.* by .*Function.* return x\.exp\(\)",
    ),
    "a checkpoint in a checkpoint": (
        (nested,),
        lambda capture: capture.assert_recomputed({"aten.gelu": 2}),
        r"aten\.gelu: expected 2, found 4\n.*blocks\.\{0, 1\}: aten\.gelu",
    ),
    "a block without its checkpoint": (
        (but_the_second,),
        not_saved("aten.exp"),
        r"blocks\.1: aten\.exp",
    ),
    "a policy that keeps too much": (
        (keeping(aten.addmm.default, aten.gelu.default),),
        not_saved("aten.gelu"),
        r"blocks\.\{0, 1\}: aten\.gelu",
    ),
    "a result that an op after the block keeps": (
        (whole, squared),  # the result of block 0 is saved as the input of a checkpoint
        not_saved("aten.addmm", "blocks.1.*"),
        r"blocks\.1\.down: aten\.addmm",
    ),
    "more work than its share": (
        (whole,),
        lambda capture: capture.assert_budget(recomputed_flops="10%"),
        r"recomputed_flops: expected at most .*blocks\.\{0, 1\}",
    ),
}


@pytest.mark.parametrize("name", FAULTS)
def test_a_planted_fault_is_named_by_op_module_and_line(name: str) -> None:
    arguments, check, message = FAULTS[name]
    with pytest.raises(AssertionError, match=f"(?s){message}") as error:
        check(captured(*arguments))
    assert "test_recomputation_faults.py" in str(error.value)


def test_correct_checkpointing_policy_passes() -> None:
    capture = captured(PRODUCTS)
    capture.assert_not_recomputed("aten.addmm")
    capture.assert_recomputed({"aten.gelu": 2, "aten.convolution": 2})
    capture.assert_saved("aten.addmm", module="blocks.*.up")
    capture.assert_not_saved("aten.gelu", module="blocks.*")
