"""Every single edit at every position of a model without modules: how many are one finding.

`python benchmarks/bench_findings.py [models] [cases]`, about 20 seconds for each model of 300
ops. The tests take a sample of these positions. Then several edits at once, by default 500 cases of
each kind: findings for each edit, where nodes have module paths and where they have none, the edits
in different layers, at some distance or side by side.
"""

from __future__ import annotations

import random
import sys
from collections import Counter
from collections.abc import Callable
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))
sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))

from graph.build import difference
from graph.edits import EDITS, Nodes, chain, exchange, graph, layers, topologically_shuffled

from benchmarks.timing import table


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
    print("In a run of equal ops the dataflow leaves open which one it was; the names say it.\n")
    several(int(sys.argv[2]) if len(sys.argv) > 2 else 500)


SIZE = 12
BASES: dict[str, Callable[[int], Nodes]] = {
    "layers in modules": lambda seed: layers(40, scoped=True, size=SIZE),
    "the same without": lambda seed: layers(40, scoped=False, size=SIZE),
    "random, no modules": lambda seed: chain(40 * SIZE, seed),
}


def several(cases: int) -> None:
    """Print how many findings there are for each of 2 to 10 edits."""
    rows = []
    for name, made in BASES.items():
        for apart in (SIZE, 4, 2, 1):
            edits = found = exact = 0
            for seed in range(cases):
                rng = random.Random(f"{name}{apart}{seed}")
                base = made(seed)
                edited, count = edited_at(base, apart, rng)
                if seed % 2:
                    edited = topologically_shuffled(edited, rng)
                number = len(difference(graph(base), graph(edited)).findings)
                edits += count
                found += number
                exact += number == count
            rows.append((name, apart, cases, edits, found, found / edits, 100 * exact / cases))
    heads = ("graphs of 480 ops", "apart", "cases", "edits", "findings", "ratio", "exact %")
    table(heads, rows)
    print("Edits of nodes next to each other are one finding by intention: ratios below 1.")


def edited_at(base: Nodes, apart: int, rng: random.Random) -> tuple[Nodes, int]:
    """The graph after some edits, the furthest apart in layers of their own."""
    count = rng.randrange(2, 11)
    first = next(k for k, node in enumerate(base) if node.kind != "placeholder")
    if apart == SIZE:
        places = [first + SIZE * k + rng.randrange(8, 11) for k in rng.sample(range(40), count)]
    else:
        start = first + rng.randrange(10, 300)
        places = [start + apart * k for k in range(count)]
    nodes = base
    for at in sorted(places, reverse=True):
        kind = rng.choice(("insert", "exchange", "remove", "rewire"))
        nodes = (EDITS[kind](nodes, at, rng) or exchange(nodes, at, rng)).nodes
    return nodes, count


if __name__ == "__main__":
    main()
