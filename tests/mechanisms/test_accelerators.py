"""State of devices other than the host: generators and autocast.

The test machine has only a CPU. A module with a generator stands in for a backend of torch, and
reports if it was used. Autocast needs no device, and is entered directly.
"""

from __future__ import annotations

from types import SimpleNamespace

import pytest
import torch
from torch import Tensor, nn

from pytest_torchgraph import capture
from pytest_torchgraph.mechanisms.step.saved_state import RandomState

pytestmark = pytest.mark.gpu


class Backend:
    """A device module with two devices and generators on the host."""

    def __init__(self, initialized: bool | None, available: bool = True):
        self.generators = [torch.Generator().manual_seed(number) for number in range(2)]
        self.started = bool(initialized)
        self.touched = False
        self.is_available = lambda: available
        if initialized is not None:
            self.is_initialized = lambda: self.started

    def device_count(self) -> int:
        return len(self.generators)

    def get_rng_state(self, device: int = 0) -> Tensor:
        self.touched = self.started = True
        return self.generators[device].get_state()

    def set_rng_state(self, state: Tensor, device: int = 0) -> None:
        self.generators[device].set_state(state)

    def draw(self) -> list[float]:
        return [torch.rand((), generator=each).item() for each in self.generators]


@pytest.mark.parametrize(
    ("kind", "initialized"),
    # The last is the name that a third party gives to torch's spare device type.
    [("cuda", True), ("xpu", True), ("mps", None), ("hpu", None), ("privateuseone", True)],
)
def test_generators_are_restored(
    monkeypatch: pytest.MonkeyPatch, kind: str, initialized: bool | None
) -> None:
    backend = Backend(initialized)
    monkeypatch.setattr(torch, kind, backend, raising=False)
    state = RandomState()
    drawn = backend.draw()
    assert backend.draw() != drawn
    state.restore()
    assert backend.draw() == drawn


def test_capture_restores_generators(monkeypatch: pytest.MonkeyPatch) -> None:
    backend = Backend(None)
    monkeypatch.setattr(torch, "mps", backend)

    def target(x: Tensor) -> Tensor:
        return x + backend.draw()[0]

    captured = capture(target, torch.ones(2), via="dispatch")
    first = backend.draw()[0]
    captured.assert_matches_eager()
    assert torch.equal(captured.output, torch.ones(2) + first)


@pytest.mark.parametrize(
    ("initialized", "available"), [(False, True), (None, False), (False, False)]
)
def test_unused_backend_is_not_initialized(
    monkeypatch: pytest.MonkeyPatch, initialized: bool | None, available: bool
) -> None:
    backend = Backend(initialized, available)
    monkeypatch.setattr(torch, "xpu", backend)
    RandomState().restore()
    assert not backend.touched


def test_a_module_without_generators(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch, "hpu", SimpleNamespace(is_available=lambda: True), raising=False)
    RandomState().restore()


class Seen(nn.Module):
    """Records the autocast state at each call."""

    def __init__(self, device: str):
        super().__init__()
        self.device = device
        self.calls: list[tuple[bool, torch.dtype]] = []

    def forward(self, x: Tensor) -> Tensor:
        state = torch.is_autocast_enabled(self.device), torch.get_autocast_dtype(self.device)
        self.calls.append(state)
        return x + 1


@pytest.mark.parametrize("device", ["cpu", "mps", "xla"])
def test_the_eager_run_has_the_autocast_of_the_capture(device: str) -> None:
    seen = Seen(device)
    with torch.autocast(device, torch.float16):
        captured = capture(seen, torch.ones(2), via="dispatch")
    captured.assert_matches_eager()
    assert set(seen.calls) == {(True, torch.float16)}
    assert not torch.is_autocast_enabled(device)


def test_eager_run_inside_autocast_uses_the_captures_autocast() -> None:
    seen = Seen("xpu")
    captured = capture(seen, torch.ones(2), via="dispatch")
    with torch.autocast("xpu", torch.float16):
        captured.assert_matches_eager()
    assert {enabled for enabled, _ in seen.calls} == {False}
