"""A partial one-to-one relation between the nodes of two graphs, and what it explains."""

from __future__ import annotations

from collections.abc import Iterable

from ..equality.numbered_graph import NumberedGraph

REACH = 200
"""How many unmatched nodes are looked through to find what an edge comes down to."""

MANY_USERS = 64
"""How many users of one value are looked at as candidates: what hundreds use singles nobody out,
and would cost the square of their number. 32 and 128 give the same findings in the same time."""


class Correspondence:
    """A partial one-to-one relation between the nodes of `a` and of `b`.

    Attributes:
        forward: for each node of `a` the number of its partner in `b`, or -1.
        backward: the same from `b` to `a`.
        apart: the nodes of `a` and those of `b` that get no partner.
        exchanged: the nodes of `a` whose partner is another op, beside which a module came or went.
    """

    def __init__(self, a: NumberedGraph, b: NumberedGraph, apart: tuple[set[int], set[int]]):
        self.a = a
        self.b = b
        self.forward = [-1] * len(a.nodes)
        self.backward = [-1] * len(b.nodes)
        self.apart = apart
        self.exchanged: set[int] = set()

    def pair(self, i: int, j: int) -> None:
        """Make `i` and `j` partners; both must be free."""
        self.forward[i] = j
        self.backward[j] = i

    def free(self, i: int, j: int) -> bool:
        """Whether neither has a partner yet, and both may get one."""
        return self.is_open(0, i) and self.is_open(1, j)

    def is_open(self, side: int, i: int) -> bool:
        """Whether a node of `a` (side 0) or of `b` (side 1) has no partner yet and may get one."""
        partner = self.backward if side else self.forward
        return partner[i] == -1 and i not in self.apart[side]

    def agreement(self, i: int, j: int) -> int:
        """How many operand and user slots of `i` and `j` are partners of each other."""
        agree = sum(
            self.forward[p] == q
            for p, q in zip(self.a.operands[i], self.b.operands[j], strict=False)
        )
        users = {(self.forward[u], slot) for u, slot in self.a.users[i] if self.forward[u] != -1}
        return agree + sum(user in users for user in self.b.users[j])

    # -- edges, looking through nodes that came or went ------------------------------------------

    def edge_agrees(self, p: int, q: int) -> bool:
        """Whether operand `p` of a node of `a` is the same value as operand `q` of its partner.

        Looked through are inserted and removed nodes: behind an inserted `clone` is its operand.
        """
        if self.forward[p] == q:
            return True
        matched = (self.forward[p] != -1) + (self.backward[q] != -1)
        if matched == 2:
            return False
        return matched == 0 or not self.sources_a(p).isdisjoint(self.sources_b(q))

    def sources_a(self, i: int) -> set[int]:
        """The nodes of `b` that stand for a node of `a`, looking through those that are gone."""
        return {self.forward[p] for p in _through(i, self.forward, self.a.operands)}

    def sources_b(self, j: int) -> set[int]:
        """The matched nodes of `b` that a node of `b` comes down to."""
        return _through(j, self.backward, self.b.operands)

    def bad_edges(self, i: int) -> int:
        """How many operands of `i` are not those of its partner."""
        j = self.forward[i]
        if j == -1:
            return 0
        return sum(not self.edge_agrees(p, q) for p, q in self.edges(i, j))

    def edges(self, i: int, j: int) -> Iterable[tuple[int, int]]:
        """The operands that `i` and `j` have in the same slots.

        What a forward saves is a set: of the two outputs only what they return is compared.
        """
        a, b = self.a.operands[i], self.b.operands[j]
        if i == len(self.forward) - 1 and j == len(self.backward) - 1:
            a, b = self.a.returned, self.b.returned
        return zip(a, b, strict=False)


def _through(start: int, partner: list[int], operands: list[list[int]]) -> set[int]:
    if partner[start] != -1:
        return {start}
    found: set[int] = set()
    seen = {start}
    todo = [start]
    while todo and len(seen) <= REACH:
        i = todo.pop()
        if partner[i] != -1:
            found.add(i)
            continue
        for operand in operands[i]:
            if operand not in seen:
                seen.add(operand)
                todo.append(operand)
    return found
