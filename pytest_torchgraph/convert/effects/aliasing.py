"""The order that mutation imposes: a read comes after the last write to its storage.

Operands alone do not say so where the write goes through another tensor. An example:

    y = x.view(-1)      shares the storage of x
    y.add_(1)           writes it
    x.sum()             reads it, and has no operand that says so: `after` is `add_`
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Sequence
from typing import Generic, TypeVar

Name = TypeVar("Name", bound=Hashable)


class Storages(Generic[Name]):
    """The last write to each storage, while nodes are added in the order in which they run.

    A storage is any hashable key; `Name` is a node's name or number.

    Attributes:
        clock: number of the latest event, a definition or a write.
        defined: the time of each node's definition.
        written: for each storage its last writer and the time of that write.
        owner: for each storage the node that was the first with a result in it.
    """

    def __init__(self) -> None:
        self.clock = 0
        self.defined: dict[Name, int] = {}
        self.written: dict[Hashable, tuple[Name, int]] = {}
        self.owner: dict[Hashable, Name] = {}

    def define(self, name: Name, storages: Iterable[Hashable] = ()) -> None:
        """Add a node, with results in these storages."""
        self.clock += 1
        self.defined[name] = self.clock
        for storage in storages:
            self.owner.setdefault(storage, name)

    def after(self, operands: Sequence[tuple[Name, Hashable]]) -> tuple[Name, ...]:
        """The writers that a node must come after, and that are none of its operands.

        Args:
            operands: (name, storage) of each. A write before an operand was defined is left out:
                the operand itself comes after it.
        """
        if not self.written:
            return ()
        names = {name for name, _ in operands}
        writers: dict[Name, None] = {}
        for name, storage in operands:
            if storage not in self.written:
                continue
            writer, when = self.written[storage]
            if writer not in names and self.defined.get(name, 0) < when:
                writers[writer] = None
        return tuple(writers)

    def write(self, name: Name, storage: Hashable) -> None:
        """Add a write of a storage by node `name`, which is defined before."""
        self.clock += 1
        self.written[storage] = (name, self.clock)
