"""Compiled autograd: the whole backward in one named graph, hooks included, and a clean state."""

from __future__ import annotations

import functools
import gc
import re
import weakref
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest
import torch
import torch._dynamo.compiled_autograd as engine
from mechanisms.models import example, mlp
from torch import Tensor, nn

from pytest_torchgraph import Aot, Capture, CaptureError, CompiledAutograd, Graph, capture, diff

HOOK = "torch._dynamo.external_utils.call_hook"
ACCUMULATE = "torch._dynamo.external_utils.call_accumulate_grad"
FORWARDS = ("aot", "eager")
EAGER = CompiledAutograd(forward="eager")


def broken(x: Tensor) -> Tensor:
    temp = x.sin()
    torch._dynamo.graph_break()
    temp = temp.cos()
    torch._dynamo.graph_break()
    return temp.sum()


@pytest.fixture(autouse=True)
def _nothing_left() -> Iterator[None]:
    compiler = torch._C._dynamo.compiled_autograd.set_autograd_compiler
    run_backward = torch.autograd._engine_run_backward
    yield
    assert compiler(None, False) == (None, False)
    assert not engine.compiled_autograd_enabled
    assert torch.autograd._engine_run_backward is run_backward
    assert not torch._dynamo.config.compiled_autograd


class Hooked(nn.Module):
    """Hooks of every kind except module hooks."""

    def __init__(self) -> None:
        super().__init__()
        self.fc = nn.Linear(8, 4)
        self.fc.weight.register_hook(halve)
        self.fc.bias.register_post_accumulate_grad_hook(look)

    def forward(self, x: Tensor) -> Tensor:
        return self.fc(x).relu()


@torch.compiler.disable
def not_compiled(x: Tensor) -> Tensor:
    return x.sin()


def halve(grad: Tensor) -> Tensor:
    return grad / 2


def look(_: Tensor) -> None:
    return None


@functools.cache
def of_mlp(forward: Any) -> Capture:
    return capture(mlp(), example(4, 8), via=CompiledAutograd(forward=forward))


# -- one graph -------------------------------------------------------------------------------------


def test_three_forward_graphs_have_one_backward() -> None:
    x = example(4, grad=True)
    captured = capture(broken, x, via="compiled_autograd")
    captured.assert_graph_count(forward=3, backward=1)
    assert [graph.level for graph in captured.graphs] == [*["aot"] * 3, "compiled_autograd"]
    captured.backward.assert_op_counts({"aten.cos": 1, "aten.sin": 1, "aten.expand": 1})
    captured.assert_matches_eager()


@pytest.mark.slow("further models and backends")
@pytest.mark.parametrize(
    ("target", "dynamic"),
    [(broken, None), (mlp(), True), (Hooked(), None)],
    ids=["broken", "dynamic", "hooked"],
)
def test_forward_graphs_via_compiled_autograd_equal_aot(target: Any, dynamic: bool | None) -> None:
    x = example(4, 8, grad=True)
    through = capture(target, x, via=CompiledAutograd(dynamic=dynamic)).at("aot")
    direct = capture(target, x, via=Aot(dynamic=dynamic))
    assert len(through.backwards) == len(direct.backwards) > 0
    # A backward is compiled when it first runs, or with its forward if sizes are symbolic.
    texts = [sorted(g.renamed("g").to_text() for g in c.graphs) for c in (through, direct)]
    assert texts[0] == texts[1]


# -- hooks -----------------------------------------------------------------------------------------


@pytest.mark.slow("compiles for a second")
def test_ops_of_backward_hooks_of_modules_are_nodes() -> None:
    model = nn.Sequential(nn.Linear(4, 4), nn.ReLU(), nn.Linear(4, 2))
    x = example(2, 4, grad=True)
    without = capture(model, x, via=EAGER).backward
    model[2].register_full_backward_hook(lambda _, grads, __: (grads[0].atan(),))
    captured = capture(model, x, via=EAGER)
    assert not [
        node for node in captured.backward.nodes if re.search("call_hook|self_invoke", node.op)
    ]
    assert captured.backward.op_counts["aten.atan"] == 1
    assert captured.backward != without
    captured.assert_matches_eager()


