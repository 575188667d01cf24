"""Prints what torch's log says of each kind of recompilation, beside what a watch says.

Run with `python -m watching.recompile_table > ../docs/recompiles.md` in `tests/`; `--check`
compares with the kept table instead.
"""

from __future__ import annotations

import re
import sys
import warnings
from pathlib import Path

import torch
from watching.recompile_kinds import KINDS, facts, run

KEPT = Path(__file__).parents[2] / "docs" / "recompiles.md"
RELEASE = "2.13"
"""The torch whose messages are kept."""
HEAD = f"""\
# Recompilations, as torch tells them and as a watch does

For each kind what `TORCH_LOGS=recompiles` of torch {RELEASE} prints, and what `str(recompile)`
gives, which the failing message of `assert_no_recompiles()` has as well. The facts of torch's
message (ids of compilations, the guard, old and new values, the line with its code, each frame of
the stack, hints) are read out of its log by code that shares nothing with the package, and looked
for in ours.

Made by `python -m watching.recompile_table > ../docs/recompiles.md` in `tests/`; `--check`
compares, and so does a test.
"""


def text() -> str:
    """The document."""
    rows = ["| kind | facts of torch's | of them in ours | a line | the new value |"]
    rows.append("|---" * 5 + "|")
    parts = []
    for name, kind in KINDS.items():
        log, recompile = run(name)
        said, known = str(recompile), facts(log)
        guard = re.sub(r"  # .*", "", log.partition("\n    - ")[2].partition("\n")[0])
        both = [("torch", "# " in log, kind.new.split()[-1] in guard)]
        ours = any(each.source is not None for each in recompile.failed_guards)
        both.append(("ours", ours, kind.new in said))
        line, value = (", ".join(each[0] for each in both if each[n]) or "none" for n in (1, 2))
        found = sum(fact in said for fact in known)
        rows.append(f"| {name} | {len(known)} | {found} | {line} | {value} |")
        parts += ["", f"## {name[0].upper()}{name[1:]}", "", "torch:", "", *_block(log)]
        parts += ["", "A watch:", "", *_block(said)]
    return "\n".join([HEAD, *rows, *parts]) + "\n"


def _block(message: str) -> list[str]:
    return ["```text", *(line.rstrip() for line in anonymous(message).splitlines()), "```"]


def anonymous(message: str) -> str:
    """A message without what is another one on each machine and in each run."""
    message = re.sub(r"[^\s\"(]*/(?=torch/nn/)", "", message)
    message = re.sub(r"[^\s\"(]*watching/(?=recompile_)", "tests/watching/", message)
    return re.sub(r"0x[0-9a-f]{6,}|\b\d{9,}\b", "...", message)


def main(arguments: list[str]) -> int:
    warnings.simplefilter("ignore")
    if not torch.__version__.startswith(RELEASE):
        print(f"this is torch {torch.__version__}, the kept messages are of {RELEASE}")
        return 1
    made = text()
    if "--check" not in arguments:
        print(made, end="")
        return 0
    same = made == KEPT.read_text()
    print("as kept" if same else f"not as in docs/{KEPT.name}")
    return not same


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
