"""Causes as lines of text: the cause once, and the files or tests that it is found in."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from ...words import counted, listed
from .described import CauseInWords, shortened
from .words import cost_text

MAX_CAUSES = 10
"""How many causes are listed; the others are counted."""
MAX_FILES = 3
"""How many files, or tests, are named of a cause."""


def cause_lines(
    causes: Sequence[CauseInWords], noun: str = "file", limit: int | None = MAX_CAUSES
) -> Iterator[str]:
    """A few lines for each cause.

    Args:
        causes: those in most files first.
        noun: what the files of a cause are.
        limit: how many causes are listed, and of each not all files; None for everything.
    """
    for cause in causes[:limit]:
        yield cause_head(cause, noun)
        if cause.sources:
            yield f"    {some(cause.sources, None if limit is None else 1)}"
        if cause.first.before:
            yield f"    before  {cause.first.before}"
        if cause.first.after:
            yield f"    after   {cause.first.after}"
        if costs := cost_text(cause.cost):
            yield f"    costs   {costs}{' in all' * (len(cause.files) > 1)}"
        yield f"    in {some(cause.files, None if limit is None else MAX_FILES)}"
    if limit is not None and len(causes) > limit:
        left = causes[limit:]
        files = len({file for cause in left for file in cause.files})
        yield f"... and {counted(len(left), 'more cause')} in {counted(files, noun)}"


def cause_head(cause: CauseInWords, noun: str = "file") -> str:
    """A cause in one line: `~ aten.gelu -> aten.relu in h.{0 … 11}.act (480 places, 40 files)`."""
    size = f"{counted(cause.places, 'place')}, {counted(len(cause.files), noun)}"
    where = f" in {cause.where}" if cause.where else ""
    return f"{cause.first.sign} {cause.first.what}{where}  ({size})"


def some(items: Sequence[str], limit: int | None) -> str:
    """The first of several texts, long ones cut, and how many more there are; None for all."""
    return listed(items if limit is None else map(shortened, items), limit)
