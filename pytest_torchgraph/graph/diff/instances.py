"""Which modules of a list correspond, if a module was added or removed before others.

A list that lost its first module has other numbers from there on, so each module would be compared
with its successor. Here the modules of each list are aligned by their ops, and the new graphs are
compared under the paths that their modules had.
"""

from __future__ import annotations

import copy
from collections import Counter
from collections.abc import Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import pairwise

from ...words import grouped
from ..equality import NumberedGraph
from ..model import Node
from ..text import quote
from .align import align_items
from .match import without_target
from .paths import instances_of, natural_key, path_of

MAX_PAIRS = 10_000
"""Maximum number of pairs of modules to compare where several of a list differ."""


@dataclass
class Instances:
    """The modules of lists that correspond under other numbers.

    Attributes:
        moves: the path that each new module had.
        one_sided: modules of these lists without a partner, by "removed" and "added".
    """

    moves: dict[str, str] = field(default_factory=dict)
    one_sided: Mapping[str, set[str]] = field(
        default_factory=lambda: {"removed": set(), "added": set()}
    )

    def former(self, name: str) -> str:
        """Return the path or the name that a new module or value had."""
        # The innermost module around the name that moved decides.
        end = len(name) if self.moves else 0
        while end > 0:
            if name[:end] in self.moves:
                return self.moves[name[:end]] + name[end:]
            end = max(name.rfind(".", 0, end), name.rfind("/", 0, end))
        return name

    def view(self, flat: NumberedGraph) -> NumberedGraph:
        """Return a new graph under the former paths of its modules."""
        if not self.moves:
            return flat
        view = copy.copy(flat)
        view.nodes = tuple(
            replace(
                node,
                name=self.former(node.name),
                module=self.former(node.module),
                target=self.former(node.target),
            )
            for node in flat.nodes
        )
        # These strings contain the path of a called module.
        for kind in ("labels", "plain", "shapeless"):
            labels = [*getattr(flat, kind)]
            for i, (node, former) in enumerate(zip(flat.nodes, view.nodes, strict=True)):
                if node.target != former.target:
                    labels[i] = labels[i].replace(quote(node.target), quote(former.target), 1)
            setattr(view, kind, labels)
        return view

    def align(self, old: Sequence[str], new: Sequence[str], contents: Sequence[_Contents]) -> None:
        """Align the modules of a list, if more of their ops are equal than under their numbers.

        Args:
            old, new: the paths of the modules, in order.
            contents: the ops of the modules of each side.
        """
        tokens = [contents[0][path] for path in old], [contents[1][path] for path in new]
        # Equal modules are partners, and divide the others into gaps.
        equal = sorted(align_items(*tokens))
        pairs: list[tuple[str | None, str | None]] = []
        for (x0, y0), (x1, y1) in pairwise([(-1, -1), *equal, (len(old), len(new))]):
            pairs += _pair_gap(old[x0 + 1 : x1], new[y0 + 1 : y1], contents)
            pairs += zip(old[x1 : x1 + 1], new[y1 : y1 + 1], strict=True)
        # `former` knows the moves of an enclosing list.
        by_name = {self.former(path): path for path in new}
        in_place = [(path, by_name[path]) for path in old if path in by_name]
        if _count_common(pairs, contents) <= _count_common(in_place, contents):
            return
        container = old[0].rpartition(".")[0]
        # An added module gets a number that no module has, so that it is not compared with one.
        unused = 1 + max(int(path.rpartition(".")[2]) for path in (*old, *new))
        for path, other in pairs:
            if path is not None and other is None:
                self.one_sided["removed"].add(path)
            elif path is not None and other is not None:
                self.moves[other] = path
            elif other is not None:
                self.one_sided["added"].add(other)
                self.moves[other] = f"{container}.{unused}".removeprefix(".")
                unused += 1


def _pair_gap(
    old: Sequence[str], new: Sequence[str], contents: Sequence[_Contents]
) -> Iterator[tuple[str | None, str | None]]:
    """Yield pairs of modules in order; the shorter side is where it has most ops in common."""
    is_old = len(old) <= len(new)
    short, long = (old, new) if is_old else (new, old)
    sides = contents if is_old else contents[::-1]
    places = range(len(long) - len(short) + 1)
    if len(places) * len(short) > MAX_PAIRS:  # too many to try: begin together
        places = range(1)
    # `long[k:]` has the partners of `short`, and then the modules after them.
    start = max(places, key=lambda k: _count_common(zip(short, long[k:], strict=False), sides))
    for number, path in enumerate(long, -start):
        other = short[number] if 0 <= number < len(short) else None
        yield (other, path) if is_old else (path, other)


def _count_common(
    pairs: Iterable[tuple[str | None, str | None]], contents: Sequence[_Contents]
) -> int:
    """Return the number of ops that the modules of pairs have in common."""
    counts = (
        Counter(contents[0][path]) & Counter(contents[1][other])
        for path, other in pairs
        if path is not None and other is not None
    )
    return sum(count.total() for count in counts)


_Contents = Mapping[str, tuple[Hashable, ...]]
"""The ops of each module of a list, with their places in the module."""


def align_instances(before: Iterable[NumberedGraph], after: Iterable[NumberedGraph]) -> Instances:
    """Align the modules of lists that have other lengths.

    Args:
        before, after: the forward graphs of each side.
    """
    found = Instances()
    sides = [*before], [*after]
    paths = [
        dict.fromkeys(_path_of(node) for flat in side for node in flat.nodes) for side in sides
    ]
    modules = [{i for path in side for i in instances_of(path)} for side in paths]
    if modules[0] == modules[1]:
        return found
    contents = contents_of(sides[0]), contents_of(sides[1])
    lists = [
        grouped((path.rpartition(".")[0], path) for path in sorted(side, key=natural_key))
        for side in contents
    ]
    # Outer lists come first: the path that an inner list had depends on their moves.
    for container in sorted(lists[1], key=lambda path: path.count(".")):
        old = lists[0].get(found.former(container), [])
        if old and len(old) != len(lists[1][container]):
            found.align(old, lists[1][container], contents)
    return found


def contents_of(
    flats: Iterable[NumberedGraph], *, with_shapes: bool = False
) -> dict[str, tuple[Hashable, ...]]:
    """Return the ops of each module of a list, with their places in the module.

    Args:
        flats: graphs of one side.
        with_shapes: True to distinguish ops by dtype and shape, too.
    """
    contents: dict[str, list[Hashable]] = {}
    for flat in flats:
        labels = flat.labels if with_shapes else flat.shapeless
        for i, node in enumerate(flat.nodes):
            path = _path_of(node)
            for instance in instances_of(path):
                place = path[len(instance) :], without_target(node, labels[i])
                contents.setdefault(instance, []).append((flat.graph.kind, *place))
    return {instance: tuple(ops) for instance, ops in contents.items()}


def _path_of(node: Node) -> str:
    """Return the module path of an op, "" for any other node. A called module is the op."""
    return (node.target or path_of(node)) if node.is_call else ""
