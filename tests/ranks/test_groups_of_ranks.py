"""Process groups are named after mesh dimensions, even if a build creates other groups."""

from __future__ import annotations

from typing import Any

import pytest
import torch
import torch.distributed._functional_collectives as functional
from ranks.parallel_models import reduced
from torch import Tensor
from torch.distributed.device_mesh import DeviceMesh, init_device_mesh

from pytest_torchgraph import capture_ranks


def over(*groups: Any) -> Any:
    """Return a step that reduces over each group in turn."""

    def step(x: Tensor) -> Tensor:
        for group in groups:
            x = functional.all_reduce(x * 2, "sum", group)
        return x + 1

    return step, (torch.ones(4),)


def groups_of(build: Any, **mesh: int) -> list[str]:
    (rank_capture,) = capture_ranks(build, ranks=(1,), via="dispatch", **mesh)
    return [collective.group for collective in rank_capture.collectives]


def test_mesh_created_by_the_build_keeps_group_names() -> None:
    """The model creates a second mesh."""

    def alike(mesh: DeviceMesh) -> Any:
        own = init_device_mesh("cpu", (2, 2), mesh_dim_names=("dp", "tp"))
        return over(own.get_group("tp"), mesh.get_group("tp"), own.get_group("dp"))

    def another(mesh: DeviceMesh) -> Any:
        own = init_device_mesh("cpu", (2, 2), mesh_dim_names=("tp", "cp"))
        return over(own.get_group("tp"), mesh.get_group("tp"), own.get_group("cp"))

    assert groups_of(alike, dp=2, tp=2) == ["tp", "tp", "dp"]
    assert groups_of(another, dp=2, tp=2) == ["g0", "tp", "cp"]


def test_flattened_dimensions_have_their_names() -> None:
    def build(mesh: DeviceMesh) -> Any:
        flat = mesh["dp", "tp"]._flatten("both").get_group()  # torch uses the default group
        part = mesh["pp", "dp"]._flatten().get_group() if "pp" in names else flat
        return over(flat, part)

    names: tuple[str, ...] = ()
    assert groups_of(build, dp=2, tp=2) == ["both", "both"]
    names = ("pp",)
    assert groups_of(build, pp=2, dp=2, tp=2) == ["both", "pp_dp"]


@pytest.mark.parametrize("via", ["dispatch", "aot"])
def test_unused_mesh_dimension_is_a_group_without_collectives(via: str) -> None:
    (rank_capture,) = capture_ranks(reduced, dp=2, tp=2, ranks=(3,), via=via)
    for subject in (rank_capture, rank_capture.graphs[0]):
        subject.assert_collectives({}, group="dp")
        subject.assert_collectives({"all_reduce": 1}, group="tp")
        with pytest.raises(ValueError, match="groups: dp, tp"):
            subject.assert_collectives({}, group="dpp")
    assert rank_capture.graphs[0].groups == {"dp": (1, 3), "tp": (2, 3)}


@pytest.mark.slow("compiles several models", only=["aot"])
@pytest.mark.parametrize("via", ["dispatch", "aot"])
def test_group_created_by_the_target_is_matched(via: str) -> None:
    def build(mesh: DeviceMesh, differs: bool = False) -> Any:
        def step(x: Tensor) -> Tensor:
            group = torch.distributed.new_group([0, 1])
            how = "max" if differs and mesh.get_rank() == 1 else "sum"
            return functional.all_reduce(x * 2, how, group) + 1

        return step, (torch.ones(4),)

    ranks = capture_ranks(build, pp=2, via=via)
    assert ranks[0].graphs[0].groups == {"pp": (0, 1), "g0": (0, 1)}
    ranks.assert_matching_collectives()
    with pytest.raises(AssertionError, match="waits forever"):
        capture_ranks(lambda mesh: build(mesh, True), pp=2, via=via).assert_matching_collectives()
