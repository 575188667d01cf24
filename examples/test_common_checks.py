"""The graph checks that test suites write most often, each beside what it takes by hand.

Taken from the suites of about fifty PyTorch projects, the commonest first. A test `..._by_hand`
does what those suites do today: it is real, it runs, and where the hand-written form can pass
without having checked anything, a line says so. The test above it is the same check, made with this
plugin.
"""

import contextlib
import copy
import unittest
from collections import Counter

import pytest
import torch
import torch._dynamo
import torch._inductor.config
from torch import nn
from torch._dynamo.testing import CompileCounterWithBackend
from torch._dynamo.utils import counters

import pytest_torchgraph
from pytest_torchgraph import diff

pytestmark = [  # of torch itself, while it compiles
    pytest.mark.filterwarnings("ignore:The .grad attribute of a Tensor:UserWarning"),
    pytest.mark.filterwarnings("ignore:.torch.jit:DeprecationWarning"),
]

aten = torch.ops.aten


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.norm = nn.LayerNorm(8)
        self.up = nn.Linear(8, 16)
        self.down = nn.Linear(16, 8)
        self.dropout = nn.Dropout(0.1)

    def forward(self, x):
        return x + self.dropout(self.down(nn.functional.gelu(self.up(self.norm(x)))))


class Noisy(Block):
    """Breaks its graph: it prints."""

    def forward(self, x):
        x = super().forward(x)
        print("mean", x.shape)
        return x * 2


@pytest.fixture
def block():
    torch.manual_seed(0)
    return Block()


@pytest.fixture
def x():
    return torch.randn(4, 8, generator=torch.Generator().manual_seed(0))


# -- 1. the compiled model computes what the eager one does ----------------------------------------


def test_parity(graph_capture, block, x):
    graph_capture(block, x).assert_matches_eager()


def test_parity_by_hand(block, x):
    torch._dynamo.reset()
    compiled_block = copy.deepcopy(block)
    compiled = torch.compile(compiled_block, backend="aot_eager")
    eager_x = x.clone().requires_grad_()
    compiled_x = x.clone().requires_grad_()
    weights = torch.linspace(0.5, 1.5, x.numel()).view_as(x)  # of a sum, many gradients are zero
    torch.manual_seed(1)
    expected = block(eager_x)
    (expected * weights).sum().backward()
    torch.manual_seed(1)
    actual = compiled(compiled_x)
    (actual * weights).sum().backward()
    torch.testing.assert_close(actual, expected)
    torch.testing.assert_close(compiled_x.grad, eager_x.grad)
    for (name, one), other in zip(
        block.named_parameters(), compiled_block.parameters(), strict=True
    ):
        torch.testing.assert_close(other.grad, one.grad, msg=lambda text, n=name: f"{n}: {text}")


# -- 2. no graph breaks ----------------------------------------------------------------------------


def test_no_graph_breaks(graph_capture, block, x):
    graph_capture(block, x).assert_no_graph_breaks()


def test_no_graph_breaks_by_hand(block, x):
    torch._dynamo.reset()
    counters.clear()
    explained = torch._dynamo.explain(block)(x)
    assert explained.graph_count == 1  # without this line, a frame that Dynamo skips passes
    assert explained.graph_break_count == 0, explained.break_reasons
    torch._dynamo.reset()


@pytest.mark.torchgraph
class TestMarked(unittest.TestCase):
    """A suite that compiles already is checked by a marker, and not rewritten."""

    def test_forward(self):
        block = torch.compile(Block(), backend="eager")
        assert block(torch.ones(4, 8)).shape == (4, 8)


def test_known_graph_breaks(graph_capture, x):
    capture = graph_capture(Noisy(), x)
    capture.assert_no_graph_breaks(allow="print")
    capture.assert_no_graph_breaks(within="torch.nn")
    assert [graph_break.code for graph_break in capture.breaks] == ['print("mean", x.shape)']


