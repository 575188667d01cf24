"""Parity of targets that bring a backend of their own."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch_releases import skip_before

from pytest_torchgraph import CaptureError, capture


@pytest.fixture(autouse=True)
def fresh() -> None:
    torch._dynamo.reset()


def wrong(gm: torch.fx.GraphModule, _inputs: list[torch.Tensor]) -> Callable[..., Any]:
    """Return one more than the graph does."""

    def run(*args: Any) -> Any:
        return [value + 1 for value in gm(*args)]

    return run


def eager(gm: torch.fx.GraphModule, inputs: list[torch.Tensor]) -> Callable[..., Any]:
    """Compute wrongly under the name of a backend of torch."""
    return wrong(gm, inputs)


class Inner(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.linear = torch.nn.Linear(4, 4)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.tanh(self.linear(x))


class Outer(torch.nn.Module):
    def __init__(self, inner: Any) -> None:
        super().__init__()
        self.inner = inner

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.inner(x) * 2


def compiled_in_place(module: torch.nn.Module, **options: Any) -> torch.nn.Module:
    module.compile(**options)
    return module


def called_in_closure(**options: Any) -> Callable[..., Any]:
    part = torch.compile(lambda x: x.sin(), **options)
    return lambda x: part(x) * 2


def called_after_break(**options: Any) -> Callable[..., Any]:
    part = torch.compile(lambda x: x.sin(), **options)

    def step(x: torch.Tensor) -> torch.Tensor:
        torch._dynamo.graph_break()
        return part(x) * 2

    return step


TARGETS: dict[str, Callable[..., Any]] = {
    "module": lambda **options: torch.compile(Inner(), **options),
    "function": lambda **options: torch.compile(lambda x: x.sin(), **options),
    "function of torch": lambda **options: torch.compile(torch.nn.functional.silu, **options),
    "module of torch": lambda **options: torch.compile(torch.nn.Linear(4, 4), **options),
    "module.compile": lambda **options: compiled_in_place(Inner(), **options),
    "submodule": lambda **options: Outer(torch.compile(Inner(), **options)),
    "submodule.compile": lambda **options: Outer(compiled_in_place(Inner(), **options)),
    "submodule of torch": lambda **options: Outer(
        compiled_in_place(torch.nn.Linear(4, 4), **options)
    ),
    "traced module": lambda **options: Outer(
        torch.compile(torch.fx.symbolic_trace(Inner()), **options)
    ),
    "closure": called_in_closure,
    "closure after a break": called_after_break,
}


@pytest.mark.parametrize("kind", TARGETS)
def test_target_compiled_with_a_custom_backend_is_refused(kind: str) -> None:
    if kind == "function of torch":
        skip_before("2.11", "Dynamo compiles nothing of a function of torch")
    seen = capture(TARGETS[kind](backend=wrong), torch.ones(2, 4), via="dynamo")
    for check in (seen.assert_matches_eager, seen.first_difference):
        with pytest.raises(CaptureError, match="compiled with backend 'wrong'") as error:
            check()
        assert "ran via 'dynamo', without it" in str(error.value)
        assert "graph_capture.steady(target, (x,), (x,)).assert_matches_eager()" in str(error.value)


@pytest.mark.parametrize(
    ("kind", "backend"),
    [
        ("module", "aot_eager"),
        ("submodule.compile", "eager"),
        ("closure after a break", "aot_eager_decomp_partition"),
    ],
)
def test_backend_that_computes_as_the_capture_is_compared(kind: str, backend: str) -> None:
    target = TARGETS[kind](backend=backend)
    capture(target, torch.rand(2, 4), via="dynamo").assert_matches_eager()


@pytest.mark.parametrize(("backend", "options"), [(eager, {}), (wrong, {"device": "cpu"})])
def test_name_or_device_does_not_hide_a_custom_backend(backend: Any, options: Any) -> None:
    seen = capture(torch.compile(Inner(), backend=backend), torch.ones(2, 4), **options)
    with pytest.raises(CaptureError, match=f"compiled with backend '{backend.__name__}'"):
        seen.assert_matches_eager()


@pytest.mark.parametrize(
    ("via", "backend"), [("export", "aot_eager"), ("aot", "aot_eager_default_partitioner")]
)
def test_backend_of_torch_that_computes_otherwise_is_refused(via: str, backend: str) -> None:
    if via == "export":
        skip_before("2.11", "AOTAutograd refuses fake tensors that Dynamo got as inputs")
    seen = capture(Outer(torch.compile(Inner(), backend=backend)), torch.ones(2, 4), via=via)
    with pytest.raises(CaptureError, match=f"compiled with backend {backend!r}"):
        seen.assert_matches_eager()


def wrong_in_compiled_code(x: torch.Tensor) -> torch.Tensor:
    return x.sin() + 1 if torch.compiler.is_compiling() else x.sin()


@pytest.mark.parametrize("seconds", [0, 60])
def test_failure_says_that_the_capture_replaced_inductor(
    seconds: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    from pytest_torchgraph.context import CONTEXT

    monkeypatch.setattr(CONTEXT, "divergence", seconds)
    seen = capture(torch.compile(wrong_in_compiled_code), torch.ones(4))
    with pytest.raises(AssertionError) as error:
        seen.assert_matches_eager()
    assert str(error.value).splitlines()[-1].endswith("the capture ran via aot, not inductor")
    assert capture(torch.compile(torch.sin), torch.ones(4)).first_difference() is None


def test_failure_of_uncompiled_target_names_no_backend() -> None:
    with pytest.raises(AssertionError) as error:
        capture(wrong_in_compiled_code, torch.ones(4)).assert_matches_eager()
    assert "inductor" not in str(error.value)


def test_compiled_part_runs_eagerly_in_the_comparison() -> None:
    part = torch.compile(wrong_in_compiled_code, backend="eager")
    with pytest.raises(AssertionError, match="differs from the eager run"):
        capture(lambda x: part(x) * 2, torch.ones(4)).assert_matches_eager()


def test_comparison_keeps_the_compilations_of_torch_itself() -> None:
    linear = torch.nn.Linear(4, 4)

    def branches(x: torch.Tensor) -> torch.Tensor:
        return torch.cond(x.sum() > 0, lambda x: linear(x), lambda x: x * 2, (x,))

    target = torch.compile(branches, backend="eager")
    capture(target, torch.ones(2, 4), backward=False).assert_matches_eager()
