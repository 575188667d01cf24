"""`capture.fx(graph)`: a module equal to the graph, in its order, to run and to rewrite."""

from __future__ import annotations

import copy
import functools
import gc
import weakref
from collections.abc import Callable
from typing import Any

import pytest
import torch
from mechanisms.models import Norm, example, mlp
from torch import Tensor, fx, nn
from torch.fx.passes.fake_tensor_prop import FakeTensorProp
from torch.fx.passes.shape_prop import ShapeProp

from pytest_torchgraph import Aot, Capture, CompiledAutograd, Dynamo, Graph, capture, diff, from_fx

LIVE = ("fx", "dynamo", "aot", "export", "inductor", "compiled_autograd")


class Late(nn.Module):
    """Uses first the module that it declares last, and writes a buffer."""

    total: Tensor

    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.linspace(1, 2, 4))
        self.bias = nn.Parameter(torch.linspace(-1, 1, 4))
        self.register_buffer("total", torch.zeros(4))

    def forward(self, x: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
        late = y.sin() * self.bias
        self.total.add_(y.detach().sum(0))
        return late.exp(), (x @ (self.weight * late).t()).tanh()


class Choice(nn.Module):
    """Has bodies of a higher-order op."""

    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(4, 4)

    def forward(self, x: Tensor) -> Tensor:
        def yes(x: Tensor) -> Tensor:
            return self.linear(x).sin()

        def no(x: Tensor) -> Tensor:
            return self.linear(x).cos()

        chosen = torch.cond(x.sum() > 0, yes, no, (x,))
        return chosen.exp()  # type: ignore[no-any-return]


class Several(nn.Module):
    """Has ops with several results."""

    def __init__(self) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(4)

    def forward(self, x: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
        first, _ = torch.linalg.qr(y)
        left, right = self.norm(x).split(2, dim=1)
        return first + 1, torch.topk(left * right, 2).values


def varied(*shape: int) -> Tensor:
    """Return numbers whose convolution varies as much. Those of `example` form a plane."""
    return torch.randn(shape, generator=torch.Generator().manual_seed(0))


SUBJECTS: dict[str, tuple[Callable[[], nn.Module], tuple[Tensor, ...]]] = {
    "mlp": (mlp, (example(4, 8),)),
    "norm": (Norm, (varied(4, 2, 8, 8),)),
    "late": (Late, (example(3, 4), -example(3, 4))),
    "choice": (Choice, (example(3, 4),)),
    "several": (Several, (example(3, 4), (torch.eye(3) + example(3, 3)).requires_grad_())),
}
CASES = [
    *(("mlp", "fx"), ("mlp", "inductor"), ("norm", "fx"), ("norm", "export"), ("norm", "aot")),
    *(("late", via) for via in LIVE),
    *(("choice", via) for via in ("dynamo", "aot", "export")),
    *(("several", via) for via in ("fx", "aot", "export", "compiled_autograd")),
]


def made_of(name: str) -> tuple[nn.Module, tuple[Tensor, ...]]:
    """Return a subject in double precision, for `assert_equal_but_for_rounding`."""
    make, args = SUBJECTS[name]
    torch.manual_seed(0)
    doubled = tuple(arg.detach().double().requires_grad_(arg.requires_grad) for arg in args)
    return make().double(), doubled


@functools.cache
def captured(name: str, via: Any) -> Capture:
    """Capture a subject. Do not run the graph: a backward may write gradients."""
    model, args = made_of(name)
    return capture(model, *args, via=via)


TOLERANCE = torch.finfo(torch.float64).eps ** 0.5
"""Relative to values of about 1. It is half of the 53 bits.

Kernels differ in the order of additions. No subject adds more than 200 numbers for one value, and
no condition number exceeds 1000. The product with epsilon is 5e-11, a three-hundredth of this. A
wrong input, order or op causes a much larger error.
"""


def assert_equal_but_for_rounding(actual: Any, expected: Any) -> None:
    torch.testing.assert_close(actual, expected, rtol=TOLERANCE, atol=TOLERANCE)


# -- the module equals the graph -------------------------------------------------------------------


@pytest.mark.slow(
    "inductor compiles C++ for each case",
    unless=[
        "*fx",
        "late-dynamo",
        "late-compiled_autograd",
        "norm-export",
        "norm-aot",
        "several-aot",
        "several-export",
    ],
)
@pytest.mark.parametrize(("name", "via"), CASES, scope="module")
def test_to_fx_module_and_its_copy_by_a_transformer_equal_the_graph(name: str, via: str) -> None:
    subject_capture = captured(name, via)
    for graph in subject_capture.graphs:
        module = subject_capture.fx(graph)
        again = from_fx(module)
        assert again == graph
        assert (again.level, again.op_counts) == (graph.level, graph.op_counts)
        for ours, theirs in zip(graph.inputs, again.inputs, strict=True):
            assert (ours.name, ours.op, ours.module) == (theirs.name, theirs.op, theirs.module)
        assert [ref.name for ref in again.saved] == [ref.name for ref in graph.saved]
        modules = [[n.module for n in either.nodes if n.is_call] for either in (graph, again)]
        assert modules[0] == modules[1]
        copied = fx.Transformer(subject_capture.fx(graph)).transform()
        assert not diff(graph, module)
        assert not diff(graph, copied)
        assert not diff(copied, module)
        of_copy = from_fx(copied)
        assert [node.name for node in of_copy.inputs] == [node.name for node in graph.inputs]
        if name != "several" or via not in ("fx", "dynamo"):
            assert of_copy.op_counts == graph.op_counts  # a torch function has no recorded result


@pytest.mark.slow("further cases; a few are in every run", unless=["dynamo"])
@pytest.mark.parametrize("via", [Aot(dynamic=True), Dynamo(dynamic=True)], ids=["aot", "dynamo"])
def test_sizes_have_the_symbols_of_the_whole_capture(via: Any) -> None:
    def function(x: Tensor, y: Tensor) -> Tensor:
        return (y.sin().sum(0) * x.sum(1).mean()).exp()

    captured = capture(function, example(5, 7, grad=True), example(6, 9, grad=True), via=via)
    for graph in captured.graphs:
        assert "s3" in graph.to_text()
        assert from_fx(captured.fx(graph)) == graph


class Unusual(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.a = nn.Linear(4, 4)

    def forward(s, x: Tensor) -> Tensor:
        return s.a(x).sin()  # type: ignore[no-any-return]


@pytest.mark.slow("further mechanisms", unless=["dynamo"])
@pytest.mark.parametrize("via", ["dynamo", "aot", "compiled_autograd"])
def test_module_paths_are_those_of_the_capture_and_not_of_torchs_sources(via: str) -> None:
    torch.manual_seed(0)
    blocks = nn.Sequential(Unusual(), nn.Sequential(Unusual()))
    for target in (blocks, lambda x: blocks(x)):
        captured = capture(target, example(3, 4), via=via)
        for graph in captured.graphs:
            module = captured.fx(graph)
            for variant in (module, fx.Transformer(module).transform(), copy.deepcopy(module)):
                again = from_fx(variant)
                assert {n.module for n in again.nodes} >= {"0.a", "1.0.a"}
                assert {n.module for n in again.nodes} <= {n.module for n in graph.nodes} | {""}
            assert from_fx(copy.deepcopy(module)) == from_fx(module.graph) == graph


def test_modules_of_a_graph_are_independent_copies() -> None:
    model, args = made_of("choice")
    captured = capture(model, *args)
    text = captured.to_text()
    first, second = captured.fx(captured.forward), captured.fx(captured.forward)
    assert first is not second
    for module in first.modules():
        if isinstance(module, fx.GraphModule):
            for node in module.graph.nodes:
                node.meta.clear()
                if node.target is torch.ops.aten.sin.default:
                    node.target = torch.ops.aten.tan.default
    assert from_fx(first) != captured.forward
    assert from_fx(second) == from_fx(captured.fx(captured.forward)) == captured.forward
    assert captured.to_text() == text


# -- the module runs on the inputs of the graph ----------------------------------------------------


def forward_run(captured: Capture, model: nn.Module, *args: Tensor) -> dict[str, Any]:
    """Return the values of the forward's inputs, outputs and saved values, by name."""
    named: dict[str, Tensor] = {
        **dict(zip(("x", "y"), args, strict=False)),
        **dict(model.named_parameters()),
        **{name: buffer.clone() for name, buffer in model.named_buffers()},
    }
    graph = captured.forward
    with torch.no_grad():
        results = fx.Interpreter(captured.fx(graph)).run(
            *(named[node.name] for node in graph.inputs)
        )
    names = [node.name for node in graph.outputs] + [ref.name for ref in graph.saved]
    return dict(zip(names, results, strict=True)) | named


@pytest.mark.slow("further mechanisms", unless=["export*"])
@pytest.mark.parametrize(
    ("via", "name"),
    [
        *(("export", name) for name in ("mlp", "norm", "late", "several")),
        *(("aot", "late"), ("dynamo", "norm"), ("inductor", "late"), ("compiled_autograd", "late")),
    ],
)
def test_forward_module_returns_outputs_and_saved_values(name: str, via: str) -> None:
    model, args = made_of(name)
    captured = capture(model, *args, via=via)
    values = forward_run(captured, model, *args)
    outputs = captured.output if isinstance(captured.output, tuple) else (captured.output,)
    returned = [values[node.name] for node in captured.forward.outputs][-len(outputs) :]
    assert_equal_but_for_rounding(returned, list(outputs))


@pytest.mark.slow("further mechanisms", unless=["aot-norm", "aot-several"])
@pytest.mark.parametrize(
    ("via", "name"),
    [
        *(("aot", name) for name in ("norm", "late", "several")),
        *(("inductor", "late"), ("compiled_autograd", "late"), ("compiled_autograd", "norm")),
    ],
)
def test_backward_module_takes_saved_values_by_name(name: str, via: str) -> None:
    model, args = made_of(name)
    captured = capture(model, *args, via=via)
    values = forward_run(captured, model, *args)
    outputs = captured.output if isinstance(captured.output, tuple) else (captured.output,)
    tangents = iter([torch.ones_like(output) for output in outputs])
    given = [
        next(tangents) if node.op == "tangent" else values[node.name]
        for node in captured.backward.inputs
    ]
    with torch.no_grad():
        results = captured.fx(captured.backward)(*given)
    if via == "compiled_autograd":  # accumulates gradients
        gradients = [parameter.grad for parameter in model.parameters()]
    else:
        gradients = [gradient for gradient in results if gradient is not None]
    again, args = made_of(name)
    again_out = again(*args)
    again_outs = again_out if isinstance(again_out, tuple) else (again_out,)
    leaves = [*(a for a in args if a.requires_grad), *again.parameters()]
    expected = torch.autograd.grad(again_outs, leaves, [torch.ones_like(o) for o in again_outs])
    assert_equal_but_for_rounding(gradients, list(expected)[-len(gradients) :])


def reading(grad: Tensor) -> Tensor:
    return grad / 2 if grad.sum().item() else grad


@pytest.mark.parametrize(
    ("hook", "factor"), [(reading, 3), (lambda grad: grad / 2, 0.5)], ids=["reads", "recorded"]
)
def test_the_backward_of_an_eager_forward_takes_other_values_and_another_hook(
    hook: Callable[[Tensor], Tensor], factor: float
) -> None:
    """A hook that reads a number is an input. The ops of any other hook are in the graph."""
    torch.manual_seed(0)
    model, x = nn.Linear(4, 2).double(), example(3, 4).double()
    handle = model.weight.register_hook(hook)
    captured = capture(model, x, via=CompiledAutograd(forward="eager"))
    graph = captured.backward
    values = {
        "input": x + 1,
        "tangent.0": torch.ones(3, 2).double(),
        f"weight.{hook.__name__}": lambda grad: grad * 3,
        **dict(model.named_parameters()),
    }
    captured.fx(graph)(*(values[node.name] for node in graph.inputs))
    handle.remove()
    assert_equal_but_for_rounding(model.weight.grad, (x + 1).sum(0).expand(2, 4) * factor)
    assert_equal_but_for_rounding(model.bias.grad, torch.full((2,), 3.0).double())


# -- the module can be rewritten -------------------------------------------------------------------


class Twice(fx.Transformer):
    def call_function(self, target: Any, args: Any, kwargs: Any) -> Any:
        result = super().call_function(target, args, kwargs)
        if target is torch.ops.aten.tanh.default:
            return super().call_function(torch.ops.aten.neg.default, (result,), {})
        return result


def test_rewrite_of_one_op_is_one_finding() -> None:
    subject_capture = captured("late", "aot")
    graph_diff = diff(
        subject_capture.forward, Twice(subject_capture.fx(subject_capture.forward)).transform()
    )
    assert [finding.kind for finding in graph_diff.findings] == ["added"], graph_diff
    assert graph_diff.findings[0].changes[0].node.op == "aten.neg.default"


def test_an_output_that_a_pass_adds_is_seen() -> None:
    subject_capture = captured("late", "aot")
    module = subject_capture.fx(subject_capture.forward)
    output = module.graph.output_node()
    (sin,) = module.graph.find_nodes(op="call_function", target=torch.ops.aten.sin.default)
    output.args = ((*output.args[0], sin),)
    assert from_fx(module) != subject_capture.forward
    assert (
        len(from_fx(module).outputs)
        == len(subject_capture.forward.outputs) + len(subject_capture.forward.saved) + 1
    )
    assert diff(subject_capture.forward, module)


@pytest.mark.parametrize(("via", "propagated"), [("aot", FakeTensorProp), ("fx", ShapeProp)])
def test_shapes_recomputed_by_a_pass_are_compared(via: str, propagated: Any) -> None:
    captured = capture(lambda x: torch.relu(x).sum(0).exp(), example(2, 3), via=via)
    module = captured.fx(captured.forward)
    sum_ = next(node for node in module.graph.nodes if "sum" in node.name)
    sum_.args = (sum_.args[0], [1]) if via == "aot" else (sum_.args[0], 1)
    propagated(module).propagate(example(2, 3))
    shapes = [node.result.shape for node in from_fx(module).nodes if node.is_call]  # type: ignore[union-attr]
    assert shapes == [(2, 3), (2,), (2,)]


# -- unknown shapes are not compared ---------------------------------------------------------------


def test_projections_without_shapes_belong_to_their_op() -> None:
    def function(x: Tensor) -> Tensor:
        return nn.functional.layer_norm(x, (4,)) + torch.cat(x.split(2, dim=1), 1)

    captured = capture(function, example(3, 4, grad=True))
    again = from_fx(fx.Transformer(captured.fx(captured.forward)).transform())
    assert captured.forward.op_counts["aten.native_layer_norm"] == 1
    assert again.op_counts == captured.forward.op_counts
    assert Graph.from_text(again.to_text()) == again


def exp_then(size: int) -> fx.GraphModule:
    captured = capture(lambda x: x.exp().sin(), example(size))
    return captured.fx(captured.forward)


def test_shapes_are_compared_unless_one_side_has_none() -> None:
    two, three = exp_then(2), exp_then(3)
    assert diff(two, three)
    assert not diff(fx.Transformer(two).transform(), three)
    assert not diff(two, fx.Transformer(three).transform())
    assert not diff(fx.Transformer(two).transform(), fx.Transformer(three).transform())
    assert from_fx(fx.Transformer(two).transform()) != from_fx(two)  # equality is strict


def test_one_known_shape_compares_all_shapes() -> None:
    two, three = exp_then(2), exp_then(3)
    for node in list(two.graph.nodes)[1:]:
        node.meta.pop("val", None)
    assert diff(two, three)


@pytest.mark.slow("compiles bodies")
def test_shapes_in_a_body_are_compared_if_unknown_around_it() -> None:
    subject_capture = captured("choice", "aot")
    graph = subject_capture.forward

    def transformed() -> fx.GraphModule:
        return fx.Transformer(subject_capture.fx(graph)).transform()

    assert not diff(graph, transformed())
    edited = transformed()
    body = next(m for m in edited.children() if isinstance(m, fx.GraphModule))
    node = next(node for node in body.graph.nodes if node.op == "call_function")
    node.meta["val"] = node.meta["val"].new_empty(7, 7)
    assert diff(graph, edited)


@pytest.mark.slow("compiles several models")
def test_function_of_a_converted_graph_is_not_kept_alive() -> None:
    def converted() -> weakref.ref[torch.Tensor]:
        data = torch.ones(3)

        def function(x: torch.Tensor) -> torch.Tensor:
            return x + data

        graph = torch.fx.Graph()
        graph.output(graph.call_function(function, (graph.placeholder("x"),)))
        from_fx(torch.fx.GraphModule({}, graph))
        return weakref.ref(data)

    data = converted()
    gc.collect()
    assert data() is None
