"""A rank leaves nothing behind in torch or in the process, even after an error."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.distributed as dist
from torch import Tensor
from torch.distributed.device_mesh import DeviceMesh

from pytest_torchgraph import capture_ranks


def by_environment(mesh: DeviceMesh) -> tuple[Any, ...]:
    """Read the variables of `torchrun`, and change settings without restoring them."""
    first = os.environ["RANK"] == "0" and torch.get_default_dtype() == torch.float32
    numbers.append({name: int(os.environ[name]) for name in LAUNCHED})
    os.environ.update(RANK="7", MASTER_ADDR="nowhere")
    torch.set_default_dtype(torch.float64)
    torch.set_default_device("meta")
    torch.set_grad_enabled(False)
    return torch.relu if first else torch.sigmoid, (torch.ones(2, device="cpu"),)


LAUNCHED = ("RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE")
numbers: list[dict[str, int]] = []


def test_launcher_variables_and_defaults_are_restored(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("WORLD_SIZE", "1")
    monkeypatch.delenv("RANK", raising=False)
    before = dict(os.environ)
    numbers.clear()
    ranks = capture_ranks(by_environment, dp=2, via="dispatch")
    assert dict(os.environ) == before
    tensor = torch.empty(0)
    assert (tensor.dtype, str(tensor.device)) == (torch.float32, "cpu")
    assert torch.is_grad_enabled()
    assert numbers == [dict(zip(LAUNCHED, (rank, 2, rank, 2), strict=True)) for rank in (0, 1)]
    with pytest.raises(AssertionError, match=r"rank 1 .*compared with rank 0"):
        ranks.assert_same_graphs()


@pytest.mark.parametrize("where", ["build", "target"])
def test_interrupted_capture_ranks_leaves_nothing(where: str, tmp_path: Path) -> None:
    def build(mesh: DeviceMesh) -> tuple[Any, ...]:
        def step(x: Tensor) -> Tensor:
            raise KeyboardInterrupt

        return (step, (torch.ones(2),)) if where == "target" else step(torch.ones(2))

    before = torch.get_rng_state(), dict(os.environ), sys.excepthook
    with pytest.raises(KeyboardInterrupt) as error:
        capture_ranks(build, dp=2, via="dispatch")
    notes = getattr(error.value, "__notes__", [])[-1:]  # since Python 3.11
    assert notes in (["during the capture of rank 0 (dp=0)"], [])
    assert torch.equal(torch.get_rng_state(), before[0])
    assert (dict(os.environ), sys.excepthook) == before[1:]
    dist.init_process_group("gloo", f"file://{tmp_path}/store", rank=0, world_size=1)
    try:
        dist.all_reduce(torch.ones(2))
    finally:
        dist.destroy_process_group()
