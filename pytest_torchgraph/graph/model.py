"""`Graph`, `Node` and argument values: immutable data, without torch.

The vocabulary is that of torch.fx (six node kinds, one list of nodes in a valid order), so readers
of fx graphs need not learn anything new. There are three differences. An op is a qualified *name*,
not an object. Side effects and the order that they impose are explicit. No value depends on the
capturing process (no address, no absolute path, no raw symbol name).
"""

from __future__ import annotations

import operator
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any, Literal, TypeAlias, get_args

from ..ops.dtypes import DType
from ..ops.matching import Level
from ..words import grouped
from .op_checks import OpChecks

if TYPE_CHECKING:
    from pathlib import Path

    import graphviz

    from ..ops.matching import OpCounts
    from .census import OwnCalls
    from .cost import Cost
    from .events import GraphBreak
    from .module_paths import OwnModule
    from .step import StepCall

NodeKind: TypeAlias = Literal[
    "placeholder", "get_attr", "call_function", "call_method", "call_module", "output"
]
GraphKind: TypeAlias = Literal["forward", "backward", "inference", "joint", "update"]
Phase: TypeAlias = Literal["forward", "backward", "update"]
"""A phase of a training step."""
EffectKind: TypeAlias = Literal["mutates", "random", "communicates", "syncs", "opaque"]
"""See `Effect`."""
RecomputedBy: TypeAlias = Literal["checkpoint", "partitioner", "function", "formula", ""]
"""Why a backward runs an op; see `pytest_torchgraph.graph.cost.recomputed`."""
Detail: TypeAlias = Literal["ops", "dataflow", "full"]
"""Level of detail of a text; see `Graph.to_text`."""

GRAPH_KINDS: tuple[GraphKind, ...] = get_args(GraphKind)
PHASES: tuple[Phase, ...] = get_args(Phase)
"""The phases of a training step, see `Capture.phase`."""
INPUT_OPS = ("input", "parameter", "buffer", "constant", "saved", "tangent")
"""Roles of an input, stored as the `op` of its placeholder. They are never compared.

`saved` is a value that a forward kept for this backward; `tangent` is the gradient of an output.
"""


@dataclass(frozen=True, slots=True)
class Ref:
    """A reference to another node of the same graph, by name."""

    name: str


@dataclass(frozen=True, slots=True)
class SubgraphRef:
    """A reference to one of the graph's `subgraphs`, the body of a higher-order op, by name."""

    name: str


@dataclass(frozen=True, slots=True)
class Symbol:
    """A symbolic int, float or bool: a sympy expression over `s0`, `s1`, ... and `u0`, `u1`, ..."""

    expr: str


@dataclass(frozen=True, slots=True)
class Atom:
    """A constant known by its qualified name: `torch.float32`, `torch.strided`, a function."""

    name: str


@dataclass(frozen=True, slots=True)
class Device:
    """A device argument, such as `cuda` or `cuda:1`. Printed, never compared."""

    name: str

    @property
    def type(self) -> str:
        """The device type, without the index."""
        return self.name.partition(":")[0]


@dataclass(frozen=True, slots=True)
class AnyFloat:
    """A float constant without its value, in a graph with `digits=0`; see `ANY_FLOAT`."""


ANY_FLOAT = AnyFloat()
"""Placeholder for every float constant, written as `~`."""


@dataclass(frozen=True, slots=True)
class InputRef:
    """An input of the target that is not an input of the graph, by its position among all inputs.

    Only `Graph.output` has these references, because a target can return an input that it does not
    use.
    """

    position: int
    name: str


@dataclass(frozen=True, slots=True)
class TensorMeta:
    """dtype (torch's name without `torch.`), shape, strides, device and layout of a tensor result.

    `dtype` compares equal to the `torch.dtype`, its name and its abbreviation: to `torch.float32`,
    `"float32"` and `"f32"`. `stride` and `device` are `None` if unknown. Graph comparisons ignore
    both. An unhashable dtype raises `TypeError`.
    """

    dtype: str
    shape: tuple[int | Symbol, ...]
    stride: tuple[int | Symbol, ...] | None = None
    device: str | None = None
    layout: str = "strided"

    def __post_init__(self) -> None:
        object.__setattr__(self, "dtype", DType.of(self.dtype))


