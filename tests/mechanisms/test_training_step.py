"""A whole training step via dispatch: phases, names, and the restored state."""

import contextlib
import copy
import ctypes
import gc
import itertools
import logging
import operator
import random
import sys
import weakref
from collections import Counter

import pytest
import torch
import torch.nn.functional as F
from torch import nn
from torch.utils._python_dispatch import TorchDispatchMode

from pytest_torchgraph import CaptureError, Graph
from pytest_torchgraph.mechanisms import dispatch

OPTIMIZERS = {
    "SGD": lambda p, **k: torch.optim.SGD(p, lr=0.1, momentum=0.9, **k),
    "Adam": lambda p, **k: torch.optim.Adam(p, lr=1e-2, **k),
    "AdamW": lambda p, **k: torch.optim.AdamW(p, lr=1e-2, **k),
    "Adagrad": lambda p, **k: torch.optim.Adagrad(p, lr=1e-2, **k),
    "NAdam": lambda p, **k: torch.optim.NAdam(p, lr=1e-2, **k),
    "Muon": lambda p, **k: torch.optim.Muon([x for x in p if x.ndim == 2], lr=1e-2, **k),
}
HOW = {"for": {"foreach": False}, "foreach": {"foreach": True}, "fused": {"fused": True}}
KINDS = ["plain", "accumulation", "clipping", "scaler", "schedule"]
COMPILED = ["nothing", "model", "optimizer", "step"]
REFUSED = {("NAdam", "fused"), ("Muon", "for"), ("Muon", "foreach"), ("Muon", "fused")}
"""Implementations that torch does not have. Muon has one, without an option."""


class Block(nn.Module):
    def __init__(self, size=6):
        super().__init__()
        self.fc = nn.Linear(size, size)
        self.norm = nn.BatchNorm1d(size)

    def forward(self, x):
        return x + F.dropout(self.norm(F.relu(self.fc(x))), 0.1)


class Training:
    """A model with its training step."""

    def __init__(
        self, optimizer="AdamW", how="foreach", kind="plain", compiled="nothing", layers=2
    ):
        torch.manual_seed(0)
        self.model = nn.Sequential(*[Block() for _ in range(layers)], nn.Linear(6, 2))
        options = HOW.get(how, {})
        self.optimizer = OPTIMIZERS[optimizer](self.model.parameters(), **options)
        self.scheduler = torch.optim.lr_scheduler.StepLR(self.optimizer, 1, gamma=0.5)
        self.scaler = torch.amp.GradScaler("cpu", init_scale=8.0, growth_interval=1)
        self.kind = kind
        model, update = self.model, self.optimizer.step
        if compiled == "model":
            model = torch.compile(model, backend="aot_eager")
        if compiled == "optimizer":
            update = torch.compile(self.optimizer.step, backend="aot_eager")

        def step(x, y):
            self.optimizer.zero_grad()
            for part in range(1 + (kind == "accumulation")):
                loss = F.mse_loss(model(x + part), y)
                if kind == "scaler":
                    self.scaler.scale(loss).backward()
                else:
                    loss.backward()
            if kind == "clipping":
                nn.utils.clip_grad_norm_(self.model.parameters(), 0.1)
            if kind == "scaler":
                self.scaler.step(self.optimizer)
                self.scaler.update()
            else:
                update()
            if kind == "schedule":
                self.scheduler.step()
            return loss.detach()

        self.step = torch.compile(step, backend="aot_eager") if compiled == "step" else step

    @property
    def updates(self):
        return self.model, self.optimizer, self.scheduler, self.scaler

    def state(self):
        """All state, bit by bit, with version counters and identities."""
        parameters = [*self.model.parameters()]
        tensors = [*parameters, *self.model.buffers(), *(p.grad for p in parameters)]
        tensors += [
            value
            for parameter in parameters
            for value in self.optimizer.state.get(parameter, {}).values()
        ]
        tensors += [self.scaler._scale, self.scaler._growth_tracker]
        numbers = [
            {k: v for k, v in group.items() if k != "params"}
            for group in self.optimizer.param_groups
        ]
        return copy.deepcopy(
            [
                [(t, t._version) if isinstance(t, torch.Tensor) else t for t in tensors],
                numbers,
                self.scheduler.state_dict(),
                self.scaler.state_dict(),
                torch.get_rng_state(),
            ]
        )


