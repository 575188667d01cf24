"""Time and memory of pictures, of graphs of any size and shape.

    python benchmarks/bench_render.py [--sizes=100,1000] [--shapes=layers,wide] [--bert]

Each row is one graph, drawn in a process of its own by `dot`: the whole graph with one node in
focus, and the difference that changing this node makes. Targets: under 5 s up to 10,000 nodes and
under 20 s at 50,000, never more than 1 GiB, Python and `dot` together. Memory is the peak of
Python, the graph included, and of `dot`. `--bert` (needs torch and transformers) adds the forward
and backward of a 12-layer BERT.
"""

from __future__ import annotations

import json
import os
import random
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

from timing import table

from pytest_torchgraph.graph import Graph, Node, Ref, Source, TensorMeta, diff_graphs

SIZES = (100, 1000, 3000, 10000, 50000)
META = TensorMeta("float32", (8, 64))


class Builder:
    """Adds nodes until there are enough."""

    def __init__(self, size: int):
        self.size = size
        self.nodes: list[Node] = []
        self.counts: dict[str, int] = {}
        self.input("x")

    @property
    def full(self) -> bool:
        """Whether there are as many nodes as there should be."""
        return len(self.nodes) >= self.size - 1

    def input(self, name: str, op: str = "input") -> str:
        """Add an input."""
        self.nodes.append(Node(name, "placeholder", op, result=META))
        return name

    def op(self, op: str, *operands: str, module: str = "") -> str:
        """Add a call of an aten op."""
        base = f"{module}/{op}" if module else op
        self.counts[base] = count = self.counts.get(base, 0) + 1
        name = base if count == 1 else f"{base}.{count - 1}"
        source = Source("model.py", len(self.nodes) % 400 + 1, f"x = {op}(x)", "forward")
        args = tuple(map(Ref, operands))
        node = Node(name, "call_function", f"aten.{op}.default", args, {}, META, module, source)
        self.nodes.append(node)
        return name

    def graph(self, last: str) -> Graph:
        """The graph that returns node `last`."""
        output = Node("output", "output", "output", (Ref(last),))
        return Graph((*self.nodes, output), name="forward", level="aot")


def layers(size: int, modules: bool = True) -> Graph:
    """Transformer layers with residuals, parameters, and a mask that each of them reads."""
    build = Builder(size)
    mask = build.input("mask")
    x, number = "x", 0

    def linear(x: str, module: str) -> str:
        weight = build.input(f"{module}.weight", "parameter")
        return build.op("addmm", x, build.op("t", weight, module=at(module)), module=at(module))

    def at(module: str) -> str:
        return module if modules else ""

    while not build.full:
        layer = f"encoder.layer.{number}"
        q, k, v = (linear(x, f"{layer}.attention.self.{name}") for name in ("q", "k", "v"))
        inside = at(f"{layer}.attention.self")
        scores = build.op("add", build.op("bmm", q, k, module=inside), mask, module=inside)
        found = build.op("bmm", build.op("softmax", scores, module=inside), v, module=inside)
        out = linear(found, f"{layer}.attention.output.dense")
        x = build.op("add", out, x, module=at(f"{layer}.attention.output"))
        up = build.op("gelu", linear(x, f"{layer}.mlp.up"), module=at(f"{layer}.mlp.act"))
        x = build.op("add", linear(up, f"{layer}.mlp.down"), x, module=at(layer))
        number += 1
    return build.graph(x)


def flat(size: int) -> Graph:
    """The same without module paths."""
    return layers(size, modules=False)


def wide(size: int) -> Graph:
    """Branches of ten ops side by side, a module each, and all of them added up."""
    build = Builder(size)
    ends = []
    while len(build.nodes) < size - 2:
        x = "x"
        for step in range(10):
            x = build.op(("mul", "sin", "exp")[step % 3], x, module=f"branch.{len(ends)}")
        ends.append(x)
    return build.graph(build.op("cat", *ends))


def deep(size: int) -> Graph:
    """Modules inside each other, two ops in each, up to a hundred levels."""
    build = Builder(size)
    x, stack = "x", 0
    while not build.full:
        for depth in range(1, 101):
            if build.full:
                break
            path = f"stack.{stack}." + ".".join(["inner"] * depth)
            x = build.op("sin", build.op("mul", x, module=path), module=path)
        stack += 1
    return build.graph(x)


