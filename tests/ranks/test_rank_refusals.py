"""Builds that cannot be captured as several ranks are refused, with the reason."""

from __future__ import annotations

import functools
import pickle
from typing import Any

import pytest
import torch
import torch.distributed as dist
from ranks.parallel_models import MLP, reduced, tensor_parallel
from torch import Tensor, nn
from torch.distributed import distributed_c10d
from torch.distributed.device_mesh import DeviceMesh
from torch.testing._internal.distributed.fake_pg import FakeStore
from torch_releases import skip_before

from pytest_torchgraph import CaptureError, capture_ranks

pytestmark = pytest.mark.gpu
dispatched = functools.partial(capture_ranks, via="dispatch")


@pytest.mark.parametrize("another", [False, True])
def test_build_that_destroys_the_process_group_is_refused(another: bool) -> None:
    def build(mesh: DeviceMesh) -> tuple[Any, ...]:
        dist.destroy_process_group()
        if another:
            dist.init_process_group("fake", store=FakeStore(), rank=0, world_size=2)
        return MLP(), (torch.ones(2, 8),)

    why = "destroyed the process group, or created one in which this process is not a rank"
    with pytest.raises(CaptureError, match=why):
        dispatched(build, dp=4, ranks=(3,))
    assert not dist.is_initialized()


def test_nested_capture_ranks_is_refused() -> None:
    def build(mesh: DeviceMesh) -> tuple[Any, ...]:
        dispatched(reduced, tp=2)
        return MLP(), (torch.ones(2, 8),)

    with pytest.raises(CaptureError, match="inside another graph_ranks"):
        dispatched(build, dp=2)
    dispatched(reduced, tp=2)


@pytest.mark.skipif(torch.cuda.is_available(), reason="CUDA is available")
def test_absent_device_is_refused() -> None:
    with pytest.raises(CaptureError, match="device 'cuda' is not available: "):
        capture_ranks(reduced, tp=2, device="cuda")
    dispatched(reduced, tp=2, device=torch.device("cpu"))


def test_mesh_on_another_device_than_the_model_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    """Otherwise nothing on the device would be checked."""
    monkeypatch.setattr("pytest_torchgraph.devices.why_absent", lambda device: None)
    with pytest.raises(CaptureError, match=r"nothing on 'hpu' was captured .only on cpu"):
        capture_ranks(lambda mesh: (torch.relu, (torch.ones(2),)), tp=2, device="hpu")
    assert not dist.is_initialized()


def objects_to_all(mesh: DeviceMesh) -> tuple[Any, ...]:
    objects: list[Any] = ["for all" if dist.get_rank() == 0 else None]
    dist.broadcast_object_list(objects, group_src=0, group=mesh.get_group("tp"))
    return torch.relu, (torch.ones(2),)


def objects_to_each(mesh: DeviceMesh) -> tuple[Any, ...]:
    group = mesh.get_group("tp")

    def step(x: Tensor) -> Tensor:
        dist.scatter_object_list([None], [1, 2] if group.rank() == 0 else None, 0, group)
        return x + 1

    return step, (torch.ones(2),)


@pytest.mark.parametrize(
    ("build", "name"),
    [(objects_to_all, "broadcast_object_list"), (objects_to_each, "scatter_object_list")],
)
def test_objects_of_other_ranks_are_refused_by_name(build: Any, name: str) -> None:
    """The received objects would be uninitialized memory."""
    with pytest.raises(
        CaptureError, match=rf"torch\.distributed\.{name} is not available"
    ) as error:
        dispatched(build, tp=2, ranks=(1,))
    assert error.value.__cause__ is not None


def test_memory_that_nobody_wrote_is_never_unpickled() -> None:
    """Unpickling it ended the process, by the luck of what the memory held."""

    def build(mesh: DeviceMesh) -> tuple[Any, ...]:
        received = torch.tensor(list(pickle.dumps(1)), dtype=torch.uint8)
        distributed_c10d._tensor_to_object(received, received.numel(), mesh.get_group("tp"))
        return torch.relu, (torch.ones(2),)

    with pytest.raises(RuntimeError, match="no object arrives"):
        dispatched(build, tp=2, ranks=(1,))
    assert distributed_c10d._tensor_to_object.__module__ == distributed_c10d.__name__


def test_objects_that_all_ranks_gather_are_those_of_the_rank() -> None:
    def build(mesh: DeviceMesh) -> tuple[Any, ...]:
        objects: list[Any] = [None, None]
        dist.all_gather_object(objects, "mine", mesh.get_group("tp"))
        assert objects == ["mine", "mine"]
        return torch.relu, (torch.ones(2),)

    dispatched(build, tp=2, ranks=(1,))


def with_hooks(*names: str) -> Any:
    """Return the build of a layer with a hook that communicates."""

    def build(mesh: DeviceMesh) -> tuple[Any, ...]:
        linear, group = nn.Linear(4, 4), mesh.get_group("tp")

        def reduce(*given: Any) -> None:
            dist.all_reduce(given[-1].detach(), group=group)

        for name in names:
            getattr(linear.weight if name.startswith("register_post") else linear, name)(reduce)
        return nn.Sequential(linear), (torch.ones(2, 4),)

    return build


def test_leaf_module_with_hidden_collectives_is_refused() -> None:
    for build in (tensor_parallel_inside, with_hooks("register_forward_hook")):
        (rank_capture,) = capture_ranks(build, tp=2, ranks=(0,), via="fx")
        with pytest.raises(CaptureError, match=r"%0.*\(torch\.nn\.Linear\) decides at run time"):
            rank_capture.assert_collectives({})
    (rank_capture,) = capture_ranks(with_hooks(), tp=2, ranks=(0,), via="fx")
    rank_capture.assert_collectives({})


def tensor_parallel_inside(mesh: DeviceMesh) -> tuple[Any, ...]:
    model, args = tensor_parallel(mesh)
    return nn.Sequential(model), args


@pytest.mark.slow("compiles for a second")
def test_collective_of_a_backward_hook_is_recorded() -> None:
    build = with_hooks("register_post_accumulate_grad_hook")
    for via in ("compiled_autograd", "aot", "dispatch"):
        (rank_capture,) = capture_ranks(build, tp=2, ranks=(0,), via=via)
        rank_capture.assert_collectives({"all_reduce": 1}, group="tp")


def test_collectives_at_a_graph_break_are_refused() -> None:
    skip_before("2.12", "Dynamo abandons a frame with async_op=True")

    def build(mesh: DeviceMesh) -> tuple[Any, ...]:
        def step(x: Tensor) -> Tensor:
            y = x * 2
            work = dist.all_reduce(y, group=mesh.get_group("tp"), async_op=True)
            assert work is not None
            work.wait()
            return y + 1

        return step, (torch.ones(4),)

    for via in ("dynamo", "dispatch"):
        (rank_capture,) = capture_ranks(build, tp=2, ranks=(0,), via=via)
        rank_capture.assert_collectives({"all_reduce": 1}, group="tp", bytes=16)