def same(a, b):
    if isinstance(a, torch.Tensor):
        return isinstance(b, torch.Tensor) and a.dtype == b.dtype and torch.equal(a, b)
    if isinstance(a, (list, tuple)):
        return len(a) == len(b) and all(map(same, a, b))
    if isinstance(a, dict):
        return a.keys() == b.keys() and all(same(a[key], b[key]) for key in a)
    return a == b


def batch():
    torch.manual_seed(1)
    return torch.randn(4, 6), torch.randn(4, 2)


IMPLEMENTED = [pair for pair in itertools.product(OPTIMIZERS, HOW) if pair not in REFUSED]
IMPLEMENTED.append(("Muon", "only"))


MODULE = nn.Linear(1, 1)


def cases():
    """Each implementation with one kind and one compiled part, and each pair of these two."""
    for number, (optimizer, how) in enumerate(IMPLEMENTED + IMPLEMENTED[:5]):
        yield optimizer, how, KINDS[number % 5], COMPILED[number % 4]


QUICK = ["*-nothing"]


@pytest.mark.slow("every optimizer and option", unless=QUICK)
@pytest.mark.parametrize(("optimizer", "how", "kind", "compiled"), [*cases()], ids=str)
def test_step_via_dispatch_computes_the_same_and_is_restored(
    graph_capture, optimizer, how, kind, compiled
):
    """Parameters, state, RNG and gradients are as before; the step computed what it computes."""
    training = Training(optimizer, how, kind, compiled)
    before = training.state()
    finals = []

    def step(x, y):
        loss = training.step(x, y)
        finals.append(training.state()[0])
        return loss

    x, y = batch()
    torch.manual_seed(2)
    capture = graph_capture(step, x, y, via="dispatch", updates=training.updates)
    torch.manual_seed(2)
    assert same(before[:4], training.state()[:4])
    with torch.compiler.set_stance("force_eager"):
        reference = Training(optimizer, how, kind, compiled)
        torch.manual_seed(2)
        reference.step(x, y)
        loss = reference.step(x, y)
    assert torch.equal(capture.output, loss)
    values = [[t[0] if isinstance(t, tuple) else t for t in tensors] for tensors in finals]
    expected = [t[0] if isinstance(t, tuple) else t for t in reference.state()[0]]
    assert same(values[-1], expected)
    assert len(capture.phase("update")) >= 1
    assert len(capture.phase("backward")) == 1 + (kind == "accumulation")
    if optimizer != "Muon":
        capture.assert_updated()
    for graph in capture.graphs:
        assert Graph.from_text(graph.to_text()) == graph


def test_phases_and_names(graph_capture):
    training = Training("AdamW", "foreach")
    capture = graph_capture(training.step, *batch(), via="dispatch", updates=training.updates)
    capture.assert_graph_count(forward=1, backward=1, update=1, total=3)
    assert [graph.kind for graph in capture.graphs] == ["forward", "backward", "update"]
    names = {node.name for node in capture.phase("update")[0].inputs}
    assert {"0.fc.weight", "0.fc.weight.grad", "optimizer.state.0.fc.weight.exp_avg"} <= names
    capture.assert_no_ops("aten._foreach_add_", phase="backward")
    capture.assert_op_counts({"aten._foreach_addcdiv_": 1}, phase="update")
    with pytest.raises(AssertionError, match="found 0"):
        capture.assert_op_counts({"aten._foreach_addcdiv_": 1}, phase="forward")
    with pytest.raises(ValueError, match="unknown phase='updates'"):
        capture.phase("updates")


def test_phase_without_updates(graph_capture):
    model = nn.Linear(6, 2)
    capture = graph_capture(model, torch.randn(4, 6), via="dispatch")
    assert capture.phase("forward") == capture.forwards
    assert capture.phase("backward") == capture.backwards
    with pytest.raises(CaptureError, match="updates="):
        capture.phase("update")
    with pytest.raises(CaptureError, match="updates="):
        capture.assert_updated()


@pytest.mark.parametrize("via", ["dispatch", "aot"])
def test_phase_without_updates_has_what_ran_eagerly(graph_capture, via):
    def target(x):
        y = (x * 2).tolist() if via == "dispatch" else [(x * 2).sum().item()]
        return x.sin() * len(y)

    capture = graph_capture(target, torch.ones(3, requires_grad=True), via=via)
    with pytest.raises(AssertionError, match=r"tolist|item"):
        capture.assert_no_syncs(phase="forward")
    if via == "dispatch":
        capture.assert_no_syncs(phase="backward")
    else:
        with pytest.raises(AssertionError, match="_local_scalar_dense"):
            capture.assert_no_ops("aten._local_scalar_dense", phase="forward")


