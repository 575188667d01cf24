"""Patterns and costs of a graph of 50,000 nodes: seconds, and the ratio to one pass over the nodes.

    PYTHONPATH=. python benchmarks/bench_cost.py [NODES]

The target is half a second for each. `Graph.from_text` of the same graph is there for comparison.
What is found is checked against what was built, so that nothing is fast because it found nothing.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any

from timing import medians, table

from pytest_torchgraph import Graph
from pytest_torchgraph.graph import by_module, peak_bytes
from pytest_torchgraph.graph.cost import saved_bytes

BLOCK = 10
SIZE = 8 * 8 * 4
FLOPS = 2 * 8 * 8 * 8


def text(nodes: int) -> str:
    """Blocks of a product, a view of it, and pointwise ops, of which the view is saved."""
    lines = ["torchgraph 1", "via aot, torch 2.13.0", "", "forward {", "  %x = input : f32[8, 8]"]
    before = "x"
    for number in range(nodes):
        module, place = f"blocks.{number // BLOCK}", number % BLOCK
        if place == 0:
            name, call = f"{module}/mm", f"aten.mm.default(%{before}, %x)"
        elif place == 1:
            name, call = f"{module}/view", f"aten.view.default(%{before}, [8, 8])"
        else:
            name, call = f"{module}/relu.{place}", f"aten.relu.default(%{before})"
        lines.append(f"  %{name} = {call} : f32[8, 8]")
        before = name
    saved = [f"  save %blocks.{number}/view" for number in range(nodes // BLOCK)]
    return "\n".join([*lines, f"  return %{before}", *saved, "}", ""])


def in_place(nodes: int) -> str:
    """One long chain of writes into one storage."""
    lines = ["torchgraph 1", "via dispatch, torch 2.13.0", "", "inference {"]
    lines += ["  %x = input : f32[8, 8]", "  %y.0 = aten.relu.default(%x) : f32[8, 8]"]
    for number in range(1, nodes):
        call = f"aten.relu_.default(%y.{number - 1})"
        lines.append(f"  %y.{number} = {call} : f32[8, 8] !mutates %y.{number - 1}")
    return "\n".join([*lines, f"  return %y.{nodes - 1}", "}", ""])


def main() -> None:
    nodes = int(sys.argv[1]) if len(sys.argv) > 1 else 50_000
    blocks = nodes // BLOCK
    written = text(nodes)
    graph, chain = Graph.from_text(written), Graph.from_text(in_place(nodes))

    def order() -> None:
        for name in ("blocks.7", "blocks.8"):
            assert graph.count("aten.mm", module=name) == 1
        try:
            graph.assert_order("aten.mm", "aten.view")
        except AssertionError:
            return
        raise SystemExit("a view comes before a product")

    works: dict[str, Callable[[], Any]] = {
        "one pass over the nodes": lambda: sum(len(node.refs) for node in graph.nodes),
        "Graph.from_text": lambda: Graph.from_text(written),
        "pattern ->": lambda: is_equal(len(graph.find_pattern("aten.mm -> aten.view")), blocks),
        "pattern ~>": lambda: is_equal(len(graph.find_pattern("aten.mm ~> aten.view")), blocks),
        "pattern of four parts": lambda: is_equal(
            len(graph.find_pattern("aten.mm -> aten.view ~> aten.relu ~> aten.mm")), blocks - 1
        ),
        "no pattern": lambda: graph.assert_no_pattern("aten.view -> aten.mm"),
        "order": order,
        "flops": lambda: is_equal(graph.flops, FLOPS * blocks),
        "saved bytes": lambda: is_equal(saved_bytes([graph]), SIZE * blocks),
        "peak": lambda: is_equal(peak_bytes([graph]), SIZE * (blocks + 2)),
        "peak, in place": lambda: is_equal(peak_bytes([chain]), SIZE),
        "by module": lambda: is_equal(len(by_module([graph])), blocks),
        "by module, depth 1": lambda: is_equal(len(by_module([graph], 1)), 1),
    }
    taken = medians(works)
    one_pass = taken["one pass over the nodes"]
    rows = [[name, seconds, seconds / one_pass] for name, seconds in taken.items()]
    table([f"{nodes} nodes", "seconds", "ratio"], rows)


def is_equal(found: int, expected: int) -> None:
    if found != expected:
        raise SystemExit(f"found {found}, expected {expected}")


if __name__ == "__main__":
    main()
