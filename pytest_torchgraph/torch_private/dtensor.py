"""Tensors that wrap other tensors, with their meshes and process groups.

An op on a `DTensor`, or on the pending result of a collective, is not recorded itself. The
wrapper's `__torch_dispatch__` turns it into ops on local tensors, and collectives.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import torch
from torch.utils._python_dispatch import is_traceable_wrapper_subclass

from .private_names import NAMES, get

_STANDING = {"dtensor_local": "DTensor", "pending_result": "AsyncCollectiveTensor"}
"""Names of the attributes that hold the inner tensor, with their classes."""


def stands_for_others(types: Iterable[type]) -> bool:
    """Return True if an argument type is a wrapper, which runs other ops instead of the op."""
    return any(_inner(kind) is not None for kind in types)


def local(tensor: torch.Tensor) -> torch.Tensor:
    """Return this rank's local tensor of a wrapper; other tensors are returned unchanged."""
    while (inner := _inner(type(tensor))) is not None:
        tensor = getattr(tensor, inner)
    return tensor


def _inner(kind: type) -> str | None:
    """Return the attribute that holds the inner tensor of a class; `None` for other classes."""
    if kind is torch.Tensor or kind is torch.nn.Parameter:
        return None
    # A class whose module is not imported has no tensors.
    for name, class_name in _STANDING.items():
        module, _, attribute = NAMES[name].path.partition(":")
        subclass = getattr(sys.modules.get(module), class_name, None)
        if subclass is not None and issubclass(kind, subclass):
            return attribute.rpartition(".")[2]
    return None


def is_mesh(value: Any) -> bool:
    """Return True for a device mesh, which torch passes into graphs as an opaque object."""
    real = getattr(value, "real_obj", None) if type(value).__name__ == "FakeScriptObject" else value
    mesh = getattr(sys.modules.get("torch.distributed.device_mesh"), "DeviceMesh", None)
    return mesh is not None and isinstance(real, mesh)


def meshes_of(tensors: Iterable[torch.Tensor]) -> list[Any]:
    """Return the distinct meshes of the `DTensor`s among the tensors."""
    dtensor: Any = getattr(sys.modules.get("torch.distributed.tensor"), "DTensor", None)
    if dtensor is None:
        return []
    meshes = [tensor.device_mesh for tensor in tensors if isinstance(tensor, dtensor)]
    return list({id(mesh): mesh for mesh in meshes}.values())


def flattened(mesh: Any) -> list[Any]:
    """Return the one-dimensional meshes that were flattened from dimensions of a mesh."""
    root = getattr(mesh, "_get_root_mesh", lambda: mesh)()
    meshes_by_name = getattr(root, "_flatten_mapping", None)
    if meshes_by_name is None:
        meshes_by_name = _shared_by_equal_meshes("root_to_flatten_mapping").get(mesh, {})
    return list(meshes_by_name.values())


def _shared_by_equal_meshes(name: str) -> dict[Any, Any]:
    """Return a table that torch keeps for all meshes, keyed by mesh; empty since torch 2.10."""
    module = sys.modules.get("torch.distributed.device_mesh")
    return getattr(getattr(module, "_mesh_resources", None), name, {})


def process_groups() -> list[Any]:
    """Return all process groups; empty if torch.distributed is not initialized."""
    distributed = sys.modules.get("torch.distributed")
    if distributed is None or not distributed.is_available() or not distributed.is_initialized():
        return []
    return list(get("process_groups"))


def forget_meshes() -> None:
    """Clear torch's mesh caches, which would reuse old process groups for an equal mesh."""
    for name in ("root_to_flatten_mapping", "flatten_name_to_root_dims", "child_to_root_mapping"):
        _shared_by_equal_meshes(name).clear()
    if "torch.distributed.tensor" not in sys.modules:
        return
    get("sharding_cache").cache_clear()
    get("transform_cache").cache_clear()
    redistribute = sys.modules["torch.distributed.tensor._redistribute"]
    getattr(redistribute, "_planner_cache", {}).clear()
    # The random number tracker of DTensors on an accelerator refers to the mesh.
    sys.modules["torch.distributed.tensor._random"]._rng_tracker = None  # type: ignore[attr-defined]
    # Since torch 2.11 part of the cache is in C++.
    getattr(torch._C, "_clear_DTensor_sharding_propagator_cache", lambda: None)()


def placement_types() -> tuple[type, ...]:
    """Return the base class of the placements of a `DTensor`; empty if it is not imported."""
    module = sys.modules.get("torch.distributed.tensor.placement_types")
    return () if module is None else (module.Placement,)


def subclass_of(tensor: Any) -> str:
    """Return the class of a tensor, with its constant metadata; "" for plain tensors.

    For example, `DTensor(S(0))` has other values than `DTensor(R)` with the same local tensor.
    """
    kind = type(tensor)
    if not issubclass(kind, torch.Tensor):
        return ""
    # A pending result and its inner tensor are one value. A fake tensor stands for a plain one. The
    # result of a nested tensor names its layout.
    plain = kind in (torch.Tensor, torch.nn.Parameter, torch.nn.Buffer) or _is_pending(tensor)
    if plain or kind.__module__.startswith(("torch._subclasses.", "torch.nested.")):
        return ""
    constants: Any = ()
    if hasattr(tensor, "placements"):
        constants = [str(placement) for placement in tensor.placements]
    elif is_traceable_wrapper_subclass(tensor):
        _, constants = tensor.__tensor_flatten__()
    return f"{kind.__name__}({', '.join(_constants(constants))})"


def _is_pending(tensor: Any) -> bool:
    """Return True for the pending result of a collective: a wrapper without placements."""
    return _inner(type(tensor)) is not None and not hasattr(tensor, "placements")


def _constants(value: Any) -> Iterator[str]:
    """Yield the plain values in the metadata of a wrapper."""
    if isinstance(value, Mapping):
        for key, item in value.items():
            yield from (f"{key}={constant}" for constant in _constants(item))
    elif isinstance(value, tuple | list):
        for item in value:
            yield from _constants(item)
    elif isinstance(value, float):
        yield f"{value:.5g}"
    elif isinstance(value, str | int | bool | torch.dtype | None):
        yield str(value)


def wait(tensor: torch.Tensor) -> torch.Tensor:
    """Wait for the collective if a tensor is its pending result. Return the tensor."""
    if _is_pending(tensor):
        return torch.ops._c10d_functional.wait_tensor(local(tensor))  # type: ignore[no-any-return]
    return tensor
