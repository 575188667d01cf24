"""Side effects of nodes, and the order that they impose (`Node.after`).

- `Storages`: the last write to each storage.
- `facts`, `kinds`, `written`, `draws`: effects of an op, from its schema.
- `node_writes`, `is_view`, `node_draws`: the same by name, for functions and methods without a
  schema.
- `memory_of`: storages of a node's value, which show views of functions without a schema.
- `EffectTracker`: fx nodes -> `Node.effects` and `Node.after`, using the above.

Operands do not show the order if a write goes through another tensor:

    y = x.view(-1)      shares the storage of x
    y.add_(1)           writes it
    x.sum()             reads it, but add_ is not an operand: `after` is `add_`

Schemas and names determine which arguments a call writes, and which argument its result is a view
of. `Storages` determines which node wrote a storage last.
"""

from __future__ import annotations

import contextlib
import functools
import operator
from collections.abc import Collection, Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Generic, TypeVar

import torch
from torch import fx

from ..graph.model import Effect, EffectKind, Ref, is_inactive_dropout
from ..ops.qualified import op_name, overload_of
from . import node_meta
from .node_meta import COMMUNICATES
from .process_groups import GROUP_NAME, is_marked

Name = TypeVar("Name", bound=Hashable)


class Storages(Generic[Name]):
    """Record of the last write to each storage. Nodes are added in execution order.

    A storage is any hashable key; `Name` is a node's name or number.

    Attributes:
        clock: number of the latest event (a definition or a write).
        defined: time of each node's definition.
        written: last writer of each storage, and the time of the write.
        owner: first node with a result in each storage.
    """

    def __init__(self) -> None:
        self.clock = 0
        self.defined: dict[Name, int] = {}
        self.written: dict[Hashable, tuple[Name, int]] = {}
        self.owner: dict[Hashable, Name] = {}

    def define(self, name: Name, storages: Iterable[Hashable] = ()) -> None:
        """Add a node whose results are in the given storages."""
        self.clock += 1
        self.defined[name] = self.clock
        for storage in storages:
            self.owner.setdefault(storage, name)

    def after(self, operands: Sequence[tuple[Name, Hashable]]) -> tuple[Name, ...]:
        """Return the writers that a node must follow, excluding its operands.

        Args:
            operands: (name, storage) of each operand. Writes before the definition of an operand
                are left out: the operand itself follows them.
        """
        if not self.written:
            return ()
        names = {name for name, _ in operands}
        writers: dict[Name, None] = {}
        for name, storage in operands:
            if storage not in self.written:
                continue
            writer, written_at = self.written[storage]
            if writer not in names and self.defined.get(name, 0) < written_at:
                writers[writer] = None
        return tuple(writers)

    def write(self, name: Name, storage: Hashable) -> None:
        """Add a write of a storage by node `name`, which must be defined already."""
        self.clock += 1
        self.written[storage] = (name, self.clock)


COLLECTIVE_NAMESPACES = ("_c10d_functional", "c10d_functional", "c10d", "_dtensor")
"""Namespaces in which every op communicates.

Any other op, such as a custom collective, communicates if it takes the name of a process group.
"""

SYNCS = frozenset({"_local_scalar_dense", "item", "equal", "is_nonzero", "allclose"})
"""Ops that read a value back to Python. The host waits even if the value is unused."""

READING = frozenset({"Tensor.__array__", "Tensor.__dlpack__", "Tensor.numpy", "Tensor.tolist"})
"""Methods that read a tensor without dispatching an op. They are recorded by name."""

CHECKS = frozenset({"_assert_async", "_functional_assert_async"})
"""Ops whose only effect is to raise if a condition does not hold; their effect is `opaque`."""

HIDDEN_WRITES = {
    "aten.native_batch_norm.default": (3, 4, 5),
    "aten.cudnn_batch_norm.default": (3, 4, 5),
    "aten.miopen_batch_norm.default": (3, 4, 5),
}
"""Ops that write running statistics without declaring it in their schema.

Positions of mean, variance and the flag `training`. The ops write only if `training` is true.
"""


