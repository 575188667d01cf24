"""Order that mutation imposes: a read depends on the last write to its storage.

Operands alone do not say so: `y = x.view(-1); y.add_(1); x.sum()` reads what `add_` wrote, through
another tensor. Such a read is given an explicit `after`.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable

from ..graph.model import Ref


class Storages:
    """Which node wrote each storage last, and which node it belongs to."""

    def __init__(self) -> None:
        self.clock = 0
        self.defined: dict[str, int] = {}
        self.written: dict[Hashable, tuple[str, int]] = {}
        self.owner: dict[Hashable, str] = {}

    def define(self, name: str, storages: Iterable[Hashable] = ()) -> None:
        """A node came into being, with results in these storages."""
        self.clock += 1
        self.defined[name] = self.clock
        for storage in storages:
            self.owner.setdefault(storage, name)

    def after(self, operands: Iterable[tuple[str, Hashable]]) -> tuple[Ref, ...]:
        """The writes that a node with these (name, storage) operands must come after."""
        operands = list(operands)
        names = {name for name, _ in operands}
        found: dict[str, None] = {}
        for name, storage in operands:
            writer, when = self.written.get(storage, ("", 0))
            if writer and writer not in names and self.defined.get(name, 0) < when:
                found[writer] = None
        return tuple(Ref(name) for name in found)

    def write(self, name: str, storage: Hashable) -> None:
        """Node `name` wrote this storage; a result of its own in it is defined after that."""
        self.clock += 1
        self.written[storage] = (name, self.clock)
