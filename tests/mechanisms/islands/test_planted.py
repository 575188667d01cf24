"""Ops in places where a recording could miss them: each is in the capture, or it is refused."""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
import torch
from mechanisms.islands.cases import disabled, scaled
from mechanisms.models import BOTH, example
from torch import Tensor, nn

from pytest_torchgraph import CaptureError, capture


def in_thread(function: Callable[[], Tensor]) -> Tensor:
    found: list[Tensor] = []
    thread = threading.Thread(target=lambda: found.append(function()), name="planted")
    thread.start()
    thread.join()
    return found[0]


def threaded(x: Tensor) -> Tensor:
    x = x.sin()
    y = in_thread(lambda: x.exp())
    return y.cos()


def threaded_without_grad(x: Tensor) -> Tensor:
    x = x.sin()
    y = in_thread(lambda: x.detach().exp())
    return x * y


def threaded_at_the_end(x: Tensor) -> Tensor:
    x = x.sin()
    return in_thread(lambda: x.exp())


def in_a_pool(x: Tensor) -> Tensor:
    x = x.sin()
    with ThreadPoolExecutor(1) as pool:
        y = pool.submit(x.exp).result()
    return y.cos()


@pytest.mark.parametrize("via", [*BOTH, "inductor"])
@pytest.mark.parametrize(
    "target", [threaded, threaded_without_grad, threaded_at_the_end, in_a_pool]
)
def test_what_a_thread_of_the_target_runs_is_refused_with_the_place(
    target: Callable[[Tensor], Tensor], via: str
) -> None:
    before = threading.getprofile()
    with pytest.raises(CaptureError) as caught:
        capture(target, example(2, 4, grad=True), via=via)
    message = str(caught.value)
    assert "ran unseen" in message
    assert "thread" in message
    if target is not threaded_at_the_end:
        assert f" in {target.__name__} (" in message
        assert "islands/test_planted.py:" in message
    assert threading.getprofile() is before


def test_a_thread_whose_results_nobody_uses_is_no_reason_to_refuse() -> None:
    def target(x: Tensor) -> Tensor:
        in_thread(lambda: torch.ones(2))
        return x.sin()

    assert capture(target, example(2, 4, grad=True)).op_counts["aten.sin"] == 1


class Planted(nn.Module):
    """Compiled code on both sides of something that runs `aten.atan`."""

    def __init__(self, planted: Callable[[Tensor], Tensor]) -> None:
        super().__init__()
        self.first = nn.Linear(4, 4)
        self.planted = planted

    def forward(self, x: Tensor) -> Tensor:
        x = self.first(x).relu()
        x = self.planted(x)
        return x.exp()


@torch.compiler.disable
def in_a_disabled_function(x: Tensor) -> Tensor:
    return x.atan()


def behind_a_break_in_a_loop(x: Tensor) -> Tensor:
    for _ in range(2):
        print(end="")
        x = x.atan()
    return x


def at_a_break(x: Tensor) -> Tensor:
    print(end="", flush=x.atan().sum().item() > 1e9)
    return x


class Hooked(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.inner = nn.Tanh()
        self.inner.register_forward_hook(self.hook)

    @torch.compiler.disable
    def hook(self, _module: nn.Module, _args: Any, output: Tensor) -> Tensor:
        return output.atan()

    def forward(self, x: Tensor) -> Tensor:
        return self.inner(x)  # type: ignore[no-any-return]


@torch.compiler.disable
def with_a_hook_on_the_gradient(x: Tensor) -> Tensor:
    y = x * 1.5
    y.register_hook(lambda grad: grad.atan())
    return y


class OfItsOwn(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        return x.clone()

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> Tensor:
        return grad.atan()


in_a_backward_of_its_own = torch.compiler.disable(OfItsOwn.apply)

PLANTED: dict[str, Callable[[Tensor], Tensor]] = {
    "disabled function": in_a_disabled_function,
    "behind a break in a loop": behind_a_break_in_a_loop,
    "at a break": at_a_break,
    "forward hook": Hooked(),
    "hook on a gradient": with_a_hook_on_the_gradient,
    "autograd function": in_a_backward_of_its_own,
}


@pytest.mark.parametrize("via", ["aot", "inductor"])
@pytest.mark.parametrize("place", PLANTED)
def test_a_planted_op_is_in_the_capture_with_its_line(place: str, via: str) -> None:
    found = capture(Planted(PLANTED[place]), example(2, 4), via=via)
    nodes = [node for graph in found.program for node in graph.find("aten.atan")]
    assert nodes
    eager = [node for graph in found.eager for node in graph.find("aten.atan")]
    assert all("atan()" in node.source.code for node in eager if node.source is not None)
    assert all(node.source is not None for node in eager)
    if place not in ("behind a break in a loop", "at a break"):
        assert eager
    with pytest.raises(AssertionError, match=r"aten\.atan: found"):
        found.assert_no_ops("aten.atan")
    found.assert_matches_eager()


@pytest.mark.parametrize("via", BOTH)
def test_an_op_in_the_body_of_a_custom_op_is_that_op(via: str) -> None:
    """Its body is a kernel, as those of C++ are: the op is what the program has."""

    @torch.compiler.disable
    def inner(x: Tensor) -> Tensor:
        return scaled(x, 3.0)  # type: ignore[no-any-return]

    def target(x: Tensor) -> Tensor:
        return inner(x.sin()).cos()

    found = capture(target, example(2, 4, grad=True), via=via)
    assert found.op_counts["islands_cases.scaled"] == 1


def test_a_higher_order_op_that_runs_eagerly_is_refused_with_its_line() -> None:
    @torch.compiler.disable
    def branch(x: Tensor) -> Tensor:
        return torch.cond(x.sum() > 0, lambda y: y.sin(), lambda y: y.cos(), (x,))  # type: ignore[no-any-return]

    def target(x: Tensor) -> Tensor:
        return branch(x.exp()).tanh()

    with pytest.raises(CaptureError) as caught:
        capture(target, example(2, 4))
    message = str(caught.value)
    assert "higher_order.cond ran eagerly" in message
    assert "in branch (return torch.cond(" in message


def test_a_value_that_an_op_made_before_is_refused_where_it_hides() -> None:
    memory: dict[str, Tensor] = {"x": example(4, grad=True).exp()}

    def target(x: Tensor) -> Tensor:
        return disabled(x.sin()) * next(iter(memory.values()))

    with pytest.raises(CaptureError, match="something ran unseen"):
        capture(target, example(2, 4))


def test_nothing_compiled_at_all_is_refused() -> None:
    with pytest.raises(CaptureError, match="nothing was captured via 'aot'"):
        capture(lambda x: disabled(x), example(2, 4))
