"""Captures by a TorchDispatchMode, in cases that simple recipes miss."""

from __future__ import annotations

import gc
import weakref
from collections.abc import Callable
from typing import Any

import pytest
import torch
from mechanisms.models import Norm, example, mlp
from torch import Tensor, nn

from pytest_torchgraph import Capture, CaptureError, Dispatch, Graph, capture


def run(function: object, *args: object, **options: object) -> Capture:
    return capture(function, *args, via=Dispatch(**options))  # type: ignore[arg-type]


def lines(graph: Graph) -> list[str]:
    return [line.strip() for line in graph.to_text().splitlines()]


def test_the_same_tensor_given_twice_is_one_input_with_two_uses() -> None:
    x = example(2, 4)
    graph = run(lambda a, b: a * b, x, x).forward
    assert [node.name for node in graph.inputs] == ["a"]
    assert graph.find("aten.mul")[0].refs == ("a", "a")
    graph = run(lambda a, b: a * b, example(2, 4), example(2, 4)).forward
    assert graph.find("aten.mul")[0].refs == ("a", "b")


def test_a_read_of_the_base_depends_on_a_write_through_a_view() -> None:
    def write_through_view(x: Tensor) -> Tensor:
        y = x.clone()
        y.view(-1).add_(1)
        return y * 2

    graph = run(write_through_view, example(2, 4)).forward
    write = graph.find("aten.add_")[0]
    read = graph.find("aten.mul")[0]
    assert [ref.name for ref in read.after] == [write.name]
    assert write.effects[0].target.name == graph.find("aten.clone")[0].name  # type: ignore[union-attr]


def test_a_write_to_an_input_stays_though_nothing_reads_it() -> None:
    graph = run(lambda x: (x.mul_(2), x.new_ones(1))[1], example(2, 4)).forward
    assert graph.count("aten.mul_") == 1
    assert "!mutates %x" in graph.to_text()


def write_through_view(x: Tensor) -> Tensor:
    y = x.clone()
    y[0].add_(1)
    return y


def write_through_list(x: Tensor) -> Tensor:
    y = x.clone()
    torch._foreach_mul_([y], 2.0)
    return y


def write_to_gradient(x: Tensor) -> Tensor:
    loss = x.sin().sum()
    loss.backward()
    torch._foreach_mul_([x.grad], 0.5)  # as clip_grad_norm_ does
    return loss.detach()


@pytest.mark.parametrize(
    ("function", "op"),
    [
        (write_through_view, "aten.add_"),
        (write_through_list, "aten._foreach_mul_"),
        (write_to_gradient, "aten._foreach_mul_"),
    ],
)
def test_write_that_only_the_returned_value_holds_stays(function: object, op: str) -> None:
    graph = run(function, example(2, 4).requires_grad_(function is write_to_gradient)).forward
    (write,) = graph.find(op)
    assert [ref.name for ref in graph.nodes[-1].after] == [write.name]
    with pytest.raises(AssertionError, match=f"{op}: found 1"):
        graph.assert_no_ops(op)
    assert Graph.from_text(graph.to_text()) == graph


def test_write_to_another_part_of_the_returned_value_differs() -> None:
    def write_to_second_row(x: Tensor) -> Tensor:
        y = x.clone()
        y[1].add_(1)
        return y

    assert run(write_through_view, example(2, 4)) != run(write_to_second_row, example(2, 4))


def test_op_with_an_unused_result_is_in_the_graph() -> None:
    def wasteful(x: Tensor) -> Tensor:
        x.clone().add_(1)
        (x.t() @ x).view(-1)
        return x.cos()

    captured = run(wasteful, example(4, 4))
    assert captured.op_counts == {
        "aten.clone.default": 1,
        "aten.add_.Tensor": 1,
        "aten.t.default": 1,
        "aten.mm.default": 1,
        "aten.cos.default": 1,
    }
    assert captured.flops == 2 * 4**3
    with pytest.raises(AssertionError, match=r"aten\.mm: found 1"):
        captured.assert_no_ops("aten.mm")
    assert Graph.from_text(captured.forward.to_text()) == captured.forward


def test_unused_views_and_detach_are_left_out_until_none_is_left() -> None:
    def views(x: Tensor) -> Tensor:
        x.t()[0].detach().view(2, 2)
        x.chunk(2)
        return x.cos()

    assert run(views, example(4, 4)).forward.op_counts == {"aten.cos.default": 1}


def test_random_draws_stay_and_keep_their_order() -> None:
    def draw(x: Tensor) -> Tensor:
        a, b = torch.rand(4), torch.rand(4)
        return x + a - b

    def swapped(x: Tensor) -> Tensor:
        a, b = torch.rand(4), torch.rand(4)
        return x + b - a

    x = example(4)
    assert run(draw, x).forward.count("aten.rand") == 2
    assert run(draw, x).forward == run(draw, x).forward
    assert run(draw, x).forward != run(swapped, x).forward


