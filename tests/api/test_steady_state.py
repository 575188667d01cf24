"""`steady`: compilations of a step that is already compiled."""

from __future__ import annotations

import pytest
import torch

from pytest_torchgraph import CaptureError, GraphCapture, steady, watch
from pytest_torchgraph.watching import HUB


@pytest.fixture(autouse=True)
def fresh() -> None:
    torch._dynamo.reset()


def compiled(**how: object) -> torch.nn.Module:
    return torch.compile(torch.nn.Linear(4, 4), backend="aot_eager", **how)


def test_steady_second_call_compiles_nothing() -> None:
    model = compiled()
    x = torch.ones(2, 4)
    seen = GraphCapture().steady(model, (x,), (x,), (x,))
    seen.assert_no_recompiles()
    assert seen.graphs == ()
    assert seen.executions == {"0/0": 2, "0/0 backward": 2}
    assert all(parameter.grad is None for parameter in model.parameters())


def test_steady_does_not_reset_the_compiler() -> None:
    x = torch.ones(2, 4)
    seen = steady(compiled(), (x,), (x,))
    for check in (seen.assert_no_graph_breaks, seen.only(function="*").assert_no_graph_breaks):
        with pytest.raises(AssertionError, match="nothing was compiled after the warm-up") as error:
            check()
        assert "watch() around the first call" in str(error.value)
        assert "reset" not in str(error.value)
    step = compiled()
    step(x)
    with watch() as again:
        step(x)
    with pytest.raises(AssertionError, match=r"call torch._dynamo.reset\(\)"):
        again.assert_no_graph_breaks()


def test_steady_call_that_recompiles_fails_with_the_reason() -> None:
    seen = steady(compiled(dynamic=False), (torch.ones(2, 4),), (torch.ones(3, 4),), backward=False)
    with pytest.raises(AssertionError, match="recompilations: expected 0, found 1") as error:
        seen.assert_no_recompiles()
    assert "size of dim 0 was 2, is 3" in str(error.value)
    assert set(seen.executions) == {"0/1"}


def test_keyword_arguments_and_pairs_of_tensors() -> None:
    add = torch.compile(torch.add, backend="eager")
    x = torch.ones(2)
    steady(add, (x, x), (x, x)).assert_no_recompiles()
    scaled = torch.compile(lambda x, by: x * by, backend="eager")
    steady(scaled, ((x,), {"by": x}), ((x,), {"by": x})).assert_no_recompiles()


def test_steady_of_uncompiled_code_fails() -> None:
    seen = steady(torch.nn.Linear(4, 4), (torch.ones(2, 4),), (torch.ones(2, 4),))
    with pytest.raises(AssertionError, match="no compiled code ran"):
        seen.assert_no_recompiles()


@pytest.mark.parametrize(
    ("calls", "message"),
    [
        ((), r"needs at least two calls \(a warm-up and a call to watch\), but got 0"),
        (((1,),), r"needs at least two calls \(a warm-up and a call to watch\), but got 1"),
        (((1,), torch.ones(2)), "call 1 must be a tuple or a list of arguments, not Tensor"),
    ],
)
def test_steady_with_invalid_calls_is_an_error(calls: tuple[object, ...], message: str) -> None:
    with pytest.raises(TypeError, match=message):
        steady(torch.relu, *calls)
    with pytest.raises(TypeError, match="the target must be callable, not Tensor"):
        steady(torch.ones(2), (1,), (2,))  # type: ignore[arg-type]


def test_impossible_backward_is_an_error() -> None:
    x = torch.ones(2)
    with pytest.raises(CaptureError, match="backward=True, but no parameter or input"):
        steady(torch.compile(torch.relu, backend="eager"), (x,), (x,), backward=True)


def test_a_step_with_its_own_backward_is_steady_if_it_returns_nothing_to_differentiate() -> None:
    model = compiled()

    def step(x: torch.Tensor) -> torch.Tensor:
        loss = model(x).square().sum()
        loss.backward()
        return loss.detach()

    x = torch.ones(2, 4)
    seen = steady(step, (x,), (x,))
    seen.assert_no_recompiles()
    assert seen.executions == {"0/0": 1, "0/0 backward": 1}


def test_steady_names_state_kept_from_an_earlier_call() -> None:
    kept = [torch.ones(4, requires_grad=True)]

    def recurrent(x: torch.Tensor) -> torch.Tensor:
        kept[0] = torch.tanh(kept[0] * x)
        return kept[0].sum()

    x = torch.ones(4)
    with pytest.raises(CaptureError, match=r"an earlier call, such as a hidden state: detach\(\)"):
        steady(recurrent, (x,), (x,))


def test_steady_restores_state_also_if_the_target_raises() -> None:
    model = torch.nn.Sequential(torch.nn.BatchNorm1d(4), torch.nn.Dropout(0.5))
    parameter = next(model.parameters())
    parameter.grad = torch.full((4,), 3.0)
    calls = []

    def step(x: torch.Tensor) -> torch.Tensor:
        calls.append(x)
        if len(calls) == 3:
            raise RuntimeError("the model's own")
        return model(x)

    x = torch.randn(8, 4)
    random, buffers = torch.get_rng_state(), [buffer.clone() for buffer in model.buffers()]
    compiled_step = torch.compile(step, backend="eager")
    with pytest.raises(RuntimeError, match="the model's own"):
        steady(compiled_step, (x,), (x,), (x,), (x,))
    assert torch.equal(torch.get_rng_state(), random)
    assert all(map(torch.equal, model.buffers(), buffers))
    assert torch.equal(parameter.grad, torch.full((4,), 3.0))
    assert not HUB.watching
