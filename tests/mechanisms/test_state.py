"""A capture restores all state that it changes, also if the target raises."""

from __future__ import annotations

import copy
import functools
import logging
import os
import random
import sys
import warnings
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
import torch
from mechanisms.models import BOTH, MECHANISMS, example, mlp
from packaging.version import Version
from torch import Tensor, nn
from torch._dynamo.utils import counters
from torch_releases import skip_before

from pytest_torchgraph import CaptureError, capture, torch_private

pytestmark = pytest.mark.gpu


@functools.cache
def missing() -> set[str]:
    """Return the settings that exist only in newer releases of torch."""
    return set(torch_private.probe())


def world() -> dict[str, Any]:
    import torch._functorch.config
    import torch._inductor.config

    warnings.simplefilter("ignore", FutureWarning)  # reading a deprecated entry warns
    modules = (
        torch._dynamo.config,
        torch._functorch.config,
        torch._inductor.config,
        torch.fx.experimental._config,
    )
    plain = bool | int | float | str | list | tuple | set | dict | type(None)
    configs = {
        f"{module.__name__}.{name}": copy.deepcopy(value)
        for module in modules
        for name in module._config
        if isinstance(value := getattr(module, name, None), plain)
    }
    hooks = torch.nn.modules.module
    set_compiler = torch._C._dynamo.compiled_autograd.set_autograd_compiler
    compiler = set_compiler(None, False)
    set_compiler(*compiler)
    return {
        **configs,
        "stance": str(torch._dynamo.eval_frame._stance),
        "counters": {key: dict(value) for key, value in counters.items()},
        "grad": torch.is_grad_enabled(),
        "inference": torch.is_inference_mode_enabled(),
        "rng": torch.get_rng_state().tolist(),
        "random": random.getstate(),
        "numpy": str(np.random.get_state()),
        "hooks": [len(getattr(hooks, name)) for name in dir(hooks) if name.endswith("_hooks")],
        "trace": list(logging.getLogger("torch.__trace").handlers),
        "levels": {
            name: (logger.level, logger.disabled)
            for name, logger in logging.root.manager.loggerDict.items()
            if name.startswith("torch") and isinstance(logger, logging.Logger) and logger.level
        },
        "private": {n: torch_private.get(n) for n in torch_private.NAMES if n not in missing()},
        "compiler": compiler,
        "modes": torch_private.modes_that_stop_compilation(),
        "warnings": len(warnings.filters),
        "recursion": sys.getrecursionlimit(),
        "environment": dict(os.environ),
        "callbacks": list(torch._dynamo.callback.callback_handler.start_callbacks),
        "entry": torch._dynamo.eval_frame._callback_from_stance,
    }


@functools.cache
def warm(via: str) -> None:
    """Compile once, so that torch's first-use imports and settings are done before the test."""
    capture(lambda x: x.sin(), torch.ones(1, requires_grad=True), via=via)


@pytest.fixture(autouse=True)
def _warm() -> Iterator[None]:
    warm("aot")
    warm("dispatch")
    limit = sys.getrecursionlimit()
    sys.setrecursionlimit(1700)  # inductor raises it to 2000
    yield
    sys.setrecursionlimit(limit)


HAPPENINGS = [
    (via, fail)
    for via in MECHANISMS
    for fail in ("", "forward", "backward")
    if fail != "backward" or via not in ("export", "fx")
]
"""Export has no backward, and fx records no hook that could raise in a backward."""


def hooks_of(model: nn.Module) -> list[tuple[int, ...]]:
    """Count the hooks of each kind on the modules and parameters."""
    found = [
        tuple(len(value) for name, value in sorted(vars(module).items()) if name.endswith("_hooks"))
        for module in model.modules()
    ]
    return found + [
        (len(p._backward_hooks or ()), len(p._post_accumulate_grad_hooks or ()))
        for p in model.parameters()
    ]


class Restless(nn.Module):
    """Draws a number, writes to a buffer and its argument, replaces a buffer, raises at `fail`."""

    def __init__(self, fail: str = "") -> None:
        super().__init__()
        self.lin = nn.Linear(4, 4)
        self.register_buffer("steps", torch.zeros(()))
        self.register_buffer("last", torch.zeros(4))
        self.fail = fail

    def forward(self, x: Tensor) -> Tensor:
        random.random()
        np.random.rand()
        self.steps.add_(1)
        self.last = self.last + 1
        x.mul_(2)
        if self.fail == "forward":
            raise LookupError("mine")
        # Via fx, a draw while tracing is refused: `torch.rand(4)` would become a constant.
        out = self.lin(x) + torch.rand_like(x)
        if self.fail == "backward":
            out.register_hook(fail_in_backward)
        return out


