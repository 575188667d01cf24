"""Small models and functions, each with inputs, for comparing live graphs with their texts."""

from __future__ import annotations

import functools
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import torch
import torch.utils.checkpoint
from subjects import models
from torch import Tensor, nn


@dataclass
class Subject:
    """A target, its arguments and compile options."""

    target: Callable[..., Any]
    args: tuple[Any, ...] = ()
    kwargs: dict[str, Any] = field(default_factory=dict)
    options: dict[str, Any] = field(default_factory=dict)
    config: dict[str, Any] = field(default_factory=dict)


SUBJECTS: dict[str, Callable[[], Subject]] = {}


def subject(make: Callable[[], Subject]) -> Callable[[], Subject]:
    SUBJECTS[make.__name__] = make
    return make


def numbers(*shape: int, grad: bool = False) -> Tensor:
    count = int(torch.tensor(shape).prod())
    return torch.linspace(-1, 1, count).reshape(shape).requires_grad_(grad)


# -- models ----------------------------------------------------------------------------------------


@subject
def bert() -> Subject:
    found = models.SUBJECTS["bert"]()
    return Subject(found.model, kwargs=found.kwargs)


@subject
def batch_norm() -> Subject:
    found = models.SUBJECTS["residual_cnn"]()
    return Subject(found.model, found.args)


