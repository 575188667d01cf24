"""Post-grad graphs: run op by op, and the origins of the kernels that inductor makes of them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import torch
import torch.fx

from ... import torch_private
from ...convert import node_meta, source_lines
from ...convert.from_fx import Converted
from ...convert.graph_modules import copied, runnable
from ...graph.collectives import communicates
from ...graph.model import Source
from ...ops.collectives import packet_of
from ...ops.qualified import op_name
from ...watching.kernels import Origin

_LOWERING = "_inductor_lowering_function"
"""The attribute that marks a function of inductor's which only generated code can stand for."""


class PostGradRun:
    """A post-grad graph as a callable that runs it op by op, in the boxed calling convention.

    Random numbers are drawn from the seeds in the graph, as generated code does: what the backward
    recomputes draws the same ones as its forward.

    Args:
        converted: the post-grad graph.
        before: the graph before inductor's passes, which runs where these made calls that no op
            stands for.

    Attributes:
        lowered: the names of these calls.
    """

    def __init__(self, converted: Converted, before: torch.fx.GraphModule):
        self.lowered = tuple(_lowered(converted.owner))
        module = runnable(copied(before if self.lowered else converted.owner))
        for graph_module in _graph_modules(module):
            _draw_by_seed(graph_module)
        self._run = torch_private.boxed(module.forward)

    def __call__(self, args: list[Any]) -> Any:
        """Run the graph; takes the arguments out of the list."""
        return self._run(args)


def _graph_modules(module: torch.fx.GraphModule) -> Iterator[torch.fx.GraphModule]:
    """The module and the bodies of its higher-order ops."""
    for each in module.modules():
        if isinstance(each, torch.fx.GraphModule):
            yield each


def _lowered(module: torch.fx.GraphModule) -> Iterator[str]:
    for each in _graph_modules(module):
        for node in each.graph.nodes:
            if node.op == "call_function" and hasattr(node.target, _LOWERING):
                yield str(getattr(node.target, "__name__", node.target))


def _draw_by_seed(module: torch.fx.GraphModule) -> None:
    """Replace inductor's random ops, which ignore their seeds when they run eagerly."""
    drawing = {
        torch.ops.prims.inductor_random.default: _random,
        torch.ops.prims.inductor_randint.default: _randint,
    }
    found = False
    for node in module.graph.nodes:
        if node.op == "call_function" and node.target in drawing:
            node.target = drawing[node.target]
            found = True
    if found:
        module.recompile()


def _random(size: Sequence[int], seed: torch.Tensor, mode: str, **_options: Any) -> torch.Tensor:
    drawn: torch.Tensor = getattr(torch, mode)(
        size, generator=_generator(seed), device=seed.device, dtype=torch.float32
    )
    return drawn


def _randint(low: int, high: int, size: Sequence[int], seed: torch.Tensor) -> torch.Tensor:
    return torch.randint(low, high, size, generator=_generator(seed), device=seed.device)


def _generator(seed: torch.Tensor) -> torch.Generator:
    return torch.Generator(seed.device).manual_seed(int(seed.item()))


def origins_of(
    calls: Sequence[tuple[str, Sequence[torch.fx.Node]]],
    graph: torch.fx.Graph | None,
    converted: Converted,
    modules: Mapping[int, str],
) -> list[Origin]:
    """What each call in the generated code of a graph computes.

    Args:
        calls: what is called, and the nodes that it computes, of the post-grad graph or of a body
            in it.
        graph: the live post-grad graph.
        converted: the same graph, converted.
        modules: paths of known modules by `id`.
    """
    own = {node.name: node for node in converted.graph.nodes}
    order = {name: number for number, name in enumerate(converted.names)}
    found = []
    for name, computed in calls:
        nodes = [node for node in computed if name == f"torch.ops.{node.target}"] or computed
        paths: list[str] = []
        lines: list[Source] = []
        for node in sorted(nodes, key=lambda node: order.get(node.name, len(order))):
            known = own.get(converted.names.get(node.name, "")) if node.graph is graph else None
            path, line = _place(node, modules) if known is None else (known.module, known.source)
            paths += [path] if path else []
            lines += [] if line is None else [line]
        ran = _called(computed, name)
        collective = own.get(converted.names.get(ran.name, "")) if ran is not None else None
        sends = collective is not None and ran is not None and ran.graph is graph
        found.append(
            Origin(
                name,
                tuple(dict.fromkeys(paths)),
                tuple(dict.fromkeys(lines)),
                collective.name if sends and collective and communicates(collective) else "",
            )
        )
    return found


def _called(computed: Sequence[torch.fx.Node], name: str) -> torch.fx.Node | None:
    """The node of the op that is called; None for a kernel, and where it is not there.

    Of a collective torch notes the wait, or a view behind that: they have the same buffer.
    """
    packet = packet_of(name.removeprefix("torch.ops."))
    for each in computed:
        node: Any = each
        while isinstance(node, torch.fx.Node) and packet_of(op_name(node.target)) != packet:
            node = node.args[0] if node.op == "call_function" and node.args else None
        if isinstance(node, torch.fx.Node):
            return node
    return None


def _place(node: torch.fx.Node, modules: Mapping[int, str]) -> tuple[str, Source | None]:
    """Module path and line of a node by its own meta."""
    stack = node.meta.get("nn_module_stack") or node.meta.get("fwd_nn_module_stack")
    key, value = list(stack.items())[-1] if stack else ("", "")
    path = node_meta.stack_path(key, value, modules) if stack else ""
    trace = node.meta.get("stack_trace") or node.stack_trace
    call = node_meta.call_of(node.meta)
    return path, source_lines.from_stack_trace(trace, call) if trace else None
