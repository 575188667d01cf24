"""Which ranks of two sides are compared."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Protocol

from ...errors import TorchGraphError
from ...words import format_ranks
from ..text.parse import Document
from ..text.ranks import RanksDocument, format_mesh

Ranks = tuple[int, ...]
"""Numbers of ranks, ascending."""


class OfRanks(Protocol):
    """Ranks of a mesh."""

    @property
    def mesh(self) -> Mapping[str, int]:
        """The sizes of the mesh by the names of its dimensions, in order."""

    @property
    def ranks(self) -> tuple[int, ...]:
        """The numbers of the ranks."""


def same_ranks(
    old: RanksDocument, new: RanksDocument
) -> Iterator[tuple[Ranks, Document, Document]]:
    """The ranks that are equal on both sides, with what they have on either.

    Raises:
        TorchGraphError: for ranks of another mesh, and for other ranks.
    """
    refuse_other_ranks(old, new)
    for section in old.sections:
        for other in new.sections:
            if shared := {*section.ranks}.intersection(other.ranks):
                yield tuple(sorted(shared)), section.document, other.document


def refuse_other_ranks(old: OfRanks, new: OfRanks) -> None:
    """Refuse to compare ranks of another mesh, and other ranks, with a `TorchGraphError`."""
    if [*old.mesh.items()] != [*new.mesh.items()] or sorted(old.ranks) != sorted(new.ranks):
        raise TorchGraphError(
            "these are not the same ranks: "
            f"{format_ranks(old.ranks)} of {format_mesh(old.mesh)}, and "
            f"{format_ranks(new.ranks)} of {format_mesh(new.mesh)}"
        )
    if not old.ranks:
        raise TorchGraphError("these ranks hold no capture, so that there is nothing to compare")
