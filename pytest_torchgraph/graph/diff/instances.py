"""Which modules of a list correspond, if a module was added or removed before others.

A list that lost its first module has other numbers from there on, so each module would be compared
with its successor. Here the modules of each list are aligned by their ops, and the new graphs are
compared under the paths that their modules had.
"""

from __future__ import annotations

import copy
from collections.abc import Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import pairwise, zip_longest

from ...words import grouped
from ..census import Move, moved
from ..equality import NumberedGraph
from ..text import quote
from .align import align_items
from .paths import instances_of, natural_key, path_of


@dataclass
class Instances:
    """The modules of lists that correspond under other numbers.

    Attributes:
        moves: path of each new module and the path that it had, innermost modules first.
        one_sided: modules of these lists without a partner, by "removed" and "added".
    """

    moves: list[Move] = field(default_factory=list)
    one_sided: Mapping[str, set[str]] = field(
        default_factory=lambda: {"removed": set(), "added": set()}
    )

    def former(self, name: str) -> str:
        """Return the path or the name that a new module or value had."""
        return moved(name, *self.moves)

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
        view.labels, view.plain = ([*labels] for labels in (flat.labels, flat.plain))
        for i, node in enumerate(flat.nodes):
            if node.target != view.nodes[i].target:
                named = quote(node.target), quote(view.nodes[i].target)
                view.labels[i] = view.labels[i].replace(*named, 1)
                view.plain[i] = view.plain[i].replace(*named, 1)
        return view

    def align(self, old: Sequence[str], new: Sequence[str], contents: Sequence[_Contents]) -> None:
        """Align the modules of a list, if more are equal under other numbers than under theirs.

        Args:
            old, new: the paths of the modules, in order.
            contents: the ops of the modules of each side.
        """
        tokens = [contents[0][path] for path in old], [contents[1][path] for path in new]
        equal = sorted(align_items(*tokens))
        by_name = {self.former(path): contents[1][path] for path in new}
        if len(equal) <= sum(by_name.get(path) == contents[0][path] for path in old):
            return
        container = old[0].rpartition(".")[0]
        numbers = [int(path.rpartition(".")[2]) for path in (*old, *new)]
        for (x0, y0), (x1, y1) in pairwise([(-1, -1), *equal, (len(old), len(new))]):
            gap = zip_longest(old[x0 + 1 : x1], new[y0 + 1 : y1])
            for path, other in [*gap, *zip(old[x1 : x1 + 1], new[y1 : y1 + 1], strict=True)]:
                if other is None:
                    self.one_sided["removed"].add(path)
                    continue
                if path is None:
                    self.one_sided["added"].add(other)
                    numbers.append(max(numbers) + 1)
                    path = f"{container}.{numbers[-1]}".removeprefix(".")
                self.moves.insert(0, (other, path))


_Contents = Mapping[str, tuple[Hashable, ...]]
"""The ops of each module of a list, with their places in the module."""


def align_instances(before: Iterable[NumberedGraph], after: Iterable[NumberedGraph]) -> Instances:
    """Align the modules of lists that have other lengths.

    Args:
        before, after: the forward graphs of each side.
    """
    found = Instances()
    contents = _contents(before), _contents(after)
    if contents[0].keys() == contents[1].keys():
        return found
    lists = [
        grouped((path.rpartition(".")[0], path) for path in sorted(side, key=natural_key))
        for side in contents
    ]
    for container in sorted(lists[1], key=lambda path: path.count(".")):
        old = lists[0].get(found.former(container), [])
        if old and len(old) != len(lists[1][container]):
            found.align(old, lists[1][container], contents)
    return found


def _contents(flats: Iterable[NumberedGraph]) -> dict[str, tuple[Hashable, ...]]:
    contents: dict[str, list[Hashable]] = {}
    for flat in flats:
        for i, node in enumerate(flat.nodes):
            path = path_of(node) if node.is_call else ""
            for instance in instances_of(path):
                place = path[len(instance) :], flat.shapeless[i]
                contents.setdefault(instance, []).append(place)
    return {instance: tuple(ops) for instance, ops in contents.items()}
