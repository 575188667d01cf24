"""`assert_matches_eager` compares each leaf of the output, and the state after both runs."""

from __future__ import annotations

import dataclasses
import enum
import re
import sys
from collections import namedtuple
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn
from torch.utils._pytree import tree_map_only

from pytest_torchgraph import Capture, CaptureError, capture

# Dynamo on Python 3.10 makes another lambda. That of torch 2.11 cannot compare `version_info`.
KEEPS_LAMBDAS = sys.version_info >= (3, 11)


def captured() -> bool:
    """Return True while dispatch records ops, so that a planted difference is not in eager runs."""
    return torch._C._len_torch_dispatch_stack() > 0


@dataclasses.dataclass
class Held:
    y: Tensor
    label: str


class Colour(enum.Enum):
    RED = 1
    BLUE = 2


class Slotted:
    __slots__ = ("count",)

    def __init__(self, count: int) -> None:
        self.count = count


Pair = namedtuple("Pair", "a b")  # without type annotations
Other = namedtuple("Other", "a b")


def either(wrong: Any, right: Any) -> Callable[[Tensor], Any]:
    return lambda x: (x.sin(), wrong if captured() else right)


PLANTED: dict[str, tuple[Callable[[Tensor], Any], str]] = {
    "int": (
        either(1, 2),
        r"output[1] is 1 (int), but 2 (int) in the eager run",
    ),
    "float by one bit": (either(0.1 + 0.2, 0.3), "output[1] is 0.30000"),
    "nan": (either(float("nan"), 1.0), "output[1] is nan (float), but"),
    "bool for an int": (either(True, 1), "output[1] is a bool, but an "),
    "None": (
        either(None, 0),
        "output[1] is None, but an int in the eager run",
    ),
    "dtype": (either(torch.int8, torch.int16), "output[1] is torch.int8 (dtype), but torch.int16"),
    "enum": (either(Colour.RED, Colour.BLUE), "<Colour.RED: 1> (Colour), but <Colour.BLUE: 2>"),
    "type": (
        either(int, float),
        "<class 'int'> (type), but <class 'float'> (type) in the eager run",
    ),
    "tuple for a list": (
        lambda x: (x.sin(),) if captured() else [x.sin()],
        "output is a tuple, but a list in the eager run",
    ),
    "namedtuple": (
        lambda x: (Pair if captured() else Other)(x.sin(), 1),
        "output is a Pair, but an Other in the eager run",
    ),
    "empty container": (
        lambda x: (x.sin(), () if captured() else []),
        "output[1] is a tuple, but a list in the eager run",
    ),
    "one item more": (
        lambda x: [x.sin(), 1] if captured() else [x.sin()],
        "outputs: only the captured run has output[1]",
    ),
    "key": (
        lambda x: {"y": x.sin(), "a" if captured() else "b": 1},
        "outputs: only the captured run has output['a']; only the eager run has output['b']",
    ),
    "field of a dataclass": (
        lambda x: Held(x.sin(), "a" if captured() else "b"),
        "output['label'] is 'a' (str), but 'b' (str) in the eager run",
    ),
    "tensor in an object": (
        lambda x: [Held(Held(x * (3 if captured() else 2), "a"), "b")],
        "output[0]['y']['y'] differs from the eager run:",
    ),
    "slot": (
        lambda x: (x.sin(), Slotted(1 if captured() else 2)),
        "output[1]['count'] is 1 (int), but 2 (int) in the eager run",
    ),
    "number for a tensor": (
        lambda x: (x.sin(), 1.0 if captured() else torch.ones(())),
        "output[1] is a float, but a tensor in the eager run",
    ),
    "array": (
        lambda x: (x.sin(), np.ones(3) * (1 if captured() else 2)),
        "output[1] differs from the eager run:\nTensor-likes are not close!",
    ),
    "array for a tensor": (
        lambda x: (x.sin(), np.ones(3) if captured() else torch.ones(3).double()),
        "output[1] is a ndarray, but a tensor in the eager run",
    ),
    "requires_grad lost": (
        lambda x: x.sin().detach() if captured() else x.sin(),
        "output does not require grad, but does in the eager run",
    ),
    "requires_grad gained": (
        lambda x: (x.sin(), x.cos() if captured() else x.cos().detach()),
        "output[1] requires grad, but does not in the eager run",
    ),
}


