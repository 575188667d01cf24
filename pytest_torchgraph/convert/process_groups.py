"""Arguments of collectives: process groups and reductions.

The names that torch gives to groups are numbers. Functional collectives take the name of a group,
which only the op's schema distinguishes from other strings. c10d ops take the group itself.
"""

from __future__ import annotations

import contextlib
import functools
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextvars import ContextVar
from dataclasses import dataclass
from typing import Any

import torch
import torch.distributed

from .. import torch_private
from ..graph.model import Atom

GROUP_NAME = "group_name"
"""Schema argument that holds torch's name of a process group."""
_BOXED = "__torch__.torch.classes.c10d.ProcessGroup"
_REDUCTION = "__torch__.torch.classes.c10d.ReduceOp"

_RANK = "rank"
"""Argument of FSDP's ops that holds the number of the current rank."""
OWN_RANK = Atom("rank")
"""Placeholder for the number of the current rank."""


def is_marked(op: Any, argument: str) -> bool:
    """Return True if `mark_names` replaces the argument with this name."""
    return argument == GROUP_NAME or (argument == _RANK and op.namespace == "fsdp")


@dataclass(frozen=True, slots=True)
class GroupName:
    """Argument that holds torch's name of a process group."""

    name: str


def mark_names(
    op: Any, args: tuple[Any, ...], kwargs: dict[str, Any]
) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """Return the arguments of an op, with group names as `GroupName`.

    The rank number that FSDP's ops take becomes `OWN_RANK`, because the number differs on each rank
    while the model is the same.
    """
    if not isinstance(op, torch._ops.OpOverload | torch._ops.OpOverloadPacket):
        return args, kwargs
    positions = _positions(op)
    if not positions:
        return args, kwargs
    marked = [_marked(arg, positions.get(k)) for k, arg in enumerate(args)]
    names = set(positions.values())
    named = {key: _marked(arg, key if key in names else None) for key, arg in kwargs.items()}
    return tuple(marked), named


def name_of(value: Any) -> str | None:
    """Return torch's name of a process group, `None` for any other value."""
    if isinstance(value, GroupName):
        return value.name
    if not torch.distributed.is_available():
        return None
    kind = torch.distributed.ProcessGroup
    if isinstance(value, torch.ScriptObject) and str(value._type()) == _BOXED:
        value = kind.unbox(value)
    return str(value.group_name) if isinstance(value, kind) else None


_OF_MESH = re.compile(r"mesh_(?!default|dim_\d)(.+)", re.DOTALL)
"""torch's description of the group of a named mesh dimension."""

Dimensions = Callable[[], Mapping[str, str]]
"""Function that returns mesh dimension names, by torch's names of their groups."""

_dimensions: ContextVar[tuple[Dimensions, ...]] = ContextVar("_dimensions", default=())


@contextlib.contextmanager
def dimensions_named(names: Dimensions) -> Iterator[None]:
    """Name groups after mesh dimensions, for captures inside the context.

    Args:
        names: function that is called for each capture, because a mesh may be flattened at any
            time. If nested contexts disagree, the outer one wins.
    """
    token = _dimensions.set((*_dimensions.get(), names))
    try:
        yield
    finally:
        _dimensions.reset(token)


def dimensions_of_meshes(meshes: Iterable[Any]) -> dict[str, str]:
    """Return the dimensions of meshes and of flattened meshes, by torch's names of their groups."""
    # torch names the mesh dimension in a group's description only if it created the group for the
    # mesh. One-dimensional meshes, and meshes flattened to all ranks, use the group of all ranks.
    dimension_by_group: dict[str, str] = {}
    for mesh in meshes:
        for part in (mesh, *torch_private.flattened(mesh)):
            # With a world size of 1, all dimensions share a group. Name it after the innermost one.
            for name in reversed(part.mesh_dim_names or ()):
                dimension_by_group.setdefault(str(part.get_group(name).group_name), name)
    return dimension_by_group


def mesh_dimensions() -> dict[str, str]:
    """Return the mesh dimension of each group, by torch's name of the group.

    Dimensions of two meshes may share a name. If their groups have the same ranks, both groups get
    the name. Otherwise, only the group that `dimensions_named` names gets it.
    """
    if not (ranks := ranks_by_group()):
        return {}
    given_names: dict[str, str] = {}
    for read_names in _dimensions.get():
        for group, name in read_names().items():
            given_names.setdefault(group, name)
    all_names = dict(given_names)
    for process_group in torch_private.process_groups():
        match = _OF_MESH.fullmatch(getattr(process_group, "group_desc", ""))
        if match:
            all_names.setdefault(str(process_group.group_name), match[1])
    dimension_by_group: dict[str, str] = {}
    for group, name in all_names.items():
        # A name that a context gives is taken from any other group, unless the ranks are the same.
        names_by_group = given_names if name in given_names.values() else all_names
        same_name = [other for other, other_name in names_by_group.items() if other_name == name]
        if all(ranks.get(other) == ranks.get(group) for other in same_name):
            dimension_by_group[group] = name
    return dimension_by_group


def ranks_by_group() -> dict[str, tuple[int, ...]]:
    """Return the ranks of each process group, by torch's name of the group."""
    return {
        str(group.group_name): tuple(torch.distributed.get_process_group_ranks(group))
        for group in torch_private.process_groups()
    }


def reduction_of(value: Any) -> str | None:
    """Return the name of a reduction, e.g. `SUM`; `None` for any other value."""
    if not isinstance(value, torch.ScriptObject) or str(value._type()) != _REDUCTION:
        return None
    try:
        number = value.op()  # type: ignore[attr-defined]
    except AttributeError:  # before torch 2.10, the object has no op()
        return None
    return str(torch.distributed.ReduceOp.RedOpType(number).name)


def _marked(value: Any, name: str | None) -> Any:
    """Return an argument as `mark_names` does. `name` is its name in the schema if it is marked."""
    if name == GROUP_NAME and isinstance(value, str):
        return GroupName(value)
    return OWN_RANK if name == _RANK and isinstance(value, int) else value


@functools.lru_cache(maxsize=4096)
def _positions(op: torch._ops.OpOverload | torch._ops.OpOverloadPacket) -> dict[int, str]:
    """Return the positions where an op, or any overload of a packet, takes a group or a rank."""
    overloads: list[Any] = [op]
    if isinstance(op, torch._ops.OpOverloadPacket):
        overloads = [getattr(op, name) for name in op.overloads()]  # type: ignore[no-untyped-call]
    return {
        position: argument.name
        for overload in overloads
        for position, argument in enumerate(overload._schema.arguments)
        if is_marked(overload, argument.name)
    }