def test_known_graph_breaks_by_hand(x):
    torch._dynamo.reset()
    explained = torch._dynamo.explain(Noisy())(x)
    reasons = [reason for reason in explained.break_reasons if "print" not in reason.reason]
    assert reasons == []
    frames = [reason.user_stack[-1] for reason in explained.break_reasons]
    assert [frame.line for frame in frames] == ['print("mean", x.shape)']
    assert explained.graph_count > 0
    torch._dynamo.reset()


# -- 3. one test does not disturb another ----------------------------------------------------------


class TestIsolation:
    """Whatever uses `graph_capture` or carries the marker: nothing has to be written."""

    def test_sets(self, graph_capture, block, x):
        torch._dynamo.config.recompile_limit = 1
        torch._inductor.config.max_autotune = True
        torch.set_float32_matmul_precision("high")
        graph_capture(block, x).assert_graph_count(forward=1, backward=1)

    def test_finds_what_was_there_before(self, graph_capture):
        assert torch._dynamo.config.recompile_limit > 1
        assert not torch._inductor.config.max_autotune
        assert torch.get_float32_matmul_precision() == "highest"
        assert not counters


@pytest.fixture
def isolated_by_hand():
    limit = torch._dynamo.config.recompile_limit
    autotune = torch._inductor.config.max_autotune
    precision = torch.get_float32_matmul_precision()
    torch._dynamo.reset()  # which forgets compilation callbacks
    counters.clear()
    try:
        yield  # each further setting that some test assigns needs its own two lines
    finally:
        torch._dynamo.config.recompile_limit = limit
        torch._inductor.config.max_autotune = autotune
        torch.set_float32_matmul_precision(precision)
        torch._dynamo.reset()
        counters.clear()


@pytest.mark.usefixtures("isolated_by_hand")
class TestIsolationByHand:
    def test_sets(self, block, x):
        torch._dynamo.config.recompile_limit = 1
        torch._inductor.config.max_autotune = True
        torch.set_float32_matmul_precision("high")
        torch.compile(block, backend="eager")(x)
        assert counters["stats"]["unique_graphs"] == 1

    def test_finds_what_was_there_before(self):
        assert torch._dynamo.config.recompile_limit > 1
        assert not torch._inductor.config.max_autotune
        assert torch.get_float32_matmul_precision() == "highest"
        assert not counters


# -- 4. few recompilations over a sequence of inputs -----------------------------------------------


def test_recompiles(graph_capture, block):
    compiled = torch.compile(block, backend="eager")
    with graph_capture.watch() as watched:
        for rows in (4, 5, 6, 70):
            compiled(torch.ones(rows, 8))
    watched.assert_recompiles(max=1)  # the second shape makes it dynamic


def test_recompiles_by_hand(block):
    torch._dynamo.reset()
    compiled = torch.compile(block, backend="eager")
    for index, rows in enumerate((4, 5, 6, 70)):
        with (
            contextlib.nullcontext()
            if index <= 1
            else torch._dynamo.config.patch(error_on_recompile=True)
        ):
            compiled(torch.ones(rows, 8))  # passes if none of it is compiled
    torch._dynamo.reset()


# -- 5. the export is clean ------------------------------------------------------------------------


def test_export(graph_capture, block, x):
    exported = graph_capture(block.eval(), x, via="export")
    exported.assert_no_ops("aten.to", "higher_order.auto_functionalized")
    exported.assert_matches_eager()


def test_export_by_hand(block, x):
    block.eval()
    exported = torch.export.export(block, (x,))
    for module in exported.graph_module.modules():
        if isinstance(module, torch.fx.GraphModule):
            for node in module.graph.nodes:
                name = str(node.target)  # a misspelled name is never found, so never reported
                assert not (node.op == "call_function" and name.startswith("aten.to.")), node
                assert not (node.op == "call_function" and "auto_functionalized" in name), node
    torch.testing.assert_close(exported.module()(x), block(x))


# -- 6. the number of graphs -----------------------------------------------------------------------


def test_number_of_graphs(graph_capture, x):
    graph_capture(Noisy(), x).assert_graph_count(forward=2, backward=2)


