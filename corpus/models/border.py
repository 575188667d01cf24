"""Networks written by hand whose tensors cross the border between compiled and eager code."""

# mypy: disable-error-code="no-any-return, untyped-decorator, no-untyped-call"
from __future__ import annotations

import contextlib
import warnings
from collections.abc import Iterator
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

from ..case import Case, case, floats
from .hand import GROUP, Block, Net, net


@torch.compiler.disable
def eagerly(function: Any, *args: Any, **kwargs: Any) -> Any:
    """Call a function in code that nothing compiles."""
    return function(*args, **kwargs)


@net()
def view_made_eagerly(self: Any, x: Tensor) -> Tensor:
    y = self.blocks[0](x)
    z = eagerly(Tensor.view, y, 4, 4)
    return (z * 2).sum() + self.head(y).sum()


@net()
def view_written_eagerly(self: Any, x: Tensor) -> Tensor:
    y = self.blocks[0](x).clone()
    part = y[:, 2:4]
    eagerly(Tensor.mul_, part, 3.0)
    return self.head(y)


@net()
def base_written_in_graph(self: Any, x: Tensor) -> Tensor:
    y = eagerly(torch.zeros, 2, 8)
    part = eagerly(Tensor.narrow, y, 1, 0, 4)
    y.add_(self.blocks[0](x))
    return self.head(y) + part.sum()


@net()
def output_written_later(self: Any, x: Tensor) -> Tensor:
    y = self.blocks[0](x)
    print("between")
    y += 1
    z = self.blocks[1](y)
    print("again")
    z.mul_(y.detach())
    return self.head(z)


@net()
def data_attribute(self: Any, x: Tensor) -> Tensor:
    y = self.blocks[0](x)
    y.data.clamp_(-1, 1)
    print("clamped")
    return self.head(self.blocks[1](y.data) + y)


@net()
def dropout_eagerly(self: Any, x: Tensor) -> Tensor:
    for block in self.blocks:
        x = eagerly(F.dropout, block(x), 0.3, self.training)
        x = F.dropout(x, 0.1, self.training)
    return self.head(x)


@net()
def random_numbers_everywhere(self: Any, x: Tensor) -> Tensor:
    y = self.blocks[0](x) + torch.randn_like(x)
    print("noise")
    y = y + eagerly(torch.rand, 2, 8)
    return self.head(y * torch.bernoulli(torch.full_like(y, 0.5)))


@net()
def checkpoint_with_dropout_and_break(self: Any, x: Tensor) -> Tensor:
    def part(y: Tensor) -> Tensor:
        y = F.dropout(self.blocks[0](y), 0.5, self.training)
        print("inside")
        return F.dropout(self.blocks[1](y), 0.5, self.training)

    return self.head(checkpoint(part, x, use_reentrant=False))


@net()
def checkpoint_nested(self: Any, x: Tensor) -> Tensor:
    def inner(y: Tensor) -> Tensor:
        return torch.tanh(self.blocks[0](y))

    def outer(y: Tensor) -> Tensor:
        return self.blocks[1](checkpoint(inner, y, use_reentrant=False))

    return self.head(eagerly(checkpoint, outer, x, use_reentrant=False))


@net()
def sizes_that_change(self: Any, x: Tensor) -> Tensor:
    total = torch.zeros(())
    for rows in (2, 3, 4, 5, 2):
        y = x[:1].expand(rows, 8).contiguous()
        print("rows", rows)
        total = total + self.blocks[0](y).square().mean()
    return total + self.head(x).sum()


@net()
def recompile_limit(self: Any, x: Tensor) -> Tensor:
    for number in range(12):
        x = x + _shifted(x, str(number)) * 0.1
        print(number)
    return self.head(x)


def _shifted(x: Tensor, name: str) -> Tensor:
    """Compiled again for each name, until there are too many."""
    return torch.sin(x) if name in ("1", "5") else torch.cos(x) + len(name)


@net()
def number_that_changes(self: Any, x: Tensor) -> Tensor:
    for scale in (0.5, 0.25, 2.0, 3.0):
        print(scale)
        x = self.blocks[0](x) * scale
    return self.head(x)


@net()
def inference_part(self: Any, x: Tensor) -> Tensor:
    with torch.inference_mode():
        weights = self.blocks[0](x).softmax(-1)
    print("weights")
    return self.head(self.blocks[1](x) * weights.clone())


@net()
def grad_mode_set(self: Any, x: Tensor) -> Tensor:
    torch.set_grad_enabled(False)
    y = self.blocks[0](x)
    print("off")
    torch.set_grad_enabled(True)
    return self.head(self.blocks[1](x) + y)


