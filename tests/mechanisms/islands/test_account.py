"""Graphs and islands together contain each op that an independent count, with torch only, finds."""

from __future__ import annotations

import pytest
import torch
from mechanisms.islands.account import everything, unlike
from mechanisms.islands.cases import CASES

from pytest_torchgraph import Capture, capture
from pytest_torchgraph.mechanisms.step.named_tensors import NamedTensors
from pytest_torchgraph.mechanisms.step.saved_state import preserve_state


def captured(name: str) -> Capture:
    torch.manual_seed(0)
    target, args = CASES[name]()
    torch.manual_seed(1)
    return capture(target, *args)


@pytest.mark.slow(
    "further cases; a few are in every run",
    unless=[
        "a_checkpointed_block_with_a_break",
        "a_custom_op_on_both_sides",
        "a_disabled_autograd_function",
        "an_output_that_nothing_uses",
        "views_of_inputs_and_outputs",
    ],
)
@pytest.mark.parametrize("name", CASES)
def test_capture_has_every_op_that_ran_and_forward_ops_have_lines(name: str) -> None:
    torch.manual_seed(0)
    target, args = CASES[name]()
    torch.manual_seed(1)
    with preserve_state(NamedTensors(target, args, {})):
        account = everything(target, args)
    subject_capture = captured(name)
    assert unlike(subject_capture, account) == []
    for graph in subject_capture.eager:
        if graph.kind != "backward":
            assert all(node.source is not None for node in graph.nodes if node.is_call)


def test_account_reports_a_difference_of_one_op() -> None:
    name = "an_item"
    target, args = CASES[name]()
    account = everything(target, args)
    account.eager["aten.sin.default"] += 1
    assert unlike(captured(name), account) == [
        "eager: too many {}, too few {'aten.sin.default': 1}",
        "eager_ops: too many {}, too few {'aten.sin.default': 1}",
    ]
