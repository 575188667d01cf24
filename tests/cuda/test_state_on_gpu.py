"""A capture on a GPU leaves the state of the GPU and of the model as it was."""

from __future__ import annotations

import copy
import gc
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
from mechanisms.models import MECHANISMS
from torch import Tensor, nn

from pytest_torchgraph import capture, watch


class Model(nn.Module):
    """Draws random numbers, changes buffers, and raises if it is told to."""

    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Linear(16, 16)
        self.norm = nn.BatchNorm1d(16)
        self.drop = nn.Dropout(0.5)
        self.raises = False

    def forward(self, x: Tensor) -> Tensor:
        x = self.drop(self.norm(self.first(x)))
        if self.raises:
            raise ValueError("raised by the model")
        return x


def world(model: nn.Module) -> dict[str, Any]:
    """Return a copy of everything that a capture may change."""
    cuda = torch.cuda.is_available()
    backends = torch.backends
    return {
        "tensors": {key: value.clone() for key, value in model.state_dict().items()},
        "grads": {
            key: None if each.grad is None else each.grad.clone()
            for key, each in model.named_parameters()
        },
        "host": torch.get_rng_state(),
        "devices": torch.cuda.get_rng_state_all() if cuda else [],
        "stream": torch.cuda.current_stream() if cuda else None,
        "device": torch.cuda.current_device() if cuda else None,
        "autocast": [torch.is_autocast_enabled(kind) for kind in ("cpu", "cuda")],
        "dtypes": [torch.get_autocast_dtype(kind) for kind in ("cpu", "cuda")],
        "precision": [
            backends.cuda.matmul.allow_tf32,
            backends.cudnn.allow_tf32,
            backends.cudnn.benchmark,
            backends.cudnn.deterministic,
            backends.cuda.matmul.allow_fp16_reduced_precision_reduction,
            torch.get_float32_matmul_precision(),
            torch.are_deterministic_algorithms_enabled(),
        ],
        "attention": [
            backends.cuda.flash_sdp_enabled(),
            backends.cuda.mem_efficient_sdp_enabled(),
            backends.cuda.math_sdp_enabled(),
            backends.cuda.cudnn_sdp_enabled(),
        ],
        "syncs": torch.cuda.get_sync_debug_mode() if cuda else 0,
    }


def same(first: object, second: object) -> bool:
    if isinstance(first, Tensor):
        return isinstance(second, Tensor) and torch.equal(first, second)
    if isinstance(first, dict):
        assert isinstance(second, dict)
        return first.keys() == second.keys() and all(same(first[k], second[k]) for k in first)
    if isinstance(first, list):
        assert isinstance(second, list)
        return len(first) == len(second) and all(map(same, first, second))
    return first == second


@pytest.mark.parametrize("raises", [False, True])
@pytest.mark.parametrize("via", [via for via in MECHANISMS if via != "fx"])
def test_capture_restores_the_state(via: str, raises: bool, gpu: torch.device) -> None:
    model, x = Model().to(gpu), torch.randn(8, 16, device=gpu)
    model(x).sum().backward()  # gradients that are there already
    model.raises = raises
    before = world(model)
    if raises:
        with pytest.raises(Exception, match="raised by the model"):
            capture(model, x, via=via)
    else:
        capture(model, x, via=via)
    after = world(model)
    assert [key for key in before if not same(before[key], after[key])] == []


def test_random_draws_on_the_gpu_are_those_of_an_eager_run(gpu: torch.device) -> None:
    model, x = Model().to(gpu), torch.randn(8, 16, device=gpu)
    expected = copy.deepcopy(model)
    torch.manual_seed(7)
    captured = capture(model, x, via="dispatch")
    assert torch.equal(captured.output, expected(x))


@pytest.mark.parametrize("via", MECHANISMS)
def test_memory_is_freed(via: str, cuda: torch.device) -> None:
    model = nn.Sequential(nn.Linear(256, 256), nn.ReLU(), nn.Linear(256, 256)).to(cuda)
    x = torch.randn(64, 256, device=cuda)

    def used() -> int:
        gc.collect()
        return torch.cuda.memory_allocated(cuda)

    capture(model, x, via=via)  # libraries keep a workspace from their first call on
    gc.collect()
    before = used()
    for _ in range(3):
        captured = capture(model, x, via=via)
        assert captured.graphs
        del captured
    assert used() == before


