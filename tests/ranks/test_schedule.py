"""The order and the distance of collectives in the code that inductor writes, which really runs."""

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
    (made,) = capture_ranks(build, ranks=(1,), tp=2, via=via, backward=False)
    return made


class Branches(nn.Module):
    """Two parts that do not need each other's result."""

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
    """A gather of each argument, both waited for at the end; an all_reduce behind them."""
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
    """The op of what the scheduler has, "" for none: a start of a collective or a wait."""
    packet = getattr(getattr(node.node, "op_overload", None), "overloadpacket", "")
    return str(packet).rpartition(".")[2]


def waits_first(nodes: list[Any]) -> list[Any]:
    """A pass of one's own that brings each wait to its start."""
    waits = [node for node in nodes if op_of(node) == "wait_tensor"]
    ordered: list[Any] = []
    for node in nodes:
        if op_of(node) != "wait_tensor":
            ordered.append(node)
        if op_of(node) == "all_reduce_":
            ordered.append(waits.pop(0))
    return [*ordered, *waits]


def ordered_by(*passes: Any) -> dict[str, Any]:
    """Options by which inductor's last passes are these."""
    options = {
        "reorder_for_compute_comm_overlap": True,
        "reorder_for_compute_comm_overlap_passes": list(passes),
    }
    later = "aten_distributed_optimizations.enable_simple_overlap"  # on by default in torch 2.15
    if later in inductor_config.get_config_copy():
        options[later] = False
    return options


@pytest.mark.slow("compiles many times")
def test_waited_for_at_once() -> None:
    made = captured(branches, **ordered_by(waits_first))
    assert [each.distance for each in made.collectives] == [0, 0]
    with pytest.raises(AssertionError) as error:
        made.assert_overlapped()
    first, why, *_ = str(error.value).splitlines()
    assert first == "exposed collectives: expected 0, found 2 of 2"
    assert why.strip() == "waited for immediately after it starts:"
    assert "  first.down  " in str(error.value)
    assert "parallel_models.py:" in str(error.value)


@pytest.mark.slow("compiles many times")
def test_overlapped_where_inductor_reorders() -> None:
    made = captured(branches, **ordered_by("sink_waits", "raise_comms"))
    made.assert_overlapped(exposed=1)  # the last one has nothing behind it
    found = {each.module: each for each in made.collectives}
    assert set(found) == {"first.down", "second.down"}
    (overlapped,) = (each for each in made.collectives if each.overlap)
    assert "extern_kernels.addmm" in overlapped.overlap
    assert overlapped.distance == len(overlapped.overlap)


@pytest.mark.slow("compiles many times")
def test_gathers_in_one_bucket_are_one() -> None:
    made = captured(gathers)
    made.assert_collectives({"all_gather": 2, "all_reduce": 1})
    made.assert_overlapped("tp")
    bucketed = captured(gathers, bucket_all_gathers_fx="all")
    bucketed.assert_collectives({"all_gather": 1, "all_reduce": 1})
    sizes = [
        [each.bytes for each in one.collectives if each.kind == "all_gather"]
        for one in (made, bucketed)
    ]
    size = 2 * ROWS * DIM * 4
    assert sizes == [[size, size], [2 * size]]


def test_the_order_is_that_of_the_code() -> None:
    """The graph has it otherwise: a gather that is needed last is started first."""

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

    kinds = [each.kind for each in captured(build).collectives]
    made = captured(build, **ordered_by(reverse))
    assert kinds == ["all_gather", "all_reduce"]
    assert [each.kind for each in made.collectives] == ["all_reduce", "all_gather"]
    assert [each.kind for graph in made.graphs for each in graph.collectives] == kinds
