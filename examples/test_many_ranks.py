"""What ranks send to each other: checks that projects write by hand, on one CPU process here.

By hand, with the lines of the function or class, in the files as they were read for this:

- a pass that makes tensor parallelism sequence-parallel: `sequence_parallelism_pass_on_test_model`
  of vLLM (`tests/compile/passes/distributed/test_sequence_parallelism.py`, 889b02f), 109 lines that
  two spawned processes run on GPUs; ops are counted, not groups and bytes;
- one all_reduce, and only in the backward: `test_colwise_parallel_style` of torch
  (`test/distributed/tensor/parallel/test_tp_style.py`, 02dd4ff), 39 lines in four processes, by
  `CommDebugMode`;
- a product that runs while a sum is under way: `test_sink_waits` of torch
  (`test/distributed/test_compute_comm_reordering.py`, 009296c), 28 lines and 14 of decorators on
  GPUs, by the text of the generated code;
- gathers and scatters of FSDP: `_test_communication_count` of torch
  (`test/distributed/_composable/fsdp/test_fully_shard_comm.py`), 41 lines on GPUs;
- a head that is gathered once and not for each chunk of the loss:
  `_chunked_nll_allgather_worker.py` of TRL (`tests/distributed`), a module of more than 200 lines
  that `accelerate launch` runs twice, and that prints its counts for another one to read;
- weights that are sent in float8: `test_fp8_fp32_all_gather_dynamic_comm_size` of torchao
  (`test/float8/test_fsdp2/test_fsdp2.py`), 81 lines on a GPU, with a gather of its own in the place
  of torch's.

Each check here is a function of up to three lines. It holds for a model, and fails for the same one
with a collective too many, with another group, with a larger payload; and where it is about
overlap, for one that nothing overlaps any more.
"""

import pytest
import torch
from torch import nn
from torch.distributed.fsdp import fully_shard
from torch.distributed.tensor.parallel import ColwiseParallel, parallelize_module

from pytest_torchgraph import Inductor

pytestmark = [  # of torch itself, while it compiles
    pytest.mark.filterwarnings("ignore:The .grad attribute of a Tensor:UserWarning"),
    pytest.mark.filterwarnings("ignore:.torch.jit:DeprecationWarning"),
]

ops = torch.ops._c10d_functional

ROWS, SIZE, FLOAT = 8, 16, 4
LAYERS, VOCABULARY = 3, 32


def summed(x, group):
    return ops.wait_tensor(ops.all_reduce(x, "sum", group))


def gathered(x, group, ranks):
    return ops.wait_tensor(ops.all_gather_into_tensor(x, ranks, group))


# -- the checks ------------------------------------------------------------------------------------


def is_sequence_parallel(step):
    sent = 2 * LAYERS * ROWS * SIZE * FLOAT
    step.assert_collectives({"reduce_scatter": LAYERS, "all_gather": LAYERS}, "tp", sent)


def is_column_parallel(step):
    assert not step.forward.collectives
    step.assert_collectives({"all_reduce": 1}, "tp", bytes=ROWS * SIZE * FLOAT)


def is_overlapped(step):
    step.assert_collectives({"all_reduce": 1}, "tp", bytes=SIZE * SIZE * FLOAT)
    step.assert_overlapped("tp")


def is_sharded_by_layer(step):
    sent = 3 * LAYERS * SIZE * SIZE * FLOAT
    step.assert_collectives({"all_gather": 2 * LAYERS, "reduce_scatter": LAYERS}, "tp", sent)


def gathers_its_head_once(step):
    step.assert_collectives({"all_gather": 1}, "tp", bytes=VOCABULARY * SIZE * FLOAT)


def gathers_in_float8(step):
    step.assert_collectives({"all_gather": 1}, "tp", bytes=SIZE * SIZE)


# -- the models ------------------------------------------------------------------------------------


class SequenceParallel(nn.Module):
    """What is behind each matrix is computed on a part of the rows."""

    def __init__(self, mesh, size):
        super().__init__()
        self.layers = nn.ModuleList(nn.Linear(size, size, bias=False) for _ in range(LAYERS))
        self.ranks, self.group = mesh.size(), mesh.get_group().group_name

    def forward(self, x):
        for layer in self.layers:
            part = ops.reduce_scatter_tensor(layer(x), "sum", self.ranks, self.group)
            x = gathered(torch.relu(ops.wait_tensor(part)), self.group, self.ranks)
        return x


class Chunked(nn.Module):
    """A loss that is computed in chunks, with a head that is gathered for the first of them."""

    def __init__(self, mesh, size, again=False):
        super().__init__()
        head = nn.Linear(size, VOCABULARY, bias=False)
        self.head = fully_shard(head, mesh=mesh, reshard_after_forward=again)

    def forward(self, x):
        return sum(self.head(chunk).logsumexp(1).sum() for chunk in x.chunk(4))


