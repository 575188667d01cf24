"""Print the table of subjects and mechanisms: `table.py [--check] [SUBJECT...]`.

Every entry is checked first; an entry that is wrong is printed as such and makes the command fail.
`--check` compares with the kept table, `docs/subjects.md`, instead of printing.
"""

from __future__ import annotations

import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]
sys.path[:0] = [str(ROOT / "tests"), str(ROOT)]

from subjects import kept_tables  # noqa: E402
from subjects.models import SUBJECTS  # noqa: E402
from subjects.subject_results import MECHANISMS, Found, look, misread  # noqa: E402

EAGER = "eager ops"
COLUMNS = (*MECHANISMS, EAGER, "texts")
KEPT = "subjects.md"
HEAD = """\
# Subjects and mechanisms

What each mechanism makes of small real models: the graphs that it captures and the ops in them, or
`refused`, with the reason below. For each captured graph the op counts are those that torch's own
objects give, counted by code that shares nothing with the package, and outputs and gradients are
those of an eager run.

Eager ops: how many ops ran eagerly beside the compiled graphs of the capture via aot, in how many
graphs of `capture.eager`, and how many of them the autograd engine ran to pass gradients on: zeros,
where a model returns logits beside the loss at which the backward starts. Both kinds of graphs
together are, op for op, what a `TorchDispatchMode` of its own counts in a step through
torch.compile. Texts: how many graphs of the subject torch's trace prints at all levels, each of
which gives the graph that the live one gives.

Made by `python tests/subjects/table.py > docs/subjects.md`, in a quarter of an hour; `--check`
compares.
"""


class Table:
    """Rows, and the reasons for what was refused."""

    def __init__(self) -> None:
        self.rows: list[list[str]] = []
        self.reasons = kept_tables.Reasons()
        self.wrong: list[str] = []

    def add(self, name: str) -> None:
        found = {via: look(name, via) for via in MECHANISMS}
        for via, each in found.items():
            self.wrong += [f"{name} via {via}: {line}" for line in each.wrong]
        aot = found["aot"]
        eager = "none" if aot.refused else aot.eager
        cells = [name, *(self.cell(each) for each in found.values()), eager]
        self.rows.append([*cells, self.texts(name, found)])

    def cell(self, found: Found) -> str:
        if not found.refused:
            return found.says + (" WRONG" if found.wrong else "")
        return self.reasons.cell("refused", found.says)

    def texts(self, name: str, found: dict[str, Found]) -> str:
        graphs, wrong = 0, []
        for via, run in (("inductor", "inductor"), ("compiled_autograd", "engine")):
            if not found[via].refused:
                printed, differ = misread(name, run)
                graphs += printed
                wrong += differ
        self.wrong += [f"{name} printed: {line}" for line in wrong]
        return (str(graphs) if graphs else "none") + (" WRONG" if wrong else "")

    def text(self) -> str:
        lines = kept_tables.table(["subject", *COLUMNS], self.rows)
        return "\n".join([HEAD, *lines, "", *self.reasons.lines()]) + "\n"


def kept() -> dict[tuple[str, str], str]:
    """What the kept table says of each subject and mechanism, reasons spelt out."""
    return kept_tables.entries((kept_tables.DOCS / KEPT).read_text())


def make(names: list[str]) -> tuple[str, list[str]]:
    """The text for some subjects, or all, and what is wrong."""
    table = Table()
    for name in names or SUBJECTS:
        print(f"{name} ...", file=sys.stderr, flush=True)
        table.add(name)
    return table.text(), table.wrong


if __name__ == "__main__":
    sys.exit(kept_tables.main(sys.argv[1:], KEPT, make))
