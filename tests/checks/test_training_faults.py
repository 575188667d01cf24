"""Planted faults of a training step, each found by a short check that names its line."""

import pytest
import torch
import torch.nn.functional as F
from torch import nn

import pytest_torchgraph
from pytest_torchgraph import CaptureError


def make(**options):
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(4, 4), nn.LayerNorm(4), nn.Linear(4, 2))
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2, **options)
    return model, optimizer


def batch():
    return torch.ones(3, 4), torch.zeros(3, 2)


def capture_step(step, *updates, via="dispatch", **options):
    return pytest_torchgraph.capture(step, *batch(), via=via, updates=updates, **options)


def simple(model, optimizer, before=None, after=None):
    """A step with code between the backward and the update, and code after it."""

    def step(x, y):
        optimizer.zero_grad()
        loss = F.mse_loss(model(x), y)
        loss.backward()
        if before is not None:
            before(loss)
        optimizer.step()
        if after is not None:
            after(loss)
        return loss.detach()

    return step


def test_for_loop_by_accident():
    model, optimizer = make(foreach=False)
    capture = capture_step(simple(model, optimizer), model, optimizer)
    with pytest.raises(AssertionError, match=r"aten.addcdiv_: found 6(.|\n)*optimizer.step\(\)"):
        capture.assert_no_ops("aten.addcdiv_", phase="update")


def test_watch_does_not_see_the_update():
    model, optimizer = make()
    compiled = torch.compile(model, backend="aot_eager")
    x, y = batch()
    with pytest_torchgraph.watch() as capture:
        F.mse_loss(compiled(x), y).backward()
        capture.assert_no_syncs()
        optimizer.step()  # THE LINE
        with pytest.raises(AssertionError, match=r"AdamW at .*THE LINE.*updates="):
            capture.assert_no_syncs()
    with pytest.raises(AssertionError, match=r"AdamW at .*THE LINE.*updates="):
        capture.assert_no_syncs()


def test_sync_in_scaler():
    model, optimizer = make()
    scaler = torch.amp.GradScaler("cpu")

    def step(x, y):
        optimizer.zero_grad()
        scaler.scale(F.mse_loss(model(x), y)).backward()
        scaler.step(optimizer)  # THE LINE
        scaler.update()

    capture = capture_step(step, model, optimizer, scaler)
    with pytest.raises(AssertionError, match="THE LINE"):
        capture.assert_no_syncs()


def test_scaler_with_a_fused_optimizer_has_no_sync():
    model, optimizer = make(fused=True)
    scaler = torch.amp.GradScaler("cpu")

    def step(x, y):
        optimizer.zero_grad()
        scaler.scale(F.mse_loss(model(x), y)).backward()
        scaler.step(optimizer)
        scaler.update()

    capture = capture_step(step, model, optimizer, scaler)
    assert "optimizer.step" not in str(capture.syncs)


def test_sync_in_logging():
    model, optimizer = make()
    capture = capture_step(
        simple(model, optimizer, after=lambda loss: loss.item()),  # THE LINE
        model,
        optimizer,
    )
    with pytest.raises(AssertionError, match="THE LINE"):
        capture.assert_no_syncs(phase="update")


def test_parameter_left_out():
    model, _ = make()
    optimizer = torch.optim.SGD(model[0].parameters())
    capture = capture_step(simple(model, optimizer), model, optimizer)
    with pytest.raises(AssertionError) as error:
        capture.assert_updated()
    assert "4 of 6 parameters" in str(error.value)
    assert "1.weight: is in no optimizer of updates=; " in str(error.value)
    assert "is not written by the update (used at " in str(error.value)
    assert "test_training_faults.py:" in str(error.value)
    capture.assert_updated(allow=["1.weight", "1.bias", "2.weight", "2.bias"])
    with pytest.raises(AssertionError, match="no parameter to check"):
        capture.assert_updated(allow=["weight", "bias"])


def test_update_twice():
    model, optimizer = make()

    def again(_):
        optimizer.step()  # THE LINE

    capture = capture_step(simple(model, optimizer, again), model, optimizer)
    with pytest.raises(AssertionError, match=r"is written 2 times, at (.|\n)*THE LINE"):
        capture.assert_updated()


def each_steps_in_the_backward(model, *, zeroed=True):
    """One optimizer for each parameter, in a hook of the backward, as torchtune has it."""
    optimizers = {p: torch.optim.SGD([p], foreach=False) for p in model.parameters()}

    def hook(parameter):
        optimizers[parameter].step()
        if zeroed:
            optimizers[parameter].zero_grad()

    for parameter in optimizers:
        parameter.register_post_accumulate_grad_hook(hook)
    return optimizers.values()


@pytest.mark.parametrize("zeroed", [True, False])
def test_optimizers_in_the_backward(zeroed):
    model, _ = make()
    optimizers = each_steps_in_the_backward(model, zeroed=zeroed)

    def step(x, y):
        F.mse_loss(model(x), y).backward()

    capture = capture_step(step, model, *optimizers)
    if zeroed:
        capture.assert_updated()
    else:
        with pytest.raises(AssertionError, match="from before the step is added to"):
            capture.assert_updated()


