"""Each bad input raises one clear error."""

from __future__ import annotations

import functools
from typing import Any

import pytest
import torch
from mechanisms.models import MECHANISMS, example, mlp
from torch import Tensor, nn

from pytest_torchgraph import (
    Aot,
    CaptureError,
    GraphFormatError,
    capture,
    diff,
    from_fx,
    load,
    watch,
)


def test_class_as_a_target_is_refused() -> None:
    """`torch.compile(cls)` changes the class for the rest of the process."""

    class Net(torch.nn.Linear):
        pass

    before = dict(vars(Net))
    with pytest.raises(TypeError, match=r"Net is a class\. .* graph_capture\(Net\(\.\.\.\), x\)"):
        capture(Net, torch.ones(2, 3), via="dispatch")
    assert dict(vars(Net)) == before
    capture(Net(3, 3), torch.ones(2, 3)).assert_op_counts({"aten.addmm": 1})


def test_target_that_is_not_callable_is_an_error() -> None:
    with pytest.raises(TypeError, match=r"graph_capture\(model, x\), not graph_capture\(model\(x"):
        capture(mlp()(example(4, 8)), example(4, 8))  # type: ignore[arg-type]


@pytest.mark.parametrize("via", ["aott", "", "torch"])
def test_unknown_mechanism_is_an_error(via: str) -> None:
    with pytest.raises(ValueError, match=r"use 'dispatch', 'fx'"):
        capture(mlp(), example(4, 8), via=via)


def test_watch_used_as_its_capture_is_an_error() -> None:
    unused: Any = watch()
    with pytest.raises(AttributeError, match=r"`with .* as seen: .*seen\.assert_no_gr"):
        unused.assert_no_graph_breaks()
    with pytest.raises(AttributeError, match="'Watch' object has no attribute 'asert'"):
        unused.asert()


def test_mechanism_class_instead_of_an_instance_is_an_error() -> None:
    with pytest.raises(TypeError, match=r"pass an instance, Aot\(\)"):
        capture(mlp(), example(4, 8), via=Aot)  # type: ignore[arg-type]
    with pytest.raises(TypeError, match=r"not int"):
        capture(mlp(), example(4, 8), via=3)  # type: ignore[arg-type]


@pytest.mark.parametrize("via", ["dispatch", "fx"])
def test_required_backward_without_grad_is_an_error(via: str) -> None:
    with pytest.raises(CaptureError, match=r"no parameter or input of the target requires grad"):
        capture(lambda x: x.sin(), example(4), via=via, backward=True)
    with (
        torch.no_grad(),
        pytest.raises(CaptureError, match=r"grad mode is off\. Capture outside of"),
    ):
        capture(mlp(), example(4, 8), via=via, backward=True)
    with pytest.raises(CaptureError, match=r"no output of the target requires grad"):
        capture(lambda x: x.sin().detach(), example(4, grad=True), via=via, backward=True)


@pytest.mark.parametrize("via", ["dispatch", "fx"])
@pytest.mark.parametrize(
    ("loss_fn", "message"),
    [
        (lambda output: output, r"not a tensor of shape \(4, 2\): return loss\.mean\(\)"),
        (lambda output: 3.0, r"not a float: return the loss tensor, without \.item\(\)"),
        (lambda output: None, "not None"),
        (lambda output: output.detach().sum(), r"does not require grad: .* without detach\(\)"),
    ],
)
def test_nonscalar_loss_is_refused(via: str, loss_fn: object, message: str) -> None:
    with pytest.raises(CaptureError, match=message):
        capture(mlp(), example(4, 8), via=via, loss_fn=loss_fn)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("via", "output", "description"),
    [
        ("dispatch", None, "None"),
        ("dynamo", 3, "an int"),
        ("export", None, "None"),
        ("fx", 3, "an int"),
    ],
)
def test_output_without_tensors_is_refused(via: str, output: object, description: str) -> None:
    with pytest.raises(CaptureError, match=f"the target returned no tensor, but {description}"):
        capture(lambda x: (x * 2, output)[1], example(4), via=via)


