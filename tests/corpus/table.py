"""The table of the corpus, from the results of its runs."""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Iterable
from pathlib import Path
from typing import Any

Result = dict[str, Any]
Results = dict[tuple[str, str], Result]

HEAD = """\
# The corpus

Models that no test of the package uses, tried via `dispatch` and `aot`. For each captured model the
ops of the capture are compared, op by op, with an independent account: a dispatch mode of the
script's own that counts what is dispatched, forward and backward, when the same model runs from the
same random state without the package (`tests/corpus/account.py` says by which rules). Outputs and
gradients are compared with those of an eager run, and each graph with what its text gives back.

- *ops*: how many ops ran in the graphs, and via aot how many eagerly beside them, in how many
  islands, with how many graph breaks.
- *share*: `compiled_share`. *lines*: eager ops of the graphs (each island once), forward and
  backward, of which the user's line is known.
- `=`: the account gives the same. `DIFFERS`, `WRONG`: it does not, or outputs, gradients or a text
  differ. `refused`: with the reason below; `REFUSED`: though torch.compile compiles a part of it.
- `torch`: torch itself cannot run the model so, with or without the package. `unlike eager`:
  outputs or gradients are not those of an eager run, and neither are they where torch.compile runs
  the model without the package.

Made by `python -m tests.corpus`, then `python -m tests.corpus --table`.
"""


def read(path: Path) -> Results:
    """The results that were kept, the last one of each measurement."""
    found: Results = {}
    if path.exists():
        for line in path.read_text().splitlines():
            result = json.loads(line)
            found[result["name"], result["via"]] = result
    return found


def good(result: Result) -> bool:
    """Whether a result is a capture of which everything holds."""
    return "counts" in result and result["differs"] == [] and not result["wrong"]


def status(result: Result) -> str:
    """What became of a measurement, in a word."""
    own = next((key for key in ("refused", "crashed", "broken") if key in result), "captured")
    counts = result["account"].get("counts", {})
    if own == "refused" and result["via"] == "aot" and any(key.endswith("graph") for key in counts):
        return "REFUSED"
    if "broken" in result["account"]:
        return "no account" if own == "captured" else "torch"
    if own == "captured" and not good(result):
        return "DIFFERS" if result["differs"] else "WRONG"
    return own


def reason(result: Result) -> str:
    """Why a model was refused, in a line."""
    lines = str(result.get("refused") or result.get("crashed") or result.get("broken")).splitlines()
    line = re.sub(r"^nothing was captured via '\w+': ", "", lines[0])
    if line.endswith("ran it eagerly:") and len(lines) > 1:
        line = f"nothing is compiled: {' '.join(each.strip() for each in lines[1:3])}"
    return line.replace("|", "\\|").strip()[:240]


def total(result: Result, place: str) -> int:
    """How many ops ran in a place, "graph" or "eager"."""
    return sum(sum(ops.values()) for key, ops in result["counts"].items() if key.endswith(place))


class Table:
    """Rows and, numbered, the reasons for what was refused."""

    def __init__(self, known: Results) -> None:
        self.known = known
        self.reasons: list[str] = []

    def cell(self, result: Result | None) -> str:
        """What one mechanism makes of a model."""
        if result is None:
            return ""
        says = status(result)
        if says not in ("captured", "DIFFERS", "WRONG"):
            why = reason(result)
            if why not in self.reasons:
                self.reasons.append(why)
            return f"{says} ({self.reasons.index(why) + 1})"
        ops = f"{total(result, 'graph')}"
        if result["via"] == "aot":
            eager = total(result, "eager")
            ops += f" + {eager} in {result['islands']}" if eager else ""
            ops += f", {result['breaks']} breaks" if result["breaks"] else ""
        unlike = " (unlike eager)" if result.get("as_torch") else ""
        return f"{ops} {'=' if says == 'captured' else says}{unlike}"

    def row(self, name: str, group: str) -> str:
        """The line of a model."""
        aot = self.known.get((name, "aot"))
        share = lines = ""
        if aot is not None and "counts" in aot:
            eager = aot.get("eager", {})
            share = "" if aot.get("share") is None else f"{aot['share']:.2f}"
            halves = [
                f"{eager[f'{phase}_line']}/{eager[f'{phase}_ops']}"
                for phase in ("forward", "backward")
                if eager.get(f"{phase}_ops")
            ]
            lines = ", ".join(halves)
        cells = [name, group, self.cell(self.known.get((name, "dispatch"))), self.cell(aot)]
        return f"| {' | '.join([*cells, share, lines])} |"

    def text(self) -> str:
        """The document."""
        names = {name: result["group"] for (name, _), result in self.known.items()}
        rows = [self.row(name, group) for name, group in names.items()]
        head = "| model | from | dispatch | aot | share | lines |\n|---|---|---|---|---|---|"
        notes = [f"{number}. {why}" for number, why in enumerate(self.reasons, 1)]
        return "\n".join([HEAD, totals(self.known.values()), head, *rows, "", *notes]) + "\n"


def totals(results: Iterable[Result]) -> str:
    """How often what happened, and how many eager ops have a line and a module."""
    said: dict[str, Counter[str]] = {}
    eager: Counter[str] = Counter()
    for result in results:
        said.setdefault(result["via"], Counter())[status(result)] += 1
        if result["via"] == "aot" and "counts" in result:
            eager.update(result.get("eager", {}))
            eager["models"] += bool(total(result, "eager"))
    lines = [
        f"- via {via}: {sum(counts.values())} models, "
        + ", ".join(f"{number} {what}" for what, number in counts.most_common())
        for via, counts in said.items()
    ]
    lines.append(f"- {eager['models']} captures via aot have eager ops")
    lines += [
        f"- {phase} eager ops: {eager[f'{phase}_ops']}, with a line {eager[f'{phase}_line']}, with "
        f"a module below the target's own {eager[f'{phase}_module']}"
        for phase in ("forward", "backward")
    ]
    return "\n".join([*lines, ""])


def text(known: Results) -> str:
    """The document."""
    return Table(known).text()