@pytest.mark.parametrize("count", [6, 5])
def test_gradients_assigned_to_parameters(count):
    model, optimizer = make()

    def step(x, y):
        optimizer.zero_grad()
        parameters = list(model.parameters())
        gradients = torch.autograd.grad(F.mse_loss(model(x), y), parameters)
        for parameter, gradient in zip(parameters[:count], gradients, strict=False):
            parameter.grad = gradient
        optimizer.step()

    capture = capture_step(step, model, optimizer)
    if count == 6:
        capture.assert_updated()
    else:
        with pytest.raises(AssertionError, match=r"1 of 6 (.|\n)*2.bias: gets no gradient"):
            capture.assert_updated()


@pytest.mark.slow("compiles a training step twice", only=["aot"])
@pytest.mark.parametrize("via", ["dispatch", "aot"])
def test_gradient_not_zeroed(via):
    model, optimizer = make()
    compiled = torch.compile(model, backend="aot_eager") if via == "aot" else model

    def step(x, y):
        F.mse_loss(compiled(x), y).backward()  # THE LINE
        optimizer.step()

    capture = capture_step(step, model, optimizer, via=via)
    with pytest.raises(AssertionError, match=r"from before the step is added to(.|\n)*THE LINE"):
        capture.assert_updated()


def test_average_before_the_update():
    model, _ = make()
    optimizer = torch.optim.SGD(model.parameters(), foreach=True)
    average = torch.optim.swa_utils.AveragedModel(
        model,
        avg_fn=lambda old, new, _: old.lerp(new, 0.1),  # THE LINE
    )

    def update(_):
        average.update_parameters(model)

    step = simple(model, optimizer, update)
    capture = capture_step(step, model, optimizer, average, warmup=2)
    with pytest.raises(AssertionError, match="THE LINE"):
        capture.assert_order("aten._foreach_add_", "aten.lerp", phase="update")


def compiled_update(optimizer):
    return torch.compile(optimizer.step, backend="aot_eager")


def scheduled(model, optimizer, change):
    update = compiled_update(optimizer)

    def step(x, y):
        optimizer.zero_grad()
        loss = F.mse_loss(model(x), y)
        loss.backward()
        update()  # THE LINE
        change()
        return loss.detach()

    return step


@pytest.mark.slow("compiles a training step; a step count is in every run")
def test_frozen_learning_rate():
    model, optimizer = make()
    scheduler = torch.optim.lr_scheduler.ExponentialLR(optimizer, 0.5)
    step = scheduled(model, optimizer, scheduler.step)
    capture = capture_step(step, model, optimizer, scheduler, via="aot")
    with pytest.raises(AssertionError, match=r"optimizer.param_groups.0.lr .*(.|\n)*THE LINE"):
        capture.assert_nothing_frozen()
    frozen = capture.frozen[0]
    assert (frozen.name, frozen.value, frozen.next_value) == (
        "optimizer.param_groups.0.lr",
        0.005,
        0.0025,
    )
    assert (frozen.graph, frozen.node.op) == ("update", frozen.node.op)
    capture.assert_nothing_frozen(allow="lr")


class Counting(torch.optim.Optimizer):
    """An optimizer that keeps its step count as a number."""

    def __init__(self, parameters):
        super().__init__(parameters, {"lr": 0.1, "t": 0})

    @torch.no_grad()
    def step(self):
        for group in self.param_groups:
            group["t"] += 1
            for parameter in group["params"]:
                parameter.add_(parameter.grad, alpha=-1.0 / group["t"])


def test_frozen_step_count():
    model, _ = make()
    optimizer = Counting(model.parameters())
    step = scheduled(model, optimizer, lambda: None)
    capture = capture_step(step, model, optimizer, via="aot")
    with pytest.raises(AssertionError, match=r"optimizer.param_groups.0.t "):
        capture.assert_nothing_frozen()


@pytest.mark.parametrize("first", [1.0, 0.5])
def test_frozen_number_that_updates_does_not_name(first):
    """The first factor is a default, which graphs leave out."""
    model, _ = make()
    factor = [2 * first]

    @torch.no_grad()
    def update():
        for parameter in model.parameters():
            parameter.add_(parameter.grad, alpha=factor[0])

    compiled = torch.compile(update, backend="aot_eager")

    def step(x, y):
        F.mse_loss(model(x), y).backward()
        factor[0] /= 2
        compiled()

    capture = capture_step(step, model, via="aot", warmup=0)
    with pytest.raises(AssertionError, match="a number outside of updates="):
        capture.assert_nothing_frozen()


@pytest.mark.slow("compiles a training step twice")
def test_nothing_frozen():
    model, optimizer = make(capturable=False)
    step = scheduled(model, optimizer, lambda: None)
    capture = capture_step(step, model, optimizer, via="aot")
    assert capture.frozen == ()
    capture.assert_nothing_frozen()


def test_frozen_needs_compiled_code():
    model, optimizer = make()
    capture = capture_step(simple(model, optimizer), model, optimizer)
    with pytest.raises(CaptureError, match="nothing was compiled"):
        capture.assert_nothing_frozen()
    with pytest.raises(CaptureError, match="updates="):
        _ = pytest_torchgraph.capture(model, torch.ones(3, 4), via="dispatch").frozen


@pytest.mark.slow("compiles a training step twice")
def test_frozen_needs_graphs_with_the_same_ops():
    model, _ = make()
    optimizer = torch.optim.SGD(model.parameters(), momentum=0.5)
    step = scheduled(model, optimizer, lambda: None)
    first = capture_step(step, model, optimizer, via="aot", warmup=0)
    with pytest.raises(CaptureError, match=r"other ops in the next step.*warmup=2"):
        first.assert_nothing_frozen()
