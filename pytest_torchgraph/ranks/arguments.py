"""The arguments of `capture_ranks`, and what its `build` returns: checked, and read."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import torch

from .. import devices
from ..device_types import KNOWN
from ..errors import CaptureError

OPTIONS = frozenset({"via", "loss_fn", "backward", "fake"})
"""The options of `capture` that each capture takes."""


def dimensions_and_options(mesh: Mapping[str, Any]) -> tuple[dict[str, int], dict[str, Any]]:
    """The dimensions of the mesh, and the options of `capture`.

    Raises:
        TypeError: without a dimension, for another option, and for a size that is no int.
        ValueError: for a size below 1.
    """
    options = {name: value for name, value in mesh.items() if name in OPTIONS}
    dimensions: dict[str, int] = {}
    for name, size in mesh.items():
        if name in OPTIONS:
            continue
        if isinstance(size, bool) or not isinstance(size, int):
            raise TypeError(
                f"{name}={size!r} is no size of a mesh dimension, which is an int, and no option "
                f"of graph_capture that ranks take: {', '.join(sorted(OPTIONS))}"
            )
        if size < 1:
            raise ValueError(f"{name}={size}: a dimension of a mesh has at least one rank")
        dimensions[name] = size
    if not dimensions:
        raise TypeError("name the dimensions of the mesh and their sizes, as dp=2, tp=4")
    return dimensions, options


def device_type(device: str | torch.device) -> str:
    """The type of a device that is there.

    Raises:
        TypeError: for what is no device.
        ValueError: for an unknown one, and one with an index.
        CaptureError: for one that torch cannot use here.
    """
    if not isinstance(device, str | torch.device):
        raise TypeError(f"device={device!r} is no device: pass a type, as 'cpu' or 'cuda'")
    kind, _, index = str(device).partition(":")
    if kind not in KNOWN:
        raise ValueError(f"unknown device {str(device)!r}: choose from {', '.join(KNOWN)}")
    if index:
        raise ValueError(f"device={str(device)!r}: a mesh has a type of device, as {kind!r}")
    reason = devices.why_absent(torch.device(kind))
    if reason is not None:
        raise CaptureError(f"device {kind!r} is absent: {reason}")
    return kind


def chosen_ranks(ranks: Iterable[int] | None, world: int) -> tuple[int, ...]:
    """The ranks to capture.

    Raises:
        TypeError: for what is no sequence of numbers.
        ValueError: for none, one twice, and one that the mesh does not have.
    """
    if ranks is None:
        return tuple(range(world))
    if not isinstance(ranks, Iterable):
        raise TypeError(f"ranks={ranks!r} names no ranks: pass a sequence, as ranks=(0, 7)")
    chosen = tuple(ranks)
    if not chosen:
        raise ValueError("ranks=() captures nothing: name at least one rank, or leave it out")
    for rank in chosen:
        if isinstance(rank, bool) or not isinstance(rank, int):
            raise TypeError(f"ranks holds {rank!r}, which is no number of a rank")
        if not 0 <= rank < world:
            raise ValueError(f"there is no rank {rank}: the mesh has {world}, from 0 on")
    if len(set(chosen)) < len(chosen):
        raise ValueError(f"ranks={chosen} names a rank twice")
    return chosen


def what_was_built(made: Any) -> tuple[Any, tuple[Any, ...], dict[str, Any]]:
    """The target and its arguments.

    Raises:
        TypeError: for anything else.
    """
    if isinstance(made, tuple) and len(made) in (2, 3):
        target, args, *rest = made
        kwargs = rest[0] if rest else {}
        if isinstance(args, tuple) and isinstance(kwargs, dict):
            return target, args, kwargs
    raise TypeError(
        "build(mesh) must return (target, args) or (target, args, kwargs), where args is a tuple "
        f"and kwargs a dict, not {_form(made)}"
    )


def _form(made: Any) -> str:
    if isinstance(made, tuple):
        return f"a tuple of ({', '.join(type(each).__name__ for each in made)})"
    return type(made).__name__
