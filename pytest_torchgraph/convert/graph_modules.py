"""Live graph modules: copies, constructor options of their modules, and the regions they call.

A graph of modules shows only calls of modules. The options distinguish two dropouts with different
probabilities. Hooks and parametrizations of a module run in its call, so they are options too. Only
torch's modules have options here, because attributes of a user's class need not be options.

Layers compiled as one region (`torch.compiler.nested_compile_region`) share a body. For each call,
torch records the module whose code calls the region, which may be the whole model. `Regions` finds
the layer from the parameters that are passed to the call and, in a backward, from the values that
the forward saved.
"""

from __future__ import annotations

import enum
import inspect
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache, cached_property
from typing import Any

import torch
import torch.nn.utils.parametrize
from torch import fx

from ..graph.module_paths import common_path, module_of
from ..ops.qualified import attribute_at, op_name
from .normalize import value_of_constant
from .placeholders import InputName


def copied(gm: fx.GraphModule) -> fx.GraphModule:
    """Return a copy of a module's graphs, unaffected by later changes of the original.

    Parameters, buffers and submodules other than bodies are shared.
    """
    return LazyCopy(gm).module


class LazyCopy:
    """A copy of the graphs of a module as they are now, made when it is read.

    Attributes:
        calls: the nodes, each with what it calls.
    """

    def __init__(self, gm: fx.GraphModule):
        nodes = gm.graph.nodes
        self.calls = {n: (n.op, n.target, n.args, n.kwargs) for n in nodes}
        self._metas = {n: dict(n.meta) for n in nodes}
        self._meta = dict(gm.meta)  # holds the `context_fn` of a checkpoint's body
        self._training = gm.training
        self._attributes: dict[str, Any] = {
            str(n.target): attribute_at(gm, str(n.target))
            for n in nodes
            if n.op in ("get_attr", "call_module")
        }
        self._bodies = {name: LazyCopy(self._attributes[name]) for name in bodies(gm)}

    @cached_property
    def module(self) -> fx.GraphModule:
        """A module with these graphs."""
        graph = fx.Graph()
        made: dict[fx.Node, fx.Node] = {}
        waiting, late = [*reversed(self.calls)], set[fx.Node]()
        while waiting:
            node = waiting.pop()
            if node in made:
                continue
            op, target, *arguments = self.calls[node]
            try:
                args, kwargs = fx.node.map_arg(arguments, made.__getitem__)
            except KeyError:  # between two passes of inductor, a node may come before its operands
                if node in late:  # a cycle
                    raise
                late.add(node)
                waiting.append(node)
                fx.node.map_arg(arguments, waiting.append)
                continue
            made[node] = graph.create_node(op, target, args, kwargs, node.name, node.type)
            made[node].meta = self._metas[node]
        parts = {name: body.module for name, body in self._bodies.items()}
        module = fx.GraphModule({**self._attributes, **parts}, graph)
        module.training = self._training
        module.meta.update(self._meta)
        return module


def bodies(gm: fx.GraphModule) -> Iterator[str]:
    """Yield the attribute paths of the bodies of a module's higher-order ops."""
    for name in dict.fromkeys(str(node.target) for node in gm.graph.find_nodes(op="get_attr")):
        if isinstance(attribute_at(gm, name), fx.GraphModule):
            yield name


def runnable(gm: fx.GraphModule) -> fx.GraphModule:
    """Return a module that is equivalent to Dynamo's and can run eagerly, with gradients.

    Each `invoke_subgraph` becomes a plain call of its body. A module without the op is returned
    unchanged.
    """
    # torch 2.13 differentiates invoke_subgraph only on fake tensors. Its own backend "eager" also
    # fails.
    invoke = torch.ops.higher_order.invoke_subgraph
    if not any(
        isinstance(module, fx.GraphModule)
        and module.graph.find_nodes(op="call_function", target=invoke)
        for module in gm.modules()
    ):
        return gm
    copy = copied(gm)
    for module in copy.modules():
        if isinstance(module, fx.GraphModule):
            for node in module.graph.find_nodes(op="call_function", target=invoke):
                node.target = _call
                node.args = (node.args[0], *node.args[2:])  # without the key in torch's cache
            module.recompile()
    return copy


