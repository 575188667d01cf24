"""Small models split over ranks, as `build` for `capture_ranks`.

The mesh has the dimensions `dp` and `tp`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
import torch.distributed as dist
import torch.distributed._functional_collectives as functional
from torch import Tensor, nn
from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.fsdp import fully_shard
from torch.distributed.tensor import DTensor, Replicate, Shard
from torch.distributed.tensor.parallel import (
    ColwiseParallel,
    PrepareModuleInput,
    RowwiseParallel,
    SequenceParallel,
    parallelize_module,
)

DIM = 8
ROWS = 4

Build = Callable[[DeviceMesh], tuple[Any, ...]]


class MLP(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.up = nn.Linear(DIM, 2 * DIM)
        self.down = nn.Linear(2 * DIM, DIM)

    def forward(self, x: Tensor) -> Tensor:
        return self.down(self.up(x).relu())


class Block(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(DIM)
        self.mlp = MLP()

    def forward(self, x: Tensor) -> Tensor:
        return x + self.mlp(self.norm(x))


def rows() -> Tensor:
    return torch.randn(ROWS, DIM, requires_grad=True)


def tensor_parallel(mesh: DeviceMesh) -> tuple[Any, ...]:
    """Split one matrix by columns and the next by rows: one all_reduce in each direction."""
    plan = {"up": ColwiseParallel(), "down": RowwiseParallel()}
    return parallelize_module(MLP(), mesh["tp"], plan), (rows(),)


class Broken(nn.Module):
    """A block that starts with a graph break, so it is compiled separately."""

    def __init__(self) -> None:
        super().__init__()
        self.mlp = MLP()

    def forward(self, x: Tensor) -> Tensor:
        torch._dynamo.graph_break()
        return self.mlp(x)


def broken_blocks(mesh: DeviceMesh) -> tuple[Any, ...]:
    """Blocks of one class share compiled code."""
    plan = {"*.mlp.up": ColwiseParallel(), "*.mlp.down": RowwiseParallel()}
    blocks = nn.Sequential(Broken(), Broken(), Broken(), Broken())
    return parallelize_module(blocks, mesh["tp"], plan), (rows(),)


class OnShards(nn.Module):
    """Takes the rows of this rank, and returns this rank's rows of the result."""

    def __init__(self, block: nn.Module, mesh: DeviceMesh):
        super().__init__()
        self.block = block
        self.mesh = mesh

    def forward(self, x: Tensor) -> Tensor:
        return self.block(DTensor.from_local(x, self.mesh, [Shard(0)])).to_local()


def sequence_parallel(mesh: DeviceMesh) -> tuple[Any, ...]:
    """Gather rows before the matrices, and scatter the results after them."""
    tp = mesh["tp"]
    plan = {
        "norm": SequenceParallel(sequence_dim=0),
        "mlp": PrepareModuleInput(
            input_layouts=Shard(0),  # type: ignore[arg-type]
            desired_input_layouts=Replicate(),  # type: ignore[arg-type]
        ),
        "mlp.up": ColwiseParallel(),
        "mlp.down": RowwiseParallel(output_layouts=Shard(0), use_local_output=False),
    }
    return OnShards(parallelize_module(Block(), tp, plan), tp), (rows(),)


def _sharded(mesh: DeviceMesh) -> tuple[Any, ...]:
    blocks = nn.Sequential(MLP(), MLP(), MLP())
    for block in blocks:
        fully_shard(block, mesh=mesh)
    return fully_shard(blocks, mesh=mesh), (torch.randn(ROWS, DIM),)


def fully_sharded(mesh: DeviceMesh) -> tuple[Any, ...]:
    """FSDP2: gather parameters for each block, and scatter gradients."""
    return _sharded(mesh["dp"])


def hybrid_sharded(mesh: DeviceMesh) -> tuple[Any, ...]:
    """HSDP: shard over `tp` and replicate over `dp`."""
    return _sharded(mesh)


def data_parallel(mesh: DeviceMesh) -> tuple[Any, ...]:
    """DDP with a Python hook in place of its reducer's all_reduce."""
    model = nn.parallel.DistributedDataParallel(MLP(), process_group=mesh.get_group("dp"))

    def hook(state, bucket):  # type: ignore[no-untyped-def]  # torch reads annotations as classes
        dist.all_reduce(bucket.buffer(), group=mesh.get_group("dp"))
        done: torch.futures.Future[Tensor] = torch.futures.Future()
        done.set_result(bucket.buffer())
        return done

    model.register_comm_hook(None, hook)
    return model, (torch.randn(ROWS, DIM),)


class Experts(nn.Module):
    """Sends rows to the ranks of their experts and back."""

    def __init__(self, group: dist.ProcessGroup):
        super().__init__()
        self.expert = nn.Linear(DIM, DIM)
        self.group = group
        self.splits = [ROWS // group.size()] * group.size()

    def sent(self, x: Tensor) -> Tensor:
        return functional.all_to_all_single_autograd(x, self.splits, self.splits, self.group)

    def forward(self, x: Tensor) -> Tensor:
        return self.sent(self.expert(self.sent(x)))


def experts(mesh: DeviceMesh) -> tuple[Any, ...]:
    return Experts(mesh.get_group("tp")), (rows(),)


_gather: Any = getattr(dist, "all_gather_single", dist.all_gather_into_tensor)
"""The function that does not warn in this release of torch."""


def in_place(mesh: DeviceMesh) -> tuple[Any, ...]:
    """c10d's in-place collectives."""
    group = mesh.get_group("tp")

    def step(x: Tensor) -> Tensor:
        y = x * 2
        dist.all_reduce(y, group=group)
        gathered = torch.empty(ROWS * group.size(), DIM)
        _gather(gathered, y, group=group)
        return gathered + 1

    return step, (torch.randn(ROWS, DIM),)


def coalesced(mesh: DeviceMesh) -> tuple[Any, ...]:
    """One collective for two tensors."""
    group = mesh.get_group("dp")

    def step(x: Tensor) -> Tensor:
        both = functional.all_reduce_coalesced([x * 2, x[:1] * 3], "sum", group)
        return both[0] + both[1]

    return step, (torch.randn(ROWS, DIM),)


def stages(mesh: DeviceMesh) -> tuple[Any, ...]:
    """A pipeline stage along `dp`. The first rank does not receive, the last rank does not send."""
    group = mesh.get_group("dp")
    number, last = mesh.get_local_rank("dp"), group.size() - 1
    layer = nn.Linear(DIM, DIM)

    def step(x: Tensor) -> Tensor:
        if number > 0:
            dist.recv(x, group=group, group_src=number - 1)
        y = layer(x)
        if number < last:
            dist.send(y, group=group, group_dst=number + 1)
        return y

    return step, (torch.randn(ROWS, DIM),)


def reduced(mesh: DeviceMesh) -> tuple[Any, ...]:
    """One all_reduce over `tp`, without a module."""
    group = mesh.get_group("tp")
    return lambda x: functional.all_reduce(x * 2, "sum", group) + 1, (torch.ones(4),)


MODELS: dict[str, Build] = {
    "tensor parallel": tensor_parallel,
    "sequence parallel": sequence_parallel,
    "fully sharded": fully_sharded,
    "hybrid sharded": hybrid_sharded,
    "data parallel": data_parallel,
    "experts": experts,
    "in place": in_place,
    "coalesced": coalesced,
}
