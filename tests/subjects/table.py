"""Print the table of subjects and mechanisms: `table.py [--check] [SUBJECT...]`.

Every entry is checked first; an entry that is wrong is printed as such and makes the command fail.
`--check` compares with the kept table, `docs/subjects.md`, instead of printing.
"""

from __future__ import annotations

import re
import sys
import warnings
from pathlib import Path

ROOT = Path(__file__).parents[2]
sys.path[:0] = [str(ROOT / "tests"), str(ROOT)]

from subjects.models import SUBJECTS  # noqa: E402
from subjects.subject_results import MECHANISMS, Found, look, misread  # noqa: E402

EAGER = "eager ops"
COLUMNS = (*MECHANISMS, EAGER, "texts")
KEPT = ROOT / "docs" / "subjects.md"
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
    """Rows and, numbered, the reasons for what was refused."""

    def __init__(self) -> None:
        self.rows: list[str] = []
        self.reasons: list[str] = []
        self.wrong: list[str] = []

    def add(self, name: str) -> None:
        found = {via: look(name, via) for via in MECHANISMS}
        for via, each in found.items():
            self.wrong += [f"{name} via {via}: {line}" for line in each.wrong]
        aot = found["aot"]
        eager = "none" if aot.refused else aot.eager
        cells = [name, *(self.cell(each) for each in found.values()), eager]
        cells.append(self.texts(name, found))
        self.rows.append(f"| {' | '.join(cells)} |")

    def cell(self, found: Found) -> str:
        if not found.refused:
            return found.says + (" WRONG" if found.wrong else "")
        if found.says not in self.reasons:
            self.reasons.append(found.says)
        return f"refused ({self.reasons.index(found.says) + 1})"

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
        columns = ["subject", *COLUMNS]
        lines = [HEAD, f"| {' | '.join(columns)} |", "|---" * len(columns) + "|", *self.rows, ""]
        lines += [f"{number}. {reason}" for number, reason in enumerate(self.reasons, 1)]
        return "\n".join(lines) + "\n"


def kept() -> dict[tuple[str, str], str]:
    """What the kept table says of each subject and mechanism, reasons spelt out."""
    return entries(KEPT.read_text())


def entries(text: str) -> dict[tuple[str, str], str]:
    """What a table says of each subject and mechanism, reasons spelt out."""
    reasons = dict(re.findall(r"^(\d+)\. (.+)$", text, re.MULTILINE))
    found = {}
    row = r"^\| (\w+)" + r" \| ([^|]+)" * len(COLUMNS) + r" \|$"
    for name, *cells in re.findall(row, text, re.MULTILINE):
        for via, cell in zip(COLUMNS, cells, strict=True):
            number = re.fullmatch(r"refused \((\d+)\)", cell)
            found[name, via] = reasons[number[1]] if number else cell
    return {key: cell for key, cell in found.items() if key[0] != "subject"}


def main(arguments: list[str]) -> int:
    warnings.simplefilter("ignore")
    names = [each for each in arguments if not each.startswith("-")]
    table = Table()
    for name in names or SUBJECTS:
        print(f"{name} ...", file=sys.stderr, flush=True)
        table.add(name)
    print("\n".join(table.wrong), file=sys.stderr)
    if "--check" not in arguments:
        print(table.text(), end="")
        return bool(table.wrong)
    text = table.text()
    some = entries(text).items() <= kept().items()  # in a part the reasons have other numbers
    same = some if names else text == KEPT.read_text()
    print("as kept" if same else f"not as in docs/{KEPT.name}:\n{text}")
    return bool(table.wrong) or not same


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