def _call(body: Any, *operands: Any) -> Any:
    return body(*operands)


_PLAIN_TYPES = (bool, int, float, str, type(None), torch.dtype, torch.qscheme)
_QUANTIZATION = {"scale": 1.0, "zero_point": 0}
"""Attributes and buffers of quantized modules that few of their constructors take, with the values
of a new module."""


def module_options(module: Any) -> str | None:
    """Return the options of a torch module in its constructor's order, `None` for other modules."""
    if not isinstance(module, torch.nn.Module) or not _is_of_torch(type(module)):
        return None
    options = [
        f"{name}.{option}" if name else option
        for name, part in module.named_modules()
        if _is_of_torch(type(part))
        for option in _options(part)
    ]
    if isinstance(module, torch.nn.utils.parametrize.ParametrizationList):
        options.append(f"by {_class_names(module)}")
    return ", ".join(options)


def _class_names(modules: Any) -> str:
    return " and ".join(type(module).__name__ for module in modules)


def _options(module: torch.nn.Module) -> Iterator[str]:
    """Yield the options of one module, without those of its submodules.

    These are arguments of its constructor, then dtypes, eval mode, parametrizations and hooks.
    """
    kind: Any = type(module)
    for name, default in _parameters(kind).items():
        value = getattr(module, name.rstrip("_"), inspect.Parameter.empty)
        if name in _QUANTIZATION and isinstance(value, torch.Tensor):
            (value,) = value_of_constant(value) or (value,)
        if default is True and inspect.ismethod(value):  # bias() of a quantized module
            value = value()
        if default is True and not isinstance(value, bool):  # bias=True: a parameter, or None
            value = value is not None
        value = _collapse_expanded(value)  # (2, 2) and the default 2 are the same option
        if isinstance(value, enum.Enum):
            value = value.name
        elif callable(value) and not isinstance(value, type | torch.nn.Module) and value != default:
            value = op_name(value)  # an activation function
        items = value if isinstance(value, tuple) else (value,)
        is_plain = all(isinstance(item, _PLAIN_TYPES) for item in items)
        if is_plain and (value != default or type(value) is not type(default)):
            yield f"{name}={value!r}"
        elif default is None and isinstance(value, torch.Tensor):  # its values are data
            yield f"{name}=tensor"
    dtypes = {parameter.dtype for parameter in module._parameters.values() if parameter is not None}
    yield from sorted(str(dtype) for dtype in dtypes - {torch.float32})
    if not module.training and "training" in _names(kind):
        yield "eval"
    if torch.nn.utils.parametrize.is_parametrized(module):
        for name, parts in module.parametrizations.items():  # type: ignore[union-attr, operator]
            yield f"{name} by {_class_names(parts)}"
    for kind_of_hook in ("forward_pre_hook", "forward_hook"):
        for hook in getattr(module, f"_{kind_of_hook}s").values():
            yield f"{kind_of_hook} {getattr(hook, '__name__', type(hook).__name__)}"


def _collapse_expanded(value: Any) -> Any:
    """Return `2` for `(2, 2)`, to which constructors expand `2`; a list becomes a tuple."""
    if isinstance(value, tuple) and value and all(item == value[0] for item in value):
        return value[0]
    return tuple(value) if isinstance(value, list) else value


@cache
def _parameters(kind: type) -> Mapping[str, Any]:
    """Return the constructor defaults of a class; for `LSTM(*args, **kwargs)`, of its base."""
    for base in kind.__mro__:
        if "__init__" in vars(base):
            parameters = inspect.signature(base).parameters
            if not any(p.kind is p.VAR_KEYWORD for p in parameters.values()):
                defaults = {name: p.default for name, p in parameters.items() if name != "device"}
                for name in _QUANTIZATION if ".quantized" in kind.__module__ else ():
                    defaults.setdefault(name, _QUANTIZATION[name])
                return defaults
    return {}