def test_a_hook_inside_the_compiled_forward_breaks_no_graph() -> None:
    linear = nn.Linear(4, 4)

    def target(x: Tensor) -> Tensor:
        y = linear(x)
        y.register_hook(halve)
        return y

    captured = capture(target, example(2, 4), via=CompiledAutograd(forward_fullgraph=True))
    assert captured.backward.count("aten.div") == 1
    captured.assert_matches_eager()


@pytest.mark.parametrize("forward", FORWARDS)
def test_ops_of_the_backward_of_an_autograd_function_are_nodes(forward: Any) -> None:
    class Sine(torch.autograd.Function):
        @staticmethod
        def forward(ctx: Any, x: Tensor) -> Tensor:
            ctx.save_for_backward(x)
            return x.sin()

        @staticmethod
        def backward(ctx: Any, grad: Tensor) -> Tensor:
            return grad * ctx.saved_tensors[0].cos()

    via = CompiledAutograd(forward=forward)
    captured = capture(Sine.apply, example(4, grad=True), via=via)
    assert captured.backward.count("aten.cos") == 1
    captured.assert_matches_eager()


# -- options ---------------------------------------------------------------------------------------


@pytest.mark.slow("compiles many times")
def test_fullgraph_of_the_backward_does_not_apply_to_the_forward() -> None:
    x = example(4, grad=True)
    whole = capture(broken, x, via=CompiledAutograd(backward_fullgraph=True))
    assert whole == capture(broken, x, via="compiled_autograd")


def test_a_break_in_a_hook_is_an_error_only_under_backward_fullgraph() -> None:
    calls: list[int] = []

    def hook(grad: Tensor) -> Tensor:
        calls.append(1)
        torch._dynamo.graph_break()
        return grad.exp()

    x = example(4, grad=True)
    x.register_hook(hook)
    captured = capture(torch.sin, x, via=EAGER)
    assert captured.backward.op_counts["aten.exp"] == len(calls) == 1
    with pytest.raises(torch._dynamo.exc.Unsupported, match="graph_break"):
        capture(torch.sin, x, via=CompiledAutograd(forward="eager", backward_fullgraph=True))
    assert len(calls) == 1


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"forward": "inductor"}, "'aot' or 'eager'"),
        ({"forward": "eager", "forward_fullgraph": True}, "needs a compiled forward"),
    ],
)
def test_compiled_autograd_options_without_effect_are_refused(
    options: dict[str, Any], message: str
) -> None:
    with pytest.raises(ValueError, match=message):
        CompiledAutograd(**options)


def test_another_autograd_structure_is_another_graph() -> None:
    def train(x: Tensor) -> None:
        for op in (torch.add, torch.mul, torch.add):
            op(x, x).sum().backward()

    via = EAGER
    first, second, third = capture(train, example(4, grad=True), via=via).backwards
    assert first.count("*.AddBackward0") == 1
    assert second.count("*.MulBackward0") == 1
    assert first != second
    assert third.find(ACCUMULATE)[0].args[1] is not None  # a gradient already exists


@pytest.mark.parametrize(
    ("one", "other"),
    [
        (lambda x: x.sin() * 2.5, lambda x: x.sin() * 3.5),
        (lambda x: x.sin() * 2, lambda x: x.sin() * -7),
        (lambda x: (x * 1j).abs(), lambda x: (x * 2j).abs()),
    ],
    ids=["float", "int", "complex"],
)
def test_numbers_that_eager_autograd_saved_are_compared(one: Any, other: Any) -> None:
    via = EAGER
    x = torch.ones(4, dtype=torch.float64, requires_grad=True)
    backward, again, changed = (capture(f, x, via=via).backward for f in (one, one, other))
    assert backward == again != changed
    assert Graph.from_text(backward.to_text()) == backward
    [number] = [node for node in backward.inputs if node.op == "constant"]
    assert len(number.args) == 1
    factor = torch.tensor(2.5, dtype=torch.float64)  # a tensor is no number
    assert "%saved = saved : f64[]" in capture(lambda x: x * factor, x, via=via).backward.to_text()


