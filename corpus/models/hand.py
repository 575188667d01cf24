"""Small networks written by hand, with all that breaks a graph or runs beside it."""

# mypy: disable-error-code="no-any-return, untyped-decorator, no-untyped-call"
from __future__ import annotations

import contextlib
import functools
import logging
import random
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy
import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint, checkpoint_sequential

from ..case import Case, case, floats

GROUP = "by hand"


class Block(nn.Module):
    """A residual block."""

    def __init__(self, width: int = 8) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(width)
        self.up = nn.Linear(width, 2 * width)
        self.down = nn.Linear(2 * width, width)

    def forward(self, x: Tensor) -> Tensor:
        return x + self.down(F.gelu(self.up(self.norm(x))))


class Net(nn.Module):
    """Blocks, and a function that says how they run."""

    def __init__(self, body: Callable[..., Any], blocks: int = 3, **modules: nn.Module) -> None:
        super().__init__()
        self.body = body
        self.blocks = nn.ModuleList([Block() for _ in range(blocks)])
        self.head = nn.Linear(8, 4)
        for name, module in modules.items():
            self.add_module(name, module)

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        return self.body(self, *args, **kwargs)


def net(group: str = GROUP, **options: Any) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """The function below is the forward of a `Net` on two rows of eight numbers."""

    def decorate(body: Callable[..., Any]) -> Callable[..., Any]:
        def make() -> Case:
            return Case(Net(body, **options).train(), (floats(2, 8),))

        make.__name__ = body.__name__
        case(group)(make)
        return body

    return decorate


@net()
def print_in_forward(self: Any, x: Tensor) -> Tensor:
    for block in self.blocks:
        x = block(x)
        print("norm", float(x.norm()))
    return self.head(x)


class PrintingBlock(Block):
    """A block that prints."""

    def forward(self, x: Tensor) -> Tensor:
        y = super().forward(x)
        print("mean", y.mean())
        return torch.tanh(y)


@case(GROUP)
def print_in_block() -> Case:
    model = nn.Sequential(*[PrintingBlock() for _ in range(3)], nn.Linear(8, 2))
    return Case(model, (floats(2, 8),))


@net()
def item_scales(self: Any, x: Tensor) -> Tensor:
    x = self.blocks[0](x)
    scale = x.abs().max().item()
    return self.head(self.blocks[1](x / scale))


@net()
def item_as_size(self: Any, x: Tensor) -> Tensor:
    count = int((x[:, 0] > -10).sum().item())
    return self.head(self.blocks[0](x)[:count] * 2)


@net()
def branch_on_data(self: Any, x: Tensor) -> Tensor:
    x = self.blocks[0](x)
    x = self.blocks[1](x) if x.sum() > 0 else self.blocks[2](x)
    return self.head(x)


@net()
def loop_until(self: Any, x: Tensor) -> Tensor:
    for _ in range(5):
        x = torch.tanh(self.blocks[0](x))
        if x.norm() < 1e3:
            break
    return self.head(x)


@net()
def early_exit(self: Any, x: Tensor) -> Tensor:
    for block in self.blocks:
        x = block(x)
        scores = self.head(x).softmax(-1)
        if bool((scores.max(-1).values > 0.0).all()):
            return scores
    return scores


@net()
def masked_assignment(self: Any, x: Tensor) -> Tensor:
    y = self.blocks[0](x).clone()
    y[x < 0] = 0.0
    y[:, 0] += 1
    y[x > 1] *= 2
    return self.head(y)


@net()
def masked_select(self: Any, x: Tensor) -> Tensor:
    y = self.blocks[0](x)
    chosen = y[y.detach() > 0]
    return chosen.square().mean() + self.head(y).mean()


@net()
def nonzero_rows(self: Any, x: Tensor) -> Tensor:
    rows = torch.nonzero(x[:, 0] > -10).squeeze(-1)
    return self.head(self.blocks[0](x.index_select(0, rows)))


