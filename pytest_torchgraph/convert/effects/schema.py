"""Side effects of registered ops, from their schemas, tags and namespaces."""

from __future__ import annotations

import functools
from dataclasses import dataclass, field
from typing import Any

import torch

from ...graph.model import EffectKind
from ..process_groups import GROUP_NAME, is_marked

COLLECTIVE_NAMESPACES = ("_c10d_functional", "c10d_functional", "c10d", "_dtensor")
"""The namespaces of collectives, every op of which communicates; others tell by a group's name."""

SYNCS = frozenset({"_local_scalar_dense", "item", "equal", "is_nonzero", "allclose"})
"""Ops that read a value back to Python: the host waits for the device, also if it is unused."""

READING = frozenset({"Tensor.__array__", "Tensor.__dlpack__", "Tensor.numpy", "Tensor.tolist"})
"""Methods that read a tensor and dispatch no op: they are recorded by name."""

CHECKS = frozenset({"_assert_async", "_functional_assert_async"})
"""Ops that only raise where a condition does not hold; their effect is `opaque`."""

HIDDEN_WRITES = {
    "aten.native_batch_norm.default": (3, 4, 5),
    "aten.cudnn_batch_norm.default": (3, 4, 5),
    "aten.miopen_batch_norm.default": (3, 4, 5),
}
"""Ops that write running statistics although their schema does not say so: the positions of mean
and variance, and of the flag `training`, without which they do not."""


@dataclass(frozen=True, slots=True)
class SchemaFacts:
    """The effects of an op, as far as its schema and name tell.

    Attributes:
        writes: positions of the positional arguments that are written.
        writes_named: names of the keyword arguments that are written.
        aliases: positions of the arguments that an output is a view of.
        random: whether the op can draw from the random number generator (see `draws`).
        communicates: whether it is a collective.
        syncs: whether it reads a value back to Python.
        checks: whether it only raises where a condition does not hold.
        hidden: an entry of `HIDDEN_WRITES`, or ().
        name: the op's qualified name.
        takes_group: whether an argument is the name of a process group, or the own rank.
        pure: whether no call of the op has an effect.
    """

    writes: tuple[int, ...] = ()
    writes_named: tuple[str, ...] = ()
    aliases: tuple[int, ...] = ()
    random: bool = False
    communicates: bool = False
    syncs: bool = False
    checks: bool = False
    hidden: tuple[int, ...] = ()
    name: str = ""
    takes_group: bool = False

    pure: bool = field(init=False)

    def __post_init__(self) -> None:
        effects = (
            self.writes,
            self.writes_named,
            self.hidden,
            self.random,
            self.communicates,
            self.syncs,
            self.checks,
        )
        object.__setattr__(self, "pure", not any(effects))


PURE = SchemaFacts()


def _names_group(op: torch._ops.OpOverload) -> bool:
    """Whether an op takes the name of a process group, as one of somebody's own does."""
    return any(argument.name == GROUP_NAME for argument in op._schema.arguments)


@functools.lru_cache(maxsize=8192)
def facts(op: Any) -> SchemaFacts:
    """The effects of an overload, or of a method that reads a tensor; `PURE` for anything else."""
    if op in READING:
        return SchemaFacts(syncs=True, name=op)
    if not isinstance(op, torch._ops.OpOverload):
        return PURE
    writes, named, aliases = [], [], []
    for position, argument in enumerate(op._schema.arguments):
        info = argument.alias_info
        if info is None:
            continue
        if info.is_write:
            if argument.kwarg_only:
                named.append(argument.name)
            else:
                writes.append(position)
        else:
            aliases.append(position)
    return SchemaFacts(
        tuple(writes),
        tuple(named),
        tuple(aliases),
        torch.Tag.nondeterministic_seeded in op.tags,
        op.namespace in COLLECTIVE_NAMESPACES or _names_group(op),
        op.namespace == "aten" and op._opname in SYNCS,
        op.namespace == "aten" and op._opname in CHECKS,
        () if writes else HIDDEN_WRITES.get(str(op), ()),
        str(op),
        any(is_marked(op, argument.name) for argument in op._schema.arguments),
    )


def kinds(op: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> list[EffectKind]:
    """The effects of a call on something global: all but `mutates`."""
    known = facts(op)
    effects: list[EffectKind] = []
    if known.random and draws(op, args, kwargs):
        effects.append("random")
    if known.communicates:
        effects.append("communicates")
    if known.syncs:
        effects.append("syncs")
    if known.checks:
        effects.append("opaque")
    return effects


def written(op: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> list[Any]:
    """The arguments that a call writes."""
    known = facts(op)
    values = [args[i] for i in known.writes if i < len(args)]
    values += [kwargs[name] for name in known.writes_named if name in kwargs]
    hidden = known.hidden
    if hidden and len(args) > hidden[2] and args[hidden[2]]:
        values += [args[i] for i in hidden[:2]]
    return values


def draws(op: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> bool:
    """Whether a call draws random numbers; an attention without dropout does not."""
    if not facts(op).random:
        return False
    schema = op._schema.arguments
    for position, argument in enumerate(schema):
        if argument.name in ("dropout_p", "dropout"):
            default = argument.default_value if argument.has_default_value() else None
            value = args[position] if position < len(args) else kwargs.get(argument.name, default)
            return value != 0
    return True
