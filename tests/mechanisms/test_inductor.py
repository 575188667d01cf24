"""Post-grad graphs and generated kernels."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from mechanisms.models import example, mlp
from torch import Tensor, nn
from torch_releases import skip_before

from pytest_torchgraph import (
    Capture,
    CaptureError,
    Graph,
    Inductor,
    capture,
    torch_private,
    watch,
)
from pytest_torchgraph.convert import convert, read_printed
from pytest_torchgraph.watching.kernels import read_fused_ops

WRITTEN = Inductor(codegen=False)


@pytest.fixture(scope="module")
def captured() -> Capture:
    return capture(mlp(), example(4, 8), via="inductor")


@pytest.mark.slow("inductor compiles C++")
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


@pytest.mark.slow("inductor compiles C++")
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
    generated = [kernel for kernel in captured.kernels if kernel.kind != "extern"]
    assert [kernel.name for kernel in generated] == defined
    assert len(defined) > 2
    assert {kernel.graph for kernel in captured.kernels} == {"forward", "backward"}
    assert {kernel.device for kernel in captured.kernels} == {"cpu"}
    first = generated[0]
    assert first.ops == ("aten.add", "aten.relu", "aten.threshold_backward")
    assert first.launches == 2
    assert "Vectorized" in first.source
    assert {kernel.kind for kernel in captured.kernels} == {"cpp", "extern"}


# -- the last form of the graph --------------------------------------------------------------------


@torch.library.custom_op("torchgraph_inductor::doubled_into", mutates_args=("out",))
def doubled_into(x: Tensor, out: Tensor) -> None:
    out.copy_(x * 2)


@doubled_into.register_fake
def _(x: Tensor, out: Tensor) -> None:
    return None


def writes(x: Tensor) -> Tensor:
    out = torch.zeros_like(x)
    doubled_into(x, out)
    return out + 1


def indexed(x: Tensor) -> Tensor:
    y = x * 2
    y[:, torch.tensor([0, 1])] = 1.0
    return y + 1


def branches(x: Tensor) -> Tensor:
    def yes(x: Tensor) -> Tensor:
        y = x.sin()
        return y.index_put((torch.tensor([0]),), x[0])

    return torch.cond(x.sum() > 0, yes, lambda x: x.cos(), (x,)) + 1


def printed_graphs(target: Callable[..., Any]) -> tuple[Capture, list[Graph]]:
    """Capture, and return the capture and the post-grad graphs that torch printed during it."""
    texts: list[str] = []

    def emit(metadata: dict[str, Any], payload: str) -> None:
        artifact = metadata.get("artifact")
        if isinstance(artifact, dict) and artifact.get("name") == "inductor_post_grad_graph":
            texts.append(payload)

    with torch_private.structured_trace(emit):
        captured = capture(target, example(3, 4), via=WRITTEN)
    graphs = [
        convert(read_printed(text), level="post_grad", kind=graph.kind).graph
        for text, graph in zip(texts, captured.graphs, strict=True)
    ]
    return captured, graphs


@pytest.mark.slow("further cases; a few are in every run", unless=["indexed"])
@pytest.mark.parametrize("target", [writes, indexed, branches])
def test_inductor_graphs_equal_those_that_torch_prints(target: Callable[..., Any]) -> None:
    skip_before("2.10", "torch does not log post-grad graphs")
    found, printed = printed_graphs(target)
    assert list(found.graphs) == printed
    found.assert_matches_eager()


def test_passes_that_come_last_are_in_the_graph() -> None:
    written = capture(writes, example(3, 4), via=WRITTEN).forward
    written.assert_op_counts({"torchgraph_inductor.doubled_into": 1})
    written.assert_no_ops("higher_order.auto_functionalized*")
    assert written.find("torchgraph_inductor.doubled_into")[0].effects
    capture(indexed, example(3, 4), via=WRITTEN).assert_op_counts({"aten.index_put_": 1})


@pytest.mark.slow("compiles for a second")
def test_inductor_bodies_are_not_separate_graphs() -> None:
    captured = capture(branches, example(3, 4), via=WRITTEN)
    captured.assert_graph_count(forward=1, backward=0)
    assert len(captured.forward.subgraphs) == 2
    assert {kernel.graph for kernel in captured.kernels} == {"inference"}


@pytest.mark.slow("inductor compiles C++")
def test_cache_enabled_by_options_hides_no_graph() -> None:
    via = Inductor(options={"fx_graph_cache": True})
    first = capture(lambda x: x.sin() + 1, example(4), via=via)
    second = capture(lambda x: x.sin() + 1, example(4), via=via)
    assert first.to_text("full") == second.to_text("full")
    assert first.kernels == second.kernels


def test_fused_ops_are_read_off_the_name() -> None:
    known = frozenset({"add", "relu", "native_layer_norm", "native_layer_norm_backward"})
    name = "triton_per_fused_add_native_layer_norm_native_layer_norm_backward_relu_12"
    assert read_fused_ops(name, known) == (
        "aten.add",
        "aten.native_layer_norm",
        "aten.native_layer_norm_backward",
        "aten.relu",
    )


@pytest.mark.slow("inductor generates code")
def test_casts_are_refused_by_their_aten_name() -> None:
    """The graphs via inductor contain no `aten._to_copy`, whatever the model casts."""
    model = nn.Sequential(nn.LayerNorm(4), nn.Linear(4, 4), nn.GELU(), nn.Softmax(-1))
    captured = capture(lambda x: model(x).half(), example(3, 4), via=WRITTEN, backward=False)
    captured.assert_op_counts({"prims.convert_element_type": 1, "aten.addmm": 1, "aten.mm": 0})
    instead = r"inductor decomposes it: .*prims\.convert_element_type"
    for check in (
        lambda: captured.assert_no_ops("aten._to_copy"),
        lambda: captured.assert_no_ops(torch.ops.aten._to_copy),
        lambda: captured.assert_op_counts({"aten._to_copy": 0}),
        lambda: captured.assert_no_pattern("aten._softmax -> aten._to_copy.default|aten._to_copy"),
    ):
        with pytest.raises(ValueError, match="inductor decomposes it"):
            check()
    with pytest.raises(ValueError, match=instead):
        captured.assert_no_ops("aten._to_copy")
    captured.assert_no_ops("aten.native_layer_norm*", "aten.gelu", "aten.mm", "aten.mul_")


@pytest.mark.slow("inductor compiles C++; a capture is in every run")
def test_casts_are_refused_by_their_aten_name_in_a_watch_over_inductor() -> None:
    """A watch over inductor shows AOTAutograd's graphs, with inductor's decompositions."""

    def halved(x: Tensor) -> Tensor:
        return x.sin().half()

    for _ in range(2):  # the second time from inductor's cache
        torch._dynamo.reset()
        compiled = torch.compile(halved)
        eager_backend = torch.compile(lambda x: x.cos(), backend="aot_eager")
        with watch() as seen:
            compiled(example(3, 4))
            eager_backend(example(3, 4))
        seen.assert_op_counts({"prims.convert_element_type": 1, "aten.mm": 0})
        with pytest.raises(ValueError, match="inductor decomposes it"):
            seen.assert_no_ops("aten._to_copy")
    capture(halved, example(3, 4), via="aot").assert_op_counts({"aten._to_copy": 1, "aten.gelu": 0})


@pytest.mark.parametrize("stance", ["force_eager", "eager_then_compile"])
def test_comparison_that_runs_again_needs_the_compiler(stance: str) -> None:
    captured = capture(nn.Dropout(), example(4), via=Inductor(codegen=False))
    with (
        torch.compiler.set_stance(stance),
        pytest.raises(CaptureError, match=rf"compiles nothing under .*{stance}"),
    ):
        captured.assert_matches_eager()
