"""Ops in places that a recording could miss: each is captured, or the capture is refused."""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

import pytest
import torch
from mechanisms.islands.cases import disabled
from mechanisms.models import BOTH, example, in_a_thread
from torch import Tensor, nn

from pytest_torchgraph import CaptureError, capture


def in_a_pool(x: Tensor) -> Tensor:
    x = x.sin()
    with ThreadPoolExecutor(1) as pool:
        y = pool.submit(x.exp).result()
    return y.cos()


def test_ops_of_an_ended_thread_are_refused_in_a_process_with_one_thread(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    # A worker of xdist has a second thread, a run without xdist has not.
    monkeypatch.setattr(threading, "active_count", lambda: 1)
    for _ in range(20):  # the sequence numbers of a new thread begin below those of this one
        example(2, 4, grad=True).sin()
    with pytest.raises(CaptureError, match="ran unrecorded"):
        capture(in_a_pool, example(2, 4, grad=True), via="dispatch")


class Planted(nn.Module):
    """Two compiled parts, and between them code that runs `aten.atan`."""

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


def after_a_break_in_a_loop(x: Tensor) -> Tensor:
    for _ in range(2):
        print(end="")
        x = x.atan()
    return x


def at_a_break(x: Tensor) -> Tensor:
    print(end="", flush=x.atan().sum().item() > 1e9)
    return x


@torch.compiler.disable
def with_a_hook_on_the_gradient(x: Tensor) -> Tensor:
    y = x * 1.5
    y.register_hook(lambda grad: grad.atan())
    return y


PLANTED: dict[str, Callable[[Tensor], Tensor]] = {
    "disabled function": in_a_disabled_function,
    "after a break in a loop": after_a_break_in_a_loop,
    "at a break": at_a_break,
    "hook on a gradient": with_a_hook_on_the_gradient,
}


@pytest.mark.parametrize("place", PLANTED)
def test_a_planted_op_is_in_the_capture_with_its_line(place: str) -> None:
    captured = capture(Planted(PLANTED[place]), example(2, 4))
    nodes = [node for graph in captured.program for node in graph.find("aten.atan")]
    assert nodes
    eager = [node for graph in captured.eager for node in graph.find("aten.atan")]
    assert all("atan()" in node.source.code for node in eager if node.source is not None)
    assert all(node.source is not None for node in eager)
    if place not in ("after a break in a loop", "at a break"):
        assert eager
    with pytest.raises(AssertionError, match=r"aten\.atan: found"):
        captured.assert_no_ops("aten.atan")
    captured.assert_matches_eager()


class KeepsItsState(nn.Module):
    """Keeps a tensor that depends on its parameters, like the state of a recurrent model."""

    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(4, 4)
        self.doubled = self.linear.weight * 2

    def forward(self, x: Tensor) -> Tensor:
        return disabled(self.linear(x)) @ self.doubled


def test_tensor_made_before_the_capture_is_a_constant() -> None:
    found = capture(KeepsItsState(), example(2, 4), via="dispatch")
    assert found.op_counts["aten.mm"] > 0
    memory = {"x": example(4, grad=True).exp()}
    captured = capture(lambda x: disabled(x.sin()) * memory["x"], example(2, 4), via="dispatch")
    assert captured.op_counts["aten.mul"] > 0


def test_capture_without_compiled_graphs_is_refused() -> None:
    with pytest.raises(CaptureError, match="nothing was captured via 'aot'"):
        capture(lambda x: disabled(x), example(2, 4))


def written_by_a_thread(x: Tensor) -> Tensor:
    y = x.sin()
    with torch.no_grad():
        in_a_thread(lambda: y.mul_(2))
    return y.cos()


def a_view_written_by_a_thread(x: Tensor) -> Tensor:
    y = x.sin()
    row = y.detach()[0]
    in_a_thread(lambda: row.add_(1))
    return y.cos()


def written_by_a_thread_at_the_end(x: Tensor) -> Tensor:
    y = x.sin()
    with torch.no_grad():
        in_a_thread(lambda: y.mul_(2))
    return y


class WritesItsBuffer(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.count = nn.Buffer(torch.zeros(4))

    def forward(self, x: Tensor) -> Tensor:
        in_a_thread(lambda: self.count.add_(1))
        return x.sin()


@pytest.mark.parametrize("via", BOTH)
@pytest.mark.parametrize(
    "target",
    [
        written_by_a_thread,
        a_view_written_by_a_thread,
        written_by_a_thread_at_the_end,
        WritesItsBuffer(),
    ],
    ids=["tensor", "view", "output", "buffer"],
)
def test_writes_in_a_thread_of_the_target_are_refused_with_their_line(
    target: Callable[[Tensor], Tensor], via: str
) -> None:
    with pytest.raises(CaptureError) as caught:
        capture(target, example(2, 4, grad=True), via=via)
    message = str(caught.value)
    assert "something ran unrecorded" in message
    assert "no recorded op wrote to" in message
    assert "thread 'worker', started during the capture" in message
    if target in (written_by_a_thread, a_view_written_by_a_thread):
        assert f" in {target.__name__} (" in message
    if isinstance(target, nn.Module):
        assert "buffer 'count'" in message


class Norm(nn.Module):
    """Writes to its buffers, compiled and eagerly, after a thread has started."""

    def __init__(self) -> None:
        super().__init__()
        self.norm = nn.BatchNorm1d(4)
        self.seen = nn.Buffer(torch.zeros(2, 4))

    def forward(self, x: Tensor) -> Tensor:
        x = self.norm(x)
        in_a_thread(lambda: torch.ones(2).mul_(2))
        x = self.norm(x)
        self.seen[0].copy_(x[0].detach())
        torch._dynamo.graph_break()
        x = self.norm(self.seen.add_(1) + x)
        row = x[0]
        with torch.no_grad():
            x.detach().mul_(2)
        return x.sin() * row.sin()


def test_writes_of_the_target_beside_a_thread_are_not_refused() -> None:
    assert capture(Norm(), example(2, 4, grad=True), via="dispatch").op_counts["aten.sin"] >= 2
