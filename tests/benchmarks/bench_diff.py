"""How long a diff takes, by size of the graph: it grows in proportion.

`python tests/benchmarks/bench_diff.py`. Targets: 10,000 nodes under 1 s, 50,000 under 2 s. The
yardsticks are the comparison with an equal graph in another order, and reading the text.
"""

from __future__ import annotations

import random
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))

from benchmarks.timing import medians, table
from graph.build import difference
from graph.edits import graph, insert, layers, scattered, topologically_shuffled

from pytest_torchgraph.graph import Graph


def main() -> None:
    """Print the table."""
    rows = []
    for scoped in (True, False):
        for size in (1_000, 10_000, 50_000):
            base = layers(size // 50, scoped=scoped)
            many, _ = scattered(base, 10 if size == 1_000 else 100, seed=0)
            one = insert(base, len(base) // 2, random.Random(0)).nodes
            before = graph(base)
            text = before.to_text(fold=False)
            same = graph(topologically_shuffled(base, random.Random(0)))
            for name, edited in (
                ("1 insert", one),
                (f"{10 if size == 1_000 else 100} edits", many),
            ):
                after = graph(edited)
                found = len(difference(before, after).findings)
                times = medians(
                    {
                        "diff": lambda a=before, b=after: difference(a, b),
                        "==": lambda a=before, b=same: a == b,
                        "parse": lambda t=text: Graph.from_text(t),
                    }
                )
                kind = "modules" if scoped else "flat"
                rows.append(
                    (
                        *(size, name, kind, found, times["diff"], times["=="], times["parse"]),
                        1e6 * times["diff"] / size,
                    )
                )
    heads = ("nodes", "change", "graph", "findings", "diff s", "== s", "parse s", "diff us/node")
    table(heads, rows)


if __name__ == "__main__":
    main()