Result: TypeAlias = TensorMeta | Symbol | Atom | tuple["Result", ...] | None
"""Description of a node's value: a tensor, a symbolic number, a type (`Atom`) or several values.

`None` if unknown.
"""
Arg: TypeAlias = Any
"""A value in a node's arguments: Ref, SubgraphRef, Symbol, Atom, Device, AnyFloat, None, bool, int,
float, complex, str, bytes, Ellipsis, slice, tuple (any sequence) or dict of these."""


@dataclass(frozen=True, slots=True)
class Source:
    """The line of the user's code that a node came from. Shown in failures, never stored.

    `file` is relative to the pytest rootdir, or to the import path for installed packages. `call`
    is the torch function called on that line, by its name in Dynamo's graph; "" if unknown.
    `direct` is True if the line is known to call the op itself, not a module that calls the op.
    `columns` are the start and the end, in `code`, of the expression that called the op; `()` if
    unknown, or if the expression is the whole line. `checkpoint` is the line of the call of
    `torch.utils.checkpoint` that runs this line, as `model.py:12`; "" if there is none or unknown.
    """

    file: str
    line: int
    code: str = ""
    function: str = ""
    call: str = field(default="", repr=False, compare=False)
    direct: bool = field(default=False, repr=False, compare=False)
    columns: tuple[int, ...] = field(default=(), repr=False, compare=False)
    checkpoint: str = field(default="", repr=False, compare=False)

    def __str__(self) -> str:
        return f"{self.file}:{self.line}"


@dataclass(frozen=True, slots=True)
class Effect:
    """A side effect: on the storage of node `target` (`mutates`), or on something global.

    `random` draws random numbers, `communicates` is a collective, `syncs` reads a value back to
    Python. Effects on the same resource keep their order. `opaque` is an unknown effect, which
    keeps its order relative to all other effects.
    """

    kind: EffectKind
    target: Ref | None = None


def is_inactive_dropout(op: str, args: Sequence[Any], kwargs: Mapping[str, Any]) -> bool:
    """Return True for a dropout of torch with `train=False`, which draws no random numbers."""
    train = args[2] if len(args) > 2 else kwargs.get("train", kwargs.get("training"))
    return train is False and "dropout" in op and op.startswith(("aten.", "torch."))


@dataclass(frozen=True, slots=True, eq=False)
class Node:
    """A node of a graph. Nodes are compared by identity; only whole graphs compare by structure.

    Attributes:
        name: name that is unique in its graph, derived from the module path and the op.
        kind: one of torch.fx's six kinds.
        op: qualified name (`aten.mm.default`, `torch.nn.functional.relu`, `operator.add`,
            `Tensor.view` for a call_method, the class for a call_module); for a placeholder, its
            role (`INPUT_OPS`); for a get_attr or output, its kind.
        args, kwargs: see `Arg`. A constant that the target's code makes from Python values has one
            argument, its value, if the value is known and small.
        result: description of the node's value, a `TensorMeta` for a tensor; `None` if unknown.
        module: path of the innermost running module, "" at the top level.
        source: the user's line, `None` if unknown.
        target: attribute path of a get_attr or call_module.
        effects: side effects, empty for a pure op.
        after: nodes that must run first although no argument requires it. Each is the last write to
            a storage that this node reads or writes.
        options: non-default arguments of a call_module's class, such as `"p=0.1"`; `None` if
            unknown.
        by: in a backward, the reason why the op runs, such as "formula" for an op of autograd's
            formulas. "" in other graphs, and if unknown. Neither compared nor stored.
        annotations: what `torch.fx.traceback.annotate` or a pass wrote into `meta["custom"]`.
            Neither compared nor stored.
    """

    name: str
    kind: NodeKind
    op: str
    args: tuple[Arg, ...] = ()
    kwargs: Mapping[str, Arg] = field(default_factory=dict)
    result: Result = None
    module: str = ""
    source: Source | None = None
    target: str = ""
    effects: tuple[Effect, ...] = ()
    after: tuple[Ref, ...] = ()
    options: str | None = None
    by: RecomputedBy = ""
    annotations: Mapping[str, Any] = field(default_factory=dict)

    @property
    def refs(self) -> tuple[str, ...]:
        """Names of the nodes referenced by the arguments, in order, with repetition."""
        return tuple([ref.name for ref in iter_refs((self.args, self.kwargs))])

    @property
    def is_call(self) -> bool:
        """True for a call: call_function, call_method or call_module."""
        return self.kind.startswith("call_")

    def __repr__(self) -> str:
        from .text import format_node

        return f"<Node {format_node(self)}>"


