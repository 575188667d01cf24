"""Which parts of a drawing are folded into one box, so that it stays small enough to be read.

What is to be drawn is a list of things in the order of the graph, each with its place in nested
clusters. Clusters are opened from the outside in until the drawing would become too large; what
stays closed is one box. Where there are no clusters, or too many side by side, things that follow
each other form blocks.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from .scene import Place, Segment

FANOUT = 32
"""A cluster with more in it than this is cut into blocks of things that follow each other."""
TINY = 2
"""A cluster of this many things at most is not worth closing."""


class Unit(NamedTuple):
    """One box of the drawing: a single thing, or several folded into one.

    Attributes:
        place: the cluster that the box is in.
        members: the things that it stands for, by their numbers.
        inside: the outermost clusters that are closed in it; none for a single thing.
        cut: (which, of how many), where one closed part had to become several boxes.
    """

    place: Place
    members: tuple[int, ...]
    inside: tuple[Segment, ...] = ()
    cut: tuple[int, int] = (1, 1)

    @property
    def is_group(self) -> bool:
        """Whether the box stands for more than one thing."""
        return len(self.members) > 1


@dataclass(slots=True, eq=False)
class _Part:
    """A cluster, or (without a segment) a block of things that follow each other in one."""

    segment: Segment | None
    place: Place
    parent: _Part | None
    children: list[int | _Part] = field(default_factory=list)

    def leaves(self) -> Iterator[int]:
        """The numbers of the things in here."""
        todo: list[int | _Part] = [self]
        while todo:
            part = todo.pop()
            if isinstance(part, int):
                yield part
            else:
                todo.extend(reversed(part.children))

    def is_tiny(self) -> bool:
        """Whether opening it hardly makes the drawing larger."""
        part = self
        while len(part.children) == 1 and isinstance(part.children[0], _Part):
            part = part.children[0]
        return len(part.children) <= TINY and all(isinstance(child, int) for child in part.children)


class Collapse:
    """Chooses what is opened.

    Args:
        places: the place of each thing, in the order of the graph.
    """

    def __init__(self, places: Sequence[Place]):
        self._root = _Part(None, (), None)
        self._holders = [self._root] * len(places)
        parts: dict[Place, _Part] = {(): self._root}
        for number, place in enumerate(places):
            holder = self._part(place, parts)
            holder.children.append(number)
        for part in list(parts.values()):
            self._block(part)
        for part in self._parts():
            for child in part.children:
                if isinstance(child, int):
                    self._holders[child] = part

    def _part(self, place: Place, parts: dict[Place, _Part]) -> _Part:
        length = len(place)
        while place[:length] not in parts:
            length -= 1
        part = parts[place[:length]]
        for end in range(length + 1, len(place) + 1):
            inner = _Part(place[end - 1], place[:end], part)
            parts[inner.place] = inner
            part.children.append(inner)
            part = inner
        return part

    def _block(self, part: _Part) -> None:
        if len(part.children) <= FANOUT:
            return
        size = -(-len(part.children) // FANOUT)
        blocks = []
        for start in range(0, len(part.children), size):
            block = _Part(None, part.place, part, part.children[start : start + size])
            for child in block.children:
                if isinstance(child, _Part):
                    child.parent = block
            self._block(block)
            blocks.append(block)
        part.children = [*blocks]

    def _parts(self) -> Iterator[_Part]:
        todo = [self._root]
        while todo:
            part = todo.pop()
            yield part
            todo += _inner([part])

    # -- choosing ----------------------------------------------------------------------------------

    def units(
        self, limit: int | None, focus: Sequence[int] = (), *, compact: bool = False
    ) -> list[Unit]:
        """The boxes to draw, in the order of the graph.

        Args:
            limit: how many boxes at most, None for each thing its own. What is in `focus` can need
                more than that only where not even one thing of it fits.
            focus: what must have boxes of its own, the most important first. If not all of it
                fits, the rest is left to its group.
            compact: whether to open only what leads to `focus` and to fold what follows each other
                beside it; without, as much is opened as there is room for.
        """
        if limit is None:
            opened = dict.fromkeys(self._parts())
            return self._units(opened, set(self._all()), compact=False)
        low, high = 0, len(focus)
        while low < high:
            middle = (low + high + 1) // 2
            chosen = focus[:middle]
            if self._count(self._towards(chosen), set(chosen), compact) <= limit:
                low = middle
            else:
                high = middle - 1
        kept = focus[: max(low, 1)]
        opened = self._towards(kept)
        if not compact:
            self._open_more(opened, limit)
        return self._units(opened, set(kept), compact)

    def _all(self) -> Iterator[int]:
        return iter(range(len(self._holders)))

    def _towards(self, focus: Iterable[int]) -> dict[_Part, None]:
        opened: dict[_Part, None] = {self._root: None}
        for number in focus:
            part: _Part | None = self._holders[number]
            while part is not None and part not in opened:
                opened[part] = None
                part = part.parent
        return opened

    def _open_more(self, opened: dict[_Part, None], limit: int) -> None:
        """Open all of one depth, then all of the next, as long as everything fits."""
        count = self._count(opened, set(), compact=False)
        closed = [part for part in _inner(opened) if part not in opened]
        while closed:
            more = sum(len(part.children) - 1 for part in closed)
            if count + more > limit:
                break
            count += more
            opened.update(dict.fromkeys(closed))
            closed = _inner(closed)
        for part in closed:
            more = len(list(part.leaves())) - 1 if part.is_tiny() else limit
            if count + more <= limit:
                count += more
                opened[part] = None
                inner = _inner([part])
                while inner:
                    opened.update(dict.fromkeys(inner))
                    inner = _inner(inner)

    # -- what that gives ---------------------------------------------------------------------------

    def _rows(
        self, opened: Collection[_Part], focus: Collection[int], compact: bool
    ) -> Iterator[tuple[_Part, list[list[int | _Part]]]]:
        """For each open cluster what is in it, in groups that become one box each."""
        todo = [self._root]
        while todo:
            part = todo.pop()
            groups: list[list[int | _Part]] = []
            mergeable = False
            inline = list(reversed(part.children))
            while inline:
                child = inline.pop()
                if isinstance(child, _Part) and child in opened:
                    if child.segment is None:
                        inline.extend(reversed(child.children))
                    else:
                        todo.append(child)
                        mergeable = False
                    continue
                if mergeable and child not in focus:
                    groups[-1].append(child)
                else:
                    groups.append([child])
                mergeable = compact and child not in focus
            yield part, groups

    def _count(self, opened: Collection[_Part], focus: Collection[int], compact: bool) -> int:
        return sum(len(groups) for _, groups in self._rows(opened, focus, compact))

    def _units(
        self, opened: Collection[_Part], focus: Collection[int], compact: bool
    ) -> list[Unit]:
        units = []
        for part, groups in self._rows(opened, focus, compact):
            for group in groups:
                members = tuple(
                    leaf
                    for child in group
                    for leaf in ((child,) if isinstance(child, int) else child.leaves())
                )
                if len(members) == 1:
                    units.append(Unit(self._holders[members[0]].place, members))
                else:
                    units.append(Unit(part.place, members, tuple(_segments(group))))
        return sorted(units, key=lambda unit: min(unit.members))


def _inner(parts: Iterable[_Part]) -> list[_Part]:
    return [child for part in parts for child in part.children if isinstance(child, _Part)]


def _segments(group: Iterable[int | _Part]) -> Iterator[Segment]:
    for child in group:
        if isinstance(child, int):
            continue
        if child.segment is None:
            yield from _segments(child.children)
        else:
            while len(child.children) == 1 and isinstance(child.children[0], _Part):
                child = child.children[0]
            assert child.segment is not None
            yield child.segment


# -- circles ---------------------------------------------------------------------------------------


def break_cycles(units: Sequence[Unit], links: Iterable[tuple[int, int]], limit: int) -> list[Unit]:
    """The boxes with those cut into several that data leave and enter again.

    Such a box would have to be above and below of what is between. If that gave more than `limit`
    boxes, they are left as they are.

    Args:
        units: the boxes.
        links: between which things, by number, data flow.
        limit: how many boxes there may be.
    """
    owner = {member: number for number, unit in enumerate(units) for member in unit.members}
    after: dict[int, set[int]] = {}
    for tail, head in links:
        a, b = owner[tail], owner[head]
        if a != b:
            after.setdefault(a, set()).add(b)
    pieces: dict[int, list[list[int]]] = {}
    for circle in _circles(after):
        last = -1
        for member in sorted(member for number in circle for member in units[number].members):
            number = owner[member]
            parts = pieces.setdefault(number, [])
            if number != last:
                parts.append([])
            parts[-1].append(member)
            last = number
    count = len(units) + sum(len(parts) - 1 for parts in pieces.values())
    if count > limit:
        return list(units)
    found: list[Unit] = []
    for number, unit in enumerate(units):
        parts = pieces.get(number, [list(unit.members)])
        found += [
            unit._replace(members=tuple(part), cut=(k, len(parts)))
            for k, part in enumerate(parts, 1)
        ]
    return sorted(found, key=lambda unit: min(unit.members))


def _circles(after: Mapping[int, Collection[int]]) -> Iterator[list[int]]:
    """The strongly connected components with more than one member (Tarjan, without recursion)."""
    index: dict[int, int] = {}
    low: dict[int, int] = {}
    open_: dict[int, None] = {}
    for start in after:
        if start in index:
            continue
        index[start] = low[start] = len(index)
        open_[start] = None
        path = [(start, iter(after.get(start, ())))]
        while path:
            node, heads = path[-1]
            for head in heads:
                if head not in index:
                    index[head] = low[head] = len(index)
                    open_[head] = None
                    path.append((head, iter(after.get(head, ()))))
                    break
                if head in open_:
                    low[node] = min(low[node], index[head])
            else:
                path.pop()
                if path:
                    low[path[-1][0]] = min(low[path[-1][0]], low[node])
                if low[node] == index[node]:
                    members = []
                    while True:
                        member, _ = open_.popitem()
                        members.append(member)
                        if member == node:
                            break
                    if len(members) > 1:
                        yield members
