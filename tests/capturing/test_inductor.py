"""Post-grad graphs and generated kernels."""

from __future__ import annotations

import pytest
import torch
from capturing.models import example, mlp

from pytest_torchgraph import Capture, CaptureError, Inductor, capture
from pytest_torchgraph.capturing.kernels import fused_ops, kernels_of


@pytest.fixture(scope="module")
def captured() -> Capture:
    return capture(mlp(), example(4, 8), via="inductor")


def test_forward_and_backward_are_what_inductor_lowers(captured: Capture) -> None:
    assert [(graph.kind, graph.level) for graph in captured.graphs] == [
        ("forward", "post_grad"),
        ("backward", "post_grad"),
    ]
    assert captured.forward.count("aten.native_layer_norm") == 0
    assert captured.forward.count("aten.rsqrt") == 1
    assert captured.forward.find("aten.rsqrt")[0].module == "norm"
    assert "blocks.0.weight" in {node.name for node in captured.forward.inputs}
    assert {ref.name for ref in captured.forward.saved} == {
        node.name for node in captured.backward.inputs if node.op != "tangent"
    }


def test_kernels_are_counted_from_the_generated_code(captured: Capture) -> None:
    from torch._inductor.utils import run_and_get_code

    torch._dynamo.reset()
    model = torch.compile(mlp())
    _, codes = run_and_get_code(lambda: model(example(4, 8)).sum().backward())
    torch._dynamo.reset()
    defined = [
        line.split(" = ")[0]
        for code in codes
        for line in code.splitlines()
        if " = async_compile." in line
    ]
    assert [kernel.name for kernel in captured.kernels] == defined
    assert len(defined) > 2
    assert {kernel.graph for kernel in captured.kernels} == {"forward", "backward"}
    assert {kernel.device for kernel in captured.kernels} == {"cpu"}
    first = captured.kernels[0]
    assert first.ops == ("aten.add", "aten.relu", "aten.threshold_backward")
    assert first.launches == 2
    assert "Vectorized" in first.source


def test_a_second_capture_with_warm_caches_gives_the_same(captured: Capture) -> None:
    again = capture(mlp(), example(4, 8), via="inductor")
    assert again.to_text("full") == captured.to_text("full")
    assert again.kernels == captured.kernels
    again.assert_matches_eager()


def test_options_reach_inductor() -> None:
    with torch.no_grad():
        fused = capture(lambda x: x.sin().cos() + 1, example(64), via="inductor")
        apart = capture(
            lambda x: x.sin().cos() + 1,
            example(64),
            via=Inductor(options={"max_fusion_size": 1, "realize_opcount_threshold": 0}),
        )
    assert len(fused.kernels) == 1
    assert fused.graphs[0].kind == "inference"
    assert len(apart.kernels) >= len(fused.kernels)


def test_other_mechanisms_have_no_kernels() -> None:
    with pytest.raises(CaptureError, match=r"'dispatch' generates no code.*via='inductor'"):
        _ = capture(mlp(), example(4, 8), via="dispatch").kernels


def test_fused_ops_are_read_off_the_name() -> None:
    known = frozenset({"add", "relu", "native_layer_norm", "native_layer_norm_backward"})
    name = "triton_per_fused_add_native_layer_norm_native_layer_norm_backward_relu_12"
    assert fused_ops(name, known) == (
        "aten.add",
        "aten.native_layer_norm",
        "aten.native_layer_norm_backward",
        "aten.relu",
    )


def test_triton_kernels_are_read_as_well() -> None:
    code = (
        "triton_poi_fused_add_0 = async_compile.triton('triton_poi_fused_add_0', '''\n"
        "import triton\n@triton.jit\ndef kernel(): pass\n''', device_str='cuda')\n"
        "def call(args):\n    triton_poi_fused_add_0.run(args, stream=stream0)\n"
    )
    (kernel,) = kernels_of(code, "forward")
    assert (kernel.device, kernel.launches, kernel.ops) == ("cuda", 1, ("aten.add",))
    assert "@triton.jit" in kernel.source
