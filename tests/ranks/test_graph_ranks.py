"""`graph_ranks` captures the ranks of a mesh in one process."""

from __future__ import annotations

import random
import sys
import textwrap
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.distributed as dist
import torch.distributed._functional_collectives as functional
from ranks.launch import logs, torchrun
from ranks.parallel_models import MLP, MODELS, reduced, tensor_parallel
from torch import Tensor, nn
from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.tensor import DTensor, Partial, Replicate, Shard
from torch.testing._internal.distributed.fake_pg import FakeStore

from pytest_torchgraph import CaptureError, Ranks, capture, capture_ranks, from_fx

dispatched = partial(capture_ranks, via="dispatch")


def test_ranks_are_a_sequence_of_captures() -> None:
    ranks = dispatched(reduced, dp=2, tp=2)
    assert isinstance(ranks, Ranks)
    assert [rank_capture.rank for rank_capture in ranks] == [0, 1, 2, 3] == list(ranks.ranks)
    assert len(ranks) == ranks.world_size == 4
    assert ranks[-1].rank == 3
    assert [rank_capture.rank for rank_capture in ranks[1:3]] == [1, 2]
    assert repr(ranks) == "<Ranks of dp=2, tp=2: ranks 0-3>"
    assert capture(torch.relu, torch.ones(2)).rank is None


def test_some_ranks_of_a_large_world() -> None:
    ranks = dispatched(reduced, dp=128, tp=8, ranks=(0, 1, 1023))
    assert list(ranks.ranks) == [0, 1, 1023]
    ranks.assert_same_graphs()
    for rank_capture in ranks:
        rank_capture.assert_collectives({"all_reduce": 1}, group="tp", bytes=16)


