"""Causes over many files: of a new release of torch, of a rewrite in many models, of random edits.

    bench_causes.py releases OLD NEW      what `subjects/releases.py store` wrote with two releases
    bench_causes.py rewrite OLD           `split` made `slice` in all models of one of these
    bench_causes.py mixed OLD [PAIRS]     two different edits, in a file each
    bench_causes.py files [COUNT]         so many files of 500 ops, one edit in each

Targets: at least 95% of the nodes that differ are in causes of several places or files; one cause;
none mixed; 200 files in 10 s.
"""

from __future__ import annotations

import random
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1]))
sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))

from graph.edited_layers import Edit, Op, model_of

from benchmarks.bench_mixed import edited, sites
from benchmarks.timing import table
from pytest_torchgraph import diff
from pytest_torchgraph.graph import (
    Finding,
    Graph,
    GraphDiff,
    Node,
    Ref,
    TensorMeta,
    diff_graphs,
    format_document,
    merge_edits,
    parse_document,
)

MECHANISMS = ("dispatch", "dynamo", "aot", "export")


def stored(directory: Path) -> dict[str, tuple[Graph, ...]]:
    """The graphs of each subject and mechanism that was not refused."""
    texts = {path.stem: path.read_text(encoding="utf-8") for path in sorted(directory.iterdir())}
    return {
        name: parse_document(text).graphs
        for name, text in texts.items()
        if text.startswith("torchgraph")
    }


# -- two releases ----------------------------------------------------------------------------------


def causes_of(
    diffs: Iterable[tuple[str, GraphDiff]], upgraded: Collection[str] = ()
) -> tuple[Finding, ...]:
    items = [(name, finding) for name, diff in diffs for finding in diff.findings]
    return merge_edits(items, upgraded=upgraded)


def nodes_of(cause: Finding) -> int:
    """How many nodes a cause changed, with what follows from it."""
    return sum(len(place.changes) + len(place.consequences) for place in cause.places)


def releases(old: Path, new: Path) -> None:
    """Print the causes of two releases, for each mechanism and for all together."""
    before, after = stored(old), stored(new)
    diffs = [(name, diff_graphs(before[name], after[name])) for name in before if name in after]
    rows = []
    for via in (*MECHANISMS, ""):
        some = [(name, diff) for name, diff in diffs if name.endswith(via) and diff]
        causes = causes_of(some, upgraded={name for name, _ in some})
        every = sum(map(nodes_of, causes))
        shared = sum(
            nodes_of(each) for each in causes if len(each.files) > 1 or len(each.places) > 1
        )
        findings = sum(len(diff.findings) for _, diff in some)
        share = f"{shared / every:.1%}" if every else "-"
        rows.append((via or "all", len(some), findings, len(causes), every, share))
    table(("via", "files", "findings", "causes", "nodes", "in causes of several"), rows)
    only = sorted(before.keys() ^ after.keys())
    print("refused with one of the two:", ", ".join(only) or "none")


# -- a rewrite -------------------------------------------------------------------------------------