@pytest.mark.parametrize("via", MECHANISMS)
def test_target_that_computes_nothing_is_refused(via: str) -> None:
    with pytest.raises(CaptureError, match=f"nothing was captured via '{via}'"):
        capture(lambda x: x, example(4), via=via)


@pytest.mark.parametrize("via", ["aot", "dynamo"])
def test_an_exception_of_the_backward_passes_through_unchanged(via: str) -> None:
    class Fails(torch.autograd.Function):
        @staticmethod
        def forward(ctx: object, x: Tensor) -> Tensor:
            return x * 2

        @staticmethod
        def backward(ctx: object, grad: Tensor) -> Tensor:
            raise ArithmeticError("in backward")

    with pytest.raises(ArithmeticError, match=r"^in backward$"):
        capture(lambda x: Fails.apply(x), example(4, grad=True), via=via)


def test_target_parameter_named_like_an_option() -> None:
    class Placed(nn.Module):
        def forward(self, x: Tensor, device: str = "cpu") -> Tensor:
            return x.to(device) * 2

    with pytest.raises(TypeError, match=r"functools\.partial\(target, device=\.\.\.\)"):
        capture(Placed(), example(4), device="cpu")
    captured = capture(functools.partial(Placed(), device="cpu"), example(4))
    assert captured.forward.count("aten.mul") == 1


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: torch.compiler.set_stance("force_eager"), r"set_stance\('force_eager'\)"),
        (lambda: torch._dynamo.config.patch(disable=True), r"config\.disable"),
    ],
)
def test_setting_that_prevents_compilation_is_named(make: object, message: str) -> None:

    with make(), pytest.raises(CaptureError, match=message):  # type: ignore[operator]
        capture(mlp(), example(4, 8))
    assert capture(mlp(), example(4, 8)).graphs


def test_load_of_a_file_that_is_not_a_graph(tmp_path: object) -> None:
    path = tmp_path / "a.tgraph"  # type: ignore[operator]
    for content, message in (
        (b"", r"a\.tgraph:1:1: not a graph"),
        (b"torchgraph 1\n", r"a\.tgraph:\d+:1: the file contains no graph"),
        (b"torchgraph 99\n", "upgrade pytest-torchgraph, or store the graph again"),
        (b"\xff\xfe", "not UTF-8"),
        (b"torchgraph 1\n\nforward @ aot {\n  %x = input\n", "no closing '}'"),
    ):
        path.write_bytes(content)
        with pytest.raises(GraphFormatError, match=message):
            load(path)


def test_from_fx_of_an_object_without_a_graph() -> None:
    with pytest.raises(TypeError, match=r"from_fx takes a torch.fx.GraphModule"):
        from_fx(mlp())
    graph = from_fx(torch.fx.symbolic_trace(mlp()))
    with pytest.raises(TypeError, match=r"expected a Capture, a Graph, a torch.fx graph"):
        diff(graph, mlp())


def test_mechanism_option_passed_to_the_target_is_an_error() -> None:
    with pytest.raises(TypeError) as caught:
        capture(torch.nn.Linear(2, 2), torch.randn(1, 2), dynamic=True)
    assert str(caught.value) == (
        "'dynamic' is not a parameter of Linear, but an option of a mechanism: pass "
        "via=Dynamo(dynamic=True), via=Aot(dynamic=True), via=CompiledAutograd(dynamic=True) or "
        "via=Inductor(dynamic=True)"
    )


def test_target_argument_named_like_an_option_is_passed() -> None:
    def named(x: torch.Tensor, mode: str) -> torch.Tensor:
        return x.relu() if mode == "relu" else x

    def taking_all(x: torch.Tensor, **options: str) -> torch.Tensor:
        return named(x, **options)

    for target in (named, taking_all):
        capture(target, torch.randn(2), mode="relu").assert_op_counts({"aten.relu": 1})
