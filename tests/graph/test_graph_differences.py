"""What is said of a difference, in examples."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import torch.ao.quantization.fx._decomposed  # noqa: F401 (names of arguments)
from graph.examples import Example, examples

from pytest_torchgraph.graph import Graph, diff_graphs, equal_programs


def in_words(before: Sequence[Graph], after: Sequence[Graph]) -> str:
    diff = diff_graphs(before, after)
    same = equal_programs(before, after)
    assert bool(diff) != same
    if len(before) == len(after) == 1:
        assert (before[0] == after[0]) == (after[0] == before[0]) == same
        assert hash(before[0]) == hash(after[0]) or not same
    return "\n".join(dict.fromkeys([diff.heading(), diff.to_text(None)]))


@examples(Path(__file__).parent / "differences")
def test_difference_is_said_as_in_the_example(example: Example) -> None:
    before, after = example.graphs()
    found = {"said": in_words(before, after)}
    if "undone" in example.expected:
        found["undone"] = in_words(after, before)
    if "costs" in example.expected:
        costs = [finding.cost for finding in diff_graphs(before, after).findings]
        found["costs"] = "\n".join(f"{cost.flops} FLOP, {cost.saved_bytes} B" for cost in costs)
    example.check(found)