@cache
def _names(kind: type) -> tuple[str, ...]:
    """Return the names that a module's forward uses."""
    code = getattr(getattr(kind, "forward", None), "__code__", None)
    return () if code is None else tuple(code.co_names)


def _is_of_torch(kind: type) -> bool:
    return kind.__module__.partition(".")[0] == "torch"


_RESULT = re.compile(r"(\A|/)invoke_subgraph(\.\d+)?#\d+\Z")
"""Name of a result of a shared region."""


@dataclass(eq=False)
class Regions:
    """Layers that the calls of shared regions in a graph run.

    Args:
        fx: the graph.
        inputs: (role, name) of the graph's inputs, by name in `fx`.
    """

    fx: torch.fx.Graph
    inputs: Mapping[str, InputName]

    def path(self, node: torch.fx.Node, recorded: str) -> str:
        """Return the module of a node; for a call of a region, a layer in the recorded module."""
        if node.target is not torch.ops.higher_order.invoke_subgraph:
            return recorded
        path = self._paths[node]
        return path if path and (not recorded or path.startswith(f"{recorded}.")) else recorded

    @cached_property
    def _paths(self) -> dict[torch.fx.Node, str]:
        """The layer of each call of a region, "" if unknown."""
        invoke = torch.ops.higher_order.invoke_subgraph
        by_body: dict[str, list[torch.fx.Node]] = {}
        for call in self.fx.find_nodes(op="call_function", target=invoke):
            body = call.args[0]
            name = str(body.target) if isinstance(body, torch.fx.Node) else str(body)
            by_body.setdefault(name, []).append(call)
        paths: dict[torch.fx.Node, str] = {}
        for calls in by_body.values():
            owners = [[self._owner(arg) for arg in call.args[1:]] for call in calls]
            paths.update(zip(calls, _own_paths(owners), strict=True))
        return paths

    def _owner(self, operand: object) -> str:
        """Return the module that owns a parameter or whose region saved a value; otherwise ""."""
        if not isinstance(operand, torch.fx.Node):
            return ""
        while operand.op == "call_function" and len(operand.all_input_nodes) == 1:
            (operand,) = operand.all_input_nodes  # a view or a cast
        if operand.op == "placeholder":
            role, name = self.inputs.get(operand.name, ("input", operand.name))
            if role in ("parameter", "buffer"):
                return name.rpartition(".")[0]
            return module_of(name) if _RESULT.search(name) else ""
        return str(operand.target).rpartition(".")[0] if operand.op == "get_attr" else ""


def _own_paths(owners: Sequence[Sequence[str]]) -> list[str]:
    """Return the module of each call, from the owners of the calls' operands.

    `layers.0.fc` and `layers.1.fc` give `layers.0` and `layers.1`.
    """
    # Parts that several calls share (a shared weight, names inside a layer) do not identify the
    # layer.
    paths = []
    for owner in owners:
        others = [other for other in owners if other is not owner]
        shortened = [
            _shorten_path(path, [other[k] for other in others if k < len(other)])
            for k, path in enumerate(owner)
            if path
        ]
        paths.append(common_path(filter(None, shortened)))
    return paths


def _shorten_path(path: str, other_paths: Sequence[str]) -> str:
    """Return a path up to its last part that differs in any of `other_paths`, if there are any."""
    parts = path.split(".")
    # A path that all others equal says nothing, but without others the whole path is the layer.
    ends = [0 if other_paths else len(parts)]
    for other_path in other_paths:
        # Beyond the end of the shorter path, nothing tells the layers apart.
        pairs = zip(parts, other_path.split("."), strict=False)
        ends += [k + 1 for k, (part, other_part) in enumerate(pairs) if part != other_part]
    return ".".join(parts[: max(ends)])
