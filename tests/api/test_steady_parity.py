"""`steady(...).assert_matches_eager()`: each compiled call against an eager one."""

from __future__ import annotations

import gc
import re
import weakref
from typing import Any

import pytest
import torch

from pytest_torchgraph import Capture, CaptureError, steady, watch


@pytest.fixture(autouse=True)
def fresh() -> None:
    torch._dynamo.reset()


def compiled(step: Any, **options: Any) -> Any:
    return torch.compile(step, backend=options.pop("backend", "aot_eager"), **options)


class Counting(torch.nn.Module):
    """Adds the inputs of all calls, in a buffer, in place of another, and in an attribute."""

    total: torch.Tensor
    last: torch.Tensor

    def __init__(self, fault: str = "") -> None:
        super().__init__()
        self.linear = torch.nn.Linear(3, 3)
        self.register_buffer("total", torch.zeros(3))
        self.register_buffer("last", torch.zeros(3))
        self.fault = fault

    def forward(self, x: torch.Tensor, out: torch.Tensor | None = None) -> torch.Tensor:
        wrong = 1.0 if torch.compiler.is_compiling() else 0.0
        self.total += x.sum(0).detach() + wrong * (self.fault == "buffer")
        self.last = self.total * 2
        if out is not None:
            out += self.total + wrong * (self.fault == "argument")
        scale = 1 + wrong * (self.fault == "gradient")
        y = self.linear(x) + self.total
        return y * scale - y.detach() * (scale - 1)


def calls(number: int) -> list[tuple[torch.Tensor]]:
    return [(torch.rand(2, 3),) for _ in range(number)]


@pytest.mark.filterwarnings("ignore:The .grad attribute of a Tensor that is not a leaf")
def test_state_carries_from_call_to_call_and_is_put_back() -> None:
    model = Counting()
    model.linear.weight.grad = grad = torch.ones(3, 3)
    out, inputs = torch.zeros(3), calls(3)
    seen: list[torch.Tensor] = []

    def step(x: torch.Tensor, out: torch.Tensor) -> torch.Tensor:
        y = model(x, out)
        seen.append(model.total.clone())
        return y

    capture = steady(compiled(step), *[(x, out) for (x,) in inputs])
    sums = torch.stack([x.sum(0) for (x,) in inputs]).cumsum(0)
    torch.testing.assert_close(torch.stack(seen), sums)
    for _ in range(2):
        assert not model.total.any()
        assert not model.last.any()
        assert not out.any()
        assert model.linear.weight.grad is grad
        assert torch.equal(grad, torch.ones(3, 3))
        assert model.linear.bias.grad is None
        capture.assert_matches_eager()


@pytest.mark.parametrize(
    ("fault", "message"),
    [
        ("buffer", r"call 1 of 2: output differs"),
        ("argument", r"call 1 of 2: after the call, argument 'out' differs"),
        ("gradient", r"call 1 of 2: gradient of 'linear.weight' differs"),
    ],
)
def test_difference_in_state_fails(fault: str, message: str) -> None:
    model, out = Counting(fault), torch.zeros(3)
    seen = steady(compiled(model), *[(x, out) for (x,) in calls(2)])
    with pytest.raises(AssertionError, match=message):
        seen.assert_matches_eager()
    assert not model.total.any()


def stale(backend: str = "aot_eager") -> tuple[Any, dict[str, float]]:
    """Return a compiled step that keeps the first value of a setting, and the settings."""
    settings = {"factor": 1.0}

    def step(x: torch.Tensor) -> torch.Tensor:
        return x * settings["factor"]

    options = {"guard_filter_fn": lambda guards: [False] * len(guards)}
    return compiled(step, backend=backend, options=options), settings


def test_first_differing_call_is_named() -> None:
    step, settings = stale()

    def changing(x: torch.Tensor) -> torch.Tensor:
        y = step(x)
        settings["factor"] = 3.0
        return y

    x = torch.ones(3)
    with pytest.raises(AssertionError, match=r"call 1 of 3: output differs") as error:
        steady(changing, (x,), (x,), (x,)).assert_matches_eager()
    assert "Python values, which the eager run did not put back" in str(error.value)
    assert "`settings['factor']` was 1.0, and is now 3.0" in str(error.value)
    torch._dynamo.reset()
    step, settings = stale()

    def by_call(x: torch.Tensor, factor: float) -> torch.Tensor:
        settings["factor"] = factor
        return step(x)

    seen = steady(by_call, (x, 1.0), (x, 1.0), (x, 2.0), (x, 2.0))
    with pytest.raises(AssertionError, match=r"call 3 of 4: output differs"):
        seen.assert_matches_eager()