def one_more(mesh: DeviceMesh) -> tuple[nn.Module, tuple[Tensor]]:
    """Reduce over `tp` on each rank, and once more on rank 2."""
    model, inputs = reduced(mesh)

    class OneMore(nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            out: Tensor = model(x)
            if dist.get_rank() == 2:
                out = functional.wait_tensor(functional.all_reduce(out, "sum", mesh["dp"]))
            return out

    return OneMore(), inputs


def test_collectives_of_each_rank() -> None:
    ranks = dispatched(one_more, dp=2, tp=2)
    ranks.assert_collectives({"all_reduce": 1}, group="tp", bytes=16)
    ranks.assert_collectives({"all_reduce": (1, 2)})
    with pytest.raises(AssertionError) as caught:
        ranks.assert_collectives({"all_reduce": 1})
    assert str(caught.value).startswith("rank 2 (dp=1, tp=0):\n  collectives differ:\n")
    assert "all_reduce: expected 1, found 2" in str(caught.value)
    with pytest.raises(AssertionError, match=r"\Aranks 0-1, 3:\n(.*\n)*rank 2 \(dp=1, tp=0\):"):
        ranks.assert_collectives({"all_reduce": 3})
    with pytest.raises(ValueError, match="all_redcue"):
        ranks.assert_collectives({"all_redcue": 1})


def test_assertion_for_one_capture_is_refused_on_ranks() -> None:
    ranks = dispatched(reduced, tp=2, ranks=(0,))
    with pytest.raises(AttributeError, match=r"for capture in ranks: capture\.assert_no_ops\("):
        ranks.assert_no_ops("aten.add")  # type: ignore[attr-defined]
    assert not hasattr(ranks, "collectives")


@pytest.mark.slow("imports DTensor")
def test_groups_are_named_after_mesh_dimensions() -> None:
    """torch numbers the groups, and uses the default group for a mesh of one dimension."""
    for mesh in ({"tp": 4}, {"tp": 2, "dp": 2}, {"dp": 2, "pp": 2, "tp": 2}):
        ranks = capture_ranks(reduced, ranks=(1, 3), via="aot", **mesh)
        assert [
            collective.group for rank_capture in ranks for collective in rank_capture.collectives
        ] == ["tp", "tp"]
        ranks.assert_same_graphs()


@pytest.mark.slow(
    "further cases; a few are in every run",
    unless=["coalesced", "data parallel", "experts", "in place"],
)
@pytest.mark.parametrize("name", MODELS)
def test_rank_equals_its_capture_in_a_separate_process(name: str) -> None:
    """Earlier ranks leave no cached mesh and no group number behind."""
    torch.manual_seed(0)
    ranks = dispatched(MODELS[name], dp=2, tp=4, ranks=(0, 3, 5))
    ranks.assert_same_graphs()
    among = ranks[2]
    torch.manual_seed(0)
    (alone,) = dispatched(MODELS[name], dp=2, tp=4, ranks=(5,))
    assert [g.to_text() for g in among.program] == [g.to_text() for g in alone.program]


def another_order(mesh: DeviceMesh) -> tuple[Any, ...]:
    names = ("dp", "tp") if dist.get_rank() == 3 else ("tp", "dp")
    groups = [mesh.get_group(name) for name in names]

    def step(x: Tensor) -> Tensor:
        for group in groups:
            x = functional.all_reduce(x * 2, "sum", group)
        return x + 1

    return step, (torch.ones(4),)


def test_another_order_of_collectives_is_named_with_both_orders() -> None:
    ranks = dispatched(another_order, dp=2, tp=2)
    ranks[:3].assert_same_collectives()
    for check, problem in (
        (ranks.assert_same_graphs, "different orders, which deadlocks"),
        (ranks.assert_same_collectives, "ranks communicate differently:"),
    ):
        with pytest.raises(AssertionError, match=problem) as error:
            check()
        message = str(error.value)
        assert "rank 3 (dp=1, tp=1) compared with ranks 0-2:" in message
        assert "0  all_reduce over dp, 16 bytes  vs.  all_reduce over tp, 16 bytes" in message
        assert "1  all_reduce over tp, 16 bytes  vs.  all_reduce over dp, 16 bytes" in message
    with pytest.raises(AssertionError, match="differently across 'tp'"):
        ranks.assert_same_collectives(across="tp")


def own_number(mesh: DeviceMesh) -> tuple[Any, ...]:
    rank, group = dist.get_rank(), mesh.get_group("tp")
    return lambda x: functional.all_reduce(x * rank, "sum", group) + 1, (torch.ones(4),)


def test_ranks_may_compute_on_numbers_of_their_own() -> None:
    ranks = dispatched(own_number, tp=4)
    ranks.assert_same_collectives()
    with pytest.raises(AssertionError, match="ranks have different graphs") as failure:
        ranks.assert_same_graphs()
    message = str(failure.value)
    assert "          rank 0  %mul = aten.mul.Tensor(%x, 0) : f32[4]\n" in message
    assert "          rank 3  %mul = aten.mul.Tensor(%x, 3) : f32[4]" in message


def test_collective_order_without_collectives_fails() -> None:
    ranks = capture_ranks(lambda mesh: (torch.relu, (torch.ones(2),)), dp=2, via="dispatch")
    with pytest.raises(AssertionError, match=r"none of the ranks runs .*: check that build"):
        ranks.assert_same_collectives()


def branch(mesh: DeviceMesh) -> tuple[Any, ...]:
    first = mesh.get_local_rank("dp") == 0

    def step(x: Tensor) -> Tensor:
        return x.relu() if first else x.sigmoid()

    return step, (torch.ones(4),)


def test_ranks_that_differ_are_named() -> None:
    ranks = dispatched(branch, dp=2, tp=2)
    assert ranks == dispatched(branch, dp=2, tp=2)
    assert ranks != dispatched(branch, dp=1, tp=4)
    assert ranks != ranks[:2]
    assert ranks != list(ranks)
    ranks.assert_same_graphs(across="tp")
    with pytest.raises(AssertionError) as error:
        ranks.assert_same_graphs()
    message = str(error.value)
    assert "ranks 2-3 compared with ranks 0-1:" in message
    assert "aten.relu -> aten.sigmoid" in message
    assert "deadlock" not in message
    with pytest.raises(AssertionError, match="different graphs across 'dp'"):
        ranks.assert_same_graphs(across="dp")


def test_comparison_without_two_ranks_is_an_error() -> None:
    ranks = dispatched(branch, dp=2, tp=2, ranks=(0, 3))
    with pytest.raises(ValueError, match="no two of the captured ranks differ only in 'tp'"):
        ranks.assert_same_graphs(across="tp")
    with pytest.raises(ValueError, match=r"no dimension 'pp'; dimensions: 'dp', 'tp'"):
        ranks.assert_same_graphs(across="pp")
    with pytest.raises(
        ValueError, match="nothing to compare, because fewer than two ranks were captured"
    ):
        ranks[:1].assert_same_graphs()
    with pytest.raises(ValueError, match="nothing to check: no rank was captured, choose"):
        ranks[2:].assert_collectives({"all_reduce": 1})


def test_assert_same_collectives_of_silent_ranks_fails() -> None:
    ranks = dispatched(only_the_last_reduces, dp=2, tp=2, ranks=(0, 1, 3))
    with pytest.raises(AssertionError, match="none of the compared ranks runs a collective"):
        ranks.assert_same_collectives(across="tp")


def only_the_last_reduces(mesh: DeviceMesh) -> tuple[Any, tuple[Tensor]]:
    def step(x: Tensor) -> Tensor:
        if dist.get_rank() < 3:
            return x * 2
        return functional.all_reduce(x * 2, "sum", mesh.get_group("tp"))

    return step, (torch.ones(4),)


# -- data parallel: DDP's reducer ------------------------------------------------------------------


def data_parallel(mesh: DeviceMesh) -> tuple[Any, ...]:
    return nn.parallel.DistributedDataParallel(MLP()), (torch.randn(4, 8),)


def test_reducer_of_data_parallel_is_refused_by_name() -> None:
    with pytest.raises(
        CaptureError, match="the reducer of DistributedDataParallel is not available"
    ):
        dispatched(data_parallel, dp=2, ranks=(0,))
    assert not dist.is_initialized()


@pytest.mark.slow
def test_assertions_hold_under_torchrun_with_gloo(tmp_path: Path) -> None:
    program = tmp_path / "test_gloo.py"
    program.write_text(
        textwrap.dedent(
            """
            import pytest
            import torch
            import torch.distributed as dist
            from ranks.parallel_models import MLP, tensor_parallel
            from torch.distributed.device_mesh import init_device_mesh

            @pytest.fixture(scope="module")
            def mesh():
                dist.init_process_group("gloo")
                yield init_device_mesh("cpu", (2,), mesh_dim_names=("tp",))
                dist.destroy_process_group()

            @pytest.mark.parametrize("via", ["dispatch", "aot"])
            def test_tensor_parallel(graph_capture, mesh, via):
                torch.manual_seed(0)
                target, args = tensor_parallel(mesh)
                capture = graph_capture(target, *args, via=via)
                capture.forward.assert_collectives({"all_reduce": 1}, group="tp", bytes=128)
                capture.backward.assert_collectives({"all_reduce": 1}, group="tp", bytes=128)
                capture.assert_matches_eager()

            def test_data_parallel(graph_capture, mesh):
                torch.manual_seed(0)
                model = torch.nn.parallel.DistributedDataParallel(MLP())
                capture = graph_capture(model, torch.randn(4, 8), via="dispatch")
                capture.backward.assert_collectives({"all_reduce": 1})
                with pytest.raises(AssertionError, match="expected 2, found 1"):
                    capture.assert_collectives({"all_reduce": 2})
            """
        )
    )
    ran = torchrun(tmp_path)
    assert ran.returncode == 0, ran.stdout + ran.stderr
    assert all("3 passed" in output for output in logs(tmp_path).values())


# -- cleanup ---------------------------------------------------------------------------------------


def test_capture_ranks_ends_the_group_and_restores_generators() -> None:
    hook, before, python = sys.excepthook, torch.get_rng_state(), random.getstate()
    weights = []

    def build(mesh: DeviceMesh) -> tuple[Any, ...]:
        weights.append(nn.Linear(2, 2).weight.detach().clone())
        return torch.add, (torch.ones(random.randint(1, 1)), torch.ones(1)), {"alpha": 2}

    ranks = dispatched(build, dp=3)
    assert "alpha=2" in ranks[0].to_text()
    assert all(torch.equal(weight, weights[0]) for weight in weights)
    assert torch.equal(torch.get_rng_state(), before)
    assert random.getstate() == python
    assert not dist.is_initialized()
    assert sys.excepthook is hook


def test_users_process_group_is_refused_and_kept() -> None:
    dist.init_process_group("fake", store=FakeStore(), rank=1, world_size=2)
    try:
        with pytest.raises(CaptureError, match=r"already has a process group .*rank 1 of 2"):
            capture_ranks(reduced, dp=2, tp=2)
        assert dist.get_world_size() == 2
    finally:
        dist.destroy_process_group()


def test_assert_matches_eager_is_refused_on_a_rank() -> None:
    (rank_capture,) = capture_ranks(reduced, tp=2, ranks=(0,), via="aot")
    with pytest.raises(CaptureError, match="one of several ranks"):
        rank_capture.assert_matches_eager()


@pytest.mark.parametrize(
    ("options", "error", "message"),
    [
        ({}, TypeError, "missing mesh dimensions"),
        ({"dp": 2.0}, TypeError, r"dp=2\.0 is neither a mesh dimension \(int\) nor a"),
        ({"dp": 0}, ValueError, "dp=0 is not a valid size of a mesh dimension"),
        ({"dp": 2, "mode": "x"}, TypeError, "mode='x' is neither a mesh dimension"),
        ({"dp": 2, "ranks": (2,)}, ValueError, "rank 2 is out of range"),
        ({"dp": 2, "ranks": ()}, ValueError, "captures nothing"),
        ({"dp": 2, "ranks": (0, 0)}, ValueError, "twice"),
        ({"dp": 2, "ranks": (True,)}, TypeError, "is not a rank: pass ints"),
        ({"dp": 2, "ranks": 1}, TypeError, r"ranks=1 is not a sequence of ranks.*ranks=\(0, 7\)"),
        ({"dp": 2, "device": "gpu"}, ValueError, "unknown device 'gpu': choose from cpu, cuda"),
        (
            {"dp": 2, "device": "cpu:0"},
            ValueError,
            "has an index: pass only the device type, device='cpu'",
        ),
        ({"dp": 2, "device": 0}, TypeError, "device=0 is not a device"),
    ],
)
def test_invalid_arguments_are_refused(
    options: dict[str, Any], error: type[Exception], message: str
) -> None:
    with pytest.raises(error, match=message):
        capture_ranks(reduced, **options)


@pytest.mark.parametrize("returned", [None, (MLP(),), (MLP(), [1]), (MLP(), (), ()), [MLP(), ()]])
def test_build_with_a_wrong_return_value_is_refused(returned: Any) -> None:
    with pytest.raises(TypeError, match=r"must return \(target, args\)"):
        capture_ranks(lambda mesh: returned, dp=2)


def test_collectives_of_a_redistribution_are_refused() -> None:
    """In a graph of torch functions, a redistribution is one call that hides its collectives."""
    (rank_capture,) = capture_ranks(tensor_parallel, tp=2, ranks=(0,), via="dynamo")
    with pytest.raises(
        CaptureError, match=r"decides at run time what it communicates\. Capture via 'aot'"
    ):
        rank_capture.assert_collectives({})


@pytest.mark.parametrize("via", ["dispatch", "aot"])
def test_custom_op_with_a_group_argument(via: str) -> None:
    with torch.library._scoped_library("torchgraph_ranks", "DEF") as library:
        for name in ("quick_all_reduce", "exchange"):
            library.define(f"{name}(Tensor x, str group_name) -> Tensor")
            library.impl(name, lambda x, group_name: x * 2, "CompositeExplicitAutograd")

        def build(mesh: DeviceMesh) -> tuple[Any, ...]:
            group, ops = mesh.get_group("tp").group_name, torch.ops.torchgraph_ranks
            return lambda x: ops.exchange(ops.quick_all_reduce(x, group), group), (torch.ones(4),)

        (rank_capture,) = capture_ranks(build, tp=2, ranks=(0,), via=via)
    rank_capture.assert_collectives({"all_reduce": 1, "other": 1}, group="tp", bytes=2 * 16)
    with pytest.raises(AssertionError, match="all_reduce: expected none"):
        rank_capture.assert_collectives({})


@pytest.mark.slow("compiles for a second")
def test_graph_of_a_rank_converts_to_fx() -> None:
    """Without the meshes that torch passes through the graph."""
    (rank_capture,) = capture_ranks(tensor_parallel, tp=2, ranks=(0,), via="aot")
    module = rank_capture.fx(rank_capture.forward)
    names = [node.name for node in module.graph.find_nodes(op="placeholder")]
    assert len(names) == len(rank_capture.forward.inputs) == 5
    assert from_fx(module) == rank_capture.forward


@pytest.mark.slow("compiles many times")
def test_fixture_captures_ranks(pytester: pytest.Pytester) -> None:
    pytester.makepyfile(
        """
        import torch

        def build(mesh):
            return torch.nn.Linear(4, 4), (torch.ones(2, 4),)

        def test_ranks(graph_ranks):
            ranks = graph_ranks(build, dp=2, via="dispatch")
            ranks.assert_same_graphs()
            for capture in ranks:
                capture.assert_collectives({})
                capture.assert_collectives({"all_reduce": 1})
        """
    )
    result = pytester.runpytest("-W", "error")
    result.stdout.fnmatch_lines(["*all_reduce: expected 1, found 0*", "*no collective*"])
    result.assert_outcomes(failed=1)


def redistributed(mesh: DeviceMesh, dim: int) -> Any:
    """Build a target that shards a replicated tensor, and gathers it again."""

    def target(x: Tensor) -> DTensor:
        y = DTensor.from_local(x * 2, mesh["tp"], [Replicate()], run_check=False)
        return y.redistribute(mesh["tp"], [Shard(dim)]).redistribute(mesh["tp"], [Replicate()])

    return target, (torch.ones(4, 4),)


@pytest.mark.slow("another mechanism", only=["aot"])
@pytest.mark.parametrize("via", ["aot", "dispatch"])
def test_placements_of_returned_tensors_are_compared(via: str) -> None:
    def ranks(placement: Any) -> Ranks:
        def build(mesh: DeviceMesh) -> Any:
            def target(x: Tensor) -> DTensor:
                return DTensor.from_local(x * 2, mesh["tp"], [placement], run_check=False)

            return target, (torch.ones(4, 4),)

        return capture_ranks(build, tp=2, ranks=(0,), via=via, backward=False)

    assert ranks(Partial()) == ranks(Partial())
    assert ranks(Partial()) != ranks(Replicate())


def test_placements_as_arguments_are_compared() -> None:
    first, second = (
        capture_ranks(
            partial(redistributed, dim=dim), tp=2, ranks=(0,), via="dynamo", backward=False
        )
        for dim in (0, 1)
    )
    assert first != second
