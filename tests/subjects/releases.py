"""Compare the stored text of every subject between releases of torch.

    releases.py store DIRECTORY [SUBJECT...]     write what the torch at hand captures
    releases.py table DIRECTORY...               print the table, as in docs/releases.md
    releases.py diff SUBJECT MECHANISM OLD NEW   print the lines that differ in two directories

Each release of torch needs a virtual environment of its own, with the same transformers, and
`store` is run in each. `table` and `diff` need no torch.
"""

from __future__ import annotations

import difflib
import sys
import warnings
from pathlib import Path

ROOT = Path(__file__).parents[2]
sys.path[:0] = [str(ROOT / "tests"), str(ROOT)]

MECHANISMS = ("dispatch", "dynamo", "aot", "export")
REFUSED = "refused\n\n"


def store(directory: Path, names: list[str]) -> None:
    """Write the document that a snapshot test would store, or the reason of a refusal."""
    import torch
    from subjects.models import SUBJECTS
    from subjects.subject_results import reason

    from pytest_torchgraph import CaptureError, capture
    from pytest_torchgraph.snapshot import program_of

    directory.mkdir(parents=True, exist_ok=True)
    for name in names or SUBJECTS:
        print(f"{name} ...", file=sys.stderr, flush=True)
        for via in MECHANISMS:
            subject = SUBJECTS[name]()
            with torch.set_grad_enabled(subject.grad):
                try:
                    captured = capture(subject.model, *subject.args, via=via, **subject.kwargs)
                    text = program_of(captured).to_text("dataflow", fold=False)
                except CaptureError as refusal:
                    text = f"{REFUSED}{reason(refusal)}\n"
            (directory / f"{name}.{via}.txt").write_text(text)


def body(path: Path) -> str:
    """Return a stored text without its header, which names the release of torch.

    All refusals are equal, regardless of their message.
    """
    text = path.read_text()
    return REFUSED if text.startswith(REFUSED) else text.partition("\n\n")[2]


def cell(paths: list[Path]) -> str:
    """Return a letter for each release, equal for equal texts."""
    bodies = [body(path) for path in paths]
    letters = {text: "abcdefgh"[number] for number, text in enumerate(dict.fromkeys(bodies))}
    if len(letters) == 1:
        return "refused in all" if paths[0].read_text().startswith(REFUSED) else "same"
    return "".join(letters[text] for text in bodies)


def table(directories: list[Path]) -> None:
    """Print the table and the number of equal entries."""
    names = dict.fromkeys(path.name.split(".")[0] for path in sorted(directories[0].glob("*.txt")))
    cells = {
        (name, via): cell([each / f"{name}.{via}.txt" for each in directories])
        for name in names
        for via in MECHANISMS
    }
    print(f"| subject | {' | '.join(MECHANISMS)} |\n|---{'|---' * len(MECHANISMS)}|")
    for name in names:
        print(f"| {name} | {' | '.join(cells[name, via] for via in MECHANISMS)} |")
    captured = [found for found in cells.values() if found != "refused in all"]
    print(f"\n{captured.count('same')} of {len(captured)} are the same text in all releases.")
    for number in range(len(directories) - 1):
        pair = directories[number : number + 2]
        paths = [
            [each / f"{name}.{via}.txt" for each in pair]
            for (name, via), found in cells.items()
            if found != "refused in all"
        ]
        same = sum(body(old) == body(new) for old, new in paths)
        print(f"{pair[0].name} and {pair[1].name}: {same} of {len(paths)}")


def diff(subject: str, via: str, old: Path, new: Path) -> None:
    """Print the lines that differ in the text of one subject."""
    lines = [(each / f"{subject}.{via}.txt").read_text().splitlines() for each in (old, new)]
    print("\n".join(difflib.unified_diff(*lines, lineterm="", n=1)))


def main(arguments: list[str]) -> None:
    """Run one of the commands above."""
    warnings.simplefilter("ignore")
    command, *rest = arguments
    if command == "store":
        store(Path(rest[0]), rest[1:])
    elif command == "table":
        table([Path(each) for each in rest])
    else:
        diff(rest[0], rest[1], Path(rest[2]), Path(rest[3]))


if __name__ == "__main__":
    main(sys.argv[1:])
