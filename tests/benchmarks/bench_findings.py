"""Every single edit at every position of a model without modules: how many are one finding.

`python tests/benchmarks/bench_findings.py [models]`, about 20 seconds for each model of 300 ops.
The tests take a sample of these positions.
"""

from __future__ import annotations

import random
import sys
from collections import Counter
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))

from benchmarks.timing import table
from graph.build import difference
from graph.edits import EDITS, chain, graph, topologically_shuffled


def main() -> None:
    """Print the table."""
    models = int(sys.argv[1]) if len(sys.argv) > 1 else 1
    tried: Counter[str] = Counter()
    alone: Counter[str] = Counter()
    right: Counter[str] = Counter()
    for seed in range(models):
        base, rng = chain(300, seed), random.Random(seed)
        for at in range(2, len(base) - 1):
            for kind, edit in EDITS.items():
                edited = edit(base, at, rng)
                if edited is None:
                    continue
                nodes = topologically_shuffled(edited.nodes, rng) if at % 2 else edited.nodes
                found = difference(graph(base), graph(nodes)).findings
                tried[kind] += 1
                alone[kind] += len(found) == 1 and len(found[0].changes) == 1
                named = found[0].after or found[0].before
                right[kind] += (found[0].kind, named and named.name) == (edited.kind, edited.name)
    rows = [(kind, tried[kind], alone[kind], right[kind]) for kind in EDITS]
    table(("edit", "tried", "one finding", "named as edited"), rows)
    print("Named otherwise are nodes in runs of equal ops, where it is arbitrary which one it was.")


if __name__ == "__main__":
    main()