@subject
def dynamic_sizes() -> Subject:
    def function(x: Tensor, y: Tensor, n: int) -> Tensor:
        z = torch.cat([x, y]) * n
        half = z[: z.shape[0] // 2]
        return half.reshape(-1).new_zeros(z.shape[0] * 2 - 1, x.shape[1] + 1).sum() + half.sum()

    args = (numbers(4, 6, grad=True), numbers(8, 6), 3)
    return Subject(function, args, options={"dynamic": True})


# -- higher-order ops ------------------------------------------------------------------------------


@subject
def nested_cond() -> Subject:
    def inner(x: Tensor) -> Tensor:
        return torch.cond(x.mean() > 0, lambda x: x.exp(), lambda x: x.tanh(), (x,))

    def function(x: Tensor) -> Tensor:
        return torch.cond(x.sum() > 0, inner, lambda x: x.cos(), (x,))

    return Subject(function, (numbers(3, 4, grad=True),))


@subject
def while_loop() -> Subject:
    def function(i: Tensor, x: Tensor) -> Tensor:
        from torch._higher_order_ops.while_loop import while_loop as loop

        return loop(lambda i, x: i < 3, lambda i, x: (i + 1, x * 2), (i, x))[1]

    return Subject(function, (torch.tensor(0), numbers(3, 4)))


@subject
def checkpoint() -> Subject:
    class Checkpointed(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.block = nn.Sequential(nn.Linear(4, 4), nn.Dropout(0.3), nn.Tanh())
            self.head = nn.Linear(4, 2)

        def forward(self, x: Tensor) -> Tensor:
            x = torch.utils.checkpoint.checkpoint(self.block, x, use_reentrant=False)
            return self.head(x)

    torch.manual_seed(0)
    return Subject(Checkpointed(), (numbers(3, 4),))


@subject
def nested_compile_region() -> Subject:
    @torch.compiler.nested_compile_region
    def region(x: Tensor, y: Tensor) -> Tensor:
        return torch.sin(x) * y

    def function(x: Tensor, y: Tensor) -> Tensor:
        return region(region(x, y), y)

    return Subject(function, (numbers(4, grad=True), numbers(4)))


class Scaled(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, factor: float) -> Tensor:
        ctx.save_for_backward(x)
        ctx.factor = factor
        return x * factor

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, None]:
        (x,) = ctx.saved_tensors
        return grad * ctx.factor + x.sign(), None


@subject
def autograd_function() -> Subject:
    return Subject(lambda x: Scaled.apply(x.sin(), 2.5).cos(), (numbers(4, grad=True),))


@subject
def flex_attention() -> Subject:
    from torch.nn.attention.flex_attention import flex_attention as attend

    def score(score: Tensor, b: Tensor, h: Tensor, q: Tensor, k: Tensor) -> Tensor:
        return score + (q - k) * 0.5

    def function(x: Tensor) -> Tensor:
        return attend(x, x, x, score_mod=score)

    return Subject(function, (numbers(1, 1, 16, 8),))


@subject
def vmap_and_grad() -> Subject:
    def function(x: Tensor) -> Tensor:
        return torch.func.vmap(torch.func.grad(lambda row: row.sin().sum() * 2))(x)

    return Subject(function, (numbers(3, 4),))


# -- statements of unusual form --------------------------------------------------------------------

HOSTILE = ('it\'s "quoted" # no comment', "two\nlines;  x = y = None", "<class 'int'> \\ é \u2028")


@functools.cache
def hostile_op() -> Any:
    @torch.library.custom_op(
        "torchgraph_tests::described",
        mutates_args=(),
        schema="(Tensor x, str first, str[] names) -> Tensor",
    )
    def described(x: Tensor, first: str, names: list[str]) -> Tensor:
        return x.clone()

    @described.register_fake
    def _(x: Tensor, first: str, names: list[str]) -> Tensor:
        return torch.empty_like(x)

    return described


@functools.cache
def mutating_op() -> Any:
    @torch.library.custom_op("torchgraph_tests::doubled_into", mutates_args=("out",))
    def doubled_into(x: Tensor, out: Tensor) -> None:
        out.copy_(x * 2)

    @doubled_into.register_fake
    def _(x: Tensor, out: Tensor) -> None:
        return None

    return doubled_into


@subject
def hostile_strings() -> Subject:
    op = hostile_op()

    def function(x: Tensor) -> Tensor:
        return op(x, HOSTILE[0], list(HOSTILE[1:])) + 1

    return Subject(function, (numbers(4),))


@subject
def mutating_custom_op() -> Subject:
    op = mutating_op()

    def function(x: Tensor) -> Tensor:
        out = torch.zeros_like(x)
        view = out[:2]
        op(x, out)
        return view + x[:2]

    return Subject(function, (numbers(4),))


@subject
def in_place() -> Subject:
    def function(x: Tensor, y: Tensor) -> Tensor:
        x = x * 1
        x += 1
        x -= y
        x *= 2
        x /= 3.5
        x **= 2
        x[1] = y[0]
        x[:, 1] = 0.0
        x[0, ..., None] = y[0, :, None]
        x[x > 1] = -1.0
        view = x.view(-1)
        view.add_(1).clamp_(min=-2, max=2)
        y.mul_(2)
        return x.sum() + view[3] + y[-1].sum()

    return Subject(function, (numbers(3, 4, grad=True), numbers(3, 4)))


@subject
def integers_in_place() -> Subject:
    def function(x: Tensor) -> Tensor:
        x = x + 0
        x //= 2
        x %= 5
        x &= 3
        x |= 4
        x ^= 1
        x <<= 2
        x >>= 1
        return (~x) + (x << 1) + (x >> 1) + (x & 1) + (x | 8) + (x ^ 2) - (-x) + (x // 3) + x % 4

    return Subject(function, (torch.arange(6),))


@subject
def comparisons() -> Subject:
    def function(x: Tensor, y: Tensor) -> Tensor:
        found = (x < y) | (x > 0) & (x <= y) ^ (x >= 1) | (x == y) | (x != 2)
        return torch.where(found, 2**x, -x) @ y + (+x) - 1 / (3 - x)

    return Subject(function, (numbers(4, 4), numbers(4, 4)))


@subject
def strange_constants() -> Subject:
    def function(x: Tensor) -> Tensor:
        x = torch.where(x == float("nan"), float("inf"), x)
        x = torch.nan_to_num(x, nan=1e-30, posinf=float("inf"), neginf=-float("inf"))
        x = x.masked_fill(x > 0, -float("inf")).clamp(min=-1e30) * -0.0
        x = torch.full((2, 4), True, dtype=torch.bool).to(torch.float64) + x.double()
        return x.to(torch.complex64) * (1 - 2j) + complex(0.0, -1.5) - 3j

    return Subject(function, (numbers(2, 4),))


@subject
def tensor_constants() -> Subject:
    fixed = torch.tensor([1.0, 2.0, 3.0, 4.0])

    def function(x: Tensor) -> Tensor:
        return x * fixed + torch.tensor([4.0, 3.0, float("inf"), 1.0]) + torch.tensor(2)

    return Subject(function, (numbers(2, 4, grad=True),))


@subject
def several_outputs() -> Subject:
    def function(x: Tensor) -> tuple[Any, ...]:
        a, b = x.split(2, 1)
        values, indices = x.topk(2, dim=1)
        mean, deviation = torch.std_mean(a)
        q, _ = torch.linalg.qr(b)
        first, *rest = torch.unbind(x.sort(dim=1)[0])
        return {"a": values + mean, "b": (q, deviation)}, first + rest[0], indices, 3, x.shape

    return Subject(function, (numbers(3, 4, grad=True),))


@subject
def views() -> Subject:
    def function(x: Tensor) -> Tensor:
        y = x.t().unsqueeze(0).expand(2, -1, -1)[..., 1:, ::2]
        z = y.transpose(0, 1).reshape(-1).as_strided((2, 2), (1, 2), 1)
        return z.T.mT + y.shape[0] * x.narrow(0, 0, 2)[:, :2] + torch.movedim(z, 0, 1)

    return Subject(function, (numbers(4, 6, grad=True),))


@subject
def output_aliases_input() -> Subject:
    def function(x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        x.add_(1)
        return x, x.view(-1), x.sin()

    return Subject(function, (numbers(3, 4),))


@subject
def autocast() -> Subject:
    def function(x: Tensor, y: Tensor) -> Tensor:
        with torch.autocast("cpu", torch.bfloat16):
            z = x @ y
        with torch.no_grad():
            shift = y.sum()
        return z.float() + shift

    return Subject(function, (numbers(4, 4, grad=True), numbers(4, 4)))


@subject
def randomness() -> Subject:
    def function(x: Tensor) -> Tensor:
        x = nn.functional.dropout(x, 0.5, True) + torch.rand_like(x)
        y = torch.randn(3, 4, dtype=torch.float32, device="cpu", requires_grad=False)
        return torch.bernoulli(x.sigmoid()) + y + nn.functional.dropout(x, 0.5, False)

    return Subject(function, (numbers(3, 4),))


@subject
def devices_dtypes_layouts() -> Subject:
    def function(x: Tensor) -> Tensor:
        y = x.to(torch.device("cpu"), torch.float16, memory_format=torch.channels_last)
        z = torch.empty_strided(
            (2, 2), (1, 2), dtype=torch.int8, layout=torch.strided, device="cpu"
        )
        return y.type(torch.bfloat16).contiguous() + z.zero_().to(x)[0, 0]

    return Subject(function, (numbers(1, 2, 2, 2),))


@subject
def sizes_of_data() -> Subject:
    def function(x: Tensor) -> Tensor:
        return x.nonzero().sum() + x[x > 0].numel() + x.sum().item()

    config = {"capture_dynamic_output_shape_ops": True, "capture_scalar_outputs": True}
    return Subject(function, (numbers(3, 4),), config=config)


@subject
def local_function_in_graph() -> Subject:
    @torch._dynamo.allow_in_graph
    def twice(x: Tensor) -> Tensor:
        return x * 2

    return Subject(lambda x: twice(x).sin(), (numbers(4),))


@subject
def functions_of_the_standard_library() -> Subject:
    def function(x: Tensor, n: int) -> Tensor:
        return x * math_sqrt(n) + max(n, 3) + min(n, x.shape[0]) + len(x)

    return Subject(function, (numbers(4), 7), options={"dynamic": True})


def math_sqrt(n: int) -> float:
    import math

    return math.sqrt(n)


@subject
def index_put_and_checks() -> Subject:
    def function(x: Tensor) -> Tensor:
        torch._check(x.shape[0] > 1)
        return torch.ops.aten.index_put(x, [None, torch.tensor([0, 1])], x[:, :2] * 2)

    return Subject(function, (numbers(3, 4),))


@subject
def hooks() -> Subject:
    weight = numbers(3, 4, grad=True)
    weight.register_post_accumulate_grad_hook(lambda tensor: None)

    def function(x: Tensor) -> Tensor:
        y = x * weight
        y.register_hook(lambda grad: grad * 2)
        return y.sin()

    return Subject(function, (numbers(3, 4, grad=True),))
