"""Constants that follow from the sizes of tensors.

A group norm is given the number of pixels, and a `view` the whole shape: both follow where an op
in front of them changes it. A stride or an epsilon does not.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from ...ops.views import is_view
from ..equality.numbered_graph import NumberedGraph
from ..model import Arg, Node, Ref, TensorMeta


def constants_follow(a: NumberedGraph, i: int, b: NumberedGraph, j: int) -> bool:
    """Return True if the constants of two nodes of one op differ in sizes of their tensors only."""
    node, other = a.nodes[i], b.nodes[j]
    if a.shapeless[i] == b.shapeless[j] or is_view(node.op):
        return True
    old, new = (list(constants((each.args, each.kwargs))) for each in (node, other))
    if len(old) != len(new):
        return False
    slots = zip(a.operands[i], b.operands[j], strict=False)
    pairs = [(node, other), *((a.nodes[p], b.nodes[q]) for p, q in slots)]
    sizes = {size for pair in pairs for size in _sizes(*pair)}
    return all(x == y or (x, y) in sizes for x, y in zip(old, new, strict=True))


def constants(value: Arg) -> Iterator[Arg]:
    """Yield the constants among arguments, in order."""
    if isinstance(value, tuple | Mapping):
        for item in value.values() if isinstance(value, Mapping) else value:
            yield from constants(item)
    elif not isinstance(value, Ref):
        yield value


def _sizes(node: Node, other: Node) -> Iterator[tuple[int, int]]:
    """Yield the sizes of two tensors of one rank, and the products of adjacent ones."""
    before, after = node.result, other.result
    if not isinstance(before, TensorMeta) or not isinstance(after, TensorMeta):
        return
    if len(before.shape) != len(after.shape):
        return
    for start in range(len(before.shape)):
        was, now = 1, 1
        for old, new in zip(before.shape[start:], after.shape[start:], strict=True):
            if not (isinstance(old, int) and isinstance(new, int)):
                break
            was, now = was * old, now * new
            yield was, now
