"""Collectives recorded by a watch, under a process group created by the user."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
import torch.distributed as dist
from ranks.parallel_models import tensor_parallel
from torch import Tensor
from torch.distributed.device_mesh import DeviceMesh, init_device_mesh
from torch.testing._internal.distributed.fake_pg import FakeStore

from pytest_torchgraph import Capture, CaptureError, capture_ranks, watch

pytestmark = pytest.mark.filterwarnings("ignore:.torch.jit:DeprecationWarning")  # from inductor

ops = torch.ops._c10d_functional
SIZE = 8
FLOAT = 4


@pytest.fixture
def mesh() -> Iterator[DeviceMesh]:
    dist.init_process_group("fake", rank=1, world_size=4, store=FakeStore())
    try:
        yield init_device_mesh("cpu", (2, 2), mesh_dim_names=("dp", "tp"))
    finally:
        dist.destroy_process_group()


def split(mesh: DeviceMesh, *, early: bool = False) -> Callable[..., Tensor]:
    """Products, for which inductor uses a library, with two collectives between them."""
    tp, dp = (mesh.get_group(name).group_name for name in ("tp", "dp"))

    def step(x: Tensor, w: Tensor) -> Tensor:
        summed = ops.all_reduce(x @ w, "sum", tp)
        if early:
            summed = ops.wait_tensor(summed)
        other = x @ x
        first = (summed if early else ops.wait_tensor(summed)) @ other
        return ops.wait_tensor(ops.all_reduce(first, "sum", dp)) @ other

    return step


OVERLAPPING = {
    "reorder_for_compute_comm_overlap": True,
    "reorder_for_compute_comm_overlap_passes": ["sink_waits", "raise_comms"],
}


def watched(step: Callable[..., Tensor], backend: str, **options: Any) -> Capture:
    compiled = torch.compile(step, backend=backend, **options)
    with watch() as capture:
        compiled(torch.randn(SIZE, SIZE), torch.randn(SIZE, SIZE))
    return capture


@pytest.mark.slow("further cases; a few are in every run", unless=["inductor-options1"])
@pytest.mark.parametrize(
    ("backend", "options"), [("aot_eager", {}), ("inductor", {"options": OVERLAPPING})]
)
def test_collectives_of_watched_graphs(
    backend: str, options: dict[str, Any], mesh: DeviceMesh
) -> None:
    capture = watched(split(mesh), backend, **options)
    size = SIZE * SIZE * FLOAT
    found = [
        (collective.kind, collective.group, collective.bytes) for collective in capture.collectives
    ]
    assert found == [("all_reduce", "tp", size), ("all_reduce", "dp", size)]
    capture.assert_collectives({"all_reduce": 2}, bytes=2 * size)
    capture.assert_overlapped("tp")
    with pytest.raises(AssertionError, match="all_reduce: expected 1, found 2"):
        capture.assert_collectives({"all_reduce": 1})
    with pytest.raises(AssertionError, match=r"(?s)found 1 of 2\n.*after it starts:\n.*over dp"):
        capture.assert_overlapped()
    if backend == "aot_eager":
        early = watched(split(mesh, early=True), backend)
        with pytest.raises(AssertionError, match=r"\(group tp\): expected 0, found 1 of 1"):
            early.assert_overlapped("tp")


@pytest.mark.slow("the quick models are in every run")
def test_collectives_bucketed_by_inductor(mesh: DeviceMesh) -> None:
    """The watched graph has two gathers. Inductor puts them into one bucket."""
    name = mesh.get_group("tp").group_name

    def step(x: Tensor, y: Tensor) -> Tensor:
        first, second = (ops.all_gather_into_tensor(each, 2, name) for each in (x, y))
        return ops.wait_tensor(first) @ ops.wait_tensor(second).t()

    capture = watched(step, "inductor", options={"bucket_all_gathers_fx": "all"})
    capture.assert_collectives({"all_gather": 1}, bytes=2 * 2 * SIZE * SIZE * FLOAT)
    capture.at("aot").assert_collectives({"all_gather": 2})


def test_collectives_of_an_empty_watch_are_refused(mesh: DeviceMesh) -> None:
    step = split(mesh)
    with watch() as capture:
        step(torch.randn(SIZE, SIZE), torch.randn(SIZE, SIZE))
    with pytest.raises(AssertionError, match="no graph was compiled"):
        capture.assert_collectives({})
    with pytest.raises(AssertionError, match="no graph was compiled"):
        capture.assert_overlapped()
    with pytest.raises(AssertionError, match="no graph was compiled"):
        capture.collectives


@pytest.mark.slow("compiles many times")
def test_collectives_of_a_watch_inside_a_ranks_build() -> None:
    seen: list[Capture] = []

    def build(mesh: DeviceMesh) -> tuple[Any, ...]:
        seen.append(watched(split(mesh), "aot_eager"))
        return split(mesh), (torch.randn(SIZE, SIZE), torch.randn(SIZE, SIZE))

    ranks = capture_ranks(build, dp=2, tp=2, via="aot")
    for capture, rank in zip(seen, ranks, strict=True):
        assert [(collective.kind, collective.group) for collective in capture.collectives] == [
            (collective.kind, collective.group) for collective in rank.collectives
        ]


def test_collectives_at_a_graph_break_are_unknown(mesh: DeviceMesh) -> None:
    sent = torch.compiler.disable(split(mesh))

    def step(x: Tensor, w: Tensor) -> Tensor:
        return sent(x * 2, w).relu()

    capture = watched(step, "aot_eager")
    capture.assert_op_counts({"aten.relu": 1})
    for check in (lambda: capture.assert_collectives({}), capture.assert_overlapped):
        with pytest.raises(CaptureError, match="the communication is unknown"):
            check()


@pytest.mark.filterwarnings("ignore:The .grad attribute of a Tensor:UserWarning")
def test_collectives_of_a_dtensor_model(mesh: DeviceMesh) -> None:
    """Dynamo's graph has placements among its constants."""
    model, args = tensor_parallel(mesh)
    compiled = torch.compile(model, backend="aot_eager")
    with watch() as capture:
        compiled(*args).sum().backward()
    assert [
        (collective.kind, collective.group, collective.graph) for collective in capture.collectives
    ] == [
        ("all_reduce", "tp", "forward"),
        ("all_reduce", "tp", "backward"),
    ]
    with pytest.raises(AssertionError, match="all_reduce: expected 1, found 2"):
        capture.assert_collectives({"all_reduce": 1}, "tp")
