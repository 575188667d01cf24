"""`assert_matches_eager` reports the size of a difference, and whether it is rounding."""

from __future__ import annotations

import re
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from pytest_torchgraph import Capture, capture


class Rounding(nn.Module):
    """Like torchvision's lraspp: large gradients, and ops that AOTAutograd decomposes."""

    def __init__(self) -> None:
        super().__init__()
        self.conv = nn.Conv2d(3, 16, 3, padding=1, bias=False)
        self.norm = nn.BatchNorm2d(16)
        self.drop = nn.Dropout(0.2)
        self.head = nn.Conv2d(16, 10, 1)

    def forward(self, x: Tensor) -> Tensor:
        x = F.hardswish(self.norm(self.conv(x)))
        x = x * F.hardsigmoid(F.adaptive_avg_pool2d(x, 1))
        x = F.interpolate(self.drop(x), scale_factor=2.3, mode="bilinear", align_corners=False)
        return self.head(x)  # type: ignore[no-any-return]


def message(captured: Capture, **tolerance: Any) -> str:
    with pytest.raises(AssertionError) as failure:
        captured.assert_matches_eager(**tolerance)
    return str(failure.value)


@pytest.mark.slow("several captures and searches")
def test_rounding_is_named_with_a_tolerance_and_changes_no_state() -> None:
    torch.manual_seed(0)
    model, x = Rounding(), torch.randn(2, 3, 16, 16) * 100
    before = {name: value.clone() for name, value in model.state_dict().items()}
    captured = capture(model, x, loss_fn=lambda output: (output * 1e3).sum())
    state = torch.get_rng_state()
    text = message(captured)
    assert torch.equal(torch.get_rng_state(), state)
    for name, value in model.state_dict().items():
        assert value.dtype == before[name].dtype
        assert torch.equal(value, before[name])
    assert all(parameter.grad is None for parameter in model.parameters())
    assert re.search(
        r"Largest difference: \S+\. This is \S+ of the largest value \(\S+\), or \S+ times", text
    )
    assert re.search(
        r"the eager run is off by \S+, and the captured run is off by \S+: compiled code rounds",
        text,
    )
    advice = re.search(r"assert_matches_eager\(atol=(\S+)\)", text)
    assert advice is not None
    # The tolerance is for the first differing gradient. Others may differ by more.
    captured.assert_matches_eager(rtol=1e-3, atol=10 * float(advice[1]))


@pytest.mark.slow("compiles several models")
def test_tolerance_above_all_outputs_is_not_suggested() -> None:
    torch.manual_seed(0)
    model, x = Rounding(), torch.randn(2, 3, 16, 16) * 100
    text = message(capture(model, x, loss_fn=lambda output: (output * 1e6).sum()))
    assert "would exceed all outputs: scale the loss_fn" in text
    assert "assert_matches_eager(atol=" not in text


@pytest.mark.parametrize("via", ["dispatch", "export"])
def test_tolerance_is_not_suggested_without_compiled_code(via: str) -> None:
    class Off(nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            return x @ x.T

    torch.manual_seed(0)
    captured = capture(Off(), torch.randn(32, 32), via=via, backward=False)
    Off.forward = lambda self, x: (x.T.contiguous().T @ x.T) * (1 + 2e-5)  # type: ignore[method-assign]
    text = message(captured, rtol=0, atol=1e-7)
    assert "times the resolution of float32" in text
    assert "rounds in a different order" not in text
    assert "assert_matches_eager(atol=" not in text
    assert "To find the first op that differs, capture the same call via 'aot'" in text


def planted(x: Tensor, weight: Tensor) -> Tensor:
    y = x @ weight
    return y * 1.0005 if torch.compiler.is_compiling() else y


def test_a_planted_error_is_not_called_rounding() -> None:
    torch.manual_seed(0)
    text = message(capture(planted, torch.randn(32, 32), torch.randn(32, 32)))
    assert "more than a different rounding order explains." in text
    assert "rounds in a different order" not in text


@torch.library.custom_op("rounding::only_float32", mutates_args=())
def only_float32(x: Tensor) -> Tensor:
    if x.dtype is not torch.float32:
        raise TypeError("no kernel for it")
    return x * 2


@only_float32.register_fake
def _(x: Tensor) -> Tensor:
    return torch.empty_like(x)


def test_difference_that_cannot_run_in_float64_is_judged_by_size() -> None:
    torch.manual_seed(0)

    def target(x: Tensor, weight: Tensor) -> Tensor:
        return only_float32(planted(x, weight))

    text = message(capture(target, torch.randn(32, 32), torch.randn(32, 32)))
    assert "times the resolution of float32" in text
    assert "float64" not in text


def test_nonnumeric_difference_has_no_rounding_note() -> None:
    def target(x: Tensor) -> Tensor:
        return x > (1 if torch.compiler.is_compiling() else 0)

    text = message(capture(target, torch.ones(3)))
    assert "resolution" not in text


def test_rounding_judge_handles_in_place_arguments() -> None:
    def target(x: Tensor, weight: Tensor) -> Tensor:
        x.add_(1)
        x.relu_()
        return planted(x, weight)

    torch.manual_seed(0)
    text = message(capture(target, torch.randn(32, 32), torch.randn(32, 32)))
    assert "more than a different rounding order explains." in text
