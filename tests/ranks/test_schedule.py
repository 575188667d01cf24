"""Order and distance of collectives in the code that inductor generates."""

from __future__ import annotations

from typing import Any

import pytest
import torch
import torch._inductor.config as inductor_config
from ranks.parallel_models import DIM, MLP, ROWS, rows
from torch import Tensor, nn
from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, parallelize_module

from pytest_torchgraph import Capture, Inductor, capture_ranks

ops = torch.ops._c10d_functional


def captured(build: Any, **options: Any) -> Capture:
    via = Inductor(options=options, codegen=False)
    (rank_capture,) = capture_ranks(build, ranks=(1,), tp=2, via=via, backward=False)
    return rank_capture


class Branches(nn.Module):
    """Two independent parts."""

    def __init__(self) -> None:
        super().__init__()
        self.first = MLP()
        self.second = MLP()

    def forward(self, x: Tensor) -> Tensor:
        return self.first(x) * self.second(x)


def branches(mesh: DeviceMesh) -> tuple[Any, ...]:
    plan = {"*.up": ColwiseParallel(), "*.down": RowwiseParallel()}
    return parallelize_module(Branches(), mesh["tp"], plan), (rows().detach(),)


def gathers(mesh: DeviceMesh) -> tuple[Any, ...]:
    """Gather each argument, wait for both at the end, then all_reduce."""
    name = mesh.get_group("tp").group_name

    def step(x: Tensor, y: Tensor, w: Tensor) -> Tensor:
        first = ops.all_gather_into_tensor(x, 2, name)
        second = ops.all_gather_into_tensor(y, 2, name)
        product = x @ w
        both = ops.wait_tensor(first) @ w, ops.wait_tensor(second) @ w
        summed = ops.wait_tensor(ops.all_reduce(product, "sum", name))
        return both[0] + both[1], summed

    return step, (torch.randn(ROWS, DIM), torch.randn(ROWS, DIM), torch.randn(DIM, DIM))


def op_of(node: Any) -> str:
    """Return the op of a scheduler node that starts a collective or waits, or ""."""
    packet = getattr(getattr(node.node, "op_overload", None), "overloadpacket", "")
    return str(packet).rpartition(".")[2]


def waits_first(nodes: list[Any]) -> list[Any]:
    """Move each wait to directly after its collective, as a custom pass."""
    waits = [node for node in nodes if op_of(node) == "wait_tensor"]
    ordered: list[Any] = []
    for node in nodes:
        if op_of(node) != "wait_tensor":
            ordered.append(node)
        if op_of(node) == "all_reduce_":
            ordered.append(waits.pop(0))
    return [*ordered, *waits]


def ordered_by(*passes: Any) -> dict[str, Any]:
    """Return options that set the passes which reorder collectives."""
    options = {
        "reorder_for_compute_comm_overlap": True,
        "reorder_for_compute_comm_overlap_passes": list(passes),
    }
    later = "aten_distributed_optimizations.enable_simple_overlap"  # on by default in torch 2.15
    if later in inductor_config.get_config_copy():
        options[later] = False
    return options


@pytest.mark.slow("compiles many times")
def test_collectives_without_overlap_are_exposed() -> None:
    capture = captured(branches, **ordered_by(waits_first))
    assert [collective.distance for collective in capture.collectives] == [0, 0]
    with pytest.raises(AssertionError) as error:
        capture.assert_overlapped()
    first, why, *_ = str(error.value).splitlines()
    assert first == "exposed collectives: expected 0, found 2 of 2"
    assert why.strip() == "waited for immediately after it starts:"
    assert "  first.down  " in str(error.value)
    assert "parallel_models.py:" in str(error.value)


@pytest.mark.slow("compiles many times")
def test_gathers_in_one_bucket_are_one_collective() -> None:
    capture = captured(gathers)
    capture.assert_collectives({"all_gather": 2, "all_reduce": 1})
    capture.assert_overlapped("tp")
    bucketed = captured(gathers, bucket_all_gathers_fx="all")
    bucketed.assert_collectives({"all_gather": 1, "all_reduce": 1})
    sizes = [
        [collective.bytes for collective in one.collectives if collective.kind == "all_gather"]
        for one in (capture, bucketed)
    ]
    size = 2 * ROWS * DIM * 4
    assert sizes == [[size, size], [2 * size]]


def test_collective_order_follows_the_generated_code() -> None:
    """The graph has the opposite order: it starts the gather first, which is needed last."""

    def build(mesh: DeviceMesh) -> tuple[Any, ...]:
        name = mesh.get_group("tp").group_name

        def step(x: Tensor, y: Tensor, w: Tensor) -> Tensor:
            late = ops.all_gather_into_tensor(x, 2, name)
            early = ops.wait_tensor(ops.all_reduce(y @ w, "sum", name))
            return early @ w, ops.wait_tensor(late)

        return step, (torch.randn(ROWS, DIM), torch.randn(ROWS, DIM), torch.randn(DIM, DIM))

    def reverse(nodes: list[Any]) -> list[Any]:
        gather = next(node for node in nodes if op_of(node) == "all_gather_into_tensor")
        rest = [node for node in nodes if node is not gather]
        wait = max(k for k, node in enumerate(rest) if op_of(node) == "wait_tensor")
        return [*rest[:wait], gather, *rest[wait:]]

    kinds = [collective.kind for collective in captured(build).collectives]
    capture = captured(build, **ordered_by(reverse))
    assert kinds == ["all_gather", "all_reduce"]
    assert [collective.kind for collective in capture.collectives] == ["all_reduce", "all_gather"]
    assert [
        collective.kind for graph in capture.graphs for collective in graph.collectives
    ] == kinds
