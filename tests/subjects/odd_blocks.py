"""Models with one odd block, made odd in 20 ways, with its place written before the first run."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from types import MethodType

import torch
from torch import Tensor, nn

ODD = 2
"""The number of the odd block among four."""


class Attention(nn.Module):
    def __init__(self, width: int = 16, heads: int = 2) -> None:
        super().__init__()
        self.qkv = nn.Linear(width, 3 * width)
        self.out = nn.Linear(width, width)
        self.heads = heads
        self.causal = False
        self.scale: float | None = None

    def forward(self, x: Tensor) -> Tensor:
        query, key, value = (
            part.unflatten(-1, (self.heads, -1)).transpose(1, 2)
            for part in self.qkv(x).chunk(3, -1)
        )
        mixed = nn.functional.scaled_dot_product_attention(
            query, key, value, is_causal=self.causal, scale=self.scale
        )
        return self.out(mixed.transpose(1, 2).flatten(2))  # type: ignore[no-any-return]


class Mlp(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.up = nn.Linear(16, 32)
        self.act: nn.Module = nn.GELU()
        self.down = nn.Linear(32, 16)

    def forward(self, x: Tensor) -> Tensor:
        return self.down(self.act(self.up(x)))  # type: ignore[no-any-return]


class Block(nn.Module):
    def __init__(self, number: int) -> None:
        super().__init__()
        self.norm1: nn.Module = nn.LayerNorm(16)
        self.attention = Attention()
        self.norm2: nn.Module = nn.LayerNorm(16)
        self.mlp: nn.Module = Mlp()
        self.drop = nn.Dropout(0.1)
        self.number = number
        self.factor = 1.0
        self.post_norm = False
        self.parallel = False
        self.skip = True

    def forward(self, x: Tensor) -> Tensor:
        if self.post_norm:
            x = self.norm1(x + self.attention(x) * self.factor)
            return self.norm2(x + self.drop(self.mlp(x)))  # type: ignore[no-any-return]
        if self.parallel:
            y = self.drop(self.mlp(self.norm1(x)))
            return x + self.attention(self.norm1(x)) * self.factor + y  # type: ignore[no-any-return]
        x = x + self.attention(self.norm1(x)) * self.factor
        y = self.drop(self.mlp(self.norm2(x)))
        return x + y if self.skip else y  # type: ignore[no-any-return]


class Net(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.embed = nn.Linear(16, 16)
        self.layers = nn.ModuleList(Block(number) for number in range(4))

    def forward(self, x: Tensor) -> Tensor:
        x = self.embed(x)
        for block in self.layers:
            x = block(x)
        return x


class OtherMlp(nn.Module):
    """Another class with a different computation."""

    def __init__(self) -> None:
        super().__init__()
        self.gate = nn.Linear(16, 32)
        self.up = nn.Linear(16, 32)
        self.down = nn.Linear(32, 16)

    def forward(self, x: Tensor) -> Tensor:
        return self.down(torch.nn.functional.silu(self.gate(x)) * self.up(x))  # type: ignore[no-any-return]


class CastNorm(nn.LayerNorm):
    def forward(self, input: Tensor) -> Tensor:
        wide = torch.nn.functional.layer_norm(input.double(), (16,))
        return wide.float() * self.weight + self.bias


@dataclass(frozen=True)
class Oddity:
    """A way in which a block differs.

    Attributes:
        plant: makes the block odd.
        module: the path below the block at which the finding is expected, "" for the block.
        backward: True if only the backward differs.
    """

    plant: Callable[[Block], object]
    module: str
    backward: bool = False


def _set(path: str, value: object) -> Callable[[Block], object]:
    owner, _, name = path.rpartition(".")
    return lambda block: setattr(block.get_submodule(owner), name, value)


def _wrapped(change: Callable[[Tensor], Tensor]) -> Callable[[Block], object]:
    """Add a hook that changes the result of the first half of the MLP."""
    return lambda block: block.mlp.get_submodule("up").register_forward_hook(
        lambda module, args, output: change(output)
    )


def _replaced(path: str, make: Callable[[], nn.Module]) -> Callable[[Block], object]:
    return lambda block: block.set_submodule(path, make())


def _double(block: Block) -> None:
    block.mlp.to(torch.float64)
    block.mlp.register_forward_pre_hook(lambda module, args: (args[0].double(),))
    block.mlp.register_forward_hook(lambda module, args, output: output.float())


def _other_forward(block: Block) -> None:
    def forward(self: Block, x: Tensor) -> Tensor:
        x = x + self.attention(self.norm1(x)) * self.factor
        return x + self.drop(self.mlp(self.norm2(x))).clone()  # type: ignore[no-any-return]

    block.forward = MethodType(forward, block)  # type: ignore[method-assign]


# The first half may be used for tuning, the second half may not.
ODDITIES: dict[str, Oddity] = {
    "dropout": Oddity(_set("drop.p", 0.3), "drop"),
    "eps": Oddity(_set("norm1.eps", 1e-6), "norm1"),
    "frozen weight": Oddity(
        lambda block: block.attention.out.weight.requires_grad_(False), "attention.out", True
    ),
    "hook": Oddity(_wrapped(lambda y: y * 1.0001), "mlp.up"),
    "dtype": Oddity(_double, "mlp"),
    "missing bias": Oddity(
        _replaced("mlp.down", lambda: nn.Linear(32, 16, bias=False)), "mlp.down"
    ),
    "order of norm": Oddity(_set("post_norm", True), ""),
    "cast": Oddity(_replaced("norm2", lambda: CastNorm(16)), "norm2"),
    "another class": Oddity(_replaced("mlp", OtherMlp), "mlp"),
    "activation": Oddity(_replaced("mlp.act", nn.ReLU), "mlp.act"),
    "no residual": Oddity(_set("skip", False), ""),
    "causal": Oddity(_set("attention.causal", True), "attention"),
    # -- not for tuning
    "another norm": Oddity(_replaced("norm1", lambda: nn.RMSNorm(16)), "norm1"),
    "wider": Oddity(
        lambda block: (
            block.set_submodule("mlp.up", nn.Linear(16, 64)),
            block.set_submodule("mlp.down", nn.Linear(64, 16)),
        ),
        "mlp",
    ),
    "clone": Oddity(_other_forward, ""),
    "identity for attention": Oddity(_replaced("attention", nn.Identity), "attention"),
    "detach": Oddity(_wrapped(lambda y: y.detach()), "mlp.up", True),
    "two layers for one": Oddity(
        _replaced("mlp.down", lambda: nn.Sequential(nn.Linear(32, 16), nn.Linear(16, 16))),
        "mlp.down",
    ),
    "parallel branches": Oddity(_set("parallel", True), ""),
    "contiguous": Oddity(
        _wrapped(lambda y: y.transpose(0, 1).contiguous().transpose(0, 1)), "mlp.up"
    ),
}