def test_step_without_update_has_no_such_phase(graph_capture):
    training = Training()

    def step(x, y):
        loss = F.mse_loss(training.model(x), y)
        loss.backward()

    capture = graph_capture(step, *batch(), via="dispatch", updates=training.model, warmup=0)
    assert capture.phase("update") == ()
    with pytest.raises(AssertionError, match="no graph in phase 'update'"):
        capture.assert_no_ops("aten.mul", phase="update")
    with pytest.raises(AssertionError, match="no graph in phase 'update'"):
        capture.assert_no_syncs(phase="update")


@pytest.mark.parametrize(
    ("options", "error", "words"),
    [
        ({"updates": ()}, TypeError, "names nothing"),
        ({"updates": [MODULE]}, TypeError, "cannot contain a list"),
        ({"updates": 3}, TypeError, "cannot contain an int"),
        ({"updates": None, "warmup": 1}, TypeError, "warmup= needs updates="),
        ({"warmup": -1}, ValueError, "negative"),
        ({"warmup": True}, TypeError, "must be an int"),
        ({"backward": False}, TypeError, "backward="),
        ({"loss_fn": torch.sum}, TypeError, "loss_fn="),
        ({"fake": True}, TypeError, "fake="),
        ({"device": "cpu"}, TypeError, "device="),
        ({"via": "fx"}, CaptureError, "'dispatch', 'aot' or 'inductor'"),
        ({"via": "export"}, CaptureError, "not available via 'export'"),
    ],
)
def test_wrong_options(graph_capture, options, error, words):
    with pytest.raises(error, match=words):
        graph_capture(
            torch.relu, torch.ones(2), **{"via": "dispatch", "updates": MODULE, **options}
        )


def test_state_that_is_not_named_is_refused_and_restored(graph_capture):
    training, other = Training(), Training()
    before = training.state(), other.state()

    def step(x, y):
        other.step(x, y)
        return training.step(x, y)

    with pytest.raises(CaptureError, match=r"step changed .*not in updates="):
        graph_capture(step, *batch(), via="dispatch", updates=training.updates)
    assert same(before[0][:4], training.state()[:4])
    assert same(before[1][0], other.state()[0])


def test_optimizer_that_is_not_named_is_refused(graph_capture):
    training = Training()
    with pytest.raises(CaptureError, match="the state of AdamW"):
        graph_capture(training.step, *batch(), via="dispatch", updates=training.model)


class Average:
    """An object with its own state, such as a moving average of the parameters."""

    def __init__(self, model, survives=True):
        self.values = [p.detach().clone() for p in model.parameters()]
        self.count, self.survives = 0, survives

    def update(self, model):
        self.count += 1
        with torch.no_grad():
            for value, parameter in zip(self.values, model.parameters(), strict=True):
                value.lerp_(parameter, 0.1)

    def state_dict(self):
        return {"values": self.values, "count": self.count}

    def load_state_dict(self, state):
        self.values = state["values"]
        self.count = state["count"] if self.survives else 0


def test_object_with_state(graph_capture):
    training = Training()
    average = Average(training.model)
    average.count = 5
    before = copy.deepcopy(average.state_dict())

    def step(x, y):
        training.step(x, y)
        average.update(training.model)

    updates = (*training.updates, average)
    capture = graph_capture(step, *batch(), via="dispatch", updates=updates)
    assert same(before, average.state_dict())
    assert "object.values.0" in capture.phase("update")[-1].by_name
    capture.assert_order("aten._foreach_addcdiv_", "aten.lerp_", phase="update")
    average.survives = False
    with pytest.raises(CaptureError, match="does not survive"):
        graph_capture(step, *batch(), via="dispatch", updates=updates)
    assert same(before, average.state_dict())


class Cooling(nn.Linear):
    """Adds a Python number to its `state_dict`."""

    heat = 1.0

    def forward(self, x):
        self.heat *= 0.5
        return super().forward(x) * self.heat

    def get_extra_state(self):
        return self.heat

    def set_extra_state(self, state):
        self.heat = state


