"""Targets that run partly in compiled graphs and partly eagerly, each for a different reason."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from mechanisms.models import example
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

Target = tuple[Callable[..., Any], tuple[Any, ...]]
CASES: dict[str, Callable[[], Target]] = {}


def case(make: Callable[[], Target]) -> Callable[[], Target]:
    CASES[make.__name__] = make
    return make


class Block(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(4, 4)

    def forward(self, x: Tensor) -> Tensor:
        y = self.linear(x).relu()
        print(end="")
        return y * 2 + x


class Looped(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.blocks = nn.ModuleList(Block() for _ in range(3))
        self.head = nn.Linear(4, 2)

    def forward(self, x: Tensor) -> Tensor:
        for block in self.blocks:
            x = block(x)
        return self.head(x)


@case
def a_print_in_a_block_in_a_loop() -> Target:
    return Looped(), (example(2, 4),)


@torch.compiler.disable
def disabled(x: Tensor) -> Tensor:
    return x.sin() + x.cos()


@case
def a_disabled_function() -> Target:
    linear = nn.Linear(4, 4)

    def target(x: Tensor) -> Tensor:
        return disabled(linear(x).relu()).exp()

    return target, (example(2, 4),)


class Tagger(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.embed = nn.Sequential(nn.Linear(4, 4), nn.ReLU())
        self.lstm = nn.LSTM(4, 3, batch_first=True)
        self.block = Block()

    def forward(self, x: Tensor) -> Tensor:
        found, _ = self.lstm(self.embed(x))
        return self.block(nn.functional.pad(found, (0, 1)))


@case
def an_lstm_beside_a_block() -> Target:
    return Tagger(), (example(2, 3, 4),)


@case
def an_item() -> Target:
    def target(x: Tensor) -> Tensor:
        n = int(x.long()[1])
        return x[n:] * 2

    return target, (torch.arange(4.0, requires_grad=True),)


class Doubled(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        ctx.save_for_backward(x)
        return x.exp() * 2

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> Tensor:
        (x,) = ctx.saved_tensors
        return grad * x.exp() * 2


@case
def a_disabled_autograd_function() -> Target:
    apply = torch.compiler.disable(Doubled.apply)

    def target(x: Tensor) -> Tensor:
        return apply(x.sin()).cos()

    return target, (example(2, 4, grad=True),)


@case
def an_eager_checkpoint() -> Target:
    block = nn.Linear(4, 4)

    @torch.compiler.disable
    def inner(x: Tensor) -> Tensor:
        return checkpoint(lambda y: block(y).sin().cos(), x, use_reentrant=False)  # type: ignore[no-any-return]

    def target(x: Tensor) -> Tensor:
        return inner(x.exp()) * 2

    return target, (example(2, 4, grad=True),)


@case
def a_checkpointed_block_with_a_break() -> Target:
    block = Block()

    def target(x: Tensor) -> Tensor:
        return checkpoint(block, x.sin(), use_reentrant=False)  # type: ignore[no-any-return]

    return target, (example(2, 4, grad=True),)


@case
def a_forward_hook_that_breaks() -> Target:
    model = nn.Sequential(nn.Linear(4, 4), nn.ReLU(), nn.Linear(4, 2))

    def hook(_module: nn.Module, _args: Any, output: Tensor) -> Tensor:
        torch._dynamo.graph_break()
        return output.sin()

    model[0].register_forward_hook(hook)

    def target(x: Tensor) -> Tensor:
        return model(x).cos()  # type: ignore[no-any-return]

    return target, (example(2, 4),)


@case
def a_hook_on_a_gradient() -> Target:
    linear = nn.Linear(4, 4)

    @torch.compiler.disable
    def hooked(x: Tensor) -> Tensor:
        y = x.sin()
        y.register_hook(lambda grad: grad * 2)
        return y

    def target(x: Tensor) -> Tensor:
        return hooked(linear(x)).exp()

    return target, (example(2, 4),)


@case
def autocast_around_a_disabled_function() -> Target:
    linear = nn.Linear(4, 4)

    @torch.compiler.disable
    def inner(x: Tensor) -> Tensor:
        return linear(x)  # type: ignore[no-any-return]

    def target(x: Tensor) -> Tensor:
        with torch.autocast("cpu", torch.bfloat16):
            return inner(linear(x).relu()).float()

    return target, (example(2, 4),)


@case
def an_argument_written_on_both_sides() -> Target:
    @torch.compiler.disable
    def double(x: Tensor) -> None:
        x.mul_(2)

    def target(x: Tensor, memory: Tensor) -> Tensor:
        memory.add_(1)
        double(memory)
        return x * memory

    return target, (example(4, grad=True), torch.ones(4))


@case
def a_norm_whose_buffers_are_written_and_read() -> Target:
    norm = nn.BatchNorm1d(4)

    @torch.compiler.disable
    def read(x: Tensor) -> Tensor:
        return x - norm.running_mean

    def target(x: Tensor) -> Tensor:
        return read(norm(x)).sin()

    return target, (example(3, 4),)


@case
def views_of_inputs_and_outputs() -> Target:
    def target(x: Tensor) -> tuple[Tensor, ...]:
        y = x * 2
        return x.view(-1), y[0], y, x + 1

    return target, (example(2, 4, grad=True),)


@case
def an_output_that_nothing_uses() -> Target:
    class Two(nn.Module):
        def forward(self, x: Tensor) -> dict[str, Tensor]:
            return {"loss": x.sin().sum(), "logits": x.cos()}

    return Two(), (example(2, 4, grad=True),)


@torch.library.custom_op("islands_cases::scaled", mutates_args=())
def scaled(x: Tensor, by: float) -> Tensor:
    return (x * by).clone()


scaled.register_fake(lambda x, by: torch.empty_like(x))
scaled.register_autograd(lambda ctx, grad: (grad * 3.0, None))


@case
def a_custom_op_on_both_sides() -> Target:
    @torch.compiler.disable
    def inner(x: Tensor) -> Tensor:
        return scaled(x, 3.0).sin()  # type: ignore[no-any-return]

    def target(x: Tensor) -> Tensor:
        return scaled(inner(scaled(x, 2.0)), 4.0)  # type: ignore[no-any-return]

    return target, (example(2, 4, grad=True),)


@case
def under_no_grad() -> Target:
    inner = torch.no_grad()(disabled)

    def target(x: Tensor) -> Tensor:
        with torch.no_grad():
            x = inner(x * 2)
        return x.sin()

    return target, (example(2, 4),)


@case
def a_backward_of_its_own() -> Target:
    linear = nn.Linear(4, 4)

    def target(x: Tensor) -> Tensor:
        loss = linear(x).sin().sum()
        loss.backward()
        return loss.detach()

    return target, (example(2, 4),)


@case
def sizes_that_change() -> Target:
    @torch.compiler.disable
    def cut(x: Tensor) -> Tensor:
        return x[1:]

    class Inner(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.linear = nn.Linear(4, 4)

        def forward(self, x: Tensor) -> Tensor:
            return self.linear(x).relu() * x.shape[0]

    inner = Inner()

    def target(x: Tensor) -> Tensor:
        for _ in range(3):
            x = cut(inner(x))
        return x

    return target, (example(6, 4),)


@case
def masked_assignment() -> Target:
    linear = nn.Linear(4, 4)

    def target(x: Tensor) -> Tensor:
        y = linear(x).clone()
        y[x > 0] = 0.5
        print(end="")
        return y[x < 0.5].sum() + y.sum()

    return target, (example(2, 4),)
