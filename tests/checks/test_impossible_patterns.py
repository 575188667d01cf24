"""Python functions and classes as patterns: refused at each level where they cannot be a node."""

from __future__ import annotations

import math
import os
import re
import sys
import types
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from mechanisms.models import example
from torch import Tensor, nn

from pytest_torchgraph import Capture, Fx, Inductor, capture, from_fx
from pytest_torchgraph.ops.impossible import BECOMES, refuse_impossible
from pytest_torchgraph.ops.matching import LEVELS as LEVELS_OF_GRAPHS

HERE = __name__
VIAS = ("dispatch", "fx", "dynamo", "aot", "export", "compiled_autograd", "inductor")
LEVELS = dict(zip(VIAS, (*VIAS[:-1], "post_grad"), strict=True)) | {"compiled_autograd": "aot"}


def my_norm(x: Tensor) -> Tensor:
    return x.sin()


class Layer(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return my_norm(x)


class Scale:
    """A class that is not a module."""


@torch.library.custom_op("impossible_patterns::twice", mutates_args=())
def twice(x: Tensor) -> Tensor:
    return x * 2


twice.register_fake(torch.empty_like)


@pytest.fixture(scope="module")
def captures() -> Callable[[str], Capture]:
    made: dict[str, Capture] = {}

    def by(via: str) -> Capture:
        if via not in made:
            target = nn.Sequential(nn.Linear(4, 4), Layer())
            how = Inductor(codegen=False) if via == "inductor" else via
            made[via] = capture(target, example(2, 4), via=how)
        return made[via]

    return by


PYTHONS = "a function of Python or numpy is never a node: name the ops that torch runs"
MODULE = "a module is not recorded, only its ops: name the ops"
FUNCTION = "a Python function is not recorded, only its ops: name the ops"
REFUSED: list[tuple[Any, str, str]] = [
    (Scale, "a class is not recorded, only its ops: name the ops that its methods run", ""),
    ("numpy.*", PYTHONS, ""),
    (np.exp, PYTHONS, ""),
    ("len", PYTHONS, ""),
    (os.path.join, PYTHONS, ""),
    (Layer, MODULE, "fx"),  # a tracer can keep it as a leaf
    (Layer(), MODULE, "fx"),
    (f"{HERE}.La*", MODULE, "fx"),
    (my_norm, FUNCTION, "dynamo"),
    (f"{HERE}.my_*", FUNCTION, "dynamo"),
]
"""Patterns, why they are refused, and the mechanism via which they are not."""


@pytest.mark.parametrize(
    ("via", "pattern", "why", "accepted"),
    [
        (via, *refused)
        for number, refused in enumerate(REFUSED)
        for column, via in enumerate(VIAS)
        if via in ("fx", "dynamo") or (number + column) % 5 == 0
    ],
)
def test_python_pattern_is_refused_at_each_level_where_it_is_no_node(
    captures: Callable[[str], Capture], via: str, pattern: Any, why: str, accepted: str
) -> None:
    captured = captures(via)
    if via == accepted:
        assert captured.count(pattern) == 0
        return
    with pytest.raises(
        ValueError, match=rf"cannot occur in a graph at level '{LEVELS[via]}'.*{why}"
    ):
        captured.assert_no_ops(pattern)


@pytest.mark.parametrize(
    "check",
    [
        lambda captured, pattern: captured.assert_op_counts({pattern: 0}),
        lambda captured, pattern: captured.count(pattern),
        lambda captured, pattern: captured.find(pattern),
        lambda captured, pattern: captured.program[0].assert_no_ops(pattern),
        lambda captured, pattern: captured.program[0].count(pattern),
        lambda captured, pattern: captured.assert_no_pattern(f"{pattern} -> *"),
        lambda captured, pattern: captured.assert_no_pattern(f"* ~> {pattern}"),
    ],
)
def test_pattern_is_refused_wherever_it_is_given(
    captures: Callable[[str], Capture], check: Callable[[Capture, str], object]
) -> None:
    with pytest.raises(ValueError, match=PYTHONS):
        check(captures("aot"), "numpy.matmul")


def test_function_allowed_in_a_dynamo_graph_is_counted() -> None:
    kept = torch.compiler.allow_in_graph(my_norm_kept)
    captured = capture(lambda x: kept(x) + 1, example(3), via="dynamo")
    with pytest.raises(AssertionError, match=r"my_norm_kept: found 1"):
        captured.assert_no_ops(my_norm_kept)


def my_norm_kept(x: Tensor) -> Tensor:
    return x.sin()


@torch.fx.wrap
def wrapped(x: Tensor) -> Tensor:
    return x.sin()


def test_function_wrapped_for_fx_is_a_valid_pattern(captures: Callable[[str], Capture]) -> None:
    captures("fx").assert_no_ops(wrapped, f"{HERE}.wrapped")
    captured = capture(lambda x: wrapped(x) + 1, example(3), via="fx")
    with pytest.raises(AssertionError, match=r"wrapped: found 1"):
        captured.assert_no_ops(wrapped)


class KeepsLayers(torch.fx.Tracer):
    def is_leaf_module(self, module: nn.Module, path: str) -> bool:
        return isinstance(module, Layer) or super().is_leaf_module(module, path)


def test_leaf_module_of_a_tracer_is_counted() -> None:
    model = nn.Sequential(nn.Linear(4, 4), Layer())
    captured = capture(model, example(2, 4), via=Fx(tracer=KeepsLayers()))
    with pytest.raises(AssertionError, match=r"Layer: found 1"):
        captured.assert_no_ops(Layer)


def test_pattern_on_a_given_graph_may_be_any_function() -> None:
    graph = from_fx(torch.fx.symbolic_trace(nn.Sequential(nn.Linear(4, 4), Layer())))
    graph.assert_no_ops(my_norm, Layer)
    with pytest.raises(ValueError, match="a function of Python or numpy"):
        graph.assert_no_ops("len")


@pytest.mark.parametrize(
    ("pattern", "hint"),
    [
        (nn.Linear, r"did you mean torch\.nn\.functional\.linear\?"),
        (nn.Linear(2, 2), r"did you mean torch\.nn\.functional\.linear\?"),
        ("torch.nn.LayerNorm", r"did you mean .*torch\.nn\.functional\.layer_norm\?"),
        (nn.Conv2d, r"did you mean torch\.conv2d\?"),
        (nn.LSTM, r"name the ops that its forward runs"),
        ("torch.nn.Lin*", r"did you mean torch\.nn\.functional\.linear\?"),
    ],
)
def test_a_module_of_torch_is_refused_via_dynamo(
    captures: Callable[[str], Capture], pattern: Any, hint: str
) -> None:
    with pytest.raises(
        ValueError, match=rf"'dynamo': a module is not recorded, only its ops: .*{hint}"
    ):
        captures("dynamo").assert_no_ops(pattern)


@pytest.mark.slow("looks up many names", only=["aot"])
@pytest.mark.parametrize("via", [via for via in VIAS if via not in ("fx", "dynamo", "export")])
def test_torch_functions_are_refused_below_autograd(
    captures: Callable[[str], Capture], via: str
) -> None:
    captured = captures(via)
    why = "which holds ops such as aten.mm.default: capture via "
    further = ("Tensor.cos", torch.Tensor.cos, "torch.co*", "torch.nn.functional")
    for pattern in ("torch.cos", *(further if via == "aot" else ())):
        with pytest.raises(ValueError, match=f"{why}'dynamo' or 'fx'"):
            captured.assert_no_ops(pattern)
    with pytest.raises(ValueError, match=f"{why}'fx'"):
        captured.assert_no_ops(nn.Linear)
    if via != "compiled_autograd":
        with pytest.raises(ValueError, match=why):
            captured.assert_no_ops("torch.*")


@pytest.mark.parametrize("via", VIAS)
def test_size_functions_are_patterns_at_each_level(
    captures: Callable[[str], Capture], via: str
) -> None:
    sizes = ("operator.floordiv", "operator.*", "math.*", math.floor, "torch.sym_max", "round")
    captures(via).assert_no_ops(*sizes, "higher_order.cond", twice)


def test_a_glob_of_ops_and_functions_is_a_pattern_via_dynamo(
    captures: Callable[[str], Capture],
) -> None:
    captures("dynamo").assert_no_ops("*softmax*")
    with pytest.raises(
        ValueError, match=r"torch functions: capture via 'aot', .*did you mean .*softmax"
    ):
        captures("dynamo").assert_no_ops("aten.softmax")


@pytest.mark.parametrize(
    ("pattern", "name"),
    [
        ("torch.nn.functional.conv2d", "torch.conv2d"),
        ("torch.functional.einsum", "torch.einsum"),
        (f"{HERE}.example", "mechanisms.models.example"),
    ],
)
def test_pattern_alias_is_refused_with_the_node_name(
    captures: Callable[[str], Capture], pattern: str, name: str
) -> None:
    with pytest.raises(ValueError, match=f"names no op .*: did you mean {name}\\?"):
        captures("dynamo").assert_no_ops(pattern)


def test_alias_is_not_taken_for_a_function_of_a_like_name(
    captures: Callable[[str], Capture], monkeypatch: pytest.MonkeyPatch
) -> None:
    other = types.ModuleType(f"{HERE}.other")

    def example(x: Tensor) -> Tensor:
        return x

    example.__module__, example.__qualname__ = other.__name__, "example"
    other.example = example  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, other.__name__, other)
    with pytest.raises(ValueError, match=r"did you mean mechanisms\.models\.example\?"):
        captures("dynamo").assert_no_ops(f"{HERE}.example")


