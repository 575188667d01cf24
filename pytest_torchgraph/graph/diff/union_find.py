"""Union-find: sets of items that belong together."""

from __future__ import annotations

from collections.abc import Hashable
from typing import Generic, TypeVar

Item = TypeVar("Item", bound=Hashable)


class UnionFind(Generic[Item]):
    """Disjoint sets of items. Each item is alone until it is joined."""

    def __init__(self) -> None:
        self._parent: dict[Item, Item] = {}

    def find(self, item: Item) -> Item:
        """Return the representative of the set that contains an item."""
        parent = self._parent.setdefault(item, item)
        while parent != self._parent[parent]:
            self._parent[item] = self._parent[parent]
            item, parent = parent, self._parent[parent]
        return parent

    def join(self, item: Item, other: Item) -> bool:
        """Unite the sets of two items. The representative of `other` stays one.

        Returns:
            False if they were united before.
        """
        first, second = self.find(item), self.find(other)
        self._parent[first] = second
        return first != second
