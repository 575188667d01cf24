"""Symbolic traces: all six node kinds, fixed arguments, leaves, and untraceable code."""

from __future__ import annotations

import contextlib
import functools
import re
from pathlib import Path
from typing import Any

import pytest
import torch
from mechanisms.models import example, mlp
from torch import Tensor, fx, nn
from torch.ao.nn import quantized
from torch.ao.nn.quantized import dynamic
from torch.nn import functional as F
from torch.nn.utils import parametrizations

from pytest_torchgraph import CaptureError, Fx, Graph, capture, diff, from_fx, load


class Six(nn.Module):
    """One node of each kind, in the style of torch.fx's documentation."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(4))
        self.linear = nn.Linear(4, 5)

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        return torch.topk(self.linear(x + self.weight).relu(), 3)


def test_all_six_node_kinds_occur() -> None:
    graph = capture(Six(), example(2, 4), via="fx").forward
    assert {node.kind for node in graph.nodes} == {
        "placeholder",
        "get_attr",
        "call_function",
        "call_module",
        "call_method",
        "output",
    }
    assert graph.count(nn.Linear) == 1
    assert graph.count("Tensor.relu") == 1
    assert graph["linear"].target == "linear"
    assert "%relu = Tensor.relu(%linear) : f32[2, 5]" in graph.to_text()


def test_arguments_left_at_their_default_decide_control_flow() -> None:
    def masked(x: Tensor, mask: Tensor | None = None, scale: float = 2.0) -> Tensor:
        if mask is not None:
            x = x * mask
        return x * scale

    plain = capture(masked, example(4), via="fx").forward
    assert plain.op_counts == {"operator.mul": 1}
    assert [node.name for node in plain.inputs] == ["x"]
    given = capture(masked, example(4), mask=example(4), via="fx").forward
    assert given.op_counts == {"operator.mul": 2}
    assert [node.name for node in given.inputs] == ["x", "mask"]


def test_concrete_args_fix_an_argument() -> None:
    def switched(x: Tensor, flag: bool) -> Tensor:
        return x.relu() if flag else x.tanh()

    fixed = capture(switched, example(4), True, via=Fx(concrete_args={"flag": True}))
    assert fixed.forward.count("Tensor.relu") == 1
    assert [node.name for node in fixed.forward.inputs] == ["x", "flag"]
    with pytest.raises(CaptureError, match="cannot trace the target"):
        capture(switched, example(4), True, via="fx")


def test_inputs_are_called_as_the_parameters_are() -> None:
    def function(input: Tensor, next: Tensor, *others: Tensor) -> Tensor:
        return input + next + others[0]

    captured = capture(function, example(4), example(4), example(4), via="fx")
    assert [node.name for node in captured.forward.inputs] == ["input", "next", "others"]
    assert from_fx(captured.fx(captured.forward)) == captured.forward
    again = fx.Interpreter(captured.fx(captured.forward)).run(*[example(4)] * 3)
    torch.testing.assert_close(again, captured.output)


def test_custom_tracer_chooses_the_leaves() -> None:
    class Deep(torch.fx.Tracer):
        def is_leaf_module(self, m: nn.Module, name: str) -> bool:
            return isinstance(m, nn.LayerNorm)

    graph = capture(mlp(), example(4, 8), via=Fx(tracer=Deep())).forward
    assert graph.count("torch.nn.functional.linear") == 4
    assert graph.count(nn.LayerNorm) == 1
    assert graph.find("torch.nn.functional.linear")[0].module == "blocks.0"


@pytest.mark.parametrize(
    ("function", "said"),
    [
        (lambda x: x if x.sum() > 0 else -x, "cannot be used as inputs to control flow"),
        (lambda x: sum(row for row in x), "Proxy object cannot be iterated"),
        (lambda x: x * len(x), "'len' is not supported in symbolic tracing"),
        (lambda x: x * float(x.sum()), "Proxy"),
    ],
)
def test_control_flow_on_data_gives_torchs_reason_and_the_line(function: object, said: str) -> None:
    with pytest.raises(CaptureError) as caught:
        capture(function, example(4), via="fx")  # type: ignore[arg-type]
    message = str(caught.value)
    assert said in message
    assert "test_fx.py:" in message
    assert "lambda x" in message
    assert "capture via 'dynamo'" in message


def test_code_that_fails_only_on_proxies_is_refused() -> None:
    def checked(x: Tensor) -> Tensor:
        if not isinstance(x, Tensor):
            raise TypeError("a tensor is wanted")
        if x.dim() == 2:
            raise LookupError("two dimensions")
        return x.sin()

    with pytest.raises(
        CaptureError, match=r"the target raises TypeError: a tensor is wanted"
    ) as caught:
        capture(checked, example(4), via="fx")
    assert ': raise TypeError("a tensor is wanted")' in str(caught.value)
    with pytest.raises(LookupError, match=r"^two dimensions$"):
        capture(checked, example(2, 2), via="fx")


def test_decorated_forward_is_refused_if_untraceable() -> None:
    class Decorated(nn.Module):
        def both(self, x: Tensor, y: Tensor, *, scale: float = 1.0) -> Tensor:
            return (x + y) * scale

        @functools.wraps(both)
        def forward(self, *args: Tensor, **kwargs: float) -> Tensor:
            return self.both(*args, **kwargs)

    with pytest.raises(
        CaptureError, match=r"signature of its forward differs from its decorator's"
    ):
        capture(Decorated(), example(4), example(4), via="fx")


@pytest.mark.parametrize("via", ["fx", "dynamo"])
def test_functions_that_torch_makes_in_one_place_have_names_of_their_own(via: str) -> None:
    pooled = torch.nn.functional.max_pool1d
    captured = capture(lambda x: pooled(torch.max_pool2d(x, 2)[0], 2), example(1, 2, 8, 8), via=via)
    other = capture(lambda x: nn.functional.max_pool2d(x, 2), example(1, 2, 8, 8), via=via)
    captured.assert_op_counts({pooled: 1, "torch.nn.functional.max_pool1d": 1})
    other.assert_op_counts({"torch.nn.functional.max_pool2d": 1}, exact=True)


def test_target_that_is_neither_module_nor_function_is_refused() -> None:
    for target in (torch.sin, functools.partial(torch.add, alpha=2)):
        with pytest.raises(CaptureError, match=r"it is a .*\. Wrap it in a function"):
            capture(target, example(4), via="fx")


def test_the_graph_runs_for_the_output_and_its_backward() -> None:
    captured = capture(mlp(), example(4, 8), via="fx")
    torch.testing.assert_close(captured.output, mlp()(example(4, 8)))
    captured.assert_matches_eager()
    captured.assert_graph_count(forward=1, backward=0)
    module = captured.fx(captured.forward)
    torch.testing.assert_close(module(example(4, 8)), captured.output)


def hooked(kind: str, function: Any) -> nn.Module:
    module = nn.Linear(4, 4)
    getattr(module, f"register_{kind}")(function)
    return module


def doubled(_module: nn.Module, *values: Any) -> Any:
    return values[-1] * 2


def quantized_linear(scale: float, zero_point: int) -> nn.Module:
    module = quantized.Linear(4, 4)
    module.scale, module.zero_point = scale, zero_point
    return module


def quantized_norm(scale: float) -> nn.Module:
    weight, bias = nn.Parameter(torch.ones(4)), nn.Parameter(torch.zeros(4))
    return quantized.LayerNorm(4, weight, bias, scale, 0)


def parametrized(*parts: nn.Module) -> nn.Module:
    layer = nn.Linear(4, 4)
    for part in parts:
        torch.nn.utils.parametrize.register_parametrization(layer, "weight", part)
    return layer


def orthogonal(map_name: str) -> nn.Module:
    return parametrizations.orthogonal(nn.Linear(4, 4), orthogonal_map=map_name)


def encoder(activation: Any) -> nn.Module:
    layer = nn.TransformerEncoderLayer(4, 2, 8, batch_first=True, activation=activation)
    return nn.TransformerEncoder(layer, 2, enable_nested_tensor=False)


LINEAR = nn.Linear(4, 4)
LINEAR_SAID = "in_features=4, out_features=4"
OPTIONS: dict[str, tuple[Any, Any, str]] = {
    "p": (nn.Dropout(0.1), nn.Dropout(0.2), "p=0.1"),
    "eps": (nn.LayerNorm(4, eps=1e-3), nn.LayerNorm(4), "normalized_shape=4, eps=0.001"),
    "dim": (nn.Softmax(0), nn.Softmax(1), "dim=0"),
    "in place": (nn.ReLU(inplace=True), nn.ReLU(), "inplace=True"),
    "bias": (nn.Linear(4, 4, bias=False), LINEAR, f"{LINEAR_SAID}, bias=False"),
    "dtype": (nn.Linear(4, 4).half(), LINEAR, f"{LINEAR_SAID}, torch.float16"),
    "mode": (nn.BatchNorm1d(4).eval(), nn.BatchNorm1d(4), "num_features=4, eval"),
    "layers": (
        nn.LSTM(4, 4, num_layers=2),
        nn.LSTM(4, 4),
        "input_size=4, hidden_size=4, num_layers=2",
    ),
    "padding mode": (
        nn.Conv1d(4, 4, 3, padding=1, padding_mode="circular"),
        nn.Conv1d(4, 4, 3, padding=1),
        "in_channels=4, out_channels=4, kernel_size=3, padding=1, padding_mode='circular'",
    ),
    "hook": (hooked("forward_hook", doubled), LINEAR, "forward_hook doubled"),
    "pre-hook": (
        hooked("forward_pre_hook", lambda _module, inputs: (inputs[0] * 2,)),
        LINEAR,
        "forward_pre_hook <lambda>",
    ),
    "parametrization": (
        parametrizations.weight_norm(nn.Linear(4, 4)),
        parametrizations.spectral_norm(nn.Linear(4, 4)),
        "weight by _WeightNorm",
    ),
    "order": (parametrized(nn.Tanh(), nn.ReLU()), parametrized(nn.ReLU(), nn.Tanh()), ""),
    "enum": (orthogonal("cayley"), orthogonal("matrix_exp"), ""),
    "function": (encoder("gelu"), encoder("relu"), ""),
    "weight of a loss": (
        nn.BCEWithLogitsLoss(pos_weight=torch.ones(4)),
        nn.BCEWithLogitsLoss(),
        "pos_weight=tensor",
    ),
    "zero point": (
        functools.partial(quantized_linear, 1.0, 3),
        functools.partial(quantized_linear, 1.0, 4),
        "zero_point=3",
    ),
    "scale buffer": (
        functools.partial(quantized.Quantize, 0.25, 3, torch.quint8),
        functools.partial(quantized.Quantize, 0.5, 3, torch.quint8),
        "scale=0.25, zero_point=3, dtype=torch.quint8",
    ),
    "scale of a norm": (
        functools.partial(quantized_norm, 0.25),
        functools.partial(quantized_norm, 0.5),
        "scale=0.25",
    ),
    "dtype of a dynamic module": (
        functools.partial(dynamic.Linear, 4, 4),
        functools.partial(dynamic.Linear, 4, 4, dtype=torch.float16),
        "dtype=torch.float16",
    ),
}
"""Two modules that differ, or functions that make them, and what a diff says of the first."""


@pytest.mark.filterwarnings("ignore:torch.quantize_per_tensor:UserWarning")
@pytest.mark.parametrize("name", OPTIONS)
def test_options_of_a_module_are_compared(name: str) -> None:
    *parts, said = OPTIONS[name]
    one, other = (part if isinstance(part, nn.Module) else part() for part in parts)
    first, again, second = (
        from_fx(fx.symbolic_trace(nn.Sequential(nn.Tanh(), part))) for part in (one, one, other)
    )
    assert first == again
    assert first != second
    (finding,) = diff(first, second).findings
    assert said in str(diff(first, second))
    assert finding.before.op == finding.after.op  # type: ignore[union-attr]


def test_options_of_a_module_are_stored(tmp_path: Path) -> None:
    first, second = (
        capture(nn.Sequential(OPTIONS["eps"][n]), torch.ones(4, 4), via="fx") for n in (0, 1)
    )
    stored = tmp_path / "made.tgraph"
    stored.write_text(first.to_text())
    assert load(stored) == first
    assert load(stored) != second
    stored.write_text(re.sub(r'", ".*"\]\(', '"](', first.to_text()).replace("graph 4", "graph 1"))
    assert load(stored) == first  # written by an older release, without this fact
    assert load(stored) == second


@pytest.mark.filterwarnings("ignore:torch.quantize_per_tensor:UserWarning")
def test_digits_round_the_floats_of_module_options() -> None:
    scales = (0.007615143433213234, 0.0076199, 0.0077)
    first, near, far = (
        from_fx(fx.symbolic_trace(nn.Sequential(quantized_linear(scale, 0)))) for scale in scales
    )
    assert first != near
    stored = Graph.from_text(first.to_text(digits=3))
    assert "scale=0.00762" in first.to_text(digits=3)
    assert stored == near
    assert stored != far
    any_scale = Graph.from_text(first.to_text(digits=0))
    assert any_scale == far
    assert "in_features=4, out_features=4, scale=~" in any_scale.to_text()


def test_options_of_an_own_class_are_unknown() -> None:
    class Tracer(fx.Tracer):
        def is_leaf_module(self, m: nn.Module, module_qualified_name: str) -> bool:
            return isinstance(m, Own)

    class Own(nn.Module):
        calls = 3

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return x + 1

    captured = capture(nn.Sequential(Own()), torch.ones(2), via=Fx(tracer=Tracer()))
    assert [node.options for node in captured.forward.nodes] == [None] * 3
    assert "torchgraph 4\n" in captured.to_text()


class LeafThatDraws(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return x + torch.randn(4)  # a leaf is not traced


DRAWS = {
    "torch.randn": lambda x: x + torch.randn(4),
    "Tensor.uniform_": lambda x: x + torch.empty(4).uniform_(),
    "torch.nn.functional.dropout": lambda x: x + F.dropout(torch.ones(4), 0.5),
    "torch.bernoulli": lambda x: x + torch.bernoulli(torch.full((4,), 0.5)),
    "torch.randperm": lambda x: x[:, torch.randperm(4)],
    "torch.rand": lambda x: (torch.rand(4, generator=torch.Generator()), x + 1)[1],  # unused
    "aten.randn": lambda x: x + torch.ops.aten.randn([4]),
}


@pytest.mark.parametrize("name", DRAWS)
def test_random_draw_while_tracing_is_refused(name: str) -> None:
    """The graph would contain the drawn numbers, and add the same ones in each run."""
    with pytest.raises(
        CaptureError,
        match=rf"{name}(\.default)? at \S*test_fx\.py:\d+ in <lambda> .* ran while tracing: ",
    ):
        capture(DRAWS[name], torch.ones(2, 4), via="fx")


def test_random_functions_of_proxies_and_leaves_are_nodes() -> None:
    class Tracer(torch.fx.Tracer):
        def is_leaf_module(self, m: nn.Module, module_qualified_name: str) -> bool:
            return True

    def noisy(x: Tensor) -> Tensor:
        inactive = F.dropout(torch.ones(4), 0.5, training=False) + torch.zeros(4)
        return F.dropout(torch.randn_like(x), 0.5) + inactive

    captured = capture(noisy, torch.ones(2, 4), via="fx")
    captured.assert_op_counts({"torch.randn_like": 1, "torch.nn.functional.dropout": 1})
    captured.assert_matches_eager()
    model = nn.Sequential(nn.Dropout(0.5), LeafThatDraws())
    leaves = capture(model, torch.ones(2, 4), via=Fx(tracer=Tracer()))
    leaves.assert_matches_eager()


class Constant(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x * torch.tensor([1.0, 2.0])


class ConstantThenError(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        _ = x * torch.tensor([1.0, 2.0])
        raise KeyError("boom")


@pytest.mark.parametrize("kind", [Constant, ConstantThenError])
def test_a_trace_leaves_no_attribute_on_the_module(kind: type[nn.Module]) -> None:
    model = kind()
    before = {*vars(model)}
    with contextlib.suppress(KeyError):
        capture(model, torch.rand(2, 2), via="fx")
    assert {*vars(model)} == before
