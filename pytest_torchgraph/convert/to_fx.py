"""From a captured graph back to a torch.fx module that runs, in the order of that graph.

torch puts inputs and outputs in an order of its own, that of their first use, and calls them
`primals_1`. Here a copy is made that agrees with the graph: its inputs in order and after their
names, its outputs and then its saved values. What was captured itself is left alone.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import torch.fx

from ..graph.model import Graph, GraphKind
from ..ops.levels import Level
from .canonical_names import CanonicalNames
from .compiled_autograd.nodes import FoldedConverter
from .from_fx import Converted, Naming, convert, stack_path

ORIGIN = "torchgraph_origin"
"""Key for the `Origin` in the meta of the output node, which torch.fx.Transformer keeps."""


@dataclass(frozen=True)
class Origin:
    """What a module says of the capture that it is from.

    Attributes:
        inputs: (role, name) of each input, by the name of its placeholder.
        level: the stage of the compiler.
        canon: the names of the capture's symbols and devices.
    """

    inputs: Mapping[str, tuple[str, str]]
    level: Level
    canon: CanonicalNames


def origin_of(graph: torch.fx.Graph) -> Origin | None:
    """The origin of a graph that `live` made, also behind a pass; None for any other."""
    found = [node.meta.get(ORIGIN) for node in graph.find_nodes(op="output")]
    return found[0] if found and isinstance(found[0], Origin) else None


def convert_live(
    module: torch.fx.GraphModule | torch.fx.Graph, origin: Origin, *, name: str, kind: GraphKind
) -> Graph:
    """The graph of a module that `live` made, or of what a pass made of that."""
    naming, canon = Naming(dict(origin.inputs), plain=True), origin.canon.copy()
    if origin.level == "compiled_autograd":
        return FoldedConverter(module, canon, naming).run(name, kind, origin.level).graph
    found = convert(module, name=name, kind=kind, level=origin.level, canon=canon, naming=naming)
    return found.graph


def live(made: Converted) -> torch.fx.GraphModule:
    """A module of a graph, to run and to change; it shares nothing but parameters and buffers."""
    graph = torch.fx.Graph()
    new: dict[torch.fx.Node, torch.fx.Node] = {}
    inputs: dict[str, tuple[str, str]] = {}
    theirs = {made.names[node.name]: node for node in made.fx.find_nodes(op="placeholder")}
    for ours in made.graph.inputs:
        node = theirs[ours.name]
        target = str(node.target)
        copy = graph.create_node("placeholder", target, node.args, {}, ours.name, node.type)
        if not target.startswith("*"):
            copy.target = copy.name
        copy.meta = dict(node.meta)
        inputs[copy.name] = (ours.op, ours.name)
        new[node] = copy
    paths = {name: made.graph.by_name[ours].module for name, ours in made.names.items()}
    _fill(graph, made.fx, new, lambda node: _meta(node, made.naming, paths.get(node.name, "")))
    output = graph.output_node()
    if made.returned is not None:
        values, descriptions = output.args[0], output.meta["desc"]
        output.args = (tuple([values[k] for k in made.returned]),)  # type: ignore[index]
        output.meta = {"desc": [descriptions[k] for k in made.returned]}
    output.meta[ORIGIN] = Origin(inputs, made.graph.level, made.canon.copy())
    return _module(graph, made.owner, made.naming)


def _body(gm: torch.fx.GraphModule, naming: Naming) -> torch.fx.GraphModule:
    """A copy of the body of a higher-order op, which takes and returns what the op says."""
    graph = torch.fx.Graph()
    _fill(graph, gm.graph, {}, lambda node: _meta(node, naming, ""))
    return _module(graph, gm, naming)


def _fill(
    graph: torch.fx.Graph,
    source: torch.fx.Graph,
    new: dict[torch.fx.Node, torch.fx.Node],
    meta: Callable[[torch.fx.Node], dict[str, Any]],
) -> None:
    for node in source.nodes:
        if node not in new:
            new[node] = graph.node_copy(node, new.__getitem__)
            new[node].meta = meta(node)


def _meta(node: torch.fx.Node, naming: Naming, path: str) -> dict[str, Any]:
    """A node's meta, with the paths of modules in the place of Dynamo's sources."""
    meta = dict(node.meta)
    stack = meta.get("nn_module_stack") or meta.pop("fwd_nn_module_stack", None)
    if stack:
        stack = {key: _clean(key, value, naming) for key, value in stack.items()}
    if path and (not stack or list(stack.values())[-1][0] != path):
        stack = {**(stack or {}), path: (path, torch.nn.Module)}
    if stack:
        meta["nn_module_stack"] = stack
    return meta


def _clean(key: Any, value: Any, naming: Naming) -> tuple[Any, ...]:
    if naming.plain:
        return tuple(value)
    rest = tuple(value[1:]) if isinstance(value, tuple) else ()
    return stack_path(key, value, naming.modules), *rest


def _module(graph: torch.fx.Graph, owner: Any, naming: Naming) -> torch.fx.GraphModule:
    """The module of a graph, with the attributes that it refers to."""
    attributes: dict[str, Any] = {}
    for node in graph.nodes:
        if node.op in ("get_attr", "call_module") and node.target not in attributes:
            value = functools.reduce(getattr, str(node.target).split("."), owner)
            if node.op == "get_attr" and isinstance(value, torch.fx.GraphModule):
                value = _body(value, naming)
            attributes[str(node.target)] = value
    module = torch.fx.GraphModule(attributes, graph, type(owner).__name__)
    module.training = getattr(owner, "training", True)
    return module
