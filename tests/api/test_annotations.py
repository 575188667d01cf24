"""`Node.annotations`, and the argument `annotation` of op checks."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor, fx

from pytest_torchgraph import Capture, capture, diff, from_fx

annotate: Any = getattr(torch.fx.traceback, "annotate", None)
pytestmark = pytest.mark.skipif(annotate is None, reason="since torch 2.10")


def staged(x: Tensor) -> Tensor:
    with annotate({"stage": 0}):
        x = torch.sin(x)
    with annotate({"stage": 1, "compile": True}):
        x = torch.sin(x) * 2
    return torch.cos(x)


def plain(x: Tensor) -> Tensor:
    return torch.cos(torch.sin(torch.sin(x)) * 2)


@pytest.fixture(scope="module", params=["aot", "dynamo"])
def captured(request: pytest.FixtureRequest) -> Capture:
    return capture(staged, torch.ones(2), via=request.param)


SIN = {"aot": "aten.sin", "dynamo": "torch.sin"}


def test_nodes_have_the_annotations_of_their_code(captured: Capture) -> None:
    first, second = captured.find(SIN[captured.via])
    assert first.annotations == {"stage": 0}
    assert second.annotations == {"stage": 1, "compile": True}
    assert captured.find(SIN[captured.via].replace("sin", "cos"))[0].annotations == {}


def test_annotations_are_neither_compared_nor_stored(captured: Capture) -> None:
    other = capture(plain, torch.ones(2), via=captured.via)
    assert other == captured
    assert not diff(other, captured)
    assert "stage" not in captured.to_text("full")


def test_op_checks_select_by_annotation(captured: Capture) -> None:
    sin = SIN[captured.via]
    assert captured.count(sin, annotation="stage") == 2
    assert captured.count(sin, annotation={"stage": 1}) == 1
    assert captured.forward.find(sin, annotation={"stage": 1, "compile": True})[0].name
    captured.assert_op_counts({sin: 1}, annotation="compile")
    captured.assert_no_ops(sin, annotation={"stage": 7})
    with pytest.raises(AssertionError, match=r"annotated 'stage': 1\): *\n.*found 1"):
        captured.assert_no_ops(sin, annotation={"stage": 1})
    with pytest.raises(AssertionError, match=r"op counts differ \(annotated 'compile'\)"):
        captured.assert_op_counts({sin: 2}, annotation="compile")


@pytest.mark.parametrize("wrong", ["", {}, 3, {1: 2}, []])
def test_annotation_must_be_a_key_or_a_mapping(captured: Capture, wrong: Any) -> None:
    expected = ValueError if wrong == "" else TypeError
    with pytest.raises(expected, match="annotation"):
        captured.assert_no_ops(SIN[captured.via], annotation=wrong)


def test_key_that_no_node_has_is_an_error(captured: Capture) -> None:
    with pytest.raises(ValueError, match="no node has the annotation 'stag': keys: compile, stage"):
        captured.assert_no_ops(SIN[captured.via], annotation="stag")
    with pytest.raises(ValueError, match=r"no node has any\. Annotate with torch.fx.traceback"):
        capture(plain, torch.ones(2)).count("aten.sin", annotation="stage")


def test_pass_writes_annotations() -> None:
    module = fx.symbolic_trace(plain)
    for node in module.graph.find_nodes(op="call_function", target=torch.cos):
        node.meta["custom"] = {"tag": "last"}
    assert from_fx(module).count("torch.cos", annotation={"tag": "last"}) == 1