def test_current_stream_is_used_and_kept(cuda: torch.device) -> None:
    stream = torch.cuda.Stream(cuda)
    seen = []

    def target(x: Tensor) -> Tensor:
        seen.append(torch.cuda.current_stream())
        return x * 2

    x = torch.ones(4, device=cuda)
    with torch.cuda.stream(stream):
        capture(target, x, via="dispatch").assert_matches_eager()
        assert torch.cuda.current_stream() == stream
    assert set(seen) == {stream}


def test_a_cuda_graph_works_before_and_after_a_capture(cuda: torch.device) -> None:
    model, x = nn.Linear(16, 16).to(cuda), torch.randn(4, 16, device=cuda)

    def recorded() -> tuple[torch.cuda.CUDAGraph, Tensor]:
        graph = torch.cuda.CUDAGraph()
        with torch.no_grad():
            model(x)
            torch.cuda.synchronize()
            with torch.cuda.graph(graph):
                y = model(x)
        return graph, y

    graph, y = recorded()
    expected = model(x).detach()
    for via in ("dispatch", "aot", "inductor"):
        capture(model, x, via=via)
        y.zero_()
        graph.replay()
        torch.testing.assert_close(y, expected)
        again, z = recorded()
        again.replay()
        torch.testing.assert_close(z, expected)


def test_out_of_memory_of_the_target_is_passed_on(cuda: torch.device) -> None:
    model = nn.Linear(16, 16).to(cuda)

    def target(x: Tensor) -> Tensor:
        return model(x) + torch.empty(2**46, device=cuda).sum()

    x = torch.randn(4, 16, device=cuda)
    for via in ("dispatch", "aot"):
        before = world(model)
        with pytest.raises(Exception, match="out of memory"):
            capture(target, x, via=via)
        assert same(before, world(model))
        capture(model, x, via=via).assert_matches_eager()


def test_a_watch_on_the_gpu_changes_nothing(gpu: torch.device) -> None:
    model, x = Model().to(gpu), torch.randn(8, 16, device=gpu)
    torch._dynamo.reset()
    compiled = torch.compile(model, backend="aot_eager")
    torch.manual_seed(3)
    expected = compiled(x)
    torch._dynamo.reset()
    torch.manual_seed(3)
    with watch() as seen:
        found = compiled(x)
    assert seen.graphs
    assert torch.equal(found, expected)


CHILD = """
import sys, torch
from torch import nn
from pytest_torchgraph import capture, CaptureError
x = torch.randn(4, 16)
capture(nn.Linear(16, 16), x)
assert not torch.cuda.is_initialized(), "a capture on the CPU started CUDA"
if sys.argv[1] == "hidden":
    try:
        capture(nn.Linear(16, 16), x, device="cuda")
    except CaptureError as error:
        print("refused:", error)
else:
    capture(nn.Linear(16, 16), x, device=sys.argv[1]).assert_matches_eager()
    print("captured on", torch.cuda.device_count())
"""


def child(tmp_path: Path, argument: str, **environment: str) -> subprocess.Popen[str]:
    script = tmp_path / "child.py"
    script.write_text(CHILD)
    root = str(Path(__file__).parents[2])
    path = os.pathsep.join([root, *filter(None, [os.environ.get("PYTHONPATH")])])
    return subprocess.Popen(
        [sys.executable, script, argument],
        env={**os.environ, "PYTHONPATH": path, **environment},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )


def test_hidden_devices_are_refused_and_the_process_lives(
    gpu: torch.device, tmp_path: Path
) -> None:
    process = child(tmp_path, "hidden", CUDA_VISIBLE_DEVICES="")
    output, _ = process.communicate()
    assert process.returncode == 0, output
    assert "refused:" in output


def test_two_processes_capture_at_once(gpu: torch.device, tmp_path: Path) -> None:
    visible = {"CUDA_VISIBLE_DEVICES": "0"} if gpu.type == "cuda" else {}
    processes = [child(tmp_path, str(gpu), **visible) for _ in range(2)]
    outputs = [process.communicate()[0] for process in processes]
    assert [process.returncode for process in processes] == [0, 0], outputs
    expected = "captured on 1" if gpu.type == "cuda" else "captured on 0"
    assert all(expected in output for output in outputs)


def test_no_context_is_left_on_other_devices(cuda: torch.device, tmp_path: Path) -> None:
    if torch.cuda.device_count() < 2:
        pytest.skip("one GPU")
    capture(nn.Linear(16, 16), torch.randn(4, 16), device=cuda)
    query = ["nvidia-smi", "--query-compute-apps=pid,gpu_bus_id", "--format=csv,noheader"]
    lines = subprocess.run(query, capture_output=True, text=True, check=True).stdout.splitlines()
    assert sum(line.startswith(f"{os.getpid()},") for line in lines) <= 1
