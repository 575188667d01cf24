"""Regressions: captures that missed something, or two different targets that looked the same."""

from __future__ import annotations

import dataclasses
from typing import Any

import pytest
import torch
from mechanisms.models import BOTH, example
from torch import Tensor, nn

from pytest_torchgraph import Aot, CaptureError, capture, diff


@pytest.mark.parametrize("via", ["dispatch", "dynamo"])
def test_swapped_inputs_and_swapped_modules_are_different(via: str) -> None:
    x, y = example(2, 4), example(2, 4)
    assert capture(lambda x, y: x - y, x, y, via=via) != capture(lambda x, y: y - x, x, y, via=via)
    q, k = nn.Linear(4, 4), nn.Linear(4, 4)
    uses: list[Any] = [
        lambda x, y: q(x) - k(y),
        lambda x, y: k(x) - q(y),
        lambda x, y: q(y) - k(x),
    ]
    captured = [capture(use, x, y, via=via) for use in uses]
    for i, one in enumerate(captured):
        assert [one == other for other in captured] == [i == j for j in range(3)]


@pytest.mark.parametrize("via", BOTH)
def test_earlier_use_of_an_input_moves_no_other_input(via: str) -> None:
    def plain(a: Tensor, b: Tensor) -> Tensor:
        return a.sin() * b

    def earlier(a: Tensor, b: Tensor) -> Tensor:
        b = b.clone()
        return a.sin() * b

    x, y = example(2, 4, grad=True), example(2, 4, grad=True)
    graph_diff = diff(capture(plain, x, y, via=via), capture(earlier, x, y, via=via))
    assert [finding.kind for finding in graph_diff.findings] == ["added"]


@pytest.mark.parametrize("via", BOTH)
def test_leaves_of_closures_and_objects_take_part(via: str) -> None:
    weight = torch.ones(4, requires_grad=True)

    class Trainer:
        def __init__(self) -> None:
            self.model = nn.Linear(4, 4)

        def step(self, x: Tensor) -> Tensor:
            return self.model(x).sum()

    def scaled(x: Tensor) -> Tensor:
        return (x * weight).tanh()

    x = example(2, 4)
    first = capture(scaled, x, via=via)
    assert first.backward.count("aten.tanh_backward") == 1
    assert weight.grad is None
    assert capture(scaled, x, via=via) == first
    trainer = Trainer()
    captured = capture(trainer.step, x, via=via)
    assert captured.backward.count("aten.mm") == 1
    assert {"weight", "bias"} <= {node.name for node in captured.forward.inputs}
    assert trainer.model.weight.grad is None


def test_value_read_back_stays_and_is_not_a_constant() -> None:
    x = example(4)
    first = capture(lambda x: x * (x + 0.3).sum().item(), x, via="dispatch")
    second = capture(lambda x: x * (x + 0.3).sum().item(), x * 1.7, via="dispatch")
    assert first == second
    with pytest.raises(AssertionError, match=r"aten\._local_scalar_dense: found 1"):
        first.assert_no_ops("aten._local_scalar_dense")


@pytest.mark.parametrize("via", BOTH)
def test_a_buffer_that_is_replaced_is_an_output(via: str) -> None:
    class Average(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.register_buffer("mean", torch.zeros(4))

        def forward(self, x: Tensor) -> Tensor:
            self.mean = self.mean * 0.9 + x.detach().mean(0) * 0.1
            return x * 2

    model = Average()
    captured = capture(model, example(2, 4), via=via)
    captured.assert_op_counts({"aten.mean": 1, "aten.mul": 3})
    assert torch.equal(model.mean, torch.zeros(4))


@dataclasses.dataclass
class Holder:
    value: object


def test_outputs_inside_unknown_objects_are_followed() -> None:
    def nested(x: Tensor) -> tuple[Tensor, Holder]:
        return x.sin(), Holder({"deep": Holder(x.cos())})

    captured = capture(nested, example(4), via="dispatch")
    assert captured.op_counts == {"aten.sin.default": 1, "aten.cos.default": 1}


def test_backward_starts_at_output_leaves_not_inside_objects() -> None:
    x = example(4, grad=True)
    expected = capture(lambda x: x.sin(), x, via="dispatch").backward
    beside = capture(lambda x: (x.sin(), Holder(x.exp())), x, via="dispatch")
    assert beside.forward.count("aten.exp") == 1
    assert beside.backward == expected
    assert capture(lambda x: Holder(x.sin()), x, via="dispatch").backward == expected


def test_composite_ops_are_decomposed_in_inference_mode() -> None:
    with torch.inference_mode():
        captured = capture(nn.Linear(4, 4), example(2, 4), via="dispatch")
    assert captured.op_counts == {"aten.t.default": 1, "aten.addmm.default": 1}


def test_casts_cached_by_autocast_are_recorded() -> None:
    model = nn.Linear(4, 4)
    with torch.autocast("cpu", torch.bfloat16):
        counts = [
            capture(model, example(2, 4), via="dispatch").op_counts["aten._to_copy"]
            for _ in range(3)
        ]
    assert counts[0] > 2
    assert len(set(counts)) == 1


@pytest.mark.parametrize("via", BOTH)
def test_loss_of_one_output_starts_only_there(via: str) -> None:
    layer = nn.Linear(4, 4)
    calls: list[int] = []

    def two(x: Tensor) -> tuple[Tensor, Tensor]:
        hidden = layer(x)
        hidden.register_hook(lambda grad: calls.append(1))
        return hidden, hidden.exp()

    captured = capture(two, example(2, 4), loss_fn=lambda out: out[1].sum(), via=via)
    assert captured.backwards
    if via == "dispatch":
        assert [n.name for n in captured.backward.inputs if n.op == "tangent"] == ["tangent.1"]
        assert calls == [1]
    with pytest.raises(CaptureError, match="does not depend on the output"):
        capture(layer, example(2, 4), loss_fn=lambda _: layer.weight.sum(), backward=True, via=via)


# -- state -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("via", BOTH)
def test_running_statistics_are_restored(via: str) -> None:
    norm = nn.BatchNorm1d(4)
    mean, held = norm.running_mean.clone(), norm.eval()(example(2, 4))
    capture(norm.train(), example(2, 4), via=via)
    assert torch.equal(norm.running_mean, mean)
    held.sum().backward()  # the restore was not counted as a write


def test_argument_written_without_a_version_bump_is_restored() -> None:
    x = example(2, 4)
    value = x.clone()
    capture(lambda x: (x.data.add_(1), x * 2)[1], x, via="dispatch")
    assert torch.equal(x, value)


def test_a_dynamic_capture_leaves_no_mark_on_the_tensors() -> None:
    layer, x = nn.Linear(4, 4), example(2, 4)
    before = capture(layer, x)
    capture(layer, x, via=Aot(dynamic=True))
    assert capture(layer, x) == before
    assert not [name for name in vars(x) if name.startswith("_dynamo")]


@pytest.mark.filterwarnings(r"ignore:.*torch\.jit\.trace")
def test_torchscript_is_refused() -> None:
    scripted = torch.jit.trace(nn.Linear(4, 4), example(2, 4), check_trace=False)
    with pytest.raises(CaptureError, match="the target is TorchScript"):
        capture(scripted, example(2, 4), via="dispatch")
