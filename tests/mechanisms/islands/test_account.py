"""Graphs and islands together are everything that ran, by an account of torch's own means."""

from __future__ import annotations

from collections import Counter

import pytest
import torch
from mechanisms.islands.account import everything
from mechanisms.islands.cases import CASES

from pytest_torchgraph import Capture, Graph, capture
from pytest_torchgraph.mechanisms.step.named_tensors import NamedTensors
from pytest_torchgraph.mechanisms.step.saved_state import preserve_state


def ops_of(graphs: tuple[Graph, ...]) -> Counter[str]:
    found: Counter[str] = Counter()
    for graph in graphs:
        for op, count in graph.op_counts.items():
            found[op] += count * graph.runs
    return found


def captured(name: str) -> Capture:
    torch.manual_seed(0)
    target, args = CASES[name]()
    torch.manual_seed(1)
    return capture(target, *args)


@pytest.mark.parametrize("name", CASES)
def test_nothing_that_runs_is_missing(name: str) -> None:
    torch.manual_seed(0)
    target, args = CASES[name]()
    torch.manual_seed(1)
    with preserve_state(NamedTensors(target, args, {})):
        account = everything(target, args)
    found = captured(name)
    assert ops_of(found.eager) == account.eager
    # On a first run AOTAutograd detaches the inputs of custom ops inside of the graph.
    compiled = ops_of(found.graphs)
    assert {op: n for op, n in compiled.items() if "detach" not in op} == {
        op: n for op, n in account.compiled.items() if "detach" not in op
    }
    assert len(found.eager_ops) == account.eager.total()


@pytest.mark.parametrize("name", CASES)
def test_every_op_of_a_forward_has_its_line(name: str) -> None:
    for graph in captured(name).eager:
        if graph.kind != "backward":
            assert all(node.source is not None for node in graph.nodes if node.is_call)
