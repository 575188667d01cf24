"""A stored graph is loaded, compared, counted and printed without torch."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

SCRIPT = """
import sys

class NoTorch:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in ("torch", "numpy", "graphviz", "pytest", "syrupy"):
            raise AssertionError(f"{name} is imported")

sys.meta_path.insert(0, NoTorch())

import pytest_torchgraph
from pytest_torchgraph import Graph, GraphDiff, GraphFormatError, Node, OpCounts, TensorMeta
from pytest_torchgraph.graph import diff, equality, text
from pytest_torchgraph.graph.diff import group
from pytest_torchgraph.graph.text import format, nodes, parse
from pytest_torchgraph.graph.equality import equal
from pytest_torchgraph.graph.diff.compare import diff_graphs

stored = '''torchgraph 1
via aot, torch 2.13.0

forward {
  %x = input : f32[2]
  %m/a = aten.sin.default(%x) : f32[2]
  %b = aten.add.Tensor(%m/a, 1) : f32[2]
  return %b
}
'''
(before,) = parse.parse_document(stored).graphs
(after,) = parse.parse_document(stored.replace("sin", "cos")).graphs
assert before != after
assert before.op_counts["aten.add"] == 1
print(diff_graphs([before], [after]))
(saving,) = parse.parse_document(stored.replace("}\\n", "  save %m/a\\n}\\n")).graphs
print(diff_graphs([before], [saving]).findings[0].cost)
(scaled,) = parse.parse_document(stored.replace("%m/a, 1", "%m/a, 2")).graphs
print(diff_graphs([before], [scaled]).heading())
print(*before.to_table().splitlines()[2].split())
print(Graph.from_text(before.to_text("full")) == before, hash(before) == hash(before))
try:
    Graph.from_text("no")
except GraphFormatError as error:
    print(error)
assert "torch" not in sys.modules
"""


def test_graphs_are_handled_without_importing_torch() -> None:
    root = Path(__file__).parents[2]
    environment = {**os.environ, "PYTHONPATH": str(root)}
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", SCRIPT],
        capture_output=True,
        text=True,
        env=environment,
        check=False,
    )
    assert done.stderr == ""
    assert done.stdout.splitlines() == [
        "1 edit: aten.sin -> aten.cos in m",
        "~ changed in m [forward]",
        "    before  %m/a = aten.sin.default(%x) : f32[2]",
        "    after   %m/a = aten.cos.default(%x) : f32[2]",
        "Cost(flops=None, saved_bytes=8)",
        "1 edit: argument 1: 1 -> 2 of aten.add.Tensor",
        "placeholder x x () {}",
        "True True",
        "<text>:1:1: not a graph: the first line must be 'torchgraph 4'",
    ]
