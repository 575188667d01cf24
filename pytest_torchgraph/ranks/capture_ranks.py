"""`capture_ranks`: capture a model on several ranks, one after the other."""

from __future__ import annotations

import math
import traceback
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import torch

from .. import devices, torch_private
from ..api.capture import capture
from ..context import CONTEXT
from ..errors import CaptureError
from ..graph.checks import device_types
from ..graph.text import format_mesh
from ..mechanisms.step import RandomState, output_leaves
from ..torch_release import need_torch
from .fake_group import coordinates, fake_rank, refuse_other_group
from .ranks import Ranks

if TYPE_CHECKING:
    from torch.distributed.device_mesh import DeviceMesh

    from ..api.result import Capture


def capture_ranks(
    build: Callable[[DeviceMesh], tuple[Any, ...]],
    *,
    ranks: Sequence[int] | None = None,
    device: str | torch.device = "cpu",
    **mesh: Any,
) -> Ranks:
    """Capture a model on several simulated ranks, all in this process.

    Each rank gets torch's fake process group, whose collectives do nothing, and a device mesh over
    this group. `build` returns the model and the inputs of the rank. Every rank starts with the
    same random state, default dtype and default device, which are restored afterwards. The
    environment variables `RANK`, `WORLD_SIZE`, `LOCAL_RANK` and `LOCAL_WORLD_SIZE` are set as
    `torchrun` sets them.

    `capture_ranks(build, dp=2, tp=4)` captures the eight ranks of a two-dimensional mesh.

    Args:
        build: function that is called with the mesh, once for each rank. It returns
            `(target, args)` or `(target, args, kwargs)`, the arguments of `capture`.
        ranks: ranks to capture, e.g. `(0, 1, 1023)`. `None` captures all ranks of the mesh.
        device: device type of the mesh. torch must be able to use the device in this process. The
            process group is fake on every device.
        **mesh: mesh sizes by dimension name, in order. The names `via`, `loss_fn`, `backward` and
            `fake` are reserved: they are options of `capture`.

    Returns:
        The captures, in the order of `ranks`.

    Raises:
        TypeError: if no dimension is given, an option is unknown, a size is not an int, or `build`
            returns something else.
        ValueError: if a rank is not in the mesh, a size is below 1, or the device is unknown.
        CaptureError: as in `capture`, or if the device is absent, a rank runs nothing on the
            device, this process already has a process group (left untouched), `build` destroys the
            process group of the rank, or torch's fake group does not support an operation.
    """
    need_torch()
    dimensions, options = dimensions_and_options(mesh)
    device = device_type(device)
    ranks_to_capture = select_ranks(ranks, math.prod(dimensions.values()))
    if not callable(build):
        raise TypeError(f"build must be callable with a mesh, not {type(build).__name__}")
    if not torch.distributed.is_available():
        raise CaptureError("torch.distributed is not available: this torch was built without it")
    refuse_other_group()
    random = RandomState()
    captures: list[Capture] = []
    for rank in ranks_to_capture:
        try:
            random.restore()
            # `build` may change defaults.
            with torch_private.switches_restored(), torch_private.configs_restored():
                captures.append(_capture_rank(build, rank, dimensions, device, options))
        except Exception as error:
            _note_rank(error, rank, dimensions)
            raise
        finally:
            random.restore()
    captured_ranks = Ranks(captures, dimensions)
    CONTEXT.notify(captured_ranks)
    return captured_ranks


def _capture_rank(
    build: Callable[..., Any],
    rank: int,
    dimensions: Mapping[str, int],
    device: str,
    options: Mapping[str, Any],
) -> Capture:
    """Capture one rank. See `capture_ranks` for the arguments and exceptions."""
    with fake_rank(rank, dimensions, device) as mesh:
        # To notice that `build` replaces it.
        group = torch.distributed.group.WORLD
        try:
            target, args, kwargs = unpack_build_result(build(mesh))
            if torch.distributed.group.WORLD is not group:
                raise CaptureError(
                    "build(mesh) destroyed the process group, or created one in which this "
                    "process is not a rank of the mesh: remove that from build, because "
                    "graph_ranks creates and destroys the process group"
                )
            captured = capture(target, *args, **options, **kwargs)
        except Exception as error:
            _refuse_objects(error)
            _refuse_reducer(error)
            raise
        captured.finish_for_rank(rank)
        _refuse_other_device(captured, device)
        for leaf in output_leaves(captured.output):
            torch_private.wait(leaf)  # else torch warns when the process ends
        return captured


def _refuse_other_device(captured: Capture, device: str) -> None:
    """Reject a rank that runs on a different device than its mesh.

    Raises:
        CaptureError: if nothing runs on the requested accelerator.
    """
    captured_devices = device_types(captured.program)
    if device not in ("cpu", "meta") and device not in captured_devices:
        raise CaptureError(
            f"nothing on {device!r} was captured (only on "
            f"{', '.join(sorted(captured_devices)) or 'no device'}): create target and inputs on "
            "mesh.device_type in build(mesh)"
        )