@pytest.mark.parametrize("name", PLANTED)
def test_parity_finds_a_difference_outside_tensors(name: str) -> None:
    target, message = PLANTED[name]
    x = torch.ones(3, requires_grad=True)
    captured = capture(target, x, via="dispatch", backward=False)
    with pytest.raises(AssertionError, match=re.escape(message)) as failure:
        captured.assert_matches_eager()
    assert "Use a tolerance" not in str(failure.value)


class Twofold(Tensor):
    """A wrapper of two tensors, of which `assert_close` sees only the first, and a constant."""

    first: Tensor
    second: Tensor
    scale: float

    @staticmethod
    def __new__(cls, first: Tensor, second: Tensor, scale: float = 1.0) -> Any:
        return Tensor._make_wrapper_subclass(cls, first.shape, dtype=first.dtype)

    def __init__(self, first: Tensor, second: Tensor, scale: float = 1.0) -> None:
        self.first, self.second, self.scale = first, second, scale

    def __repr__(self) -> str:  # type: ignore[override]
        return "Twofold"

    def __tensor_flatten__(self) -> tuple[list[str], dict[str, float]]:
        return ["first", "second"], {"scale": self.scale}

    @staticmethod
    def __tensor_unflatten__(inner: dict[str, Tensor], metadata: Any, *_: Any) -> Twofold:
        return Twofold(inner["first"], inner["second"], metadata["scale"])

    @classmethod
    def __torch_dispatch__(cls, func: Any, _types: Any, args: Any = (), kwargs: Any = None) -> Any:
        def part(name: str) -> Any:
            return tree_map_only(Twofold, lambda value: getattr(value, name), (args, kwargs or {}))

        results = [func(*args, **kwargs) for args, kwargs in map(part, ("first", "second"))]
        return Twofold(*results, args[0].scale) if isinstance(results[0], Tensor) else results[0]


def test_parity_compares_the_tensors_inside_a_subclass() -> None:
    def target(x: Twofold) -> Twofold:
        y = x * 2
        factor = 3 if torch.compiler.is_compiling() else 1
        return Twofold(y.first, y.second * factor)

    checked = capture(target, Twofold(torch.ones(3), torch.ones(3)), via="aot")
    with pytest.raises(AssertionError, match=r"output\.second differs from the eager") as failure:
        checked.assert_matches_eager()
    assert "Largest difference" not in str(failure.value)  # the outer tensors are equal
    assert ".. " not in str(failure.value)


@pytest.mark.slow("compiles for a second")
def test_constants_of_a_returned_subclass_are_compared() -> None:
    def captured_with(compiled: float, eager: float = 2.0) -> Capture:
        def target(x: Tensor) -> Tensor:
            scale = compiled if torch.compiler.is_compiling() else eager
            return Twofold(x * 2, x * 3, scale)

        return capture(target, torch.ones(3), via="aot")

    assert captured_with(2.0) == captured_with(2.0)
    assert 'output 0.class = "Twofold(scale=2)"' in captured_with(2.0).to_text()
    assert captured_with(2.0) != captured_with(3.0)
    captured_with(2.0).assert_matches_eager()
    with pytest.raises(AssertionError, match=r"Twofold\(scale=3\), but a Twofold\(scale=2\) in"):
        captured_with(3.0).assert_matches_eager()


@pytest.mark.filterwarnings("ignore:torch.quantize_per_tensor:UserWarning")
def test_parity_compares_quantized_tensors() -> None:
    def target(x: Tensor) -> Tensor:
        return torch.quantize_per_tensor(x * (2 if captured() else scale), 0.1, 0, torch.quint8)

    x, scale = torch.ones(3), 2
    capture(target, x, via="dispatch").assert_matches_eager()
    scale = 3
    with pytest.raises(AssertionError, match="output differs from the eager run"):
        capture(target, x, via="dispatch").assert_matches_eager()


def test_parity_compares_the_class_of_a_tensor() -> None:
    class Named(Tensor):
        pass

    def target(x: Tensor) -> Tensor:
        y = x * 2
        return y if torch.compiler.is_compiling() else y.as_subclass(Named)

    with pytest.raises(AssertionError, match=r"output is a torch\.Tensor, but a .*Named in the"):
        capture(target, torch.ones(3), via="aot").assert_matches_eager()


class Called(Held):
    """An object of a user's class, which can be called, like PyG's `Data`."""

    def __call__(self) -> None:
        raise AssertionError("never called")


