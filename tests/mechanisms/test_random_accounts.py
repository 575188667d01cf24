"""Random programs: the ops of a capture are those that a dispatch mode of its own counts."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable
from typing import Any

import pytest
import torch
from mechanisms.test_training_step import Counted
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint
from torch.utils.flop_counter import FlopCounterMode

from pytest_torchgraph import capture

SIZE = 4
QUICK = range(10)
SLOW = range(10, 60)


def account(number: int, x: Tensor) -> tuple[Counter[str], int]:
    gradient = torch.linspace(0.5, 1.5, x.numel()).reshape(x.shape)
    # One mode at a time: a second mode keeps tensors alive, and autograd then copies a gradient.
    # A fresh program has no gradients yet.
    target, leaf = wasteful_program(number), x.detach().requires_grad_()
    with Counted() as ops:
        target(leaf).backward(gradient)
    target, leaf = wasteful_program(number), x.detach().requires_grad_()
    with FlopCounterMode(display=False) as flops:
        target(leaf).backward(gradient)
    return computing(ops.ops), flops.get_total_flops()


def computing(counts: Counter[str]) -> Counter[str]:
    """Leave views out."""
    found: Counter[str] = Counter()
    for op, count in counts.items():
        _, packet, overload = op.split(".")
        if not getattr(getattr(torch.ops.aten, packet), overload).is_view:
            found[op] = count
    return found


class Passes(torch.autograd.Function):
    """Its backward computes something that nothing uses."""

    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        ctx.save_for_backward(x)
        return x.sin()

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> Tensor:
        (x,) = ctx.saved_tensors
        (x @ x).t().relu()
        return grad * x.cos()


def wasteful_program(number: int) -> Callable[[Tensor], Tensor]:
    chosen = random.Random(number)
    steps = [chosen.randrange(9) for _ in range(chosen.randint(3, 12))]
    block = nn.Sequential(nn.Linear(SIZE, SIZE), nn.Tanh(), nn.Linear(SIZE, SIZE))

    def target(x: Tensor) -> Tensor:
        for step in steps:
            if step == 0:
                x @ x.detach()
            elif step == 1:
                x.t()[0].view(2, 2).detach()
            elif step == 2:
                x.detach().clone().mul_(2).topk(2)
            elif step == 3:
                x = checkpoint(block, x, use_reentrant=True)
            elif step == 4:
                x = checkpoint(block, x, use_reentrant=False)
            elif step == 5:
                x = Passes.apply(x)
            elif step == 6:
                x = x.chunk(2, -1)[1].repeat(1, 2)
            elif step == 7:
                torch.zeros(3).add_(1)
                x = x * torch.ones_like(x)
            else:
                x = x @ x.sigmoid()
        return x * 1

    return target


def check_dispatch(number: int) -> None:
    target = wasteful_program(number)
    x = torch.linspace(-1, 1, SIZE * SIZE).reshape(SIZE, SIZE).requires_grad_()
    captured = capture(target, x, via="dispatch")
    ops, flops = account(number, x)
    assert computing(captured.op_counts) == ops
    assert captured.flops == flops


@pytest.mark.parametrize("number", QUICK)
def test_ops_and_flops_via_dispatch_equal_an_account(number: int) -> None:
    check_dispatch(number)


@pytest.mark.slow("50 random programs; ten are in every run")
def test_ops_and_flops_via_dispatch_equal_an_account_in_more_programs() -> None:
    for number in SLOW:
        check_dispatch(number)
