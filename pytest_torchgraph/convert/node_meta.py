"""The meta of fx nodes: keys of our own, and readers of torch's."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch.fx

from .dynamo_sources import module_fqn

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