@dataclass(frozen=True, eq=False, repr=False)
class Graph(OpChecks):
    """A captured graph: its nodes in a valid order of execution. The last node is the output.

    Equality (`==`) is equality of the dataflow: the same ops on the same operands, from the ordered
    inputs to the outputs and side effects. It compares ops, constants, dtypes, shapes and layouts.
    If both graphs record run counts and the target's return value, it compares these too. Names,
    the order of independent nodes, strides, devices, module paths and sources are ignored. A node
    used twice differs from two equal nodes. Ops that compute the same are equal, such as `view` and
    `_unsafe_view`. A `detach` added by autograd is ignored (see
    `pytest_torchgraph.graph.equality.canonical`). A parameter or buffer with the same name in both
    graphs is the same input, at any position.

    Methods raise `TypeError` for an argument of a wrong type, and `ValueError` for a wrong value.

    Attributes:
        nodes: nodes in a valid execution order; the last is the output.
        name: name of the graph in its capture.
        kind: "forward", "backward", "inference", "joint", or "update" in a training step.
        level: compiler stage at which the graph was captured (see `ops.matching.Level`).
        saved: values that a forward graph saves for its backward, apart from the real outputs.
        subgraphs: bodies of higher-order ops.
        classes: class names of the modules by path, if the capture records them. Used in drawings;
            neither compared nor stored.
        eager: True for a graph of ops that ran eagerly, outside every compiled graph
            (`Capture.eager`).
        runs: run count in the capture; stored and compared if `counted`, and for an eager graph.
        counted: True if the run count of a compiled graph is known.
        output: return value of the target, as a pair of path and value for each leaf. A value is a
            `Ref` to a node of this graph, an `InputRef`, or a constant. `()` if the target returns
            the graph's outputs, in order and without names; `None` if unknown. Only the last
            forward graph has it.
        given: True for a graph that the user passed in. Its aliases are the user's, not autograd's.
        digits: significant digits of the float constants; `None` if exact. Two graphs are compared
            with the smaller number of digits. With 0 digits, floats are not compared.
        saver: for a backward, the forward that saved its inputs. `cost.with_savers` finds it by the
            names of the saved values, and `step.forward_of` finds its run.
        cause: for an eager graph, the graph break or skipped frame that kept its ops out of every
            compiled graph; `None` if unknown, for example in a loaded file.
        groups: ranks of each process group known at capture, by its name in the graph. Neither
            compared nor stored; empty for a loaded file.
        own_modules: modules whose class is not torch's own, by path, if the capture records them.
            Neither compared nor stored.
        calls: the runs of the graph in its step; `None` if unknown, () if they were not recorded.
            Stored and compared for a step with several graphs (see `graph.step`).
        decomposed: True for a graph of AOTAutograd with inductor's decompositions. Neither compared
            nor stored.
    """

    nodes: tuple[Node, ...]
    name: str = "main"
    kind: GraphKind = "forward"
    level: Level = "fx"
    saved: tuple[Ref, ...] = ()
    subgraphs: tuple[Graph, ...] = ()
    classes: Mapping[str, str] = field(default_factory=dict)
    eager: bool = False
    runs: int = 1
    counted: bool = False
    output: tuple[tuple[str, Arg], ...] | None = None
    given: bool = False
    digits: int | None = None
    saver: Graph | None = None
    cause: GraphBreak | None = None
    groups: Mapping[str, tuple[int, ...]] = field(default_factory=dict)
    own_modules: Mapping[str, OwnModule] = field(default_factory=dict)
    decomposed: bool = False
    calls: tuple[StepCall, ...] | None = None

    # -- reading ---------------------------------------------------------------------------------

    @cached_property
    def by_name(self) -> Mapping[str, Node]:
        """Nodes by name."""
        return {node.name: node for node in self.nodes}

    @cached_property
    def subgraphs_by_name(self) -> Mapping[str, Graph]:
        """Bodies of higher-order ops by name."""
        return {body.name: body for body in self.subgraphs}

    @cached_property
    def users(self) -> Mapping[str, Sequence[str]]:
        """Names of the nodes that refer to a node, by its name, once for each reference."""
        return grouped((name, node.name) for node in self.nodes for name in node.refs)

    if not TYPE_CHECKING:  # so that type checkers still report missing attributes

        def __getattr__(self, name: str) -> Any:
            if name.startswith("assert_"):
                raise AttributeError(
                    f"Graph has no {name}, because the check needs the whole capture: use "
                    f"`capture.{name}(...)`"
                )
            raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}")

    def __getitem__(self, name: str) -> Node:
        return self.by_name[name]

    @property
    def inputs(self) -> tuple[Node, ...]:
        """Placeholders, in order."""
        return tuple(node for node in self.nodes if node.kind == "placeholder")

    @property
    def outputs(self) -> tuple[Node, ...]:
        """Returned nodes, flattened, without the values saved for backward."""
        return tuple(
            self.by_name[ref.name]
            for node in self.nodes
            if node.kind == "output"
            for ref in iter_refs(node.args)
        )

    def walk(self) -> Iterator[Graph]:
        """Yield this graph and all nested graphs, outermost first."""
        yield self
        for sub in self.subgraphs:
            yield from sub.walk()

    def map_nodes(self, change: Callable[[Node], Node]) -> Graph:
        """Return the graph with each node replaced by `change(node)`, also in all nested graphs."""
        subgraphs = tuple([sub.map_nodes(change) for sub in self.subgraphs])
        return replace(self, nodes=tuple(map(change, self.nodes)), subgraphs=subgraphs)

    @cached_property
    def own_calls(self) -> OwnCalls:
        """Calls of this graph by op, without the calls of its bodies."""
        from .census import own_calls

        return own_calls(self)

    @cached_property
    def op_counts(self) -> OpCounts:
        """Number of runs of each op, including bodies of higher-order ops.

        An op in a body counts once per call of the body. In `map` and `scan` it counts once per
        row, and in a `while_loop` once. If an op wraps another op, only the inner op counts.

        A `getitem` that selects an output of a multi-output op does not count, because it computes
        nothing. A `getitem` that indexes a tensor counts.
        """
        from .census import count_ops

        return count_ops((self,))

    @property
    def flops(self) -> int:
        """Floating-point operations of one run, by torch's formulas.

        Products, convolutions and attention count, with two operations for each multiply-add. See
        `pytest_torchgraph.graph.cost.flops`.

        Raises:
            CaptureError: for a graph of torch functions, for a size that is a symbol, and for ops
                that do work but have no formula. The message names these ops.
        """
        from .cost import total_flops

        return total_flops((self,), times_run=False)

    def by_module(self, depth: int | None = None) -> Mapping[str, Cost]:
        """Return the cost of one run by module path.

        Args:
            depth: maximum number of path components. Modules with a longer path count for the
                enclosing module. `None` for no limit.

        Raises:
            CaptureError, ValueError: see `Capture.by_module`.
        """
        from .cost import by_module

        return by_module((self,), depth, times_run=False)

    def with_sizes(self, **sizes: int) -> Graph:
        """Return the graph with values for symbolic sizes; see `Capture.with_sizes`.

        Raises:
            TypeError, ValueError: see `Capture.with_sizes`.
        """
        from .sizes import with_sizes

        return with_sizes((self,), sizes)[0]

    # -- equality --------------------------------------------------------------------------------

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Graph):
            return NotImplemented
        if self is other:
            return True
        from .equality import isomorphic

        return isomorphic(self, other)

    def __hash__(self) -> int:
        from .equality import as_captured, canonical_graph

        # A graph that the user passed in is compared to a captured one without its aliases, so they
        # never count here.
        nodes = canonical_graph(as_captured(self)).nodes
        counts = Counter(node.op for node in nodes if node.is_call)
        return hash((len(nodes), frozenset(counts.items())))

    def __repr__(self) -> str:
        from .text import format_name, ops_in_words

        return (
            f"<Graph {format_name(self.name)}: {self.kind} at {self.level}, {ops_in_words(self)}>"
        )

    # -- text and pictures -----------------------------------------------------------------------

    def to_text(
        self, detail: Detail = "dataflow", fold: bool = True, digits: int | None = None
    ) -> str:
        """Return the `.tgraph` text of this graph.

        Args:
            detail: "ops" (number of runs of each op), "dataflow" (ops, edges, constants, dtypes and
                shapes; the default) or "full" (also strides and devices).
            fold: write repeated modules once, as in stored files. False gives one line per node,
                for comparisons line by line.
            digits: significant digits of the float constants, 0 to 17. 0 writes `~` for each
                constant. `None` writes all digits of the graph.

        Raises:
            ValueError: for any other number of digits.
        """
        from .text import format_document

        return format_document((self,), detail=detail, fold=fold, digits=digits)

    @classmethod
    def from_text(cls, text: str) -> Graph:
        """Parse the text of exactly one graph. Nothing in the text is evaluated.

        Raises:
            GraphFormatError: with line and column, for any text that `to_text` does not write.
        """
        from ..errors import GraphFormatError
        from .text import parse_document

        graphs = parse_document(text).graphs
        if len(graphs) != 1:
            raise GraphFormatError(
                f"expected one graph, found {len(graphs)}: use pytest_torchgraph.load for a file"
            )
        return graphs[0]

    def to_table(self, cost: bool = False) -> str:
        """Return fx's tabular view: opcode, name, target, args and kwargs of each node in columns.

        Args:
            cost: add two columns for the cost of each node. The first has the FLOPs, including the
                bodies of a higher-order op. The second has the bytes saved for the backward, at the
                op that allocated the storage. A question mark marks an unknown figure: an op
                without a formula, or a size that is a symbol. The second column is omitted if the
                graph does not record its saved values, for example via "export".

        Raises:
            CaptureError: for costs of a graph of torch functions; see `flops`.
        """
        from .text import format_table

        return format_table(self, cost)

    def to_dot(self, *, heat: Literal["flops", "saved_bytes"] | None = None) -> graphviz.Digraph:
        """Return the drawing of this graph, as a `graphviz.Digraph`.

        Args:
            heat: quantity that the colours show instead of op categories: "flops" or "saved_bytes",
                the bytes saved for the backward. Boxes and modules show the amount and its share of
                the total. A folded block shows the amount of all its ops. The cost of a body is at
                each of its calls.

        Raises:
            CaptureError: for a heat that is unavailable at the level of the graph.
            ValueError: for an unknown heat.
        """
        from ..render.whole import to_dot

        return to_dot(self, heat=heat)

    def render(
        self, path: str | Path, *, heat: Literal["flops", "saved_bytes"] | None = None
    ) -> Path:
        """Draw this graph into a file.

        Args:
            path: output file; its suffix (`.svg .png .pdf .dot`) selects the format.
            heat: quantity shown by the colours; see `to_dot`.

        Raises:
            TorchGraphError: if neither `dot` nor pygraphviz is installed, or if drawing failed.
            CaptureError, ValueError: for `heat`; see `to_dot`.
        """
        from ..render.whole import render

        return render(self, path, heat=heat)

    def _to_check(
        self, allow: str | Sequence[str] | None = None, phase: str | None = None
    ) -> tuple[Graph, ...]:
        __tracebackhide__ = True
        return (self,) if phase is None else in_phase((self,), phase)

    def renamed(self, name: str) -> Graph:
        """Return the graph under another name."""
        return replace(self, name=name)


