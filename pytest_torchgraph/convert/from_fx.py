"""From a torch.fx graph to a `Graph`.

The parts of a node, and the modules that read them:

    fx.Node.op, target   op name (`ops.qualified`, `normalize`), target
    fx.Node.args         references and constants (`canonical_names`)
    fx.Node.meta         result, module path, source line (`node_meta`)
    schemas, names       effects, `after` (`effects`)
    placeholders, desc   order of inputs and outputs, saved values (`declared_order`)
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

import torch
import torch.fx

from .. import torch_private
from ..graph.census import returned_by
from ..graph.higher_order import GRAPH_MODULE
from ..graph.model import Arg, Effect, Graph, GraphKind, Node, Ref, Result, Source, SubgraphRef
from ..graph.module_paths import module_of
from ..ops.names import Level, base_name
from ..ops.qualified import class_name, op_name
from . import node_meta, normalize, rng_states, source_lines
from .canonical_names import CanonicalNames, NodeNamer
from .effects import EffectTracker
from .graph_modules import Regions, module_options
from .node_meta import BackwardModules
from .normalize import value_of_constant
from .placeholders import DeclaredOrder, is_saved, original_value
from .process_groups import mark_names
from .rng_states import Copies


@dataclass
class Naming:
    """Names and roles for the conversion of one fx graph, from the mechanism that captured it.

    Attributes:
        inputs: (role, name) of a placeholder by its fx name, a role being one of
            `graph.model.INPUT_OPS`; saved values in the order in which the forward computes them.
            A placeholder that is missing is an `input` with its fx name.
        modules: path of a module by its `id`.
        ranks: position of each declared input, by name. With it inputs, saved values and
            the values returned for inputs are put in that order (see `declared_order`).
        dynamo: (role, name) of each input of the Dynamo graph, to which `desc` refers by position.
        body: whether the graph is the body of a higher-order op. All its outputs are real: the op
            itself says which of them it saves.
        plain: whether `nn_module_stack` holds module paths, as torch.fx writes it, and not Dynamo's
            sources.
        forward: for a backward, the graph that it belongs to.
        given: whether the user handed the graph over: then it is taken as it is, and the dtype and
            shape of a constant are those of the attribute, whatever its meta says.
        tensors: of a graph that was handed over, the tensor of an input by its fx name.
        values: the value of a constant that is an input, by its fx name; see `Node.args`.
        is_made: tells a constant that the code made from one that was there before the call; None
            if all are made.
    """

    inputs: dict[str, tuple[str, str]] = field(default_factory=dict)
    modules: dict[int, str] = field(default_factory=dict)
    ranks: Mapping[str, int] = field(default_factory=dict)
    dynamo: Sequence[tuple[str, str]] = ()
    body: bool = False
    plain: bool = False
    forward: Converted | None = None
    given: bool = False
    tensors: Mapping[str, Any] = field(default_factory=dict)
    values: Mapping[str, tuple[Arg, ...]] = field(default_factory=dict)
    is_made: Callable[[Any], bool] | None = None


@dataclass
class Converted:
    """A `Graph` together with the fx graph that it was converted from.

    Attributes:
        graph: the graph.
        names: name of each node in `graph`, by its name in `fx`. They are in the order of the
            nodes, except that an alias that autograd made (`aten.detach`) comes right after the
            value that it is an alias of.
        owner: the module with the attributes that `fx` refers to; None where it has none.
        fx: the fx graph.
        canon: the names of symbols and devices that the conversion used.
        naming: the names and roles of inputs and modules that it used.
        returned: positions in the output of `fx` of the values that `graph` returns, and then of
            those that it saves for its backward; None where both return the same.
        position_of: gives the position of a tensor among what Dynamo's graph returned, None if that
            did not return it; None if nobody noted that.
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
    """A `torch.fx.GraphModule`, or a printed one that was read (`printed.reading.Printed`)."""

    graph: torch.fx.Graph

    def get_submodule(self, target: str) -> Any:
        """The module at an attribute path."""
        ...


def convert(
    module: HasGraph | torch.fx.Graph,
    *,
    name: str = "main",
    kind: GraphKind = "forward",
    level: Level,
    canon: CanonicalNames | None = None,
    naming: Naming | None = None,
) -> Converted:
    """Convert an fx graph and the bodies of its higher-order ops.

    Args:
        module: the graph, or the module that has it and the attributes that it refers to.
        name: name of the graph in its capture.
        kind: see `Graph`.
        level: see `ops.levels.Level`.
        canon: shared by the graphs of one capture, so that a symbol has one name in all of them.
        naming: names and roles of inputs and modules, where they are known.
    """
    converter = GraphConverter(module, canon or CanonicalNames(), naming or Naming())
    return converter.run(name, kind, level)


