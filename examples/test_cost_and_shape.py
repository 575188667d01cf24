"""What a graph costs, and what shape it has: checks that projects write by hand, in three lines.

By hand, with the lines of the function or class in the commit that is named:

- an op before a pass, none behind it: `TestBackend` of vLLM (`tests/compile/backend.py`, 0527cbc),
  a class of 89 lines that copies the graph three times; `check_before_ops` is 8 of them,
  `check_after_ops` 6;
- nodes in order: `TestBucketingPrefetchOrder` of torchtitan (`test_passes.py` of `graph_trainer`,
  0036904), 35 lines that find out the order and 13 that check it, on GPUs;
- no float32 product in the bf16 part: no length, since no public version was found; suites look for
  casts by a walk over the nodes and their `meta["val"].dtype`;
- a batch that stays dynamic: `test_compile_on_different_shapes` of diffusers
  (`tests/models/testing_utils/compile.py`, 1f026ad), 15 lines, by `error_on_recompile`;
- one graph for all blocks: `test_torch_compile_repeated_blocks`, 23 lines in the same mixin, by
  `recompile_limit=N`, where N differs by model;
- a second call that compiles nothing: `test_torch_compile_recompilation_and_graph_break`, 16 lines
  there, and 10 that reset before and after;
- saved bytes per layer: `test_velora.py` of peft (0d4d848), 34 lines and a helper of 15 with
  `saved_tensors_hooks`, which counts weights and views as well and knows no modules.

Each check here is a function of up to three lines that two tests call: in one it holds; the other
has a planted defect, and shows what the failure says.
"""

import pytest
import torch
import torch.distributed
from torch import nn

from pytest_torchgraph import Aot, from_fx

pytestmark = [  # of torch itself, while it compiles
    pytest.mark.filterwarnings("ignore:The .grad attribute of a Tensor:UserWarning"),
    pytest.mark.filterwarnings("ignore:.torch.jit:DeprecationWarning"),
]


class Block(nn.Module):
    def __init__(self, activation=torch.relu):
        super().__init__()
        self.up = nn.Linear(8, 16)
        self.down = nn.Linear(16, 8)
        self.activation = activation

    def forward(self, x):
        return x + self.down(self.activation(self.up(x)))


class Blocks(nn.Module):
    def __init__(self, *blocks):
        super().__init__()
        self.blocks = nn.ModuleList(blocks)

    def forward(self, x):
        for block in self.blocks:
            x = block(x)
        return x


@pytest.fixture
def x():
    return torch.ones(4, 8)


# -- an op before and behind a pass ----------------------------------------------------------------


def is_replaced(before, after):
    before.assert_op_counts({"torch.relu": (1, None)})
    after.assert_no_ops("torch.relu")
    after.assert_op_counts({"torch.tanh": before.count("torch.relu")})


def relu_to_tanh(module, limit=None):
    """A compiler pass."""
    for node in module.graph.find_nodes(op="call_function", target=torch.relu)[:limit]:
        node.target = torch.tanh
    module.recompile()
    return module


def activated(x):
    return torch.relu(x @ x.t()) + torch.relu(x).sum()


def test_a_pass_replaces_an_op():
    module = torch.fx.symbolic_trace(activated)
    is_replaced(from_fx(module), from_fx(relu_to_tanh(module)))


def test_a_pass_that_leaves_one():
    module = torch.fx.symbolic_trace(activated)
    with pytest.raises(AssertionError, match=r"torch\.relu: found 1"):
        is_replaced(from_fx(module), from_fx(relu_to_tanh(module, limit=1)))


# -- nodes in order --------------------------------------------------------------------------------


def overlaps(step):
    step.assert_order("_c10d_functional.all_reduce", "aten.mm")
    step.assert_order("aten.mm", "_c10d_functional.wait_tensor")


@pytest.fixture
def group():
    from torch.testing._internal.distributed.fake_pg import FakeStore

    torch.distributed.init_process_group("fake", rank=0, world_size=2, store=FakeStore())
    try:
        yield torch.distributed.group.WORLD.group_name
    finally:
        torch.distributed.destroy_process_group()


def test_a_product_runs_while_tensors_are_summed(graph_capture, group, x):
    ops = torch.ops._c10d_functional

    def step(x):
        summed = ops.all_reduce(x, "sum", group)
        return ops.wait_tensor(summed).sum() + x @ x.t()

    def overlapping(x):
        summed = ops.all_reduce(x, "sum", group)
        product = x @ x.t()
        return ops.wait_tensor(summed).sum() + product

    overlaps(graph_capture(overlapping, x))
    with pytest.raises(AssertionError, match=r"aten\.mm after _c10d_functional\.wait_tensor"):
        overlaps(graph_capture(step, x))


