"""What a capture of a watch reads from."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

from ..graph.model import Graph
from ..ops.levels import Level

if TYPE_CHECKING:
    from ..watching.kernels import Kernel
    from ..watching.record import Record


class Contents(Protocol):
    """What a capture of a watch holds, at the moment at which it is read.

    Each thing is worked out when it is first asked for.
    """

    @property
    def graphs(self) -> tuple[Graph, ...]:
        """The graphs at its own level."""
        ...

    def at(self, level: Level) -> tuple[Graph, ...]:
        """The graphs at a level, none where it does not know it."""
        ...

    @property
    def levels(self) -> tuple[Level, ...]:
        """The levels that it knows."""
        ...

    @property
    def joints(self) -> tuple[Graph, ...]:
        """The joint graphs."""
        ...

    @property
    def kernels(self) -> tuple[Kernel, ...] | None:
        """The generated kernels, None where no code was generated."""
        ...

    @property
    def record(self) -> Record:
        """What was compiled, broken off, compiled again and run."""
        ...
