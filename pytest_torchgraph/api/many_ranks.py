"""The protocol of `Ranks`, for modules that do not import `ranks`."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any, Protocol, TypeGuard

if TYPE_CHECKING:
    from .result import Capture

NO_RANKS = "no rank was captured, choose at least one"


class ManyRanks(Protocol):
    """Captures with their mesh and rank numbers; `Ranks` implements it."""

    mesh: Mapping[str, int]
    ranks: tuple[int, ...]

    def __len__(self) -> int: ...

    def __iter__(self) -> Iterator[Capture]: ...


def are_ranks(value: Any) -> TypeGuard[ManyRanks]:
    """Return True for `Ranks`, without importing their module, because it imports torch."""
    kind = type(value)
    return isinstance(getattr(kind, "world_size", None), property) and hasattr(value, "ranks")