def fail_in_backward(_: Tensor) -> Tensor:
    raise LookupError("mine")


@pytest.mark.slow(
    "inductor compiles C++ for each case",
    unless=["dispatch*", "fx*", "aot-forward", "export-forward"],
)
@pytest.mark.parametrize(("via", "fail"), HAPPENINGS)
@pytest.mark.usefixtures("unaudited")
def test_capture_restores_all_state(via: str, fail: str) -> None:
    if via == "export":
        skip_before("2.13", "torch.export asserts that an assigned buffer is fake")
    warm(via)
    model = Restless(fail)
    model.lin.register_forward_hook(lambda *_: None)
    model.lin.weight.register_post_accumulate_grad_hook(lambda _: None)
    hooks = hooks_of(model)
    last = model.last
    x = example(2, 4)
    values = [tensor.clone() for tensor in (x, model.steps, model.last)]
    model.lin.weight.grad = grad = torch.ones(4, 4)
    before = world()
    if fail:
        with pytest.raises(LookupError, match=r"^'?mine'?$"):
            capture(model, x, via=via)
    else:
        capture(model, x, via=via)
    after = world()
    assert {key for key in before if before[key] != after[key]} == set()
    assert hooks_of(model) == hooks
    assert model.last is last
    for tensor, value in zip((x, model.steps, model.last), values, strict=True):
        assert torch.equal(tensor, value)
    assert model.lin.weight.grad is grad
    assert torch.equal(grad, torch.ones(4, 4))
    assert model.lin.bias.grad is None


@pytest.mark.slow("further cases; a few are in every run", unless=["*dispatch"])
@pytest.mark.parametrize("via", BOTH)
@pytest.mark.parametrize("trains", [True, False], ids=["optimizer", "backward"])
def test_backward_in_the_target_is_refused_with_the_remedy(via: str, trains: bool) -> None:
    model = nn.Linear(4, 4)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)

    def step(x: Tensor) -> Tensor:
        loss = model(x).square().sum()
        loss.backward()
        if trains:
            optimizer.step()
        optimizer.zero_grad()
        return loss

    why = (
        r"changed its parameters \(weight, bias\)"
        if trains
        else "an earlier backward freed its graph"
    )
    with pytest.raises(CaptureError, match=f"{why}.* return the loss.*updates="):
        capture(step, example(2, 4), via=via)
    if not trains:
        capture(lambda x: step(x).detach(), example(2, 4), via=via)
        capture(step, example(2, 4), via=via, backward=False)


class Forces(nn.Module):
    """Energies and forces, their gradient. Training it needs a backward of a backward."""

    def __init__(self) -> None:
        super().__init__()
        self.net = nn.Sequential(nn.Linear(3, 8), nn.Tanh(), nn.Linear(8, 1))

    def forward(self, positions: Tensor) -> tuple[Tensor, Tensor]:
        positions = positions.detach().requires_grad_()
        energy = self.net(positions).sum()
        (gradient,) = torch.autograd.grad(energy, positions, create_graph=self.training)
        return energy, -gradient


GIVES_FORCES_UP = Version(torch.__version__.partition("+")[0]) >= Version("2.15")
"""From torch 2.15 on, Dynamo does not compile a function that calls `torch.autograd.grad`."""


def test_double_backward_is_refused_with_the_remedy() -> None:
    why = r"create_graph=True.*Use via='dispatch'.*trace_autograd_ops = True"
    if GIVES_FORCES_UP:
        why = r"(?s)Dynamo abandoned.*trace_autograd_ops.*via='dispatch'"
    with pytest.raises(CaptureError, match=why):
        capture(Forces(), example(2, 3), via="aot")


@pytest.mark.slow("compiles many times")
@pytest.mark.filterwarnings("ignore:The .grad attribute of a Tensor that is not a leaf")
def test_double_backward_remedies_work() -> None:
    if not GIVES_FORCES_UP:
        with pytest.raises(RuntimeError, match="double backward"):
            torch.compile(Forces(), backend="aot_eager")(example(2, 3))[1].sum().backward()
    torch._dynamo.reset()
    assert capture(Forces(), example(2, 3), via="dispatch").backward
    with torch._dynamo.config.patch(trace_autograd_ops=True):
        assert capture(Forces(), example(2, 3)).backward.count("aten.tanh_backward") > 0


@pytest.mark.slow("compiles several models")
def test_forces_in_eval_mode_are_captured_if_torch_traces_them() -> None:
    skip_before("2.11", "there is no torch._dynamo.config.trace_autograd_ops")
    model = Forces().eval()
    with torch._dynamo.config.patch(trace_autograd_ops=True):
        seen = capture(model, example(2, 3), backward=False)
    assert seen.count("aten.tanh_backward") == 1
    why = r"(?s)Dynamo abandoned|or pass backward=False"
    with pytest.raises(CaptureError, match=why):
        capture(model, example(2, 3))


