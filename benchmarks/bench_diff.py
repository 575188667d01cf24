"""How long a diff takes, by size of the graph: it grows in proportion.

`python benchmarks/bench_diff.py`. Targets: at 10,000 nodes one insert under 0.4 s and an edit
of the class of all 200 layers under 1.5 s; at 50,000 five times as long. The yardsticks are the
comparison with an equal graph in another order, and reading the text. `costs` is the figures of
all findings take, where half of the ops save something: no more than a fifth of the diff.
"""

from __future__ import annotations

import random
import sys
import time
from dataclasses import replace
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))
sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))

from graph.build import difference
from graph.edited_layers import BINARY, INPUT, PARTS, UNARY, Edit, Op, model_of
from graph.edits import graph, insert, layers, scattered, topologically_shuffled

from benchmarks.timing import medians, table
from pytest_torchgraph.graph import Graph, Ref


def class_edited(size: int) -> tuple[Graph, Graph]:
    """A model of layers of 50 ops, and the same with one op of their class exchanged."""
    words = [*UNARY, *BINARY]
    layer = {
        k: Op(words[k % 8], PARTS[k // 5 % 5], (k - 1, *[INPUT] * (k % 8 > 5))) for k in range(50)
    }
    edit = Edit("exchange", 20, "tanh")
    layers = [layer] * (size // 50)
    return model_of(layers).graph, model_of([edit.of(layer)] * len(layers)).graph


def saving(graph: Graph) -> Graph:
    """The graph as a forward that saves what its products and its `relu`s need."""
    saved = dict.fromkeys(
        name
        for node in graph.nodes
        for name in {"aten.mul.default": node.refs, "aten.relu.default": (node.name,)}.get(
            node.op, ()
        )
    )
    return replace(graph, level="aot", saved=tuple(map(Ref, saved)))


def seconds_of_costs(before: Graph, after: Graph) -> float:
    """How long the costs of all findings take, once the findings are there."""
    findings = difference(saving(before), saving(after)).findings
    start = time.perf_counter()
    for finding in findings:
        _ = finding.cost
    return time.perf_counter() - start


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
            cases = {"1 insert": (before, graph(one))}
            cases[f"{10 if size == 1_000 else 100} edits"] = before, graph(many)
            if scoped:
                cases["class"] = class_edited(size)
            for name, (before, after) in cases.items():
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
                        seconds_of_costs(before, after),
                        1e6 * times["diff"] / size,
                    )
                )
    heads = (
        "nodes",
        "change",
        "graph",
        "findings",
        "diff s",
        "== s",
        "parse s",
        "costs s",
        "diff us/node",
    )
    table(heads, rows)


if __name__ == "__main__":
    main()
