"""Print what the plans of transformers communicate: `plans_table.py [--check] [TYPE...]`.

Each model is measured in a fork of its own. `--check` compares with the kept document,
`docs/plans.md`, instead of printing.
"""

from __future__ import annotations

import logging
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[2]
sys.path[:0] = [str(ROOT / "tests"), str(ROOT)]

import torch  # noqa: E402
from corpus.forks import forked  # noqa: E402
from subjects import kept_tables, plans  # noqa: E402

KEPT = "plans.md"
HEAD = """\
# Tensor-parallel plans of transformers

The types of models whose configuration comes with a plan (`base_model_tp_plan`), in a small size:
each is split by that plan over 2 and over 4 ranks, and the first and the last one are captured via
`dispatch`. What the last rank communicates, forward + backward, is what torch's `CommDebugMode`
counts in an eager run of the same rank, and both ranks communicate in the same order: where not,
the reason is below the table. A plan is applied as `from_pretrained(..., distributed_config=...)`
does it, tied weights being tied behind it.

- does not run: on one rank it does, but not when it is split, without the package neither.
- not run: not even on one rank, in the size and with the tokens that all get here.

A model of several parts, such as one for images and text, has the plans of its parts, whose types
are listed.

Made by `python tests/subjects/plans_table.py > docs/plans.md`, in about ten minutes; `--check`
compares. With torch 2.13 and transformers 5.23; figures of other releases may differ.
"""
SECONDS = 180
"""For one model."""


def kept() -> dict[tuple[str, str], str]:
    """What the kept table says by type and column, reasons spelt out."""
    return kept_tables.entries((kept_tables.DOCS / KEPT).read_text())


def row(name: str) -> dict[str, list[str]]:
    """What a model says for each size, and the reason why it does not say more."""
    try:
        return {f"tp={size}": [says, why] for size, says, why in plans.results(name)}
    except plans.NotRun as problem:
        return {f"tp={size}": ["not run", str(problem)] for size in plans.SIZES}


def make(names: list[str]) -> tuple[str, list[str]]:
    """The text for some types, or all, and what is wrong."""
    reasons = kept_tables.Reasons()
    lines: list[list[str]] = []
    wrong: list[str] = []
    run, split, captured = 0, 0, 0
    for name, found in _rows(names or plans.planned()):
        cells = found.values()
        said = {says for says, _ in cells}
        run += "not run" not in said
        split += not said & {"not run", "does not run"}
        captured += not said & {"not run", "does not run", "WRONG"}
        wrong += [f"{name}: {why}" for says, why in cells if says == "WRONG"]
        lines.append([name, *(reasons.cell(*each) for each in cells)])
    table = kept_tables.table(["type", *(f"tp={size}" for size in plans.SIZES)], lines)
    counts = (
        f"{len(lines)} types have a plan, {run} run on one rank, {split} of these over each number "
        f"of ranks, and {captured} of these are captured."
    )
    text = [HEAD, counts, "", *table, "", "## Reasons", "", *reasons.lines()]
    return "\n".join(text) + "\n", wrong


def _rows(names: list[str]) -> Iterator[tuple[str, dict[str, list[str]]]]:
    with tempfile.TemporaryDirectory() as folder:
        for name in names:
            found: dict[str, Any] = forked(lambda: row(name), SECONDS, Path(folder) / "log")  # noqa: B023
            if "broken" in found:
                found = {f"tp={size}": ["WRONG", found["broken"]] for size in plans.SIZES}
            print(name, *found.values(), file=sys.stderr, flush=True)
            yield name, found


if __name__ == "__main__":
    logging.disable(logging.CRITICAL)
    torch.set_num_threads(1)  # a fork has none of the threads of the process that it is from
    plans.planned()  # imports what each fork needs
    sys.exit(kept_tables.main(sys.argv[1:], KEPT, make))
