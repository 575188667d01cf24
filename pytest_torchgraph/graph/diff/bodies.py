"""Subgraphs that the nodes of a graph refer to, such as the branches of a `cond`."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from ..model import Arg, Graph, Node, SubgraphRef


def pair_bodies(a: Graph, b: Graph, partner: Sequence[int]) -> Iterable[tuple[Graph, Graph]]:
    """Yield the pairs of subgraphs that matched nodes refer to.

    Args:
        a, b: the graphs.
        partner: for each node of `a` the number of its partner in `b`, or -1.
    """
    if not a.subgraphs and not b.subgraphs:
        return
    bodies_a = {sub.name: sub for sub in a.subgraphs}
    bodies_b = {sub.name: sub for sub in b.subgraphs}
    yielded = set()
    for i, j in enumerate(partner):
        if j == -1:
            continue
        pairs = zip(_subgraphs_of(a.nodes[i]), _subgraphs_of(b.nodes[j]), strict=False)
        for pair in pairs:
            if pair not in yielded and pair[0] in bodies_a and pair[1] in bodies_b:
                yielded.add(pair)
                yield bodies_a[pair[0]], bodies_b[pair[1]]


def _subgraphs_of(node: Node) -> list[str]:
    return list(subgraph_names((node.args, tuple(node.kwargs.values()))))


def subgraph_names(value: Arg) -> Iterable[str]:
    """Yield the names of the subgraphs that an argument refers to, in order."""
    if isinstance(value, SubgraphRef):
        yield value.name
    elif isinstance(value, tuple | Mapping):
        for item in value.values() if isinstance(value, Mapping) else value:
            yield from subgraph_names(item)
