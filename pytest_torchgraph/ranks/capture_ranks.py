"""The call that captures a model as several ranks see it, one after the other."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import torch

from .. import torch_private
from ..api import listeners
from ..api.capture import capture
from ..errors import CaptureError
from ..graph.text.ranks import format_mesh
from ..mechanisms.step.saved_state import RandomState
from ..mechanisms.step.step import output_leaves
from ..torch_release import need_torch
from .fake_group import coordinates, fake_rank, refuse_other_group
from .ranks import Ranks

if TYPE_CHECKING:
    from torch.distributed.device_mesh import DeviceMesh

    from ..api.result import Capture

OPTIONS = frozenset({"via", "loss_fn", "backward", "fake"})
"""The options of `capture` that each capture takes."""


def capture_ranks(
    build: Callable[[DeviceMesh], tuple[Any, ...]],
    *,
    ranks: Sequence[int] | None = None,
    device: str = "cpu",
    **mesh: Any,
) -> Ranks:
    """Capture a model as several ranks see it, in this process and without any other one.

    For each rank there is a fake process group (torch's own, whose collectives do nothing) and a
    device mesh over it; `build` makes what that rank runs. Each one begins with the same random
    numbers, and the generators are afterwards what they were.

    `capture_ranks(build, dp=2, tp=4)` captures the eight ranks of a mesh of two dimensions.

    Args:
        build: called with the mesh, once for each rank; returns `(target, args)` or `(target, args,
            kwargs)`, as `capture` takes them.
        ranks: the ranks to capture, as (0, 1, 1023); None for all of the mesh.
        device: type of the mesh's device. The group is a fake one there as well.
        **mesh: the sizes of the mesh by the names of its dimensions, in order; besides, options of
            `capture`: `via`, `loss_fn`, `backward`, `fake`, which are no names of dimensions.

    Returns:
        The captures, in the order of `ranks`.

    Raises:
        TypeError: without a dimension, for another option, for a size that is no int, and where
            `build` returns something else.
        ValueError: for a rank that the mesh does not have, and a size below 1.
        CaptureError: as `capture`; where this process has a process group, which is left alone; and
            where `build` ends that of the rank.
    """
    need_torch()
    dimensions, options = _split(mesh)
    chosen = _chosen(ranks, math.prod(dimensions.values()))
    if not callable(build):
        raise TypeError(f"build must be callable with a mesh, not {type(build).__name__}")
    if not torch.distributed.is_available():
        raise CaptureError("this torch was built without torch.distributed, which has the groups")
    refuse_other_group()
    random = RandomState()
    captures: list[Capture] = []
    for rank in chosen:
        random.restore()
        try:
            captures.append(_of_rank(build, rank, dimensions, device, options))
        except Exception as error:
            _note_rank(error, rank, dimensions)
            raise
        finally:
            random.restore()
    made = Ranks(captures, dimensions)
    listeners.notify(made)
    return made


def _of_rank(
    build: Callable[..., Any],
    rank: int,
    dimensions: Mapping[str, int],
    device: str,
    options: Mapping[str, Any],
) -> Capture:
    with fake_rank(rank, dimensions, device) as mesh:
        target, args, kwargs = _built(build(mesh))
        if not torch.distributed.is_initialized():
            raise CaptureError(
                "build(mesh) ended the process group, so that nothing could communicate: leave it "
                "to graph_ranks, which ends it behind each rank"
            )
        try:
            made = capture(target, *args, **options, **kwargs)
        except RuntimeError as error:
            _refuse_reducer(error)
            raise
        made.settle(rank)
        for leaf in output_leaves(made.output):
            torch_private.wait(leaf)  # else torch warns when the process ends
        return made


def _refuse_reducer(error: RuntimeError) -> None:
    """Say what an internal assertion of torch's means; nothing for any other error.

    Raises:
        CaptureError: for the reducer of DistributedDataParallel, to which the fake group gives
            nothing back.
    """
    if "expected the hook result is either a Tensor or a TensorList" in str(error):
        raise CaptureError(
            "the reducer of DistributedDataParallel does not run under torch's fake process group: "
            "register a communication hook that is written in Python and does not read the result "
            "of a future, or run the test under torchrun with gloo and capture each rank with "
            "graph_capture"
        ) from error


def _split(mesh: Mapping[str, Any]) -> tuple[dict[str, int], dict[str, Any]]:
    """The dimensions of the mesh, and the options of `capture`."""
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


def _chosen(ranks: Sequence[int] | None, world: int) -> tuple[int, ...]:
    if ranks is None:
        return tuple(range(world))
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


def _built(made: Any) -> tuple[Any, tuple[Any, ...], dict[str, Any]]:
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


def _note_rank(error: Exception, rank: int, dimensions: Mapping[str, int]) -> None:
    """Say in an exception which rank it came from, where Python can (from 3.11 on)."""
    add_note = getattr(error, "add_note", None)
    if add_note is not None:
        at = format_mesh(coordinates(rank, dimensions))
        add_note(f"while rank {rank} ({at}) was captured")
