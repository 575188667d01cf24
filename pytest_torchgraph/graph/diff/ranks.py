"""What distinguishes the graphs of ranks: each edit once, with the ranks that have it."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from ...errors import TorchGraphError
from ...words import format_ranks
from ..text.parse import Document
from ..text.ranks import RanksDocument, format_mesh
from .described import described
from .findings import Finding, GraphDiff

Ranks = tuple[int, ...]
"""Numbers of ranks, ascending."""


def findings_of_ranks(
    diffs: Iterable[tuple[Sequence[int], GraphDiff | None]],
) -> list[tuple[Finding, Ranks]]:
    """Each finding once, with the ranks that have it.

    Args:
        diffs: ranks, and how their graphs differ.
    """
    found: dict[object, tuple[Finding, list[int]]] = {}
    for ranks, diff in diffs:
        for finding in diff.findings if diff else ():
            found.setdefault(described(finding), (finding, []))[1].extend(ranks)
    return [(finding, tuple(sorted(ranks))) for finding, ranks in found.values()]


def same_ranks(
    old: RanksDocument, new: RanksDocument
) -> Iterator[tuple[Ranks, Document, Document]]:
    """The ranks that are equal on both sides, with what they have on either.

    Raises:
        TorchGraphError: for ranks of another mesh, and for other ranks.
    """
    if [*old.mesh.items()] != [*new.mesh.items()] or old.ranks != new.ranks:
        raise TorchGraphError(
            "these are not the same ranks: "
            f"{format_ranks(old.ranks)} of {format_mesh(old.mesh)}, and "
            f"{format_ranks(new.ranks)} of {format_mesh(new.mesh)}"
        )
    for section in old.sections:
        for other in new.sections:
            if shared := {*section.ranks}.intersection(other.ranks):
                yield tuple(sorted(shared)), section.document, other.document
