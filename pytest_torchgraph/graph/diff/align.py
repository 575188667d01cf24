"""Alignment of two sequences: patience anchors, then Myers' O(ND) algorithm in the gaps.

Sources: E. W. Myers, "An O(ND) difference algorithm and its variations" (1986); B. Cohen's patience
diff (unique lines, longest increasing subsequence).
"""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter
from collections.abc import Callable, Hashable, Iterable, Iterator, Sequence
from itertools import pairwise
from typing import TypeVar

from ...words import grouped

_T = TypeVar("_T")
MAX_EDITS = 1000
"""Maximum number of edits in one gap. With more edits, its items are paired by token, in order."""


def align_items(a: Sequence[Hashable], b: Sequence[Hashable]) -> Iterator[tuple[int, int]]:
    """Yield pairs of positions with equal tokens, increasing in both sequences.

    The pairs are yielded in no particular order.
    """
    todo = [(0, len(a), 0, len(b))]
    while todo:
        a0, a1, b0, b1 = todo.pop()
        # Equal items at the start and at the end of a gap are paired first.
        while a0 < a1 and b0 < b1 and a[a0] == b[b0]:
            yield a0, b0
            a0 += 1
            b0 += 1
        while a0 < a1 and b0 < b1 and a[a1 - 1] == b[b1 - 1]:
            a1 -= 1
            b1 -= 1
            yield a1, b1
        if a0 == a1 or b0 == b1:
            continue
        anchors = _find_anchors(a, b, a0, a1, b0, b1)
        if not anchors:
            # Items that only one side has cannot pair, and each would cost an edit.
            common = set(a[a0:a1]).intersection(b[b0:b1])
            rest_a = [x for x in range(a0, a1) if a[x] in common]
            rest_b = [y for y in range(b0, b1) if b[y] in common]
            for x, y in _align_myers([a[x] for x in rest_a], [b[y] for y in rest_b]):
                yield rest_a[x], rest_b[y]
            continue
        yield from anchors
        for (x, y), (x2, y2) in pairwise([(a0 - 1, b0 - 1), *anchors, (a1, b1)]):
            todo.append((x + 1, x2, y + 1, y2))


def _find_anchors(
    a: Sequence[Hashable], b: Sequence[Hashable], a0: int, a1: int, b0: int, b1: int
) -> list[tuple[int, int]]:
    """Return the pairs of tokens that occur once in both ranges, as far as they are in order."""
    once_a = _find_unique(a, a0, a1)
    once_b = _find_unique(b, b0, b1)
    return longest_increasing(
        [(i, once_b[token]) for token, i in once_a.items() if token in once_b]
    )


def _find_unique(tokens: Sequence[Hashable], start: int, stop: int) -> dict[Hashable, int]:
    """Return the position of each token that occurs once in a range."""
    position_of: dict[Hashable, int] = {}  # -1 for a token that occurs again
    for i in range(start, stop):
        position_of[tokens[i]] = -1 if tokens[i] in position_of else i
    return {token: i for token, i in position_of.items() if i >= 0}


def longest_increasing(pairs: list[tuple[int, int]]) -> list[tuple[int, int]]:
    """Return the longest subsequence of `pairs` (sorted by first item) with increasing second."""
    # For each length: the smallest last item of a subsequence of this length, and its index. For
    # each pair: the index of the pair before it in the longest subsequence that ends with it.
    tails: list[int] = []
    indices: list[int] = []
    before: list[int] = []
    for k, (_, y) in enumerate(pairs):
        length = bisect_left(tails, y)
        before.append(indices[length - 1] if length else -1)
        tails[length : length + 1] = [y]
        indices[length : length + 1] = [k]
    chain: list[tuple[int, int]] = []
    k = indices[-1] if indices else -1
    while k >= 0:
        chain.append(pairs[k])
        k = before[k]
    return chain[::-1]


def _align_myers(a: Sequence[Hashable], b: Sequence[Hashable]) -> Iterator[tuple[int, int]]:
    """Yield the pairs of an alignment with the fewest edits, by Myers' algorithm.

    A diagonal `k` has the positions with `x - y == k`. `furthest` has the greatest `x` that each
    diagonal reaches with the edits so far, and `trace` has one such row for each number of edits.
    """
    n, m = len(a), len(b)
    furthest = {1: 0}
    trace: list[dict[int, int]] = []
    for edits in range(min(n + m, MAX_EDITS) + 1):
        row: dict[int, int] = {}
        for k in range(-edits, edits + 1, 2):
            if k < -m or k > n:
                continue
            x_left = furthest.get(k - 1, -1)
            x_down = furthest.get(k + 1, -1)
            x = x_down if k == -edits or (k != edits and x_left < x_down) else x_left + 1
            y = x - k
            if x < 0 or y < 0 or x > n or y > m:
                continue
            while x < n and y < m and a[x] == b[y]:
                x += 1
                y += 1
            row[k] = x
            if x >= n and y >= m:
                trace.append(row)
                yield from _backtrack(trace, n, m)
                return
        trace.append(row)
        furthest = row
    # With more than `MAX_EDITS` edits any pairing is arbitrary, and this one takes a single pass.
    yield from _pair_by_token(a, b)


def _backtrack(trace: list[dict[int, int]], n: int, m: int) -> Iterator[tuple[int, int]]:
    """Yield the pairs of the path that reached `(n, m)`, last pair first; see `_align_myers`."""
    x, y = n, m
    for edits in range(len(trace) - 1, -1, -1):
        k = x - y
        if edits:
            row = trace[edits - 1]
            x_left = row.get(k - 1, -1)
            x_down = row.get(k + 1, -1)
            insert = k == -edits or (k != edits and x_left < x_down)
            x0 = x_down if insert else x_left
            y0 = x0 - (k + 1 if insert else k - 1)
            start_x = x0 if insert else x0 + 1
        else:
            x0 = y0 = start_x = 0
        while x > start_x:
            x -= 1
            y -= 1
            yield x, y
        x, y = x0, y0


def _pair_by_token(a: Sequence[Hashable], b: Sequence[Hashable]) -> Iterator[tuple[int, int]]:
    """Yield pairs of equal items, first with first, as far as they are in order."""
    waiting = grouped((b[j], j) for j in range(len(b) - 1, -1, -1))
    pairs = [(i, waiting[token].pop()) for i, token in enumerate(a) if waiting.get(token)]
    yield from longest_increasing(pairs)


def unmatched(
    sides: Sequence[Sequence[_T]], keys: Callable[[_T], Iterable[Hashable]]
) -> list[list[_T]]:
    """Return what only one of two sides has. The first keys decide before the later ones.

    Items of the two sides with an equal key cancel each other out, each at most once.

    Args:
        sides: the items of the two sides.
        keys: returns equally many keys for each item, the surest first.
    """
    rest = [[*side] for side in sides]
    for number in range(len([*keys(rest[0][0])]) if all(rest) else 0):
        by_key = [[[*keys(item)][number] for item in side] for side in rest]
        common = Counter(by_key[0]) & Counter(by_key[1])
        for side, of_side in zip(rest, by_key, strict=True):
            found = Counter(common)  # how many items of this side still have a counterpart
            kept = []
            for item, key in zip(side, of_side, strict=True):
                if not found[key]:
                    kept.append(item)
                found[key] -= found[key] > 0
            side[:] = kept
    return rest