class TreeNode(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.is_leaf = False
        self.scale = nn.Parameter(torch.ones(()))

    def forward(self, x: Tensor) -> Tensor:
        self.eval()
        return x * self.scale


def test_mode_of_a_module_with_an_attribute_is_leaf_is_restored() -> None:
    node = TreeNode()
    capture(node, example(3), via="dispatch")
    assert node.training


@pytest.mark.parametrize(
    ("shape", "dtype"),
    [((), torch.float32), ((3, 5), torch.int8), ((1030, 1031), torch.bfloat16)],
)
def test_write_without_a_version_bump_is_detected(
    shape: tuple[int, ...], dtype: torch.dtype
) -> None:
    weight = nn.Parameter(torch.ones(shape, dtype=dtype), requires_grad=False)
    owner = nn.Module()
    owner.weight = weight

    def average(x: Tensor) -> Tensor:
        owner.weight.data.mul_(2)
        return x * 2

    with pytest.raises(CaptureError, match=r"changed its parameters \(weight\)"):
        capture(average, example(3), via="dispatch")


@pytest.mark.slow("further cases; a few are in every run", unless=["dispatch", "export", "fx"])
@pytest.mark.parametrize("via", MECHANISMS)
def test_device_option_captures_copies(via: str) -> None:
    model = mlp()
    x = example(4, 8)
    captured = capture(model, x, via=via, device="meta")
    assert captured.output.device.type == "meta"
    assert {p.device.type for p in model.parameters()} == {"cpu"}
    assert x.device.type == "cpu"
    on_cpu = capture(model, x, via=via)
    if via != "inductor":  # its passes depend on the device
        assert captured.forward == on_cpu.forward


def test_device_option_refuses_a_function_over_a_module_on_another_device() -> None:
    model = mlp()
    with pytest.raises(CaptureError, match="uses a module on cpu, and this module cannot be"):
        capture(lambda x: model(x), example(4, 8), device="meta")


@pytest.mark.parametrize("via", BOTH)
def test_backward_starts_at_the_loss_or_all_outputs(via: str) -> None:
    class Output(dict[str, Tensor]):
        pass

    def with_loss(x: Tensor) -> Output:
        return Output(loss=x.sum(), other=x.sin())

    x = example(4, grad=True)
    if via == "dispatch":  # AOTAutograd creates a tangent of each output in any case
        started = capture(with_loss, x, via=via).backward
        assert [node.name for node in started.inputs if node.op == "tangent"] == ["tangent.0"]
        assert started.count("aten.cos") == 0

    def both(x: Tensor) -> tuple[Tensor, Tensor]:
        return x.sin(), x.cos()

    everywhere = capture(both, x, via=via).backward
    assert len([node for node in everywhere.inputs if node.op == "tangent"]) == 2


@pytest.mark.parametrize("via", BOTH)
def test_the_loss_is_in_no_graph(via: str) -> None:
    seen: list[torch.Size] = []

    def loss_fn(output: Tensor) -> Tensor:
        seen.append(output.shape)
        return output.tanh().pow(2).mean()

    captured = capture(mlp(), example(4, 8), via=via, loss_fn=loss_fn)
    assert seen == [(4, 2)]
    assert captured.op_counts.keys().isdisjoint({"aten.tanh.default", "aten.pow.Tensor_Scalar"})
    assert captured.backward.count("aten.mm") > 0


def test_gradients_through_a_normalization_are_nonzero() -> None:
    model, found = mlp(), []
    for parameter in model.parameters():
        parameter.register_post_accumulate_grad_hook(lambda p: found.append(p.grad.clone()))
    capture(model, example(4, 8), via="dispatch")
    assert len(found) == len(list(model.parameters()))
    assert sum(bool(grad.abs().max() > 1e-6) for grad in found) >= len(found) - 1


@pytest.mark.parametrize("via", ["dispatch", "compiled_autograd"])
def test_a_target_that_assigns_a_gradient_runs_a_backward_if_asked(via: str) -> None:
    linear = nn.Linear(4, 4)

    def assigns(x: Tensor) -> Tensor:
        linear.weight.grad = torch.ones(4, 4)
        return linear(x)

    x = torch.ones(2, 4)
    assert capture(assigns, x, via=via, backward=True).backwards
    if via == "dispatch":
        assert not capture(assigns, x, via=via).backwards
    else:
        with pytest.raises(CaptureError, match=r"itself changed gradients.*backward=True"):
            capture(assigns, x, via=via)
    with pytest.raises(CaptureError, match="no output of the target requires grad"):
        capture(lambda x: assigns(x).detach(), x, via=via, backward=True)
