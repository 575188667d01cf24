"""Regions: the nodes from a value back to values that are known to agree."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from .valued import Key, ValuedStep

_MOST = 120
"""The most nodes of a region: what is larger names nothing."""


class TooLargeError(Exception):
    """A region has more nodes than anything can be said of."""


@dataclass(frozen=True)
class Region:
    """The nodes that compute a value from others.

    Attributes:
        edge: the values that it starts from.
        nodes: its nodes in order, the last being the value itself.
    """

    edge: tuple[Key, ...]
    nodes: tuple[Key, ...]


def region(
    step: ValuedStep, target: Key, stops: Callable[[Key], bool], most: int = _MOST
) -> Region:
    """Return the region of a value.

    Args:
        step: the step that it is of.
        target: the value.
        stops: tells a value at which to stop.
        most: the most nodes.

    Raises:
        TooLargeError: if it has more.
    """
    edge: list[Key] = []
    nodes, seen, todo = [target], {target}, step.operands(target)
    while todo:
        key = todo.pop()
        if key in seen:
            continue
        seen.add(key)
        if stops(key) or step.is_input(key) or step.is_drawn(key):
            edge.append(key)
            continue
        nodes.append(key)
        if len(nodes) > most:
            raise TooLargeError
        if step.node(key).kind != "get_attr":
            todo += step.operands(key)
    nodes.sort(key=lambda key: step.place.get(key, -1))
    return Region(tuple(edge), tuple(nodes))
