"""Describe nodes for which a cache rejects the graph, with module and source line."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterable, Iterator, Mapping
from types import MappingProxyType
from typing import NamedTuple

from torch import fx

from ..graph.model import Source
from ..ops.qualified import op_name
from ..torch_private import RefusedNode
from . import node_meta
from .source_lines import (
    definition_at,
    frames_in,
    from_line,
    from_stack_trace,
    is_user_file,
    relative,
    tree_of,
)

_ADDRESS = re.compile(r" (?:object )?at 0x[0-9a-f]+|(?<=\b)0x[0-9a-f]{6,}")
_PATH = re.compile(r"(?:/[\w.+-]+){2,}|\b[A-Za-z]:\\[^\s'\"]+")
_WITHOUT_OWN_LINE = ("autocast", "sdpa_kernel", "_backend_from_string")
"""Parts of the names of functions that `with` statements call. Dynamo records no line for them."""


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

    Args:
        refused: rejected nodes, with torch's reasons.
        modules: paths of known modules by `id`.
    """
    ops: dict[object, RefusedOp] = {}
    for node, reason in refused:
        if node is None:
            op = RefusedOp("", clean(reason))
        else:
            name = op_name(node.target) if node.op != "get_attr" else str(node.target)
            source, calls = _source(node)
            if source is not None and calls < 0 and ops:
                continue  # the exit of a context; the nearest line is after the `with` statement
            op = RefusedOp(name, clean(reason), _module(node, modules, calls), source)
        # Entering and leaving a context are two nodes; sdpa_kernel has seven.
        ops.setdefault(op.source or (op.op, op.reason), op)
    return tuple(ops.values())


def clean(reason: str) -> str:
    """Return torch's reason on one line, without addresses and machine paths."""
    text = _ADDRESS.sub("", " ".join(reason.split()))
    return _PATH.sub(lambda match: relative(match[0]), text)


def _module(node: fx.Node, modules: Mapping[int, str], calls: int) -> str:
    """Return the module of a node, or of a `with` statement in the `calls`-th call of `forward`."""
    for near in _iterate_nearest(node):
        stack = list((near.meta.get("nn_module_stack") or {}).items())
        if stack:
            if near is not node and not 0 < calls <= len(stack):
                return ""
            key, value = stack[-1 if near is node else calls - 1]
            return node_meta.stack_path(key, value, modules)
    return ""


def _source(node: fx.Node) -> tuple[Source | None, int]:
    """Return the source line of a node, or of the nearest node that has a line.

    For a `with` statement, also return the number of enclosing calls of `forward`; otherwise 0, or
    -1 for a context without a `with` statement.
    """
    context = any(part in str(node.target) for part in _WITHOUT_OWN_LINE)
    for near in _iterate_nearest(node):
        stack = near.meta.get("stack_trace") or ""
        source = from_stack_trace(stack, node_meta.call_of(near.meta)) if stack else None
        if source is not None:
            statement = _with_statement(stack) if context and near is not node else None
            return statement or (source, -1 if context else 0)
    return None, 0


def _iterate_nearest(node: fx.Node) -> Iterator[fx.Node]:
    """Yield a node, the nodes after it, then the nodes before it in reverse order."""
    yield node
    after = node.next
    while after.op != "root":
        yield after
        after = after.next
    before = node.prev
    while before.op != "root":
        yield before
        before = before.prev


def _with_statement(stack: str) -> tuple[Source, int] | None:
    """Return the innermost user `with` statement around the calls of a printed stack.

    Also return the number of enclosing calls of `forward`.
    """
    frames = frames_in(stack)
    for frame_index, (file, line, function, _) in reversed(list(enumerate(frames))):
        if not is_user_file(file):
            continue
        with_lines_here = [
            statement.lineno
            for statement in ast.walk(tree_of(file))
            if isinstance(statement, ast.With | ast.AsyncWith)
            and statement.lineno <= line <= (statement.end_lineno or line)
            and definition_at(file, statement.lineno) == definition_at(file, line)
        ]
        if with_lines_here:
            calls = sum(frame[2] == "forward" for frame in frames[: frame_index + 1])
            # Dynamo's module stack omits the compiled module itself.
            calls -= frames[0][2] == "forward"
            return from_line(file, max(with_lines_here), function), calls
    return None