def test_each_number_that_autograd_saved_makes_another_graph() -> None:
    def train(x: Tensor) -> None:
        for factor in (2.0, 3.0, 2.0):
            x.grad = None
            (x.sin() * factor).sum().backward()

    captured = capture(train, example(4, grad=True), via=EAGER)
    assert [(graph.runs, graph.inputs[1].args) for graph in captured.backwards] == [
        (2, (2.0,)),
        (1, (3.0,)),
    ]


def test_a_size_is_symbolic_once_it_has_changed() -> None:
    def train(*xs: Tensor) -> None:
        for x in xs:
            x.sum().backward()

    xs = [example(size, size, grad=True) for size in (10, 100, 10)]
    captured = capture(train, *xs, via=EAGER)
    static, dynamic = captured.backwards  # the third backward ran the second graph
    assert "size" not in {node.name for node in static.inputs}
    assert "%size = input : `s0`" in dynamic.to_text()
    assert "f32[s0, s0]" in dynamic.to_text()
    assert "100" not in dynamic.to_text()


# -- names -----------------------------------------------------------------------------------------


@pytest.mark.slow("compiles many times")
def test_inputs_are_named_and_none_is_unpacked_in_the_graph() -> None:
    backward = of_mlp("aot").backward
    roles: dict[str, set[str]] = {}
    for node in backward.inputs:
        roles.setdefault(node.op, set()).add(node.name)
    assert roles["tangent"] == {"tangent.0"}
    assert {"blocks.0.weight", "head.bias", "norm.weight"} <= roles["parameter"]
    assert roles["input"] == {"x"}
    forward = capture(mlp(), example(4, 8)).forward
    assert roles["saved"] <= {node.name for node in forward.nodes}
    assert roles["saved"]
    used = {name for node in backward.nodes for name in node.refs}
    assert used >= {node.name for node in backward.inputs}


def test_accumulation_changes_its_parameter_in_its_module() -> None:
    backward = of_mlp("eager").backward
    nodes = backward.find(ACCUMULATE)
    assert len(nodes) == len(list(mlp().parameters()))
    for node in nodes:
        parameter = node.args[0].name
        module, _, leaf = parameter.rpartition(".")
        assert node.module == module
        assert node.name == f"{module}/{leaf}.call_accumulate_grad"
        assert [(e.kind, e.target.name) for e in node.effects if e.target] == [
            ("mutates", parameter)
        ]
        # The last operand, after the parameter and, except in torch 2.9, its .grad.
        assert backward[node.refs[-1]].module == module


def test_every_op_knows_the_module_that_its_forward_ran_in() -> None:
    model = nn.Sequential(nn.Linear(8, 8), nn.LayerNorm(8), nn.Linear(8, 8), nn.GELU())
    backward = capture(model, example(4, 8), via=EAGER).backward
    for op, modules in (
        ("*.NativeLayerNormBackward0", "1"),
        ("*.GeluBackward0", "3"),
        ("*.AddmmBackward0", "02"),
    ):
        assert {node.module for node in backward.find(op)} == set(modules)
    glue = {"validate_outputs", "call_aot_bwd_prologue", "_exec_final_callbacks_stub", "getitem"}
    without = [node for node in backward.nodes if node.is_call and not node.module]
    assert {node.op.rpartition(".")[2] for node in without} <= glue


@pytest.mark.slow("compiles for a second")
def test_backward_op_has_the_line_of_its_forward() -> None:
    relu = of_mlp("aot").backward.find("aten.threshold_backward")
    assert {n.source.code for n in relu if n.source} == {"x = x + torch.relu(block(x))"}


@pytest.mark.slow("captures twice; test_repeatable.py compares bytes")
def test_text_has_no_process_specific_numbers() -> None:
    for forward in FORWARDS:
        via = CompiledAutograd(forward=forward)  # type: ignore[arg-type]
        text = capture(Hooked(), example(2, 8), via=via).to_text("full")
        assert not re.search(
            r"aot\d|0x[0-9a-f]+|eval_with|CompiledFunction|NodeCall|getitem_\d", text
        )


def block(activation: nn.Module) -> nn.Module:
    return nn.Sequential(nn.Linear(8, 8), activation, nn.LayerNorm(8))