def test_attributes_of_an_object_that_can_be_called_are_compared() -> None:
    def target(x: Tensor) -> Called:
        return Called(x * (3 if torch.compiler.is_compiling() else 2), "a")

    with pytest.raises(AssertionError, match="differs from the eager run"):
        capture(target, torch.ones(3), via="aot").assert_matches_eager()


@pytest.mark.parametrize("via", ["aot", "dispatch"])
def test_tensors_in_an_argument_are_restored_and_compared(via: str) -> None:
    def add(x: Called) -> Tensor:
        x.y.add_(3 if compiled else 2)
        return x.y * 0 + 1

    held = Called(torch.ones(3), "a")
    compiled = False
    captured = capture(add, held, via=via)
    assert held.y.tolist() == [1, 1, 1]
    captured.assert_matches_eager()
    assert held.y.tolist() == [1, 1, 1]
    compiled = True
    with pytest.raises(
        AssertionError, match=r"after the call, argument \'x\.y\' differs from the eager run"
    ):
        captured.assert_matches_eager()


def test_jagged_tensors_are_compared_by_values_and_offsets() -> None:
    def jagged(values: Tensor, offsets: Tensor) -> Tensor:
        shift = (offsets == 2) * (1 if torch.compiler.is_compiling() and shifted else 0)
        return torch.nested.nested_tensor_from_jagged(values * 2, offsets + shift)

    shifted = False
    arguments = torch.ones(5, 4), torch.tensor([0, 2, 5])
    capture(jagged, *arguments, via="aot", backward=False).assert_matches_eager()
    shifted = True
    with pytest.raises(AssertionError, match=r"output\._offsets differs from the eager run"):
        capture(jagged, *arguments, via="aot", backward=False).assert_matches_eager()


def test_leaves_that_are_equal_pass() -> None:
    def target(x: Tensor) -> Any:
        return {
            "y": [x.sin(), (1, 2.5, float("nan"), "a", None, torch.int8, x.shape)],
            "held": Held(x.cos(), "a"),
            "function": (lambda: None) if KEEPS_LAMBDAS else len,
            "array": np.array([1.0, float("nan")]),
            "set": {1, 2},
        }

    def with_objects(x: Tensor) -> Any:  # torch 2.15's Dynamo supports neither
        return {**target(x), "object": object(), "objects": np.array([object, None])}

    capture(with_objects, torch.ones(3), via="dispatch").assert_matches_eager()
    capture(target, torch.ones(3), via="aot").assert_matches_eager()


class Statistics(nn.Module):
    """Writes a buffer, replaces another, and counts in a third."""

    def __init__(self, wrong: str = "") -> None:
        super().__init__()
        self.register_buffer("mean", torch.zeros(4))
        self.register_buffer("last", torch.zeros(4))
        self.register_buffer("count", torch.zeros((), dtype=torch.int64))
        self.wrong = wrong

    def forward(self, x: Tensor) -> Tensor:
        off = {self.wrong: 1 if captured() or torch.compiler.is_compiling() else 0}
        self.mean.add_(2 + off.get("mean", 0))
        self.last = self.last + 2 + off.get("last", 0)
        self.count += 1 + off.get("count", 0)
        return x * 2


@pytest.mark.parametrize("name", ["mean", "last", "count"])
def test_parity_finds_a_changed_buffer(name: str) -> None:
    with pytest.raises(
        AssertionError, match=f"after the call, buffer {name!r} differs from the eager run:"
    ):
        capture(Statistics(name), torch.ones(4), via="dispatch").assert_matches_eager()
    if name == "last":
        capture(Statistics(), torch.ones(4), via="dispatch").assert_matches_eager()


def test_parity_treats_types_created_in_each_run_as_equal() -> None:
    def target(x: Tensor) -> Any:
        made = namedtuple("made", "y")
        return made(x.sin())

    capture(target, torch.ones(3), via="dispatch").assert_matches_eager()