@dataclass(frozen=True, slots=True)
class SchemaFacts:
    """Effects of an op according to its schema and name.

    Attributes:
        writes: positions of written positional arguments.
        writes_named: names of written keyword arguments.
        aliases: positions of arguments that an output is a view of.
        random: True if the op can draw from the random number generator (see `draws`).
        communicates: True for a collective.
        syncs: True if the op reads a value back to Python.
        checks: True if the only effect is to raise if a condition does not hold.
        hidden: entry of `HIDDEN_WRITES`, or ().
        name: qualified name of the op.
        takes_group: True if an argument is the name of a process group, or the rank itself.
        pure: True if no call of the op has an effect.
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
        writes = self.writes or self.writes_named or self.hidden
        others = self.random or self.communicates or self.syncs or self.checks
        object.__setattr__(self, "pure", not (writes or others))


PURE = SchemaFacts()


def facts(op: Any) -> SchemaFacts:
    """Return the effects of an overload, or of a method in `READING`; otherwise `PURE`."""
    if (overload := overload_of(op)) is not None:
        return _facts_of_schema(overload)
    return SchemaFacts(syncs=True, name=op) if isinstance(op, str) and op in READING else PURE


# Overloads only: a cache keeps a function of the user alive, and the tensors of its closure.
@functools.lru_cache(maxsize=8192)
def _facts_of_schema(op: torch._ops.OpOverload) -> SchemaFacts:
    arguments = op._schema.arguments
    # The schema marks each argument that the op writes, or that an output is a view of.
    shared = [
        (position, argument, info.is_write)
        for position, argument in enumerate(arguments)
        if (info := argument.alias_info) is not None
    ]
    writes = tuple(k for k, argument, is_write in shared if is_write and not argument.kwarg_only)
    return SchemaFacts(
        writes,
        tuple(
            argument.name for _, argument, is_write in shared if is_write and argument.kwarg_only
        ),
        aliases=tuple(k for k, _, is_write in shared if not is_write),
        random=torch.Tag.nondeterministic_seeded in op.tags,
        communicates=op.namespace in COLLECTIVE_NAMESPACES
        or any(arg.name == GROUP_NAME for arg in arguments),
        syncs=op.namespace == "aten" and op._opname in SYNCS,
        checks=op.namespace == "aten" and op._opname in CHECKS,
        hidden=() if writes else HIDDEN_WRITES.get(str(op), ()),
        name=str(op),
        takes_group=any(is_marked(op, argument.name) for argument in arguments),
    )


def kinds(op: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> list[EffectKind]:
    """Return the global effects of a call: all except `mutates`."""
    schema_facts = facts(op)
    effects: list[EffectKind] = []
    if schema_facts.random and draws(op, args, kwargs):
        effects.append("random")
    if schema_facts.communicates:
        effects.append("communicates")
    if schema_facts.syncs:
        effects.append("syncs")
    if schema_facts.checks:
        effects.append("opaque")
    return effects


def written(op: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> list[Any]:
    """Return the arguments that a call writes."""
    schema_facts = facts(op)
    values = [args[i] for i in schema_facts.writes if i < len(args)]
    values += [kwargs[name] for name in schema_facts.writes_named if name in kwargs]
    hidden = schema_facts.hidden
    # Batch norm updates running statistics in training only.
    if hidden and len(args) > hidden[2] and args[hidden[2]]:
        values += [args[i] for i in hidden[:2]]
    return values


def draws(op: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> bool:
    """Return True if a call draws random numbers. With `dropout_p=0`, attention draws none."""
    if not facts(op).random or is_inactive_dropout(facts(op).name, args, kwargs):
        return False
    schema = op._schema.arguments
    for position, argument in enumerate(schema):
        if argument.name in ("dropout_p", "dropout"):
            default = argument.default_value if argument.has_default_value() else None
            value = args[position] if position < len(args) else kwargs.get(argument.name, default)
            return value != 0
    return True


_OPERATORS = "add sub mul truediv floordiv mod pow matmul and or xor lshift rshift".split()
_INPLACE = frozenset(getattr(operator, f"i{name}") for name in _OPERATORS)
"""Functions of Python's in-place operators, e.g. `operator.iadd` for `+=`."""
_WRITING_METHODS = frozenset({"__setitem__", *(f"__i{name}__" for name in _OPERATORS)})
_STATISTICS = {
    "torch.nn.functional.batch_norm": (1, 2, 5, False),
    "torch.nn.functional.instance_norm": (1, 2, 5, True),
    "torch.batch_norm": (3, 4, 5, False),
    "torch.instance_norm": (3, 4, 5, True),
    "aten.batch_norm.default": (3, 4, 5, False),
    "aten.instance_norm.default": (3, 4, 5, True),
}
"""Composite functions and ops that write running statistics.

Positions of mean, variance and the flag for training, and the default of the flag. The writes are
no `Effect` of the node, because stored graphs do not have it. They only order later reads.
"""
_KERNEL = "triton_kernel_wrapper_mutation"
"""A Triton kernel that writes its operands."""
_VIEWS = frozenset(
    "view view_as reshape transpose t permute expand expand_as squeeze unsqueeze narrow select "
    "chunk split unbind flatten unflatten swapaxes movedim diagonal detach as_strided getitem "
    "getattr T mT contiguous real imag".split()
)
"""Functions and methods whose result may be a view of the first argument."""
_RANDOM = frozenset(
    "dropout dropout1d dropout2d dropout3d alpha_dropout feature_alpha_dropout rand randn randint "
    "rand_like randn_like randint_like randperm normal bernoulli multinomial poisson "
    "gumbel_softmax bernoulli_ normal_ uniform_ exponential_ geometric_ log_normal_ cauchy_ "
    "random_".split()
)
"""Functions and methods that draw random numbers, at least in training."""
_RANDOM_IF = {
    "rrelu": ((3, "training", False),),
    "scaled_dot_product_attention": ((4, "dropout_p", 0.0),),
    "multi_head_attention_forward": ((10, "dropout_p", 0.0), (13, "training", True)),
}
"""Functions that draw random numbers if all of these arguments are true.

Positions and names of the arguments, and their defaults.
"""


