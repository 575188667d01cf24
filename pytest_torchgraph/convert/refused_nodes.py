"""Describe nodes for which a cache rejects the graph, with module and source line."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from types import MappingProxyType
from typing import NamedTuple

from torch import fx

from ..graph.model import Source
from ..ops.qualified import op_name
from ..torch_private import RefusedNode
from . import node_meta
from .source_lines import from_stack_trace, relative

_ADDRESS = re.compile(r" (?:object )?at 0x[0-9a-f]+|(?<=\b)0x[0-9a-f]{6,}")
_PATH = re.compile(r"(?:/[\w.+-]+){2,}|\b[A-Za-z]:\\[^\s'\"]+")


class RefusedOp(NamedTuple):
    """An op for which a cache rejects the graph.

    Attributes:
        op: qualified name of the op; "" if the graph as a whole is rejected.
        reason: torch's message, without addresses and machine paths.
        module: module path of the op, "" if unknown.
        source: source line in user code, `None` if unknown.
    """

    op: str
    reason: str
    module: str = ""
    source: Source | None = None


def describe_refused(
    refused: Iterable[RefusedNode], modules: Mapping[int, str] = MappingProxyType({})
) -> tuple[RefusedOp, ...]:
    """Describe rejected nodes, one entry per source line.

    Dynamo records no line for what a `with` statement calls, such as autocast: such nodes have the
    line and the module of the nearest op, and are described once per function.

    Args:
        refused: rejected nodes, with torch's reasons.
        modules: paths of known modules by `id`.
    """
    ops: dict[object, RefusedOp] = {}
    contexts: set[str] = set()
    for node, reason in refused:
        op, key = RefusedOp("", clean(reason)), None  # without a node, the graph as a whole
        if node is not None:
            name = op_name(node.target) if node.op != "get_attr" else str(node.target)
            sources = ((near, _source(near)) for near in _nearest(node))
            # Without any line in the graph, the node is described by itself.
            near, source = next((pair for pair in sources if pair[1] is not None), (node, None))
            op = RefusedOp(name, clean(reason), _module(near, modules), source)
            key = source and (source, near is node)  # the op in a context may be refused too
            if near is not node:
                if name in contexts or ("_exit_" in name and ops):  # the end of a `with` statement
                    continue
                contexts.add(name)
        ops.setdefault(key or (op.op, op.reason), op)  # without a line, one entry per reason
    return tuple(ops.values())


def clean(reason: str) -> str:
    """Return torch's reason on one line, without addresses and machine paths."""
    text = _ADDRESS.sub("", " ".join(reason.split()))
    return _PATH.sub(lambda match: relative(match[0]), text)


def _module(node: fx.Node, modules: Mapping[int, str]) -> str:
    """Return the path of the innermost module of a node, "" if unknown."""
    stack = list((node.meta.get("nn_module_stack") or {}).items())
    return node_meta.stack_path(stack[-1][0], stack[-1][1], modules) if stack else ""


def _source(node: fx.Node) -> Source | None:
    stack = node.meta.get("stack_trace") or ""
    return from_stack_trace(stack, node_meta.call_of(node.meta)) if stack else None


def _nearest(node: fx.Node) -> Iterator[fx.Node]:
    """Yield a node, the nodes after it, then the nodes before it in reverse order."""
    nodes = [*node.graph.nodes]
    position = nodes.index(node)
    yield from nodes[position:]
    yield from nodes[:position][::-1]
