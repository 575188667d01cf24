"""Recognition of `Ranks`, for modules that do not import `ranks`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypeGuard

if TYPE_CHECKING:
    from ..ranks.ranks import Ranks

NO_RANKS = "no rank was captured, choose at least one"


def are_ranks(value: Any) -> TypeGuard[Ranks]:
    """Return True for `Ranks`, without importing their module, because it imports torch."""
    kind = type(value)
    return isinstance(getattr(kind, "world_size", None), property) and hasattr(value, "ranks")
