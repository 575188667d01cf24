"""Invisible links that keep clusters which follow each other from overlapping.

`dot` puts two clusters side by side as soon as they share a rank. In a backward graph the
gradients of a layer's weights hang a few ranks into the next layer, so the layers of a deep model
would form a staircase, many screens wide. Where neighbours overlap only a little, the later one is
pushed down.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple

from .ranks import Link, Ranks

NEIGHBOURS = 4
"""How many of the clusters before it one is compared with."""
OVERLAP = 0.5
"""How much of the shorter cluster may overlap for the two still to be a sequence."""
MOST = 6
"""How many boxes of each of the two are linked at most."""
GAP = 2
"""Ranks from the last box of one cluster to the first of the next: one is free for its inputs."""


class _Span(NamedTuple):
    low: int
    high: int
    boxes: list[str]


def separators(
    links: Iterable[Link], levels: Iterable[Sequence[Sequence[Sequence[str]]]]
) -> list[Link]:
    """The links to add, each over `GAP` ranks.

    Args:
        links: the drawn links between boxes.
        levels: for each depth of nesting, the innermost first, the groups of sibling clusters; each
            cluster is given as its boxes.
    """
    ranks = Ranks(links)
    found: list[Link] = []
    for families in levels:
        added = [
            link
            for siblings in families
            for before, behind in _sequences(siblings, ranks.of)
            for link in _separate(before, behind, ranks)
        ]
        for tail, head in added:
            ranks.add(tail, head, GAP)
        if added:
            ranks.update()
        found += added
    return found


def _separate(before: _Span, behind: _Span, ranks: Ranks) -> Iterator[Link]:
    """Links from the last boxes of one cluster to the first of the next."""
    fed = [box for box in behind.boxes if box in ranks.before]
    inner = {head for box in fed for head, _ in ranks.after.get(box, ())}
    entries = [
        box for box in fed if box not in inner and ranks.of[box] < before.high + GAP
    ] or behind.boxes
    inside = set(before.boxes)
    ends = [
        box
        for box in before.boxes
        if ranks.of[box] > behind.low - GAP
        and inside.isdisjoint(head for head, _ in ranks.after.get(box, ()))
    ]
    ends.sort(key=ranks.of.__getitem__, reverse=True)
    for entry in sorted(entries, key=ranks.of.__getitem__)[:MOST]:
        below = ranks.reachable(entry, before.high)
        for end in ends[:MOST]:
            if end not in below:
                yield end, entry


def _sequences(
    siblings: Sequence[Sequence[str]], ranks: Mapping[str, int]
) -> Iterator[tuple[_Span, _Span]]:
    spans = []
    for cluster in siblings:
        boxes = [box for box in cluster if box in ranks]
        if boxes:
            levels = [ranks[box] for box in boxes]
            spans.append(_Span(min(levels), max(levels), boxes))
    spans.sort(key=lambda span: span[:2])
    for i, behind in enumerate(spans):
        for before in spans[max(0, i - NEIGHBOURS) : i]:
            overlap = before.high - behind.low + 1
            shorter = min(before.high - before.low, behind.high - behind.low) + 1
            if -GAP < overlap <= OVERLAP * shorter and before.low < behind.low:
                yield before, behind
