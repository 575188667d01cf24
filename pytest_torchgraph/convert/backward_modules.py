"""The modules of those ops of a backward for which torch notes none.

torch finds the module of an op in a backward by the sequence number of the autograd node that ran
it: that of the forward op which made the autograd node. An in-place op of the forward has its
successor's number, so that nothing is found for its backward (`x /= x.sum()`).
"""

from __future__ import annotations

from bisect import bisect_left
from typing import TYPE_CHECKING, Any

import torch.fx

from ..graph.module_paths import common_path

if TYPE_CHECKING:
    from .from_fx import Converted

_SEQUENCE = "seq_nr"
"""Key of torch's for the sequence number of a node."""
_FOUND = ("nn_module_stack", "fwd_nn_module_stack")
"""Keys of torch's for the modules of a node; also there where it is known to be in none."""


class BackwardModules:
    """Finds modules by the sequence numbers of the forward.

    Args:
        forward: the forward graph.
    """

    def __init__(self, forward: Converted):
        modules: dict[int, str] = {}
        for node in forward.fx.nodes:
            number = _number(node)
            name = forward.names.get(node.name)
            if number is not None and name is not None and node.op == "call_function":
                modules.setdefault(number, forward.graph[name].module)
        self._numbers = sorted(modules)
        self._paths = [modules[number] for number in self._numbers]

    def path(self, node: torch.fx.Node) -> str:
        """The innermost module of both the forward op before and the one after a node's own.

        "" for a node that torch knows to be in no module, and for one without a number.
        """
        number = _number(node)
        if number is None or any(key in node.meta for key in _FOUND):
            return ""
        at = bisect_left(self._numbers, number)
        return common_path(self._paths[max(at - 1, 0) : at + 1])


def _number(node: torch.fx.Node) -> int | None:
    number: Any = node.meta.get(_SEQUENCE)
    return number if type(number) is int else None
