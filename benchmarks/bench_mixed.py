"""Two different edits at random places of captured models: findings that mix them, or split one.

`python benchmarks/bench_mixed.py FOLDER [PAIRS]`, with the captures that `bench_places.py`
keeps in FOLDER. Each pair is two edits, each made in some instances of a module: another op in the
place of one, or a new op behind it, in the forward. Target: none mixed.
"""

from __future__ import annotations

import random
import sys
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1]))

from benchmarks.timing import table
from pytest_torchgraph.graph import Graph, Node, Ref, diff_graphs, parse_document
from pytest_torchgraph.graph.diff.paths import holds, instances_of

Sites = dict[tuple[str, str], list[tuple[str, str]]]
"""Ops that are alike in the instances of a module, as instance and name, by list and inner name."""


def sites(graph: Graph) -> Sites:
    """The ops of a graph that have their like in another instance."""
    found: Sites = {}
    for node in graph.nodes:
        if node.is_call and node.op != "operator.getitem" and not isinstance(node.result, tuple):
            for instance in instances_of(node.module)[-1:]:
                if holds(instance, node.name):
                    key = instance.rpartition(".")[0], node.name[len(instance) :]
                    found.setdefault(key, []).append((instance, node.name))
    return {key: places for key, places in found.items() if len(places) > 1}


def edited(graph: Graph, exchanged: dict[str, str], inserted: dict[str, str]) -> Graph:
    """The graph with ops exchanged, and with new ops behind others that take over all uses."""
    moved: dict[str, str] = {}

    def change(value: Any) -> Any:
        if isinstance(value, Ref):
            return Ref(moved.get(value.name, value.name))
        return tuple(map(change, value)) if isinstance(value, tuple) else value

    nodes: list[Node] = []
    for node in graph.nodes:
        node = replace(node, args=change(node.args))
        if node.name in exchanged:
            node = replace(node, op=exchanged[node.name])
        nodes.append(node)
        if node.name in inserted:
            name = f"{node.name}_new"
            args = (Ref(node.name),)
            nodes.append(replace(node, name=name, op=inserted[node.name], args=args, kwargs={}))
            moved[node.name] = name
    return replace(graph, nodes=tuple(nodes), saved=())


def pairs(graph: Graph, count: int, rng: random.Random) -> Iterator[tuple[Graph, dict[str, int]]]:
    """Edited graphs, each with the number of the edit that made a node."""
    every = sites(graph)
    for _ in range(count):
        exchanged: dict[str, str] = {}
        inserted: dict[str, str] = {}
        edits: dict[str, int] = {}
        taken: set[str] = set()
        seen: list[tuple[Any, ...]] = []
        for number in range(2):
            site = rng.choice(sorted(every))
            kind = rng.choice(["exchange", "insert"])
            op = f"aten.{rng.choice(['tanh', 'erf'])}.default"
            if (site[1], kind, op) in seen:  # in another list it would be the same edit
                op = "aten.exp.default"
            seen.append((site[1], kind, op))
            places = [each for each in every[site] if each[0] not in taken]
            for instance, name in rng.sample(places, min(len(places), rng.randrange(1, 5))):
                taken.add(instance)
                (exchanged if kind == "exchange" else inserted)[name] = op
                edits[name if kind == "exchange" else f"{name}_new"] = number
        yield edited(graph, exchanged, inserted), edits


def made_by(edits: dict[str, int], changes: Sequence[Any]) -> set[int]:
    """The edits that made some of these changes."""
    names = [change.after.name for change in changes if change.after is not None]
    return {edits[name] for name in names if name in edits}


def main() -> None:
    """Print, for each model, how many pairs were mixed, exact, or split further."""
    folder, count = Path(sys.argv[1]), int(sys.argv[2]) if len(sys.argv) > 2 else 100
    rows = []
    for path in sorted(folder.glob("*-base.tgraph")):
        rng = random.Random(path.name)
        (graph,) = (
            replace(graph, saved=())
            for graph in parse_document(path.read_text(encoding="utf-8")).graphs
            if graph.kind == "forward"
        )
        told: Counter[str] = Counter()
        for after, edits in pairs(graph, count, rng):
            found = diff_graphs([graph], [after]).findings
            of = [[made_by(edits, place.changes) for place in each.places] for each in found]
            touching = any(len(place) > 1 for places in of for place in places)
            mixed = any(len(set().union(*places)) > 1 for places in of)
            if touching:  # edits of neighbours: side by side two are one
                told["touching"] += 1
            elif mixed:
                told["mixed"] += 1
                print(f"mixed in {path.name}: {edits}")
            else:
                told["exact" if len(found) == len(set(edits.values())) else "split"] += 1
        name = path.name.removesuffix("-base.tgraph")
        rows.append((name, count, *(told[w] for w in ("exact", "split", "touching", "mixed"))))
    table(("model", "pairs", "exact", "split", "touching", "mixed"), rows)


if __name__ == "__main__":
    main()