@net()
def unique_values(self: Any, x: Tensor) -> Tensor:
    y = self.blocks[0](x)
    buckets, inverse = torch.unique((x * 2).long(), return_inverse=True)
    return self.head(y * buckets[inverse].float())


@net()
def layerdrop(self: Any, x: Tensor) -> Tensor:
    for block in self.blocks:
        if torch.rand([]) < 0.4:
            continue
        x = block(x)
    return self.head(x)


@net()
def layerdrop_python(self: Any, x: Tensor) -> Tensor:
    for block in self.blocks:
        if random.random() > 0.4:
            x = block(x)
    return self.head(x)


@net()
def stochastic_depth(self: Any, x: Tensor) -> Tensor:
    for block in self.blocks:
        keep = torch.bernoulli(torch.full((x.shape[0], 1), 0.7))
        x = x + keep * (block(x) - x)
    return self.head(x)


@net()
def checkpointed(self: Any, x: Tensor) -> Tensor:
    for block in self.blocks:
        x = checkpoint(block, x, use_reentrant=False)
    return self.head(x)


@net()
def checkpointed_reentrant(self: Any, x: Tensor) -> Tensor:
    x = x.requires_grad_() if not x.requires_grad else x
    for block in self.blocks:
        x = checkpoint(block, x, use_reentrant=True)
    return self.head(x)


@case(GROUP)
def checkpointed_sequential() -> Case:
    model = nn.Sequential(*[Block() for _ in range(4)])

    def run(x: Tensor) -> Tensor:
        return checkpoint_sequential(model, 2, x, use_reentrant=False)

    return Case(run, (floats(2, 8),))


@net()
def checkpointed_with_print(self: Any, x: Tensor) -> Tensor:
    def part(y: Tensor) -> Tensor:
        y = self.blocks[0](y)
        print("inside", y.shape)
        return self.blocks[1](y)

    return self.head(checkpoint(part, x, use_reentrant=False))


