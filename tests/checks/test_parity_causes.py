"""If a capture differs from the eager run, `assert_matches_eager` names the provable causes."""

from __future__ import annotations

import itertools
import random
import re
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest
import torch
from subjects.models import SUBJECTS
from torch import Tensor, nn

from pytest_torchgraph import Aot, capture

COUNTS = {"op": 0}


def op(
    name: str, run: Callable[..., Any], fake: Callable[..., Any] = torch.empty_like, **options: Any
) -> Any:
    """Register a custom op with options of `torch.library.custom_op`."""
    run.__annotations__ = {"x": Tensor, "return": Tensor}
    custom_op = torch.library.custom_op(f"parity::{name}", run, mutates_args=(), **options)
    custom_op.register_fake(fake)
    return custom_op


def counting(x):  # type: ignore[no-untyped-def]
    COUNTS["op"] += 1
    return x * COUNTS["op"]


def writing(x):  # type: ignore[no-untyped-def]
    doubled = x * 2
    x.add_(1.0)
    return doubled


def transposed(x):  # type: ignore[no-untyped-def]
    return x.t().contiguous().t() * 2


def narrowed(x):  # type: ignore[no-untyped-def]
    return (x * 2).bfloat16()


def cut(x):  # type: ignore[no-untyped-def]
    return x[:2] * 2


stateful, sneaky = op("stateful", counting), op("sneaky", writing)
strides = op("strides", transposed)
dtype = op("dtype", narrowed)
shape = op("shape", cut)
stateful.register_autograd(lambda ctx, grad: stateful(grad))