def _refuse_objects(error: Exception) -> None:
    """Replace an error raised by a collective of Python objects; ignore other errors.

    Raises:
        CaptureError: if a collective of objects raised. The fake group leaves the receive buffer of
            such a collective uninitialized.
    """
    for frame, _ in traceback.walk_tb(error.__traceback__):
        name = frame.f_code.co_name
        is_torch_frame = frame.f_globals.get("__name__") == "torch.distributed.distributed_c10d"
        if is_torch_frame and name.endswith(("_object", "_object_list")):
            raise CaptureError(
                f"torch.distributed.{name} is not available in torch's fake process group, in "
                "which nothing arrives from other ranks: pass the objects to each rank in "
                "build(mesh), or run the test under torchrun with gloo and capture each rank with "
                "graph_capture"
            ) from error


def _refuse_reducer(error: Exception) -> None:
    """Replace an internal assertion of torch by a readable error; ignore other errors.

    Raises:
        CaptureError: if the reducer of DistributedDataParallel failed. The fake group returns
            nothing to the reducer.
    """
    if "expected the hook result is either a Tensor or a TensorList" in str(error):
        raise CaptureError(
            "the reducer of DistributedDataParallel is not available in torch's fake process "
            "group: register a communication hook written in Python that does not read the result "
            "of a future (see docs/howto/ranks.md), or run the test under torchrun with "
            "gloo and capture each rank with graph_capture"
        ) from None  # torch's assertion asks the user to report a bug, but this is not a bug


def _note_rank(error: Exception, rank: int, dimensions: Mapping[str, int]) -> None:
    """Add the rank to the message of an error."""
    add_note = getattr(error, "add_note", None)  # Python 3.11 or later
    if add_note is not None:
        position = format_mesh(coordinates(rank, dimensions))
        add_note(f"during the capture of rank {rank} ({position})")


OPTIONS = frozenset({"via", "loss_fn", "backward", "fake"})
"""Options of `capture` that `capture_ranks` passes on."""


def dimensions_and_options(mesh: Mapping[str, Any]) -> tuple[dict[str, int], dict[str, Any]]:
    """Split keyword arguments into mesh dimensions and options of `capture`.

    Raises:
        TypeError: if no dimension is given, an option is unknown, or a size is not an int.
        ValueError: if a size is below 1.
    """
    options: dict[str, Any] = {}
    dimensions: dict[str, int] = {}
    for name, size in mesh.items():
        if name in OPTIONS:
            options[name] = size
            continue
        if isinstance(size, bool) or not isinstance(size, int):
            raise TypeError(
                f"{name}={size!r} is neither a mesh dimension (int) nor a `graph_capture` option "
                f"({', '.join(sorted(OPTIONS))})"
            )
        if size < 1:
            raise ValueError(
                f"{name}={size} is not a valid size of a mesh dimension: pass an int of at least 1"
            )
        dimensions[name] = size
    if not dimensions:
        raise TypeError("missing mesh dimensions: pass their sizes, such as dp=2, tp=4")
    return dimensions, options


def device_type(device: Any) -> str:
    """Return the type of a device, after checking that the device is available.

    Raises:
        TypeError, CaptureError: see `devices.parse`. A device index is a TypeError.
        ValueError: if the device is unknown or has an index.
    """
    if isinstance(device, int):  # an index, which no mesh takes
        raise TypeError(
            f"device={device!r} is not a device: pass a device type, such as 'cpu' or 'cuda'"
        )
    parsed = devices.parse(device)
    if ":" in str(parsed):
        raise ValueError(
            f"device={str(parsed)!r} has an index: pass only the device type, "
            f"device={parsed.type!r}"
        )
    return parsed.type


def select_ranks(ranks: Iterable[int] | None, world: int) -> tuple[int, ...]:
    """Return the ranks to capture, after checking them.

    Raises:
        TypeError: if `ranks` is not a sequence of ints.
        ValueError: if `ranks` is empty, repeats a rank, or names a rank that is not in the mesh.
    """
    if ranks is None:
        return tuple(range(world))
    if not isinstance(ranks, Iterable):
        raise TypeError(
            f"ranks={ranks!r} is not a sequence of ranks: pass a sequence, such as ranks=(0, 7)"
        )
    selected = tuple(ranks)
    if not selected:
        raise ValueError("ranks=() captures nothing: pass at least one rank, or omit ranks")
    for rank in selected:
        if isinstance(rank, bool) or not isinstance(rank, int):
            raise TypeError(f"{rank!r} in ranks is not a rank: pass ints")
        if not 0 <= rank < world:
            raise ValueError(f"rank {rank} is out of range: the mesh has ranks 0 to {world - 1}")
    if len(set(selected)) < len(selected):
        raise ValueError(f"ranks={selected} contains a rank twice")
    return selected


def unpack_build_result(built: Any) -> tuple[Any, tuple[Any, ...], dict[str, Any]]:
    """Return the target, its positional arguments and its keyword arguments.

    Raises:
        TypeError: if `build` returned neither `(target, args)` nor `(target, args, kwargs)`.
    """
    if isinstance(built, tuple) and len(built) in (2, 3):
        target, args, *options = built
        kwargs = options[0] if options else {}
        if isinstance(args, tuple) and isinstance(kwargs, dict):
            return target, args, kwargs
    raise TypeError(
        f"build(mesh) returned {_describe_type(built)}, but must return (target, args) or (target, "
        "args, kwargs), with a tuple of args and a dict of kwargs. For example: return model, (x,)"
    )


def _describe_type(built: Any) -> str:
    """Return the type of a value; for a tuple, the types of its elements."""
    if isinstance(built, tuple):
        return f"({', '.join(type(element).__name__ for element in built)})"
    return type(built).__name__
