"""Graphs in which strides and devices count: detail "full"."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any, cast

from ..model import Arg, Atom, Device, Graph, Node, Result, TensorMeta


def strict(graph: Graph) -> Graph:
    """The graph with its strides and devices in its dtypes and constants, which `==` compares."""
    return replace(
        graph,
        nodes=tuple(map(_strict_node, graph.nodes)),
        subgraphs=tuple(map(strict, graph.subgraphs)),
    )


def _strict_node(node: Node) -> Node:
    return replace(
        node,
        args=cast("tuple[Arg, ...]", _strict_arg(node.args)),
        kwargs=cast("dict[str, Arg]", _strict_arg(node.kwargs)),
        result=_strict_result(node.result),
    )


def _strict_result(result: Result) -> Result:
    if isinstance(result, TensorMeta):
        return replace(result, dtype=f"{result.dtype} {result.stride} {result.device}")
    if isinstance(result, tuple):
        return tuple(map(_strict_result, result))
    return result


def _strict_arg(value: Arg) -> Any:
    if isinstance(value, Device):
        return Atom(f"device {value.name}")
    if isinstance(value, tuple):
        return tuple(map(_strict_arg, value))
    if isinstance(value, Mapping):
        return {key: _strict_arg(item) for key, item in value.items()}
    return value