@pytest.mark.parametrize(
    ("via", "call"),
    [
        ("fx", torch.sin),
        ("fx", lambda x: x.sin()),
        ("dynamo", torch.Tensor.sin),
    ],
)
def test_torch_function_and_its_method_match_each_other(
    via: str, call: Callable[[Tensor], Tensor]
) -> None:
    captured = capture(lambda x: call(x) + 1, example(3), via=via)
    for pattern in (
        "torch.sin",
        torch.sin,
        "Tensor.sin",
        torch.Tensor.sin,
        "torch.si*",
        "Tensor.si*",
    ):
        assert captured.count(pattern) == 1
        with pytest.raises(AssertionError, match="found 1"):
            captured.assert_no_ops(pattern)
        captured.assert_op_counts({pattern: 1, "operator.add": 1}, exact=True)


def test_method_pattern_without_a_function_matches_only_itself() -> None:
    captured = capture(lambda x: x.view(-1) + 1, example(3), via="dynamo")
    assert captured.count("Tensor.view") == 1
    with pytest.raises(ValueError, match=r"names no op .*: did you mean Tensor\.view"):
        captured.count("torch.view")


@pytest.mark.parametrize(
    ("allow", "problem"),
    [
        ("aten.*", "allows every op, so nothing is checked"),
        ("aten.*.*", "allows every op, so nothing is checked"),
        (["aten.[a-m]*", "aten.[n-z_]*"], "allows every op, so nothing is checked"),
        ("*.default", "allows every op, so nothing is checked"),
        (my_norm, "a Python function is not recorded, only its ops"),
        ("numpy.*", "a function of Python or numpy is never a node"),
        (Layer, "a module is not recorded, only its ops"),
    ],
    ids=lambda value: getattr(value, "__qualname__", str(value)),
)
def test_allow_of_every_or_no_eager_op_is_refused(
    captures: Callable[[str], Capture], allow: Any, problem: str
) -> None:
    with pytest.raises(ValueError, match=problem):
        captures("aot").assert_no_eager_ops(allow=allow)