def phase_of(graph: Graph) -> str:
    """Return the phase of a graph; inference and joint graphs belong to the forward."""
    return graph.kind if graph.kind in PHASES else "forward"


def in_phase(graphs: Iterable[Graph], phase: str) -> tuple[Graph, ...]:
    """Return the graphs of a phase to check.

    Raises:
        AssertionError: if there are none.
        ValueError: for an unknown phase.
    """
    __tracebackhide__ = True
    graphs = tuple(graphs)
    need_phase(phase)
    found = tuple(graph for graph in graphs if phase_of(graph) == phase)
    if not found:
        names = ", ".join(graph.name for graph in graphs)
        raise AssertionError(
            f"the step has no graph in phase {phase!r} (graphs: {names or 'none'})"
        )
    return found


def need_phase(phase: str) -> str:
    """Return a phase. Raises `ValueError` if it is unknown."""
    if phase not in PHASES:
        raise ValueError(f"unknown phase={phase!r}: use {', '.join(map(repr, PHASES))}")
    return phase


def iter_refs(value: Arg) -> Iterator[Ref]:
    """Yield all node references inside an argument, in order, with repetition."""
    # Not a recursive generator: each value would pass through every level of it.
    refs: list[Ref] = []
    _add_refs((value,), refs)
    return iter(refs)