@net()
def autocast_part(self: Any, x: Tensor) -> Tensor:
    with torch.autocast("cpu", torch.bfloat16):
        y = self.blocks[0](x)
        print("half")
        y = self.blocks[1](y)
    return self.head(y.float())


class Split(torch.autograd.Function):
    """Two outputs, one of which gets no gradient."""

    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Any:
        ctx.set_materialize_grads(False)
        signs = x.sign()
        ctx.mark_non_differentiable(signs)
        ctx.save_for_backward(signs)
        return x.abs(), signs

    @staticmethod
    def backward(ctx: Any, grad: Any, _signs: Any) -> Any:
        (signs,) = ctx.saved_tensors
        return None if grad is None else grad * signs


@net()
def function_with_two_outputs(self: Any, x: Tensor) -> Tensor:
    size, signs = eagerly(Split.apply, self.blocks[0](x))
    return self.head(size * signs)


@net()
def saved_tensor_hooks(self: Any, x: Tensor) -> Tensor:
    def pack(t: Tensor) -> Tensor:
        return t.to(torch.float64)

    def unpack(t: Tensor) -> Tensor:
        return t.to(torch.float32)

    y = self.blocks[0](x)
    print("packed")
    with torch.autograd.graph.saved_tensors_hooks(pack, unpack):
        y = eagerly(torch.sin, y)
    return self.head(y)


@net()
def exception_across_break(self: Any, x: Tensor) -> Tensor:
    def risky(y: Tensor) -> Tensor:
        y = self.blocks[0](y)
        print("risky")
        raise ValueError("not today")

    try:
        x = risky(x)
    except ValueError:
        x = self.blocks[1](x)
    return self.head(x)


@net()
def generator_with_break(self: Any, x: Tensor) -> Tensor:
    def steps() -> Iterator[Tensor]:
        y = x
        for block in self.blocks:
            y = block(y)
            print("step")
            yield y

    total = x
    for y in steps():
        total = total + y
    return self.head(total)


@net()
def recursion_with_break(self: Any, x: Tensor) -> Tensor:
    def down(y: Tensor, depth: int) -> Tensor:
        if depth == 0:
            return y
        print("depth", depth)
        return torch.tanh(self.blocks[0](down(y, depth - 1)))

    return self.head(down(x, 3))


@net()
def break_in_with(self: Any, x: Tensor) -> Tensor:
    with torch.no_grad(), contextlib.suppress(ZeroDivisionError):
        y = self.blocks[0](x)
        print("inside")
        z = self.blocks[1](y)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        x = self.blocks[2](x)
    return self.head(x + z)


@net()
def list_of_tensors(self: Any, x: Tensor) -> list[Tensor]:
    found = []
    for block in self.blocks:
        x = block(x)
        found.append(x)
        print(len(found))
    found[0] = found[0] * 2
    return [self.head(each) for each in found]


@net()
def attribute_kept(self: Any, x: Tensor) -> Tensor:
    self.kept = self.blocks[0](x)
    print("kept")
    self.total = self.kept.detach().sum()
    return self.head(self.kept) / (1 + self.total.abs())


@net()
def gather_indices_eagerly(self: Any, x: Tensor) -> Tensor:
    order = eagerly(torch.argsort, x[:, 0])
    y = self.blocks[0](x)[order]
    y = eagerly(torch.index_select, y, 1, torch.tensor([3, 1, 2]))
    return torch.cat([self.head(x), y], 1)


@net()
def scatter_eagerly(self: Any, x: Tensor) -> Tensor:
    y = self.blocks[0](x)
    where = torch.zeros(2, 8, dtype=torch.long)
    z = eagerly(Tensor.scatter_add_, torch.zeros(2, 8), 1, where, y)
    return self.head(z)


@net()
def out_argument(self: Any, x: Tensor) -> Tensor:
    y = self.blocks[0](x)
    kept = torch.empty(2, 8)
    print("out")
    with torch.no_grad():
        torch.add(y, 1, out=kept)
        eagerly(torch.mul, kept, 2, out=kept)
    return self.head(y * kept)


@net()
def multi_output_eagerly(self: Any, x: Tensor) -> Tensor:
    y = self.blocks[0](x)
    best, where = eagerly(torch.max, y, 1)
    halves = eagerly(torch.chunk, y, 2, -1)
    mean, spread = eagerly(torch.var_mean, y, 1)
    return (
        best.sum() + where.float().sum() + (halves[0] * halves[1]).sum() + mean.sum() - spread.sum()
    )