@pytest.mark.parametrize("via", ["dispatch", "aot"])
def test_extra_state_of_a_module_is_restored(graph_capture, via):
    model = nn.Sequential(Cooling(4, 2))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)

    def step(x):
        model(x).sum().backward()
        optimizer.step()
        optimizer.zero_grad()

    capture = graph_capture(step, torch.ones(3, 4), via=via, updates=(model, optimizer))
    assert model[0].heat == 1.0
    if via == "aot":
        frozen = r"0\.extra_state \(0\.5, then 0\.25\) is a constant of aten.mul.Tensor in forward"
        with pytest.raises(AssertionError, match=frozen):
            capture.assert_nothing_frozen()


@pytest.mark.slow("starts a process")
def test_workers_of_a_data_loader_are_named(graph_capture):
    training = Training()
    data = torch.utils.data.TensorDataset(*batch())
    loader = torch.utils.data.DataLoader(data, batch_size=2, num_workers=1)

    def epoch():
        for x, y in loader:
            training.step(x, y)

    with pytest.raises(CaptureError, match="take the batches of a DataLoader before the capture"):
        graph_capture(epoch, via="dispatch", updates=training.updates)


class Recent(dict):
    """Its keys are ordered by their last use, as in a cache."""

    def state_dict(self):
        return dict(self)

    def load_state_dict(self, state):
        for key in reversed(state):
            self.pop(key)
            self[key] = state[key]


def test_order_of_keys_is_no_state(graph_capture):
    training, recent = Training(), Recent(a=1, b=[torch.ones(2)])
    updates = (*training.updates, recent)
    graph_capture(training.step, *batch(), via="dispatch", updates=updates)
    assert recent["a"] == 1


def test_generators_and_tensors(graph_capture):
    model, counter, generator = nn.Linear(3, 3), torch.zeros(()), torch.Generator().manual_seed(3)
    state = generator.get_state()

    def step(x):
        counter.add_(1)
        return model(x * torch.rand(3, generator=generator)).sum()

    capture = graph_capture(
        step, torch.ones(3), via="dispatch", updates=(model, counter, generator), warmup=2
    )
    assert counter == 0
    assert counter._version == 0
    assert torch.equal(generator.get_state(), state)
    assert "tensor" in capture.phase("update")[0].by_name


def test_second_module_and_optimizer_have_numbers(graph_capture):
    first, second = Training(), Training()

    def step(x, y):
        first.step(x, y)
        second.step(x, y)

    updates = (first.model, first.optimizer, second.model, second.optimizer)
    capture = graph_capture(step, *batch(), via="dispatch", updates=updates)
    capture.assert_graph_count(forward=2, backward=2, update=2)
    names = {node.name for graph in capture.graphs for node in graph.inputs}
    assert "module_1.0.fc.weight" in names
    assert "optimizer_1.state.module_1.0.fc.weight.exp_avg" in names
    capture.assert_updated()


class Rate:
    """A learning rate with state of its own, for LambdaLR."""

    def __init__(self):
        self.calls = 0

    def __call__(self, epoch):
        self.calls += 1
        return 0.5**epoch


def surroundings():
    """What torch keeps for the whole process."""
    module = torch.nn.modules.module
    return (
        torch.optim.Optimizer._optimizer_step_code,
        dict(sys.modules["torch.optim.optimizer"]._global_optimizer_pre_hooks),
        dict(module._global_forward_hooks),
        dict(module._global_forward_pre_hooks),
        torch.autograd._engine_run_backward,
        torch._dynamo.config.get_config_copy(),
        [logging.getLogger(name).level for name in ("torch", "torch._dynamo", "torch._inductor")],
        random.getstate(),
        torch.get_rng_state().tolist(),
    )


@pytest.mark.slow("compiles a training step", only=["aot-False", "steady-True"])
@pytest.mark.parametrize("raises", [False, True])
@pytest.mark.parametrize("how", ["dispatch", "aot", "steady"])
def test_objects_stay_the_same_objects(graph_capture, how, raises):
    training = Training("SGD", "foreach", compiled="nothing" if how == "dispatch" else "model")
    optimizer, rate = training.optimizer, Rate()
    scheduler = torch.optim.lr_scheduler.LambdaLR(optimizer, rate)
    F.mse_loss(training.model(torch.randn(4, 6)), torch.ones(4, 2)).backward()
    optimizer.step()

    def objects():
        group, *_ = optimizer.param_groups
        kept = [optimizer.state, *optimizer.state.values(), optimizer.param_groups, group]
        kept += [group["params"], scheduler.lr_lambdas, scheduler.lr_lambdas[0]]
        return [*kept, *(p.grad for p in training.model.parameters())]

    def step(x, y):
        training.step(x, y)
        scheduler.step()
        random.random()
        if raises:
            raise ZeroDivisionError

    updates, inputs = (*training.updates, scheduler), batch()
    before = objects(), training.state(), rate.calls, surroundings()
    with pytest.raises(ZeroDivisionError) if raises else contextlib.nullcontext():
        if how == "steady":
            graph_capture.steady(step, inputs, inputs, updates=updates)
        else:
            graph_capture(step, *inputs, via=how, updates=updates, warmup=0)
    assert all(map(operator.is_, before[0], objects()))
    assert same(before[1], training.state())
    assert rate.calls == before[2]
    assert before[3] == surroundings()


