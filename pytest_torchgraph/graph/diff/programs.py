"""The difference of two programs: of one capture each, of ranks, and of op counts alone."""

from __future__ import annotations

from collections.abc import Iterator

from ...errors import TorchGraphError
from ...words import format_ranks
from ..program import Program, count_lines
from ..text.format import format_mesh, ran
from .findings import GraphDiff
from .joining import of_ranks
from .report import diff_graphs


def diff_programs(old: Program, new: Program) -> tuple[GraphDiff | None, list[str]]:
    """Return the difference of the graphs, of ranks once for each pair of classes of equal ranks.

    Returns:
        the difference, `None` if one side holds op counts alone, and the lines of these that
        differ.

    Raises:
        TorchGraphError: for ranks of another mesh, and for other ranks.
    """
    if not (old.sections or new.sections):
        if (old.counts or new.counts) and not (old.graphs and new.graphs):
            return None, differing_counts(old, new)
        return diff_graphs(old.graphs, new.graphs), []
    pairs = [(ranks, *diff_programs(*both)) for ranks, *both in same_ranks(old, new)]
    counts = [f"{format_ranks(ranks)}: {line}" for ranks, _, lines in pairs for line in lines]
    return of_ranks((ranks, diff) for ranks, diff, _ in pairs), counts


def same_ranks(old: Program, new: Program) -> Iterator[tuple[tuple[int, ...], Program, Program]]:
    """Yield the ranks whose graphs are equal on both sides, with what they have on either.

    Raises:
        TorchGraphError: for ranks of another mesh, and for other ranks.
    """
    if [*old.mesh.items()] != [*new.mesh.items()] or old.ranks != new.ranks:
        raise TorchGraphError(
            "these are not the same ranks: "
            f"{format_ranks(old.ranks)} of {format_mesh(old.mesh)}, and "
            f"{format_ranks(new.ranks)} of {format_mesh(new.mesh)}"
        )
    for ranks, before in old.sections:
        for others, after in new.sections:
            if shared := {*ranks}.intersection(others):
                yield tuple(sorted(shared)), before, after


def differing_counts(old: Program, new: Program) -> list[str]:
    """A line for each graph that ran more or less often, and for each count that differs.

    Args:
        old, new: the programs; of one with graphs their ops are counted.
    """
    lines = [
        f"{graph} {ran(new.runs[graph])}, before: {old.runs[graph]}"
        for graph in sorted(old.runs.keys() & new.runs.keys())
        if old.runs[graph] != new.runs[graph]
    ]
    return lines + count_lines(old.op_counts, new.op_counts)