# -- no float32 product in the bf16 part -----------------------------------------------------------


class Mixed(nn.Module):
    def __init__(self, block):
        super().__init__()
        self.body = block
        self.head = nn.Linear(8, 2)

    def forward(self, x):
        with torch.autocast("cpu", torch.bfloat16):
            x = self.body(x)
        return self.head(x.float())


class Upcast(Block):
    def forward(self, x):
        with torch.autocast("cpu", enabled=False):
            return super().forward(x.float())


def is_all_in_bf16(step):
    step.assert_op_counts({"aten.addmm": (1, None)}, dtype="bf16", module="body")
    step.assert_no_ops("aten.mm", "aten.addmm", dtype="float32", module="body")


def test_no_product_of_the_body_is_in_float32(graph_capture, x):
    is_all_in_bf16(graph_capture(Mixed(Blocks(Block(), Block())), x))


def test_a_block_that_computes_in_float32(graph_capture, x):
    step = graph_capture(Mixed(Blocks(Block(), Upcast())), x)
    with pytest.raises(AssertionError, match=r"(?s)dtype float32, in module 'body'.*blocks\.1\.up"):
        is_all_in_bf16(step)


# -- a batch that stays dynamic --------------------------------------------------------------------


def stays_dynamic(graph_capture, model, x):
    graph_capture(model, x, via=Aot(dynamic=True)).assert_dynamic("x", dim=0)


class Specialised(Block):
    def forward(self, x):
        return super().forward(x) * (2 if x.shape[0] == 4 else 1)


def test_the_batch_stays_dynamic(graph_capture, x):
    stays_dynamic(graph_capture, Block(), x)


def test_a_batch_that_is_specialised(graph_capture, x):
    with pytest.raises(
        AssertionError,
        match=r"x is \[4, 8\]: dim 0 was dynamic and was fixed to 4 at .* in forward",
    ):
        stays_dynamic(graph_capture, Specialised(), x)


# -- blocks that are compiled one by one -----------------------------------------------------------


def is_one_graph(graph_capture, model, x):
    with graph_capture.watch() as watched, torch.no_grad():
        model(x)
    watched.assert_distinct_graphs(1)


def compiled(*blocks):
    return Blocks(*(torch.compile(block, backend="eager") for block in blocks))


def test_all_blocks_are_one_graph(graph_capture, x):
    is_one_graph(graph_capture, compiled(*(Block() for _ in range(4))), x)


def test_a_block_that_is_another_graph(graph_capture, x):
    blocks = [Block(), Block(), Block(torch.tanh), Block()]
    with pytest.raises(AssertionError, match="distinct graphs: expected 1, found 2"):
        is_one_graph(graph_capture, compiled(*blocks), x)


# -- a second call ---------------------------------------------------------------------------------


def compiles_once(graph_capture, model, *calls):
    compiled = torch.compile(model, backend="eager")
    graph_capture.steady(compiled, *calls).assert_no_recompiles()


class Counting(Block):
    calls = 0

    def forward(self, x):
        self.calls += 1
        return super().forward(x) * self.calls


def test_a_second_call_compiles_nothing(graph_capture, x):
    compiles_once(graph_capture, Block(), (x,), (x,))


def test_a_model_that_counts_its_calls(graph_capture, x):
    with pytest.raises(AssertionError, match="calls"):
        compiles_once(graph_capture, Counting(), (x,), (x,))


# -- saved bytes per layer -------------------------------------------------------------------------


def keep_alike(step):
    """But for the last one, whose result is no layer's input."""
    saved = {path: cost.saved_bytes for path, cost in step.by_module(depth=2).items()}
    assert len({saved[path] for path in list(saved)[:-1]}) == 1, saved


def test_all_layers_keep_as_much(graph_capture, x):
    keep_alike(graph_capture(Blocks(Block(), Block(), Block()), x))


def test_a_layer_that_keeps_an_exp(graph_capture, x):
    step = graph_capture(Blocks(Block(), Block(lambda x: torch.relu(x.exp())), Block()), x)
    with pytest.raises(AssertionError, match=r"'blocks\.0': \d+, 'blocks\.1': \d+"):
        keep_alike(step)
    with pytest.raises(AssertionError, match=r"256 saved  blocks\.1: aten\.exp\.default"):
        step.assert_budget(saved_bytes=256)
