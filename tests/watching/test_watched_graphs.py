"""A watch reads the same graphs as a capture, from the trace's text only."""

from __future__ import annotations

import itertools
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch_releases import skip_before
from watching import hook_cases, recompile_cases

from pytest_torchgraph import Aot, Capture, CaptureError, capture, diff, watch

pytestmark = pytest.mark.filterwarnings("ignore:::torch", "ignore:The .grad attribute")


class Small(nn.Module):
    """Declares its parts in alphabetical order, which is the order of a watch."""

    def __init__(self) -> None:
        super().__init__()
        self.fc = nn.Linear(4, 8)
        self.out = nn.Linear(8, 2)
        self.register_buffer("scale", torch.ones(2))

    def forward(self, x: Tensor) -> Tensor:
        return self.out(self.fc(x).relu()) * self.scale


class Attention(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.key = nn.Linear(4, 4, bias=False)
        self.query = nn.Linear(4, 4, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        scores = self.query(x) @ self.key(x).transpose(-1, -2)
        return scores.softmax(-1) @ x


def updated(x: Tensor) -> Tensor:
    y = x.clone()
    y.add_(1)
    return torch.nn.functional.dropout(y, 0.5) * 2


def checkpointed(x: Tensor) -> Tensor:
    from torch.utils.checkpoint import checkpoint

    return checkpoint(lambda y: y.sin().cos(), x, use_reentrant=False) * 2


SUBJECTS: dict[str, tuple[Callable[[], Any], tuple[int, ...]]] = {
    "mlp": (Small, (3, 4)),
    "attention": (Attention, (3, 4)),
    "in_place": (lambda: updated, (3, 4)),
    "checkpoint": (lambda: checkpointed, (3, 4)),
    "broken": (lambda: hook_cases.three_parts, (3, 4)),
}


def data(*size: int, grad: bool = True) -> Tensor:
    return torch.linspace(0, 1, int(torch.tensor(size).prod())).view(size).requires_grad_(grad)


def watched(
    target: Any, *args: Any, backend: str, backward: bool = True, **options: Any
) -> Capture:
    torch._dynamo.reset()
    with watch() as seen:
        output = torch.compile(target, backend=backend, **options)(*args)
        if backward:
            output.sum().backward()
    return seen


def difference(a: Capture, b: Capture) -> str:
    return f"{a.to_text()}\n--- is not ---\n{b.to_text()}"


# -- equal to a capture ----------------------------------------------------------------------------

MIN_CUT = Aot(partition="min_cut")  # as the backend aot_eager
DYNAMIC = Aot(dynamic=True, partition="min_cut")
LEVELS: dict[str, tuple[str, dict[str, Any], Any]] = {
    "aot": ("aot_eager", {}, MIN_CUT),
    "dynamo": ("eager", {}, "dynamo"),
    "dynamic": ("aot_eager", {"dynamic": True}, DYNAMIC),
}


@pytest.mark.slow("further models and backends", unless=["mlp-*"])
@pytest.mark.parametrize(
    ("name", "how"),
    [*itertools.product(SUBJECTS, ["aot", "dynamo"]), ("attention", "dynamic")],
)
def test_watched_graphs_equal_those_of_a_capture(name: str, how: str) -> None:
    make, size = SUBJECTS[name]
    backend, options, via = LEVELS[how]
    level: Any = "dynamo" if how == "dynamo" else "aot"
    seen = watched(make(), data(*size), backend=backend, **options)
    assert {graph.level for graph in seen.graphs} == {level}
    captured = capture(make(), data(*size), via=via)
    # A capture orders the backwards by their runs, and a watch puts each after its forward.
    for a, b in (
        (seen.forwards, captured.forwards),
        (seen.backwards, captured.backwards[::-1]),
    ):
        assert [graph.kind for graph in a] == [graph.kind for graph in b]
        assert a == b, difference(seen, captured)
    again_at = watched(make(), data(*size), backend="aot_eager", **options).at(level)
    assert again_at.graphs == seen.graphs
    if (name, how) == ("mlp", "aot"):
        assert seen.joint == captured.joint


@pytest.mark.slow("inductor compiles C++ for each case")
@pytest.mark.parametrize("name", ["mlp", "attention"])
def test_watched_inductor_graphs_equal_those_of_a_capture(name: str) -> None:
    make, size = SUBJECTS[name]
    seen = watched(make(), data(*size), backend="inductor")
    captured = capture(make(), data(*size), via="inductor")
    assert seen.at("post_grad") == captured, difference(seen.at("post_grad"), captured)
    assert [k.name for k in seen.kernels] == [k.name for k in captured.kernels]


def test_missing_level_of_a_watch_is_an_error() -> None:
    seen = watched(Small(), data(3, 4), backend="eager")
    with pytest.raises(
        CaptureError,
        match=r"level 'post_grad' was not captured \(captured levels: dynamo.*use via='inductor'",
    ):
        seen.at("post_grad")
    with pytest.raises(CaptureError, match=r"kernels are not .* made by watch\(\)"):
        seen.kernels
    with pytest.raises(CaptureError, match="a joint graph is not available"):
        seen.joint


@pytest.mark.slow("compiles several models")
def test_op_that_one_of_two_levels_cannot_hold_is_refused() -> None:
    with watch() as seen:
        torch.compile(torch.exp, backend="eager")(data(3))
        torch.compile(torch.sin, backend="aot_eager")(data(3))
    checks: list[Callable[[], object]] = [
        lambda: seen.assert_no_ops("aten.exp"),
        lambda: seen.assert_op_counts({"aten.sin": 1}),
        lambda: seen.assert_no_ops("torch.exp2"),
        lambda: seen.assert_no_pattern("aten.exp -> aten.sin"),
    ]
    for check in checks:
        with pytest.raises(CaptureError, match=r"different levels \(aot, dynamo\).*only\("):
            check()
    with pytest.raises(CaptureError, match=r"forward_0 has no graph at level 'aot'.*AOTAutograd"):
        seen.at("aot")
    seen.at("dynamo").assert_op_counts({"torch.exp": 1, "torch.sin": 1})


# -- equal and not ---------------------------------------------------------------------------------


def test_order_of_reads_does_not_change_a_watch() -> None:
    function = torch.compile(Small(), backend="aot_eager", dynamic=True)
    with watch() as seen:
        for size in (3, 5):
            function(data(size, 4)).sum().backward()
    first, second = seen.only(), seen.only()
    joint = first.joint.to_text()
    levels = [first.at(level).to_text() for level in ("aot", "dynamo")]  # type: ignore[arg-type]
    own = first.to_text()
    assert "s0" in joint
    assert second.to_text() == own
    assert [second.at("aot").to_text(), second.at("dynamo").to_text()] == levels
    assert second.joint.to_text() == joint


# -- caches ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["linear", "zoom"])
def test_a_layer_with_another_name_is_no_difference(name: str) -> None:
    class Gated(nn.Module):
        def __init__(self, value: str) -> None:
            super().__init__()
            self.gate, self.out = nn.Linear(4, 8), nn.Linear(8, 2)
            self.value = value
            setattr(self, value, nn.Linear(4, 8))

        def forward(self, x: Tensor) -> Tensor:
            value = getattr(self, self.value)(x)
            return self.out(torch.sigmoid(self.gate(x)) * value)

    one, other = (watched(Gated(layer), data(3, 4), backend="aot_eager") for layer in ("up", name))
    assert not diff(one, other)


@pytest.mark.slow("inductor generates code")
@pytest.mark.parametrize("backward", [True, False])
def test_watched_graphs_are_equal_with_cold_and_warm_caches(
    backward: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    skip_before("2.10", "torch does not log post-grad graphs")
    monkeypatch.setenv("TORCHINDUCTOR_CACHE_DIR", str(tmp_path))
    model = Small()
    torch._dynamo.utils.counters.clear()
    with torch.set_grad_enabled(backward):
        cold, warm = (
            watched(model, data(3, 4), backend="inductor", backward=backward) for _ in range(2)
        )
    counted = torch._dynamo.utils.counters
    assert counted["aot_autograd"]["autograd_cache_miss"] == 1
    assert counted["aot_autograd"]["autograd_cache_hit"] == 1
    assert os.listdir(tmp_path)
    assert cold == warm, difference(cold, warm)
    assert cold.to_text() == warm.to_text()
    for level in ("dynamo", "aot", "post_grad"):
        assert cold.at(level).to_text() == warm.at(level).to_text()  # type: ignore[arg-type]
    assert cold.kernels == warm.kernels
    assert len(cold.kernels) > 0
    assert cold.executions == warm.executions
    assert len(cold.backwards) == len(warm.backwards) == int(backward)


# -- runs ------------------------------------------------------------------------------------------


def test_a_backward_counts_only_if_it_ran() -> None:
    seen = watched(Small(), data(3, 4), backend="aot_eager", backward=False)
    seen.assert_graph_count(forward=1, backward=0)
    assert seen.forward.kind == "forward"
    with pytest.raises(
        CaptureError, match=r"expected one backward graph, found none .* counts only if it"
    ):
        seen.backward
    with pytest.raises(AssertionError, match="backward: expected 1, found 0"):
        seen.assert_graph_count()
    watched(Small(), data(3, 4), backend="aot_eager").assert_graph_count()


def test_a_backward_that_runs_later_counts_for_the_watch_that_saw_it() -> None:
    function = torch.compile(recompile_cases.doubled, backend="aot_eager")
    first = watch()
    with first:
        loss = function(data(3)).sum()
    loss.backward()
    assert len(first.capture.backwards) == 0
    loss = function(data(3)).sum()
    with first:
        loss.backward()
    assert len(first.capture.backwards) == 1
    assert first.capture.executions == {"0/0": 1, "0/0 backward": 1}


def test_watch_without_gradients_has_an_inference_graph() -> None:
    with torch.no_grad():
        seen = watched(Small(), data(3, 4), backend="aot_eager", backward=False)
    assert [g.kind for g in seen.graphs] == ["inference"]
    seen.assert_graph_count(forward=1, backward=0)
