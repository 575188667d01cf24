"""Snapshots under `torchrun` with gloo: each rank has its own file."""

from __future__ import annotations

import textwrap
from pathlib import Path

import pytest
from ranks.launch import logs, torchrun

PROGRAM = """
import os

import pytest
import torch
import torch.distributed as dist
import torch.distributed._functional_collectives as functional
from torch.distributed.device_mesh import init_device_mesh

@pytest.fixture(scope="module")
def mesh():
    dist.init_process_group("gloo")
    yield init_device_mesh("cpu", (2,), mesh_dim_names=("tp",))
    dist.destroy_process_group()

def test_reduced(graph_capture, graph_snapshot, mesh):
    group, rank = mesh.get_group(), mesh.get_rank()

    def step(x):
        x = functional.all_reduce(x * 2, "sum", group)
        if rank == 0:
            x = x.relu()
        return x.sin() if str(rank) in os.environ.get("CHANGED", "") else x.cos()

    assert graph_capture(step, torch.ones(4), via="dispatch") == graph_snapshot
"""


@pytest.mark.slow
def test_each_rank_has_its_own_file(tmp_path: Path) -> None:
    (tmp_path / "test_gloo.py").write_text(textwrap.dedent(PROGRAM))
    home = tmp_path / "__snapshots__" / "test_gloo"
    names = [f"test_reduced@rank-{rank}-of-2.tgraph" for rank in (0, 1)]

    ran = torchrun(tmp_path, "--torchgraph-update")
    assert ran.returncode == 0, ran.stdout + ran.stderr
    assert sorted(path.name for path in home.iterdir()) == names
    texts = [(home / name).read_text() for name in names]
    assert ["aten.relu" in text for text in texts] == [True, False]
    assert all("_c10d_functional.all_reduce.default" in text for text in texts)

    ran = torchrun(tmp_path)
    assert ran.returncode == 0, ran.stdout + ran.stderr

    ran = torchrun(tmp_path, "--torchgraph-artifacts=art", CHANGED="1")
    assert ran.returncode != 0
    said = logs(tmp_path)
    assert "failed" not in said[0]  # torchrun may have ended it before it reported success
    assert f"file:    __snapshots__/test_gloo/{names[1]}" in said[1]
    assert "aten.cos -> aten.sin" in said[1]
    assert names[0] not in said[1]
    artifacts = [path.name for path in (tmp_path / "art").iterdir()]
    assert artifacts
    assert all("@rank-1-of-2." in name for name in artifacts)

    ran = torchrun(tmp_path, "--torchgraph-update", "--torchgraph-prune", CHANGED="0, 1")
    assert ran.returncode == 0, ran.stdout + ran.stderr
    assert sorted(path.name for path in home.iterdir()) == names
    for name, before in zip(names, texts, strict=True):
        after = (home / name).read_text()
        assert after == before.replace("aten.cos", "aten.sin").replace("%cos", "%sin")