def test_parity_finds_a_buffer_created_in_one_run() -> None:
    class Makes(nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            if captured():
                self.register_buffer("made", torch.ones(3))
            return x * 2

    with pytest.raises(AssertionError, match="only the captured run has buffer 'made'"):
        capture(Makes(), torch.ones(3), via="dispatch").assert_matches_eager()


WRITES: dict[str, tuple[Callable[..., Any], Any, str]] = {
    "argument": (lambda x: x.mul_(3 if captured() else 2).sum() + 1, torch.ones(3), "x"),
    "in a dict": (
        lambda batch: batch["x"].mul_(3 if captured() else 2).sum() + 1,
        {"x": torch.ones(3)},
        "batch.x",
    ),
    "in one run alone": (
        lambda x: (x.add_(1) if captured() else x).shape[0] * torch.ones(3),
        torch.ones(3),
        "x",
    ),
    "through a view": (
        lambda x: (x[:1].zero_() if captured() else x[:1] * 1).sum() + 1,
        torch.ones(3),
        "x",
    ),
}


@pytest.mark.parametrize("name", WRITES)
def test_parity_finds_a_changed_argument(name: str) -> None:
    target, argument, label = WRITES[name]
    captured = capture(
        lambda **kwargs: target(*kwargs.values()),
        via="dispatch",
        **{label.partition(".")[0]: argument},
    )
    with pytest.raises(
        AssertionError, match=f"the call, argument {label!r} differs from the eager|output"
    ):
        captured.assert_matches_eager(rtol=0, atol=0)
    leaf = argument["x"] if isinstance(argument, dict) else argument
    assert torch.equal(leaf, torch.ones(3))


@pytest.mark.parametrize("via", ["dispatch", "aot"])
def test_output_that_shares_an_arguments_memory_keeps_its_value(via: str) -> None:
    """Regression: it was compared after the argument had been restored, 1 with 1."""

    def target(x: Tensor) -> Tensor:
        other = captured() or torch.compiler.is_compiling()
        return x.mul_(3 if other else 2)

    with pytest.raises(AssertionError, match="output differs from the eager run"):
        capture(target, torch.ones(3), via=via).assert_matches_eager()
    capture(lambda x: x.mul_(3), torch.ones(3), via=via).assert_matches_eager()


def test_buffer_changed_after_the_capture_is_refused() -> None:
    model = nn.BatchNorm1d(4)
    x = torch.randn(3, 4)
    captured = capture(model, x)
    captured.assert_matches_eager()
    model(x)
    with pytest.raises(CaptureError, match="num_batches_tracked changed after the capture"):
        captured.assert_matches_eager()


# -- nothing compared ------------------------------------------------------------------------------

SMALL: dict[str, tuple[Callable[[Tensor], Any], dict[str, Any], str]] = {
    "below torch's": (lambda x: x * 1e-7, {}, r"within the absolute tolerance \(1e-05\)"),
    "zero": (lambda x: x * 0, {}, r"outputs are zero\. Use inputs .* nonzero outputs\Z"),
    "below a large one": (lambda x: (x, x * 5), {"atol": 1e9}, r"absolute tolerance \(1e\+09\)"),
    "beside an int": (lambda x: (x * 1e-7, (x > 0).long(), 3), {}, r"in output\[0\]\)"),
    "complex": (lambda x: torch.complex(x, x) * 1e-7, {}, "1.41e-07, in output"),
    "by dtype": (lambda x: x.double(), {"rtol": 0, "atol": {torch.float64: 2}}, r"tolerance \(2\)"),
    "relative": (lambda x: x * 5, {"rtol": 1.0}, r"tolerance of 1 or more.*\(rtol=1e-3\)\Z"),
}


@pytest.mark.parametrize("name", SMALL)
def test_parity_of_values_below_the_tolerance_fails(name: str) -> None:
    target, tolerance, message = SMALL[name]
    captured = capture(target, torch.ones(3), via="dispatch")
    with pytest.raises(AssertionError, match=rf"\Anothing compared: all floating.*{message}"):
        captured.assert_matches_eager(**tolerance)


def test_parity_of_gradients_below_the_tolerance_fails() -> None:
    x = torch.randn(512, 512, requires_grad=True)
    captured = capture(lambda x: x.sin(), x, via="dispatch", loss_fn=lambda y: y.mean())
    with pytest.raises(
        AssertionError, match=r"nothing compared: all gradients .*gradient of 'x'\)"
    ):
        captured.assert_matches_eager()
    captured.assert_matches_eager(atol=0)


def test_parity_with_one_value_above_the_tolerance_passes() -> None:
    x = torch.ones(3, requires_grad=True)
    capture(lambda x: (x * 1e-7, x), x, via="dispatch").assert_matches_eager()
    capture(lambda x: x > 0, x, via="dispatch", backward=False).assert_matches_eager()
    infinite = capture(lambda x: x * 1e-7 / 0, x, via="dispatch", backward=False)
    infinite.assert_matches_eager()
