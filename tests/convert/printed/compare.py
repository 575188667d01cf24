"""Differences between a live graph and the graph read from its text, node by node, in all fields.

Independent of `==` and stricter: compares order, strides, devices, sources and effects.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from itertools import zip_longest

from pytest_torchgraph import Graph, Node, TensorMeta
from pytest_torchgraph.graph import Result, Symbol


def differences(live: Graph, text: Graph, where: str = "") -> list[str]:
    """Return a line for each node of `text` that differs from `live`, except names and modules."""
    pairs = [*zip(live.nodes, text.nodes, strict=False)]
    names = {a.name: b.name for a, b in pairs}
    ours = [*_whole(live, names), *(_fields(node, names) for node in live.nodes)]
    theirs = [*_whole(text, {}), *(_fields(node, {}) for node in text.nodes)]
    lines = [f"{where}: {a}, in the text {b}" for a, b in zip_longest(ours, theirs) if a != b]
    for a, b in pairs:
        if not _same_result(a.result, b.result):
            lines.append(f"{where}: result of {a!r}, in the text {b!r}")
        if b.source not in (None, a.source):
            lines.append(f"{where}: source of {a!r}, in the text {b!r}")
    for inner, printed in zip(live.subgraphs, text.subgraphs, strict=False):
        lines += differences(inner, printed, f"{where}/{inner.name}")
    if not lines and live != text:
        lines.append(f"{where}: equal in every field, but live != text")
    return lines


def _whole(graph: Graph, names: Mapping[str, str]) -> list[str]:
    bodies = [sub.name for sub in graph.subgraphs]
    saved = _renamed(graph.saved, names)
    return [graph.kind, saved, str(dict(graph.op_counts)), f"bodies {bodies}"]


def _fields(node: Node, names: Mapping[str, str]) -> str:
    args = () if node.kind == "get_attr" else node.args  # the value of a constant is not printed
    given = (args, dict(node.kwargs), node.after, node.effects)
    return _renamed((node.kind, node.op, node.target, *given), names)


def _renamed(value: object, names: Mapping[str, str]) -> str:
    """Describe a value, with other names of nodes."""
    return re.sub(r"(?<=\bRef\(name=')[^']*", lambda m: names.get(m[0], m[0]), repr(value))


def _same_result(live: Result, text: Result) -> bool:
    if isinstance(text, TensorMeta) and isinstance(live, TensorMeta):
        stride = live.stride if text.stride is not None else None
        device = live.device if text.device is not None else None
        return text == TensorMeta(live.dtype, live.shape, stride, device)
    if isinstance(text, Symbol):
        return text == live
    # Other values are not printed. For a tuple, the text has only the parts that getitems select.
    return not isinstance(live, TensorMeta | Symbol)
