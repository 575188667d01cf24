"""What both of two graphs know: the rest is not compared.

A stored file of an older version, a printed graph and fake tensors lack facts that a capture has.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from ..digits import in_same_digits
from ..model import Graph, Node
from .canonical import canonical
from .numbered_graph import is_constant

WITH_SUMS = ("backward", "joint")
"""The kinds of graphs in which the operands of a sum have no order."""
MATCHED_BY_NAME = ("parameter", "buffer")
"""The roles of inputs that are the same input if both graphs have one of that name."""


def common(a: Graph, b: Graph) -> tuple[Graph, Graph]:
    """Two graphs without the facts that one of them lacks, and with their parameters in one order.

    The same objects if there is nothing to do.
    """
    if a.given != b.given:
        a, b = as_captured(a), as_captured(b)
    a, b = in_same_digits(a, b)
    if (a.kind in WITH_SUMS) != (b.kind in WITH_SUMS):  # a module of a backward is a forward
        a, b = (replace(g, kind="forward") if g.kind in WITH_SUMS else g for g in (a, b))
    if (a.output is None) != (b.output is None):
        a, b = replace(a, output=None), replace(b, output=None)
    if _has_values(a) != _has_values(b):
        a, b = _without_values(a), _without_values(b)
    if _has_options(a) != _has_options(b):
        a, b = _without_options(a), _without_options(b)
    if (a.saver is None) != (b.saver is None):
        a, b = replace(a, saver=None), replace(b, saver=None)
    elif a.saver is not None and b.saver is not None:
        saver = in_order_of(a.saver, b.saver)
        b = b if saver is b.saver else replace(b, saver=saver)
    return a, in_order_of(a, b)


def equal_programs(a: Sequence[Graph], b: Sequence[Graph]) -> bool:
    """Return True if two captures have equal graphs, which ran as often."""
    return len(a) == len(b) and all(
        (old.kind, old.eager) == (new.kind, new.eager) and not runs_differ(old, new) and old == new
        for old, new in zip(canonical(a), canonical(b), strict=True)
    )


def runs_differ(old: Graph, new: Graph) -> bool:
    """Return True if two graphs are known to have run another number of times."""
    known = (old.eager or old.counted) and (new.eager or new.counted)
    return known and old.runs != new.runs


def in_order_of(a: Graph, b: Graph) -> Graph:
    """Graph `b` with its parameters and buffers in the order of `a`, as far as names say it.

    An input whose name both graphs have stands where `a` has it; the others fill the places that
    are left, in their order.
    """
    first = [node for node in a.inputs if node.op in MATCHED_BY_NAME]
    second = [node for node in b.inputs if node.op in MATCHED_BY_NAME]
    names = [node.name for node in first]
    if names == [node.name for node in second]:
        return b
    by_name = {node.name: node for node in second}
    shared = [name for name in names if name in by_name]
    known = set(shared)
    if shared == [node.name for node in second if node.name in known]:
        return b
    others = iter([node for node in second if node.name not in known])
    ordered: list[Node] = []
    if len(first) == len(second):
        ordered = [by_name[name] if name in known else next(others) for name in names]
    else:  # those that came or went stay where they are among the others
        in_turn = iter(shared)
        ordered = [by_name[next(in_turn)] if n.name in known else n for n in second]
    left = iter(ordered)
    nodes = [
        next(left) if node.kind == "placeholder" and node.op in MATCHED_BY_NAME else node
        for node in b.nodes
    ]
    return replace(b, nodes=tuple(nodes))


def _has_values(graph: Graph) -> bool:
    return any(is_constant(node) and node.args for each in graph.walk() for node in each.nodes)


def _without_values(graph: Graph) -> Graph:
    nodes = tuple(
        replace(node, args=()) if is_constant(node) and node.args else node for node in graph.nodes
    )
    return replace(graph, nodes=nodes, subgraphs=tuple(map(_without_values, graph.subgraphs)))


def _has_options(graph: Graph) -> bool:
    return any(node.options is not None for each in graph.walk() for node in each.nodes)


def _without_options(graph: Graph) -> Graph:
    nodes = tuple(
        replace(node, options=None) if node.options is not None else node for node in graph.nodes
    )
    return replace(graph, nodes=nodes, subgraphs=tuple(map(_without_options, graph.subgraphs)))


def as_captured(graph: Graph) -> Graph:
    """A graph that the user handed over, as if it were captured: its aliases are nothing."""
    if not graph.given:
        return graph
    return replace(graph, given=False, subgraphs=tuple(map(as_captured, graph.subgraphs)))
