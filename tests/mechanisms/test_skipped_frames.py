"""Code that Dynamo leaves to the interpreter is recorded: skipped frames, code after a break."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable
from typing import Any

import pytest
import torch
from mechanisms.models import Head, example
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint
from torch_releases import skip_before

from pytest_torchgraph import capture


def repeated(function: Callable[..., Tensor]) -> Callable[..., Tensor]:
    """Break in a loop, so that Dynamo skips the frame."""

    @functools.wraps(function)
    def wrapper(self: nn.Module, x: Tensor) -> Tensor:
        for _ in range(1):
            found = function(self, x)
        return found

    return wrapper


class Decorated(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Linear(4, 4)
        self.norm = nn.BatchNorm1d(4)

    @repeated
    def forward(self, x: Tensor) -> Tensor:
        x = self.first(x).relu()
        torch._dynamo.graph_break()
        return self.norm(x)


class BesideACompiledOne(nn.Module):
    """Its head is compiled by itself. The rest is in no compiled graph."""

    def __init__(self, own: nn.Module) -> None:
        super().__init__()
        self.own = own
        self.head = Head()

    def forward(self, x: Tensor) -> Tensor:
        for _ in range(1):
            x = self.own(x)
            torch._dynamo.graph_break()
        return self.head(x)


def test_skipped_frame_that_only_calls_others_is_complete() -> None:
    model = Decorated()
    model.norm.running_mean += 1.0
    before = {name: value.clone() for name, value in model.state_dict().items()}
    captured = capture(model, example(3, 4), via="dynamo")
    assert len(captured.forwards) == 2
    assert captured.op_counts["torch.nn.functional.linear"] == 1
    captured.assert_matches_eager()
    assert all(torch.equal(value, before[name]) for name, value in model.state_dict().items())
    assert all(parameter.grad is None for parameter in model.parameters())


def test_a_skipped_frame_that_runs_a_layer_of_torch_is_recorded() -> None:
    torch.manual_seed(0)
    captured = capture(BesideACompiledOne(nn.Linear(4, 4)), example(3, 4), via="dynamo")
    (forward,) = (graph for graph in captured.eager if graph.kind == "forward")
    assert forward.op_counts == {"aten.t.default": 1, "aten.addmm.default": 1}
    assert forward.cause is not None
    assert forward.cause.line == line(BesideACompiledOne, "graph_break")
    assert {op.source.line for op in captured.eager_ops if op.source is not None} == {
        line(BesideACompiledOne, "self.own(x)")
    }
    with pytest.raises(AssertionError, match=r"ran eagerly, outside compiled graphs") as caught:
        captured.assert_no_eager_ops()
    assert "because of: frame skipped: Call to `torch._dynamo.graph_break()`" in str(caught.value)
    assert "x = self.own(x)" in str(caught.value)
    captured.assert_matches_eager()


# -- after a break that Dynamo cannot resume -------------------------------------------------------


def cut(x: Tensor) -> Tensor:
    n = x.long()[0]
    return x[:n] * 2


def cut_in_a_loop(x: Tensor) -> Tensor:
    x = x + 1
    number = 0
    while number < 2:
        x = x.sin()
        n = x.long()[0]
        len(range(4)[:n])
        number += 1
    return x


def cut_after_a_break(x: Tensor) -> Tensor:
    x = x + 1
    torch._dynamo.graph_break()
    x = x.sin()
    n = x.long()[0]
    return x[:n].cos()


def broken_leaf(x: Tensor) -> Tensor:
    x = x.sin()
    torch._dynamo.graph_break()
    return x.cos()


def line(function: Callable[..., Any], text: str) -> int:
    """Return the number of the function's line with this text."""
    lines, first = inspect.getsourcelines(function)
    (found,) = [number for number, code in enumerate(lines, first) if text in code]
    return found


@pytest.mark.filterwarnings(r"ignore:::torch")
@pytest.mark.parametrize(
    ("function", "text", "ops"),
    [
        (cut, "x[:n]", ["_local_scalar_dense", "slice", "mul"]),
        (cut_in_a_loop, "range(4)", ["_local_scalar_dense", "sin", "_to_copy", "select"]),
        (cut_after_a_break, "[:n]", ["_local_scalar_dense", "slice", "cos"]),
    ],
)
def test_ops_after_a_break_without_a_resume_are_recorded(
    function: Callable[..., Any], text: str, ops: list[str]
) -> None:
    skip_before("2.10", "torch does not report a break without a resume")
    captured = capture(function, torch.arange(1.0, 5.0), via="dynamo")
    assert [op.op.split(".")[1] for op in captured.eager_ops][: len(ops)] == ops[: len(ops)]
    cause = captured.eager[0].cause
    assert cause is not None
    assert cause.kind.startswith("frame skipped: Unsupported Tensor.item() call")
    assert cause.line == line(function, text)


@pytest.mark.slow("compiles for a second")
@pytest.mark.filterwarnings(r"ignore:::torch")
def test_frame_remainder_that_only_calls_others_is_complete() -> None:
    def calling(x: Tensor) -> Tensor:
        n = x.long()[0]
        return broken_leaf(sliced(x, n))

    def sliced(x: Tensor, n: Tensor) -> Tensor:
        return x.tan() + len(range(4)[: int(n)])

    captured = capture(calling, torch.arange(1.0, 5.0))
    found = captured.op_counts
    assert (found["aten.tan"], found["aten.sin"], found["aten.cos"]) == (1, 1, 1)
    captured.assert_matches_eager()


# -- around a break in the user's code -------------------------------------------------------------


class Speaking(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(4, 4)

    def forward(self, x: Tensor) -> Tensor:
        x = self.linear(x)
        torch._dynamo.graph_break()
        return x.sin()


class Around(nn.Module):
    def __init__(self, *layers: nn.Module) -> None:
        super().__init__()
        self.layers = nn.Sequential(*layers)

    def forward(self, x: Tensor) -> Tensor:
        return self.layers(x * 2).cos()


def test_layers_of_torch_beside_a_module_that_breaks_are_recorded() -> None:
    """torch's Sequential and its layers run eagerly if one of its modules breaks."""
    torch.manual_seed(0)
    model = Around(nn.Linear(4, 4), Speaking(), nn.Tanh())
    captured = capture(model, example(3, 4), via="dynamo")
    found = [op.op for op in captured.eager_ops if op.follows is None and not op.by_engine]
    assert found[:3] == ["aten.t.default", "aten.addmm.default", "aten.tanh.default"]
    assert captured.op_counts["torch.nn.functional.linear"] == 1
    captured.assert_matches_eager()


def test_a_checkpointed_function_that_breaks_is_recorded() -> None:
    """Outside a graph, torch disables Dynamo around a checkpointed function."""

    def checkpointed(x: Tensor) -> Tensor:
        return checkpoint(broken_leaf, x * 3, use_reentrant=False) * 2

    captured = capture(checkpointed, example(3, 4), via="dynamo")
    ops = [op.op for op in captured.eager_ops]
    # torch 2.9 and 2.10 run the checkpoint eagerly too, which calls `torch.empty`.
    assert [op for op in ops if "empty" not in op] == ["aten.sin.default", "aten.cos.default"]
    cause = captured.eager[0].cause
    assert cause is not None
    assert cause.line == line(broken_leaf, "graph_break")
