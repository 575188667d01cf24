"""Equality of dataflow, decided exactly.

The operands of a node are ordered, so a node that the output or a side effect needs is identified
by any path that leads to it from there: walking both graphs from their outputs in lockstep pairs
every live node, without search. Hashes alone would not do: they confuse a node that is used twice
with two equal nodes. What is left is dead code, which is matched by refined colours.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping

from .flat import Flat
from .model import Graph


def isomorphic(a: Graph, b: Graph) -> bool:
    """Whether two graphs have the same dataflow (see `Graph`)."""
    return pairing(a, b) is not None


def flatten_pair(a: Graph, b: Graph) -> tuple[Flat, Flat]:
    """Both graphs as arrays, labels naming subgraphs by what they compute."""
    label = _subgraph_labels()
    return Flat(a, label(a)), Flat(b, label(b))


def _subgraph_labels() -> Callable[[Graph], Callable[[str], str]]:
    classes: list[Graph] = []

    def classify(graph: Graph) -> str:
        for number, other in enumerate(classes):
            if isomorphic(graph, other):
                return str(number)
        classes.append(graph)
        return str(len(classes) - 1)

    def of_graph(graph: Graph) -> Callable[[str], str]:
        bodies = {sub.name: sub for sub in graph.subgraphs}
        known: dict[str, str] = {}

        def of_name(name: str) -> str:
            if name not in known:
                known[name] = classify(bodies[name]) if name in bodies else f"?{name}"
            return known[name]

        return of_name

    return of_graph


def pairing(first: Graph, second: Graph) -> list[int] | None:
    """For each node of `first` the number of its counterpart, or None if the graphs differ."""
    if len(first.nodes) != len(second.nodes) or len(first.saved) != len(second.saved):
        return None
    a, b = flatten_pair(first, second)
    if len(a.inputs) != len(b.inputs) or Counter(a.labels) != Counter(b.labels):
        return None
    pairs = _Pairing(a, b)
    roots = list(zip(a.inputs, b.inputs, strict=True))
    if a.nodes:
        roots.append((len(a.nodes) - 1, len(b.nodes) - 1))
    if not pairs.pair_all(roots):
        return None
    return pairs.forward if pairs.pair_dead() else None


class _Pairing:
    def __init__(self, a: Flat, b: Flat):
        self.a = a
        self.b = b
        self.forward = [-1] * len(a.nodes)
        self.backward = [-1] * len(b.nodes)
        self.paired: list[int] = []

    def pair_all(self, todo: list[tuple[int, int]]) -> bool:
        """Pair these nodes and, through their ordered operands, everything below them."""
        while todo:
            i, j = todo.pop()
            if self.forward[i] == j:
                continue
            if self.forward[i] != -1 or self.backward[j] != -1:
                return False
            if self.a.labels[i] != self.b.labels[j]:
                return False
            if len(self.a.operands[i]) != len(self.b.operands[j]):
                return False
            self.forward[i] = j
            self.backward[j] = i
            self.paired.append(i)
            todo.extend(zip(self.a.operands[i], self.b.operands[j], strict=True))
        return True

    def pair_dead(self) -> bool:
        dead_a = [i for i, j in enumerate(self.forward) if j == -1]
        dead_b = [j for j, i in enumerate(self.backward) if i == -1]
        if not dead_a:
            return not dead_b
        ids: dict[tuple[object, ...], int] = {}
        colors_a = self._colors(self.a, dead_a, lambda i: ("live", i), ids)
        colors_b = self._colors(self.b, dead_b, lambda j: ("live", self.backward[j]), ids)
        if sorted(colors_a.values()) != sorted(colors_b.values()):
            return False
        waiting: dict[int, list[int]] = {}
        for j in dead_b:
            waiting.setdefault(colors_b[j], []).append(j)
        # From the last node on, so that what a dead node needs is paired through that node; then
        # what else uses that, so that a choice between equal nodes is made once for all of them.
        todo = list(dead_a)
        while todo:
            i = todo.pop()
            if self.forward[i] != -1:
                continue
            j = self._partner(i, colors_a, colors_b, waiting)
            before = len(self.paired)
            if j == -1 or not self.pair_all([(i, j)]):
                return False
            for k in self.paired[before:]:
                todo.extend(user for user, _ in self.a.users[k] if self.forward[user] == -1)
        return True

    def _partner(
        self,
        i: int,
        colors_a: Mapping[int, int],
        colors_b: Mapping[int, int],
        waiting: dict[int, list[int]],
    ) -> int:
        """A free node of the same colour that uses the partners of what `i` uses, or -1."""
        for slot, operand in enumerate(self.a.operands[i]):
            if operand in colors_a and self.forward[operand] != -1:
                for j, at in self.b.users[self.forward[operand]]:
                    if at == slot and colors_b.get(j) == colors_a[i] and self._fits(i, j):
                        return j
                return -1
        free = waiting[colors_a[i]]
        while free and self.backward[free[-1]] != -1:
            free.pop()
        return next((j for j in reversed(free) if self._fits(i, j)), -1)

    def _fits(self, i: int, j: int) -> bool:
        return self.backward[j] == -1 and all(
            self.forward[o] == p if self.forward[o] != -1 else self.backward[p] == -1
            for o, p in zip(self.a.operands[i], self.b.operands[j], strict=True)
        )

    def _colors(
        self,
        flat: Flat,
        dead: list[int],
        live: Callable[[int], tuple[object, ...]],
        ids: dict[tuple[object, ...], int],
    ) -> dict[int, int]:
        """Colours of dead nodes by what they compute and, refined, by what uses them."""

        def intern(key: tuple[object, ...]) -> int:
            return ids.setdefault(key, len(ids))

        members = set(dead)
        colors: dict[int, int] = {}
        for i in dead:
            below = tuple(colors[o] if o in members else intern(live(o)) for o in flat.operands[i])
            colors[i] = intern((flat.labels[i], below))
        for _ in range(3):
            above: dict[int, int] = {}
            for i in reversed(dead):
                users = sorted((above[u], slot) for u, slot in flat.users[i])
                above[i] = intern((colors[i], tuple(users)))
            colors = {}
            for i in dead:
                operands = tuple(colors.get(o, -1) for o in flat.operands[i])
                colors[i] = intern((above[i], operands))
        return colors