def has_schema(node: fx.Node) -> bool:
    """Return True if the node calls an overload, whose schema declares its effects."""
    return overload_of(node.target) is not None


def node_writes(node: fx.Node) -> list[fx.Node]:
    """Return the operands that a node writes, according to its schema, or else to its name."""
    arguments: list[Any]
    if has_schema(node):
        arguments = written(node.target, tuple(node.args), dict(node.kwargs))
    elif str(node.target) == _KERNEL:
        arguments = [node.kwargs.get("kwargs")]  # torch does not record which operands it writes
    else:
        arguments = _written_by_name(node)
    nodes: list[fx.Node] = []
    fx.node.map_arg(tuple(arguments), nodes.append)
    return nodes


def _written_by_name(node: fx.Node) -> list[Any]:
    """Return the arguments that a call without a schema writes."""
    arguments: list[Any] = []
    name = _bare_name(node)
    has_in_place_name = name.endswith("_") and not name.endswith("__")
    if (
        (node.op in ("call_function", "call_method") and has_in_place_name)
        or (node.op == "call_method" and name in _WRITING_METHODS)
        or node.target in _INPLACE
        or node.target is operator.setitem
        or (node.op == "call_function" and _is_in_place(node))
    ):
        arguments += node.args[:1]
    target: Any = node.target
    # A packet has the schemas of its overloads. A function in place has those of ATen's packet with
    # its name, which also tell of further arguments that it writes.
    is_packet = isinstance(target, torch._ops.OpOverloadPacket)
    packet = getattr(torch.ops.aten, name, None) if has_in_place_name and not is_packet else target
    if isinstance(packet, torch._ops.OpOverloadPacket):
        positions, names = _written_by_overloads(packet)
        arguments += [node.args[i] for i in positions if i < len(node.args)]
        arguments += [node.kwargs[name] for name in names if name in node.kwargs]
    if "out" in node.kwargs:
        arguments.append(node.kwargs["out"])
    return arguments


def _written_statistics(node: fx.Node) -> list[Any]:
    """Return the running statistics that a call in `_STATISTICS` writes."""
    # The flag is the first argument of no function, so 0 stands for a function without statistics.
    mean, variance, training, default = _STATISTICS.get(op_name(node.target), (0, 0, 0, False))
    if not training or not _argument(node, training, ("training", "use_input_stats"), default):
        return []
    return [
        _argument(node, mean, ("running_mean",), None),
        _argument(node, variance, ("running_var",), None),
    ]


def _argument(node: fx.Node, position: int, names: Sequence[str], default: Any) -> Any:
    """Return an argument that is passed by position or by one of some names."""
    if position < len(node.args):
        return node.args[position]
    return next((node.kwargs[name] for name in names if name in node.kwargs), default)


@functools.lru_cache(maxsize=8192)
def _written_by_overloads(
    packet: torch._ops.OpOverloadPacket,
) -> tuple[tuple[int, ...], tuple[str, ...]]:
    """Return the positions and names of the arguments that some overload of a packet writes."""
    overloads: list[str] = packet.overloads()  # type: ignore[no-untyped-call]
    schemas = [facts(getattr(packet, overload)) for overload in overloads]
    positions = {position for schema in schemas for position in schema.writes}
    names = {name for schema in schemas for name in schema.writes_named}
    return tuple(sorted(positions)), tuple(sorted(names))


def _is_in_place(node: fx.Node) -> bool:
    """Return True if a function is called with `inplace=True`, by name or by position."""
    if "inplace" in node.kwargs:
        return node.kwargs["inplace"] is True
    code = getattr(node.target, "__code__", None)
    names = code.co_varnames[: code.co_argcount] if code is not None else ()
    # A call need not pass all arguments.
    return any(
        name == "inplace" and value is True for name, value in zip(names, node.args, strict=False)
    )