@pytest.mark.slow("compiles many times")
def test_an_edit_in_one_block_renames_nothing_in_the_others() -> None:
    via = CompiledAutograd(forward="aot")
    plain = nn.Sequential(*[block(nn.GELU()) for _ in range(5)])
    edited = nn.Sequential(*[block(nn.ReLU() if i == 2 else nn.GELU()) for i in range(5)])
    before, after = (capture(model, example(2, 8), via=via) for model in (plain, edited))
    old, new = (set(made.backward.to_text(fold=False).splitlines()) for made in (before, after))
    changed = {line.strip() for line in old ^ new}
    assert changed
    assert all("%2." in line for line in changed), changed  # its own lines and those of its users
    assert len(diff(before, after).findings) == 1


# -- refusals and state ----------------------------------------------------------------------------


def test_compiled_autograd_without_a_backward_is_refused_with_the_reason() -> None:
    with pytest.raises(CaptureError, match="no backward ran: no parameter or input"):
        capture(torch.sin, example(4), via="compiled_autograd")
    with (
        torch.no_grad(),
        pytest.raises(CaptureError, match="no backward ran: grad mode is off"),
    ):
        capture(mlp(), example(4, 8), via="compiled_autograd")
    with pytest.raises(CaptureError, match="backward=False and forward='eager' leave no graph"):
        capture(mlp(), example(4, 8), via=EAGER, backward=False)
    only = capture(mlp(), example(4, 8), via="compiled_autograd", backward=False)
    assert [graph.kind for graph in only.graphs] == ["forward"]


@pytest.mark.slow("compiles many times")
def test_a_forward_that_dynamo_did_not_compile_is_not_passed_off_as_compiled() -> None:
    model = nn.LSTM(4, 4)
    with pytest.raises(CaptureError, match="RNN, GRU, or LSTM"):
        capture(model, example(3, 2, 4), via="compiled_autograd")
    x = example(4, grad=True)
    with pytest.raises(CaptureError, match=r"not compiled \(for an eager forward, pass"):
        capture(lambda x: not_compiled(x), x, via="compiled_autograd")
    eager = capture(model, example(3, 2, 4), via=EAGER)
    assert eager.backward.count(ACCUMULATE) == 4


def test_the_exception_of_a_hook_passes_through_unchanged() -> None:
    error = LookupError("mine")

    def fail(_: Tensor) -> Tensor:
        raise error

    x = example(4, grad=True)
    x.register_hook(fail)
    with pytest.raises(LookupError) as caught:
        capture(torch.sin, x, via=EAGER)
    assert caught.value is error
    assert error.args == ("mine",)


def test_users_compiler_is_restored_in_the_engine() -> None:
    seen: list[torch.fx.GraphModule] = []

    def compiler(module: torch.fx.GraphModule) -> Any:
        seen.append(module)
        return module

    x = example(4, grad=True)
    with engine._enable(compiler):
        captured = capture(torch.sin, x, via=EAGER)
        assert not seen
        x.sin().sum().backward()
        assert len(seen) == 1
    captured.assert_graph_count(forward=0, backward=1)


def test_target_with_its_own_backward_is_captured_with_any_config() -> None:
    model = nn.Linear(4, 4)

    def train(x: Tensor) -> None:
        model(x).sum().backward()

    for value in (False, True):
        with torch._dynamo.config.patch(compiled_autograd=value):
            captured = capture(train, example(2, 4), via="compiled_autograd")
            captured.assert_graph_count(forward=1, backward=1)
            assert torch._dynamo.config.compiled_autograd is value
        assert captured.backward.count(ACCUMULATE) == 2
    assert model.weight.grad is None


@pytest.mark.slow("compiles many times")
def test_no_tensor_outlives_the_capture() -> None:
    def run() -> list[weakref.ref[Any]]:
        model, x = Hooked(), example(2, 8, grad=True)
        captured = capture(model, x, via=EAGER)
        return [weakref.ref(obj) for obj in (x, model.fc.weight, captured.output, captured)]

    references = run()
    gc.collect()
    assert [reference() for reference in references] == [None] * 4


