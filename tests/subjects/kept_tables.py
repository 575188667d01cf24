"""Generated tables in `docs/measured/`, and their comparison with a new run of the script.

A cell `refused (1)` or `1,024 (2)` refers to a numbered list of reasons below the tables.
"""

from __future__ import annotations

import re
import sys
import warnings
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path

MEASURED = Path(__file__).parents[2] / "docs" / "measured"


class Reasons:
    """The numbered list of reasons."""

    def __init__(self) -> None:
        self.all: list[str] = []

    def cell(self, says: str, reason: str) -> str:
        """Return a cell with the number of its reason."""
        if not reason:
            return says
        if reason not in self.all:
            self.all.append(reason)
        return f"{says} ({self.all.index(reason) + 1})"

    def lines(self) -> list[str]:
        """Return the list as lines."""
        return [f"{number}. {reason}" for number, reason in enumerate(self.all, 1)]


def table(columns: Sequence[str], rows: Iterable[Sequence[str]]) -> list[str]:
    """Return a table as lines. The first column names the rows."""
    head = [_line(columns), "|---" * len(columns) + "|"]
    return [*head, *map(_line, rows)]


def _line(cells: Sequence[str]) -> str:
    return f"| {' | '.join(cells)} |"


def spelt_out(says: str, reason: str) -> str:
    """Return a cell with its reason in place of the number."""
    if not reason:
        return says
    return reason if says == "refused" else f"{says}: {reason}"


def entries(text: str) -> dict[tuple[str, str], str]:
    """Return the cells of a document's tables, by row and column, with reasons spelt out."""
    reasons = dict(re.findall(r"^(\d+)\. (.+)$", text, re.MULTILINE))
    found: dict[tuple[str, str], str] = {}
    columns: list[str] = []
    for line in text.splitlines():
        if line.startswith("|---"):
            continue
        cells = line[2:-2].split(" | ") if line.startswith("| ") else []
        if not cells:
            columns = []
        elif not columns:
            columns = cells
        else:
            for column, cell in zip(columns[1:], cells[1:], strict=True):
                numbered = re.fullmatch(r"(.+) \((\d+)\)", cell)
                says = spelt_out(numbered[1], reasons[numbered[2]]) if numbered else cell
                found[cells[0], column] = says
    return found


def main(
    arguments: Sequence[str],
    document: str,
    make: Callable[[list[str]], tuple[str, list[str]]],
) -> int:
    """Print a document, or compare it with the kept one. Fail if an entry is wrong.

    Args:
        arguments: `--check` compares. All other arguments are names of rows; none means all.
        document: the name of the file in `docs/measured/`.
        make: returns the text for the names, and the errors found.
    """
    warnings.simplefilter("ignore")
    names = [each for each in arguments if not each.startswith("-")]
    text, wrong = make(names)
    print("\n".join(wrong), file=sys.stderr)
    if "--check" not in arguments:
        print(text, end="")
        return bool(wrong)
    kept = (MEASURED / document).read_text()
    some = entries(text).items() <= entries(kept).items()  # a part numbers its reasons differently
    same = some if names else text == kept
    print("as kept" if same else f"not as in docs/measured/{document}:\n{text}")
    return bool(wrong) or not same
