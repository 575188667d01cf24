"""Via dynamo and via compiled_autograd, the same ops run eagerly as via aot."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import Any

import pytest
import torch
from mechanisms.islands.cases import CASES, Target
from mechanisms.models import example
from subjects.models import SUBJECTS
from torch import Tensor, nn

from pytest_torchgraph import Capture, capture

NO_BACKWARD = ("under_no_grad",)
SHORT = ("one_weight_on_both_sides",)


@torch.compiler.disable
def eagerly(call: Callable[..., Any], *args: Any) -> Any:
    return call(*args)


def one_weight_on_both_sides() -> Target:
    linear = nn.Linear(4, 4)

    def target(x: Tensor) -> Tensor:
        first = linear(x)
        torch._dynamo.graph_break()
        return linear(first) + eagerly(linear, x)  # type: ignore[no-any-return]

    return target, (example(2, 4),)


def captured(make: Callable[[], Target], via: str) -> Capture:
    torch.manual_seed(0)
    target, args = make()
    torch.manual_seed(1)
    return capture(target, *args, via=via)


def subject(name: str) -> Callable[[], Target]:
    def make() -> Target:
        found = SUBJECTS[name]()
        assert not found.kwargs
        return found.model, found.args

    return make


TARGETS = {
    **CASES,
    "one_weight_on_both_sides": one_weight_on_both_sides,
    **{name: subject(name) for name in ("lstm_between_blocks", "early_exit")},
}


def ran_eagerly(captured: Capture, *, backward: bool) -> Counter[str]:
    """Count the eager ops of the program, without the autograd engine's own ops."""
    kinds = {graph.name: graph.kind for graph in captured.eager}
    return Counter(
        op.op
        for op in captured.eager_ops
        if not op.by_engine and (backward or kinds[op.graph] != "backward")
    )


def fails(captured: Capture) -> bool:
    try:
        captured.assert_no_eager_ops()
    except AssertionError:
        return True
    return False


@pytest.mark.slow("further models; a few are in every run", unless=SHORT)
@pytest.mark.parametrize("name", TARGETS)
def test_eager_ops_equal_those_via_aot(name: str) -> None:
    aot, dynamo = captured(TARGETS[name], "aot"), captured(TARGETS[name], "dynamo")
    forwards = [
        [graph for graph in found.eager if graph.kind != "backward"] for found in (aot, dynamo)
    ]
    assert forwards[1] == forwards[0]
    assert ran_eagerly(dynamo, backward=True) == ran_eagerly(aot, backward=True)
    assert not any(op.by_engine for op in dynamo.eager_ops if not ran_eagerly(aot, backward=True))
    assert fails(dynamo) == fails(aot)
    assert 0 < dynamo.compiled_share <= 1
    if name not in NO_BACKWARD:
        engine = captured(TARGETS[name], "compiled_autograd")
        assert not any(graph.kind == "backward" for graph in engine.eager)
        assert [*engine.eager] == forwards[0]
        assert ran_eagerly(engine, backward=True) == ran_eagerly(aot, backward=False)
        assert 0 < engine.compiled_share <= 1


def test_hook_on_a_graph_output_is_an_eager_op_via_dynamo() -> None:
    first, second = nn.Linear(4, 4), nn.Linear(4, 4)

    def doubled(grad: Tensor) -> Tensor:
        return grad * 2

    def target(x: Tensor) -> Tensor:
        x = first(x)
        eagerly(x.register_hook, doubled)
        return second(x)  # type: ignore[no-any-return]

    for via in ("aot", "dynamo"):
        captured = capture(target, example(2, 4), via=via)
        assert ran_eagerly(captured, backward=True) == {"aten.mul.Tensor": 1}
        with pytest.raises(AssertionError, match=r"doubled: return grad \* 2"):
            captured.assert_no_eager_ops()
    capture(target, example(2, 4), via="compiled_autograd").assert_no_eager_ops()


def test_eager_inputs_from_a_graph_and_gradients_are_named_by_origin() -> None:
    linear = nn.Linear(4, 4)

    @torch.compiler.disable
    def scaled(x: Tensor, memory: Tensor) -> Tensor:
        return x * memory

    def target(x: Tensor, memory: Tensor) -> Tensor:
        memory.add_(1)
        return scaled(linear(x), memory).sin()

    captured = capture(target, example(2, 4), torch.ones(4), via="dynamo")
    forward, backward = captured.eager
    assert [node.name for node in forward.inputs] == ["forward_0:memory", "forward_0:linear"]
    assert "forward_1:grad" in [node.name for node in backward.inputs]
