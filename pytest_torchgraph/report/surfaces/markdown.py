"""Tables in Markdown of a bounded size, and links."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass


def link(shown: str, address: str) -> str:
    """A link around markdown; what is shown alone where there is no address."""
    return f"[{shown}]({address})" if address else shown


@dataclass(frozen=True, slots=True)
class Table:
    """A table with a heading.

    Attributes:
        heading: one line.
        columns: their titles.
        rows: the cells, as markdown.
        folded: whether a click shows it.
    """

    heading: str
    columns: Sequence[str]
    rows: Sequence[Sequence[str]]
    folded: bool = False

    def lines(self, budget: int) -> Iterator[str]:
        """The lines, in at most so many bytes; a last one says how many rows are left out."""
        head = [
            f"<details><summary>{self.heading}</summary>" if self.folded else f"#### {self.heading}"
        ]
        head += ["", _row(self.columns), _row(["---"] * len(self.columns))]
        foot = ["", "</details>", ""] if self.folded else [""]
        left_out = ["", f"{len(self.rows)} more are left out: GitHub takes no longer summary."]
        budget -= size([*head, *left_out, *foot])
        if budget < 0:
            return
        yield from head
        for number, row in enumerate(map(_row, self.rows)):
            budget -= size([row])
            if budget < 0:
                left = len(self.rows) - number
                yield from ("", f"{left} more are left out: GitHub takes no longer summary.")
                break
            yield row
        yield from foot


def size(lines: Sequence[str]) -> int:
    """How many bytes lines take in a file."""
    return sum(len(line.encode("utf-8", "backslashreplace")) + 1 for line in lines)


def _row(cells: Sequence[str]) -> str:
    return f"| {' | '.join(cells)} |"