def halves(graph: Graph, *, split: bool) -> Graph:
    """The graph with each result of `addmm` taken apart in halves and put together again."""
    nodes: list[Node] = []
    taken: dict[str, str] = {}

    def moved(value: Any) -> Any:
        if isinstance(value, Ref):
            return Ref(taken.get(value.name, value.name))
        return tuple(map(moved, value)) if isinstance(value, tuple) else value

    for node in graph.nodes:
        nodes.append(replace(node, args=moved(node.args)))
        meta = node.result
        if node.op != "aten.addmm.default" or not isinstance(meta, TensorMeta):
            continue
        size = meta.shape[1]
        if not isinstance(size, int) or size % 2:
            continue
        half = replace(meta, shape=(meta.shape[0], size // 2))

        def made(
            word: str, op: str, args: tuple[Any, ...], result: Any, after: Node = node
        ) -> Node:
            name = f"{after.name}_{word}"
            return replace(after, name=name, op=op, args=args, kwargs={}, result=result, effects=())

        whole = Ref(node.name)
        if split:
            both = made("split", "aten.split.Tensor", (whole, size // 2, 1), (half, half))
            parts = [
                made(f"split#{k}", "operator.getitem", (Ref(both.name), k), half) for k in (0, 1)
            ]
            nodes.append(both)
        else:
            ends = (0, size // 2, size)
            parts = [
                made(f"slice{k}", "aten.slice.Tensor", (whole, 1, ends[k], ends[k + 1]), half)
                for k in (0, 1)
            ]
        cat = made("cat", "aten.cat.default", (tuple(Ref(part.name) for part in parts), 1), meta)
        nodes += [*parts, cat]
        taken[node.name] = cat.name
    return replace(graph, nodes=tuple(nodes), saved=())


def rewrite(old: Path) -> None:
    """Print how many causes a rewrite has, in all models that have an `addmm` and no `split`."""
    rows = []
    for via in ("aot", "dispatch"):
        found: list[tuple[str, GraphDiff]] = []
        for name, graphs in stored(old).items():
            forwards = [graph for graph in graphs if graph.kind != "backward"]
            has_split = any("aten.split" in node.op for graph in forwards for node in graph.nodes)
            if not name.endswith(via) or has_split:
                continue
            before, after = ([halves(g, split=how) for g in forwards] for how in (True, False))
            if diff := diff_graphs(before, after):
                found.append((name, diff))
        causes = causes_of(found)
        findings = sum(len(diff.findings) for _, diff in found)
        rows.append((via, len(found), findings, sum(len(c.places) for c in causes), len(causes)))
    table(("via", "models", "findings", "places", "causes"), rows)


# -- random edits ----------------------------------------------------------------------------------


def mixed(old: Path, count: int) -> None:
    """Print how many pairs of different edits, in a file each, were made one cause."""
    rows = []
    for name, graphs in stored(old).items():
        forwards = [g for g in graphs if g.kind != "backward" and len(sites(g)) > 4]
        if not name.endswith(".aot") or not forwards:
            continue
        rng = random.Random(name)
        (graph,) = (replace(forwards[0], saved=()),)
        told: Counter[str] = Counter()
        for first, second, again in two_edits(graph, count, rng):
            diffs = [("a", diff_graphs([graph], [first])), ("b", diff_graphs([graph], [second]))]
            together = any(len(cause.files) > 1 for cause in causes_of(diffs))
            told["mixed" if together else "apart"] += 1
            diffs[1] = ("b", diff_graphs([graph], [again]))
            told["split"] += len(causes_of(diffs)) != 1
        rows.append((name, count, told["apart"], told["mixed"], told["split"]))
    rows.append(("all", *(sum(row[k] for row in rows) for k in (1, 2, 3, 4))))
    table(("model", "pairs", "apart", "mixed", "one edit in two files split"), rows)


def two_edits(graph: Graph, count: int, rng: random.Random) -> Iterator[tuple[Graph, Graph, Graph]]:
    """Graphs with an edit in some instances of a module, with another one, with the first again.

    Each edit is in instances of its own choice. The same op of the same class in another list of
    layers, as in the two towers of a CLIP, is the same edit.
    """
    every = sites(graph)
    for _ in range(count):
        made: list[Graph] = []
        seen: list[tuple[Any, ...]] = []
        while len(made) < 3:
            site = rng.choice(sorted(every))
            edit = (site, rng.choice(["exchange", "insert"]), rng.choice(["tanh", "erf"]))
            if len(made) == 2:
                site, _, _ = edit = seen[0]
            elif (site[1], *edit[1:]) in {(other[1], *rest) for other, *rest in seen}:
                continue
            seen.append(edit)
            some = rng.sample(every[site], rng.randrange(1, len(every[site]) + 1))
            change = {name: f"aten.{edit[2]}.default" for _, name in some}
            exchanged, inserted = (change, {}) if edit[1] == "exchange" else ({}, change)
            made.append(edited(graph, exchanged, inserted))
        yield made[0], made[1], made[2]


# -- many files ------------------------------------------------------------------------------------


def files(count: int) -> None:
    """Print how long `diff` takes with so many files, all of them different or most equal."""
    layer = {k: Op(("sin", "cos", "relu", "abs")[k % 4], "mlp", (k - 1,)) for k in range(50)}
    edit = Edit("exchange", 10, "tanh")
    rows = []
    for changed in (count, count // 10, 0):
        with tempfile.TemporaryDirectory() as directory:
            for side in ("old", "new"):
                Path(directory, side).mkdir()
                for k in range(count):
                    new = side == "new" and k < changed
                    layers = [edit.of(layer) if new else layer] * 10
                    graph = model_of(layers, f"m{k}.layers").graph
                    text = format_document((graph,))
                    Path(directory, side, f"{k}.tgraph").write_text(text, encoding="utf-8")
            start = time.perf_counter()
            found = diff(Path(directory, "old"), Path(directory, "new"))
            seconds = time.perf_counter() - start
        rows.append((count, changed, len(found.findings), f"{seconds:.1f}"))
    table(("files", "changed", "causes", "seconds"), rows)
    assert "torch" not in sys.modules


COMMANDS: dict[str, Callable[[Sequence[str]], None]] = {
    "releases": lambda words: releases(Path(words[0]), Path(words[1])),
    "rewrite": lambda words: rewrite(Path(words[0])),
    "mixed": lambda words: mixed(Path(words[0]), int(words[1]) if len(words) > 1 else 100),
    "files": lambda words: files(int(words[0]) if words else 200),
}

if __name__ == "__main__":
    COMMANDS[sys.argv[1]](sys.argv[2:])