def tangled(size: int) -> Graph:
    """Ops on any two of the two hundred before them, without modules."""
    build = Builder(size)
    chance = random.Random(0)
    names = ["x"]
    while not build.full:
        names.append(build.op("add", *chance.choices(names[-200:], k=2)))
    return build.graph(names[-1])


SHAPES: dict[str, Callable[[int], Graph]] = {
    "layers": layers,
    "flat": flat,
    "wide": wide,
    "deep": deep,
    "tangled": tangled,
}


def measure(graph: Graph) -> dict[str, Any]:
    """Draw a graph in both ways. To be called once in a process: memory is its peak."""
    from pytest_torchgraph.render import diff_to_dot, draw, whole

    calls = [number for number, node in enumerate(graph.nodes) if node.is_call]
    number = calls[len(calls) * 2 // 3]
    node = graph.nodes[number]
    nodes = list(graph.nodes)
    nodes[number] = replace(node, op="aten.relu.default")
    edited = replace(graph, nodes=tuple(nodes))
    row: dict[str, Any] = {}
    with tempfile.TemporaryDirectory() as folder:
        start = time.perf_counter()
        picture = whole.drawing(graph, focus=[node.name])
        digraph = picture.digraph
        row["whole: to_dot s"] = time.perf_counter() - start
        drawn = draw(digraph, Path(folder, "g.svg"), 60)
        row["whole: all s"] = time.perf_counter() - start
        assert drawn.renderer == "dot", drawn.note
        users = [n.name for n in graph.nodes if node.name in n.refs and n.kind != "output"]
        for name in (node.name, *node.refs, *users):  # what must be seen whatever is folded
            element = picture.elements[picture.id_of(graph.name, name) or ""]
            assert element.kind in ("node", "port"), (name, element)
        row["boxes"] = digraph.source.count(' class="tg-') - digraph.source.count(" -> ")

        start = time.perf_counter()
        found = diff_graphs((graph,), (edited,))
        row["diff s"] = time.perf_counter() - start
        assert found
        start = time.perf_counter()
        drawn = draw(diff_to_dot(found), Path(folder, "d.svg"), 60)
        row["difference: all s"] = time.perf_counter() - start
        assert drawn.renderer == "dot", drawn.note
        text = drawn.path.read_text(encoding="utf-8")
        assert "aten.relu" in text
        assert not node.module or node.module[-30:] in text
    row["Python MiB"] = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss >> 10
    row["dot MiB"] = resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss >> 10
    row["nodes"] = len(graph.nodes)
    return row


def bert() -> tuple[Graph, Graph]:
    """Forward and backward of a small BERT with 12 layers."""
    import torch
    from transformers import BertConfig, BertModel

    import pytest_torchgraph

    torch.manual_seed(0)
    config = BertConfig(
        hidden_size=64,
        num_attention_heads=4,
        intermediate_size=128,
        vocab_size=100,
        num_hidden_layers=12,
        attn_implementation="eager",
    )
    tokens = torch.randint(0, 100, (2, 16))
    capture = pytest_torchgraph.capture(
        BertModel(config), input_ids=tokens, attention_mask=torch.ones_like(tokens)
    )
    return capture.forward, capture.backward


def case(name: str) -> None:
    """Measure one case and print it as JSON."""
    shape, _, size = name.partition(":")
    graph = bert()[size == "backward"] if shape == "bert" else SHAPES[shape](int(size))
    print(json.dumps(measure(graph)))


def main() -> None:
    """Print the table."""
    options = dict(argument.lstrip("-").partition("=")[::2] for argument in sys.argv[1:])
    if "case" in options:
        case(options["case"])
        return
    sizes = [int(size) for size in options["sizes"].split(",")] if "sizes" in options else SIZES
    shapes = options["shapes"].split(",") if "shapes" in options else list(SHAPES)
    cases = [f"{shape}:{size}" for shape in shapes for size in sizes]
    if "bert" in options:
        cases += ["bert:forward", "bert:backward"]
    rows: list[list[object]] = []
    for each in cases:
        load = os.getloadavg()[0]
        done = subprocess.run(
            [sys.executable, __file__, f"--case={each}"], stdout=subprocess.PIPE, check=True
        )
        found = json.loads(done.stdout.splitlines()[-1])
        rows.append([each.partition(":")[0], *(found[head] for head in HEADS[1:-1]), load])
    table(HEADS, rows)


HEADS = (
    *("shape", "nodes", "boxes", "whole: to_dot s", "whole: all s"),
    *("diff s", "difference: all s", "Python MiB", "dot MiB", "load"),
)


if __name__ == "__main__":
    main()
