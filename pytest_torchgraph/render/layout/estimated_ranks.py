"""An estimate of the rank that `dot` will give each box, made before `dot` runs."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable

BoxEdge = tuple[str, str]
"""An edge of the drawing: the keys of the boxes at its tail and at its head."""


class NodeRanks:
    """The rank of each box that has an edge, 0 at the top.

    A box with users is as low as they allow, next to the first of them; one without users is as
    high as its operands allow.

    Attributes:
        of: the ranks. A box on a cycle, or below one, has none.
        after: for each box the heads of its edges, and the ranks that each edge spans at least.
        before: the number of edges to each box; 0 or absent for a source.
    """

    def __init__(self, edges: Iterable[BoxEdge]):
        self.after: defaultdict[str, list[tuple[str, int]]] = defaultdict(list)
        self.before: Counter[str] = Counter()
        self.of: dict[str, int] = {}
        for tail, head in edges:
            self.add(tail, head)
        self.update()

    def add(self, tail: str, head: str, length: int = 1) -> None:
        """Add an edge, which counts from the next `update` on.

        Args:
            tail: the key of the upper box.
            head: the key of the lower box.
            length: how many ranks it spans at least, as Graphviz's `minlen`.
        """
        self.after[tail].append((head, length))
        self.before[head] += 1

    def update(self) -> None:
        """Compute the ranks from the edges that there are now."""
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
        """The boxes that edges lead to from `start`, itself included, down to rank `deepest`."""
        reached = {start}
        todo = [start]
        while todo:
            for head, _ in self.after.get(todo.pop(), ()):
                if head not in reached and self.of.get(head, deepest + 1) <= deepest:
                    reached.add(head)
                    todo.append(head)
        return reached