def test_tensors_born_inside_are_constants_and_factory_calls() -> None:
    graph = run(lambda x: x + torch.tensor([1.0, 2.0]) + torch.arange(2), example(2)).forward
    assert [node.op for node in graph.inputs] == ["input", "constant"]
    assert graph.find("aten.arange")[0].refs == ()


def test_outputs_of_a_multi_output_op_are_projections_not_ops() -> None:
    graph = run(lambda x: torch.topk(x, 2)[0], example(3, 4)).forward
    assert graph.op_counts == {"aten.topk.default": 1}
    assert "%topk#0 = operator.getitem(%topk, 0) : f32[3, 2]" in lines(graph)
    assert "#1" not in graph.to_text()


def test_tensors_in_nested_containers_are_named_by_their_path() -> None:
    def nested(batch: dict[str, tuple[Tensor, ...]], scale: float = 1.0) -> dict[str, object]:
        first, second = batch["pair"]
        return {"out": (first * scale, None), "more": [second.sum(), 3]}

    pair = (example(2), example(3))
    captured = run(nested, {"pair": pair})
    assert [node.name for node in captured.forward.inputs] == ["batch.pair.0", "batch.pair.1"]
    assert len(captured.forward.outputs) == 2
    assert captured.output["more"][1] == 3


def test_an_op_that_returns_its_input_is_followed() -> None:
    graph = run(lambda x: x.add_(1).contiguous() * 2, example(4)).forward
    mul = graph.find("aten.mul")[0]
    assert mul.refs == (graph.find("aten.add_")[0].name,)


def test_forward_and_backward_ops_know_their_module() -> None:
    captured = run(mlp(), example(4, 8))
    saved = {ref.name for ref in captured.forward.saved}
    assert (
        saved == {node.name for node in captured.backward.inputs if node.op != "tangent"} != set()
    )
    for graph in captured.graphs:
        calls = [node for node in graph.nodes if node.is_call]
        assert {node.module for node in calls} >= {f"blocks.{i}" for i in range(3)} | {"norm"}
        for node in graph.find("aten.native_layer_norm*"):
            assert node.module == "norm"
    (norm,) = captured.backward.find("aten.native_layer_norm_backward")
    assert norm.source is not None
    assert norm.source.code == "return self.head(self.norm(x))"
    detached = captured.backward.find("aten.detach")
    assert {node.module for node in detached} >= {"blocks.0", "head"}


def test_batch_norm_writes_its_running_statistics() -> None:
    graph = run(Norm().train(), example(2, 2, 8, 8)).forward
    (norm,) = graph.find("aten.native_batch_norm")
    assert {effect.target.name for effect in norm.effects if effect.target} == {
        "norm.running_mean",
        "norm.running_var",
    }
    eval_norm = run(Norm().eval(), example(2, 2, 8, 8)).forward.find("aten.native_batch_norm")[0]
    assert eval_norm.effects == ()


@pytest.mark.slow("compiles many times")
def test_no_tensor_is_kept_alive() -> None:
    seen: list[weakref.ref[Tensor]] = []

    def remember(x: Tensor) -> Tensor:
        y = x * 2
        seen.append(weakref.ref(y))
        return y.sin().sum()

    captured = run(remember, example(4, grad=True))
    gc.collect()
    assert seen[0]() is None
    assert captured.backward.count("aten.cos") == 1


@pytest.mark.parametrize("options", [{"dynamic": True}, {"fullgraph": True}], ids=str)
def test_refusal_of_a_compiled_region_leaves_dynamo_as_it_was(options: dict[str, bool]) -> None:
    """torch opens contexts on entry, and left them open: later sizes were dynamic at once."""
    compiled = torch.compile(lambda x: x.sin(), backend="eager", **options)

    def broken(x: Tensor) -> Tensor:
        y = x + 1
        torch._dynamo.graph_break()
        return y * 2

    config = torch._dynamo.config
    before = config.assume_static_by_default
    with pytest.raises(CaptureError, match="dispatch mode does not record"):
        run(lambda x: compiled(x), torch.ones(2))
    assert config.assume_static_by_default == before
    assert len(capture(broken, torch.ones(2), via="aot", backward=False).forwards) == 2


@pytest.mark.parametrize("place", ["submodule", "function"])
def test_a_compiled_region_is_refused(place: str) -> None:
    entered: list[str] = []

    def inner(x: Tensor) -> Tensor:
        return x.sin()

    if place == "submodule":
        target: object = nn.Sequential(
            nn.Linear(4, 4), torch.compile(nn.Linear(4, 4), backend="eager")
        )
    else:
        compiled = torch.compile(inner, backend="eager")

        def target(x: Tensor) -> Tensor:
            entered.append("before")
            x = compiled(x)
            entered.append("after")
            return x

    with pytest.raises(CaptureError, match=r"torch\.compile compiled .*, and a dispatch mode"):
        run(target, example(2, 4))
    assert "after" not in entered
    torch._dynamo.reset()


