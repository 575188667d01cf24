"""AOTAutograd's graphs, split and named."""

from __future__ import annotations

import pytest
import torch
from mechanisms.models import Norm, example, mlp
from torch import Tensor, nn

from pytest_torchgraph import Aot, CaptureError, Dynamo, capture, diff


def test_placeholders_carry_the_names_of_parameters_buffers_and_arguments() -> None:
    captured = capture(Norm().train(), example(2, 2, 8, 8))
    names = {node.name: node.op for node in captured.forward.inputs}
    assert names == {
        "conv.weight": "parameter",
        "conv.bias": "parameter",
        "x": "input",
        "norm.num_batches_tracked": "buffer",
        "norm.running_mean": "buffer",
        "norm.running_var": "buffer",
        "norm.weight": "parameter",
        "norm.bias": "parameter",
    }


def test_a_tied_parameter_is_one_input_under_its_first_name() -> None:
    first = nn.Linear(4, 4)
    second = nn.Linear(4, 4)
    second.weight = first.weight
    captured = capture(nn.Sequential(first, second), example(2, 4))
    names = [node.name for node in captured.forward.inputs]
    assert "0.weight" in names
    assert "1.weight" not in names


@pytest.mark.parametrize("via", ["aot", "export"])
def test_a_function_over_a_module_names_it_as_the_module_does(via: str) -> None:
    model = mlp()

    def step(x: Tensor) -> Tensor:
        return model(x).sum()

    through_function = capture(step, example(4, 8), via=via).forward
    assert {"blocks.0.weight", "head.bias"} <= {n.name for n in through_function.inputs}
    assert through_function.find("aten.*layer_norm")[0].module == "norm"


def test_every_op_of_forward_and_backward_knows_module_and_source() -> None:
    captured = capture(mlp(), example(4, 8))
    assert [(graph.kind, graph.level) for graph in captured.graphs] == [
        ("forward", "aot"),
        ("backward", "aot"),
    ]
    assert captured.forward.count("aten.addmm") == 4
    assert captured.backward.count("aten.native_layer_norm_backward") == 1
    for graph in captured.graphs:
        calls = [node for node in graph.nodes if node.is_call]
        assert all(node.source is not None for node in calls)
        linear = graph.find("aten.addmm" if graph.kind == "forward" else "aten.mm")
        assert all(node.module.startswith(("blocks.", "head")) for node in linear)


def test_dynamic_shapes_have_symbols_numbered_by_the_inputs() -> None:
    captured = capture(lambda x, y: x @ y, example(3, 5), example(5, 7), via=Aot(dynamic=True))
    text = captured.forward.to_text()
    assert "%x = input : f32[s0, s1]" in text
    assert "f32[s0, s2]" in text


def test_min_cut_recomputes_and_decompositions_take_apart() -> None:
    def function(x: Tensor) -> Tensor:
        return torch.nn.functional.silu(x).sin().sum()

    x = example(64, grad=True)
    plain = capture(function, x)
    cut = capture(function, x, via=Aot(partition="min_cut"))
    assert len(cut.forward.saved) < len(plain.forward.saved)
    taken_apart = capture(function, x, via=Aot(decompositions="inductor"))
    assert plain.forward.count("aten.silu") == 1
    assert taken_apart.forward.count("aten.silu") == 0


@pytest.mark.parametrize(
    ("options", "message"),
    [({"partition": "best"}, "'default' or 'min_cut'"), ({"decompositions": "all"}, "'inductor'")],
)
def test_unknown_options_are_refused(options: dict[str, str], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        Aot(**options)  # type: ignore[arg-type]


def test_the_live_graph_module_can_be_run() -> None:
    captured = capture(lambda x: x.sin() * 2, example(4))
    module = captured.fx(captured.forward)
    (result,) = torch.fx.Interpreter(module).run(example(4))
    torch.testing.assert_close(result, example(4).sin() * 2)
    with pytest.raises(CaptureError, match="not one of this capture's graphs"):
        captured.fx(capture(torch.sin, example(4)).forward)


def test_lstm_via_aot_is_refused_by_name() -> None:
    with pytest.raises(CaptureError, match="Dynamo does not support RNN, GRU, or LSTM"):
        capture(nn.LSTM(4, 4), example(3, 2, 4))


@pytest.mark.parametrize(("mechanism", "numbers"), [(Aot, (3, 5)), (Dynamo, (2.5, 3.5))])
def test_numbers_among_the_arguments_are_in_the_order_of_the_declaration(
    mechanism: type, numbers: tuple[float, float]
) -> None:
    x, via = torch.ones(4, 6), mechanism(dynamic=True)
    captured = capture(lambda x, n, m: x * n + m, x, *numbers, via=via)
    swapped = capture(lambda x, n, m: x * m + n, x, *numbers, via=via)
    renamed = capture(lambda y, a, b: y * a + b, x, *numbers, via=via)
    assert [node.name for node in captured.forward.inputs][-2:] == ["n", "m"]
    assert captured.forward != swapped.forward
    assert captured.forward == renamed.forward


def test_op_of_triton_op_cannot_occur_in_a_compiled_graph() -> None:
    @torch.library.triton_op("tests_aot::doubled", mutates_args={})
    def doubled(x: torch.Tensor) -> torch.Tensor:
        return x.sin() * 2

    def step(x: torch.Tensor) -> torch.Tensor:
        return doubled(x).cos()

    captured = capture(step, torch.ones(4))
    said = r"'tests_aot.doubled' cannot occur in a graph at level 'aot', because torch.compile"
    with pytest.raises(ValueError, match=said):
        captured.assert_no_ops("tests_aot.doubled")
    with pytest.raises(ValueError, match=said):
        captured.assert_no_pattern("tests_aot.doubled -> aten.cos")
    captured.assert_op_counts({"aten.sin": 1, "aten.mul": 1, "aten.cos": 1}, exact=True)
    with pytest.raises(AssertionError, match=r"tests_aot\.doubled: found 1"):
        capture(step, torch.ones(4), via="dynamo").assert_no_ops("tests_aot.doubled")


@pytest.mark.parametrize("via", ["aot", "dispatch"])
def test_another_output_that_requires_grad_is_a_difference(via: str) -> None:
    """The backward of both has one tangent, but it is the gradient of another output."""

    def first(x: Tensor) -> tuple[Tensor, Tensor]:
        return x * 2, (x * 2).detach()

    def second(x: Tensor) -> tuple[Tensor, Tensor]:
        return (x * 2).detach(), x * 2

    captures = [capture(f, example(4, grad=True), via=via) for f in (first, first, second)]
    assert captures[0] == captures[1]
    assert captures[0] != captures[2]
    assert str(diff(captures[0], captures[2])).startswith("1 edit: tangent %tangent.1 changed")