def suggestions(op: Any, level: Any, *, decomposed: bool = False) -> list[str]:
    """Return the names that the refusal of a pattern suggests; [] if it is not refused."""
    try:
        refuse_impossible(op, [level], traced=True, decomposed=decomposed)
    except ValueError as error:
        hint = re.search(r"did you mean (.*)\?", str(error))
        return hint[1].split(" or ") if hint else []
    return []


COMPOSITE = [*BECOMES, "aten.scaled_dot_product_attention.default", "aten.rms_norm", "aten.square"]
IN_PLACE = [
    "aten.relu_",
    "aten.add_",
    "aten.__iand__",
    "aten.copy_",
    "aten.zero_",
    "aten.fill_.Tensor",
]
MISSPELLED = [
    "aten.scaled_dot_product_atention",
    "aten.layernorm",
    "aten.softmx",
    "aten.conv2",
    "aten.gellu",
]
BARE = [
    "mm",
    "linear",
    "softmax",
    "scaled_dot_product_attention",
    "torch.gelu",
    "Tensor.sn",
    "math.sqr",
]
OPS = ["torch.ops.aten.mm", "torch.ops.aten.linear", "torch.ops.aten.foo"]
FUNCTIONS = ["torch.nn.functional.conv2d", "torch.nn.functional.relu", "torch.nn.functional.linear"]
MODULES = [
    nn.Linear,
    nn.MultiheadAttention,
    nn.CrossEntropyLoss,
    nn.Conv2d,
    nn.LayerNorm,
    nn.Softmax,
]


NAMES = [*COMPOSITE, *IN_PLACE, *MISSPELLED, *BARE, *OPS, *FUNCTIONS, *MODULES]


@pytest.mark.slow("looks up many names")
@pytest.mark.parametrize(
    ("level", "step"), [("aot", 7), *((level, 1) for level in (*LEVELS_OF_GRAPHS, "decomposed"))]
)
def test_suggested_name_is_accepted(level: str, step: int) -> None:
    decomposed = level == "decomposed"
    real = "aot" if decomposed else level
    suggested = {
        (str(name), suggestion)
        for name in NAMES[::step]
        for suggestion in suggestions(name, real, decomposed=decomposed)
    }
    assert suggested
    for name, suggestion in sorted(suggested):
        try:
            refuse_impossible(suggestion, [real], traced=True, decomposed=decomposed)
        except ValueError as error:
            pytest.fail(f"suggested for {name}: {error}")


class Unnamed:
    """A class of a loaded module that says something else of itself."""

    __module__ = property(lambda self: "elsewhere")  # type: ignore[assignment]
    __qualname__ = "Unnamed"


def test_classes_of_loaded_modules_may_have_any_module(captures: Callable[[str], Capture]) -> None:
    with pytest.raises(ValueError, match="Nothing"):
        captures("aot").assert_no_ops(f"{HERE}.Nothing")


@pytest.mark.parametrize(
    ("op", "function"),
    [
        ("aten.upsample_nearest2d", lambda x: nn.functional.interpolate(x, scale_factor=2)),
        ("aten.hardshrink", nn.functional.hardshrink),
    ],
)
def test_an_op_that_aot_decomposes_is_refused(op: str, function: Callable[..., Any]) -> None:
    x = torch.ones(1, 2, 3, 3)
    assert any(name.startswith(op) for name in capture(function, x, via="dispatch").op_counts)
    traced = capture(function, x, via="aot")
    assert not any(name.startswith(op) for name in traced.op_counts)
    with pytest.raises(ValueError, match=r"cannot occur.*decompose"):
        traced.assert_no_ops(op)
