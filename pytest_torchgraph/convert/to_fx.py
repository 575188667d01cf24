"""Convert a captured graph back to a runnable torch.fx module; see `from_graph` for other graphs.

torch orders inputs and outputs by first use, and names inputs `primals_1`. The module made here
follows the `Graph`: inputs in its order and with its names, then outputs, then saved values. The
module is a copy; the captured fx graph is not modified.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import fx

from ..graph.model import Arg, Graph, GraphKind
from ..ops.matching import Level
from .canonical_names import CanonicalNames
from .compiled_autograd import FoldedConverter
from .from_fx import Converted, GraphConverter, Naming
from .node_meta import stack_path
from .placeholders import InputName

ORIGIN = "torchgraph_origin"
"""Key of the `FxOrigin` in the meta of the output node, which torch.fx.Transformer keeps."""


@dataclass(frozen=True)
class FxOrigin:
    """Capture that a module was made from, stored in the meta of its output node.

    The origin makes it possible to convert the module as the capture did, even if a pass changed
    the module.

    Attributes:
        inputs: (role, name) of each input, by placeholder name.
        level: level of the captured graph.
        canon: names of the capture's symbols and devices.
        values: values of constants that are inputs, by placeholder name.
    """

    inputs: Mapping[str, InputName]
    level: Level
    canon: CanonicalNames
    values: Mapping[str, tuple[Arg, ...]]


def origin_of(graph: fx.Graph) -> FxOrigin | None:
    """Return the origin of a graph if `to_graph_module` made it, possibly before a pass."""
    origins = [node.meta.get(ORIGIN) for node in graph.find_nodes(op="output")]
    return origins[0] if origins and isinstance(origins[0], FxOrigin) else None


def convert_again(
    module: fx.GraphModule | fx.Graph, origin: FxOrigin, *, name: str, kind: GraphKind
) -> Graph:
    """Convert a module made by `to_graph_module`, possibly changed by a pass.

    Args:
        module: the module or its graph.
        origin: origin of the module.
        name, kind: see `Graph`.
    """
    # The inputs and values keep their names, and a pass may have added nodes without a stack.
    naming = Naming(dict(origin.inputs), plain=True, given=True, values=origin.values)
    converter = FoldedConverter if origin.level == "compiled_autograd" else GraphConverter
    # A copy, because the pass may have added symbols.
    return converter(module, origin.canon.copy(), naming).run(name, kind, origin.level).graph


def to_graph_module(converted: Converted) -> fx.GraphModule:
    """Return a module that runs a captured graph and can be modified.

    The module shares parameters, buffers and submodules with the captured module, but no nodes.
    """
    graph = fx.Graph()
    inputs: dict[str, InputName] = {}
    values_of_constants: dict[str, tuple[Arg, ...]] = {}
    names = converted.names
    placeholders = converted.fx.find_nodes(op="placeholder")
    placeholder_by_name = {names[node.name]: node for node in placeholders if node.name in names}
    # The captured graph does not contain all placeholders: nodes take `None` for the others.
    copies: dict[fx.Node, fx.Node | None]
    copies = {node: None for node in placeholders if node.name not in names}
    for node_in_graph in converted.graph.inputs:
        node = placeholder_by_name[node_in_graph.name]
        target = str(node.target)
        copy = graph.create_node(
            "placeholder", target, node.args, {}, node_in_graph.name, node.type
        )
        if not target.startswith("*"):  # `*args` keeps its star, which no name has
            copy.target = copy.name
        copy.meta = dict(node.meta)
        inputs[copy.name] = (node_in_graph.op, node_in_graph.name)
        if node_in_graph.op == "constant":
            values_of_constants[copy.name] = node_in_graph.args
        copies[node] = copy
    naming = converted.naming
    nodes = converted.graph.by_name
    paths = {name: nodes[canonical].module for name, canonical in names.items()}
    _copy_nodes(graph, converted.fx, copies, lambda n: _meta(n, naming, paths.get(n.name, "")))
    output = graph.output_node()
    if converted.returned is not None:
        values, descriptions = output.args[0], output.meta["desc"]
        output.args = (tuple([values[k] for k in converted.returned]),)  # type: ignore[index]
        output.meta = {"desc": [descriptions[k] for k in converted.returned]}
    output.meta[ORIGIN] = FxOrigin(
        inputs, converted.graph.level, converted.canon.copy(), values_of_constants
    )
    return _make_module(graph, converted.owner, naming)


def _body(gm: fx.GraphModule, naming: Naming) -> fx.GraphModule:
    """Copy the body of a higher-order op. The op determines the order of inputs and outputs."""
    graph = fx.Graph()
    _copy_nodes(graph, gm.graph, {}, lambda node: _meta(node, naming, ""))
    return _make_module(graph, gm, naming)


def _copy_nodes(
    graph: fx.Graph,
    source: fx.Graph,
    copies: dict[fx.Node, fx.Node | None],
    meta: Callable[[fx.Node], dict[str, Any]],
) -> None:
    """Append copies of the nodes in `source` that `copies` lacks. `meta` returns a copy's meta."""
    for node in source.nodes:
        if node not in copies:
            copy = copies[node] = graph.node_copy(node, copies.__getitem__)
            copy.meta = meta(node)


def _meta(node: fx.Node, naming: Naming, path: str) -> dict[str, Any]:
    """Return a node's meta, with module paths instead of Dynamo's sources in the module stack.

    Args:
        node: the node.
        naming: the naming of its graph.
        path: module of the node. It is appended to the stack unless it is the last entry.
    """
    meta = dict(node.meta)
    stack = meta.get("nn_module_stack") or meta.pop("fwd_nn_module_stack", None)
    if stack:
        stack = {key: _with_path(key, value, naming) for key, value in stack.items()}
    if path and (not stack or list(stack.values())[-1][0] != path):
        stack = {**(stack or {}), path: (path, torch.nn.Module)}
    if stack:
        meta["nn_module_stack"] = stack
    return meta


def _with_path(key: Any, value: Any, naming: Naming) -> tuple[Any, ...]:
    """Return an entry of a module stack with the module's path instead of Dynamo's source."""
    if naming.plain:
        return tuple(value)
    class_and_more = tuple(value[1:]) if isinstance(value, tuple) else ()
    return stack_path(key, value, naming.modules), *class_and_more


def _make_module(graph: fx.Graph, owner: Any, naming: Naming) -> fx.GraphModule:
    """Return a module for a graph, with the attributes of `owner` that the graph refers to."""
    attributes: dict[str, Any] = {}
    for node in graph.nodes:
        if node.op in ("get_attr", "call_module") and node.target not in attributes:
            value = functools.reduce(getattr, str(node.target).split("."), owner)
            if node.op == "get_attr" and isinstance(value, fx.GraphModule):
                value = _body(value, naming)
            attributes[str(node.target)] = value
    module = fx.GraphModule(attributes, graph, type(owner).__name__)
    module.training = getattr(owner, "training", True)
    return module