def test_an_op_of_autograd_is_a_pattern_and_a_misspelt_one_is_refused() -> None:
    captured = of_mlp("aot")
    captured.assert_no_ops(HOOK, "torch._dynamo.compiled_autograd.ops.MulBackward0")
    with pytest.raises(AssertionError, match="call_accumulate_grad: found 10"):
        captured.assert_no_ops(ACCUMULATE)
    with pytest.raises(ValueError, match="cannot occur"):
        captured.backward.assert_no_ops("torch.nn.functional.relu")


def test_ops_of_an_autograd_node_are_unknown() -> None:
    model = nn.Sequential(nn.Linear(4, 6), nn.Tanh(), nn.Linear(6, 4))
    captured: Capture = capture(model, example(3, 4), via=EAGER)
    refusals: list[tuple[Callable[[], Any], str]] = [
        (lambda: captured.flops, r"no formula for .*AddmmBackward0 \(2 times\)"),
        (lambda: captured.assert_budget(flops=1), r"no formula for .*AddmmBackward0"),
        (lambda: captured.saved_bytes, "saved bytes are unknown: backward uses "),
        (lambda: captured.assert_budget(peak_bytes=(0, 1000)), "saved bytes are unknown"),
        (lambda: captured.assert_no_ops("aten.mm"), r"the ops that .*AddmmBackward0 runs"),
        (lambda: captured.assert_no_ops("aten.*"), r"the ops that .*AddmmBackward0 runs"),
        (lambda: captured.assert_op_counts({"aten.mm": 0}), r"the ops that .*AddmmBackward0 runs"),
        (lambda: captured.backward.count("aten.mm"), r"the ops that .*AddmmBackward0 runs"),
    ]
    for refused, message in refusals:
        with pytest.raises(CaptureError, match=message):
            refused()
    captured.assert_op_counts({"*.AddmmBackward0": 2, ACCUMULATE: 4})


def test_the_backward_of_an_eager_op_has_unknown_ops() -> None:
    def target(x: Tensor) -> Tensor:
        y = x.sin()
        torch._dynamo.graph_break()
        return matmul(y).cos()

    matmul = torch.compiler.disable(lambda y: y @ y)
    captured: Capture = capture(target, example(4, 4, grad=True), via="compiled_autograd")
    with pytest.raises(CaptureError, match=r"no formula for .*MmBackward0"):
        _ = captured.flops
    with pytest.raises(CaptureError, match=r"the ops that .*MmBackward0 runs"):
        captured.assert_op_counts({"aten.mm": 1})
    captured.eager[0].assert_op_counts({"aten.mm": 1})


@pytest.mark.parametrize("kind", ["tensor", "module"])
def test_ops_of_a_hook_that_leaves_torch_are_unknown(kind: str) -> None:
    model, x = nn.Linear(4, 4), torch.ones(2, 4, requires_grad=True)

    def tanh(grad: Tensor) -> Tensor:
        return torch.from_numpy(np.tanh(grad.numpy()))

    if kind == "tensor":
        model.weight.register_hook(tanh)
        called = "torch._dynamo.external_utils.call_hook"
    else:
        model.register_full_backward_pre_hook(lambda _, grads: (tanh(grads[0]),))
        called = "torch._dynamo._trace_wrapped_higher_order_op.self_invoke"
    captured = capture(model, x, via="compiled_autograd")
    assert captured.count(called) >= 1
    said = rf"does not contain the ops that {called} runs, .* capture via 'aot' or 'dispatch'"
    with pytest.raises(CaptureError, match=said):
        captured.assert_no_ops("aten.tanh")
    with pytest.raises(CaptureError, match=said):
        captured.assert_no_pattern("aten.mm ~> aten.tanh")
    with pytest.raises(CaptureError, match=called):
        _ = captured.flops
    with pytest.raises(CaptureError, match=said):
        captured.assert_no_eager_ops()


