"""The names that differ between graphs of equal dataflow."""

from __future__ import annotations

from collections.abc import Sequence

from ..model import Graph
from .canonical import canonical
from .equal import pairing


def renamed_values(old: Sequence[Graph], new: Sequence[Graph]) -> list[tuple[str, str]]:
    """The old and the new name of each value that is called differently, in the old order.

    Args:
        old: the graphs of one capture.
        new: those of another one, pair by pair equal to them.
    """
    return [
        pair
        for before, after in zip(canonical(old), canonical(new), strict=True)
        for pair in _renamed(before, after)
    ]


def _renamed(old: Graph, new: Graph) -> list[tuple[str, str]]:
    counterparts = pairing(old, new)
    if counterparts is None:
        return []
    pairs = [
        (node.name, new.nodes[number].name)
        for node, number in zip(old.nodes, counterparts, strict=True)
        if node.name != new.nodes[number].name
    ]
    for before, after in zip(old.subgraphs, new.subgraphs, strict=False):
        pairs += _renamed(before, after)
    return pairs
