"""Which boxes are drawn alone, and where: folding of boxes, and invisible edges."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import cache
from itertools import groupby, pairwise, product
from typing import NamedTuple

from ..graph.diff import UnionFind
from ..graph.equality import reachable
from ..graph.module_paths import common_prefix
from ..words import grouped
from .scene import ClusterPath

FANOUT = 32
"""Maximum parts of a cluster before they are folded into runs of several."""


class Part(NamedTuple):
    """A run of boxes in graph order that is drawn as one: a single box, or a group.

    Runs that do not overlap cannot form a cycle, because a value precedes its users.

    Attributes:
        start, stop: the numbers of the boxes, as in `range`.
        depth: length of the path of the cluster that contains a group.
    """

    start: int
    stop: int
    depth: int

    @property
    def is_group(self) -> bool:
        """True if several boxes are folded into it."""
        return self.stop - self.start > 1


def fold(
    paths: Sequence[ClusterPath],
    limit: int | None,
    focus: Sequence[int] = (),
    *,
    compact: bool = False,
) -> list[Part]:
    """Return the parts to draw, in graph order, few enough to read.

    Args:
        paths: cluster of each box, in graph order.
        limit: maximum number of parts; `None` for one part per box. The first box in `focus` is
            always drawn alone, even if that exceeds the limit.
        focus: boxes to draw alone, the most important first. Boxes that do not fit stay folded.
        compact: True to open only clusters that contain `focus`, and to fold consecutive other
            parts into one. By default, clusters are opened from the outside in while they fit.
    """
    if limit is None or not paths:
        return [Part(number, number + 1, 0) for number in range(len(paths))]

    @cache
    def opened(part: Part) -> list[Part]:
        """Return what is directly in the innermost cluster that contains a part."""
        if not part.is_group:
            return [part]
        inside = paths[part.start : part.stop]
        depth = len(common_prefix((min(inside), max(inside))))  # of all, as the order is by item
        numbers = range(part.start, part.stop)
        runs = [[*run] for _, run in groupby(numbers, lambda n: paths[n][depth : depth + 1] or n)]
        size = -(-len(runs) // FANOUT)
        return [
            Part(runs[i][0], runs[min(i + size, len(runs)) - 1][-1] + 1, depth)
            for i in range(0, len(runs), size)
        ]

    def around(shown: Sequence[int]) -> list[Part]:
        """Return the parts if these boxes are drawn alone, and all else is folded."""
        parts: list[Part] = []
        ordered = sorted(shown)
        pending = [Part(0, len(paths), 0)]
        run: tuple[int, ClusterPath] | None = None
        while pending:
            part = pending.pop()
            place = bisect_left(ordered, part.start)
            has_focus = place < len(ordered) and ordered[place] < part.stop
            if has_focus and part.is_group:
                pending += reversed(opened(part))
                continue
            cluster = (part.depth, paths[part.start][: part.depth])
            if compact and not has_focus and cluster == run:
                parts[-1] = parts[-1]._replace(stop=part.stop)
            else:
                parts.append(part)
            run = None if has_focus else cluster
        return parts

    # Every further box in focus opens clusters or divides runs, so the number of parts only grows.
    lengths = range(1, len(focus) + 1)
    fitting = bisect_right(lengths, limit, key=lambda length: len(around(focus[:length])))
    parts = around(focus[: max(fitting, 1)])
    while not compact:
        further = [child for part in parts for child in opened(part)]
        if len(further) > limit or further == parts:
            break
        parts = further
    return parts


MAX_ENDS = 6
"""Maximum number of boxes of a cluster that get invisible edges to another cluster."""


def invisible_edges(
    members: Mapping[ClusterPath, Sequence[int]], edges: Iterable[tuple[int, int]]
) -> Iterator[tuple[int, int, str]]:
    """Yield invisible edges, each with its weight.

    - Without an edge to the rest of the graph, `dot` would put a box at the top, and stretch its
      cluster down to the other boxes of the cluster. It is tied to the previous box.
    - `dot` puts two clusters side by side if they share a rank. In a backward graph, the weight
      gradients of a layer extend a few ranks into the next layer, so the layers of a deep model
      would form a staircase, many screens wide. A cluster is therefore drawn below the previous one
      if it depends on it, and a graph always.

    Args:
        members: numbers of the boxes in each cluster, including nested ones, in graph order.
        edges: drawn edges.
    """
    heads: defaultdict[int, set[int]] = defaultdict(set)
    tails: defaultdict[int, set[int]] = defaultdict(set)
    components = UnionFind[int]()
    for tail, head in edges:
        heads[tail].add(head)
        tails[head].add(tail)
        components.join(tail, head)
    own = {number: path for path, numbers in members.items() for number in numbers}
    latest: dict[ClusterPath, int] = {}
    for number, path in sorted(own.items()):
        enclosing = [path[:end] for end in range(len(path), -1, -1)]
        previous = next((latest[outer] for outer in enclosing if outer in latest), number)
        if not tails[number] and components.find(previous) != components.find(number):
            components.join(previous, number)
            yield previous, number, "1"
        latest.update(dict.fromkeys(enclosing, number))
    siblings = grouped((path[:-1], path) for path in members if path)
    for upper, lower in (pair for paths in siblings.values() for pair in pairwise(paths)):
        above, below = members[upper], members[lower]
        if above[-1] < below[0] and (
            upper[-1].kind in ("graph", "eager")
            or not reachable(above, heads.__getitem__).isdisjoint(below)
        ):
            ends = [number for number in above if heads[number].isdisjoint(above)]
            starts = [number for number in below if tails[number].isdisjoint(below)]
            for end, start in product(ends[-MAX_ENDS:], starts[:MAX_ENDS]):
                yield end, start, "0"
