"""`device=`: unknown and absent devices are refused, and never end the process."""

from __future__ import annotations

import subprocess
import sys
from typing import Any

import pytest
import torch
from torch import nn

from pytest_torchgraph import CaptureError, capture, capture_ranks

pytestmark = pytest.mark.gpu

WITHOUT_ACCELERATOR = pytest.mark.skipif(
    torch.accelerator.is_available(), reason="an accelerator is available"
)
ABSENT = ("cuda", "cuda:99", "mps", "xpu", "hpu", "xla", "vulkan", "privateuseone", 0, 7)


@pytest.mark.parametrize("device", ["nonsense", "", "cuda:-1", "cpu ", "CPU", -1])
@pytest.mark.parametrize("fake", [False, True])
def test_unknown_device_is_a_value_error(device: Any, fake: bool) -> None:
    with pytest.raises(ValueError, match=r"unknown device .*: choose from cpu, cuda, mps, "):
        capture(nn.Linear(4, 4), torch.ones(2, 4), via="dispatch", device=device, fake=fake)


@pytest.mark.parametrize("device", [1.5, True, b"cpu", [], torch.float32, torch.ones(1)])
def test_device_of_another_type_is_a_type_error(device: Any) -> None:
    with pytest.raises(TypeError, match=r"device must be a string, an int or a torch\.device, not"):
        capture(nn.Linear(4, 4), torch.ones(2, 4), device=device)
    with pytest.raises(TypeError, match="device"):
        capture_ranks(lambda mesh: (torch.relu, (torch.ones(2),)), tp=2, device=device)


@pytest.mark.slow("a process that imports torch; the next test is in every run")
@WITHOUT_ACCELERATOR
def test_absent_device_is_a_capture_error_also_with_fake_tensors() -> None:
    """In a process of its own, because torch ended it for a fake tensor that requires grad."""
    code = f"""
import torch
from pytest_torchgraph import CaptureError, capture
from pytest_torchgraph.api.capture import FAKEABLE, MECHANISMS

model, x = torch.nn.Linear(4, 4), torch.ones(2, 4)
for device in {ABSENT}:
    for via in MECHANISMS:
        for fake in (False, True):
            try:
                capture(model, x, via=via, device=device, fake=fake)
            except CaptureError as error:
                assert f"device {{device!r}} is not available: " in str(error), error
            else:
                raise AssertionError((device, via, fake))
with torch._subclasses.FakeTensorMode():
    leaf = torch.empty(4, device="cuda").requires_grad_()
for via in MECHANISMS:
    try:
        capture(lambda x: x * 2, leaf, via=via)
    except CaptureError as error:
        assert "an argument is a fake tensor on cuda" in str(error), error
    else:
        raise AssertionError(via)
"""
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert ran.returncode == 0, ran.stderr


@WITHOUT_ACCELERATOR
def test_absent_device_of_a_capture_or_ranks_is_a_capture_error() -> None:
    for device in ("cuda", "vulkan", "privateuseone"):
        missing = f"device '{device}' is not available: "
        with pytest.raises(CaptureError, match=missing):
            capture_ranks(lambda mesh: (torch.relu, (torch.ones(2),)), tp=2, device=device)
        with pytest.raises(CaptureError, match=missing):
            capture(nn.Linear(4, 4), torch.ones(2, 4), via="dispatch", device=device)
    with pytest.raises(ValueError, match="unknown device 'npu': choose from"):
        capture_ranks(lambda mesh: (torch.relu, (torch.ones(2),)), tp=2, device="npu")


@pytest.mark.parametrize("device", ["cpu", "cpu:0", "meta", torch.device("meta")])
@pytest.mark.parametrize("fake", [False, True])
def test_cpu_and_meta_work(device: Any, fake: bool) -> None:
    captured = capture(nn.Linear(4, 4), torch.ones(2, 4), via="dispatch", device=device, fake=fake)
    captured.assert_op_counts({"aten.addmm": 1})