def test_number_of_graphs_by_hand(x):
    torch._dynamo.reset()
    counter = CompileCounterWithBackend("aot_eager")
    out = torch.compile(Noisy(), backend=counter)(x)
    assert counter.frame_count == 2
    out.sum().backward()  # of backward graphs it knows nothing
    torch._dynamo.reset()


# -- 7. ops that must be there, or must not --------------------------------------------------------


def test_ops(graph_capture, block, x):
    capture = graph_capture(block, x)
    capture.forward.assert_op_counts({"aten.gelu": 1, "aten.native_layer_norm": 1})
    capture.assert_no_ops("aten._to_copy", "aten.clone", "aten._local_scalar_dense")


def test_ops_by_hand(block, x):
    torch._dynamo.reset()
    captured = []

    def backend(graph_module, inputs):
        from torch._dynamo.backends.common import aot_autograd
        from torch._functorch.aot_autograd import make_boxed_func

        def keep(graph_module, inputs):
            captured.append(graph_module)
            return make_boxed_func(graph_module.forward)

        return aot_autograd(fw_compiler=keep, bw_compiler=keep)(graph_module, inputs)

    torch.compile(block, backend=backend)(x).sum().backward()
    forward, _ = captured
    targets = [node.target for node in forward.graph.nodes]
    assert targets.count(aten.gelu.default) == 1
    assert targets.count(aten.native_layer_norm.default) == 1
    for module in captured:
        for op in (aten._to_copy.default, aten.clone.default, aten._local_scalar_dense.default):
            assert op not in [node.target for node in module.graph.nodes]
    torch._dynamo.reset()


# -- 8. op counts, before and after a pass ---------------------------------------------------------


def relu_to_tanh(module):
    """A compiler pass."""
    for node in module.graph.find_nodes(op="call_function", target=torch.relu):
        node.target = torch.tanh
    module.recompile()
    return module


def activated(x):
    return torch.relu(x @ x.t()) + torch.relu(x).sum()


def test_a_pass(x):
    before = torch.fx.symbolic_trace(activated)
    after = relu_to_tanh(copy.deepcopy(before))

    found = diff(before, after)
    assert [(f.before.op, f.after.op) for f in found.findings] == [("torch.relu", "torch.tanh")] * 2


def test_a_pass_by_hand(x):
    def counts(module):
        return Counter(node.target for node in module.graph.nodes if node.op == "call_function")

    before = torch.fx.symbolic_trace(activated)
    after = relu_to_tanh(copy.deepcopy(before))
    expected = counts(before)
    expected[torch.tanh] += expected.pop(torch.relu)
    assert counts(before)[torch.relu] == 2
    assert counts(after) == expected  # an op that now reads something else is not seen


# -- 9. kernels, fusion, CUDA graphs ---------------------------------------------------------------


def fused(x):
    return torch.relu(x + 1) * 2


def test_kernels(graph_capture, x):
    capture = graph_capture(fused, x, via="inductor")
    [kernel] = capture.kernels
    assert "relu" in kernel.name
    assert "cudagraph_skips" not in capture.counters.get("inductor", {})


def test_kernels_by_hand(x):
    from torch._inductor.utils import fresh_cache, run_and_get_code
    from torch.testing import FileCheck

    torch._dynamo.reset()
    counters.clear()
    with fresh_cache():
        _, [code] = run_and_get_code(torch.compile(fused), x)
    FileCheck().check_count("async_compile.cpp_pybinding(", 1, exactly=True).run(code)
    FileCheck().check_regex("cpp_fused_.*relu").run(code)
    assert counters["inductor"]["cudagraph_skips"] == 0
    torch._dynamo.reset()
    counters.clear()


@pytest.mark.skipif(not torch.cuda.is_available(), reason="CUDA graphs need CUDA")
def test_cuda_graphs(graph_capture, block, x):
    compiled = torch.compile(block.cuda().eval(), mode="reduce-overhead")
    with graph_capture.watch() as watched, torch.no_grad():
        for _ in range(3):
            compiled(x.cuda())
    watched.assert_graph_count(forward=1, backward=0)
    assert "cudagraph_skips" not in watched.counters.get("inductor", {})