class Clamp(torch.autograd.Function):
    """A clamp with the gradient of the identity."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, low: float) -> Tensor:
        ctx.save_for_backward(x)
        ctx.low = low
        return x.clamp(min=low)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> Any:
        (x,) = ctx.saved_tensors
        return grad * torch.where(x < ctx.low, 0.5, 1.0), None


@net()
def custom_function(self: Any, x: Tensor) -> Tensor:
    return self.head(Clamp.apply(self.blocks[0](x), -0.5))


class Noisy(torch.autograd.Function):
    """A function whose forward and backward print, so that nothing compiles them."""

    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        print("forward", x.sum())
        ctx.save_for_backward(x)
        return x.sin()

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> Tensor:
        (x,) = ctx.saved_tensors
        print("backward", grad.sum())
        return grad * x.cos()


@net()
def custom_function_printing(self: Any, x: Tensor) -> Tensor:
    return self.head(Noisy.apply(self.blocks[0](x)))


@torch.compiler.disable
def _disabled(x: Tensor) -> Tensor:
    return x * torch.sigmoid(1.702 * x)


@net()
def disabled_function(self: Any, x: Tensor) -> Tensor:
    for block in self.blocks:
        x = _disabled(block(x))
    return self.head(x)


@net()
def graph_break_called(self: Any, x: Tensor) -> Tensor:
    x = self.blocks[0](x)
    torch._dynamo.graph_break()
    y = self.blocks[1](x)
    torch._dynamo.graph_break()
    return self.head(x + y)


@net()
def forward_hooks(self: Any, x: Tensor) -> Tensor:
    return self.head(self.blocks[1](self.blocks[0](x)))


def _halved(_module: nn.Module, grads: Any, _given: Any) -> Any:
    return (grads[0] * 0.5,)


@case(GROUP)
def hooks_of_modules() -> Case:
    model = Net(forward_hooks)
    model.blocks[0].register_forward_hook(lambda module, args, output: output * 2)
    model.blocks[1].register_forward_pre_hook(lambda module, args: (args[0] + 1,))
    model.head.register_full_backward_hook(_halved)
    return Case(model, (floats(2, 8).requires_grad_(),))


@case(GROUP)
def hooks_of_tensors() -> Case:
    def body(self: Any, x: Tensor) -> Tensor:
        y = self.blocks[0](x)
        y.register_hook(lambda grad: grad.clamp(-1, 1))
        return self.head(y)

    model = Net(body)
    model.head.weight.register_hook(lambda grad: grad * 2)
    return Case(model, (floats(2, 8),))


@case(GROUP)
def hooks_that_print() -> Case:
    model = Net(forward_hooks)
    model.blocks[0].register_forward_hook(lambda module, args, output: print(output.mean()))
    return Case(model, (floats(2, 8),))


@case(GROUP)
def post_accumulate_hook() -> Case:
    model = Net(forward_hooks)

    def halve(parameter: Tensor) -> None:
        assert parameter.grad is not None
        parameter.grad.mul_(0.5)

    model.head.weight.register_post_accumulate_grad_hook(halve)
    return Case(model, (floats(2, 8),))


@net()
def numpy_round_trip(self: Any, x: Tensor) -> Tensor:
    y = self.blocks[0](x)
    scale = torch.from_numpy(numpy.abs(y.detach().numpy()).max(axis=0))
    return self.head(y / scale)


@net()
def python_list_round_trip(self: Any, x: Tensor) -> Tensor:
    y = self.blocks[0](x)
    weights = torch.tensor([sum(row) for row in y.detach().tolist()])
    return self.head(y * weights[:, None])


@net()
def logging_in_forward(self: Any, x: Tensor) -> Tensor:
    y = self.blocks[0](x)
    logging.getLogger("corpus").warning("seen %s", y.shape)
    return self.head(self.blocks[1](y))


@net()
def try_and_except(self: Any, x: Tensor) -> Tensor:
    try:
        y = self.blocks[0](x) @ torch.ones(3, 3)
    except RuntimeError:
        y = self.blocks[1](x)
    return self.head(y)


@net()
def asserts_on_data(self: Any, x: Tensor) -> Tensor:
    y = self.blocks[0](x)
    assert torch.isfinite(y).all(), "not finite"
    if not torch.all(y < 1e6):
        raise ValueError("too large")
    return self.head(y)


@net()
def gradient_in_forward(self: Any, x: Tensor) -> Tensor:
    x = x.detach().requires_grad_()
    energy = self.head(self.blocks[0](x)).sum()
    (force,) = torch.autograd.grad(energy, x, create_graph=True)
    return energy + force.square().sum()


@net()
def gradient_penalty_break(self: Any, x: Tensor) -> Tensor:
    y = self.blocks[0](x)
    print("before")
    z = y.detach().requires_grad_()
    with torch.enable_grad():
        (force,) = torch.autograd.grad(self.head(z).square().sum(), z)
    return self.head(y) + force.mean()


@net()
def no_grad_part(self: Any, x: Tensor) -> Tensor:
    with torch.no_grad():
        y = self.blocks[0](x)
    print("frozen")
    return self.head(self.blocks[1](y))


@net()
def target_network(self: Any, x: Tensor) -> Tensor:
    with torch.no_grad():
        target = self.blocks[0](x).argmax(-1)
    return F.cross_entropy(self.blocks[1](x), target)


@net()
def in_place_ops(self: Any, x: Tensor) -> Tensor:
    y = self.blocks[0](x)
    y.mul_(2).add_(1)
    print("between")
    y = torch.dropout_(y.sigmoid_() * 2, 0.5, self.training)
    y[0].zero_()
    return self.head(y)


@net()
def changes_argument(self: Any, x: Tensor) -> Tensor:
    x.mul_(0.5)
    print("changed")
    x.add_(1)
    return self.head(self.blocks[0](x))


class Buffers(nn.Module):
    """Running statistics, kept by hand."""

    mean: Tensor
    seen: Tensor

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("mean", torch.zeros(8))
        self.register_buffer("seen", torch.zeros((), dtype=torch.long))
        self.layer = nn.Linear(8, 8)

    def forward(self, x: Tensor) -> Tensor:
        self.seen += 1
        self.mean.lerp_(x.detach().mean(0), 0.1)
        print("seen", int(self.seen))
        self.mean = self.mean * 0.99
        return self.layer(x - self.mean)


@case(GROUP)
def buffers_by_hand() -> Case:
    return Case(Buffers(), (floats(2, 8),))


@case(GROUP)
def vector_quantiser() -> Case:
    class Quantiser(nn.Module):
        used: Tensor

        def __init__(self) -> None:
            super().__init__()
            self.encode, self.decode = nn.Linear(8, 4), nn.Linear(4, 8)
            self.book = nn.Embedding(6, 4)
            self.register_buffer("used", torch.zeros(6))

        def forward(self, x: Tensor) -> dict[str, Tensor]:
            z = self.encode(x)
            nearest = torch.cdist(z, self.book.weight).argmin(-1)
            self.used.index_add_(0, nearest, torch.ones(len(nearest)))
            q = self.book(nearest)
            loss = F.mse_loss(q, z.detach()) + 0.25 * F.mse_loss(q.detach(), z)
            if (self.used == 0).any():
                print("dead codes")
            y = self.decode(z + (q - z).detach())
            return {"loss": loss + F.mse_loss(y, x), "output": y}

    return Case(Quantiser(), (floats(5, 8),))


@case(GROUP)
def mixture_of_experts() -> Case:
    class Experts(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.gate = nn.Linear(8, 3)
            self.experts = nn.ModuleList([Block() for _ in range(3)])

        def forward(self, x: Tensor) -> Tensor:
            weights, chosen = self.gate(x).softmax(-1).topk(2, dim=-1)
            out = torch.zeros_like(x)
            for number, expert in enumerate(self.experts):
                row, place = torch.where(chosen == number)
                if row.numel() == 0:
                    continue
                out.index_add_(0, row, expert(x[row]) * weights[row, place, None])
            return out

    return Case(Experts(), (floats(6, 8),))


@case(GROUP)
def recurrent_by_hand() -> Case:
    class Cell(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.step = nn.Linear(12, 8)
            self.halt = nn.Linear(8, 1)

        def forward(self, x: Tensor) -> Tensor:
            h = torch.zeros(x.shape[0], 8)
            for t in range(x.shape[1]):
                h = torch.tanh(self.step(torch.cat([x[:, t], h], -1)))
                if torch.sigmoid(self.halt(h)).mean() > 0.99:
                    break
            return h * torch.sigmoid(self.halt(h))

    return Case(Cell(), (floats(2, 5, 4),))


@case(GROUP)
def beam_search() -> Case:
    class Decoder(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.words = nn.Embedding(10, 8)
            self.cell = nn.GRUCell(8, 8)
            self.head = nn.Linear(8, 10)

        def forward(self, start: Tensor) -> Tensor:
            h, word, scores = torch.zeros(len(start), 8), start, []
            for _ in range(4):
                h = self.cell(self.words(word), h)
                scores.append(self.head(h).log_softmax(-1))
                word = scores[-1].argmax(-1)
                if bool((word == 0).all()):
                    break
            return torch.stack(scores, 1)

    return Case(Decoder(), (torch.tensor([1, 2, 3]),))


@case(GROUP)
def sampler_policy() -> Case:
    class Policy(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.net = nn.Sequential(nn.Linear(8, 16), nn.Tanh(), nn.Linear(16, 3))

        def forward(self, x: Tensor) -> Tensor:
            found = torch.distributions.Categorical(logits=self.net(x))
            action = found.sample()
            return -(found.log_prob(action) * x.sum(-1)).mean() - 0.1 * found.entropy().mean()

    return Case(Policy(), (floats(4, 8),))


@case(GROUP)
def variational_autoencoder() -> Case:
    class Vae(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.encode, self.decode = nn.Linear(8, 8), nn.Linear(4, 8)

        def forward(self, x: Tensor) -> dict[str, Tensor]:
            mean, spread = self.encode(x).chunk(2, -1)
            found = torch.distributions.Normal(mean, F.softplus(spread))
            z = found.rsample()
            prior = torch.distributions.Normal(torch.zeros_like(mean), torch.ones_like(mean))
            kl = torch.distributions.kl_divergence(found, prior).sum(-1).mean()
            y = self.decode(z)
            return {"loss": F.mse_loss(y, x) + kl, "y": y}

    return Case(Vae(), (floats(4, 8),))


@case(GROUP)
def gumbel_softmax() -> Case:
    def body(self: Any, x: Tensor) -> Tensor:
        choice = F.gumbel_softmax(self.head(self.blocks[0](x)), hard=True)
        return choice @ torch.arange(12.0).reshape(4, 3)

    return Case(Net(body), (floats(4, 8),))


@case(GROUP)
def functional_call() -> Case:
    block = Block()
    scaled = {name: p.detach().clone().requires_grad_() for name, p in block.named_parameters()}

    def run(x: Tensor) -> Tensor:
        return torch.func.functional_call(block, {k: v * 0.5 for k, v in scaled.items()}, (x,))

    return Case(run, (floats(2, 8),))


@case(GROUP)
def ensemble_by_vmap() -> Case:
    models = [nn.Linear(8, 3) for _ in range(4)]
    parameters, _ = torch.func.stack_module_state(models)
    base = models[0]

    def run(x: Tensor) -> Tensor:
        def one(p: Any) -> Tensor:
            return torch.func.functional_call(base, p, (x,))

        return torch.vmap(one)(parameters)

    return Case(run, (floats(2, 8),))


@case(GROUP)
def jacobian() -> Case:
    block = Block(4)

    def run(x: Tensor) -> Tensor:
        return torch.func.jacrev(lambda y: block(y).tanh())(x).square().sum()

    return Case(run, (floats(4),))


@case(GROUP)
def cond_in_graph() -> Case:
    def body(self: Any, x: Tensor) -> Tensor:
        y = torch.cond(x.sum() > 0, lambda z: z.sin(), lambda z: z.cos(), (x,))
        return self.head(self.blocks[0](y))

    return Case(Net(body), (floats(2, 8),))


@case(GROUP)
def cond_behind_break() -> Case:
    def body(self: Any, x: Tensor) -> Tensor:
        x = self.blocks[0](x)
        print("break")
        y = torch.cond(x.sum() > 0, lambda z: z.sin(), lambda z: z.cos(), (x,))
        return self.head(y)

    return Case(Net(body), (floats(2, 8),))


@torch.library.custom_op("corpus::swish", mutates_args=())
def swish(x: Tensor) -> Tensor:
    """A custom op."""
    return x * torch.sigmoid(x)


@swish.register_fake
def _(x: Tensor) -> Tensor:
    return torch.empty_like(x)


def _swish_setup(ctx: Any, inputs: Any, output: Any) -> None:
    ctx.save_for_backward(inputs[0])


def _swish_backward(ctx: Any, grad: Tensor) -> Tensor:
    (x,) = ctx.saved_tensors
    s = torch.sigmoid(x)
    return grad * (s + x * s * (1 - s))


swish.register_autograd(_swish_backward, setup_context=_swish_setup)


@net()
def custom_op(self: Any, x: Tensor) -> Tensor:
    return self.head(swish(self.blocks[0](x)))


@net()
def custom_op_eager(self: Any, x: Tensor) -> Tensor:
    x = self.blocks[0](x)
    print("break")
    x = _disabled(swish(x))
    return self.head(x)


@net()
def generator_of_blocks(self: Any, x: Tensor) -> Tensor:
    def outputs() -> Iterator[Tensor]:
        y = x
        for block in self.blocks:
            y = block(y)
            yield y

    return self.head(torch.stack(list(outputs())).mean(0))


@net()
def context_manager(self: Any, x: Tensor) -> Tensor:
    @contextlib.contextmanager
    def scaled(y: Tensor) -> Iterator[Tensor]:
        yield y * 2
        print("left")

    with scaled(x) as y:
        y = self.blocks[0](y)
    return self.head(y)


@net()
def cached_computation(self: Any, x: Tensor) -> Tensor:
    @functools.lru_cache
    def table(size: int) -> Tensor:
        return torch.arange(size, dtype=torch.float32).sqrt()

    return self.head(self.blocks[0](x) * table(8) + table(8))


@dataclass
class Output:
    """An output of a class that pytree does not know."""

    scores: Tensor
    hidden: list[Tensor]


@net()
def opaque_output(self: Any, x: Tensor) -> Output:
    hidden = [x := block(x) for block in self.blocks]
    return Output(self.head(x), hidden)


@net()
def many_outputs(self: Any, x: Tensor) -> Any:
    a = self.blocks[0](x)
    print("a")
    b = self.blocks[1](a)
    return a, {"b": b, "views": [b.t(), b[0], a.view(-1)]}, 3, None


@net()
def output_is_input(self: Any, x: Tensor) -> Any:
    return x, x.view(-1), self.head(self.blocks[0](x)).t()


@net()
def weight_tied(self: Any, x: Tensor) -> Tensor:
    for _ in range(3):
        x = self.blocks[0](x)
        print("again")
    return x @ self.head.weight.t() @ self.head.weight


@net()
def unused_parameters(self: Any, x: Tensor) -> Tensor:
    dead = self.blocks[2](x) * 0  # noqa: F841
    return self.head(x)


@net()
def residual_across_breaks(self: Any, x: Tensor) -> Tensor:
    a = self.blocks[0](x)
    print("one")
    b = self.blocks[1](a) + a
    print("two")
    return self.head(b + a * x)


@net()
def double_use_in_eager(self: Any, x: Tensor) -> Tensor:
    y = self.blocks[0](x)
    return self.head(_disabled(y) + _disabled(y * 2) - y)


@net()
def lambda_and_partial(self: Any, x: Tensor) -> Tensor:
    scale = functools.partial(torch.mul, other=2.0)
    return self.head((lambda y: scale(self.blocks[0](y)))(x))


@net()
def string_dispatch(self: Any, x: Tensor) -> Tensor:
    for name in ("relu", "sigmoid", "tanh"):
        x = getattr(torch, name)(self.blocks[0](x))
    return self.head(x)


@net()
def sorts_and_gathers(self: Any, x: Tensor) -> Tensor:
    y = self.blocks[0](x)
    values, order = y.sort(-1, descending=True)
    y = torch.gather(y, 1, order.flip(-1)) + values.cumsum(-1)
    return self.head(torch.scatter_add(y, 1, order, values))


@net()
def einsum_and_linalg(self: Any, x: Tensor) -> Tensor:
    y = self.blocks[0](x)
    gram = torch.einsum("ij,kj->ik", y, y) + torch.eye(2)
    return torch.linalg.solve(gram, self.head(y)).sum() + torch.logdet(gram)


@net()
def svd_in_forward(self: Any, x: Tensor) -> Tensor:
    u, s, v = torch.linalg.svd(self.blocks[0](x), full_matrices=False)
    return self.head((u * s.clamp(max=2)) @ v)


@case(GROUP)
def function_over_module() -> Case:
    block, head = Block(), nn.Linear(8, 2)

    def run(x: Tensor) -> Tensor:
        print("called")
        return head(block(x))

    return Case(run, (floats(2, 8),))


@case(GROUP)
def bound_method() -> Case:
    class Model(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.block = Block()

        def embed(self, x: Tensor) -> Tensor:
            return F.normalize(self.block(x), dim=-1)

    return Case(Model().embed, (floats(2, 8),))


@case(GROUP)
def with_loss_function() -> Case:
    def body(self: Any, x: Tensor) -> Tensor:
        y = self.blocks[0](x)
        print("loss follows")
        return self.head(y)

    return Case(
        Net(body), (floats(2, 8),), loss_fn=lambda y: F.cross_entropy(y, torch.tensor([1, 2]))
    )


@case(GROUP)
def own_backward() -> Case:
    model = Net(forward_hooks)

    def run(x: Tensor) -> Tensor:
        loss = model(x).square().mean()
        loss.backward()
        return loss.detach()

    return Case(run, (floats(2, 8),))


@case(GROUP)
def contrastive_pair() -> Case:
    def body(self: Any, a: Tensor, b: Tensor) -> Tensor:
        a = F.normalize(self.head(self.blocks[0](a)), dim=-1)
        b = F.normalize(self.head(self.blocks[0](b)), dim=-1)
        scores = a @ b.t() / 0.07
        return F.cross_entropy(scores, torch.arange(len(a)))

    return Case(Net(body), (floats(4, 8), floats(4, 8)))


@case(GROUP)
def dict_arguments() -> Case:
    def body(self: Any, batch: dict[str, Tensor], flags: tuple[bool, int]) -> dict[str, Tensor]:
        x = batch["x"] * batch["mask"]
        for _ in range(flags[1]):
            x = self.blocks[0](x)
        return {"y": self.head(x), "mask": batch["mask"]}

    return Case(Net(body), ({"x": floats(2, 8), "mask": torch.ones(2, 1)}, (True, 2)))


@case(GROUP)
def frozen_backbone() -> Case:
    def body(self: Any, x: Tensor) -> Tensor:
        for block in self.blocks:
            x = block(x)
        print("features")
        return self.head(x)

    model = Net(body)
    model.blocks.requires_grad_(False)
    return Case(model, (floats(2, 8),))


@case(GROUP)
def low_rank_adapter() -> Case:
    class Adapted(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.base = nn.Linear(8, 8).requires_grad_(False)
            self.a, self.b = nn.Parameter(floats(8, 2)), nn.Parameter(torch.zeros(2, 8))

        def forward(self, x: Tensor) -> Tensor:
            return self.base(x) + F.dropout(x, 0.1, self.training) @ self.a @ self.b

    return Case(nn.Sequential(Adapted(), nn.ReLU(), Adapted()), (floats(2, 8),))


@case(GROUP)
def u_net() -> Case:
    class Unet(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.down = nn.ModuleList(
                [nn.Conv2d(1, 4, 3, padding=1), nn.Conv2d(4, 8, 3, padding=1)]
            )
            self.up = nn.ModuleList([nn.ConvTranspose2d(8, 4, 2, 2), nn.Conv2d(8, 1, 3, padding=1)])

        def forward(self, x: Tensor) -> Tensor:
            a = F.relu(self.down[0](x))
            b = F.relu(self.down[1](F.max_pool2d(a, 2)))
            c = F.interpolate(self.up[0](b), size=a.shape[-2:], mode="bilinear")
            return self.up[1](torch.cat([a, c], 1))

    return Case(Unet(), (floats(1, 1, 9, 9),))


@case(GROUP)
def neural_ode() -> Case:
    def body(self: Any, x: Tensor) -> Tensor:
        t, h = 0.0, 0.25
        while t < 1.0:
            k = torch.tanh(self.blocks[0](x))
            x = x + h * torch.tanh(self.blocks[0](x + h / 2 * k))
            t += h
        return self.head(x)

    return Case(Net(body), (floats(2, 8),))


@case(GROUP)
def pointer_network() -> Case:
    def body(self: Any, x: Tensor) -> Tensor:
        taken = torch.zeros(x.shape[0], dtype=torch.bool)
        order, state = [], x.mean(0)
        for _ in range(3):
            scores = (self.blocks[0](x) @ state).masked_fill(taken, -1e9)
            best = int(scores.argmax())
            taken = taken.clone()
            taken[best] = True
            state = x[best]
            order.append(scores.log_softmax(0)[best])
        return torch.stack(order).sum()

    return Case(Net(body), (floats(4, 8),))


@case(GROUP)
def tree_recursion() -> Case:
    def body(self: Any, x: Tensor) -> Tensor:
        def visit(low: int, high: int) -> Tensor:
            if high - low == 1:
                return x[low]
            middle = (low + high) // 2
            return torch.tanh(self.blocks[0](visit(low, middle) + visit(middle, high)))

        return self.head(visit(0, len(x)))

    return Case(Net(body), (floats(5, 8),))
