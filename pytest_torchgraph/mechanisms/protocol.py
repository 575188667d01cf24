"""The protocol of `via`: a mechanism runs one step and returns its graphs."""

from __future__ import annotations

import dataclasses
import enum
import types
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple, Protocol, runtime_checkable

import torch
from torch import fx

from .. import torch_private
from ..convert.canonical_names import CanonicalNames
from ..convert.from_fx import Converted
from ..convert.normalize import rounded
from ..convert.placeholders import output_index
from ..convert.rng_states import descriptions_of
from ..graph.cost import with_savers
from ..graph.events import ScheduledCall, UpdatedParameter
from ..graph.model import Arg, Atom, Device, Graph, InputRef, Ref, Source, Symbol, TensorMeta
from ..ops.matching import Level
from ..ops.qualified import op_name
from ..syncs.detect import RecordedCalls
from ..watching.cache_lookups import CacheBypass
from ..watching.kernels import Kernel
from .islands import Islands
from .step import DEPTH, NamedTensors, Step, held_by

if TYPE_CHECKING:
    from .torch_compile import PassRun

COMPILING = frozenset({"dynamo", "aot", "inductor", "compiled_autograd"})
"""Mechanisms that run torch.compile. They record both the compiled graphs and the eager ops."""


_OPTION_TYPES: dict[str, Any] = {
    "concrete_args": dict,
    "decompositions": str | Mapping,
    "dynamic": bool,
    "mode": str,
    "options": dict,
    "passes": bool | Mapping,
    "tracer": fx.Tracer,
}
"""Types of the options, apart from `None`, that torch does not check before it uses them."""


def check_options(mechanism: Any) -> None:
    """Raise `TypeError` for an option of a mechanism that has the wrong type."""
    for option, kind in _OPTION_TYPES.items():
        value = getattr(mechanism, option, None)
        if value is not None and not isinstance(value, kind):
            name = getattr(kind, "__name__", str(kind))
            raise TypeError(f"{option} must be {name} or None, not {type(value).__name__}")


@dataclass(frozen=True)
class Built:
    """Graphs built from a recording.

    Attributes:
        graphs: the graphs, in program order.
        calls: the recorded calls that may wait for a device, `None` if the record is incomplete.
        constants: the kept constant tensors, by node name.
    """

    graphs: Sequence[Graph]
    calls: RecordedCalls | None = None
    constants: Mapping[str, torch.Tensor] = field(default_factory=dict)


@dataclass(frozen=True)
class Captured:
    """The result of a mechanism: the graphs of one step, with further records of the run.

    Attributes:
        graphs: converted graphs in order of creation, with their live modules. A mechanism without
            live modules returns the graphs built from its recording, or a function that builds them
            when they are first read.
        why_none: the reason if there are no graphs; "" or its beginning, with a colon, if Dynamo's
            reason follows.
        joints: the joint graphs that forward and backward were split from.
        kernels: returns the generated kernels, with the position of their graph in `graph`, or
            raises `UnreadableCodeError`. `None` if no code is generated.
        schedules: returns the collectives in the generated code of each graph, by position; () for
            unreadable code. `None` if no code is generated.
        levels: graphs of the same run at other levels.
        islands: returns the eager part of the step, built when first read. `None` if not recorded.
        bypasses: returns what keeps Dynamo's graphs out of torch.compile's caches. `None` if
            unknown.
        comparable: the mechanism that draws the same random numbers as an eager run, if this run
            drew others.
        methods: methods that a training step called outside compiled graphs; see `RecordedCalls`.
        training: returns what a training step did to its parameters; `None` for other targets.
        incomparable: the reason why this run cannot be compared with an eager run, otherwise "".
        passes: the passes that ran, with positions of graphs as names; `None` if not recorded.
    """

    graphs: Sequence[Converted] | Built | Callable[[], Built]
    why_none: str = ""
    joints: Sequence[Graph] = ()
    kernels: Callable[[], Sequence[Kernel]] | None = None
    schedules: Callable[[], Sequence[Sequence[ScheduledCall]]] | None = None
    levels: Mapping[Level, Sequence[Converted]] = field(default_factory=dict)
    islands: Callable[[], Islands] | None = None
    bypasses: Callable[[], tuple[CacheBypass, ...]] | None = None
    comparable: Mechanism | None = None
    training: Callable[[], Sequence[UpdatedParameter]] | None = None
    methods: Sequence[tuple[str, str, Source | None, str]] = ()
    incomparable: str = ""
    passes: Sequence[PassRun] | None = None


