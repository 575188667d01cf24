"""From a live torch.fx graph to a `Graph`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, Protocol

import torch
import torch.fx

from ..graph.model import Arg, Effect, Graph, GraphKind, Node, Ref, Result, Source, SubgraphRef
from ..graph.module_paths import common_path, module_of
from ..ops.levels import Level
from ..ops.names import base_name
from ..ops.qualified import class_name, op_name
from . import normalize, source_lines
from .aot_descriptors import belongs_to, is_saved
from .canonical_names import CanonicalNames, NodeNamer
from .dynamo_sources import module_fqn
from .effects import by_name, schema
from .effects.aliasing import Storages
from .process_groups import mark_names


@dataclass
class Naming:
    """What the conversion asks of the mechanism that made the graph.

    Attributes:
        inputs: (role, name) of a placeholder by its fx name; saved values in the order in which
            the forward computes them.
        modules: path of a module by its id.
        ranks: the order in which inputs were declared, by name. With it inputs, saved values and
            what is returned for an input are put in that order: torch has them in the order of
            their first use, by which `f(x, y)` and `f(y, x)` would be the same.
        dynamo: (role, name) of each input of the Dynamo graph, which `desc` refers to by position.
        body: whether this is the body of a higher-order op, all of whose outputs are real: the op
            itself says which of them it keeps.
        plain: whether the stacks in the nodes' meta hold paths, as torch.fx has them, and not
            Dynamo's sources.
    """

    inputs: dict[str, tuple[str, str]] = field(default_factory=dict)
    modules: dict[int, str] = field(default_factory=dict)
    ranks: Mapping[str, int] = field(default_factory=dict)
    dynamo: Sequence[tuple[str, str]] = ()
    body: bool = False
    plain: bool = False


@dataclass
class Converted:
    """A graph, and where it is from.

    Attributes:
        names: which of its nodes each fx node became, in their order; an alias that autograd made
            comes right after what it is an alias of.
        owner: what has the attributes that the fx graph refers to.
        fx: the fx graph.
        canon: what gave the symbols and devices their names.
        naming: what gave the nodes theirs.
        returned: where the fx graph returned what this one returns and then what it saves; None
            for what it returns as it is.
    """

    graph: Graph
    names: dict[str, str]
    owner: Any
    fx: torch.fx.Graph
    canon: CanonicalNames
    naming: Naming
    returned: list[int] | None


class HasGraph(Protocol):
    """A module of fx, or what was read of one that is printed."""

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
    """Convert an fx graph, its bodies of higher-order ops included."""
    return _Converter(module, canon or CanonicalNames(), naming or Naming()).run(name, kind, level)


class _Converter:
    def __init__(self, module: HasGraph | torch.fx.Graph, canon: CanonicalNames, naming: Naming):
        owning = module.owning_module if isinstance(module, torch.fx.Graph) else module
        self.owner = owning
        self.fx = module if isinstance(module, torch.fx.Graph) else module.graph
        self.canon = canon
        self.naming = naming
        self.names: dict[torch.fx.Node, str] = {}
        self.storages: Storages[str] = Storages()
        self.alias: dict[torch.fx.Node, str] = {}
        self.subgraphs: dict[str, Graph] = {}
        self.paths: dict[torch.fx.Node, str] = {}
        self.results: dict[torch.fx.Node, Result] = {}
        self.returned: list[int] | None = None

    def run(self, name: str, kind: GraphKind, level: Level) -> Converted:
        self.level = level
        self.kind = kind
        placeholders = [node for node in self.fx.nodes if node.op == "placeholder"]
        if self.naming.ranks:
            placeholders.sort(key=self.rank)
        for node in placeholders:
            if not isinstance(_value(node), tuple | list):  # nothing is printed of these
                self.canon.result(_value(node))  # symbols are numbered in the order of the inputs
        named = [self.naming.inputs.get(node.name, ("input", node.name)) for node in placeholders]
        self.namer = NodeNamer()
        for node, (_, wanted) in zip(placeholders, named, strict=True):
            self.names[node] = self.namer.claim(wanted)
        roles = {node: role for node, (role, _) in zip(placeholders, named, strict=True)}
        nodes: list[Node] = []
        saved: list[Ref] = []
        for node in (*placeholders, *self.fx.nodes):
            if node.op == "placeholder" and len(nodes) >= len(placeholders):
                continue
            if node.op == "output":
                output, saved = self.output(node)
                nodes.append(output)
            elif node.op == "get_attr" and self.is_body(node):
                continue
            else:
                nodes.append(self.node(node, roles.get(node, "input")))
        subgraphs = tuple(self.subgraphs.values())
        graph = Graph(tuple(nodes), name, kind, level, tuple(saved), subgraphs)
        order = {node: number for number, node in enumerate(self.names)}
        values = sorted(self.names, key=lambda node: order[self.origin(node)])
        names = {node.name: self.names[node] for node in values}
        return Converted(graph, names, self.owner, self.fx, self.canon, self.naming, self.returned)

    # -- nodes -----------------------------------------------------------------------------------

    def node(self, node: torch.fx.Node, role: str) -> Node:
        if node.op == "placeholder":
            name = self.names[node]
            self.storages.define(name, [name])
            self.alias[node] = name
            defaults = tuple(self.canon.constant(value) for value in node.args)
            path = module_of(name) if role == "saved" else ""
            return Node(name, "placeholder", role, defaults, {}, self.result(node), path)
        path = self.paths[node] = self.module(node)
        op, target = self.op(node)
        name = self.names[node] = self.name(node, path, op, target)
        effects_, after = self.effects(node, name)
        args, kwargs = mark_names(node.target, normalize.arguments(node), node.kwargs)
        return Node(
            name,
            "call_function" if op.startswith("operator.") else node.op,  # type: ignore[arg-type]
            op,
            tuple([self.arg(arg) for arg in args]),
            {key: self.arg(arg) for key, arg in kwargs.items()},
            self.result(node),
            path,
            self.source(node),
            target,
            effects_,
            after,
        )

    def op(self, node: torch.fx.Node) -> tuple[str, str]:
        if node.op == "get_attr":
            target = str(node.target)
            anonymous = target.lstrip("_").startswith(("tensor_constant", "lifted_tensor"))
            return "get_attr", "" if anonymous else target
        if node.op == "call_module":
            target = str(node.target)
            called = self.owner.get_submodule(target) if self.owner is not None else None
            if called is None:
                return "torch.nn.Module", target
            return class_name(type(called)), target
        return normalize.operator_name(node) or op_name(node.target), ""

    def name(self, node: torch.fx.Node, path: str, op: str, target: str) -> str:
        if node.op in ("get_attr", "call_module"):
            return self.namer.claim(target or "constant")
        if op == "operator.getitem" and self.is_projection(node):
            producer, index = node.args
            return self.namer.claim(f"{self.names[producer]}#{index}")  # type: ignore[index]
        if node.meta.get(SCOPE):
            return self.namer.claim(f"{base_name(op)}<{node.meta[SCOPE]}>")
        return self.namer.node(path, op)

    def is_projection(self, node: torch.fx.Node) -> bool:
        if len(node.args) != 2 or type(node.args[1]) is not int:
            return False
        producer = node.args[0]
        if not isinstance(producer, torch.fx.Node):
            return False
        if isinstance(producer.target, torch._ops.HigherOrderOperator):
            return True
        return isinstance(self.results.get(producer), tuple)

    def module(self, node: torch.fx.Node) -> str:
        if normalize.sums_gradients(node, self.kind):
            return common_path(self.paths[o] for o in node.all_input_nodes if o in self.paths)
        stack = node.meta.get("nn_module_stack") or node.meta.get("fwd_nn_module_stack")
        if stack and (self.naming.plain or self.level == "fx"):
            return str(list(stack.values())[-1][0])
        if stack:
            key, value = list(stack.items())[-1]
            return stack_path(key, value, self.naming.modules)
        if node.op in ("call_module", "get_attr"):
            return str(node.target) if node.op == "call_module" else ""
        producer = node.args[0] if node.args else None
        if op_name(node.target) == "operator.getitem" and producer in self.paths:
            return self.paths[producer]  # type: ignore[index]
        return ""

    def result(self, node: torch.fx.Node) -> Result:
        value = _value(node)
        found = self.unknown(node) if value is None else self.canon.result(value)
        self.results[node] = found
        return found

    def unknown(self, node: torch.fx.Node) -> Result:
        """What is known where nobody noted a result: from an op's schema, whether it is several."""
        if not isinstance(node.target, torch._ops.OpOverload):
            return None
        returns = node.target._schema.returns
        if len(returns) == 1:
            return () if isinstance(returns[0].type, torch.ListType) else None
        return (None,) * len(returns) or None

    def source(self, node: torch.fx.Node) -> Source | None:
        if (line := node.meta.get(LINE)) is not None:
            code, number = line
            return source_lines.from_line(code.co_filename, number, code.co_name)
        trace = node.meta.get("stack_trace") or node.stack_trace
        return source_lines.from_stack_trace(trace) if trace else None

    # -- arguments -------------------------------------------------------------------------------

    def arg(self, value: Any) -> Arg:
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
        if self.owner is None:
            return False
        value: Any = self.owner
        for part in str(node.target).split("."):
            value = getattr(value, part, None)
        return isinstance(getattr(value, "graph", None), torch.fx.Graph)

    def body(self, node: torch.fx.Node) -> str:
        name = str(node.target)
        if name not in self.subgraphs:
            assert self.owner is not None
            inner = Naming(modules=self.naming.modules, body=True, plain=self.naming.plain)
            inner_module: Any = self.owner.get_submodule(name)
            found = convert(
                inner_module,
                name=name,
                level=self.level,
                canon=self.canon,
                naming=inner,
            )
            self.subgraphs[name] = found.graph
        return name

    # -- outputs and effects ---------------------------------------------------------------------

    def rank(self, node: torch.fx.Node) -> tuple[int, int]:
        """The place of an input among the others: as declared, then saved values, then tangents."""
        role, name = self.naming.inputs.get(node.name, ("input", node.name))
        if role == "saved":
            return 1, self.saved_ranks.get(node.name, 0)
        ranks = self.naming.ranks
        return 2 if role == "tangent" else 0, ranks.get(name, len(ranks))

    @cached_property
    def saved_ranks(self) -> dict[str, int]:
        """The order of the saved values that a backward is given (see `Naming.inputs`)."""
        saved = [name for name, (role, _) in self.naming.inputs.items() if role == "saved"]
        return {name: number for number, name in enumerate(saved)}

    def place(self, node: torch.fx.Node, order: Mapping[torch.fx.Node, int]) -> tuple[int, ...]:
        """The place of a saved value: of an input its rank, else where it was computed."""
        value = self.origin(node)
        return (0, *self.rank(value)) if value.op == "placeholder" else (1, order[value])

    def origin(self, node: torch.fx.Node) -> torch.fx.Node:
        """The value that this is an alias of, made by autograd: itself, as a rule."""
        while node.target is torch.ops.aten.detach.default:
            (node,) = node.args  # type: ignore[assignment]
        return node

    def return_rank(self, description: Any, position: int, backward: bool) -> tuple[int, int]:
        """The place of an output: new values and gradients of inputs as those were declared."""
        index = belongs_to(description, position, backward)
        if index is None or index >= len(self.naming.dynamo):
            return 1, position
        name = self.naming.dynamo[index][1]
        return 0, self.naming.ranks.get(name, len(self.naming.ranks))

    def output(self, node: torch.fx.Node) -> tuple[Node, list[Ref]]:
        value: Any = node.args[0]
        descriptions = None if self.naming.body else node.meta.get("desc")
        saved: list[Ref] = []
        if (
            isinstance(value, tuple | list)
            and isinstance(descriptions, tuple | list)
            and len(value) == len(descriptions)  # else a pass has changed what is returned
        ):
            real = [k for k, desc in enumerate(descriptions) if not is_saved(desc)]
            kept = [
                k
                for k, desc in enumerate(descriptions)
                if is_saved(desc) and isinstance(value[k], torch.fx.Node)
            ]
            if self.naming.ranks:
                order = {each: number for number, each in enumerate(self.names)}
                kept.sort(key=lambda k: self.place(value[k], order))
                backward = self.kind == "backward"
                places = {k: number for number, k in enumerate(real)}
                real.sort(key=lambda k: self.return_rank(descriptions[k], places[k], backward))
            self.returned = real + kept
            saved = [Ref(self.names[value[k]]) for k in kept]
            value = tuple([value[k] for k in real])
        if isinstance(value, tuple | list) and len(value) == 1:
            value = value[0]
        return Node("output", "output", "output", (self.arg(value),)), saved

    def effects(self, node: torch.fx.Node, name: str) -> tuple[tuple[Effect, ...], tuple[Ref, ...]]:
        op, args, kwargs = node.target, tuple(node.args), dict(node.kwargs)
        known = schema.facts(op)
        operands = [
            (self.names[operand], self.alias[operand])
            for operand in node.all_input_nodes
            if operand in self.alias
        ]
        after = tuple(Ref(writer) for writer in self.storages.after(operands))
        writes = [value for value in by_name.written(node) if value in self.alias]
        aliased: list[Any] = writes or [args[i] for i in known.aliases if i < len(args)]
        if not aliased and args and by_name.is_view(node):
            aliased = [args[0]]
        source = next((value for value in aliased if value in self.alias), None)
        self.alias[node] = self.alias[source] if source is not None else name
        self.storages.define(name, [self.alias[node]])
        found: list[Effect] = []
        for value in writes:
            storage = self.alias[value]
            found.append(Effect("mutates", Ref(self.storages.owner[storage])))
            self.storages.write(name, storage)
        found += [Effect(kind) for kind in schema.kinds(op, args, kwargs)]
        if by_name.draws(node):
            found.append(Effect("random"))
        return tuple(dict.fromkeys(found)), after


RESULT = "torchgraph_result"
"""Key in a node's meta for a result that is described already."""

LINE = "torchgraph_line"
"""Key in a node's meta for the code object and the line that it comes from."""

SCOPE = "torchgraph_scope"
"""Key in a node's meta for what stands in its name where no module path is known."""


def _value(node: torch.fx.Node) -> Any:
    """What a node gives, as the last pass noted it; what is described already came before."""
    for key in ("val", "example_value", "tensor_meta", RESULT):
        value = node.meta.get(key)
        if value is not None:
            return value
    return None


def stack_path(key: Any, value: Any, modules: Mapping[int, str]) -> str:
    """The path of a module in a stack of Dynamo's: of one that is known, and else its source."""
    number = str(key).partition("@")[0].partition("_")[0]
    if number.isdigit() and int(number) in modules:
        return modules[int(number)]
    return module_fqn(str(value[0] if isinstance(value, tuple) else value))