class SneakyBackward(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        return x.sin()

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> Tensor:
        doubled = sneaky(grad)
        return doubled + grad


class Linear(nn.Module):
    """A layer. Subclasses add state in Python."""

    def __init__(self) -> None:
        super().__init__()
        self.fc = nn.Linear(4, 4)


class Counted(Linear):
    def __init__(self) -> None:
        super().__init__()
        self.calls = 0

    def forward(self, x: Tensor) -> Tensor:
        self.calls += 1
        return self.fc(x * self.calls)  # type: ignore[no-any-return]


class Deep(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.Sequential(nn.Linear(4, 4), Counted())

    def forward(self, x: Tensor) -> Tensor:
        return self.layers(x)  # type: ignore[no-any-return]


class Remembers(Linear):
    def __init__(self) -> None:
        super().__init__()
        self.seen: list[int] = []
        self.unused = 0

    def forward(self, x: Tensor) -> Tensor:
        self.unused += 1
        self.seen.append(1)
        return self.fc(x) * len(self.seen)  # type: ignore[no-any-return]


class Warm(Linear):
    def __init__(self) -> None:
        super().__init__()
        self.is_warm = False

    def forward(self, x: Tensor) -> Tensor:
        factor = 2.0 if self.is_warm else 1.0
        self.is_warm = True
        return self.fc(x) * factor  # type: ignore[no-any-return]


class Hidden(Linear):
    def __init__(self) -> None:
        super().__init__()
        self.state: Tensor | None = None

    def forward(self, x: Tensor) -> Tensor:
        y = self.fc(x) if self.state is None else self.fc(x) + self.state
        self.state = y.detach()
        return y * 2  # type: ignore[no-any-return]


class Draws(Linear):
    draw = random.Random(0)

    def forward(self, x: Tensor) -> Tensor:
        return self.fc(x) * self.draw.random()  # type: ignore[no-any-return]


class OfClass(Linear):
    calls = 0

    def forward(self, x: Tensor) -> Tensor:
        OfClass.calls += 1
        return self.fc(x) * OfClass.calls  # type: ignore[no-any-return]


GLOBAL = {"scale": 1.0, "other": 2.0}
NUMBERS = itertools.count(1)


def changes_a_global(x: Tensor) -> Tensor:
    GLOBAL["scale"] += 0.5
    return x * GLOBAL["scale"]


def counts_on(x: Tensor) -> Tensor:
    number = next(NUMBERS)
    return x * number


def closure() -> Callable[[Tensor], Tensor]:
    calls = 0

    def target(x: Tensor) -> Tensor:
        nonlocal calls
        calls += 1
        return x * calls

    return target


def with_noise(x: Tensor) -> Tensor:
    noise = np.random.randn(4, 4)
    return x + torch.from_numpy(noise)


class Augmented(Linear):
    def forward(self, x: Tensor) -> Tensor:
        return self.fc(jittered(x))  # type: ignore[no-any-return]


def jittered(x: Tensor) -> Tensor:
    jitter = torch.from_numpy(np.random.uniform(0.5, 1.5, (4,))).float()
    return x * jitter


HIDDEN = r"Custom op parity.stateful has hidden state: two calls with the same arguments return"
WRITES = r"Custom op parity.sneaky writes to its argument 'x', which mutates_args does not declare"
FAKE = r"The fake implementation of custom op parity\.{0} returns {1}"
NUMPY = (
    r"np.random draws different numbers in compiled code, at {0}.*"
    r"torch._dynamo.config.use_numpy_random_stream = True"
)
PYTHON = r"is not deterministic: two runs .*\nPython state changed: `{0}` was {1}"
HERE = r"\S*test_parity_causes.py:\d+ in {0} \({1}\)"


def here(function: str, code: str) -> str:
    return HERE.format(function, re.escape(code))


PLANTED: dict[str, tuple[str, Callable[[], Any], str, str]] = {
    "hidden state via dispatch": (
        "dispatch",
        lambda: uses_stateful,
        HIDDEN,
        here("uses_stateful", "y = stateful(x * 2)"),
    ),
    "hidden state in the backward": ("aot", lambda: uses_stateful, HIDDEN, ""),
    "undeclared write": (
        "aot",
        lambda: uses_sneaky,
        WRITES,
        here("uses_sneaky", "doubled = sneaky(z)"),
    ),
    "undeclared write in the backward": (
        "inductor",
        lambda: SneakyModel(),
        WRITES,
        here("backward", "doubled = sneaky(grad)"),
    ),
    "fake dtype": (
        "aot",
        lambda: asks_dtype,
        FAKE.format("dtype", "dtype torch.float32, but the op returns torch.bfloat16"),
        here("asks_dtype", "y = dtype(x)"),
    ),
    "fake shape": (
        "aot",
        lambda: asks_shape,
        FAKE.format("shape", r"shape \(4, 4\), but the op returns \(2, 4\)"),
        here("asks_shape", "y = shape(x)"),
    ),
    "fake strides": (
        "aot",
        lambda: asks_strides,
        FAKE.format("strides", r"strides \(4, 1\), but the op returns \(1, 4\)"),
        here("asks_strides", "y = strides(x)"),
    ),
    "np.random": (
        "aot",
        lambda: with_noise,
        NUMPY.format(here("with_noise", "noise = np.random.randn(4, 4)")),
        "",
    ),
    "np.random in a function of the model": (
        "aot",
        Augmented,
        NUMPY.format(
            here("jittered", "jitter = torch.from_numpy(np.random.uniform(0.5, 1.5,")[:-2]
        ),
        "",
    ),
    "counter": (
        "aot",
        Counted,
        PYTHON.format("calls", "1, and is now 2"),
        here("forward", "self.calls += 1"),
    ),
    "counter of a layer": (
        "dispatch",
        Deep,
        PYTHON.format(r"layers\.1\.calls", "1, and is now 2"),
        here("forward", "self.calls += 1"),
    ),
    "list": (
        "dispatch",
        Remembers,
        PYTHON.format("seen", r"\[1\], and is now \[1, 1\]"),
        here("forward", "self.seen.append(1)"),
    ),
    "first call": (
        "aot",
        Warm,
        r"The difference comes from Python values that have changed since the capture began\. "
        r"With the original values, the eager run matches the capture\.\n"
        "Python state changed: `is_warm` was False, and is now True",
        here("forward", "self.is_warm = True"),
    ),
    "tensor that is no buffer": (
        "dispatch",
        Hidden,
        PYTHON.format("state", "a tensor of shape"),
        here("forward", "self.state = y.detach()"),
    ),
    "generator of its class": (
        "dispatch",
        Draws,
        PYTHON.format("Draws.draw", "a Random, and is now another state of a Random"),
        here("forward", "return self.fc(x) * self.draw.random()  # type: ignore[no-any-return]"),
    ),
    "attribute of the class": (
        "dispatch",
        OfClass,
        PYTHON.format(r"OfClass\.calls", r"\d+, and is now \d+"),
        here("forward", "OfClass.calls += 1"),
    ),
    "global": (
        "dispatch",
        lambda: changes_a_global,
        PYTHON.format(r"GLOBAL\['scale'\]", r"\d\.\d, and is now \d\.\d"),
        here("changes_a_global", 'GLOBAL["scale"] += 0.5'),
    ),
    "counter of itertools": (
        "dispatch",
        lambda: counts_on,
        PYTHON.format("NUMBERS", r"count\(\d+\), and is now count\(\d+\)"),
        here("counts_on", "number = next(NUMBERS)"),
    ),
    "closure": (
        "aot",
        closure,
        PYTHON.format("calls", "1, and is now 2"),
        here("target", "calls += 1"),
    ),
}


def uses_stateful(x: Tensor) -> Tensor:
    y = stateful(x * 2)
    return y.sin() * 10  # type: ignore[no-any-return]


def uses_sneaky(x: Tensor) -> Tensor:
    z = x * 1.5
    doubled = sneaky(z)
    return doubled + z.sin() * (1 if torch.compiler.is_compiling() else 2)  # type: ignore[no-any-return]


class SneakyModel(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.a, self.b = nn.Linear(4, 4), nn.Linear(4, 4)

    def forward(self, x: Tensor) -> Tensor:
        z = self.a(x)
        return SneakyBackward.apply(z) + self.b(z)  # type: ignore[no-any-return,no-untyped-call]


def asks_dtype(x: Tensor) -> Tensor:
    y = dtype(x)
    return y.float() * (1 if y.dtype is torch.float32 else 3)  # type: ignore[no-any-return]


def asks_shape(x: Tensor) -> Tensor:
    y = shape(x)
    return y.sum() / y.shape[0]  # type: ignore[no-any-return]


def asks_strides(x: Tensor) -> Tensor:
    y = strides(x)
    return y * (1 if y.is_contiguous() else 3)  # type: ignore[no-any-return]


@pytest.fixture(autouse=True)
def _numbers() -> Iterator[None]:
    with torch.random.fork_rng():
        torch.manual_seed(0)
        yield


def message(target: Any, via: str, *, grad: bool = False) -> str:
    x = torch.randn(4, 4, requires_grad=grad)
    captured = capture(target, x, via=via, backward=None if grad else False)
    with pytest.raises(AssertionError) as failure:
        captured.assert_matches_eager()
    return str(failure.value)


@pytest.mark.slow("compiles with inductor", only=["undeclared write in the backward"])
@pytest.mark.parametrize("name", PLANTED)
def test_a_planted_cause_is_named_with_its_line(name: str) -> None:
    via, make, sentence, line = PLANTED[name]
    text = message(make(), via, grad="backward" in name)
    assert re.search(sentence, text), text
    assert re.search(f"(, at ){line}", text), text
    assert "says so: assert_matches_eager(atol=" not in text
    assert "rounds in a different order" not in text


class WarmAndRounded(nn.Module):
    """A model whose second call changes a value by 3.7, and whose gradient `rounded` rounds.

    Args:
        names: the names of its parameters, in order; "rounded" and "scaled".
        output: True if the second call changes the output, too.
    """

    def __init__(self, names: tuple[str, str], output: bool) -> None:
        super().__init__()
        self.is_warm, self.output = False, output
        for name in names:
            self.register_parameter(name, nn.Parameter(torch.full((4,), 0.5)))

    def forward(self, x: Tensor) -> Tensor:
        scale = 4.7 if self.is_warm else 1.0
        self.is_warm = True
        value = self.scaled.detach()
        scaled = (value * scale if self.output else value) + (self.scaled - value) * scale
        return x * self.rounded.tanh() + scaled  # type: ignore[no-any-return]


def message_of_warm(names: tuple[str, str], *, output: bool, error: float) -> str:
    """Return the failure of a capture whose gradient `rounded` is off by a relative error."""

    def tanh_backward(grad: Tensor, out: Tensor) -> Tensor:
        return grad * (1 - out * out) * (1 + error)

    via = Aot(decompositions={torch.ops.aten.tanh_backward.default: tanh_backward})
    captured = capture(WarmAndRounded(names, output), torch.ones(4, 4), via=via)
    with pytest.raises(AssertionError) as failure:
        captured.assert_matches_eager()
    return str(failure.value)


@pytest.mark.parametrize(
    ("output", "names"), [(True, ("rounded", "scaled")), (False, ("scaled", "rounded"))]
)
def test_changed_value_is_named_although_rounding_remains(
    output: bool, names: tuple[str, str]
) -> None:
    text = message_of_warm(names, output=output, error=2e-5)
    assert "comes from Python values that have changed since the capture began" in text, text
    assert "no value of the eager run differs by more than 0.0" in text
    assert "Python state changed: `is_warm` was False, and is now True" in text


@pytest.mark.slow("compiles for a second")
def test_changed_value_is_not_named_if_another_difference_is_not_negligible() -> None:
    text = message_of_warm(("rounded", "scaled"), output=True, error=2e-2)
    assert "Python state changed" not in text, text


def test_changed_state_without_effect_is_not_named() -> None:
    assert "unused" not in message(Remembers(), "dispatch")


def test_cause_search_keeps_the_state_of_the_last_run() -> None:
    model = Counted()
    message(model, "dispatch")
    assert model.calls > 2
    calls = model.calls
    model(torch.randn(4, 4))
    assert model.calls == calls + 1


def test_np_random_cause_is_not_named_for_numpy() -> None:
    with torch._dynamo.config.patch(use_numpy_random_stream=True):
        capture(with_noise, torch.randn(4, 4)).assert_matches_eager()


def test_hidden_state_is_reported_without_a_name() -> None:
    hidden = [[[[[0]]]]]  # nested deeper than the search
    holder = [lambda: hidden]

    def target(x: Tensor) -> Tensor:
        inner = holder[0]()[0][0][0][0]
        inner[0] += 1
        return x * inner[0]

    text = message(target, "dispatch")
    assert "The eager run is not deterministic" in text
    assert "look for state that is kept between calls" in text


class Planted(nn.Module):
    """A subject whose first floating-point output differs while ops are recorded."""

    def __init__(self, model: nn.Module) -> None:
        super().__init__()
        self.model = model

    def forward(self, *args: Any, **kwargs: Any) -> list[Tensor]:
        output = self.model(*args, **kwargs)
        leaves = [
            leaf
            for leaf in torch.utils._pytree.tree_leaves(output)
            if isinstance(leaf, Tensor) and leaf.is_floating_point()
        ]
        is_recorded = torch._C._len_torch_dispatch_stack() > 0
        return [leaf * (1.01 if is_recorded else 1.0) for leaf in leaves]


@pytest.mark.slow("further models", unless=["mlp", "early_exit"])
@pytest.mark.parametrize(
    "name",
    [
        *("mlp", "early_exit", "bert", "transformer_encoder_train", "lstm_between_blocks"),
        *("residual_cnn", "mixtral", "mamba"),
    ],
)
def test_no_cause_is_named_for_a_subject_that_has_none(name: str) -> None:
    subject = SUBJECTS[name]()
    with torch.set_grad_enabled(subject.grad):
        captured = capture(Planted(subject.model), *subject.args, via="dispatch", **subject.kwargs)
        with pytest.raises(AssertionError) as failure:
            captured.assert_matches_eager()
    text = str(failure.value)
    for words in ("Custom op", "fake impl", "np.random", "Python state", "not deterministic"):
        assert words not in text, text
    assert "assert_matches_eager(atol=" not in text
