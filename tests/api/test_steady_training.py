"""`steady(step, ..., updates=)`: later steps compile nothing, and compute what eager steps do."""

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from pytest_torchgraph import CaptureError, capture


def make(kind, optimizer="AdamW", lr=1e-2, how="optimizer", **options):
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(4, 4), nn.LayerNorm(4), nn.Linear(4, 2))
    optimizer = getattr(torch.optim, optimizer)(model.parameters(), lr=lr, **options)
    scheduler = torch.optim.lr_scheduler.ExponentialLR(optimizer, 0.5)
    update = torch.compile(optimizer.step, backend="aot_eager")

    def step(x, y):
        optimizer.zero_grad()
        loss = F.mse_loss(model(x), y)
        loss.backward()
        update()
        if kind == "schedule":
            scheduler.step()
        return loss.detach()

    return step, (model, optimizer, scheduler)


CALLS = [(torch.ones(3, 4), torch.zeros(3, 2))] * 3


def state(updates):
    model, optimizer, scheduler = updates
    tensors = [p.detach().clone() for p in model.parameters()]
    return tensors, len(optimizer.state), optimizer.param_groups[0]["lr"], scheduler.last_epoch


def test_second_step_compiles_nothing(graph_capture):
    step, updates = make("plain")
    before = state(updates)
    steady = graph_capture.steady(step, *CALLS, updates=updates)
    steady.assert_no_recompiles()
    steady.assert_matches_eager()
    after = state(updates)
    assert all(map(torch.equal, before[0], after[0]))
    assert before[1:] == after[1:]


@pytest.mark.slow("compiles two steps")
def test_lazy_state_compiles_twice(graph_capture):
    step, updates = make("plain", "SGD", momentum=0.9)
    steady = graph_capture.steady(step, *CALLS, updates=updates)
    with pytest.raises(AssertionError, match=r"self.state|momentum_buffer"):
        steady.assert_no_recompiles()


@pytest.mark.slow("compiles a training step twice")
def test_learning_rate_in_a_tensor_does_not_recompile(graph_capture):
    step, updates = make("schedule", lr=torch.tensor(1e-2), foreach=False)
    steady = graph_capture.steady(step, *CALLS, updates=updates)
    steady.assert_no_recompiles()
    steady.assert_matches_eager()


def test_other_parameters_than_eagerly(graph_capture):
    torch.manual_seed(0)
    model = nn.Linear(4, 2)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)

    def rate():
        return 2.0 if torch.compiler.is_compiling() else 1.0

    @torch.no_grad()
    def shrink():
        for parameter in model.parameters():
            parameter.mul_(rate())

    compiled = torch.compile(shrink, backend="aot_eager")

    def step(x, y):
        optimizer.zero_grad()
        loss = F.mse_loss(model(x), y)
        loss.backward()
        optimizer.step()
        compiled()
        return loss.detach() * 0 + 1

    steady = graph_capture.steady(step, *CALLS, updates=(model, optimizer))
    with pytest.raises(AssertionError, match=r"parameter 'weight'|gradient|grad"):
        steady.assert_matches_eager()


def test_wrong_options(graph_capture):
    step, updates = make("plain")
    with pytest.raises(TypeError, match="names nothing"):
        graph_capture.steady(step, *CALLS, updates=())
    with pytest.raises(TypeError, match="cannot be combined with updates="):
        graph_capture.steady(step, *CALLS, updates=updates, backward=False)


def test_capture_of_a_step_refers_to_steady():
    step, updates = make("plain", "SGD")
    captured = capture(step, *CALLS[0], via="dispatch", updates=updates)
    with pytest.raises(CaptureError, match="steady"):
        captured.assert_matches_eager()


def test_compiled_step_of_the_user_is_not_compiled_again(graph_capture):
    step, updates = make("plain", "SGD")
    graph_capture.steady(step, *CALLS, updates=updates)
    with graph_capture.watch() as watch:
        step(*CALLS[0])
    watch.assert_no_recompiles()


@pytest.mark.slow("compiles two steps")
def test_optimizer_that_is_not_named_is_restored(graph_capture):
    step, updates = make("plain")
    other = torch.optim.SGD(updates[0].parameters(), lr=0.1, momentum=0.9)

    def both(x, y):
        step(x, y)
        other.step()

    with pytest.raises(CaptureError, match="the state of SGD"):
        graph_capture.steady(both, *CALLS, updates=updates)
    assert not other.state
