"""Constants among the arguments of ops, and the sizes of tensors that they follow from.

A group norm takes the number of pixels as a constant, and a `view` takes the whole shape. Both
constants follow if an earlier op changes the shape. A stride or an epsilon does not follow.
"""

from __future__ import annotations

import math
import re
from collections.abc import Container, Iterable, Iterator, Mapping, Sequence
from typing import Any

from ...ops.views import is_view
from ..equality import NumberedGraph
from ..model import Arg, Node, Ref, Symbol, TensorMeta
from ..text import format_arg

SCALE_POWERS = (0.5, -0.5, -1)
"""Powers of a size that models multiply or divide by, as in attention and in means."""
SizePair = tuple[int | Symbol, int | Symbol]
"""A size in the old graph and the size of the same dimension in the new graph."""
_QUANTIZES = re.compile(r"(?:^|[._])(?:quantize(?!d)|dequantize)")  # not `quantized.linear`


def constants_follow(
    a: NumberedGraph, i: int, b: NumberedGraph, j: int, more_sizes: Iterable[SizePair] = ()
) -> bool:
    """Return True if the constants of two nodes of one op differ only in sizes of tensors.

    Args:
        a, i, b, j: the graphs and the nodes.
        more_sizes: further pairs of an old and a new size that the constants may follow from.
    """
    node, other = a.nodes[i], b.nodes[j]
    # All constants of a view are sizes: it takes the whole shape.
    if a.shapeless[i] == b.shapeless[j] or is_view(node.op):
        return True
    old, new = (list(iter_constants((call.args, call.kwargs))) for call in (node, other))
    if len(old) != len(new):
        return False
    # One of the two can have an operand more, such as a bias.
    slots = zip(a.operands[i], b.operands[j], strict=False)
    pairs = [(node, other), *((a.nodes[p], b.nodes[q]) for p, q in slots)]
    sizes = {size for pair in pairs for size in _iter_size_pairs(*pair)} | {*more_sizes}
    return all(
        x == y or (x, y) in sizes or any(_are_powers(x, y, *pair) for pair in sizes)
        for x, y in zip(old, new, strict=True)
    )


def _are_powers(old: Arg, new: Arg, old_size: int | Symbol, new_size: int | Symbol) -> bool:
    """Return True if two constants are the same root or reciprocal of two sizes."""
    if not (isinstance(old, float) and isinstance(new, float)):
        return False
    if not (isinstance(old_size, int) and isinstance(new_size, int)):
        return False
    if min(old_size, new_size) < 1:
        return False
    return any(
        math.isclose(old, old_size**power) and math.isclose(new, new_size**power)
        for power in SCALE_POWERS
    )


def fixed_constants(flat: NumberedGraph, i: int) -> tuple[str, ...]:
    """Return the constants of a node that are not sizes of its operands, as text.

    All modules of a class run the same line of code, but with different sizes. The constants of a
    view, and of an op without operands, are sizes.
    """
    node = flat.nodes[i]
    results = [flat.nodes[p].result for p in flat.operands[i][: flat.arity[i]]]
    shapes = [result.shape for result in results if isinstance(result, TensorMeta)]
    if not shapes or is_view(node.op):
        return ()
    # A list, not a set: the values that are compared with it may be unhashable.
    suffixes = [shape[start:] for shape in shapes for start in range(len(shape))]
    sizes = {size for shape in shapes for size in _iter_products(shape)}
    return tuple(
        format_arg(constant)
        for argument in (*node.args, *node.kwargs.items())
        if not _is_size(argument, sizes, suffixes)
        for constant in iter_constants(argument)
    )


def _is_size(value: Arg, sizes: Container[Any], suffixes: Container[Any]) -> bool:
    """Return True if an argument is a size, or a shape of several sizes.

    Args:
        value: the argument.
        sizes: the sizes of the operands, and the products of adjacent sizes.
        suffixes: the shapes of the operands, and the ends of these shapes.
    """
    # A normalized shape is the end of the operand's shape. Without any real size in it, such as in
    # `(1, 1)`, a tuple is more likely a stride or padding.
    if isinstance(value, tuple):
        return value in suffixes and any(_is_size(item, sizes, suffixes) for item in value)
    # 0, 1 and booleans are seldom sizes. They are often the number of a dimension, or a flag.
    return isinstance(value, int) and value > 1 and value in sizes


def quantizes(node: Node) -> bool:
    """Return True for quantize, dequantize and fake-quantize ops."""
    return node.is_call and _QUANTIZES.search(node.op) is not None


def iter_constants(value: Arg) -> Iterator[Arg]:
    """Yield the constants among arguments, in order."""
    if isinstance(value, tuple | Mapping):
        for item in value.values() if isinstance(value, Mapping) else value:
            yield from iter_constants(item)
    elif not isinstance(value, Ref):
        yield value


def _iter_products(shape: Sequence[Any]) -> Iterator[int]:
    """Yield the sizes of a shape, and the products of adjacent sizes."""
    for start in range(len(shape)):
        product = 1
        for size in shape[start:]:
            if not isinstance(size, int):
                break
            product *= size
            yield product


def iter_changed_sizes(node: Node, other: Node) -> Iterator[SizePair]:
    """Yield the pairs of differing sizes of two tensors of one rank."""
    return ((old, new) for old, new in _zip_sizes(node, other) if old != new)


def _iter_size_pairs(node: Node, other: Node) -> Iterator[tuple[int, int]]:
    """Yield pairs of sizes of two tensors of one rank, and of products of adjacent sizes."""
    pairs = _zip_sizes(node, other)
    for start in range(len(pairs)):
        old_product, new_product = 1, 1
        for old, new in pairs[start:]:
            if not (isinstance(old, int) and isinstance(new, int)):
                break
            old_product, new_product = old_product * old, new_product * new
            yield old_product, new_product


def _zip_sizes(node: Node, other: Node) -> list[SizePair]:
    """Return the pairs of sizes of two tensors of one rank; [] for any other results."""
    before, after = node.result, other.result
    if not isinstance(before, TensorMeta) or not isinstance(after, TensorMeta):
        return []
    if len(before.shape) != len(after.shape):
        return []
    return list(zip(before.shape, after.shape, strict=True))