class GraphConverter:
    """Converts one fx graph, node by node in its order.

    Attributes:
        fx: the fx graph.
        owner: the module that has it, None for a graph without one.
        canon, naming: see `convert`.
        level, kind: those of the graph.
        namer: gives the names of nodes.
        names: the name that each node got.
        paths: the module path of each node but the inputs.
        positions: the position of each of these among them.
        handed_on: the placeholders that are left out.
        results: the result of each node.
        subgraphs: bodies of higher-order ops, by their attribute paths.
        returned: see `Converted`.
    """

    level: Level
    kind: GraphKind

    def __init__(self, module: HasGraph | torch.fx.Graph, canon: CanonicalNames, naming: Naming):
        owning = module.owning_module if isinstance(module, torch.fx.Graph) else module
        self.owner = owning
        self.fx = module if isinstance(module, torch.fx.Graph) else module.graph
        self.canon = canon
        self.naming = naming
        self.namer = NodeNamer()
        self.names: dict[torch.fx.Node, str] = {}
        self.paths: dict[torch.fx.Node, str] = {}
        self.positions: dict[torch.fx.Node, int] = {}
        self.results: dict[torch.fx.Node, Result] = {}
        self.subgraphs: dict[str, Graph] = {}
        self.returned: list[int] | None = None
        self.handed_on = {node for node in self.fx.find_nodes(op="placeholder") if _handed_on(node)}
        self._tracker = EffectTracker(self.names)
        self._order = DeclaredOrder(naming.inputs, naming.ranks, naming.dynamo)
        self._regions = Regions(self.fx, naming.inputs)
        self._backward = BackwardModules(naming.forward) if naming.forward else None
        self._copies = Copies(naming.forward.fx) if naming.forward else None

    def run(self, name: str, kind: GraphKind, level: Level) -> Converted:
        """The converted graph; to be called once."""
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
        order = {node: number for number, node in enumerate(self.names)}
        values = sorted(self.names, key=lambda node: order[original_value(node)])
        names = {node.name: self.names[node] for node in values}
        return Converted(graph, names, self.owner, self.fx, self.canon, self.naming, self.returned)

    def name_inputs(self) -> list[tuple[torch.fx.Node, str]]:
        """Name the placeholders, and the symbols in their shapes.

        Returns:
            The placeholders with their roles, in the order of the graph's inputs.
        """
        placeholders = [
            node
            for node in self.fx.nodes
            if node.op == "placeholder" and node not in self.handed_on
        ]
        if self.naming.ranks:
            placeholders.sort(key=self._order.of_input)
        for node in placeholders:
            value = rng_states.value_of(node)
            if not isinstance(value, tuple | list):  # of these a printed graph shows nothing
                self.canon.result(value)  # numbers the symbols in the order of the inputs
        roles: list[tuple[torch.fx.Node, str]] = []
        for node in placeholders:
            role, wanted = self.naming.inputs.get(node.name, ("input", node.name))
            wanted = "mesh" if torch_private.is_mesh(node_meta.value_of(node)) else wanted
            self.names[node] = self.namer.claim(wanted)
            roles.append((node, role))
        if self.naming.forward is not None:
            self.namer.reserve(self.naming.forward.names.values())
        return roles

    # -- nodes -----------------------------------------------------------------------------------

    def input(self, node: torch.fx.Node, role: str) -> Node:
        """The node of a placeholder."""
        name = self.names[node]
        self._tracker.add_input(node)
        defaults = tuple(self.canon.constant(value) for value in node.args)
        if role == "constant":
            defaults = self.naming.values.get(node.name, ())
        path = module_of(name) if role == "saved" else ""
        return Node(name, "placeholder", role, defaults, {}, self.result(node), path)

    def node(self, node: torch.fx.Node) -> Node:
        """The node of a call or of a get_attr."""
        path = self.paths[node] = self.module_path(node)
        self.positions[node] = len(self.positions)
        op, target = self.op(node)
        self.names[node] = self.name(node, path, op, target)
        effects, after = self.effects(node)
        args, kwargs = mark_names(node.target, *normalize.arguments(node))
        result = self.result(node)
        called: tuple[Arg, ...] = ()
        if op == GRAPH_MODULE:  # as of torch.fx.passes.split_module: its graph is a body
            called = (SubgraphRef(self.body(node)),)
            result = result or returned_by(self.subgraphs[str(node.target)])
        values = tuple([self.arg(arg) for arg in args])
        if op == "get_attr" and not target:
            values = self.value_of_constant(node)
        return Node(
            self.names[node],
            "call_function" if op.startswith("operator.") else node.op,  # type: ignore[arg-type]
            op,
            called + values,
            {key: self.arg(arg) for key, arg in kwargs.items()},
            result,
            path,
            self.source(node),
            target,
            effects,
            after,
            self.options(node, op),
            "" if self._copies is None else self._copies.by(node),
        )

    def op(self, node: torch.fx.Node) -> tuple[str, str]:
        """`Node.op` and `Node.target`."""
        if node.op == "get_attr":
            target = str(node.target)
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

    def options(self, node: torch.fx.Node, op: str) -> str | None:
        """`Node.options`."""
        if node.op != "call_module" or op == GRAPH_MODULE or self.owner is None:
            return None
        return module_options(self.owner.get_submodule(str(node.target)))

    def value_of_constant(self, node: torch.fx.Node) -> tuple[Arg, ...]:
        """`Node.args` of a constant that the code made."""
        tensor = self.attribute(node)
        is_made = self.naming.is_made
        return value_of_constant(tensor) if is_made is None or is_made(tensor) else ()

    def attribute(self, node: torch.fx.Node) -> Any:
        """The attribute that a get_attr gives, None without an owner."""
        value: Any = self.owner
        for part in str(node.target).split("."):
            value = getattr(value, part, None)
        return value

    def name(self, node: torch.fx.Node, path: str, op: str, target: str) -> str:
        """`Node.name`: a new one."""
        if node.op in ("get_attr", "call_module"):
            return self.namer.claim(target or "constant")
        if op == "operator.getitem" and self.is_projection(node):
            producer, index = node.args
            return self.namer.claim(f"{self.names[producer]}#{index}")  # type: ignore[index]
        if node.meta.get(node_meta.SCOPE):
            return self.namer.claim(f"{base_name(op)}<{node.meta[node_meta.SCOPE]}>")
        return self.namer.node(path, op)

    def is_projection(self, node: torch.fx.Node) -> bool:
        """Whether the node takes one output of an op that has several."""
        if len(node.args) != 2 or type(node.args[1]) not in (int, str):
            return False
        producer = node.args[0]
        if not isinstance(producer, torch.fx.Node):
            return False
        if isinstance(producer.target, torch._ops.HigherOrderOperator):
            return True
        return isinstance(self.results.get(producer), tuple)

    def module_path(self, node: torch.fx.Node) -> str:
        """`Node.module`; of a call of a shared region the layer that it stands for."""
        return self._regions.path(node, self.noted_path(node))

    def noted_path(self, node: torch.fx.Node) -> str:
        """The module that torch notes for a node; without one, the module that it runs for."""
        if normalize.sums_gradients(node, self.kind):
            return self.path_of_sum(node)
        meta = rng_states.meta_of(node)
        stack = meta.get("nn_module_stack") or meta.get("fwd_nn_module_stack")
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

    def path_of_sum(self, node: torch.fx.Node) -> str:
        """`Node.module` of a sum of gradients: that of the operand that was computed last.

        Autograd adds a gradient to the others as it comes in, so this is the module whose backward
        runs while it adds; a recording of what runs (`via="dispatch"`) says the same.
        """
        operands = [operand for operand in node.all_input_nodes if operand in self.paths]
        last = max(operands, key=self.positions.__getitem__, default=None)
        return "" if last is None else self.paths[last]

    def result(self, node: torch.fx.Node) -> Result:
        """`Node.result`."""
        value = rng_states.value_of(node)
        if self.naming.given:
            own = self.attribute(node) if node.op == "get_attr" else None
            own = self.naming.tensors.get(node.name, own)
            value = own if isinstance(own, torch.Tensor) else value
        result = self.unrecorded_result(node) if value is None else self.canon.result(value)
        self.results[node] = result
        return result

    def unrecorded_result(self, node: torch.fx.Node) -> Result:
        """The result of a node without a value in its meta: the op's schema gives their number."""
        if not isinstance(node.target, torch._ops.OpOverload):
            return None
        returns = node.target._schema.returns
        if len(returns) == 1:
            return () if isinstance(returns[0].type, torch.ListType) else None
        return (None,) * len(returns) or None

    def source(self, node: torch.fx.Node) -> Source | None:
        """`Node.source`."""
        if (line := node.meta.get(node_meta.LINE)) is not None:
            return source_lines.from_line(*line)
        trace = rng_states.meta_of(node).get("stack_trace") or node.stack_trace
        call = node_meta.call_of(node.meta)
        return source_lines.from_stack_trace(trace, call) if trace else None

    def effects(self, node: torch.fx.Node) -> tuple[tuple[Effect, ...], tuple[Ref, ...]]:
        """`Node.effects` and `Node.after`."""
        return self._tracker.add_call(node)

    # -- arguments -------------------------------------------------------------------------------

    def arg(self, value: Any) -> Arg:
        """An argument, its nodes as references."""
        if isinstance(value, torch.fx.Node):
            if value.op == "get_attr" and self.is_body(value):
                return SubgraphRef(self.body(value))
            return Ref(self.names[value])
        if isinstance(value, tuple | list):
            return tuple([self.arg(item) for item in value])
        if isinstance(value, dict):
            return {self.canon.constant(key): self.arg(item) for key, item in value.items()}
        if isinstance(value, slice):
            return slice(self.arg(value.start), self.arg(value.stop), self.arg(value.step))
        return self.canon.constant(value)

    def is_body(self, node: torch.fx.Node) -> bool:
        """Whether a get_attr gives the body of a higher-order op, or a module is a graph."""
        if self.owner is None:
            return False
        return isinstance(getattr(self.attribute(node), "graph", None), torch.fx.Graph)

    def body(self, node: torch.fx.Node) -> str:
        """The name of the body that a node refers to; it is converted where it is met first."""
        name = str(node.target)
        if name not in self.subgraphs:
            assert self.owner is not None
            known = self.naming
            inner = Naming(
                modules=known.modules,
                body=True,
                plain=known.plain,
                given=known.given,
                is_made=known.is_made,
            )
            inner_module: Any = self.owner.get_submodule(name)
            self.subgraphs[name] = convert(
                inner_module,
                name=name,
                level=self.level,
                canon=self.canon,
                naming=inner,
            ).graph
        return name

    # -- output ----------------------------------------------------------------------------------

    def output(self, node: torch.fx.Node) -> tuple[Node, list[Ref]]:
        """The output node with the real outputs, and the values saved for backward."""
        value: Any = node.args[0]
        saved: list[Ref] = []
        positions = self.output_positions(node)
        if positions is not None:
            real, kept = positions
            self.returned = real + kept
            saved = [Ref(self.names[value[k]]) for k in kept]
            value = tuple([value[k] for k in real])
        if isinstance(value, tuple | list) and len(value) == 1:
            value = value[0]
        return Node("output", "output", "output", (self.arg(value),)), saved

    def output_positions(self, node: torch.fx.Node) -> tuple[list[int], list[int]] | None:
        """Positions of the real outputs and of the values saved for backward, in our order.

        None where AOTAutograd does not describe the outputs, and where a pass has changed them.
        """
        value: Any = node.args[0]
        descriptions = None if self.naming.body else rng_states.descriptions_of(node)
        if (
            not isinstance(value, tuple | list)
            or not isinstance(descriptions, tuple | list)
            or len(value) != len(descriptions)
        ):
            return None
        real = [
            k
            for k, desc in enumerate(descriptions)
            if not is_saved(desc) and value[k] not in self.handed_on
        ]
        kept = [
            k
            for k, desc in enumerate(descriptions)
            if is_saved(desc)
            and isinstance(value[k], torch.fx.Node)
            and value[k] not in self.handed_on
        ]
        if self.naming.ranks:
            order = {value: number for number, value in enumerate(self.names)}
            kept.sort(key=lambda k: self._order.of_saved(value[k], order))
            backward = self.kind == "backward"
            places = {k: number for number, k in enumerate(real)}
            real.sort(key=lambda k: self._order.of_output(descriptions[k], places[k], backward))
        return real, kept


def _handed_on(node: torch.fx.Node) -> bool:
    """Whether a placeholder is a mesh that no op takes.

    torch hands one through forward and backward for each `DTensor`, and saves any of those that are
    equal.
    """
    if not torch_private.is_mesh(node_meta.value_of(node)):
        return False
    return all(user.op == "output" for user in node.users)