@runtime_checkable
class Mechanism(Protocol):
    """Captures graphs. The options are the attributes of the (frozen) object."""

    name: ClassVar[str]
    level: ClassVar[Level]

    def capture(self, step: Step, canon: CanonicalNames) -> Captured:
        """Run the step once and return its graphs.

        Args:
            step: the step to run; its outcome is read from it afterwards.
            canon: canonical names of symbols and devices, shared by all graphs of the capture.

        Raises:
            CaptureError: if this mechanism cannot capture the target.
        """
        ...


READS = ("aten._local_scalar_dense.default", "aten.item.default", "Tensor.item", "Tensor.tolist")
"""Ops that return a number to Python. Numbers in the output may then depend on the data."""
UNKNOWN_TENSOR = Atom("tensor")
"""A tensor that comes from no known compiled graph or input."""
_CONSTANTS = (type(None), str, bytes, bool, int, float, complex)


class Leaf(NamedTuple):
    """A leaf of the target's return value.

    Attributes:
        path: the keys and positions that lead to the leaf.
        named: whether the path contains a name.
        value: a constant, or the replacement of a tensor by `leaves_of`.
        is_tensor: whether the leaf is a tensor.
    """

    path: str
    named: bool
    value: Any
    is_tensor: bool


class NamedValue(str):
    """The name of a graph value, in place of a tensor."""

    __slots__ = ()


def leaves_of(output: Any, tensor: Callable[[Any], Any], kind: type = torch.Tensor) -> list[Leaf]:
    """Return the leaves of an output, in order, with `tensor(leaf)` in place of each tensor.

    The path of a leaf consists of dictionary keys, field names of named tuples and dataclasses, and
    positions in sequences. Of other objects, only the attributes that hold a tensor are included. A
    tensor of a subclass is followed by its class, with the path `<path>.class`.

    Args:
        output: the output.
        tensor: returns the replacement of a tensor.
        kind: the type of the leaves that count as tensors.
    """
    leaves: list[Leaf] = []
    for keys, named, value in _leaves(output, (), False):
        path = ".".join(keys) or "0"
        is_tensor = isinstance(value, kind)
        leaves.append(Leaf(path, named, tensor(value) if is_tensor else value, is_tensor))
        if is_tensor and (subclass := torch_private.subclass_of(value)):
            leaves.append(Leaf(f"{path}.class", True, subclass, False))
    return leaves


def _leaves(
    value: Any, path: tuple[str, ...], named: bool
) -> Iterator[tuple[tuple[str, ...], bool, Any]]:
    """Yield (path, True if it contains a name, leaf). An empty container is a leaf: ()."""
    items = _items(value) if len(path) <= DEPTH else None
    if items is None:
        yield path, named, value
        return
    names, pairs = items
    if not pairs:
        yield path, named, ()
    for key, item in pairs:
        yield from _leaves(item, (*path, key), named or names)


def _items(value: Any) -> tuple[bool, list[tuple[str, Any]]] | None:
    """Return (True if the keys are names, items by key) of a container, or `None` for a leaf."""
    if isinstance(value, (torch.Tensor, type, enum.Enum, *_CONSTANTS)):
        return None
    if isinstance(value, Mapping):
        return True, [(_key(key, index), item) for index, (key, item) in enumerate(value.items())]
    if isinstance(value, tuple) and hasattr(value, "_fields"):
        return True, list(zip(value._fields, value, strict=True))
    if isinstance(value, list | tuple):
        return False, [(str(index), item) for index, item in enumerate(value)]
    if dataclasses.is_dataclass(value):
        fields = dataclasses.fields(value)
        return True, [(field.name, getattr(value, field.name, None)) for field in fields]
    held = [(str(key), item) for key, item in held_by(value).items() if _holds_tensor(item, 1)]
    return (True, held) if held else None


def _key(key: Any, position: int) -> str:
    """Return a dictionary key as text.

    The text of an object may contain an address, so its class and position are returned instead.
    """
    return str(key) if isinstance(key, _CONSTANTS) else f"{type(key).__name__} {position}"


def _holds_tensor(value: Any, depth: int) -> bool:
    """Return True for a tensor, or an object with one in its items, down to `DEPTH`."""
    if isinstance(value, torch.Tensor):
        return True
    items = _items(value) if depth <= DEPTH else None
    return items is not None and any(_holds_tensor(item, depth + 1) for _, item in items[1])


def output_of(
    leaves: Sequence[Leaf], returned: Sequence[Arg], value_of: Callable[[Any], Arg], *, exact: bool
) -> tuple[tuple[str, Arg], ...]:
    """Return `Graph.output` of a graph: () if the target returns what the graph returns, unnamed.

    Args:
        leaves: the leaves of the target's return value.
        returned: the values that the graph returns to its caller, in order.
        value_of: returns the graph value of a tensor.
        exact: whether numbers are the same in each run.
    """
    values = [value_of(leaf.value) if leaf.is_tensor else _constant(leaf, exact) for leaf in leaves]
    if values == [*returned] and not any(leaf.named for leaf in leaves):
        return ()
    return tuple({leaf.path: value for leaf, value in zip(leaves, values, strict=True)}.items())


