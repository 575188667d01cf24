"""From a live torch.fx graph to a `Graph`."""

from __future__ import annotations

import operator
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import torch
import torch.fx

from ..graph.model import (
    Arg,
    Effect,
    Graph,
    GraphKind,
    Level,
    Node,
    Ref,
    Result,
    Source,
    SubgraphRef,
    TensorMeta,
)
from ..graph.text import module_of
from . import effects, sources
from .names import Canon, Namer, op_name
from .roots import common_path, module_path
from .storages import Storages

_INPLACE = {
    getattr(operator, name): 0
    for name in ("iadd", "isub", "imul", "itruediv", "ifloordiv", "imod", "ipow", "iand", "ior")
}
_VIEWS = frozenset(
    "view view_as reshape transpose t permute expand expand_as squeeze unsqueeze narrow select "
    "chunk split unbind flatten unflatten swapaxes movedim diagonal detach as_strided getitem "
    "getattr T mT contiguous real imag".split()
)
_RANDOM = frozenset(
    "dropout dropout1d dropout2d dropout3d alpha_dropout feature_alpha_dropout rand randn randint "
    "rand_like randn_like randint_like randperm normal bernoulli multinomial poisson "
    "bernoulli_ normal_ uniform_ exponential_ geometric_ log_normal_ cauchy_ random_".split()
)


@dataclass
class Naming:
    """What the conversion asks of the mechanism that made the graph.

    Attributes:
        inputs: (role, name) of a placeholder by its fx name.
        modules: path of a module by its id.
    """

    inputs: dict[str, tuple[str, str]] = field(default_factory=dict)
    modules: dict[int, str] = field(default_factory=dict)


@dataclass
class Converted:
    """A graph, and which of its nodes each fx node became."""

    graph: Graph
    names: dict[str, str]


def convert(
    module: torch.fx.GraphModule | torch.fx.Graph,
    *,
    name: str = "main",
    kind: GraphKind = "forward",
    level: Level,
    canon: Canon | None = None,
    naming: Naming | None = None,
) -> Converted:
    """Convert an fx graph, its bodies of higher-order ops included."""
    return _Converter(module, canon or Canon(), naming or Naming()).run(name, kind, level)


