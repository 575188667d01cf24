"""The meta of fx nodes: our own keys, readers of torch's, and modules for backward ops that have
none.

torch finds the module of an op in a backward by the sequence number of the autograd node that ran
it: that of the forward op which made the autograd node. An in-place op of the forward has its
successor's number, so that nothing is found for its backward (`x /= x.sum()`).
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
"""Key for a result that is described already: a `Result`, or one that a printed graph shows."""

COMMUNICATES = "torchgraph_communicates"
"""Key for whether a call was seen to communicate when it ran."""

LINE = "torchgraph_line"
"""Key for the code object and line number that a node comes from."""

SCOPE = "torchgraph_scope"
"""Key for the function that a printed node's line is in, a part of its name (`printed.scopes`)."""


def value_of(node: torch.fx.Node) -> Any:
    """The value of a node as its meta has it, None where it has none.

    A pass that runs the graph (`example_value`, `val`, `tensor_meta`) goes before `RESULT`, which
    was noted when the graph was made.
    """
    for key in ("val", "example_value", "tensor_meta", RESULT):
        value = node.meta.get(key)
        if value is not None:
            return value
    return None


def call_of(meta: Mapping[str, Any]) -> str:
    """Return the call of a torch function that a node is a part of, by its name in Dynamo's graph.

    `torch.einsum` and `@` become several ops each; all ops of one call have one name.
    """
    return "/".join(str(call[0]) for call in meta.get("source_fn_stack") or ())


def stack_path(key: Any, value: Any, modules: Mapping[int, str]) -> str:
    """The module path of one entry of Dynamo's `nn_module_stack`.

    Args:
        key: the entry's key, which begins with the `id` of the module.
        value: the entry: Dynamo's source of the module, and its class.
        modules: paths of known modules by `id`; of any other the path is made of its source.
    """
    number = str(key).partition("@")[0].partition("_")[0]
    if number.isdecimal() and int(number) in modules:
        return modules[int(number)]
    return module_fqn(str(value[0] if isinstance(value, tuple) else value))


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
