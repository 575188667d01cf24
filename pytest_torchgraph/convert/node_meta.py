"""Meta of fx nodes: our own keys, access to torch's keys, and modules for backward ops.

torch finds the module of a backward op by the sequence number of the running autograd node, which
equals the number of the forward op that created the node. An in-place forward op has the number of
its successor, so torch finds no module for its backward (`x /= x.sum()`).
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from torch import fx

from ..graph.module_paths import common_path
from .placeholders import module_fqn

if TYPE_CHECKING:
    from .from_fx import Converted


RESULT = "torchgraph_result"
"""Key of a value's description: a `Result`, or the result as printed in a graph."""

COMMUNICATES = "torchgraph_communicates"
"""Key of a flag that is set if the call was observed to communicate."""

LINE = "torchgraph_line"
"""Key of the source line of a node: the arguments of `source_lines.from_line`."""

SCOPE = "torchgraph_scope"
"""Key of the scope (file and function) of a printed node's line. The node's name contains it."""


def value_of(node: fx.Node) -> Any:
    """Return the value of a node from its meta, or `None`."""
    # Values that a pass wrote by running the graph take precedence over RESULT, which was stored
    # when the graph was made.
    for key in ("val", "example_value", "tensor_meta", RESULT):
        value = node.meta.get(key)
        if value is not None:
            return value
    return None


def call_of(meta: Mapping[str, Any]) -> str:
    """Return the name, in Dynamo's graph, of the torch function call that a node is part of.

    Calls such as `torch.einsum` and `@` become several ops, which share the name of the call.
    """
    return "/".join(str(call[0]) for call in meta.get("source_fn_stack") or ())


def annotations_of(meta: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return `Node.annotations`."""
    custom = meta.get("custom")
    return dict(custom) if isinstance(custom, Mapping) else {}


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


_MODULE_KEYS = ("nn_module_stack", "fwd_nn_module_stack")
"""torch's keys of a node's modules. A key is also present if torch found that there are none."""


class BackwardModules:
    """Lookup of modules by the sequence numbers of a forward.

    Args:
        forward: the forward graph.
    """

    def __init__(self, forward: Converted):
        modules: dict[int, str] = {}
        for node in forward.fx.nodes:
            number = _sequence_number(node)
            name = forward.names.get(node.name)
            if number is not None and name is not None and node.op == "call_function":
                modules.setdefault(number, forward.graph[name].module)
        self._numbers = sorted(modules)
        self._paths = [modules[number] for number in self._numbers]

    def path(self, node: fx.Node) -> str:
        """Return the innermost common module of the forward ops around a node's sequence number.

        Return "" if torch found that the node is in no module, or if the node has no number.
        """
        number = _sequence_number(node)
        if number is None or any(key in node.meta for key in _MODULE_KEYS):
            return ""
        index = bisect_left(self._numbers, number)
        return common_path(self._paths[max(index - 1, 0) : index + 1])


def _sequence_number(node: fx.Node) -> int | None:
    number: Any = node.meta.get("seq_nr")
    return number if type(number) is int else None
