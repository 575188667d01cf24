"""The lines that a folded text stands for, and where each of them comes from."""

from __future__ import annotations

import re
from bisect import bisect_right
from dataclasses import dataclass

from ...errors import GraphFormatError
from .folded_names import TOKEN


@dataclass(frozen=True)
class Expanded:
    """A text with one line a node.

    Attributes:
        lines: its lines.
        folded: the lines of the folded text that it was read from.
        rows: for each line the index of the folded line that it comes from.
        calls: for each instance that was written with others its first line and its path.
        eager: whether there is an eager graph, for which version 2 is needed.
    """

    lines: list[str]
    folded: list[str]
    rows: list[int]
    calls: list[tuple[int, str]]
    eager: bool

    def located(self, error: GraphFormatError) -> GraphFormatError:
        """An error in these lines, with its position in the folded text."""
        row = min(error.line, len(self.lines)) - 1
        source = self.rows[row]
        column = _column_before(self.lines[row], self.folded[source], error.column - 1)
        problem = error.problem
        number = bisect_right(self.calls, row, key=lambda call: call[0]) - 1
        if self.lines[row] != self.folded[source] and number >= 0:
            problem += f" (as a line of {self.calls[number][1]})"
        return GraphFormatError(problem, source + 1, column + 1)


def _column_before(line: str, folded: str, column: int) -> int:
    """Where a column of a line is in the folded line that it comes from, both from 0."""
    if line == folded:
        return column
    if (change := re.match(r" *[~+] ", folded)) is not None:
        start = change.end()
    else:
        start = len(folded) - len(folded.lstrip(" "))
    own = len(line) - len(line.lstrip(" "))
    if column < own:
        return min(column, start)
    here, there = own, start
    for new, old in zip(TOKEN.finditer(line, own), TOKEN.finditer(folded, start), strict=False):
        if column < new.start():
            break
        if column < new.end():
            return old.start() + (column - new.start() if new.group() == old.group() else 0)
        here, there = new.end(), old.end()
    return min(there + column - here, len(folded))
