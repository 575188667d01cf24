"""What distinguishes the graphs of ranks: each edit once, with the ranks that have it."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from ...errors import TorchGraphError
from ...words import format_ranks
from ..text.parse import Document
from ..text.ranks import RanksDocument, format_mesh
from .described import described
from .findings import Finding, GraphDiff

Ranks = tuple[int, ...]
"""Numbers of ranks, ascending."""


@dataclass(frozen=True, slots=True)
class RanksDiff(GraphDiff):
    """What distinguishes the graphs of ranks: each edit once, however many ranks have it.

    Attributes:
        ranks: of each of the `findings`, the ranks that have it.
    """

    ranks: tuple[Ranks, ...] = ()

    def to_text(self, limit: int = 10) -> str:
        """The findings below the ranks that have them, at most `limit` of each in full."""
        groups: dict[Ranks, list[Finding]] = {}
        for finding, ranks in zip(self.findings, self.ranks, strict=True):
            groups.setdefault(ranks, []).append(finding)
        lines: list[str] = []
        for ranks, findings in groups.items():
            lines.append(f"{format_ranks(ranks)}:")
            text = GraphDiff(tuple(findings)).to_text(limit)
            lines += [f"  {line}" for line in text.splitlines()]
        return "\n".join(lines) or GraphDiff.to_text(self)


class OfRanks(Protocol):
    """Ranks of a mesh."""

    @property
    def mesh(self) -> Mapping[str, int]:
        """The sizes of the mesh by the names of its dimensions, in order."""

    @property
    def ranks(self) -> tuple[int, ...]:
        """The numbers of the ranks."""


def diff_of_ranks(diffs: Iterable[tuple[Sequence[int], GraphDiff | None]]) -> RanksDiff:
    """The difference of several ranks.

    Args:
        diffs: ranks, and how their graphs differ.
    """
    diffs = [*diffs]
    found = findings_of_ranks(diffs)
    pairs = tuple(pair for _, diff in diffs if diff for pair in diff.graphs)
    return RanksDiff(tuple(one for one, _ in found), pairs, tuple(ranks for _, ranks in found))


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
