"""Invisible links that keep clusters which follow each other from overlapping.

`dot` puts two clusters side by side as soon as they share a rank. In a backward graph the
gradients of a layer's weights hang a few ranks into the next layer, so the layers of a deep model
would form a staircase, many screens wide. Where neighbours overlap only a little, the later one is
pushed down.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable, Iterable, Iterator, Mapping, Sequence
from itertools import pairwise
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


def anchors(boxes: Sequence[tuple[str, Sequence[Hashable]]], links: Iterable[Link]) -> list[Link]:
    """Links that tie what nothing connects with the rest to its neighbours in the graph.

    A chain whose operands are all ports or parameters would float to the top, and stretch the
    cluster that it is in to the height of the drawing.

    Args:
        boxes: the boxes in the order of the graph, each with its place, from the outside in; what
            has no outermost place in common is left apart.
        links: the drawn links between them.
    """
    joined: dict[str, str] = {}

    def root(box: str) -> str:
        while (above := joined.setdefault(box, box)) != box:
            joined[box] = joined[above]
            box = above
        return box

    for tail, head in links:
        joined[root(tail)] = root(head)
    sizes = Counter(root(box) for box, _ in boxes)
    found: list[Link] = []
    for order, forward in ((boxes, True), (boxes[::-1], False)):
        latest: dict[Hashable, list[str]] = {}
        for box, place in order:
            own = root(box)
            around = [tuple(place[:end]) for end in range(len(place), 0, -1)]
            other = next(
                (each for at in around for each in latest.get(at, ()) if root(each) != own), None
            )
            if other is not None and sizes[root(other)] >= sizes[own]:
                found.append((other, box) if forward else (box, other))
                sizes[root(other)] += sizes[own]
                joined[own] = root(other)
            for at in around:
                latest[at] = [box, *latest.get(at, ())[:1]]
    return found


def stacked(groups: Sequence[Sequence[str]], links: Iterable[Link]) -> Iterator[Link]:
    """Links that put groups of boxes which nothing connects below each other.

    Args:
        groups: the boxes of each, from the first to the last.
        links: the drawn links.
    """
    links = list(links)
    group_of = {box: number for number, boxes in enumerate(groups) for box in boxes}
    joined = {
        frozenset((group_of[tail], group_of[head]))
        for tail, head in links
        if tail in group_of and head in group_of
    }
    known = group_of.keys()
    busy = {tail for tail, head in links if head in known}
    fed = {head for tail, head in links if tail in known}
    for number, (before, behind) in enumerate(pairwise(groups)):
        if frozenset((number, number + 1)) in joined:
            continue
        ends = [box for box in before if box not in busy] or [*before[-1:]]
        starts = [box for box in behind if box not in fed] or [*behind[:1]]
        for end in ends[-MOST:]:
            for start in starts[:MOST]:
                yield end, start


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
