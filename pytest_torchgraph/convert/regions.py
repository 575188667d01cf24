"""The modules that the calls of a shared region stand for.

Layers that are compiled as one region (`torch.compiler.nested_compile_region`) share a body, and
torch notes for each call the module whose code calls the region, which may be the model. The layer
shows in the parameters that a call hands over, and in a backward in what its forward saved.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from functools import cached_property

import torch
import torch.fx

from ..graph.module_paths import common_path, module_of

_RESULT = re.compile(r"(\A|/)invoke_subgraph(\.\d+)?#\d+\Z")
"""The name of a result of a shared region."""


class Regions:
    """Finds the layers that the calls of shared regions in a graph stand for.

    Args:
        fx: the graph.
        inputs: the role and the name of its inputs, by their names in `fx`.
    """

    def __init__(self, fx: torch.fx.Graph, inputs: Mapping[str, tuple[str, str]]):
        self._fx = fx
        self._inputs = inputs

    def path(self, node: torch.fx.Node, noted: str) -> str:
        """The module of a node: that of a call of a region may be inside of what torch noted."""
        if node.target is not torch.ops.higher_order.invoke_subgraph:
            return noted
        path = self._paths[node]
        return path if path and (not noted or path.startswith(f"{noted}.")) else noted

    @cached_property
    def _paths(self) -> dict[torch.fx.Node, str]:
        invoke = torch.ops.higher_order.invoke_subgraph
        by_body: dict[str, list[torch.fx.Node]] = {}
        for call in self._fx.find_nodes(op="call_function", target=invoke):
            body = call.args[0]
            name = str(body.target) if isinstance(body, torch.fx.Node) else str(body)
            by_body.setdefault(name, []).append(call)
        paths: dict[torch.fx.Node, str] = {}
        for calls in by_body.values():
            owners = [[self._owner(arg) for arg in call.args[1:]] for call in calls]
            paths.update(zip(calls, _own_paths(owners), strict=True))
        return paths

    def _owner(self, operand: object) -> str:
        """The module whose parameter an operand is, or whose region saved it; "" for others."""
        if not isinstance(operand, torch.fx.Node):
            return ""
        while operand.op == "call_function" and len(operand.all_input_nodes) == 1:
            (operand,) = operand.all_input_nodes  # a view or a cast
        if operand.op == "placeholder":
            role, name = self._inputs.get(operand.name, ("input", operand.name))
            if role in ("parameter", "buffer"):
                return name.rpartition(".")[0]
            return module_of(name) if _RESULT.search(name) else ""
        return str(operand.target).rpartition(".")[0] if operand.op == "get_attr" else ""


def _own_paths(owners: Sequence[Sequence[str]]) -> list[str]:
    """The module of each of several calls, from the owners of their operands.

    What two calls have in common, as a shared weight or the names inside of a layer, tells nothing:
    `layers.0.fc` and `layers.1.fc` are of `layers.0` and `layers.1`.
    """
    paths = []
    for own in owners:
        others = [other for other in owners if other is not own]
        cut = [
            _differing(path, [other[k] for other in others if k < len(other)])
            for k, path in enumerate(own)
            if path
        ]
        paths.append(common_path(path for path in cut if path))
    return paths


def _differing(path: str, others: Sequence[str]) -> str:
    """A path up to the last part in which it differs from another; all of it without others."""
    parts = path.split(".")
    ends = [0 if others else len(parts)]
    for other in others:
        pairs = zip(parts, other.split("."), strict=False)
        ends += [k + 1 for k, (part, its) in enumerate(pairs) if part != its]
    return ".".join(parts[: max(ends)])
