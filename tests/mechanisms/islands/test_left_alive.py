"""Objects that a capture keeps alive, while it runs and after it is deleted."""

import gc
import weakref
from collections import Counter

import pytest
import torch
from mechanisms.islands.cases import disabled
from mechanisms.models import Head, example
from torch import Tensor, nn

import pytest_torchgraph


def alive() -> tuple[int, int]:
    """Count the living objects of this package's types, and the living modules of torch.fx."""
    gc.collect()
    types = Counter(map(type, gc.get_objects()))
    ours = [kind for kind in types if str(kind.__module__).startswith("pytest_torchgraph.")]
    modules = [kind for kind in types if issubclass(kind, torch.fx.GraphModule)]
    return sum(types[each] for each in ours), sum(types[module] for module in modules)


@pytest.mark.slow("long models; short ones are in every run")
@pytest.mark.parametrize("via", ["aot", "inductor", "dynamo", "dispatch"])
def test_deleted_capture_keeps_no_compilation_alive(via: str) -> None:
    """Without graph breaks and compiled autograd, because then torch itself keeps them alive."""
    model = Head()
    found = []
    for _ in range(4):
        pytest_torchgraph.capture(model, torch.ones(2, 4), via=via)
        found.append(alive())
    # What earlier tests left behind may end in between.
    assert found[3][0] <= found[1][0], found
    assert found[3][1] <= found[1][1], found


class Retaining(nn.Module):
    """Dynamo breaks at `retain_grad`."""

    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Linear(4, 4)
        self.head = nn.Linear(4, 2)

    def forward(self, x: Tensor) -> Tensor:
        y = self.first(x)
        disabled(y)
        y.retain_grad()
        return self.head(y)


def test_gradient_of_a_deleted_tensor_is_not_retained() -> None:
    gc.disable()
    try:
        captured = pytest_torchgraph.capture(Retaining(), example(2, 4))
    finally:
        gc.enable()
    assert len(captured.breaks) > 1
    captured.assert_no_ops("aten.clone")


def test_a_graph_break_keeps_no_tensor_of_the_target_alive() -> None:
    seen: list[weakref.ref[Tensor]] = []
    alive: list[bool] = []

    @torch.compiler.disable
    def see(y: Tensor) -> None:
        seen.append(weakref.ref(y))

    def target(x: Tensor) -> Tensor:
        y = x.sin()
        see(y)
        y.retain_grad()
        return y.exp()

    def loss(output: Tensor) -> Tensor:
        alive.append(seen[-1]() is not None)
        return output.sum()

    gc.disable()
    try:
        pytest_torchgraph.capture(target, example(2, 4, grad=True), loss_fn=loss)
    finally:
        gc.enable()
    assert alive == [False]
