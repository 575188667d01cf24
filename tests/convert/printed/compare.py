"""Differences between a live graph and the graph read from its text, node by node, in all fields.

Independent of `==` and stricter: compares order, strides, devices, sources and effects.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from pytest_torchgraph import Graph, Node, TensorMeta
from pytest_torchgraph.graph import Ref, Result, SubgraphRef, Symbol


def differences(live: Graph, text: Graph, where: str = "") -> list[str]:
    """Return a line for each field of `text` that differs from `live`, except names and modules."""
    lines = list(_differences(live, text, where))
    if not lines and live != text:
        lines.append(f"{where}: equal in every field, but live != text")
    return lines


def _differences(live: Graph, text: Graph, where: str) -> Iterator[str]:
    for attribute in ("kind", "level"):
        if getattr(live, attribute) != getattr(text, attribute):
            yield f"{where}: {attribute}"
    if len(live.nodes) != len(text.nodes):
        yield f"{where}: {len(live.nodes)} nodes, in the text {len(text.nodes)}"
        return
    names = {a.name: b.name for a, b in zip(live.nodes, text.nodes, strict=True)}
    if len(set(names.values())) != len(names):
        yield f"{where}: names are not unique"
    for a, b in zip(live.nodes, text.nodes, strict=True):
        for field in _node_differences(a, b, names):
            yield f"{where}: {field} of {a!r}, in the text {b!r}"
    if [names[ref.name] for ref in live.saved] != [ref.name for ref in text.saved]:
        yield f"{where}: saved {live.saved}, in the text {text.saved}"
    if dict(live.op_counts) != dict(text.op_counts):
        yield f"{where}: op_counts"
    bodies = [[sub.name for sub in graph.subgraphs] for graph in (live, text)]
    if bodies[0] != bodies[1]:
        yield f"{where}: subgraphs {bodies[0]}, in the text {bodies[1]}"
        return
    for inner, printed in zip(live.subgraphs, text.subgraphs, strict=True):
        yield from (
            line
            for line in _differences(inner, printed, f"{where}/{inner.name}")
            if not line.endswith(": level")  # unknown at its conversion
        )


def _node_differences(live: Node, text: Node, names: dict[str, str]) -> Iterator[str]:
    for field in ("kind", "op", "target"):
        if getattr(live, field) != getattr(text, field):
            yield field
    for field in ("args", "kwargs", "after"):
        if live.kind == "get_attr" and field == "args":
            continue  # the value of a constant is not printed
        value = _renamed(getattr(live, field), names)
        if repr(value) != repr(_renamed(getattr(text, field), {})):
            yield field
    if not _same_result(live.result, text.result):
        yield "result"
    effects = [(e.kind, e.target and names[e.target.name]) for e in live.effects]
    if effects != [(e.kind, e.target and e.target.name) for e in text.effects]:
        yield "effects"
    if text.source is not None and text.source != live.source:
        yield "source"


def _same_result(live: Result, text: Result) -> bool:
    if isinstance(text, TensorMeta) and isinstance(live, TensorMeta):
        stride = live.stride if text.stride is not None else None
        device = live.device if text.device is not None else None
        return text == TensorMeta(live.dtype, live.shape, stride, device)
    if isinstance(text, Symbol):
        return text == live
    # Other values are not printed. For a tuple, the text has only the parts that getitems select.
    return not isinstance(live, TensorMeta | Symbol)


def _renamed(value: Any, names: dict[str, str]) -> Any:
    if isinstance(value, Ref):
        return Ref(names.get(value.name, value.name))
    if isinstance(value, SubgraphRef):
        return value
    if isinstance(value, tuple):
        return tuple(_renamed(item, names) for item in value)
    if isinstance(value, slice):
        return tuple(_renamed(item, names) for item in (value.start, value.stop, value.step))
    if isinstance(value, dict):
        return {key: _renamed(item, names) for key, item in value.items()}
    return value
