"""CUDA graphs that were requested but skipped."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from pytest_torchgraph import CaptureError, CudagraphSkip, Inductor, capture, watch

pytestmark = [pytest.mark.gpu, pytest.mark.filterwarnings(r"ignore:::torch")]


def double(x: Tensor) -> Tensor:
    return x * 2


def test_cudagraph_skip_has_reason_and_line() -> None:
    """The backend `cudagraphs` also gives a reason on the CPU; inductor gives one only on CUDA."""
    torch._dynamo.reset()
    with watch() as seen:
        torch.compile(double, backend="cudagraphs")(torch.ones(3))
    (skip,) = seen.cudagraph_skips
    assert isinstance(skip, CudagraphSkip)
    assert skip.reason.startswith("cpu device (")
    assert (skip.line, skip.code) == (double.__code__.co_firstlineno + 1, "return x * 2")
    assert skip.compile_id == "0/0"
    assert str(skip).endswith(f":{skip.line}: return x * 2\n{skip.reason}")


def test_cudagraph_skip_without_a_reason_is_listed() -> None:
    # A product, because inductor generates no C++ code for it.
    seen = capture(lambda x: x @ x, torch.ones(3, 3), via=Inductor(mode="reduce-overhead"))
    (skipped,) = seen.cudagraph_skips
    assert skipped.reason.startswith("torch gives no reason")
    assert seen.counters["inductor"]["cudagraph_skips"] == 1
    assert capture(double, torch.ones(3), via="aot").cudagraph_skips == ()


def test_assertion_on_a_capture_without_this_record_is_refused() -> None:
    with pytest.raises(CaptureError, match="CUDA graphs are not available on a capture via"):
        _ = capture(double, torch.ones(3), via="dispatch").cudagraph_skips