class _Converter:
    def __init__(self, module: torch.fx.GraphModule | torch.fx.Graph, canon: Canon, naming: Naming):
        owning = module.owning_module if isinstance(module, torch.fx.Graph) else module
        self.owner = owning
        self.fx = module if isinstance(module, torch.fx.Graph) else module.graph
        self.canon = canon
        self.naming = naming
        self.names: dict[torch.fx.Node, str] = {}
        self.storages = Storages()
        self.alias: dict[torch.fx.Node, str] = {}
        self.subgraphs: dict[str, Graph] = {}
        self.paths: dict[torch.fx.Node, str] = {}

    def run(self, name: str, kind: GraphKind, level: Level) -> Converted:
        self.level = level
        placeholders = [node for node in self.fx.nodes if node.op == "placeholder"]
        for node in placeholders:
            self.canon.result(_value(node))  # symbols are numbered in the order of the inputs
        named = [self.naming.inputs.get(node.name, ("input", node.name)) for node in placeholders]
        self.namer = Namer()
        for node, (_, wanted) in zip(placeholders, named, strict=True):
            self.names[node] = self.namer.claim(wanted)
        roles = {node: role for node, (role, _) in zip(placeholders, named, strict=True)}
        nodes: list[Node] = []
        saved: list[Ref] = []
        for node in self.fx.nodes:
            if node.op == "output":
                output, saved = self.output(node)
                nodes.append(output)
            elif node.op == "get_attr" and self.is_body(node):
                continue
            else:
                nodes.append(self.node(node, roles.get(node, "input")))
        subgraphs = tuple(self.subgraphs.values())
        graph = Graph(tuple(nodes), name, kind, level, tuple(saved), subgraphs)
        return Converted(graph, {node.name: name for node, name in self.names.items()})

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
        return Node(
            name,
            node.op,  # type: ignore[arg-type]
            op,
            tuple([self.arg(arg) for arg in node.args]),
            {key: self.arg(arg) for key, arg in node.kwargs.items()},
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
            return _class_name(type(called)), target
        return op_name(node.target), ""

    def name(self, node: torch.fx.Node, path: str, op: str, target: str) -> str:
        if node.op in ("get_attr", "call_module"):
            return self.namer.claim(target or "constant")
        if op == "operator.getitem" and self.is_projection(node):
            producer, index = node.args
            return self.namer.claim(f"{self.names[producer]}#{index}")  # type: ignore[index]
        return self.namer.node(path, op)

    def is_projection(self, node: torch.fx.Node) -> bool:
        if len(node.args) != 2 or type(node.args[1]) is not int:
            return False
        producer = node.args[0]
        if not isinstance(producer, torch.fx.Node):
            return False
        if isinstance(producer.target, torch._ops.HigherOrderOperator):
            return True
        return isinstance(_value(producer), tuple | list)

    def module(self, node: torch.fx.Node) -> str:
        if node.meta.get("is_gradient_acc"):
            return common_path(self.paths[o] for o in node.all_input_nodes if o in self.paths)
        stack = node.meta.get("nn_module_stack") or node.meta.get("fwd_nn_module_stack")
        if stack and self.level == "fx":
            return str(list(stack.values())[-1][0])
        if stack:
            key, value = list(stack.items())[-1]
            number = str(key).partition("@")[0].partition("_")[0]
            if number.isdigit() and int(number) in self.naming.modules:
                return self.naming.modules[int(number)]
            return module_path(str(value[0] if isinstance(value, tuple) else value))
        if node.op in ("call_module", "get_attr"):
            return str(node.target) if node.op == "call_module" else ""
        producer = node.args[0] if node.args else None
        if op_name(node.target) == "operator.getitem" and producer in self.paths:
            return self.paths[producer]  # type: ignore[index]
        return ""

    def result(self, node: torch.fx.Node) -> Result:
        value = _value(node)
        if value is not None:
            return self.canon.result(value)
        meta = node.meta.get("tensor_meta")
        if meta is None or not hasattr(meta, "dtype"):
            return None
        shape = tuple(self.canon.size(size) for size in meta.shape)
        stride = tuple(self.canon.size(size) for size in meta.stride)
        return TensorMeta(str(meta.dtype)[6:], shape, stride)

    def source(self, node: torch.fx.Node) -> Source | None:
        trace = node.meta.get("stack_trace") or node.stack_trace
        return sources.from_stack_trace(trace) if trace else None

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
        value = self.owner
        for part in str(node.target).split("."):
            value = getattr(value, part, None)  # type: ignore[assignment]
        return isinstance(value, torch.fx.GraphModule)

    def body(self, node: torch.fx.Node) -> str:
        name = str(node.target)
        if name not in self.subgraphs:
            assert self.owner is not None
            inner = Naming(modules=self.naming.modules)
            found = convert(
                self.owner.get_submodule(name),  # type: ignore[arg-type]
                name=name,
                level=self.level,
                canon=self.canon,
                naming=inner,
            )
            self.subgraphs[name] = found.graph
        return name

    # -- outputs and effects ---------------------------------------------------------------------

    def output(self, node: torch.fx.Node) -> tuple[Node, list[Ref]]:
        value = node.args[0]
        descriptions = node.meta.get("desc")
        saved: list[Ref] = []
        if isinstance(value, tuple | list) and isinstance(descriptions, tuple | list):
            real = []
            for item, description in zip(value, descriptions, strict=False):
                if type(description).__name__.startswith("SavedForBackwards"):
                    if isinstance(item, torch.fx.Node):
                        saved.append(Ref(self.names[item]))
                else:
                    real.append(item)
            value = tuple(real)
        if isinstance(value, tuple | list) and len(value) == 1:
            value = value[0]
        return Node("output", "output", "output", (self.arg(value),)), saved

    def effects(self, node: torch.fx.Node, name: str) -> tuple[tuple[Effect, ...], tuple[Ref, ...]]:
        op, args, kwargs = node.target, tuple(node.args), dict(node.kwargs)
        known = effects.facts(op)
        operands = [
            (self.names[operand], self.alias[operand])
            for operand in node.all_input_nodes
            if operand in self.alias
        ]
        after = self.storages.after(operands)
        writes = [value for value in self.writes(node) if value in self.alias]
        aliased: list[Any] = writes or [args[i] for i in known.aliases if i < len(args)]
        if not aliased and args and self.is_view(node):
            aliased = [args[0]]
        source = next((value for value in aliased if value in self.alias), None)
        self.alias[node] = self.alias[source] if source is not None else name
        self.storages.define(name, [self.alias[node]])
        found: list[Effect] = []
        for value in writes:
            storage = self.alias[value]
            found.append(Effect("mutates", Ref(self.storages.owner[storage])))
            self.storages.write(name, storage)
        if known.random:
            if effects.draws(op, args, kwargs):
                found.append(Effect("random"))
        elif self.draws_by_name(node):
            found.append(Effect("random"))
        if known.communicates:
            found.append(Effect("communicates"))
        return tuple(dict.fromkeys(found)), after

    def writes(self, node: torch.fx.Node) -> list[torch.fx.Node]:
        found: list[Any]
        if isinstance(node.target, torch._ops.OpOverload):
            found = effects.written(node.target, tuple(node.args), dict(node.kwargs))
        else:
            word = node.target if isinstance(node.target, str) else ""
            inplace = (
                (node.op == "call_method" and word.endswith("_") and not word.endswith("__"))
                or (node.op == "call_method" and word == "__setitem__")
                or node.target in _INPLACE
                or node.target is operator.setitem
                or (node.op == "call_function" and node.kwargs.get("inplace") is True)
            )
            found = list(node.args[:1]) if inplace else []
            if "out" in node.kwargs:
                found.append(node.kwargs["out"])
        flat: list[torch.fx.Node] = []
        torch.fx.node.map_arg(tuple(found), flat.append)
        return flat

    def word(self, node: torch.fx.Node) -> str:
        return op_name(node.target).rpartition(".")[2]

    def is_view(self, node: torch.fx.Node) -> bool:
        return not isinstance(node.target, torch._ops.OpOverload) and self.word(node) in _VIEWS

    def draws_by_name(self, node: torch.fx.Node) -> bool:
        if isinstance(node.target, torch._ops.OpOverload) or node.op not in (
            "call_function",
            "call_method",
        ):
            return False
        training = node.args[2] if len(node.args) > 2 else node.kwargs.get("training", True)
        return self.word(node) in _RANDOM and training is not False


RESULT = "torchgraph_result"
"""Key in a node's meta for a result that is described already."""


def _value(node: torch.fx.Node) -> Any:
    if RESULT in node.meta:
        return node.meta[RESULT]
    value = node.meta.get("val")
    return node.meta.get("example_value") if value is None else value


def _class_name(cls: Callable[..., Any]) -> str:
    module = getattr(cls, "__module__", "")
    name = getattr(cls, "__qualname__", "")
    if getattr(torch.nn, name, None) is cls:
        return f"torch.nn.{name}"
    return f"{module}.{name}"