def test_first_step_makes_the_state(graph_capture):
    training = Training()
    options = {"via": "dispatch", "updates": training.updates}
    first = graph_capture(training.step, *batch(), warmup=0, **options)
    second = graph_capture(training.step, *batch(), **options)
    assert first.count("aten.zeros_like", phase="update") > 0
    assert second.count("aten.zeros_like", phase="update") == 0
    assert first != second
    again = graph_capture(training.step, *batch(), **options)
    assert again == second
    assert again.to_text() == second.to_text()


@pytest.mark.parametrize("compiled", ["nothing", "optimizer"])
def test_sync_that_may_be_of_eager_runs_of_compiled_code(graph_capture, compiled):
    """An optimizer with a tensor as learning rate reads it back, but not if it is compiled."""
    training = Training("AdamW", "for", compiled=compiled)
    training.optimizer.param_groups[0]["lr"] = torch.tensor(1e-2)
    capture = graph_capture(training.step, *batch(), via="dispatch", updates=training.updates)
    with pytest.raises(AssertionError, match="reads a value back") as raised:
        capture.assert_no_syncs()
    assert ("Capture via='aot'" in str(raised.value)) == (compiled == "optimizer")


def test_a_capture_does_not_keep_what_the_user_compiled(graph_capture):
    class Backend:
        def __call__(self, graph, _inputs):
            return graph.forward

    backend = Backend()
    alive = weakref.ref(backend)
    model = nn.Linear(6, 2)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    forwards = [torch.compile(model, backend=backend)]

    def step(x, y):
        F.mse_loss(forwards[0](x), y).backward()
        optimizer.step()

    capture = graph_capture(step, *batch(), via="dispatch", updates=(model, optimizer))
    del backend, forwards[0]
    torch._dynamo.reset()
    gc.collect()
    assert capture.phase("update")
    assert alive() is None


@pytest.mark.slow("compiles a training step twice", only=["aot"])
@pytest.mark.parametrize("via", ["dispatch", "aot"])
def test_numbers_read_between_micro_batches_or_at_the_end_belong_to_the_update(graph_capture, via):
    model = nn.Linear(6, 2)
    optimizer = torch.optim.SGD(model.parameters())
    forward = torch.compile(model, backend="aot_eager") if via == "aot" else model

    def step(x, y):
        for _ in range(2):
            loss = F.mse_loss(forward(x), y)
            loss.backward()
            loss.tolist()  # THE LINE
        optimizer.step()
        return loss.item()  # AT THE END

    capture = graph_capture(step, *batch(), via=via, updates=(model, optimizer))
    capture.assert_no_syncs(phase="forward")
    capture.assert_no_syncs(phase="backward")
    for phase in ("update", None):
        with pytest.raises(AssertionError, match="# AT THE END\n") as raised:
            capture.assert_no_syncs(phase=phase)
        assert "# THE LINE\n" in str(raised.value)


def test_gradients_in_place_are_the_first_update(graph_capture):
    training = Training("SGD")
    model, optimizer = training.model, training.optimizer

    def step(x, y):
        optimizer.zero_grad(set_to_none=False)
        F.mse_loss(model(x), y).backward()
        optimizer.step()

    capture = graph_capture(step, *batch(), via="dispatch", updates=(model, optimizer))
    kinds = [graph.kind for graph in capture.graphs]
    assert kinds == ["update", "forward", "backward", "update"]
    capture.assert_updated()


def test_optimizer_alone(graph_capture):
    training = Training()
    optimizer = training.optimizer
    capture = graph_capture(training.step, *batch(), via="dispatch", updates=optimizer)
    names = {node.name for node in capture.phase("update")[0].inputs}
    assert {"0.fc.weight", "optimizer.state.0.fc.weight.exp_avg"} <= names
    with pytest.raises(AssertionError, match="must name a module"):
        capture.assert_updated()


