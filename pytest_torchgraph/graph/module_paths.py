"""Module paths in node names, and numbers in graph names."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from itertools import takewhile
from typing import NamedTuple, TypeVar

from .cost import with_savers
from .model import Graph, GraphKind

T = TypeVar("T")
_GRAPH = re.compile(r"(?:forward|backward|inference|joint|update|eager)(?:_[0-9]+)?:")
"""Graph name that prefixes the name of a value made by another graph."""


class OwnModule(NamedTuple):
    """A module whose class is not torch's own.

    Attributes:
        name: qualified name of its class.
        has_forward: True if the class does not inherit torch's `forward`. A subclass of
            `Sequential`, for example, inherits it.
    """

    name: str
    has_forward: bool


def split_graph(name: str) -> tuple[str, str]:
    """Return the graph that made a value, "" if none is named, and the value's name there."""
    graph = _GRAPH.match(name) if ":" in name else None
    return ("", name) if graph is None else (graph.group()[:-1], name[graph.end() :])


def module_of(name: str) -> str:
    """Return the module path at the start of a node's name: the part before the last slash.

    For a value made by another graph, such as `forward_0:fc/addmm`, the module path is `fc`.
    """
    return split_graph(name)[1].rpartition("/")[0]


def common_path(paths: Iterable[str]) -> str:
    """Return the innermost module that contains all paths; "" if there is none."""
    return ".".join(common_prefix(path.split(".") for path in paths))


def common_prefix(sequences: Iterable[Sequence[T]]) -> tuple[T, ...]:
    """Return the longest common beginning of sequences."""
    columns = zip(*sequences, strict=False)  # the shortest sequence bounds the common beginning
    return tuple(items[0] for items in takewhile(lambda items: len(set(items)) == 1, columns))


def numbered(
    graphs: Iterable[Graph],
    classes: Mapping[str, str] | None = None,
    own_modules: Mapping[str, OwnModule] | None = None,
) -> tuple[Graph, ...]:
    """Name graphs after their kinds: `forward`, or `forward_0` and `forward_1` if there are two.

    Also set the `Graph.saver` of each backward.

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
        modules = own_modules or {}
        named.append(replace(graph, name=name, classes=classes or {}, own_modules=modules))
    return with_savers(named)
