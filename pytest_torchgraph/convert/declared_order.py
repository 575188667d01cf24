"""The order of inputs, saved values and outputs of AOTAutograd's graphs.

torch puts inputs in the order of their first use, by which `f(x, y)` and `f(y, x)` would be the
same graph. Here they are in the order in which the user declared them:

    inputs    declared ones as declared (tensors, then sizes, then numbers), then saved values as
              the forward computes them, then tangents
    saved     inputs as declared, then values as they are computed
    outputs   new values of mutated inputs and gradients as the inputs are declared, then the
              others as torch has them
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import torch
import torch.fx

from .aot_descriptors import belongs_to


class DeclaredOrder:
    """Sort keys for the inputs, saved values and outputs of one graph.

    Args:
        inputs, ranks, dynamo: see `from_fx.Naming`.
    """

    def __init__(
        self,
        inputs: Mapping[str, tuple[str, str]],
        ranks: Mapping[str, int],
        dynamo: Sequence[tuple[str, str]],
    ):
        self._inputs = inputs
        self._ranks = ranks
        self._dynamo = dynamo
        saved = [name for name, (role, _) in inputs.items() if role == "saved"]
        self._saved = {name: number for number, name in enumerate(saved)}

    def of_input(self, node: torch.fx.Node) -> tuple[int, int]:
        """The key of a placeholder among the inputs."""
        role, name = self._inputs.get(node.name, ("input", node.name))
        if role == "saved":
            return 1, self._saved.get(node.name, 0)
        return 2 if role == "tangent" else 0, self._ranks.get(name, len(self._ranks))

    def of_saved(self, node: torch.fx.Node, order: Mapping[torch.fx.Node, int]) -> tuple[int, ...]:
        """The key of a value among those that a forward saves.

        Args:
            order: the position of each node in the graph.
        """
        value = original_value(node)
        return (0, *self.of_input(value)) if value.op == "placeholder" else (1, order[value])

    def of_output(self, description: Any, position: int, backward: bool) -> tuple[int, int]:
        """The key of an output among the real ones.

        Args:
            description: its `desc`.
            position: its position among the real ones.
            backward: whether the graph is a backward.
        """
        index = belongs_to(description, position, backward)
        if index is None or index >= len(self._dynamo):
            return 1, position
        name = self._dynamo[index][1]
        return 0, self._ranks.get(name, len(self._ranks))


def original_value(node: torch.fx.Node) -> torch.fx.Node:
    """The value that this one is an alias of by autograd's `aten.detach`; mostly itself."""
    while node.target is torch.ops.aten.detach.default:
        (node,) = node.args  # type: ignore[assignment]
    return node