@net()
def foreach_ops(self: Any, x: Tensor) -> Tensor:
    parts = [block(x) for block in self.blocks]
    parts = eagerly(torch._foreach_mul, parts, 0.5)
    norms = torch._foreach_norm(parts)
    return self.head(sum(parts)) + torch.stack(list(norms)).sum()


@net()
def hooks_behind_break(self: Any, x: Tensor) -> Tensor:
    y = self.blocks[0](x)
    print("hooked")
    y.register_hook(lambda grad: grad * 0.5)
    z = eagerly(torch.tanh, y)
    z.register_hook(lambda grad: grad.clamp(-0.1, 0.1))
    return self.head(z)


@net()
def retained_gradient(self: Any, x: Tensor) -> Tensor:
    y = self.blocks[0](x)
    print("retained")
    y.retain_grad()
    return self.head(self.blocks[1](y))


@net()
def same_tensor_twice(self: Any, x: Tensor) -> Any:
    y = self.blocks[0](x)
    print("twice")
    return y, y, self.head(y)


@net()
def detached_outputs(self: Any, x: Tensor) -> Any:
    y = self.blocks[0](x)
    print("detached")
    return self.head(y), y.detach(), y.argmax(-1), 5


@case(GROUP)
def part_compiled_already() -> Case:
    class Mixed(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.block = Block()
            self.fast = torch.compile(Block(), backend="aot_eager")

        def forward(self, x: Tensor) -> Tensor:
            print("outer")
            return self.fast(self.block(x))

    return Case(Mixed(), (floats(2, 8),))


@case(GROUP)
def disabled_module() -> Case:
    class Slow(Block):
        @torch.compiler.disable
        def forward(self, x: Tensor) -> Tensor:
            return torch.tanh(super().forward(x))

    return Case(nn.Sequential(Block(), Slow(), Block()), (floats(2, 8),))


@case(GROUP)
def siamese_with_prints() -> Case:
    def body(self: Any, a: Tensor, b: Tensor) -> Tensor:
        def embed(x: Tensor) -> Tensor:
            for block in self.blocks:
                x = block(x)
                print("layer")
            return F.normalize(x, dim=-1)

        return (embed(a) - embed(b)).pow(2).sum()

    return Case(Net(body), (floats(2, 8), floats(2, 8)))


@case(GROUP)
def shared_module() -> Case:
    block = Block()
    model = nn.Sequential(block, nn.ReLU(), block, _Print(), block, nn.Linear(8, 2))
    return Case(model, (floats(2, 8),))


class _Print(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        print("here", x.shape)
        return x


@case(GROUP)
def input_gradients_only() -> Case:
    def body(self: Any, x: Tensor) -> Tensor:
        y = self.blocks[0](x)
        print("frozen")
        return self.head(self.blocks[1](y))

    model = Net(body).requires_grad_(False)
    return Case(model, (floats(2, 8).requires_grad_(),))


@case(GROUP)
def integers_only() -> Case:
    def run(x: Tensor) -> Tensor:
        y = x.cumsum(0) % 7
        print("sum", int(y.sum()))
        return torch.bincount(y, minlength=7)[y]

    return Case(run, (torch.arange(10),))


@case(GROUP)
def zero_rows() -> Case:
    def body(self: Any, x: Tensor) -> Tensor:
        some = x[x[:, 0] > 100]
        y = self.blocks[0](some)
        return self.head(torch.cat([y, x])).sum()

    return Case(Net(body), (floats(2, 8),))


@case(GROUP)
def large_constant() -> Case:
    table = torch.linspace(0, 1, 8)
    other = torch.ones(8, requires_grad=True)

    def body(self: Any, x: Tensor) -> Tensor:
        y = self.blocks[0](x) * table
        print("constant")
        return self.head(eagerly(torch.mul, y, table) + torch.tensor([1.0] * 8) + other)

    return Case(Net(body), (floats(2, 8),))


@case(GROUP)
def channels_last_gradients() -> Case:
    model = nn.Sequential(nn.Conv2d(4, 8, 3), _Print(), nn.Conv2d(8, 4, 3))
    return Case(model, (floats(2, 4, 8, 8).to(memory_format=torch.channels_last),))


@case(GROUP)
def generator_argument() -> Case:
    def run(x: Tensor, generator: torch.Generator) -> Tensor:
        y = x.sin()
        print("draw")
        return y * eagerly(torch.rand, 2, 8, generator=generator)

    return Case(run, (floats(2, 8).requires_grad_(), torch.Generator().manual_seed(3)))