def _add_refs(values: Iterable[Arg], refs: list[Ref]) -> None:
    """Append the references inside arguments to `refs`."""
    for value in values:
        kind = type(value)
        if kind is Ref:
            refs.append(value)
        elif kind in _WITHOUT_REFS:  # most values; the check for a Mapping takes ten times as long
            continue
        elif isinstance(value, tuple):
            _add_refs(value, refs)
        elif isinstance(value, Mapping):
            _add_refs(value.values(), refs)
        elif isinstance(value, slice):
            _add_refs((value.start, value.stop, value.step), refs)


_WITHOUT_REFS = frozenset({Atom, Device, Symbol, bool, float, int, str, type(None)})
"""Types of values that hold no references."""


def map_arg(value: Arg, change: Callable[[Arg], Arg]) -> Arg:
    """Apply a function to each value inside an argument, as `torch.fx.node.map_arg` does to nodes.

    Return `value` itself if nothing changed, so that equal graphs share their arguments.

    Args:
        value: an argument. The values in sequences, mappings and slices are visited one by one.
        change: takes a value that contains no other values, and returns its replacement.
    """
    if type(value) in _LEAVES:  # most values; the check for a Mapping takes ten times as long
        return change(value)
    changed: Arg
    if isinstance(value, tuple):
        changed = tuple([map_arg(item, change) for item in value])
        return value if all(map(operator.is_, changed, value)) else changed
    if isinstance(value, Mapping):
        changed = {key: map_arg(item, change) for key, item in value.items()}
        return value if all(map(operator.is_, changed.values(), value.values())) else changed
    if isinstance(value, slice):
        return slice(*[map_arg(end, change) for end in (value.start, value.stop, value.step)])
    return change(value)