def test_call_without_compiled_code_fails() -> None:
    x = torch.ones(3)
    uncompiled = steady(torch.nn.Linear(3, 3), (x,), (x,))
    with pytest.raises(AssertionError, match="no compiled code ran in call 1 of 2") as error:
        uncompiled.assert_matches_eager()
    assert "steady(torch.compile(target), ...)" in str(error.value)
    step = compiled(torch.nn.Linear(3, 3), dynamic=False)
    with torch._dynamo.config.patch(recompile_limit=1):
        seen = steady(step, (torch.ones(2, 3),), (torch.ones(4, 3),))
    with pytest.raises(AssertionError, match="no compiled code ran in call 2 of 2") as error:
        seen.assert_matches_eager()
    assert "recompile limit" in str(error.value)


@pytest.mark.parametrize(
    ("target", "reason"),
    [
        (lambda x: x.nonzero(), "output shape depends on input Tensor data"),
        (lambda x: x, "Dynamo found no tensor operations in <lambda>: it computes nothing"),
    ],
)
def test_compiled_call_without_a_graph_is_not_advised_to_compile(target: Any, reason: str) -> None:
    x = torch.ones(3, 1)
    seen = steady(compiled(target), (x,), (x,), backward=False)
    with pytest.raises(AssertionError, match="no compiled code ran in call 1 of 2") as error:
        seen.assert_matches_eager()
    assert re.search(reason, str(error.value))
    assert "torch.compile(target)" not in str(error.value)


def test_call_with_nothing_to_compare_fails() -> None:
    step = compiled(lambda x: x * 2)
    seen = steady(step, (torch.ones(3),), (torch.zeros(3),))
    with pytest.raises(AssertionError, match="call 2 of 2: nothing compared: all floating-point"):
        seen.assert_matches_eager()


def test_custom_backend_of_the_user_is_compared() -> None:
    def backend(gm: torch.fx.GraphModule, _inputs: list[torch.Tensor]) -> Any:
        return lambda *args: [value + 1 for value in gm(*args)]

    step = compiled(torch.sin, backend=backend)
    with pytest.raises(AssertionError, match="call 1 of 2: output differs"):
        steady(step, (torch.ones(3),), (torch.ones(3),)).assert_matches_eager()


def test_calls_are_repeated_with_their_random_numbers() -> None:
    model = torch.nn.Sequential(torch.nn.Linear(3, 3), torch.nn.Dropout(0.5))
    seen = steady(compiled(model), *calls(3))
    seen.assert_no_recompiles()
    state = torch.get_rng_state()
    torch.rand(7)
    seen.assert_matches_eager()
    torch.set_rng_state(state)


@pytest.mark.slow("compiles with inductor")
def test_random_numbers_of_inductor_are_explained() -> None:
    model = torch.nn.Dropout(0.5)
    seen = steady(torch.compile(model), (torch.ones(100),), (torch.ones(100),))
    with pytest.raises(AssertionError, match=r"call 1 of 2") as error:
        seen.assert_matches_eager()
    assert "fallback_random = True" in str(error.value)
    torch._dynamo.reset()
    with torch._inductor.config.patch(fallback_random=True):
        steady(torch.compile(model), (torch.ones(100),), (torch.ones(100),)).assert_matches_eager()


def test_own_backward_of_a_step_is_compared() -> None:
    model = compiled(Counting())

    def step(x: torch.Tensor) -> torch.Tensor:
        loss = model(x).square().sum()
        loss.backward()
        return loss.detach()

    steady(step, *calls(3)).assert_matches_eager()


def test_state_that_changed_since_is_an_error() -> None:
    model = Counting()
    seen = steady(compiled(model), *calls(2))
    model.total += 1
    with pytest.raises(CaptureError, match="total changed after the capture"):
        seen.assert_matches_eager()


def test_watch_sends_to_steady() -> None:
    step = compiled(torch.sin)
    with watch() as seen:
        step(torch.ones(3))
    for capture in (seen, seen.only(function="*")):
        with pytest.raises(CaptureError, match=r"graph_capture.steady\(target, \(x,\), \(x,\)\)"):
            capture.assert_matches_eager()
        with pytest.raises(CaptureError, match="not available via 'watch'"):
            capture.first_difference()


def test_comparison_is_unseen_by_an_open_watch() -> None:
    step, x = compiled(torch.sin), torch.ones(3)
    with watch() as outer:
        seen = steady(step, (x,), (x,))
        seen.assert_matches_eager()
    assert outer.eager_calls == ()
    assert seen.executions == {"0/0": 1}


def test_no_tensor_outlives_the_capture() -> None:
    def run() -> tuple[Capture, list[weakref.ref[torch.Tensor]]]:
        model = Counting()
        inputs = calls(2)
        kept = [weakref.ref(t) for t in (model.total, model.linear.weight, inputs[0][0])]
        seen = steady(compiled(model), *inputs)
        seen.assert_matches_eager()
        return seen, kept

    seen, kept = run()
    del seen
    torch._dynamo.reset()
    gc.collect()
    assert [ref() for ref in kept] == [None] * 3
