"""Which boxes are drawn alone: folding of boxes.

`fold` starts with one part for all boxes. Opening a part divides it along the clusters in which it
is. If a cluster has more than `FANOUT` parts, runs of them become parts first.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Sequence
from functools import cache
from itertools import groupby
from typing import NamedTuple

from ..graph.module_paths import common_prefix
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
        # Neighbours in the same child of the cluster are one run. A box directly in the cluster is
        # a run of its own, by its number.
        runs = [[*run] for _, run in groupby(numbers, lambda n: paths[n][depth : depth + 1] or n)]
        size = -(-len(runs) // FANOUT)  # rounded up, so that there are at most `FANOUT` parts
        return [
            Part(runs[i][0], runs[min(i + size, len(runs)) - 1][-1] + 1, depth)
            for i in range(0, len(runs), size)
        ]

    def around(shown: Sequence[int]) -> list[Part]:
        """Return the parts if these boxes are drawn alone, and all else is folded."""
        parts: list[Part] = []
        ordered = sorted(shown)
        pending = [Part(0, len(paths), 0)]  # a stack: the next part in graph order is last
        # Depth and cluster of the last part, if it can take further ones; `None` after a box in
        # focus.
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
    # Open all parts by one level, as long as the result fits.
    while not compact:
        further = [child for part in parts for child in opened(part)]
        if len(further) > limit or further == parts:
            break
        parts = further
    return parts
