"""Copies of live graph modules, the bodies of higher-order ops included."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch.fx


def copied(gm: torch.fx.GraphModule) -> torch.fx.GraphModule:
    """A copy of a module's graphs, for a module that its owner goes on changing.

    Parameters, buffers and submodules other than bodies are shared.
    """
    graph = torch.fx.Graph()
    nodes: dict[torch.fx.Node, torch.fx.Node] = {}
    for node in gm.graph.nodes:
        nodes[node] = graph.node_copy(node, nodes.__getitem__)
        nodes[node].meta = dict(node.meta)
    copy = torch.fx.GraphModule(gm, graph)
    copy.meta.update(gm.meta)  # the `context_fn` of a checkpoint's body
    for name in bodies(gm):
        copy.set_submodule(name, copied(gm.get_submodule(name)))  # type: ignore[arg-type]
    return copy


def bodies(gm: torch.fx.GraphModule) -> Iterator[str]:
    """The attribute paths of the bodies of the module's higher-order ops."""
    for name in dict.fromkeys(str(node.target) for node in gm.graph.find_nodes(op="get_attr")):
        value: Any = gm
        for part in name.split("."):
            value = getattr(value, part, None)
        if isinstance(value, torch.fx.GraphModule):
            yield name


def runnable(gm: torch.fx.GraphModule) -> torch.fx.GraphModule:
    """A module that computes the same as Dynamo's when it is run eagerly, with gradients.

    Each `invoke_subgraph` becomes a plain call of its body: torch (2.13) differentiates that op on
    fake tensors alone, so that its own backend "eager" fails as well. A module without the op is
    returned itself.
    """
    invoke = torch.ops.higher_order.invoke_subgraph
    if not any(
        isinstance(module, torch.fx.GraphModule)
        and module.graph.find_nodes(op="call_function", target=invoke)
        for module in gm.modules()
    ):
        return gm
    copy = copied(gm)
    for module in copy.modules():
        if isinstance(module, torch.fx.GraphModule):
            for node in module.graph.find_nodes(op="call_function", target=invoke):
                node.target = _call
                node.args = (node.args[0], *node.args[2:])
            module.recompile()
    return copy


def _call(body: Any, *operands: Any) -> Any:
    return body(*operands)
