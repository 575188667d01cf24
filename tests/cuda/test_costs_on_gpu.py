"""Bytes and FLOPs of a step on a GPU, against torch's allocator and torch's profiler."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import Tensor, nn

from pytest_torchgraph import capture

MIB = 2**20


def mlp() -> tuple[nn.Module, Tensor]:
    layers = [nn.Linear(1024, 1024), nn.GELU(), nn.Linear(1024, 1024), nn.Tanh()]
    return nn.Sequential(*layers, nn.Linear(1024, 1024)), torch.randn(2048, 1024)


class Attention(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.qkv, self.out = nn.Linear(512, 1536), nn.Linear(512, 512)

    def forward(self, x: Tensor) -> Tensor:
        q, k, v = (each.unflatten(-1, (8, 64)).transpose(1, 2) for each in self.qkv(x).chunk(3, -1))
        mixed = torch.softmax(q @ k.transpose(-1, -2) / 8, -1) @ v
        return self.out(mixed.transpose(1, 2).flatten(2))  # type: ignore[no-any-return]


MODELS: dict[str, Callable[[], tuple[nn.Module, Tensor]]] = {
    "mlp": mlp,
    "attention": lambda: (Attention(), torch.randn(4, 512, 512)),
    "norms": lambda: (
        nn.Sequential(nn.LayerNorm(1024), nn.ReLU(), nn.LayerNorm(1024)),
        torch.randn(4096, 1024),
    ),
}


@pytest.mark.parametrize("name", MODELS)
def test_peak_and_saved_bytes_are_those_of_the_allocator(name: str, cuda: torch.device) -> None:
    model, x = MODELS[name]()
    model, x = model.to(cuda), x.to(cuda)
    captured = capture(model, x, via="dispatch")
    loss = torch.linspace(0.5, 1.5, model(x).numel(), device=cuda).reshape(model(x).shape)
    model(x).backward(loss)  # the libraries' workspaces
    model.zero_grad(set_to_none=True)
    torch.cuda.synchronize()
    torch.cuda.reset_peak_memory_stats(cuda)
    before = torch.cuda.memory_allocated(cuda)
    y = model(x)
    saved = torch.cuda.memory_allocated(cuda) - before
    y.backward(loss)
    torch.cuda.synchronize()
    peak = torch.cuda.max_memory_allocated(cuda) - before
    # The output is alive as well after the forward; whether it is saved depends on the last op.
    own = y.numel() * y.element_size()
    assert captured.saved_bytes - MIB <= saved <= captured.saved_bytes + own + MIB
    assert captured.peak_bytes == pytest.approx(peak, rel=0.1)


@pytest.mark.parametrize("name", ["mlp", "attention"])
def test_flops_are_those_of_the_profiler(name: str, gpu: torch.device) -> None:
    model, x = MODELS[name]()
    model, x = model.to(gpu), x.to(gpu)
    captured = capture(model, x, via="dispatch", backward=False)
    with torch.profiler.profile(with_flops=True) as profile, torch.no_grad():
        model(x)
    products = {"aten::mm", "aten::addmm", "aten::bmm"}
    counted = sum(event.flops or 0 for event in profile.events() if event.name in products)
    assert captured.flops == counted > 0
