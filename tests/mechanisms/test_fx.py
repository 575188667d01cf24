"""Symbolic traces: all six node kinds, fixed arguments, leaves, and what cannot be traced."""

from __future__ import annotations

import functools

import pytest
import torch
from mechanisms.models import example, mlp
from torch import Tensor, fx, nn

from pytest_torchgraph import CaptureError, Fx, capture, from_fx


class Six(nn.Module):
    """The module of the fx documentation's spirit: one node of each kind."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(4))
        self.linear = nn.Linear(4, 5)

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        return torch.topk(self.linear(x + self.weight).relu(), 3)


def test_all_six_node_kinds_occur() -> None:
    graph = capture(Six(), example(2, 4), via="fx").forward
    assert {node.kind for node in graph.nodes} == {
        "placeholder",
        "get_attr",
        "call_function",
        "call_module",
        "call_method",
        "output",
    }
    assert graph.count(nn.Linear) == 1
    assert graph.count("Tensor.relu") == 1
    assert graph["linear"].target == "linear"
    assert "%relu = Tensor.relu(%linear) : f32[2, 5]" in graph.to_text()


def test_counts_are_those_of_torchs_own_trace() -> None:
    own = torch.fx.symbolic_trace(mlp())
    graph = capture(mlp(), example(4, 8), via="fx").forward
    calls = [node for node in own.graph.nodes if node.op.startswith("call_")]
    assert sum(graph.op_counts.values()) == len(calls) == 11
    assert graph.count(torch.relu) == len(
        own.graph.find_nodes(op="call_function", target=torch.relu)
    )


def test_arguments_left_at_their_default_decide_control_flow() -> None:
    def masked(x: Tensor, mask: Tensor | None = None, scale: float = 2.0) -> Tensor:
        if mask is not None:
            x = x * mask
        return x * scale

    plain = capture(masked, example(4), via="fx").forward
    assert plain.op_counts == {"operator.mul": 1}
    assert [node.name for node in plain.inputs] == ["x"]
    given = capture(masked, example(4), mask=example(4), via="fx").forward
    assert given.op_counts == {"operator.mul": 2}
    assert [node.name for node in given.inputs] == ["x", "mask"]


def test_concrete_args_fix_an_argument() -> None:
    def switched(x: Tensor, flag: bool) -> Tensor:
        return x.relu() if flag else x.tanh()

    fixed = capture(switched, example(4), True, via=Fx(concrete_args={"flag": True}))
    assert fixed.forward.count("Tensor.relu") == 1
    assert [node.name for node in fixed.forward.inputs] == ["x", "flag"]
    with pytest.raises(CaptureError, match="cannot trace the target"):
        capture(switched, example(4), True, via="fx")


def test_inputs_are_called_as_the_parameters_are() -> None:
    def function(input: Tensor, next: Tensor, *args: Tensor) -> Tensor:
        return input + next + args[0]

    captured = capture(function, example(4), example(4), example(4), via="fx")
    assert [node.name for node in captured.forward.inputs] == ["input", "next", "args"]
    assert from_fx(captured.fx(captured.forward)) == captured.forward
    again = fx.Interpreter(captured.fx(captured.forward)).run(*[example(4)] * 3)
    torch.testing.assert_close(again, captured.output)


def test_a_tracer_of_ones_own_chooses_the_leaves() -> None:
    class Deep(torch.fx.Tracer):
        def is_leaf_module(self, m: nn.Module, name: str) -> bool:
            return isinstance(m, nn.LayerNorm)

    graph = capture(mlp(), example(4, 8), via=Fx(tracer=Deep())).forward
    assert graph.count("torch.nn.functional.linear") == 4
    assert graph.count(nn.LayerNorm) == 1
    assert graph.find("torch.nn.functional.linear")[0].module == "blocks.0"


@pytest.mark.parametrize(
    ("function", "said"),
    [
        (lambda x: x if x.sum() > 0 else -x, "cannot be used as inputs to control flow"),
        (lambda x: sum(row for row in x), "Proxy object cannot be iterated"),
        (lambda x: x * len(x), "'len' is not supported in symbolic tracing"),
        (lambda x: x * float(x.sum()), "Proxy"),
    ],
)
def test_control_flow_on_data_gives_torchs_reason_and_the_line(function: object, said: str) -> None:
    with pytest.raises(CaptureError) as caught:
        capture(function, example(4), via="fx")  # type: ignore[arg-type]
    message = str(caught.value)
    assert said in message
    assert "test_fx.py:" in message
    assert "lambda x" in message
    assert "capture via 'dynamo'" in message


def test_code_that_runs_on_tensors_and_not_on_proxies_is_refused_whatever_it_raises() -> None:
    def checked(x: Tensor) -> Tensor:
        if not isinstance(x, Tensor):
            raise TypeError("a tensor is wanted")
        if x.dim() == 2:
            raise LookupError("two dimensions")
        return x.sin()

    with pytest.raises(CaptureError, match=r"it raises TypeError: a tensor is wanted") as caught:
        capture(checked, example(4), via="fx")
    assert ': raise TypeError("a tensor is wanted")' in str(caught.value)
    with pytest.raises(LookupError, match=r"^two dimensions$"):
        capture(checked, example(2, 2), via="fx")


def test_a_forward_behind_a_decorator_is_refused_where_torch_cannot_trace_it() -> None:
    class Decorated(nn.Module):
        def both(self, x: Tensor, y: Tensor, *, scale: float = 1.0) -> Tensor:
            return (x + y) * scale

        @functools.wraps(both)
        def forward(self, *args: Tensor, **kwargs: float) -> Tensor:
            return self.both(*args, **kwargs)

    with pytest.raises(CaptureError, match=r"behind a decorator with another signature"):
        capture(Decorated(), example(4), example(4), via="fx")


@pytest.mark.parametrize("via", ["fx", "dynamo"])
def test_functions_that_torch_makes_in_one_place_have_names_of_their_own(via: str) -> None:
    pooled = torch.nn.functional.max_pool1d
    captured = capture(lambda x: pooled(torch.max_pool2d(x, 2)[0], 2), example(1, 2, 8, 8), via=via)
    other = capture(lambda x: nn.functional.max_pool2d(x, 2), example(1, 2, 8, 8), via=via)
    captured.assert_op_counts({pooled: 1, "torch.nn.functional.max_pool1d": 1})
    other.assert_op_counts({"torch.nn.functional.max_pool2d": 1}, exact=True)


def test_what_is_neither_module_nor_function_is_refused() -> None:
    for target in (torch.sin, functools.partial(torch.add, alpha=2)):
        with pytest.raises(CaptureError, match="traces modules, their methods and Python"):
            capture(target, example(4), via="fx")


def test_the_graph_runs_for_the_output_and_its_backward() -> None:
    captured = capture(mlp(), example(4, 8), via="fx")
    torch.testing.assert_close(captured.output, mlp()(example(4, 8)))
    captured.assert_matches_eager()
    captured.assert_graph_count(forward=1, backward=0)
    module = captured.fx(captured.forward)
    torch.testing.assert_close(module(example(4, 8)), captured.output)