def memory_of(node: Any) -> frozenset[int]:
    """Return the storages of the tensors in a node's value, empty if unknown."""
    value = node_meta.value_of(node) if isinstance(node, fx.Node) else None
    values = value if isinstance(value, tuple | list) else (value,)
    storages = set()
    for tensor in values:
        # Sparse tensors have no storage, and some subclasses raise another error.
        with contextlib.suppress(Exception):
            if isinstance(tensor, torch.Tensor):
                storages.add(int(tensor.untyped_storage()._cdata))
    return frozenset(storages)


def is_view(node: fx.Node) -> bool:
    """Return True if an op without a schema, by its name, may return a view of its argument."""
    return not has_schema(node) and _bare_name(node) in _VIEWS


def node_draws(node: fx.Node) -> bool:
    """Return True if an op without a schema, by its name, draws random numbers."""
    if has_schema(node) or node.op not in ("call_function", "call_method"):
        return False
    name = _bare_name(node)
    if name in _RANDOM_IF:
        return all(_argument(node, at, (key,), default) for at, key, default in _RANDOM_IF[name])
    is_inactive = is_inactive_dropout(op_name(node.target), node.args, node.kwargs)
    return name in _RANDOM and not is_inactive


def _bare_name(node: fx.Node) -> str:
    """Return the last part of the op's name."""
    return op_name(node.target).rpartition(".")[2]


class EffectTracker:
    """Tracker of storages through a graph. Nodes are added in graph order.

    A storage is identified by the name of the first node whose value is in it.

    Args:
        names: node names. A node must be named before it is added.
    """

    def __init__(self, names: Mapping[fx.Node, str]):
        self._names = names
        self._storages: Storages[str] = Storages()
        self._storage_of: dict[fx.Node, str] = {}

    @property
    def written(self) -> set[str]:
        """Names of the nodes that own a storage that was written."""
        return {self._storages.owner[storage] for storage in self._storages.written}

    def add_input(self, node: fx.Node) -> None:
        """Add a placeholder with its own storage."""
        name = self._names[node]
        self._storages.define(name, [name])
        self._storage_of[node] = name

    def add_call(
        self, node: fx.Node, by_bodies: Collection[str]
    ) -> tuple[tuple[Effect, ...], tuple[Ref, ...]]:
        """Add a call. Return its effects, and the writes that it must follow.

        Args:
            node: the call.
            by_bodies: names of the operands that the bodies of the call write.
        """
        name = self._names[node]
        args, kwargs = tuple(node.args), dict(node.kwargs)
        operands = [
            (self._names[operand], self._storage_of[operand])
            for operand in node.all_input_nodes
            if operand in self._storage_of
        ]
        # Before its own writes are added, which it need not follow.
        after = tuple(Ref(writer) for writer in self._storages.after(operands))
        writes = [value for value in node_writes(node) if value in self._storage_of]
        source = self._aliased(node, args, writes)
        self._storage_of[node] = self._storage_of[source] if source is not None else name
        self._storages.define(name, [self._storage_of[node]])
        # The result of such a call is another tensor, unlike the result of an op in place.
        writes += [value for value in node.all_input_nodes if self._names.get(value) in by_bodies]
        effects: list[Effect] = []
        for value in writes:
            storage = self._storage_of[value]
            effects.append(Effect("mutates", Ref(self._storages.owner[storage])))
            self._storages.write(name, storage)
        for value in _written_statistics(node):
            if value in self._storage_of:
                self._storages.write(name, self._storage_of[value])
        effects += [Effect(kind) for kind in kinds(node.target, args, kwargs)]
        if node.meta.get(COMMUNICATES):
            effects.append(Effect("communicates"))
        if node_draws(node):
            effects.append(Effect("random"))
        return tuple(dict.fromkeys(effects)), after

    def _aliased(
        self, node: fx.Node, args: tuple[Any, ...], writes: list[fx.Node]
    ) -> fx.Node | None:
        """Return the operand (written or viewed) whose storage the result shares."""
        aliases = facts(node.target).aliases
        # An op in place returns what it writes.
        shared: list[Any] = writes or [args[i] for i in aliases if i < len(args)]
        if not shared and not has_schema(node):
            memory = memory_of(node)
            # `contiguous`, `reshape` and an index return a view or a copy.
            if args and is_view(node) and not (memory and memory_of(args[0])):
                shared = [args[0]]
            else:
                shared = [value for value in node.all_input_nodes if memory & memory_of(value)]
        return next((value for value in shared if value in self._storage_of), None)