def _constant(leaf: Leaf, exact: bool) -> Arg:
    """Return a leaf that is no tensor, or the name of its type if its value may vary."""
    value = leaf.value
    match value:
        case enum.Enum():
            return Atom(f"{type(value).__qualname__}.{value.name}")
        case bool() | int() | float() | complex() | range() if not exact:
            return Atom(type(value).__name__)
        case _ if type(value) in _CONSTANTS or type(value) is tuple:
            return rounded(value)
        case torch.device():
            return Device(str(value))
        case torch.dtype() | torch.layout() | torch.memory_format() | range():
            return Atom(str(value))
        case slice():  # `__reduce__` returns its class, and start, stop and step
            return slice(*[_constant(leaf._replace(value=n), exact) for n in value.__reduce__()[1]])
        # The order of a set of other objects may vary.
        case set() | frozenset() if exact and {*map(type, value)} <= {*_CONSTANTS}:
            return Atom(f"{type(value).__name__}({sorted(map(repr, value))})")
        case type() | types.FunctionType() | types.BuiltinFunctionType():
            return Atom(op_name(value))
    return Atom(type(value).__qualname__)


def numbers_are_exact(graphs: Sequence[Graph]) -> bool:
    """Return True if no graph reads a number from a tensor, and no size is a symbol."""
    return not any(
        node.op in READS or (node.kind == "placeholder" and _is_symbolic(node.result))
        for graph in graphs
        for node in graph.nodes
    )


def _is_symbolic(result: Any) -> bool:
    """Return True for a symbolic size, or a tensor with one."""
    shape = result.shape if isinstance(result, TensorMeta) else (result,)
    return any(isinstance(size, Symbol) for size in shape)


def with_output(
    graphs: Sequence[Graph],
    converted: Sequence[Converted],
    output: Any,
    named: NamedTensors,
    *,
    unbroken: bool,
) -> tuple[Graph, ...]:
    """Return the compiled graphs of a step, with the target's output in the last forward graph.

    Args:
        graphs: the graphs under their final names.
        converted: the conversion of each graph.
        output: the return value of the target.
        named: the inputs, parameters and buffers by name.
        unbroken: True if there was no graph break, so no number was read from a tensor.
    """
    forwards = [i for i, graph in enumerate(graphs) if graph.kind in ("forward", "inference")]
    if not forwards or converted[forwards[-1]].position_of is None:
        return tuple(graphs)
    last = forwards[-1]
    graph = graphs[last]
    returned = {i: _by_position(converted[i]) for i in forwards}
    inputs = {name: number for number, (name, _) in enumerate(named.inputs)}

    def value_of(tensor: torch.Tensor) -> Arg:
        """Return the value of a tensor in the last forward: a result of a graph, or an input."""
        for i in reversed(forwards):
            position_of = converted[i].position_of
            position = None if position_of is None else position_of(tensor)
            name = None if position is None else returned[i].get(position)
            if name is not None:
                return Ref(name) if i == last else Atom(f"{graphs[i].name}#{position}")
        role, name = named.tensors.get(id(tensor), ("", ""))
        if not role:
            return UNKNOWN_TENSOR
        node = graph.by_name.get(name)
        if node is not None and node.op == role:
            return Ref(name)
        return InputRef(inputs[name], name) if role == "input" else Atom(f"{role}.{name}")

    exact = unbroken and numbers_are_exact(graphs)
    in_order = [Ref(name) for _, name in sorted(returned[last].items())]
    output_node = output_of(leaves_of(output, lambda t: t), in_order, value_of, exact=exact)
    graph = dataclasses.replace(graph, output=output_node)
    # The savers must refer to the new forward.
    return with_savers((*graphs[:last], graph, *graphs[last + 1 :]))


def _by_position(converted: Converted) -> dict[int, str]:
    """Return the names of a graph's results, by their position in Dynamo's code."""
    (output,) = converted.fx.find_nodes(op="output")
    values: Any = output.args[0]
    if not isinstance(values, tuple | list):
        return {}
    # The graphs of AOTAutograd have further outputs, such as saved tensors, and describe them. A
    # checkpoint adds states of random generators to the end of the outputs, without a description.
    places: list[int | None] = [*range(len(values))]
    if converted.graph.level != "dynamo":
        places = [output_index(description) for description in descriptions_of(output) or ()]
    names = {
        position: converted.names.get(getattr(value, "name", ""))
        for position, value in zip(places, values, strict=False)
        if position is not None
    }
    return {position: name for position, name in names.items() if name is not None}
