"""inductor: the graphs that it generates code for, and the kernels that it makes of them.

For those who count on a fusion: an edit that splits one kernel into two, or puts a call of a
library between, changes no result. What is compiled here is small, and with `codegen=False` nothing
is; how kernels are named and cut is inductor's, so nothing of it is stored.
"""

import pytest
import torch
from torch import nn

from pytest_torchgraph import Inductor, diff

aten = torch.ops.aten


def epilogue(x, bias):
    """Four pointwise ops in a row."""
    return torch.tanh((x + bias) * 2).relu()


@pytest.fixture
def operands():
    torch.manual_seed(0)
    return torch.randn(64, 32), torch.randn(32)


def test_a_chain_of_pointwise_ops_is_one_kernel(operands, graph_capture, graph_device):
    capture = graph_capture(epilogue, *operands, via="inductor", device=graph_device)
    (kernel,) = capture.kernels
    assert set(kernel.ops) == {"aten.add", "aten.mul", "aten.tanh", "aten.relu"}
    assert (kernel.device, kernel.launches) == (graph_device.type, 1)
    assert "tanh" in kernel.source
    capture.assert_matches_eager()


def test_a_matmul_cuts_the_chain(operands, graph_capture):
    def cut(x, bias):
        h = (x + bias).sigmoid()
        return torch.tanh(h @ h.t()).relu()

    before, matmul, after = graph_capture(cut, *operands, via="inductor").kernels
    assert set(before.ops) == {"aten.add", "aten.sigmoid"}
    assert (matmul.kind, matmul.ops) == ("extern", ("aten.mm",))
    assert {"aten.tanh", "aten.relu"} <= set(after.ops)


# -- one kernel, and no call of a library ----------------------------------------------------------
#
# By hand: `test_to_mx_inductor_single_kernel` of torchao (`test_mx_tensor.py`), 12 lines and 5 of
# decorators, only with a GPU that has float8. It counts `.run(`, which finds no call of a library;
# the form for a CPU is below.


def cast_by_blocks(x):
    """A cast to eight bits with a scale for each row: it should be one kernel."""
    scale = x.abs().amax(-1, keepdim=True).clamp(min=1e-12) / 127
    return (x / scale).round().to(torch.int8), scale


def cast_with_a_running_scale(x):
    """The same with a scale that never falls: cummax is not fused, it is a call of aten."""
    scale = x.abs().amax(-1, keepdim=True).cummax(0).values.clamp(min=1e-12) / 127
    return (x / scale).round().to(torch.int8), scale


def test_a_cast_is_one_kernel(graph_capture):
    capture = graph_capture(cast_by_blocks, torch.randn(64, 32), via=Inductor(codegen=False))
    capture.assert_kernel_count(1, extern=0, launches=1)


def test_a_library_call_is_seen_and_named(graph_capture):
    x = torch.randn(64, 32)
    capture = graph_capture(cast_with_a_running_scale, x, via=Inductor(codegen=False))
    with pytest.raises(AssertionError, match=r"expected 0, found 1(?s:.*)aten\.cummax"):
        capture.assert_kernel_count(extern=0)


def test_a_cast_is_one_kernel_by_hand():
    """As suites write it: it compiles, leaves Dynamo as it is, and knows only the CPU's form."""
    from torch._inductor.utils import fresh_cache, run_and_get_code
    from torch.testing import FileCheck

    torch._dynamo.reset()
    with fresh_cache():
        _, codes = run_and_get_code(torch.compile(cast_by_blocks), torch.randn(64, 32))
    assert len(codes) == 1
    body = codes[0][codes[0].index("def call(") : codes[0].index("runner = Runner")]
    FileCheck().check_count("cpp_fused_", 1, exactly=True).run(body)
    FileCheck().check_not("extern_kernels.").check_not("torch.ops.aten.").run(body)
    torch._dynamo.reset()


# -- a pass of one's own ---------------------------------------------------------------------------


def halve_by_multiplying(graph):
    for node in graph.find_nodes(op="call_function", target=aten.div.Tensor):
        if node.args[1] == 2:
            node.target = aten.mul.Tensor
            node.args = (node.args[0], 0.5)


def test_what_a_pass_inside_inductor_does(operands, graph_capture):
    def mean(x, bias):
        return (x + bias).exp() / 2

    before = graph_capture(mean, *operands, via="inductor")
    with_pass = Inductor(options={"post_grad_custom_post_pass": halve_by_multiplying})
    after = graph_capture(mean, *operands, via=with_pass)
    (finding,) = diff(before, after).findings
    assert (finding.before.op, finding.after.op) == ("aten.div.Tensor", "aten.mul.Tensor")
    torch.testing.assert_close(after.output, before.output)


# -- with a backward -------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def capture(graph_capture):
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(8, 8), nn.LayerNorm(8), nn.GELU())
    return graph_capture(model, torch.randn(4, 8), via="inductor")


def test_forward_and_backward_have_their_kernels(capture):
    capture.assert_graph_count(forward=1, backward=1)
    assert {kernel.graph for kernel in capture.kernels} == {"forward", "backward"}
    linear, norm_and_gelu = [kernel for kernel in capture.kernels if kernel.graph == "forward"]
    assert {"aten.native_layer_norm", "aten.gelu"} <= set(norm_and_gelu.ops)
    assert (norm_and_gelu.modules, linear.modules) == (("1", "2"), ("0",))


def test_post_grad_graphs_are_decomposed_and_know_their_modules(capture):
    capture.assert_no_ops("aten.native_layer_norm*", "aten.gelu*")
    (rsqrt,) = capture.forward.find("aten.rsqrt")
    (erf,) = capture.forward.find("aten.erf")
    assert (rsqrt.module, erf.module) == ("1", "2")
    assert {node.module for node in capture.backward.find("aten.mm")} == {"0"}
