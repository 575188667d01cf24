"""`first_difference` names the wrong pass: one of inductor's own, or a custom one."""

from __future__ import annotations

import importlib
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, fx, nn

from pytest_torchgraph import Divergence, Inductor, capture

aten = torch.ops.aten


class Net(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.first, self.second = nn.Linear(6, 8), nn.Linear(8, 4)

    def forward(self, x: Tensor) -> Tensor:
        return torch.sin(self.second(torch.tanh(self.first(x)))) * 1.5  # type: ignore[no-any-return]


def replacing(old: Any, new: Any) -> Callable[[fx.Graph], None]:
    """Return a pass that replaces one op by another."""

    def wrong_pass(graph: fx.Graph) -> None:
        for node in graph.find_nodes(op="call_function", target=old):
            node.target = new
            return

    return wrong_pass


def scaling(graph: fx.Graph) -> None:
    """Change a constant."""
    for node in graph.find_nodes(op="call_function", target=aten.mul.Tensor):
        if node.args[1] == 1.5:
            node.args = (node.args[0], 1.25)


def swapping(graph: fx.Graph) -> None:
    """Make the second layer read the input of the activation."""
    for node in graph.find_nodes(op="call_function", target=aten.tanh.default):
        node.replace_all_uses_with(node.args[0])  # type: ignore[arg-type]
        return


SINE = replacing(aten.sin.default, aten.cos.default)
OWN = {
    "remove_noop_ops": ("post_grad", "remove_noop_ops", SINE),
    "remove_profiler_ops": ("post_grad", "_remove_profiler_ops", scaling),
    "remove_assert_ops": ("post_grad", "remove_assert_ops", swapping),
    "group_batch_fusion_passes": ("post_grad", "group_batch_fusion_passes", SINE),
    "stable_sort": ("post_grad", "stable_topological_sort", scaling),
    "constant_fold_uniform_value": ("joint_graph", "constant_fold_uniform_value", scaling),
}
CUSTOM = {
    "joint_pre": SINE,
    "joint_post": scaling,
    "post_grad_pre": swapping,
    "post_grad_post": scaling,
    "post_grad": SINE,
}


def found(via: Inductor, grad: bool = False) -> Divergence:
    x = torch.linspace(-1, 1, 12).reshape(2, 6)
    with torch.set_grad_enabled(grad):
        divergence = capture(Net(), x, via=via).first_difference()
    assert divergence is not None
    assert divergence.stage == "passes", divergence
    return divergence


@pytest.mark.slow("each case compiles ten times")
@pytest.mark.parametrize("name", OWN)
def test_wrong_pass_of_inductor_is_named(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    module, function, wrong = OWN[name]
    fx_passes = importlib.import_module(f"torch._inductor.fx_passes.{module}")
    right = getattr(fx_passes, function)

    def sabotaged(graph: Any, *args: Any, **kwargs: Any) -> Any:
        result = right(graph, *args, **kwargs)
        wrong(graph.graph if isinstance(graph, fx.GraphModule) else graph)
        return result

    sabotaged.__name__, sabotaged.__module__ = right.__name__, right.__module__
    monkeypatch.setattr(fx_passes, function, sabotaged)
    divergence = found(Inductor(codegen=False))
    assert divergence.pass_name == name
    assert f"in inductor's pass {name}" in str(divergence)


@pytest.mark.slow("each case compiles ten times", unless=["post_grad"])
@pytest.mark.parametrize("place", CUSTOM)
def test_wrong_pass_of_the_user_is_named(place: str) -> None:
    def right(graph: fx.Graph) -> None:
        pass

    wrong = CUSTOM[place]
    divergence = found(Inductor(codegen=False, passes={place: [right, wrong]}))
    assert divergence.pass_name == wrong.__name__


@pytest.mark.slow("compiles ten times")
def test_wrong_pass_of_a_training_step_is_named() -> None:
    divergence = found(Inductor(codegen=False, passes={"joint_post": [scaling]}), grad=True)
    assert divergence.pass_name == "scaling"


def test_other_stages_have_no_pass() -> None:
    def eager_differs(x: Tensor) -> Tensor:
        return x * 2 if torch.compiler.is_compiling() else x * 3

    divergence = capture(eager_differs, torch.ones(2), via="aot").first_difference()
    assert divergence is not None
    assert divergence.pass_name == ""