def test_a_target_may_make_modules_while_it_runs() -> None:
    class Grows(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.first = nn.Linear(4, 4)

        def forward(self, x: Tensor) -> Tensor:
            if not hasattr(self, "second"):
                self.second = nn.Linear(4, 4)
            return self.second(self.first(x))  # type: ignore[no-any-return]

    found = run(Grows(), example(2, 4))
    assert found.forward.count("aten.addmm") == 2
    found.assert_matches_eager()


def test_ops_of_output_hooks_belong_to_the_module() -> None:
    """Also if a hook calls a module with a hook of its own, and after both."""
    inner, outer = nn.Linear(4, 4), nn.Linear(4, 4)
    inner.register_forward_hook(lambda module, args, output: output.sin())

    class Net(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.inner, self.outer = inner, outer

        def forward(self, x: Tensor) -> Tensor:
            return self.outer(x).exp()

    outer.register_forward_hook(lambda module, args, output: inner(output.tanh()).cos())
    captured = capture(Net(), torch.ones(2, 4), via="dispatch")
    modules = {
        op: captured.forward.find(f"aten.{op}")[0].module for op in ("tanh", "sin", "cos", "exp")
    }
    assert modules == {"tanh": "outer", "sin": "inner", "cos": "outer", "exp": ""}
    products = [node.module for node in captured.backward.find("aten.mm")]
    assert products == ["inner", "inner", "outer"]
    (node,) = captured.backward.find("aten.tanh_backward")
    assert node.module == "outer"


def test_earlier_view_of_a_parameter_is_a_view_of_it() -> None:
    class Net(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.weight = nn.Parameter(torch.ones(4))
            self.halves = [self.weight.detach()[:2]]

        def forward(self, x: Tensor) -> Tensor:
            return x * self.halves[0]

    graph = capture(Net(), torch.ones(2), via="dispatch").graphs[0]
    assert [node.op for node in graph.inputs] == ["input", "parameter"]
    (view,) = graph.find("aten.as_strided")
    assert view.refs == ("weight",)


def test_write_that_a_result_depends_on_is_not_listed_at_the_return() -> None:
    """Files of 0.2.0 have no `after` at the return, and files of a few later commits have it."""

    def gates(x: torch.Tensor) -> torch.Tensor:
        first, second = (x * 2).unsafe_chunk(2)
        return first.sigmoid_() * second.tanh_()

    graph = capture(gates, example(4, 3, grad=True), via="dispatch").forward
    text = graph.to_text()
    assert "return %mul.1\n" in text
    assert Graph.from_text(text.replace("return %mul.1\n", "return %mul.1 after %tanh_\n")) == graph

    def unneeded(x: torch.Tensor) -> torch.Tensor:
        first, second = (x * 2).unsafe_chunk(2)
        second.tanh_()
        return first.sigmoid_()

    graph = capture(unneeded, example(4, 3), via="dispatch").forward
    text = graph.to_text()
    assert "after %tanh_" in text


@pytest.mark.filterwarnings("ignore:The PyTorch API of nested tensors:UserWarning")
def test_strided_nested_tensor_can_be_captured() -> None:
    nested = torch.nested.nested_tensor([torch.ones(2, 3), torch.ones(4, 3)])
    captured = capture(lambda n: n.to_padded_tensor(0.0), nested, via="dispatch")
    assert captured.op_counts == {"aten.to_padded_tensor.default": 1}


def with_assigned_data(x: Tensor) -> Tensor:
    layer = nn.Linear(4, 4, bias=False)
    layer.weight.data = x.exp()
    return layer(x)


def with_a_write_through_data(x: Tensor) -> tuple[Tensor, Tensor]:
    y, z = x.clone(), torch.zeros(4, 4)
    z.data = y
    z.mul_(2)
    return y + 1, y


def with_a_write_after_set(x: Tensor) -> tuple[Tensor, Tensor]:
    y, z = x.clone(), x.sin()
    z.set_(y)
    z.mul_(2)
    return y + 1, y


@pytest.mark.parametrize(
    ("target", "pattern"),
    [
        (with_assigned_data, "aten.exp ~> aten.mm"),
        (with_a_write_through_data, "aten.mul_ -> aten.add"),
        (with_a_write_after_set, "aten.mul_ -> aten.add"),
    ],
)
def test_tensor_that_got_another_storage_is_its_new_value(
    target: Callable[..., Any], pattern: str
) -> None:
    captured = capture(target, example(4, 4), via="dispatch", backward=False)
    captured.assert_pattern(pattern)
    captured.assert_matches_eager()


def test_op_of_a_hook_has_the_line_of_the_hook() -> None:
    def doubled(grad: torch.Tensor) -> torch.Tensor:
        return grad * 2

    def hooked(x: torch.Tensor) -> torch.Tensor:
        y = x.sin()
        y.register_hook(doubled)
        return y.cos()

    captured = capture(hooked, torch.ones(3, requires_grad=True), via="dispatch")
    lines = {str(n.source) for n in captured.backward.nodes if n.op == "aten.mul.Tensor"}
    at = [f.__code__.co_firstlineno for f in (doubled, hooked)]
    numbers = sorted(int(line.rpartition(":")[2]) for line in lines)
    assert numbers == [at[0] + 1, at[1] + 1, at[1] + 3]