_LEAVES = _WITHOUT_REFS | {Ref}


def substituting(values: Mapping[str, Arg]) -> Callable[[Arg], Arg]:
    """Return a function for `map_arg` that replaces references by values, by node name."""
    return lambda leaf: values.get(leaf.name, leaf) if type(leaf) is Ref else leaf


def map_node(node: Node, change: Callable[[Arg], Arg], **fields: Any) -> Node:
    """Return a node with a function applied to each value that it refers to or has as an argument.

    An effect whose target becomes a constant keeps no target. Return `node` itself if nothing
    changed.

    Args:
        node: the node.
        change: see `map_arg`.
        fields: other fields of the node to replace.
    """
    effects = node.effects
    if effects:
        targets = [effect.target and change(effect.target) for effect in effects]
        effects = tuple(
            Effect(effect.kind, target if isinstance(target, Ref) else None)
            for effect, target in zip(effects, targets, strict=True)
        )
    after = node.after
    if after:
        after = tuple(dict.fromkeys(ref for ref in map(change, after) if isinstance(ref, Ref)))
    args, kwargs = map_arg(node.args, change), map_arg(node.kwargs, change)
    # A copy of a node takes as long as all the rest, and in many graphs most nodes stay the same.
    if (
        (args is node.args and kwargs is node.kwargs)
        and (effects, after) == (node.effects, node.after)
        and all(getattr(node, name) == value for name, value in fields.items())
    ):
        return node
    return replace(node, args=args, kwargs=kwargs, effects=effects, after=after, **fields)


def is_projection(node: Node, producer: Node | None) -> bool:
    """Return True if `node` is a `getitem` that selects one of several outputs of `producer`."""
    # A printed graph has no result for a higher-order op, which returns several values.
    return (
        node.op == "operator.getitem"
        and producer is not None
        and (isinstance(producer.result, tuple) or producer.op.startswith("higher_order."))
        and len(node.args) == 2
        and isinstance(node.args[1], int | str)  # a string for the results of a Triton kernel
    )
