"""Complex outputs that require grad have a backward, as in torch if a gradient is passed."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor, nn

from pytest_torchgraph import CaptureError, capture

pytestmark = pytest.mark.filterwarnings("ignore:Torchinductor does not support code generation")


class Spectrum(nn.Module):
    """A filter in the frequency domain."""

    def __init__(self, dtype: torch.dtype = torch.float32):
        super().__init__()
        self.weight = nn.Parameter(torch.linspace(0.5, 1, 5, dtype=dtype))

    def forward(self, x: Tensor) -> Tensor:
        return torch.fft.rfft(x) * self.weight


class Cut(Spectrum):
    def forward(self, x: Tensor) -> Tensor:
        return super().forward(x).detach()


def signal(dtype: torch.dtype = torch.float32) -> Tensor:
    return torch.linspace(-1, 1, 16, dtype=dtype).reshape(2, 8).sin()


@pytest.mark.parametrize(
    ("via", "backward"),
    [("dispatch", None), ("dispatch", True), ("aot", True), ("compiled_autograd", None)],
)
def test_complex_output_is_differentiated(via: str, backward: bool | None) -> None:
    captured = capture(Spectrum(), signal(), via=via, backward=backward)
    assert [graph.kind for graph in captured.graphs] == ["forward", "backward"]
    captured.assert_matches_eager()


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_the_gradient_that_flows_in_is_uniform_in_neither_part(dtype: torch.dtype) -> None:
    seen: list[Tensor] = []

    def target(x: Tensor) -> Tensor:
        y = torch.fft.rfft(x)
        y.register_hook(seen.append)
        return y * 1

    x = signal(dtype).requires_grad_()
    capture(target, x, via="dispatch")
    (grad,) = seen
    assert grad.is_complex()
    for part in (grad.real, grad.imag):
        assert part.unique().numel() == part.numel()
        assert part.count_nonzero() == part.numel()
    assert grad.real.flatten().tolist() != grad.imag.flatten().tolist()


class Rotated(nn.Module):
    """Has a complex parameter."""

    def __init__(self) -> None:
        super().__init__()
        self.turn = nn.Parameter(torch.polar(torch.ones(5), torch.linspace(0, 1, 5)))

    def forward(self, x: Tensor) -> Tensor:
        return torch.fft.rfft(x) * self.turn


def with_its_power(x: Tensor) -> dict[str, Tensor]:
    y = torch.fft.rfft(x)
    return {"spectrum": y, "power": y.abs()}


def with_a_complex_loss(x: Tensor) -> dict[str, Tensor]:
    y = torch.fft.rfft(x)
    return {"loss": y.sum(), "spectrum": y}


@pytest.mark.parametrize("via", ["dispatch", "aot"])
@pytest.mark.parametrize(
    ("target", "tangents"), [(with_its_power, 2), (with_a_complex_loss, 2), (Rotated(), 1)]
)
def test_each_output_has_a_tangent(target: Any, tangents: int, via: str) -> None:
    captured = capture(target, signal().requires_grad_(), via=via)
    captured.assert_matches_eager()
    assert len([node for node in captured.backward.inputs if node.op == "tangent"]) == tangents


@pytest.mark.parametrize("via", ["dispatch", "aot"])
def test_a_loss_of_a_complex_output(via: str) -> None:
    def power(y: Tensor) -> Tensor:
        return y.abs().square().sum()

    captured = capture(Spectrum(), signal(), via=via, loss_fn=power)
    captured.assert_matches_eager()
    (tangent,) = [node for node in captured.backward.inputs if node.op == "tangent"]
    assert tangent.result.dtype == "complex64"


def test_complex_loss_is_refused() -> None:
    with pytest.raises(CaptureError, match=r"real.*complex64"):
        capture(Spectrum(), signal(), loss_fn=torch.sum)


def test_complex_refusal_names_only_the_actual_reason() -> None:
    with pytest.raises(CaptureError, match="neither detached nor of an integer dtype"):
        capture(Cut(), signal(), via="dispatch", backward=True)