def test_same_engine_graph_with_another_hook_is_another_graph() -> None:
    """The autograd engine's cache does not distinguish hooks."""

    def step(*hooks: Any) -> Any:
        def target(x: Tensor) -> Tensor:
            for hook in hooks:
                y = x.detach().requires_grad_()
                y.register_hook(hook)
                y.sin().backward(torch.ones_like(y))
            return x.cos()

        return capture(target, torch.ones(3), via=EAGER, backward=False)

    captured = step(torch.atan, torch.exp, torch.exp)
    assert [graph.runs for graph in captured.graphs] == [1, 2]
    assert captured.op_counts["aten.atan"] == captured.op_counts["aten.exp"] == 1
    assert captured != step(torch.atan, torch.atan, torch.exp)


def test_ops_of_a_hook_are_nodes_with_their_operands_parameter_and_line() -> None:
    linear, mask = nn.Linear(3, 3), torch.ones(3)

    def hook(grad: Tensor) -> Tensor:
        if grad.isnan().any():
            raise RuntimeError("nan")
        return grad * mask + linear.weight[0] * torch.tensor([1.0, 2, 3])

    linear.bias.register_hook(hook)
    model = nn.Sequential(linear)
    backward = capture(model, torch.ones(2, 3), via="compiled_autograd").backward
    (product, second), (added,) = backward.find("aten.mul"), backward.find("aten.add")
    assert added.refs == (product.name, second.name)
    assert added.module == "0"
    assert added.name == "0/bias.add"
    assert added.source is not None
    assert added.source.code.startswith("return grad * mask")
    assert "0.weight" in {node.name for node in backward.inputs}
    assert backward.count("aten._local_scalar_dense") == 1
    assert backward.count(HOOK) == 0


@torch.compiler.disable
def queued(grad: Tensor) -> None:
    """The engine runs this code after the graph, as the reduction of the root of FSDP."""
    torch.autograd.Variable._execution_engine.queue_callback(grad.tanh)  # type: ignore[attr-defined]


def keeps(grad: Tensor) -> None:
    KEPT.append(grad * grad.sum().item())


KEPT: list[Tensor] = []


@pytest.mark.parametrize(
    "hooks",
    [
        [lambda g: g * g.norm().item()],
        [lambda g: g * g.tolist()[0]],
        [queued],
        [keeps, lambda grad: grad + KEPT[-1]],  # uses a result of an opaque hook
    ],
    ids=["number", "list", "queued", "result"],
)
def test_hook_whose_ops_are_unknown_is_opaque(hooks: list[Any]) -> None:
    x = torch.ones(3, requires_grad=True)
    for hook in hooks:
        x.register_hook(hook)
    backward = capture(torch.sin, x, via=EAGER).backward
    assert backward.count(HOOK) == len(hooks)
    with pytest.raises(CaptureError, match="does not contain the ops"):
        backward.assert_no_ops("aten.tanh")


def test_number_that_a_hook_inside_the_compiled_forward_reads_makes_it_opaque() -> None:
    def target(x: Tensor) -> Tensor:
        y = x * 2
        y.register_hook(lambda grad: grad.reshape(-1) * grad.sum().item())
        return y.sin()

    captured = capture(target, torch.ones(3, requires_grad=True), via="compiled_autograd")
    assert captured.backward.count("*self_invoke") == 1
    with pytest.raises(CaptureError, match="self_invoke"):
        captured.assert_no_ops("aten.item")


def test_write_of_a_hook_precedes_what_reads_the_gradient() -> None:
    x = torch.ones(3, requires_grad=True)
    x.register_hook(lambda grad: grad.mul_(2))
    backward = capture(torch.sin, x, via=EAGER).backward
    (write,) = (node for node in backward.nodes if node.op == "aten.mul_.Tensor")
    assert write.effects[0].kind == "mutates"
    (accumulated,) = backward.find(ACCUMULATE)
    assert write.name in accumulated.refs


def test_freezing_another_branch_is_a_difference() -> None:
    def frozen(name: str) -> Capture:
        model = nn.ModuleDict({each: nn.Linear(3, 3, bias=False) for each in "ab"})
        model[name].requires_grad_(False)
        both = lambda x: model["a"](x) + model["b"](x)  # noqa: E731
        return capture(both, torch.ones(2, 3), via="compiled_autograd")

    first, second = frozen("a"), frozen("b")
    assert first != second
    assert diff(first, second)
