"""A fusion of custom ops, as a pass inside inductor.

For authors of compiler passes, in the manner of vLLM: `rms_norm` and a quantization become one op.
Today such a test keeps the graphs before and after, compares counts of ops, and counts lines of a
log. Here the capture says which pass changed what, and `first_difference` names a wrong one.
"""

import pytest
import torch
from torch import nn

from pytest_torchgraph import Inductor, check_pass

lib = torch.library.Library("fused_norm", "DEF")
lib.define("rms_norm(Tensor x, Tensor weight, float eps) -> Tensor")
lib.define("quant(Tensor x, Tensor scale) -> Tensor")
lib.define("rms_norm_quant(Tensor x, Tensor weight, Tensor scale, float eps) -> Tensor")
ops = torch.ops.fused_norm


def rms_norm(x, weight, eps):
    return x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + eps) * weight


def quant(x, scale):
    return (x / scale).round().clamp(-127, 127).to(torch.int8)


def rms_norm_quant(x, weight, scale, eps):
    return quant(rms_norm(x, weight, eps), scale)


for function, dtype in ((rms_norm, None), (quant, torch.int8), (rms_norm_quant, torch.int8)):
    lib.impl(function.__name__, function, "CPU")
    torch.library.register_fake(
        f"fused_norm::{function.__name__}",
        lambda x, *args, dtype=dtype: torch.empty_like(x, dtype=dtype),
        lib=lib,
    )


class NormQuantFusion:
    """Fuses `quant(rms_norm(x))`, unless something else reads the norm."""

    def __call__(self, graph: torch.fx.Graph) -> None:
        for node in graph.find_nodes(op="call_function", target=ops.quant.default):
            norm, scale = node.args
            if norm.target is not ops.rms_norm.default or len(norm.users) > 1:
                continue
            x, weight, eps = norm.args
            with graph.inserting_before(node):
                fused = graph.call_function(
                    ops.rms_norm_quant.default, (x, weight, scale, self.eps_of(eps))
                )
            fused.meta.update({k: node.meta[k] for k in ("val", "custom") if k in node.meta})
            node.replace_all_uses_with(fused)
            graph.erase_node(node)
            graph.erase_node(norm)

    def eps_of(self, eps):
        return eps

    def uuid(self):
        return None


class WrongEps(NormQuantFusion):
    def eps_of(self, eps):
        return 1e-2


class Model(nn.Module):
    """Three norms: two are fused, and the third has another reader."""

    def __init__(self):
        super().__init__()
        torch.manual_seed(0)
        self.weights = nn.ParameterList(1 + torch.randn(16) / 10 for _ in range(3))
        self.register_buffer("scale", torch.tensor(0.05))

    def forward(self, x):
        for weight in self.weights[:2]:
            x = x + ops.quant(ops.rms_norm(x, weight, 1e-6), self.scale).float() * self.scale
        norm = ops.rms_norm(x, self.weights[2], 1e-6)
        return norm + ops.quant(norm, self.scale).float() * self.scale


@pytest.fixture
def x():
    return torch.linspace(-1, 1, 64).reshape(4, 16)


def captured(graph_capture, x, fusion):
    with torch.no_grad():  # without codegen, nothing is compiled
        via = Inductor(codegen=False, passes={"post_grad": [fusion]})
        return graph_capture(Model(), x, via=via)


def test_two_of_three_norms_are_fused(graph_capture, x):
    capture = captured(graph_capture, x, NormQuantFusion())
    capture.assert_pass("NormQuantFusion")
    (run,) = [run for run in capture.passes if run.name == "NormQuantFusion"]
    assert run.before.op_counts["fused_norm.rms_norm.default"] == 3
    run.after.assert_op_counts({"fused_norm.rms_norm": 1, "fused_norm.rms_norm_quant": 2})
    capture.assert_matches_eager()


def test_what_the_fusion_did_is_stored(graph_capture, x, graph_snapshot):
    capture = captured(graph_capture, x, NormQuantFusion())
    (run,) = [run for run in capture.passes if run.name == "NormQuantFusion"]
    assert run.diff == graph_snapshot


def test_a_wrong_fusion_is_named(graph_capture, x):
    capture = captured(graph_capture, x, WrongEps())
    with pytest.raises(AssertionError, match="in inductor's pass WrongEps"):
        capture.assert_matches_eager()


# -- the same pass on one graph, in a second -------------------------------------------------------

GRAPH = """torchgraph 1

inference @ aot {
  %x = input : f32[4, 16]
  %weight = input : f32[16]
  %scale = input : f32[]
  %norm = fused_norm.rms_norm.default(%x, %weight, 1e-06) : f32[4, 16]
  %q = fused_norm.quant.default(%norm, %scale) : i8[4, 16]
  return %q
}
"""


def test_the_fusion_is_right_on_one_graph():
    changes = {"fused_norm.*": -1, "fused_norm.rms_norm_quant": 1}
    check_pass(NormQuantFusion(), GRAPH, changes=changes)
    with pytest.raises(AssertionError, match="values: output 0 differs"):
        check_pass(WrongEps(), GRAPH, changes=changes)


def test_a_norm_with_another_reader_stays():
    check_pass(NormQuantFusion(), GRAPH.replace("return %q", "return [%q, %norm]"), changes={})
