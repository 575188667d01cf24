"""How long drawing takes: the whole forward and backward of a 12-layer BERT, and a difference.

Run by hand: `python tests/benchmarks/bench_render.py`. Needs transformers. Targets: each whole
graph under 5 s with `dot`, under 15 s with pygraphviz.
"""

from __future__ import annotations

import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest_torchgraph
from pytest_torchgraph.graph import Graph
from pytest_torchgraph.render import diff_to_dot, to_dot
from pytest_torchgraph.render.process import run


def bert() -> tuple[Graph, Graph]:
    """Forward and backward of a small BERT with 12 layers."""
    import torch
    from transformers import BertConfig, BertModel

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


def edited(graph: Graph) -> Graph:
    """The graph with another activation in every layer."""
    nodes = (
        replace(node, op="aten.relu.default") if node.op == "aten.gelu.default" else node
        for node in graph.nodes
    )
    return replace(graph, nodes=tuple(nodes))


def seconds(work: Callable[[], Any]) -> tuple[float, Any]:
    """How long `work` takes, and what it gives."""
    start = time.perf_counter()
    result = work()
    return time.perf_counter() - start, result


def main() -> None:
    """Print the table."""
    forward, backward = bert()
    difference = pytest_torchgraph.diff(forward, edited(forward))
    renderers = {
        "dot": ["dot", "-Tsvg", "-o", "out.svg", "in.dot"],
        "pygraphviz": [
            *(sys.executable, "-m", "pytest_torchgraph.render._pygraphviz"),
            *("in.dot", "out.svg", "svg"),
        ],
    }
    print(
        f"{'drawing':<12}{'nodes':>7}{'to_dot s':>10}"
        + "".join(f"{r + ' s':>14}" for r in renderers)
    )
    works: dict[str, tuple[int, Callable[[], Any]]] = {
        "forward": (len(forward.nodes), lambda: to_dot(forward)),
        "backward": (len(backward.nodes), lambda: to_dot(backward)),
        "difference": (len(forward.nodes), lambda: diff_to_dot(difference)),
    }
    for name, (nodes, work) in works.items():
        made, digraph = seconds(work)
        row = f"{name:<12}{nodes:>7}{made:>10.2f}"
        for command in renderers.values():
            with tempfile.TemporaryDirectory() as folder:
                Path(folder, "in.dot").write_text(digraph.source, encoding="utf-8")
                drawn, problem = seconds(lambda: run(command, Path(folder), 100.0))  # noqa: B023
            row += f"{problem[:12] or f'{drawn:.2f}':>14}"
        print(row)


if __name__ == "__main__":
    main()
