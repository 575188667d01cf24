"""A suite with `graph_device`: a case, and a stored graph, for each device."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch

pytest.importorskip("syrupy")

SUITE = """
import torch
from torch import nn


def test_step(graph_capture, graph_snapshot, graph_device):
    capture = graph_capture(nn.Linear(8, 8), torch.randn(2, 8), device=graph_device)
    assert capture == graph_snapshot
    capture.assert_op_counts({"aten.addmm": {graph_device.type: 1}})


def test_forgotten(graph_capture, graph_device):
    graph_capture(nn.Linear(8, 8), torch.randn(2, 8))
"""


def pytest_on(directory: Path, *words: str) -> str:
    """Run pytest in another process, and return its output."""
    root = str(Path(__file__).parents[2])
    path = os.pathsep.join([root, *filter(None, [os.environ.get("PYTHONPATH")])])
    command = [sys.executable, "-m", "pytest", "-ra", "-p", "no:cacheprovider", *words]
    environment = {**os.environ, "PYTHONPATH": path}
    result = subprocess.run(command, cwd=directory, env=environment, capture_output=True, text=True)
    return result.stdout + result.stderr


def test_each_device_has_its_stored_graph(gpu: torch.device, tmp_path: Path) -> None:
    (tmp_path / "pytest.ini").touch()
    (tmp_path / "test_suite.py").write_text(SUITE)
    devices = [*dict.fromkeys(["cpu", gpu.type])]
    option = f"--torchgraph-devices={','.join(devices)}"
    stored = tmp_path / "__snapshots__" / "test_suite"
    one = pytest_on(tmp_path, f"--torchgraph-devices={devices[-1]}", "--torchgraph-update")
    assert {path.name for path in stored.iterdir()} == {f"test_step[{devices[-1]}].tgraph"}, one
    pytest_on(tmp_path, option, "--torchgraph-update")
    assert {path.name for path in stored.iterdir()} == {
        f"test_step[{each}].tgraph" for each in devices
    }
    output = pytest_on(tmp_path, option)
    failed = len(devices) - 1  # on the GPU, the test that forgot `device=graph_device`
    expected = f"{failed} failed, {2 * len(devices) - failed} passed"
    assert expected.removeprefix("0 failed, ") in output, output


def test_a_missing_gpu_is_an_error_in_a_gpu_job(tmp_path: Path, gpu: torch.device) -> None:
    (tmp_path / "pytest.ini").touch()
    (tmp_path / "test_suite.py").write_text(SUITE)
    present = pytest_on(tmp_path, "--torchgraph-devices=cuda", "-k", "forgotten")
    assert ("1 failed" if gpu.type == "cuda" else "1 error") in present
