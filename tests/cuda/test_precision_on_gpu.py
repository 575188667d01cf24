"""What decides about kernels on a GPU: autocast, the backend of attention, the memory format."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.utils._python_dispatch import TorchDispatchMode

from pytest_torchgraph import capture

BACKENDS = {
    SDPBackend.FLASH_ATTENTION: "aten._scaled_dot_product_flash_attention.default",
    SDPBackend.EFFICIENT_ATTENTION: "aten._scaled_dot_product_efficient_attention.default",
    SDPBackend.CUDNN_ATTENTION: "aten._scaled_dot_product_cudnn_attention.default",
    SDPBackend.MATH: "",
}


class Ran(TorchDispatchMode):
    """Our account: the ops that ran, and the dtypes of the matrix products."""

    def __init__(self) -> None:
        super().__init__()
        self.ops: Counter[str] = Counter()
        self.products: Counter[str] = Counter()

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        output = func(*args, **(kwargs or {}))
        self.ops[str(func)] += 1
        if str(func) in ("aten.addmm.default", "aten.mm.default"):
            self.products[str(output.dtype).removeprefix("torch.")] += 1
        return output


@pytest.mark.parametrize("via", ["dispatch", "aot", "inductor"])
@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_autocast_decides_about_dtypes(via: str, dtype: torch.dtype, gpu: torch.device) -> None:
    model = nn.Sequential(nn.Linear(16, 16), nn.LayerNorm(16), nn.Linear(16, 4)).to(gpu)
    x = torch.randn(8, 16, device=gpu)
    with torch.autocast(gpu.type, dtype):
        with Ran() as ran:
            model(x)
        captured = capture(model, x, via=via)
    # Inductor computes in float32 between two products, where eager rounds to `dtype`.
    tolerance = 0.1 if via == "inductor" else None
    captured.assert_matches_eager(rtol=tolerance, atol=tolerance)
    name = str(dtype).removeprefix("torch.")
    assert ran.products == {name: 2}
    products = [*captured.forward.find("aten.addmm"), *captured.forward.find("aten.mm")]
    assert [node.result.dtype for node in products] == [name, name]  # type: ignore[union-attr]
    for tensor in model.parameters():
        assert tensor.dtype == torch.float32


@pytest.mark.parametrize("via", ["dispatch", "aot"])
@pytest.mark.parametrize("backend", BACKENDS, ids=lambda each: each.name)
def test_attention_is_that_of_the_chosen_backend(
    backend: SDPBackend, via: str, cuda: torch.device
) -> None:
    def attention(x: Tensor) -> Tensor:
        return nn.functional.scaled_dot_product_attention(x, x, x, is_causal=True)

    x = torch.randn(2, 4, 64, 64, device=cuda, dtype=torch.float16, requires_grad=True)
    with sdpa_kernel(backend):
        try:
            with Ran() as ran:
                attention(x)
        except RuntimeError as error:
            pytest.skip(f"this GPU: {error}")
        captured = capture(attention, x, via=via)
        captured.assert_matches_eager()
    ours = {op for op in captured.forward.op_counts if "scaled_dot_product" in op}
    assert ours == {op for op in ran.ops if "scaled_dot_product" in op}
    assert ours == ({BACKENDS[backend]} if BACKENDS[backend] else set())


@pytest.mark.parametrize("via", ["dispatch", "aot", "inductor"])
def test_channels_last_is_in_the_graph_and_matches_eager(via: str, gpu: torch.device) -> None:
    model: nn.Module = nn.Sequential(nn.Conv2d(3, 8, 3), nn.ReLU(), nn.Conv2d(8, 4, 3))
    model = model.to(gpu, memory_format=torch.channels_last)
    x = torch.randn(2, 3, 12, 12, device=gpu).to(memory_format=torch.channels_last)
    expected = model(x)
    assert expected.is_contiguous(memory_format=torch.channels_last)
    captured = capture(model, x, via=via)
    captured.assert_matches_eager()  # strides as well
    assert captured.output.stride() == expected.stride()
    assert len(captured.forward.find("aten.convolution")) == 2


def test_a_step_with_a_gradient_scaler(gpu: torch.device) -> None:
    model, x = nn.Linear(16, 4).to(gpu), torch.randn(8, 16, device=gpu)
    scaler = torch.amp.GradScaler(gpu.type, init_scale=1024.0)

    def step(x: Tensor) -> Tensor:
        with torch.autocast(gpu.type, torch.float16):
            loss = model(x).float().pow(2).mean()
        return scaler.scale(loss)

    expected = step(x)
    for via in ("dispatch", "aot"):
        captured = capture(step, x, via=via)
        captured.assert_matches_eager()
        torch.testing.assert_close(captured.output, expected)
        assert captured.backwards
    assert scaler.get_scale() == 1024.0
    assert model.weight.grad is None


def test_switch_for_tf32_is_that_of_the_caller(cuda: torch.device) -> None:
    """A capture uses torch's switches: with TF32 it equals an eager run with TF32."""
    model = nn.Conv2d(16, 16, 3).to(cuda)
    x = torch.randn(4, 16, 24, 24, device=cuda)
    before = torch.backends.cudnn.allow_tf32
    try:
        for allowed in (True, False):
            torch.backends.cudnn.allow_tf32 = allowed
            captured = capture(model, x, via="aot")
            captured.assert_matches_eager()
            assert torch.backends.cudnn.allow_tf32 is allowed
    finally:
        torch.backends.cudnn.allow_tf32 = before
