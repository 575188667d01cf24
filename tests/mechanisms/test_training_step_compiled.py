"""A whole training step via aot and inductor: compiled and eager parts as one step."""

import warnings

import pytest
import torch
import torch.nn.functional as F
from torch import nn
from torch_releases import skip_before

from pytest_torchgraph import CaptureError

from .test_training_step import COMPILED, Training, batch, cases, same


@pytest.mark.slow("every optimizer and option")
@pytest.mark.parametrize(("optimizer", "how", "kind", "compiled"), [*cases()], ids=str)
def test_step_via_aot_computes_the_same_and_is_restored(
    graph_capture, optimizer, how, kind, compiled
):
    """The step computes what it computes with the same backend, and all state is as before."""
    training = Training(optimizer, how, kind, compiled)
    before = training.state()
    finals = []

    @torch.compiler.disable
    def note():
        finals.append(training.state()[0])

    def step(x, y):
        loss = training.step(x, y)
        note()
        return loss

    x, y = batch()
    torch.manual_seed(2)
    own = {"nothing": training.step}.get(compiled, step)
    if compiled == "optimizer" and (kind == "scaler" or how == "fused"):
        # The scaler calls the optimizer itself, and Dynamo skips fused steps.
        with pytest.raises(CaptureError, match="nothing was captured"):
            graph_capture(own, x, y, via="aot", updates=training.updates)
        return
    capture = graph_capture(own, x, y, via="aot", updates=training.updates)
    torch.manual_seed(2)
    assert same(before[:4], training.state()[:4])
    torch._dynamo.reset()
    warnings.simplefilter("ignore")  # of torch, which fail the compilation as errors
    reference = Training(optimizer, how, kind, "step" if compiled == "nothing" else compiled)
    torch.manual_seed(2)
    reference.step(x, y)
    # As in the capture, nothing is left of the compilation of the warm-up.
    torch._dynamo.reset()
    loss = reference.step(x, y)
    torch._dynamo.reset()
    assert torch.equal(capture.output, loss)
    if finals:
        values = [t[0] if isinstance(t, tuple) else t for t in finals[-1]]
        expected = [t[0] if isinstance(t, tuple) else t for t in reference.state()[0]]
        assert same(values, expected)
    assert capture.phase("forward")
    assert capture.phase("backward")
    assert capture.phase("update")
    if optimizer != "Muon":
        capture.assert_updated()


@pytest.mark.slow("compiles a training step")
def test_compiled_parts_are_graphs_and_the_rest_is_eager(graph_capture):
    training = Training("AdamW", "foreach", compiled="optimizer")
    capture = graph_capture(training.step, *batch(), via="aot", updates=training.updates)
    capture.assert_graph_count(update=1, total=1)
    assert [graph.kind for graph in capture.eager] == ["forward", "backward", "update"]
    (update,) = capture.graphs
    names = {node.name for node in update.inputs}
    assert {"0.fc.weight", "optimizer.state.0.fc.weight.exp_avg"} <= names
    assert capture.to_text()


@pytest.mark.slow("compiles further parts", unless=["model"])
@pytest.mark.parametrize("compiled", COMPILED)
def test_step_has_no_syncs(graph_capture, compiled):
    training = Training("AdamW", "for" if compiled == "model" else "foreach", compiled=compiled)
    capture = graph_capture(training.step, *batch(), via="aot", updates=training.updates)
    capture.assert_no_syncs()
    capture.assert_no_syncs(phase="update")


@pytest.mark.slow("inductor")
def test_inductor(graph_capture):
    training = Training("AdamW", "foreach", compiled="optimizer")
    capture = graph_capture(training.step, *batch(), via="inductor", updates=training.updates)
    capture.assert_graph_count(update=1, total=1)
    assert capture.at("aot").graphs[0].kind == "update"
    assert capture.kernels


class Trainer:
    """A step as a method, with a model and a loss that it may have compiled."""

    def __init__(self, model, forward, loss_of):
        self.forward, self.loss_of = forward, loss_of
        self.optimizer = torch.optim.SGD(model.parameters())

    def step(self, x, y):
        self.optimizer.zero_grad()
        loss = self.loss_of(self.forward(x), y)
        loss.backward()
        self.optimizer.step()
        return loss.detach()


@pytest.mark.slow("compiles further parts", unless=["closure"])
@pytest.mark.parametrize(
    ("forward_of", "in_closure"),
    [(torch.compile, True), (torch.compile, False), (torch.compiler.disable, True)],
    ids=["closure", "attribute", "disabled"],
)
def test_step_that_compiles_its_model_runs_as_it_is(graph_capture, forward_of, in_closure):
    """A graph break is one that the step has by itself, also if `updates` has the model."""
    model = nn.Linear(4, 2)
    trainer = Trainer(model, forward_of(model), F.mse_loss)
    forward, optimizer = trainer.forward, trainer.optimizer

    def step(x, y):
        optimizer.zero_grad()
        loss = F.mse_loss(forward(x), y)
        loss.backward()
        optimizer.step()
        return loss.detach()

    run = step if in_closure else trainer.step
    x, y = torch.randn(3, 4), torch.randn(3, 2)
    capture = graph_capture(run, x, y, via="aot", updates=(model, optimizer))
    if forward_of is torch.compile:
        capture.assert_no_graph_breaks()
        capture.assert_graph_count(forward=1, backward=1, total=2)
    else:  # compiles nothing, so it is compiled as a whole
        assert capture.breaks


def test_batch_of_a_dynamic_size(graph_capture):
    """AOTAutograd runs a backward while it compiles, on tensors without numbers as sizes."""
    model = nn.Linear(4, 2)
    trainer = Trainer(model, torch.compile(model), F.mse_loss)
    step = trainer.step

    def dynamic_step(x, y):
        torch._dynamo.mark_dynamic(x, 0)
        return step(x, y)

    x, y = torch.randn(3, 4), torch.randn(3, 2)
    capture = graph_capture(dynamic_step, x, y, via="aot", updates=(model, trainer.optimizer))
    capture.assert_graph_count(forward=1, backward=1, total=2)
    assert "f32[s0, 4]" in capture.graphs[0].to_text()
    capture.assert_updated()


@pytest.mark.slow("compiles a training step")
def test_step_that_compiles_a_function_of_torch(graph_capture):
    """It uses the backend of the capture, although functions of torch's own compilations do not."""
    skip_before("2.11", "Dynamo may skip a function of torch, so that nothing is compiled")
    model = nn.Linear(4, 2)
    trainer = Trainer(model, model, torch.compile(F.mse_loss))
    x, y = torch.randn(3, 4), torch.randn(3, 2)
    updates = model, trainer.optimizer
    capture = graph_capture(trainer.step, x, y, via="aot", updates=updates)
    capture.assert_no_graph_breaks()
    capture.assert_graph_count(forward=1, backward=1, total=2)