# -- 10. collectives, and the graph of the backward ------------------------------------------------


@pytest.fixture
def tensor_parallel():
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.tensor.parallel import (
        ColwiseParallel,
        RowwiseParallel,
        parallelize_module,
    )
    from torch.testing._internal.distributed.fake_pg import FakeStore

    torch.distributed.init_process_group("fake", rank=0, world_size=2, store=FakeStore())
    try:
        plan = {"0": ColwiseParallel(), "2": RowwiseParallel()}
        layers = nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Linear(16, 8))
        yield parallelize_module(layers, init_device_mesh("cpu", (2,)), plan)
    finally:
        torch.distributed.destroy_process_group()


def test_collectives(graph_capture, tensor_parallel, x):
    capture = graph_capture(tensor_parallel, x.requires_grad_())
    capture.forward.assert_op_counts({"_c10d_functional.all_reduce": 1})
    capture.backward.assert_op_counts({"_c10d_functional.all_reduce": 1})
    capture.assert_no_ops("_c10d_functional.all_gather_into_tensor")


def test_collectives_by_hand(tensor_parallel, x):
    from torch.distributed.tensor.debug import CommDebugMode

    functional = torch.ops.c10d_functional
    with CommDebugMode() as forward:  # under which nothing is compiled
        out = tensor_parallel(x.requires_grad_())
    with CommDebugMode() as backward:
        out.sum().backward()
    assert forward.get_comm_counts()[functional.all_reduce] == 1
    assert backward.get_comm_counts()[functional.all_reduce] == 1
    assert forward.get_comm_counts()[functional.all_gather_into_tensor] == 0
    assert backward.get_comm_counts()[functional.all_gather_into_tensor] == 0


def test_backward_graph(graph_capture, block, x):
    backward = graph_capture(block, x.requires_grad_()).backward
    backward.assert_op_counts({"aten.mm": 4, "aten.gelu_backward": 1})
    assert [node.module for node in backward.find("aten.mm")] == ["down", "down", "up", "up"]


def test_backward_graph_by_hand(block, x):
    torch._dynamo.reset()
    captured = []

    def backend(graph_module, inputs):
        from torch._dynamo.backends.common import aot_autograd
        from torch._functorch.aot_autograd import make_boxed_func

        def compiler(graph_module, inputs):
            return make_boxed_func(graph_module.forward)

        def bw_compiler(graph_module, inputs):
            captured.append(graph_module)
            return make_boxed_func(graph_module.forward)

        return aot_autograd(fw_compiler=compiler, bw_compiler=bw_compiler)(graph_module, inputs)

    torch.compile(block, backend=backend)(x.requires_grad_()).sum().backward()
    [backward] = captured
    counts = Counter(node.target for node in backward.graph.nodes if node.op == "call_function")
    assert counts[aten.mm.default] == 4
    assert counts[aten.gelu_backward.default] == 1
    torch._dynamo.reset()


def step(block, x):
    block(x).square().mean().backward()


def test_single_backward_graph(graph_capture, block, x):
    with graph_capture.watch() as watched, torch._dynamo.config.patch(compiled_autograd=True):
        torch.compile(step, backend="eager")(block, x)
    watched.assert_single_backward_graph()


def test_single_backward_graph_by_hand(block, x):
    torch._dynamo.reset()
    counters.clear()
    with torch._dynamo.config.patch(compiled_autograd=True):
        torch.compile(step, backend="eager")(block, x)
    assert counters["compiled_autograd"]["captures"] == 1  # also if that broke into several graphs
    torch._dynamo.reset()
    counters.clear()


# -- in suites without fixtures --------------------------------------------------------------------


class TestWithoutFixtures(unittest.TestCase):
    def test_capture_and_watch(self):
        block = Block().eval()
        pytest_torchgraph.capture(block, torch.ones(4, 8)).assert_no_graph_breaks()
        with pytest_torchgraph.watch() as watched:
            torch.compile(block, backend="eager")(torch.ones(4, 8))
        watched.assert_graph_count(total=1)
