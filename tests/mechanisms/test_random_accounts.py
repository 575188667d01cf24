"""Random programs: the ops of a capture are those that a dispatch mode of its own counts."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils.checkpoint import checkpoint
from torch.utils.flop_counter import FlopCounterMode

from pytest_torchgraph import Capture, CompiledAutograd, capture

SIZE = 4
QUICK = range(10)
SLOW = range(10, 200)
MARKS = ("atan", "asinh", "erf", "tan", "expm1")
"""Ops that only hooks and backwards run: no formula of autograd contains them."""


class Account(TorchDispatchMode):
    """Counts the ops that compute something."""

    def __init__(self) -> None:
        super().__init__()
        self.ops: Counter[str] = Counter()

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if not func.is_view:
            self.ops[str(func)] += 1
        return func(*args, **(kwargs or {}))


def account(program: Callable[[int], Any], number: int, x: Tensor) -> tuple[Counter[str], int]:
    gradient = torch.linspace(0.5, 1.5, x.numel()).reshape(x.shape)
    # One mode at a time: a second mode keeps tensors alive, and autograd then copies a gradient.
    # A fresh program has no gradients yet.
    target, leaf = program(number), x.detach().requires_grad_()
    with Account() as ops:
        target(leaf).backward(gradient)
    target, leaf = program(number), x.detach().requires_grad_()
    with FlopCounterMode(display=False) as flops:
        target(leaf).backward(gradient)
    return ops.ops, flops.get_total_flops()


def computing(captured: Capture) -> Counter[str]:
    counts: Counter[str] = Counter()
    for op, count in captured.op_counts.items():
        _, packet, overload = op.split(".")
        if not getattr(getattr(torch.ops.aten, packet), overload).is_view:
            counts[op] += count
    return counts


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
    ops, flops = account(wasteful_program, number, x)
    assert computing(captured) == ops
    assert captured.flops == flops


@pytest.mark.parametrize("number", QUICK)
def test_ops_and_flops_via_dispatch_equal_an_account(number: int) -> None:
    check_dispatch(number)


@pytest.mark.slow("190 random programs; ten are in every run")
def test_ops_and_flops_via_dispatch_equal_an_account_in_more_programs() -> None:
    for number in SLOW:
        check_dispatch(number)


def random_code(chosen: random.Random) -> Callable[[Tensor], Tensor]:
    """Return a function of a gradient that runs a few ops of `MARKS`, with some unused."""
    names = [chosen.choice(MARKS) for _ in range(chosen.randint(1, 4))]
    form = chosen.randrange(4)

    def run(grad: Tensor) -> Tensor:
        for name in names:
            result = getattr(torch, name)(grad)
            grad = result if form != 1 else grad * 2
        if form == 2:
            grad = grad.clone().mul_(0.5)
        return torch.cat(grad.chunk(2, -1)[::-1], -1) if form == 3 else grad

    return run


def hooked_program(number: int) -> Callable[[Tensor], Tensor]:
    chosen = random.Random(number)

    class Custom(torch.autograd.Function):
        code = staticmethod(random_code(chosen))

        @staticmethod
        def forward(ctx: Any, x: Tensor) -> Tensor:
            return x.sin()

        @staticmethod
        def backward(ctx: Any, grad: Tensor) -> Tensor:
            return Custom.code(grad)

    model = nn.Sequential(nn.Linear(SIZE, SIZE), nn.Linear(SIZE, SIZE))
    kinds = [chosen.randrange(5) for _ in range(chosen.randint(1, 3))]
    codes = [random_code(chosen) for _ in kinds]
    on_result = []
    for kind, code in zip(kinds, codes, strict=True):
        if kind == 0:
            model[0].weight.register_hook(code)
        elif kind == 1:
            model[1].register_full_backward_hook(lambda _, grads, __, code=code: (code(grads[0]),))
        elif kind == 2:
            model.register_full_backward_pre_hook(lambda _, grads, code=code: (code(grads[0]),))
        else:
            on_result.append(code)

    def target(x: Tensor) -> Tensor:
        y = model(Custom.apply(x))
        for code in on_result:
            y.register_hook(code)
        return y.sin()

    return target


def check_hooks(number: int) -> None:
    target = hooked_program(number)
    x = torch.linspace(-1, 1, SIZE * SIZE).reshape(SIZE, SIZE).requires_grad_()
    ops, _ = account(hooked_program, number, x)
    captured = capture(target, x, via=CompiledAutograd(forward="eager"))
    for name in MARKS:
        op = f"aten.{name}.default"
        assert dict(captured.op_counts).get(op, 0) == ops[op], op


@pytest.mark.parametrize("number", range(3))
def test_ops_of_hooks_via_compiled_autograd_equal_an_account(number: int) -> None:
    check_hooks(number)


@pytest.mark.slow("197 random programs; three are in every run")
def test_ops_of_hooks_via_compiled_autograd_equal_an_account_in_more_programs() -> None:
    for number in range(3, 200):
        check_hooks(number)
