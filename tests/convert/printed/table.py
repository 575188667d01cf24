"""Print the table of agreement: for each subject and level, the graphs and the differing ones.

`python tests/convert/printed/table.py` in the repository root.
"""

from __future__ import annotations

import sys
import warnings
from collections import Counter
from pathlib import Path
from typing import Any

sys.path[:0] = [str(Path(__file__).parents[2]), str(Path(__file__).parents[3])]

from convert.printed.compare import differences  # noqa: E402
from convert.printed.live_and_printed import compiled, post_grad, read_all  # noqa: E402
from convert.printed.subjects import SUBJECTS  # noqa: E402

COLUMNS = ("dynamo", "joint", "forward", "backward", "inference", "compiled autograd", "post-grad")
RUNS: tuple[tuple[Any, bool], ...] = (("aot_eager", False), (post_grad, False), ("aot_eager", True))


def column(artifact: str) -> str:
    if artifact.startswith("compiled_autograd"):
        return "compiled autograd"
    if "post_grad" in artifact:
        return "post-grad"
    return artifact.removeprefix("aot_").removesuffix("_graph").removesuffix("_output")


def row(name: str) -> tuple[list[str], Counter[str]]:
    graphs: Counter[str] = Counter()
    bodies: Counter[str] = Counter()
    wrong: Counter[str] = Counter()
    refused = ""
    for backend, autograd in RUNS:
        try:
            seen = compiled(SUBJECTS[name](), backend, autograd=autograd)
        except Exception as error:  # this torch refuses the subject at this level
            refused = f"; compiled autograd: {type(error).__name__}" if autograd else "; refused"
            continue
        for pair, graph in read_all(seen):
            graphs[column(pair.artifact)] += 1
            bodies[column(pair.artifact)] += len(list(graph.walk())) - 1
            wrong[column(pair.artifact)] += bool(differences(pair.live, graph))
    cells = []
    for title in COLUMNS:
        inner = f"+{bodies[title]}" if bodies[title] else ""
        cells.append(f"{graphs[title]}{inner}/{wrong[title]}" if graphs[title] else "-")
    total = Counter(graphs=graphs.total(), bodies=bodies.total(), differences=wrong.total())
    return [name + refused, *cells], total


def main() -> None:
    warnings.simplefilter("ignore")
    print("graphs+bodies/differences, over aot_eager, inductor and compiled autograd\n")
    print("| subject |", " | ".join(COLUMNS), "|")
    print("|---" * (len(COLUMNS) + 1) + "|")
    total: Counter[str] = Counter()
    for name in SUBJECTS:
        cells, counts = row(name)
        total += counts
        print("|", " | ".join(cells), "|", flush=True)
    print(
        f"\n{total['graphs']} graphs, {total['bodies']} bodies, {total['differences']} differences"
    )


if __name__ == "__main__":
    main()
