"""Print what subjects cost, ours beside torch's: `cost_table.py [--check] [SUBJECT...]`.

Every entry is checked first; one that is wrong is printed as such and makes the command fail.
`--check` compares with the kept document, `docs/cost.md`, instead of printing.
"""

from __future__ import annotations

import logging
import sys
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[2]
sys.path[:0] = [str(ROOT / "tests"), str(ROOT)]

from subjects import costs, kept_tables  # noqa: E402
from subjects.checkpointed import POLICIES  # noqa: E402
from subjects.models import SUBJECTS  # noqa: E402

KEPT = "cost.md"
HEAD = """\
# What subjects cost

What the package says that a step of a small real model costs, beside what torch says, found by code
that shares nothing with the package. Where they differ the reason is below the tables, and it was
computed: an entry is wrong unless the reason makes the two figures equal. "The same" is to the
byte, and to the operation. With torch 2.13 on a CPU; figures of other releases may differ.

Made by `python tests/subjects/cost_table.py > docs/cost.md`, in about six minutes; `--check`
compares.
"""
SAID = {
    "FLOPs": """\
## FLOPs

Of the forward and of the backward, by torch `FlopCounterMode` around an eager run.
""",
    "saved": """\
## Bytes saved for the backward

Storages once, without parameters, buffers and inputs; by torch `saved_tensors_hooks` around an
eager run, and around one that is compiled up to AOTAutograd. Between these two the partitioner
decides: it keeps what the backward of the traced graph reads, which is not always what eager
autograd keeps.
""",
    "peak": f"""\
## Peak

The most bytes of storages that ops made and that lived at one time, counted by a dispatch mode in
an eager and in a compiled run, without the gradients with which the backward starts; ours is an
estimate from the graphs. It is wrong where it is off by more than {costs.PEAK_TOLERANCE:.0%}.
""",
}
CHECKPOINTING = """\
## Activation checkpointing

A transformer of four blocks under five policies of `torch.utils.checkpoint`, then without any,
split by AOTAutograd's `min_cut` at several values of
`torch._functorch.config.activation_memory_budget`: the more is computed again, the less is kept.
FLOPs via dispatch are those of `FlopCounterMode`, and saved bytes those of torch as above; what
selective checkpointing keeps in a cache of its own counts. In eager, a block that is computed again
stops when it has all that the backward asks for.
"""


class Document:
    """The tables, the reasons, and what is wrong."""

    def __init__(self) -> None:
        self.reasons = kept_tables.Reasons()
        self.wrong: list[str] = []

    def table(self, first: str, rows: Iterable[costs.Row]) -> list[str]:
        lines: list[list[str]] = []
        columns: list[str] = []
        for row in rows:
            self.wrong += row.wrong()
            columns = [first, *row.entries]
            lines.append([row.name, *(self.cell(each) for each in row.entries.values())])
        return [*kept_tables.table(columns, lines), ""]

    def cell(self, entry: costs.Entry) -> str:
        says = entry.says + (" WRONG" if entry.wrong else "")
        return self.reasons.cell(says, entry.reason)


def kept() -> dict[tuple[str, str], str]:
    """What the kept tables say by row and column, reasons spelt out."""
    return kept_tables.entries((kept_tables.DOCS / KEPT).read_text())


def make(names: list[str]) -> tuple[str, list[str]]:
    """The text for some subjects, or all, and what is wrong."""
    document = Document()
    lines = [HEAD]
    for section, row in costs.SECTIONS.items():
        lines += [SAID[section], *document.table("subject", _each(row, names or SUBJECTS))]
    if not names:
        rows = [*_each(costs.checkpointing, POLICIES), *_each(costs.min_cut, costs.BUDGETS)]
        lines += [CHECKPOINTING, *document.table("policy", rows)]
    reasons = ["## Reasons", "", *document.reasons.lines()]
    return "\n".join([*lines, *reasons]) + "\n", document.wrong


def _each(row: Callable[[Any], costs.Row], of: Iterable[Any]) -> Iterable[costs.Row]:
    for each in of:
        print(f"{each} ...", file=sys.stderr, flush=True)
        yield row(each)


if __name__ == "__main__":
    logging.disable(logging.CRITICAL)
    sys.exit(kept_tables.main(sys.argv[1:], KEPT, make))
