"""One rank of a world that is not there: torch's fake process group, and a mesh over it."""

from __future__ import annotations

import contextlib
import math
import sys
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING

import torch.distributed as dist

from .. import torch_private
from ..convert.process_groups import dimensions_named, dimensions_of_meshes
from ..errors import CaptureError

if TYPE_CHECKING:
    from torch.distributed.device_mesh import DeviceMesh


def refuse_other_group() -> None:
    """Refuse to work beside a process group of the user's.

    Raises:
        CaptureError: if there is one; it is left alone.
    """
    if dist.is_initialized():
        raise CaptureError(
            f"this process has a process group already (backend {dist.get_backend()!r}, rank "
            f"{dist.get_rank()} of {dist.get_world_size()}), and torch knows one at a time: call "
            "torch.distributed.destroy_process_group() before, or capture this rank alone with "
            "graph_capture"
        )


@contextlib.contextmanager
def fake_rank(rank: int, dimensions: Mapping[str, int], device: str) -> Iterator[DeviceMesh]:
    """The mesh as one rank sees it; its collectives do nothing.

    The process group ends with the block, also when the block raises, and what torch remembers of
    the mesh is forgotten.

    Args:
        rank: the number of the rank in the whole mesh.
        dimensions: the sizes of the mesh by the names of its dimensions, in order.
        device: type of the device of the mesh.
    """
    from torch.distributed.device_mesh import init_device_mesh

    store = torch_private.get("fake_store")()
    torch_private.forget_meshes()
    hook = sys.excepthook  # to which torch adds the rank
    try:
        dist.init_process_group(
            "fake", rank=rank, world_size=math.prod(dimensions.values()), store=store
        )
        mesh = init_device_mesh(
            device, tuple(dimensions.values()), mesh_dim_names=tuple(dimensions)
        )
        with dimensions_named(lambda: dimensions_of_meshes([mesh])):
            yield mesh
    finally:
        if dist.is_initialized():
            dist.destroy_process_group()
        sys.excepthook = hook
        torch_private.forget_meshes()


def coordinates(rank: int, dimensions: Mapping[str, int]) -> dict[str, int]:
    """Where a rank is in a mesh; the last dimension is the fastest."""
    found: dict[str, int] = {}
    for name, size in reversed(list(dimensions.items())):
        rank, found[name] = divmod(rank, size)
    return {name: found[name] for name in dimensions}
