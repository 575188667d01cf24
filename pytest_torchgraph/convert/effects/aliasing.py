"""Order that mutation imposes: a read depends on the last write to its storage.

Operands alone do not say so: `y = x.view(-1); y.add_(1); x.sum()` reads what `add_` wrote, through
another tensor. Such a read is given an explicit `after`.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Sequence
from typing import Generic, TypeVar

Name = TypeVar("Name", bound=Hashable)


class Storages(Generic[Name]):
    """Which node wrote each storage last, and which node it belongs to."""

    def __init__(self) -> None:
        self.clock = 0
        self.defined: dict[Name, int] = {}
        self.written: dict[Hashable, tuple[Name, int]] = {}
        self.owner: dict[Hashable, Name] = {}

    def define(self, name: Name, storages: Iterable[Hashable] = ()) -> None:
        """A node came into being, with results in these storages."""
        self.clock += 1
        self.defined[name] = self.clock
        for storage in storages:
            self.owner.setdefault(storage, name)

    def after(self, operands: Sequence[tuple[Name, Hashable]]) -> tuple[Name, ...]:
        """The writes that a node with these (name, storage) operands must come after."""
        if not self.written:
            return ()
        names = {name for name, _ in operands}
        found: dict[Name, None] = {}
        for name, storage in operands:
            if storage not in self.written:
                continue
            writer, when = self.written[storage]
            if writer not in names and self.defined.get(name, 0) < when:
                found[writer] = None
        return tuple(found)

    def write(self, name: Name, storage: Hashable) -> None:
        """Node `name` wrote this storage; a result of its own in it is defined after that."""
        self.clock += 1
        self.written[storage] = (name, self.clock)
