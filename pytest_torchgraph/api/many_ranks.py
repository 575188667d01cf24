"""The captures of several ranks, for those that cannot or need not import the room `ranks`."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any, Protocol, TypeGuard

if TYPE_CHECKING:
    from .result import Capture


class ManyRanks(Protocol):
    """What `Ranks` are: captures, with the mesh and the numbers of their ranks."""

    mesh: Mapping[str, int]
    ranks: tuple[int, ...]

    def __len__(self) -> int: ...

    def __iter__(self) -> Iterator[Capture]: ...


def are_ranks(value: Any) -> TypeGuard[ManyRanks]:
    """Whether a value is `Ranks`, told without their module, which imports torch."""
    kind = type(value)
    return isinstance(getattr(kind, "world_size", None), property) and hasattr(value, "ranks")
