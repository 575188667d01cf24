"""Convert a torch.fx graph to a `Graph`.

The parts of an fx node, what they become, and the modules that read them:

    fx.Node.op, target   op name (`ops.qualified`, `normalize`), target
    fx.Node.args         references and constants (`canonical_names`)
    fx.Node.meta         result, module path, source line (`node_meta`)
    schemas, names       effects, `after` (`effects`)
    placeholders, desc   order of inputs and outputs, saved values (`placeholders`)
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Hashable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Protocol

import torch
from torch import fx

from .. import torch_private
from ..graph.census import returned_by
from ..graph.higher_order import GRAPH_MODULE, KINDS, body_names, leaves
from ..graph.model import Arg, Effect, Graph, GraphKind, Node, Ref, Result, Source, SubgraphRef
from ..graph.module_paths import module_of
from ..ops.matching import Level, base_name
from ..ops.qualified import attribute_at, class_name, op_name, overload_of
from . import node_meta, normalize, rng_states, source_lines
from .canonical_names import CanonicalNames, NodeNamer
from .effects import EffectTracker
from .graph_modules import Regions, module_options
from .node_meta import BackwardModules
from .normalize import value_of_constant
from .placeholders import DeclaredOrder, InputName, is_saved, original_value
from .process_groups import mark_names
from .rng_states import RecomputedCopies

_CALL_NUMBER = re.compile(r"_\d+$")
"""Number that Dynamo adds to the name of a call."""


@dataclass
class Naming:
    """Names and roles for converting one fx graph, supplied by the capture mechanism.

    Attributes:
        inputs: (role, name) of each placeholder, by fx name. A role is one of
            `graph.model.INPUT_OPS`. Saved values are in the order in which the forward computes
            them. A missing placeholder is an `input` under its fx name.
        modules: module paths by `id`.
        input_order: position of each declared input, by name. If given, inputs, saved values and
            values returned for inputs are sorted by it (see `placeholders`).
        dynamo: (role, name) of each input of the Dynamo graph. `desc` refers to them by position.
        is_body: True for the body of a higher-order op. All its outputs are real outputs: the op
            itself determines which of them it saves.
        plain: True if `nn_module_stack` holds module paths (torch.fx), False if it holds Dynamo
            sources.
        forward: for a backward, its forward graph.
        given: True if the user passed in the graph. It is then converted as is, and the dtype and
            shape of a constant are read from the attribute, not from the node's meta.
        tensors: for a graph passed in by the user, the tensor of each input, by fx name.
        values: value of each constant that is an input, by fx name; see `Node.args`.
        is_made: returns True if the target's code made a constant, and False if the constant
            existed before the call. `None` if the code made all constants.
    """

    inputs: dict[str, InputName] = field(default_factory=dict)
    modules: dict[int, str] = field(default_factory=dict)
    input_order: Mapping[str, int] = field(default_factory=dict)
    dynamo: Sequence[InputName] = ()
    is_body: bool = False
    plain: bool = False
    forward: Converted | None = None
    given: bool = False
    tensors: Mapping[str, Any] = field(default_factory=dict)
    values: Mapping[str, tuple[Arg, ...]] = field(default_factory=dict)
    is_made: Callable[[Any], bool] | None = None


@dataclass
class Converted:
    """A `Graph` and the fx graph it was converted from.

    Attributes:
        graph: the converted graph.
        names: node names in `graph`, by name in `fx`, in node order, except that an alias made by
            autograd (`aten.detach`) directly follows the value it aliases.
        owner: the module holding the attributes that `fx` refers to, or `None`.
        fx: the fx graph.
        canon: canonical names of symbols and devices used by the conversion.
        naming: names and roles of inputs and modules used by the conversion.
        returned: positions in the output of `fx`: first of the values that `graph` returns, then
            of the values that it saves for its backward. `None` if both graphs return the same.
        position_of: returns the position of a tensor among the outputs of Dynamo's graph, or
            `None` if it is not an output. The function is `None` if positions were not recorded.
    """

    graph: Graph
    names: dict[str, str]
    owner: Any
    fx: torch.fx.Graph
    canon: CanonicalNames
    naming: Naming
    returned: list[int] | None
    position_of: Callable[[Any], int | None] | None = None


class HasGraph(Protocol):
    """A `torch.fx.GraphModule`, or a graph parsed from printed text (`printed.reading.Printed`)."""

    graph: fx.Graph

    def get_submodule(self, target: str) -> Any:
        """Return the module at an attribute path."""


def convert(
    module: HasGraph | fx.Graph,
    *,
    name: str = "main",
    kind: GraphKind = "forward",
    level: Level,
    canon: CanonicalNames | None = None,
    naming: Naming | None = None,
) -> Converted:
    """Convert an fx graph and the bodies of its higher-order ops.

    Args:
        module: the graph, or the module that owns the graph and the attributes it refers to.
        name: name of the graph in its capture.
        kind: see `Graph`.
        level: see `ops.matching.Level`.
        canon: names shared by the graphs of one capture, so that a symbol has the same name in
            each of them.
        naming: names and roles of inputs and modules, if known.
    """
    converter = GraphConverter(module, canon or CanonicalNames(), naming or Naming())
    return converter.run(name, kind, level)


class GraphConverter:
    """Converter for one fx graph, node by node in graph order.

    `run` calls `input`, `node` and `output`. Most other methods return one field of a `Node`, which
    their docstrings name. `FoldedConverter` overrides some of them.

    Attributes:
        fx: the fx graph.
        owner: the module that owns the fx graph, or `None`.
        canon, naming: see `convert`.
        level, kind: level and kind of the graph.
        namer: generator of node names.
        names: assigned name of each node.
        paths: module path of each node, inputs excluded.
        positions: position of each node, inputs excluded.
        unused_meshes: placeholders left out of the graph.
        results: result of each node.
        subgraphs: bodies of higher-order ops, by attribute path.
        returned: see `Converted`.
        _calls: for calls in one column of a line, the number of each by its name in Dynamo's graph;
            see `with_columns`.
        _written: for each body, the names of its inputs that it writes.
    """

    level: Level
    kind: GraphKind

    def __init__(self, module: HasGraph | fx.Graph, canon: CanonicalNames, naming: Naming):
        owning = module.owning_module if isinstance(module, fx.Graph) else module
        self.owner = owning
        self.fx = module if isinstance(module, fx.Graph) else module.graph
        self.canon = canon
        self.naming = naming
        self.namer = NodeNamer()
        self.names: dict[fx.Node, str] = {}
        self.paths: dict[fx.Node, str] = {}
        self.positions: dict[fx.Node, int] = {}
        self.results: dict[fx.Node, Result] = {}
        self.subgraphs: dict[str, Graph] = {}
        self._calls: dict[Hashable, dict[str, int]] = {}
        self._written: dict[str, set[str]] = {}
        self.returned: list[int] | None = None
        self.unused_meshes = {
            node for node in self.fx.find_nodes(op="placeholder") if _is_unused_mesh(node)
        }
        self._tracker = EffectTracker(self.names)
        self._order = DeclaredOrder(self.fx, naming.inputs, naming.input_order, naming.dynamo)
        self._regions = Regions(self.fx, naming.inputs)
        self._backward = BackwardModules(naming.forward) if naming.forward else None
        self._copies = RecomputedCopies(naming.forward.fx) if naming.forward else None

    def run(self, name: str, kind: GraphKind, level: Level) -> Converted:
        """Convert the graph. A converter can run only once."""
        self.level = level
        self.kind = kind
        nodes: list[Node] = []
        saved: list[Ref] = []
        for node, role in self.name_inputs():
            nodes.append(self.input(node, role))
        for node in self.fx.nodes:
            if node.op == "placeholder" or (node.op == "get_attr" and self.is_body(node)):
                continue
            if node.op == "output":
                output, saved = self.output(node)
                nodes.append(output)
            else:
                nodes.append(self.node(node))
        subgraphs = tuple(self.subgraphs.values())
        graph = Graph(
            tuple(nodes),
            name,
            kind,
            level,
            tuple(saved),
            subgraphs,
            given=self.naming.given,
            groups=self.canon.ranks_of_groups(),
        )
        # The sort is stable, so an alias directly follows the value that it aliases.
        order = {node: number for number, node in enumerate(self.names)}
        values = sorted(self.names, key=lambda node: order[original_value(node)])
        names = {node.name: self.names[node] for node in values}
        return Converted(graph, names, self.owner, self.fx, self.canon, self.naming, self.returned)

    def name_inputs(self) -> list[tuple[fx.Node, str]]:
        """Name the placeholders, and the symbols in their shapes.

        Returns:
            (placeholder, role) pairs, in the order of the graph's inputs.
        """
        placeholders = [
            node
            for node in self.fx.nodes
            if node.op == "placeholder" and node not in self.unused_meshes
        ]
        if self.naming.input_order:
            placeholders.sort(key=self._order.of_input)
        for node in placeholders:
            value = rng_states.value_of(node)
            # Printed text does not show tuples and lists, so their symbols are not numbered here.
            if not isinstance(value, tuple | list):
                self.canon.result(value)  # numbers the symbols in the order of the inputs
        roles: list[tuple[fx.Node, str]] = []
        for node in placeholders:
            role, name = self.naming.inputs.get(node.name, ("input", node.name))
            name = "mesh" if torch_private.is_mesh(node_meta.value_of(node)) else name
            self.names[node] = self.namer.claim(name)
            roles.append((node, role))
        if self.naming.forward is not None:
            self.namer.reserve(self.naming.forward.names.values())
        return roles

    # -- nodes -----------------------------------------------------------------------------------

    def input(self, node: fx.Node, role: str) -> Node:
        """Convert a placeholder."""
        name = self.names[node]
        self._tracker.add_input(node)
        defaults = tuple(self.canon.constant(value) for value in node.args)
        if role == "constant":
            defaults = self.naming.values.get(node.name, ())
        path = module_of(name) if role == "saved" else ""
        annotations = node_meta.annotations_of(node.meta)
        result = self.result(node)
        return Node(
            name,
            "placeholder",
            role,
            defaults,
            result=result,
            module=path,
            annotations=annotations,
        )

    def node(self, node: fx.Node) -> Node:
        """Convert a call or a get_attr."""
        path = self.paths[node] = self.module_path(node)
        self.positions[node] = len(self.positions)
        op, target = self.op(node)
        self.names[node] = self.name(node, path, op, target)
        args, kwargs = mark_names(node.target, *normalize.arguments(node))
        result = self.result(node)
        called: tuple[Arg, ...] = ()
        if op == GRAPH_MODULE:  # e.g. made by torch.fx.passes.split_module
            called = (SubgraphRef(self.body(node)),)
            result = result or returned_by(self.subgraphs[str(node.target)])
        values = tuple([self.arg(arg) for arg in args])
        if op == "get_attr" and not target:  # an anonymous constant
            values = self.value_of_constant(node)
        values = called + values
        effects, after = self.effects(node, self.written_by_bodies(op, values))
        return Node(
            self.names[node],
            "call_function" if op.startswith("operator.") else node.op,  # type: ignore[arg-type]
            op,
            values,
            {key: self.arg(arg) for key, arg in kwargs.items()},
            result,
            path,
            self.source(node),
            target,
            effects,
            after,
            options=self.options(node, op),
            by="" if self._copies is None else self._copies.by(node),
            annotations=node_meta.annotations_of(rng_states.meta_of(node)),
        )

    def op(self, node: fx.Node) -> tuple[str, str]:
        """Return `Node.op` and `Node.target`."""
        if node.op == "get_attr":
            target = str(node.target)
            # torch numbers these constants, so another constant would change the name.
            anonymous = target.lstrip("_").startswith(("tensor_constant", "lifted_tensor"))
            return "get_attr", "" if anonymous else target
        if node.op == "call_module":
            target = str(node.target)
            if self.is_body(node):
                return GRAPH_MODULE, target
            called = self.owner.get_submodule(target) if self.owner is not None else None
            if called is None:
                return "torch.nn.Module", target
            return class_name(type(called)), target
        return normalize.operator_name(node) or op_name(node.target), ""

    def options(self, node: fx.Node, op: str) -> str | None:
        """Return `Node.options`."""
        if node.op != "call_module" or op == GRAPH_MODULE or self.owner is None:
            return None
        return module_options(self.owner.get_submodule(str(node.target)))

    def value_of_constant(self, node: fx.Node) -> tuple[Arg, ...]:
        """Return `Node.args` of a constant: its value if the code made it, otherwise `()`."""
        tensor = self.attribute(node)
        is_made = self.naming.is_made
        return value_of_constant(tensor) if is_made is None or is_made(tensor) else ()

    def attribute(self, node: fx.Node) -> Any:
        """Return the attribute read by a get_attr, or `None` without an owner."""
        return attribute_at(self.owner, str(node.target))

    def name(self, node: fx.Node, path: str, op: str, target: str) -> str:
        """Claim a new name for a node."""
        if node.op in ("get_attr", "call_module"):
            return self.namer.claim(target or "constant")
        if op == "operator.getitem" and self.is_projection(node):
            producer, index = node.args
            return self.namer.claim(f"{self.names[producer]}#{index}")  # type: ignore[index]
        if node.meta.get(node_meta.SCOPE):  # a printed node, whose module is unknown
            return self.namer.claim(f"{base_name(op)}<{node.meta[node_meta.SCOPE]}>")
        return self.namer.node(path, op)

    def is_projection(self, node: fx.Node) -> bool:
        """Return True if the node selects one output of an op with several outputs."""
        if len(node.args) != 2 or type(node.args[1]) not in (int, str):
            return False
        producer = node.args[0]
        if not isinstance(producer, fx.Node):
            return False
        # Printed graphs have no result for nodes that return a tuple.
        if isinstance(producer.target, torch._ops.HigherOrderOperator):
            return True
        return isinstance(self.results.get(producer), tuple)

    def module_path(self, node: fx.Node) -> str:
        """Return `Node.module`; for a call of a shared region, the layer that it runs."""
        return self._regions.path(node, self.recorded_path(node))

    def recorded_path(self, node: fx.Node) -> str:
        """Return the module that torch recorded for a node, else the module of related nodes."""
        if normalize.sums_gradients(node, self.kind):
            return self.path_of_sum(node)
        meta = rng_states.meta_of(node)
        stack = meta.get("nn_module_stack") or meta.get("fwd_nn_module_stack")
        # The last entry of a stack is the innermost module.
        if stack and (self.naming.plain or self.level == "fx"):
            return str(list(stack.values())[-1][0])
        if stack:
            key, value = list(stack.items())[-1]
            return node_meta.stack_path(key, value, self.naming.modules)
        if node.op in ("call_module", "get_attr"):
            return str(node.target) if node.op == "call_module" else ""
        producer = node.args[0] if node.args else None
        if op_name(node.target) == "operator.getitem" and producer in self.paths:
            return self.paths[producer]  # type: ignore[index]
        return self._backward.path(node) if self._backward is not None else ""

    def path_of_sum(self, node: fx.Node) -> str:
        """Return `Node.module` of a sum of gradients: the module of the operand computed last."""
        # Autograd adds each gradient as it arrives. The module whose backward is running at that
        # moment is therefore the module of the last operand. via="dispatch" records the same.
        operands = [operand for operand in node.all_input_nodes if operand in self.paths]
        last = max(operands, key=self.positions.__getitem__, default=None)
        return "" if last is None else self.paths[last]

    def result(self, node: fx.Node) -> Result:
        """Return `Node.result`."""
        value = rng_states.value_of(node)
        # The tensor of a user's graph is known, and its meta may be that of other inputs.
        if self.naming.given:
            user_tensor = self.attribute(node) if node.op == "get_attr" else None
            user_tensor = self.naming.tensors.get(node.name, user_tensor)
            value = user_tensor if isinstance(user_tensor, torch.Tensor) else value
        result = self.unrecorded_result(node) if value is None else self.canon.result(value)
        self.results[node] = result
        return result

    def unrecorded_result(self, node: fx.Node) -> Result:
        """Return the result of a node without a value in its meta.

        The op's schema determines the number of outputs.
        """
        overload = overload_of(node.target)
        if overload is None:
            return None
        returns = overload._schema.returns
        # A list has an unknown number of items. `()` marks it as several values.
        if len(returns) == 1:
            return () if isinstance(returns[0].type, torch.ListType) else None
        return (None,) * len(returns) or None

    def source(self, node: fx.Node) -> Source | None:
        """Return `Node.source`."""
        if (source := source_lines.source_of(node.meta.get(node_meta.LINE))) is not None:
            return source
        trace = rng_states.meta_of(node).get("stack_trace") or node.stack_trace
        call = node_meta.call_of(node.meta)
        source = source_lines.from_stack_trace(trace, call) if trace else None
        return source if source is None or not call else self.with_columns(source)

    def with_columns(self, source: Source) -> Source:
        """Add the end column to the line of a Dynamo node if it has only the start column."""
        if len(source.columns) != 1:
            return source
        # Two edits of one line are two findings, and only columns distinguish calls on one line.
        call = _CALL_NUMBER.sub("", source.call)
        expressions = source_lines.expressions(source.code, source.columns[0], call)
        calls = self._calls.setdefault((source.file, source.line, source.columns, call), {})
        number = calls.setdefault(source.call, len(calls))
        if not expressions:
            return source
        # The calls run in the order of their ends. In a loop, each of them has several numbers.
        return replace(source, columns=expressions[number % len(expressions)])

    def effects(
        self, node: fx.Node, by_bodies: Collection[str]
    ) -> tuple[tuple[Effect, ...], tuple[Ref, ...]]:
        """Return `Node.effects` and `Node.after`; see `EffectTracker.add_call`."""
        return self._tracker.add_call(node, by_bodies)

    def written_by_bodies(self, op: str, args: tuple[Arg, ...]) -> set[str]:
        """Return the names of the operands that a higher-order op's bodies write."""
        names = [*body_names(args)] if self.subgraphs else []
        if KINDS.get(op) == "function":
            names = names[:1]  # the backward takes no operand of the call
        # The operands follow the last body. Without bodies, `names` is empty.
        last = max((k for k, arg in enumerate(args) if any(body_names(arg))), default=0)
        operands = leaves(args[last + 1 :])
        written: set[str] = set()
        for name in names:
            body = self.subgraphs[name]
            # Bodies with further inputs, such as those of an attention, write nothing.
            if len(operands) == len(body.inputs):
                pairs = zip(operands, body.inputs, strict=True)
                refs = [operand for operand, node in pairs if node.name in self._written[name]]
                written.update(ref.name for ref in refs if isinstance(ref, Ref))
        return written

    # -- arguments -------------------------------------------------------------------------------

    def arg(self, value: Any) -> Arg:
        """Convert an argument; nodes become references."""
        match value:
            case fx.Node():
                if value.op == "get_attr" and self.is_body(value):
                    return SubgraphRef(self.body(value))
                return Ref(self.names[value])
            case tuple() | list():
                return tuple([self.arg(item) for item in value])
            case dict():
                return {self.canon.constant(key): self.arg(item) for key, item in value.items()}
            case slice():
                return slice(self.arg(value.start), self.arg(value.stop), self.arg(value.step))
        return self.canon.constant(value)

    def is_body(self, node: fx.Node) -> bool:
        """Return True if a get_attr or call_module refers to a graph, e.g. a higher-order body."""
        if self.owner is None:
            return False
        return isinstance(getattr(self.attribute(node), "graph", None), fx.Graph)

    def body(self, node: fx.Node) -> str:
        """Return the name of the body that a node refers to, converting it on first use."""
        name = str(node.target)
        if name not in self.subgraphs:
            assert self.owner is not None
            outer = self.naming
            inner = Naming(
                modules=outer.modules,
                is_body=True,
                plain=outer.plain,
                given=outer.given,
                is_made=outer.is_made,
            )
            module: Any = self.owner.get_submodule(name)
            converter = GraphConverter(module, self.canon, inner)
            self.subgraphs[name] = converter.run(name, "forward", self.level).graph
            self._written[name] = converter._tracker.written
        return name

    # -- output ----------------------------------------------------------------------------------

    def output(self, node: fx.Node) -> tuple[Node, list[Ref]]:
        """Return the output node with the real outputs, and the values saved for backward."""
        value: Any = node.args[0]
        saved: list[Ref] = []
        positions = self.output_positions(node)
        if positions is not None:
            real, saved_positions = positions
            self.returned = real + saved_positions
            saved = [Ref(self.names[value[k]]) for k in saved_positions]
            value = tuple([value[k] for k in real])
        if isinstance(value, tuple | list) and len(value) == 1:
            value = value[0]
        return Node("output", "output", "output", (self.arg(value),)), saved

    def output_positions(self, node: fx.Node) -> tuple[list[int], list[int]] | None:
        """Return the positions of real outputs and of saved values, in the converted graph's order.

        Return `None` if AOTAutograd does not describe the outputs, or if a pass has changed them.
        """
        returned: Any = node.args[0]
        # torch loses the descriptions if activation checkpointing keeps random ops, but
        # `rng_states` recovers them.
        descriptions = None if self.naming.is_body else rng_states.descriptions_of(node)
        if (
            not isinstance(returned, tuple | list)
            or not isinstance(descriptions, tuple | list)
            or len(returned) != len(descriptions)
        ):
            return None
        kept = [k for k, item in enumerate(returned) if item not in self.unused_meshes]
        real = [k for k in kept if not is_saved(descriptions[k])]
        all_saved = [k for k in kept if is_saved(descriptions[k])]
        saved_positions = [k for k in all_saved if isinstance(returned[k], fx.Node)]  # no numbers
        if self.naming.input_order:
            position_by_name = {name: number for number, name in enumerate(self.names)}
            saved_positions.sort(key=lambda k: self._order.of_saved(returned[k], position_by_name))
            backward = self.kind == "backward"
            place_among_real = {k: number for number, k in enumerate(real)}
            real.sort(
                key=lambda k: self._order.of_output(descriptions[k], place_among_real[k], backward)
            )
        return real, saved_positions


def _is_unused_mesh(node: fx.Node) -> bool:
    """Return True if a placeholder is a mesh that no op takes."""
    # torch passes a mesh through forward and backward for each DTensor. Among equal meshes, it
    # saves an arbitrary one.
    if not torch_private.is_mesh(node_meta.value_of(node)):
        return False
    return all(user.op == "output" for user in node.users)