class InFloat8(nn.Module):
    """A matrix of which each rank has some rows, which it sends in float8."""

    def __init__(self, mesh, size, dtype=torch.float8_e4m3fn):
        super().__init__()
        self.weight = nn.Parameter(torch.randn(size // mesh.size(), size))
        self.ranks, self.group = mesh.size(), mesh.get_group().group_name
        self.dtype = dtype

    def forward(self, x):
        weight = gathered(self.weight.to(self.dtype), self.group, self.ranks)
        return x @ weight.to(x.dtype).t()


def sequence_parallel(mesh, size=SIZE):
    return SequenceParallel(mesh, size), torch.randn(ROWS, size)


def column_parallel(mesh, size=SIZE):
    x = torch.randn(ROWS, size, requires_grad=True)
    return parallelize_module(nn.Linear(size, 8), mesh, ColwiseParallel()), x


def overlapped(mesh, size=SIZE, needed=False):
    def step(x):
        total = summed(x, mesh.get_group().group_name)
        return total @ ((total if needed else x) @ x)

    return step, torch.randn(size, size)


def sharded(mesh, size=SIZE):
    layers = [fully_shard(nn.Linear(size, size, bias=False), mesh=mesh) for _ in range(LAYERS)]
    return fully_shard(nn.Sequential(*layers), mesh=mesh), torch.randn(ROWS, size)


def chunked(mesh, size=SIZE, **options):
    return Chunked(mesh, size, **options), torch.randn(ROWS, size)


def in_float8(mesh, size=SIZE, **options):
    return InFloat8(mesh, size, **options), torch.randn(ROWS, size)


class AndOneMore(nn.Module):
    """A model, and an all_reduce of its result that nobody needs."""

    def __init__(self, model, group):
        super().__init__()
        self.model = model
        self.group = group

    def forward(self, x):
        y = self.model(x)
        return y + 0 * summed(y.detach(), self.group)


OVERLAPPING = {
    "reorder_for_compute_comm_overlap": True,
    "reorder_for_compute_comm_overlap_passes": ["sink_waits"],
}
INDUCTOR = Inductor(options=OVERLAPPING, codegen=False)

FORWARD = {"via": "aot", "backward": False}
CHECKS = {
    "sequence parallel": (
        is_sequence_parallel,
        sequence_parallel,
        {"via": "aot", "backward": False},
    ),
    "column parallel": (is_column_parallel, column_parallel, {"via": "aot"}),
    "overlapped": (is_overlapped, overlapped, {"via": INDUCTOR}),
    "sharded by layer": (is_sharded_by_layer, sharded, {"via": "dispatch"}),
    "head": (gathers_its_head_once, chunked, {"via": "dispatch", "backward": False}),
    "float8": (gathers_in_float8, in_float8, FORWARD),
}


@pytest.fixture(params=CHECKS)
def checked(request, graph_ranks):
    """A check, and what captures its model as one of eight ranks sees it."""
    check, model, how = CHECKS[request.param]

    def captured(group="tp", extra=False, **options):
        def build(mesh):
            target, x = model(mesh[group], **options)
            return (AndOneMore(target, mesh["tp"].get_group().group_name) if extra else target), (
                x,
            )

        (step,) = graph_ranks(build, ranks=(5,), dp=2, tp=4, **how)
        return step

    return check, captured


def test_holds(checked):
    check, captured = checked
    check(captured())


def test_one_collective_too_many(checked):
    check, captured = checked
    with pytest.raises(AssertionError, match=r"all_reduce|forward"):
        check(captured(extra=True))


def test_another_group(checked):
    check, captured = checked
    with pytest.raises(AssertionError, match=r"over dp|no collective"):
        check(captured(group="dp"))


def test_a_larger_payload(checked):
    check, captured = checked
    with pytest.raises(AssertionError, match=r"bytes: expected \d+, found \d+"):
        check(captured(size=2 * SIZE))


def test_nothing_overlaps_any_more(graph_ranks):
    def build(mesh):
        step, x = overlapped(mesh["tp"], needed=True)
        return step, (x,)

    (step,) = graph_ranks(build, ranks=(5,), dp=2, tp=4, via=INDUCTOR)
    with pytest.raises(AssertionError, match="waited for immediately after it starts"):
        is_overlapped(step)


def test_a_head_that_is_gathered_for_each_chunk(graph_ranks):
    def build(mesh):
        model, x = chunked(mesh["tp"], again=True)
        return model, (x,)

    (step,) = graph_ranks(build, ranks=(5,), dp=2, tp=4, via="dispatch", backward=False)
    with pytest.raises(AssertionError, match=r"(?s)all_gather: expected 1, found 4.*head"):
        gathers_its_head_once(step)


def test_weights_that_are_sent_in_bfloat16(graph_ranks):
    def build(mesh):
        model, x = in_float8(mesh["tp"], dtype=torch.bfloat16)
        return model, (x,)

    (step,) = graph_ranks(build, ranks=(5,), dp=2, tp=4, via="aot", backward=False)
    with pytest.raises(AssertionError, match="bytes: expected 256, found 512"):
        gathers_in_float8(step)
