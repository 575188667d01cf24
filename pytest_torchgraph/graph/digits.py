"""Rounding of float constants to a number of significant digits.

The last digits of a calibrated scale, for example, differ from run to run. Two graphs are compared
with the smaller number of digits of the two. With 0 digits, `ANY_FLOAT` replaces every float.
"""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Iterable
from dataclasses import replace

from .model import ANY_FLOAT, Arg, Graph, Node, map_arg


def fewest(digits: Iterable[int | None]) -> int | None:
    """Return the smallest number of digits; `None` if all floats are exact."""
    return min((number for number in digits if number is not None), default=None)


def with_digits(graph: Graph, digits: int | None) -> Graph:
    """Return the graph with its float constants rounded.

    A graph that already has as few digits is returned unchanged.
    """
    if digits is None or (graph.digits is not None and graph.digits <= digits):
        return graph
    return replace(_round_graph(graph, digits), digits=digits)


def in_same_digits(a: Graph, b: Graph) -> tuple[Graph, Graph]:
    """Return two graphs with the same number of digits.

    The graph with more digits is rounded to the digits of the other graph.
    """
    digits = fewest((a.digits, b.digits))
    return with_digits(a, digits), with_digits(b, digits)


def _round_graph(graph: Graph, digits: int) -> Graph:
    """Return the graph with rounded constants, including its bodies and its saver."""
    return replace(
        graph,
        nodes=tuple([_round_node(node, digits) for node in graph.nodes]),
        subgraphs=tuple([_round_graph(sub, digits) for sub in graph.subgraphs]),
        output=None if graph.output is None else _round_arg(graph.output, digits),
        saver=None if graph.saver is None else _round_graph(graph.saver, digits),
    )


_FLOAT = re.compile(r"(?<=[=( ])-?\d+(\.\d+(e[+-]?\d+)?|e[+-]?\d+)(?=[,)]|\Z)")
"""A float in `Node.options`."""


def _round_node(node: Node, digits: int) -> Node:
    args, kwargs = _round_arg(node.args, digits), _round_arg(node.kwargs, digits)
    options = node.options
    if options:
        options = _FLOAT.sub(
            lambda match: "~" if digits == 0 else repr(rounded(float(match[0]), digits)), options
        )
    if args is node.args and kwargs is node.kwargs and options == node.options:
        return node
    return replace(node, args=args, kwargs=kwargs, options=options)


def _round_arg(value: Arg, digits: int) -> Arg:
    def round_float(value: Arg) -> Arg:
        if not isinstance(value, float):
            return value
        return ANY_FLOAT if digits == 0 else rounded(value, digits)

    return map_arg(value, round_float)


def rounded(value: float, digits: int) -> float:
    """Round a float to a number of significant digits, at least one."""
    if value == 0 or not math.isfinite(value):
        return value
    short = float(f"{value:.{digits - 1}e}")
    return short if math.isfinite(short) else value  # the largest floats round up to infinity


def only_floats_differ(a: Iterable[Graph], b: Iterable[Graph], is_rounded: bool) -> bool:
    """Return True if pairs of graphs are equal apart from float constants of many digits.

    A person writes few digits, such as those of an `eps`. Random and calibrated numbers have many,
    unless they are stored with few (`is_rounded`).
    """
    pairs = [*zip(a, b, strict=True)]
    if not all(with_digits(old, 0) == with_digits(new, 0) for old, new in pairs):
        return False
    old_floats, new_floats = (_floats(graphs) for graphs in zip(*pairs, strict=True))
    differing = (old_floats - new_floats) + (new_floats - old_floats)
    is_written = all(rounded(value, WRITTEN_DIGITS) == value for value in differing)
    return is_rounded or not differing or not is_written


WRITTEN_DIGITS = 3
"""Maximum number of significant digits of a number that counts as written by a person."""


def _floats(graphs: Iterable[Graph]) -> Counter[float]:
    """Count the float constants of graphs and their bodies; not those of module options."""
    found: list[float] = []

    def note(value: Arg) -> Arg:
        if isinstance(value, float):
            found.append(value)
        return value

    for graph in graphs:
        for part in graph.walk():
            for node in part.nodes:
                map_arg((node.args, node.kwargs), note)
    return Counter(found)
