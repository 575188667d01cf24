"""What collectives are given: process groups, by torch's names, which count them, and reductions.

Functional collectives are given the name, which only the op's schema tells from any other text; the
ops of c10d are given the group itself.
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
"""The argument of an op, by its schema, that is torch's name of a process group."""
_BOXED = "__torch__.torch.classes.c10d.ProcessGroup"
_REDUCTION = "__torch__.torch.classes.c10d.ReduceOp"


_RANK = "rank"
"""The argument of FSDP's ops that is the number of the rank itself."""
OWN_RANK = Atom("rank")
"""What stands for the number of the rank itself."""


def is_marked(op: Any, argument: str) -> bool:
    """Whether an argument of an op is one that `mark_names` marks, by its name."""
    return argument == GROUP_NAME or (argument == _RANK and op.namespace == "fsdp")


@dataclass(frozen=True, slots=True)
class GroupName:
    """An argument that is torch's name of a process group."""

    name: str


def mark_names(
    op: Any, args: tuple[Any, ...], kwargs: dict[str, Any]
) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """The arguments of an op, with a `GroupName` where a text names a group.

    The number of the rank itself, which FSDP's ops take, becomes `OWN_RANK`: it is another one on
    each rank, and says nothing about the model.
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
    """torch's name of the process group that a value is; None for any other value."""
    if isinstance(value, GroupName):
        return value.name
    if not torch.distributed.is_available():
        return None
    kind = torch.distributed.ProcessGroup
    if isinstance(value, torch.ScriptObject) and str(value._type()) == _BOXED:
        value = kind.unbox(value)
    return str(value.group_name) if isinstance(value, kind) else None


_OF_MESH = re.compile(r"mesh_(?!default|dim_\d)(.+)", re.DOTALL)
"""How torch describes the group of a named dimension of a mesh."""

Dimensions = Callable[[], Mapping[str, str]]
"""Gives the dimensions of meshes, by torch's names of the groups that are for them."""

_dimensions: ContextVar[tuple[Dimensions, ...]] = ContextVar("_dimensions", default=())


@contextlib.contextmanager
def dimensions_named(names: Dimensions) -> Iterator[None]:
    """Name groups after dimensions of meshes for the captures inside.

    Args:
        names: is called for each capture, since a mesh may be flattened at any time. Where it
            disagrees with one that was given before, that one holds.
    """
    token = _dimensions.set((*_dimensions.get(), names))
    try:
        yield
    finally:
        _dimensions.reset(token)


def dimensions_of_meshes(meshes: Iterable[Any]) -> dict[str, str]:
    """The dimensions of meshes, by torch's names of their groups; also those made by flattening.

    torch describes a group as that of a dimension only where it made the group for the mesh: a mesh
    of one dimension, and one that is flattened to all ranks, has the group of all ranks.
    """
    found: dict[str, str] = {}
    for mesh in meshes:
        for part in (mesh, *torch_private.flattened(mesh)):
            # In a world of one all dimensions have one group, which has the name of the innermost.
            for name in reversed(part.mesh_dim_names or ()):
                found.setdefault(str(part.get_group(name).group_name), name)
    return found


def mesh_dimensions() -> dict[str, str]:
    """The dimension of a mesh that a group is for, by torch's name of the group.

    Two meshes may have dimensions of one name. Where the groups of both have the same ranks, both
    have the name; else that of the mesh which was named (`dimensions_named`), and of others none.
    """
    if not (ranks := members()):
        return {}
    named: dict[str, str] = {}
    for names in _dimensions.get():
        for group, name in names().items():
            named.setdefault(group, name)
    described = dict(named)
    for each in torch_private.process_groups():
        text = _OF_MESH.fullmatch(getattr(each, "group_desc", ""))
        if text:
            described.setdefault(str(each.group_name), text[1])
    found: dict[str, str] = {}
    for group, name in described.items():
        alike = [other for other, its in named.items() if its == name]
        alike = alike or [other for other, its in described.items() if its == name]
        if all(ranks.get(other) == ranks.get(group) for other in alike):
            found[group] = name
    return found


def members() -> dict[str, tuple[int, ...]]:
    """The ranks of each process group, by torch's name of it."""
    return {
        str(group.group_name): tuple(torch.distributed.get_process_group_ranks(group))
        for group in torch_private.process_groups()
    }


def reduction_of(value: Any) -> str | None:
    """The name of the reduction, `SUM`, that a value is; None for any other value."""
    if not isinstance(value, torch.ScriptObject) or str(value._type()) != _REDUCTION:
        return None
    try:
        number = value.op()  # type: ignore[attr-defined]
    except AttributeError:  # before torch 2.10 the object does not say it
        return None
    return str(torch.distributed.ReduceOp.RedOpType(number).name)


def _marked(value: Any, name: str | None) -> Any:
    if name == GROUP_NAME and isinstance(value, str):
        return GroupName(value)
    return OWN_RANK if name == _RANK and isinstance(value, int) else value


@functools.lru_cache(maxsize=4096)
def _positions(op: torch._ops.OpOverload | torch._ops.OpOverloadPacket) -> dict[int, str]:
    """Where an op, or an overload of a packet, takes the name of a group, or the own rank."""
    overloads: list[Any] = [op]
    if isinstance(op, torch._ops.OpOverloadPacket):
        overloads = [getattr(op, name) for name in op.overloads()]  # type: ignore[no-untyped-call]
    return {
        position: argument.name
        for overload in overloads
        for position, argument in enumerate(overload._schema.arguments)
        if is_marked(overload, argument.name)
    }
