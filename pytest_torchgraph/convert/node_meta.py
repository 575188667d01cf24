"""Meta of fx nodes: our own keys, access to torch's keys, and modules for backward ops.

torch finds the module of a backward op by the sequence number of the running autograd node, which
equals the number of the forward op that created the node. An in-place forward op has the number of
its successor, so torch finds no module for its backward (`x /= x.sum()`).
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import torch.fx

from ..graph.module_paths import common_path
from .placeholders import module_fqn

if TYPE_CHECKING:
    from .from_fx import Converted


RESULT = "torchgraph_result"
"""Key of a description: a `Result`, or a result as printed in a graph."""

COMMUNICATES = "torchgraph_communicates"
"""Key of a flag: the call was observed to communicate when it ran."""

LINE = "torchgraph_line"
"""Key of the source line of a node, as arguments of `source_lines.from_line`."""

SCOPE = "torchgraph_scope"
"""Key of the scope (file and function) of a printed node's line, a part of the node's name."""


def value_of(node: torch.fx.Node) -> Any:
    """Return the value of a node from its meta, or `None`."""
    # Values written by a pass that runs the graph take precedence over RESULT, which was noted
    # when the graph was made.
    for key in ("val", "example_value", "tensor_meta", RESULT):
        value = node.meta.get(key)
        if value is not None:
            return value
    return None


def call_of(meta: Mapping[str, Any]) -> str:
    """Return the torch function call that a node is part of, by its name in Dynamo's graph.

    `torch.einsum` and `@` become several ops each; all ops of one call share the name.
    """
    return "/".join(str(call[0]) for call in meta.get("source_fn_stack") or ())


def stack_path(key: Any, value: Any, modules: Mapping[int, str]) -> str:
    """Return the module path of one entry of Dynamo's `nn_module_stack`.

    Args:
        key: key of the entry, which begins with the `id` of the module.
        value: the entry: Dynamo's source of the module, and its class.
        modules: paths of known modules by `id`. The path of an unknown module is derived from its
            source.
    """
    number = str(key).partition("@")[0].partition("_")[0]
    if number.isdecimal() and int(number) in modules:
        return modules[int(number)]
    return module_fqn(str(value[0] if isinstance(value, tuple) else value))


_SEQUENCE = "seq_nr"
"""torch's key of a node's sequence number."""
_FOUND = ("nn_module_stack", "fwd_nn_module_stack")
"""torch's keys of a node's modules; present even if the node is known to be in no module."""


class BackwardModules:
    """Lookup of modules by the sequence numbers of a forward.

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
        """Return the innermost common module of the forward ops around a node's sequence number.

        "" if torch knows that the node is in no module, or if the node has no number.
        """
        number = _number(node)
        if number is None or any(key in node.meta for key in _FOUND):
            return ""
        index = bisect_left(self._numbers, number)
        return common_path(self._paths[max(index - 1, 0) : index + 1])


def _number(node: torch.fx.Node) -> int | None:
    number: Any = node.meta.get(_SEQUENCE)
    return number if type(number) is int else None
