"""Prints the report for each kind of graph break, beside the counts of torch's own tools.

Run with `python -m watching.break_table` in `tests/`.
"""

from __future__ import annotations

import contextlib
import io
import logging
import warnings
from typing import Any

import torch
from watching.break_cases import BROKEN, CLEAN, Subject, expected

from pytest_torchgraph import watch


def row(name: str, subject: Any) -> list[str]:
    """Return the table's row for one subject."""
    torch._dynamo.reset()
    torch._dynamo.utils.counters.clear()
    run = subject("eager")
    with contextlib.redirect_stdout(io.StringIO()), watch() as seen:
        run()
    lines = sorted(graph_break.line for graph_break in seen.breaks)
    counted = sum(torch._dynamo.utils.counters["graph_break"].values())
    return [
        name,
        ", ".join(map(str, expected(name))) or "none",
        ", ".join(map(str, lines)) or "none",
        str(len(lines)),
        str(counted),
        explained(subject),
    ]


def explained(subject: Any) -> str:
    """Return the number of graph breaks that `torch._dynamo.explain` reports."""
    if not isinstance(subject, Subject):
        return "-"
    with contextlib.redirect_stdout(io.StringIO()):
        return str(torch._dynamo.explain(subject.function)(*subject.args).graph_break_count)


def main() -> None:
    """Print the table."""
    logging.disable(logging.WARNING)
    warnings.simplefilter("ignore")
    print("| kind | line | reported | count | counters | explain |")
    print("|---|---|---|---|---|---|")
    rows = [row(name, subject) for name, subject in {**BROKEN, **CLEAN}.items()]
    for cells in rows:
        print(f"| {' | '.join(cells)} |")
    for column, tool in ((3, "reported"), (4, "counters"), (5, "explain")):
        tried = [cells for cells in rows if cells[column] != "-"]
        right = [
            cells
            for cells in tried
            if cells[column] == str(0 if cells[1] == "none" else cells[1].count(",") + 1)
        ]
        print(f"\n{tool}: right for {len(right)} of {len(tried)}", end="")
    print()


if __name__ == "__main__":
    main()
