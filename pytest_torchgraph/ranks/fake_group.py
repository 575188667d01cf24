"""Simulate one rank: torch's fake process group, and a device mesh over it."""

from __future__ import annotations

import contextlib
import math
import os
import sys
from collections.abc import Iterator, Mapping
from contextvars import ContextVar
from typing import TYPE_CHECKING

import torch.distributed as dist

from .. import torch_private
from ..convert.process_groups import dimensions_named, dimensions_of_meshes
from ..errors import CaptureError
from ..isolation import variables_restored

if TYPE_CHECKING:
    from torch.distributed.device_mesh import DeviceMesh


_RUNNING: ContextVar[bool] = ContextVar("_RUNNING", default=False)
"""True while a process group opened by this module exists."""

_LAUNCHER_VARIABLES = ("RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE")
_ADDRESS_VARIABLES = ("MASTER_ADDR", "MASTER_PORT")


@contextlib.contextmanager
def _torchrun_variables(rank: int, world: int, device: str) -> Iterator[None]:
    """Set the environment variables of `torchrun`, and restore them afterwards.

    Without these variables, a model that reads `RANK` would be the same on each rank. All ranks run
    on one machine.
    """
    # On an accelerator, each rank sees one device only, as with torchrun --virtual-local-rank.
    local_rank = rank if device == "cpu" else 0
    values = map(str, (rank, world, local_rank, world))
    with variables_restored((*_LAUNCHER_VARIABLES, *_ADDRESS_VARIABLES)):
        os.environ.update(zip(_LAUNCHER_VARIABLES, values, strict=True))
        yield


def refuse_other_group() -> None:
    """Reject a process that already has a process group.

    Raises:
        CaptureError: if a process group exists. The group is left untouched.
    """
    if _RUNNING.get():
        raise CaptureError(
            "graph_ranks runs inside another graph_ranks, but torch has only one default process "
            "group. Run the two calls one after the other"
        )
    if dist.is_initialized():
        raise CaptureError(
            f"this process already has a process group (backend {dist.get_backend()!r}, rank "
            f"{dist.get_rank()} of {dist.get_world_size()}), and torch allows only one process "
            "group: call torch.distributed.destroy_process_group() first, or capture only this "
            "rank with graph_capture"
        )


@contextlib.contextmanager
def fake_rank(rank: int, dimensions: Mapping[str, int], device: str) -> Iterator[DeviceMesh]:
    """Yield a mesh as seen by one rank. Collectives over the mesh do nothing.

    On exit, also after an exception, the process group is destroyed, torch's cached meshes are
    cleared, and environment variables are restored.

    Args:
        rank: rank number in the whole mesh.
        dimensions: mesh sizes by dimension name, in order.
        device: device type of the mesh.
    """
    from torch.distributed.device_mesh import init_device_mesh

    store = torch_private.get("fake_store")()
    torch_private.forget_meshes()  # they belong to process groups that no longer exist
    hook = sys.excepthook  # init_process_group installs a hook that adds the rank
    world = math.prod(dimensions.values())
    token = _RUNNING.set(True)
    try:
        with _torchrun_variables(rank, world, device), _unpickling_refused():
            dist.init_process_group("fake", rank=rank, world_size=world, store=store)
            mesh = init_device_mesh(
                device, tuple(dimensions.values()), mesh_dim_names=tuple(dimensions)
            )
            with dimensions_named(lambda: dimensions_of_meshes([mesh])):
                yield mesh
    finally:
        _RUNNING.reset(token)
        if dist.is_initialized():
            dist.destroy_process_group()
        sys.excepthook = hook
        torch_private.forget_meshes()


def _unpickling_refused() -> contextlib.AbstractContextManager[None]:
    """Never unpickle memory that nobody wrote, which can end the process.

    In a collective of objects, the fake group leaves the receive buffers uninitialized.
    """
    unpickle = torch_private.get("received_object")

    def received(*args: object) -> object:
        # In `all_gather`, the fake group copies the tensor of this rank.
        if sys._getframe(1).f_code.co_name != "all_gather_object":
            raise RuntimeError("no object arrives in the fake process group")
        return unpickle(*args)

    return torch_private.replaced("received_object", received)


def coordinates(rank: int, dimensions: Mapping[str, int]) -> dict[str, int]:
    """Return the coordinates of a rank in a mesh. The last dimension varies fastest."""
    position: dict[str, int] = {}
    for name, size in reversed(list(dimensions.items())):
        rank, position[name] = divmod(rank, size)
    return {name: position[name] for name in dimensions}