def test_closure_of_an_optimizer(graph_capture):
    torch.manual_seed(0)
    model = nn.Linear(6, 2)
    optimizer = torch.optim.LBFGS(model.parameters(), max_iter=2)
    before = [p.detach().clone() for p in model.parameters()]

    def step(x, y):
        def closure():
            optimizer.zero_grad()
            loss = F.mse_loss(model(x), y)
            loss.backward()
            return loss

        optimizer.step(closure)

    capture = graph_capture(step, *batch(), via="dispatch", updates=(model, optimizer))
    assert all(map(torch.equal, before, model.parameters()))
    assert not optimizer.state
    assert len(capture.phase("backward")) == 2


class Counted(TorchDispatchMode):
    """Counts ops by overload."""

    def __init__(self):
        super().__init__()
        self.ops = Counter()

    def __torch_dispatch__(self, op, types, args=(), kwargs=None):
        if op.namespace != "profiler":  # the marks around each step of an optimizer
            self.ops[str(op)] += 1
        return op(*args, **(kwargs or {}))


@pytest.mark.slow("every optimizer", unless=["AdamW-for", "SGD-foreach", "Adam-fused", "Muon-*"])
@pytest.mark.parametrize(("optimizer", "how"), IMPLEMENTED, ids=str)
def test_ops_equal_an_independent_count(graph_capture, optimizer, how):
    training, other = Training(optimizer, how), Training(optimizer, how)
    x, y = batch()
    capture = graph_capture(training.step, x, y, via="dispatch", updates=training.updates)
    other.step(x, y)
    with Counted() as counted:
        other.step(x, y)
    assert capture.op_counts == counted.ops


class CopiesOf(TorchDispatchMode):
    """Counts the copies of some tensors."""

    def __init__(self, tensors):
        super().__init__()
        self.addresses = {tensor.data_ptr() for tensor in tensors}
        self.count = 0

    def __torch_dispatch__(self, op, types, args=(), kwargs=None):
        copies = op is torch.ops.aten.clone.default
        self.count += copies and args[0].data_ptr() in self.addresses
        return op(*args, **(kwargs or {}))


def test_saving_copies_state_once_and_prints_no_parameter(graph_capture, monkeypatch):
    # To print the keys of the optimizer's state took longer than the step.
    training = Training()
    training.step(*batch())
    state = [t for entry in training.optimizer.state.values() for t in entry.values()]
    monkeypatch.setattr(nn.Parameter, "__repr__", lambda self: pytest.fail("printed"))
    with CopiesOf(state) as copies:
        graph_capture(training.step, *batch(), updates=training.updates, via="dispatch", warmup=0)
    assert copies.count <= len(state)


@pytest.mark.parametrize("write", ["none", "op", "numpy", "memory"])
def test_gradients_that_a_step_finds_are_copied_only_if_written(graph_capture, write):
    training = Training("SGD", "for")
    training.step(*batch())
    grads = [p.grad for p in training.model.parameters()]
    values = [grad.clone() for grad in grads]

    def step(x, y):
        grad = training.model[0].fc.weight.grad  # a gradient in a closure would be an argument
        if write == "op":
            grad.zero_()
        elif write == "numpy":
            grad.numpy()[:] = 0
        elif write == "memory":
            ctypes.memset(grad.data_ptr(), 0, grad.nbytes)
        training.model.zero_grad()
        return training.step(x, y)

    refused = pytest.raises(CaptureError, match="a gradient that was written without an op")
    with refused if write == "memory" else contextlib.nullcontext(), CopiesOf(grads) as copies:
        graph_capture(step, *batch(), updates=training.updates, via="dispatch", warmup=0)
    assert copies.count == (write in ("op", "numpy"))
    assert all(p.grad is grad for p, grad in zip(training.model.parameters(), grads, strict=True))
    assert write == "memory" or all(map(torch.equal, grads, values))


def test_graphs_are_built_when_first_read(graph_capture, monkeypatch):
    built = []
    original = dispatch.graphs_of_step
    monkeypatch.setattr(dispatch, "graphs_of_step", lambda *a: built.append(1) or original(*a))
    training = Training()
    captured = graph_capture(training.step, *batch(), updates=training.updates, via="dispatch")
    assert not built
    assert captured.phase("update")
    assert captured.phase("backward")
    assert built == [1]
