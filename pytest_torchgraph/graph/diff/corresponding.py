"""Which graphs of two captures correspond.

Graphs are paired with those of the same kind, and what ran eagerly with what ran eagerly.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterator, Sequence

from ..equality.equal import EquivalenceClasses
from ..model import Graph
from .align import align

Pair = tuple[Graph | None, Graph | None]
"""A graph and the one that corresponds to it; None where there is none."""
KINDS = ("forward", "inference", "joint", "backward")
"""The kinds of graphs, in the order in which they are compared."""
MAX_PAIRS = 10_000
"""How many pairs of eager graphs are tried for which are most alike; with more than this in one
gap, about a hundred on either side, they are paired in their order."""
ANY = 0.01
"""How much two graphs without a common op count as alike, so that they are paired all the same."""


def corresponding(
    before: Sequence[Graph], after: Sequence[Graph], classes: EquivalenceClasses
) -> Iterator[Pair]:
    """Graphs that correspond, forward ones first, and of each kind the compiled ones.

    The only graph on either side is paired with the other one, whatever they are.

    Args:
        before, after: the graphs.
        classes: classes of graphs of equal dataflow.
    """
    if len(before) == len(after) == 1:
        yield before[0], after[0]
        return
    for kind in KINDS:
        for eager in (False, True):
            old = [graph for graph in before if (graph.kind, graph.eager) == (kind, eager)]
            new = [graph for graph in after if (graph.kind, graph.eager) == (kind, eager)]
            yield from _eager(old, new, classes) if eager else _compiled(old, new)


def _compiled(old: Sequence[Graph], new: Sequence[Graph]) -> Iterator[Pair]:
    """In their order; where their numbers differ, those with equal op counts first."""
    if len(old) == len(new):
        yield from zip(old, new, strict=True)
        return
    yield from _aligned(old, new, _op_counts, _in_order)


def _eager(
    old: Sequence[Graph], new: Sequence[Graph], classes: EquivalenceClasses
) -> Iterator[Pair]:
    """Those of equal dataflow, then those with equal op counts, then those that are most alike.

    There are many of them, small ones, and their names are numbers: one more or one less must not
    pair each that follows with another one.
    """

    def rest(old: Sequence[Graph], new: Sequence[Graph]) -> Iterator[Pair]:
        yield from _aligned(old, new, _op_counts, _most_alike)

    yield from _aligned(old, new, classes.number, rest)


def _aligned(
    old: Sequence[Graph],
    new: Sequence[Graph],
    token: Callable[[Graph], Hashable],
    rest: Callable[[Sequence[Graph], Sequence[Graph]], Iterator[Pair]],
) -> Iterator[Pair]:
    """Graphs with equal tokens, in order, and what `rest` makes of those between them."""
    anchors = sorted(align([token(graph) for graph in old], [token(graph) for graph in new]))
    ends = (len(old), len(new))
    for (x0, y0), (x1, y1) in zip([(-1, -1), *anchors], [*anchors, ends], strict=True):
        yield from rest(old[x0 + 1 : x1], new[y0 + 1 : y1])
        if x1 < len(old):
            yield old[x1], new[y1]


def _in_order(old: Sequence[Graph], new: Sequence[Graph]) -> Iterator[Pair]:
    for k in range(max(len(old), len(new))):
        yield (old[k] if k < len(old) else None, new[k] if k < len(new) else None)


def _most_alike(old: Sequence[Graph], new: Sequence[Graph]) -> Iterator[Pair]:
    """The pairs, in order on both sides, that have most ops in common."""
    if not old or not new or len(old) * len(new) > MAX_PAIRS:
        yield from _in_order(old, new)
        return
    best = [[0.0] * (len(new) + 1) for _ in range(len(old) + 1)]
    alike = [[_alike(a, b) for b in new] for a in old]
    for x in range(len(old) - 1, -1, -1):
        for y in range(len(new) - 1, -1, -1):
            both = best[x + 1][y + 1] + alike[x][y]
            best[x][y] = max(both, best[x + 1][y], best[x][y + 1])
    x = y = 0
    while x < len(old) and y < len(new):
        if best[x][y] == best[x + 1][y + 1] + alike[x][y]:
            yield old[x], new[y]
            x, y = x + 1, y + 1
        elif best[x][y] == best[x + 1][y]:
            yield old[x], None
            x += 1
        else:
            yield None, new[y]
            y += 1
    yield from _in_order(old[x:], new[y:])


def _alike(a: Graph, b: Graph) -> float:
    """The share of the ops of two graphs that both have."""
    total = max(a.op_counts.total(), b.op_counts.total())
    common = sum(min(count, b.op_counts.get(op, 0)) for op, count in a.op_counts.items())
    return ANY + (common / total if total else 1.0)


def _op_counts(graph: Graph) -> Hashable:
    return frozenset(graph.op_counts.items())
