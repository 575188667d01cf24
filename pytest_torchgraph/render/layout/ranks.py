"""Where each box will roughly be from top to bottom, known before `dot` is asked."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable

Link = tuple[str, str]


class Ranks:
    """The rank of each linked box, 0 at the top.

    A box that others need is as low as they allow, next to its first user; one that nobody needs is
    as high as its operands allow.

    Attributes:
        of: the ranks. A box on a cycle, or below one, has none.
        after: for each box the boxes that links lead to, and over how many ranks.
        before: how many links lead to each box; 0 or absent for a source.
    """

    def __init__(self, links: Iterable[Link]):
        self.after: defaultdict[str, list[tuple[str, int]]] = defaultdict(list)
        self.before: Counter[str] = Counter()
        self.of: dict[str, int] = {}
        for tail, head in links:
            self.add(tail, head)
        self.update()

    def add(self, tail: str, head: str, length: int = 1) -> None:
        """Add a link. `update` makes it count."""
        self.after[tail].append((head, length))
        self.before[head] += 1

    def update(self) -> None:
        """Compute the ranks anew."""
        waiting = Counter(self.before)
        order = [box for box in self.after if not waiting[box]]
        highest = dict.fromkeys(order, 0)
        for box in order:
            for head, length in self.after.get(box, ()):
                highest[head] = max(highest.get(head, 0), highest[box] + length)
                waiting[head] -= 1
                if not waiting[head]:
                    order.append(head)
        self.of = {box: highest[box] for box in order}
        for box in reversed(order):
            below = [
                self.of[head] - length
                for head, length in self.after.get(box, ())
                if head in self.of
            ]
            if below:
                self.of[box] = min(below)

    def reachable(self, start: str, deepest: int) -> set[str]:
        """The boxes below `start`, no deeper than rank `deepest`."""
        seen = {start}
        todo = [start]
        while todo:
            for head, _ in self.after.get(todo.pop(), ()):
                if head not in seen and self.of.get(head, deepest + 1) <= deepest:
                    seen.add(head)
                    todo.append(head)
        return seen
