"""Module paths in names of nodes, and the numbers in names of graphs."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import NamedTuple

from .cost.step import with_savers
from .model import Graph, GraphKind

_GRAPH = re.compile(r"(?:forward|backward|inference|joint|eager)(?:_[0-9]+)?:")
"""The name of a graph before that of a node: of a value that another graph made."""


class OwnModule(NamedTuple):
    """A module of a class that is not torch's own.

    Attributes:
        name: the qualified name of its class.
        has_forward: whether its `forward` is not torch's either; that of a subclass of
            `Sequential` is.
    """

    name: str
    has_forward: bool


def module_of(name: str) -> str:
    """The module path that a node's name begins with: what stands before its last slash.

    In the name of a value that another graph made, `forward_0:fc/addmm`, that is `fc`.
    """
    graph = _GRAPH.match(name) if ":" in name else None
    return name[graph.end() if graph else 0 :].rpartition("/")[0]


def common_path(paths: Iterable[str]) -> str:
    """The innermost module that contains all of these; a sum of their gradients belongs to it."""
    common: list[str] | None = None
    for path in paths:
        parts = path.split(".") if path else []
        if common is None:
            common = parts
        else:
            same = [x == y for x, y in zip(common, parts, strict=False)]
            common = common[: same.index(False) if False in same else len(same)]
    return ".".join(common or [])


def numbered(
    graphs: Iterable[Graph],
    classes: Mapping[str, str] | None = None,
    own_modules: Mapping[str, OwnModule] | None = None,
) -> tuple[Graph, ...]:
    """The graphs named after their kinds: `forward`, or `forward_0`, `forward_1` of several.

    Each backward knows the forward that saved its inputs.

    Args:
        classes, own_modules: see `Graph`.
    """
    graphs = list(graphs)
    totals = Counter(graph.kind for graph in graphs)
    used: Counter[GraphKind] = Counter()
    named: list[Graph] = []
    for graph in graphs:
        name = graph.kind if totals[graph.kind] == 1 else f"{graph.kind}_{used[graph.kind]}"
        used[graph.kind] += 1
        own = own_modules or {}
        named.append(replace(graph, name=name, classes=classes or {}, own_modules=own))
    return with_savers(named)
