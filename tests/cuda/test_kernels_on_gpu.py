"""Triton kernels, CUDA graphs that were skipped, and a planted fault in a kernel."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest
import torch
import torch.fx
from torch import Tensor, nn
from torch._inductor import config

from pytest_torchgraph import Inductor, capture


def chain(x: Tensor) -> Tensor:
    return (torch.sin(x) * 2 + 1).relu()


def launched(function: Any, *args: Any) -> list[str]:
    """Return the kernels that ran on the GPU in a call, as the profiler names them."""
    function(*args)
    torch.cuda.synchronize()
    activities = [torch.profiler.ProfilerActivity.CUDA, torch.profiler.ProfilerActivity.CPU]
    with torch.profiler.profile(activities=activities) as profile:
        function(*args)
        torch.cuda.synchronize()
    return [
        event.name
        for event in profile.events()
        if event.device_type == torch.autograd.DeviceType.CUDA
    ]


def test_one_fused_triton_kernel(cuda: torch.device) -> None:
    x = torch.randn(64, 64, device=cuda)
    captured = capture(chain, x, via="inductor")
    (kernel,) = captured.kernels
    assert (kernel.kind, kernel.device, kernel.launches) == ("triton", "cuda", 1)
    assert {"aten.sin", "aten.mul", "aten.add", "aten.relu"} <= {*kernel.ops}
    assert "@triton.jit" in kernel.source
    captured.assert_kernel_count(1, extern=0, launches=1)
    captured.assert_matches_eager()
    torch._dynamo.reset()
    assert launched(torch.compile(chain), x) == [kernel.name]


def test_kernels_and_library_calls_of_a_step(cuda: torch.device) -> None:
    """Every Triton kernel that ran is in `kernels`, as often as it was launched."""
    model = nn.Sequential(nn.Linear(64, 64), nn.GELU(), nn.LayerNorm(64), nn.Linear(64, 8)).to(cuda)
    x = torch.randn(32, 64, device=cuda)
    captured = capture(model, x, via="inductor")
    ours = sorted(
        kernel.name
        for kernel in captured.kernels
        for _ in range(kernel.launches)
        if kernel.kind == "triton"
    )
    torch._dynamo.reset()
    compiled = torch.compile(model)

    def step(x: Tensor) -> None:
        loss = (compiled(x) * torch.linspace(0.5, 1.5, 8, device=cuda)).sum()
        loss.backward()

    ran = sorted(name for name in launched(step, x) if name.startswith("triton_"))
    # The loss of this test runs eagerly; the capture starts the backward at the output.
    assert ours == ran
    assert any(kernel.is_extern for kernel in captured.kernels)


def test_kernel_of_a_softmax_is_a_reduction(cuda: torch.device) -> None:
    x = torch.randn(32, 128, device=cuda)
    captured = capture(lambda x: torch.softmax(x * 2, -1), x, via="inductor")
    (kernel,) = captured.kernels
    assert "_softmax" in " ".join(kernel.ops) or "aten.amax" in kernel.ops
    assert kernel.name.startswith("triton_per_") or kernel.name.startswith("triton_red_")


def test_cudagraph_that_runs_is_not_skipped(cuda: torch.device) -> None:
    captured = capture(chain, torch.randn(8, device=cuda), via=Inductor(mode="reduce-overhead"))
    assert captured.cudagraph_skips == ()
    captured.assert_matches_eager()


def test_cudagraph_skip_has_torchs_reason(cuda: torch.device) -> None:
    def on_both(x: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
        return x * 2, y * 2

    x, y = torch.randn(8, device=cuda), torch.randn(8)
    captured = capture(on_both, x, y, via=Inductor(mode="reduce-overhead"))
    (skip,) = captured.cudagraph_skips
    assert "cpu" in skip.reason

    def writes(x: Tensor) -> Tensor:
        x.add_(1)
        return x * 2

    captured = capture(writes, x, via=Inductor(mode="reduce-overhead"))
    assert ["mutated" in skip.reason for skip in captured.cudagraph_skips] == [True]


def test_mode_max_autotune_lists_its_kernels(cuda: torch.device) -> None:
    a, b = (torch.randn(128, 128, device=cuda) for _ in range(2))
    captured = capture(lambda a, b: (a @ b).relu(), a, b, via=Inductor(mode="max-autotune"))
    assert captured.kernels
    captured.assert_matches_eager(rtol=1e-2, atol=1e-2)


@contextmanager
def planted(op: torch._ops.OpOverload) -> Iterator[None]:
    """Let inductor compute an op a little too large, in the kernels that it generates."""

    def add(graph: torch.fx.Graph) -> None:
        for node in [node for node in graph.nodes if node.target is op]:
            with graph.inserting_after(node):
                product = graph.call_function(torch.ops.aten.mul.Tensor, (node, 1.01))
            product.meta.update(node.meta)
            users = [user for user in node.users if user is not product]
            for user in users:
                user.replace_input_with(node, product)

    with config.patch(post_grad_custom_post_pass=add, fx_graph_cache=False):
        yield


def test_planted_fault_is_found(gpu: torch.device) -> None:
    model = nn.Sequential(nn.Linear(32, 32), nn.Sigmoid(), nn.Linear(32, 32), nn.Tanh()).to(gpu)
    x = torch.randn(16, 32, device=gpu)
    capture(model, x, via="inductor").assert_matches_eager(rtol=1e-3, atol=1e-4)
    with planted(torch.ops.aten.sigmoid.default):
        captured = capture(model, x, via="inductor")
        with pytest.raises(AssertionError, match="differs from the eager run") as raised:
            captured.assert_matches_eager(rtol=1e-3, atol=1e-4)
        difference = captured.first_difference(rtol=1e-3, atol=1e-4)
    assert "sigmoid" in str(raised.value)
    assert difference is not None
    assert "sigmoid" in str(difference)


def test_fault_in_a_kernel_of_the_user_is_found(cuda: torch.device) -> None:
    """A Triton kernel of the user's, as a custom op, with a fake implementation that is wrong."""
    triton = pytest.importorskip("triton")
    import triton.language as tl

    @triton.jit
    def double_kernel(source, target, n, size: tl.constexpr):  # type: ignore[no-untyped-def]
        at = tl.program_id(0) * size + tl.arange(0, size)
        value = tl.load(source + at, mask=at < n)
        tl.store(target + at, value * 2, mask=at < n)

    @torch.library.triton_op("torchgraph_gpu::double", mutates_args=())
    def double(x: Tensor) -> Tensor:
        y = torch.empty_like(x)
        grid = (triton.cdiv(x.numel(), 64),)
        torch.library.wrap_triton(double_kernel)[grid](x, y, x.numel(), size=64)
        return y

    x = torch.randn(100, device=cuda)
    captured = capture(lambda x: double(x) + 1, x, via="inductor")
    captured.assert_matches_eager()
    assert any("double" in kernel.name for kernel in captured.kernels)
    dispatched = capture(lambda x: double(x) + 1, x, via="dispatch")
    dispatched.assert_op_counts({"torchgraph_gpu.double": 1})
