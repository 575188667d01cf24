"""Graphs that Dynamo passes to a backend, and graphs of torch.export."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
import torch
from mechanisms.models import Norm, example, mlp
from torch import Tensor, nn
from torch.export.experimental import _export_forward_backward
from torch_releases import skip_before

from pytest_torchgraph import CaptureError, Export, capture, from_fx


def test_dynamo_gives_torch_functions_with_module_paths_and_names() -> None:
    graph = capture(mlp(), example(4, 8), via="dynamo").forward
    assert graph.level == "dynamo"
    assert sum(graph.op_counts.values()) == 11
    assert graph.count("torch.nn.functional.linear") == 4
    assert graph.count(torch.relu) == 3
    assert graph.find("torch.nn.functional.layer_norm")[0].module == "norm"
    assert {"blocks.0.weight", "head.bias", "x"} <= {node.name for node in graph.inputs}


def test_export_names_parameters_buffers_and_what_is_written() -> None:
    graph = capture(Norm().train(), example(2, 2, 8, 8), via="export").forward
    roles = {node.name: node.op for node in graph.inputs}
    assert roles["conv.weight"] == "parameter"
    assert roles["norm.running_mean"] == "buffer"
    assert roles["x"] == "input"
    written = {
        effect.target.name for node in graph.nodes for effect in node.effects if effect.target
    }
    assert "norm.num_batches_tracked" in written
    assert graph.find("aten.conv2d")[0].module == "conv"


def test_export_takes_dynamic_shapes() -> None:
    via = Export(dynamic_shapes={"x": {0: torch.export.Dim("batch")}})
    text = capture(mlp(), example(4, 8), via=via).forward.to_text()
    assert "%x = input : f32[s0, 8]" in text
    assert "f32[s0, 2]" in text


@pytest.mark.parametrize("strict", [False, True])
def test_export_of_control_flow_on_data_gives_torchs_reason_and_the_line(strict: bool) -> None:
    if strict:
        skip_before("2.12", "the error of a strict export has no line")

    def decides(x: Tensor) -> Tensor:
        return x.sin() if x.sum() > 0 else x.cos()

    with pytest.raises(CaptureError, match=r"torch\.export cannot export the target") as caught:
        capture(decides, example(4), via=Export(strict=strict))
    message = str(caught.value)
    assert "ata-dependent" in message
    assert "test_dynamo_export.py" in message
    assert "write it with torch.cond, or capture via 'dynamo', 'aot' or 'dispatch'" in message
    assert "TORCH_LOGS" not in message


def test_export_of_untraceable_code_does_not_blame_control_flow() -> None:
    def as_array(x: Tensor) -> Tensor:
        return torch.from_numpy(np.asarray(x.detach())) * x

    with pytest.raises(CaptureError, match=r"numpy\(\) is not supported") as caught:
        capture(as_array, example(4), via="export")
    message = str(caught.value)
    assert "torch.cond" not in message
    assert message.endswith("capture via 'dynamo', 'aot' or 'dispatch'.")


def test_backward_via_export_is_refused() -> None:
    captured = capture(mlp(), example(4, 8), via="export")
    captured.assert_graph_count(forward=1, backward=0)
    captured.assert_matches_eager()
    with pytest.raises(CaptureError, match=r"torch\.export has no backward: use via='aot'"):
        capture(mlp(), example(4, 8), via="export", backward=True)


@pytest.mark.slow("compiles for a second")
def test_the_joint_graph_holds_both_halves() -> None:
    captured = capture(mlp(), example(4, 8))
    joint = captured.joint
    assert joint.kind == "joint"
    for op in ("aten.addmm", "aten.mm", "aten.native_layer_norm_backward"):
        assert joint.count(op) == captured.forward.count(op) + captured.backward.count(op)
    with pytest.raises(CaptureError, match="a joint graph is not available on a capture via"):
        _ = capture(mlp(), example(4, 8), via="dispatch").joint
    with torch.no_grad(), pytest.raises(CaptureError, match="with an output that requires grad"):
        _ = capture(mlp(), example(4, 8)).joint


# -- against an eager run --------------------------------------------------------------------------


class Sign(nn.Module):
    """Has the wrong sign, forward or backward, if compiled."""

    def __init__(self, forward: bool) -> None:
        super().__init__()
        self.wrong_forward = forward

    def forward(self, x: Tensor) -> Tensor:
        if self.wrong_forward:
            traced = torch.compiler.is_compiling() or isinstance(x, torch.fx.Proxy)
            return -x if traced else x
        return WrongBackward.apply(x)


class WrongBackward(torch.autograd.Function):
    @staticmethod
    def forward(ctx: object, x: Tensor) -> Tensor:
        return x.clone()

    @staticmethod
    def backward(ctx: object, grad: Tensor) -> Tensor:
        return -grad if torch.compiler.is_compiling() else grad


def with_sign(forward: bool) -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(4, 4), Sign(forward), nn.Linear(4, 4), nn.LayerNorm(4))


@pytest.mark.parametrize("via", ["dispatch", "dynamo"])
def test_random_draws_are_those_of_the_same_state(via: str) -> None:
    torch.manual_seed(3)
    captured = capture(nn.TransformerEncoderLayer(8, 2, 16, 0.5), example(4, 2, 8), via=via)
    torch.rand(5)
    captured.assert_matches_eager()


@pytest.mark.slow("searches all stages", only=["dynamo"])
@pytest.mark.parametrize("via", ["dynamo", "export", "fx"])
def test_a_wrong_sign_in_the_forward_is_named(via: str) -> None:
    with pytest.raises(AssertionError, match=r"^output differs from the eager run") as caught:
        capture(with_sign(forward=True), example(2, 4), via=via).assert_matches_eager()
    assert "Greatest absolute difference" in str(caught.value)


def test_wrong_sign_only_in_the_backward_is_named() -> None:
    captured = capture(with_sign(forward=False), example(2, 4), via="dynamo")
    with pytest.raises(AssertionError, match=r"gradient of '0\.weight' differs from the eager run"):
        captured.assert_matches_eager()


def test_wrong_sign_in_the_backward_is_named_without_compilation() -> None:
    runs: list[None] = []

    def flips(grad: Tensor) -> Tensor:
        runs.append(None)
        return -grad if len(runs) == 1 else grad

    def target(x: Tensor) -> Tensor:
        y = x * 2
        y.register_hook(flips)
        return y.sin()

    captured = capture(target, example(4, grad=True), via="dispatch")
    with pytest.raises(AssertionError, match=r"gradient of 'x' differs from the eager run"):
        captured.assert_matches_eager()


@pytest.mark.slow("inductor compiles C++ for each case")
def test_inductor_is_compared_with_the_random_numbers_of_an_eager_run() -> None:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(4, 4), nn.Dropout(0.5), nn.LayerNorm(4))
    captured = capture(model, example(4, 4), via="inductor")
    assert captured.op_counts["prims.inductor_random"] == 1
    torch.rand(5)
    captured.assert_matches_eager()


def test_gradients_that_are_all_zero_say_nothing() -> None:
    model = nn.Linear(4, 4)
    captured = capture(model, example(2, 4), loss_fn=lambda output: (output * 0).sum())
    with pytest.raises(AssertionError, match="all gradients are zero"):
        captured.assert_matches_eager()


def test_a_target_that_changed_since_cannot_be_compared() -> None:
    model = mlp()
    captured = capture(model, example(4, 8))
    with torch.no_grad():
        model.head.bias.add_(1)
    with pytest.raises(CaptureError, match=r"head\.bias changed after the capture"):
        captured.assert_matches_eager()


def test_torch_function_as_a_pattern_of_an_exported_graph_is_refused() -> None:
    captured = capture(nn.Sequential(nn.Linear(4, 4), nn.ReLU()), example(2, 4), via="export")
    why = r"cannot occur in a graph at level 'export', which holds ops such as aten.mm.default"
    for op, hint in (
        (torch.relu, "aten.relu or aten.relu_?"),
        (nn.LayerNorm, "aten.layer_norm?"),
        ("torch.nn.functional.linear", "aten.linear?"),
        ("Tensor.relu", "aten.relu or aten.relu_?"),
    ):
        said = f"{why}: capture via .*; did you mean {re.escape(hint)}"
        with pytest.raises(ValueError, match=said):
            captured.assert_no_ops(op)
    captured.assert_no_ops("torch.sym_max", "math.floor", "operator.add")


@pytest.fixture
def conflicting_precisions() -> Iterator[None]:
    """Set precisions that the older flags cannot represent."""
    cudnn: Any = torch.backends.cudnn
    before = cudnn.conv.fp32_precision, cudnn.rnn.fp32_precision
    try:
        cudnn.conv.fp32_precision, cudnn.rnn.fp32_precision = "tf32", "ieee"
        yield
    finally:
        cudnn.conv.fp32_precision, cudnn.rnn.fp32_precision = before


def backend_flags() -> tuple[Any, ...]:
    """Return the flags that export changes while tracing. Reading them has no effect."""
    read: Any = torch.backends.nnpack.set_flags
    (nnpack,) = read(True)
    read(nnpack)
    mkldnn: Any = torch.backends.mkldnn
    return (*mkldnn.set_flags(_fp32_precision=None), nnpack)


@pytest.mark.usefixtures("conflicting_precisions")
def test_export_under_conflicting_precisions_gives_torchs_reason() -> None:
    skip_before("2.11", "export does not read the flags that conflict")
    before = backend_flags()
    with pytest.raises(CaptureError) as caught:
        capture(mlp(), example(4, 8), via="export", backward=False)
    assert backend_flags() == before
    message = str(caught.value)
    assert message.startswith(
        "torch.export failed in torch.backends.cudnn, not in the target: PyTorch is checking "
        "whether allow_tf32"
    )
    assert message.endswith("or capture via 'dynamo', 'aot' or 'dispatch'.")


@pytest.mark.filterwarnings("ignore:.*LeafSpec.*:FutureWarning")
def test_a_program_with_a_backward_is_a_graph() -> None:
    class Loss(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.linear = nn.Linear(4, 4)

        def forward(self, x: Tensor) -> Tensor:
            return self.linear(x).sum()

    program = torch.export.export(Loss(), (example(3, 4),))
    joint = from_fx(_export_forward_backward(program))
    joint.assert_op_counts({"aten.addmm": 1, "aten.mm": 1})  # forward, gradient of the weight
