"""Process groups are numbered by first use, independent of other groups in the process.

The backend is torch's `fake`: collectives do nothing, and one process is enough.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
import torch.distributed as dist
import torch.distributed._functional_collectives as collectives
from torch import Tensor, nn
from torch.testing._internal.distributed.fake_pg import FakeStore
from torch_releases import skip_before

from pytest_torchgraph import Capture, capture, watch

MECHANISMS = ("dispatch", "fx", "dynamo", "aot", "export", "inductor", "compiled_autograd")

pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::FutureWarning")


@pytest.fixture(autouse=True)
def world() -> Iterator[None]:
    dist.init_process_group("fake", store=FakeStore(), rank=0, world_size=4)
    yield
    dist.destroy_process_group()


Groups = tuple[dist.ProcessGroup, dist.ProcessGroup]


def groups(before: int = 0) -> Groups:
    for _ in range(before):
        dist.new_group([0, 1])
    return dist.new_group([0, 1]), dist.new_group([0, 1, 2, 3])


class Parallel(nn.Module):
    """A linear layer. Its weight's gradient is reduced in one group, the rest in another."""

    def __init__(self, first: Any, second: Any):
        super().__init__()
        self.linear = nn.Linear(4, 4)
        self.first, self.second = first, second

    def forward(self, x: Tensor) -> Tensor:
        reduced = torch.ops._c10d_functional.all_reduce(x * 2, "sum", self.first.group_name)
        x = torch.ops._c10d_functional.wait_tensor(reduced)
        y = self.linear(x)
        gathered = torch.ops._c10d_functional_autograd.all_gather_into_tensor(
            y, 4, self.second.group_name
        )
        return torch.ops._c10d_functional.wait_tensor(gathered).relu()


def text(captured: Capture) -> str:
    return "\n".join(graph.to_text() for graph in captured.graphs)


def named(captured: Capture) -> list[str]:
    """Return the names of the groups, in graph order."""
    return re.findall(r'"([^"=]*\d)"', text(captured))


@pytest.mark.slow(
    "the same with another process, plugin, option or mechanism",
    unless=["dispatch", "export", "fx"],
)
@pytest.mark.parametrize("via", MECHANISMS)
def test_a_group_made_earlier_changes_nothing(via: str) -> None:
    if via in ("dispatch", "fx"):
        skip_before("2.11", "collectives have no derivative")
    few = capture(Parallel(*groups()), torch.ones(4, 4), via=via)
    many = capture(Parallel(*groups(before=3)), torch.ones(4, 4), via=via)
    assert text(few) == text(many)
    assert few.graphs == many.graphs
    assert list(dict.fromkeys(named(few))) == ["g0", "g1"]


@pytest.mark.parametrize("via", ["dispatch", "dynamo"])
def test_graphs_with_one_and_two_groups_differ(via: str) -> None:
    if via == "dispatch":
        skip_before("2.11", "collectives have no derivative")
    first, second = groups()
    two = capture(Parallel(first, second), torch.ones(4, 4), via=via)
    one = capture(Parallel(second, second), torch.ones(4, 4), via=via)
    assert set(named(one)) == {"g0"}
    assert one.forward != two.forward


@pytest.mark.parametrize("via", ["dispatch", "aot"])
def test_forward_and_backward_number_together(via: str) -> None:
    skip_before("2.11", "collectives have no derivative")
    captured = capture(Parallel(*groups()), torch.ones(4, 4, requires_grad=True), via=via)
    (scattered,) = captured.backward.find("_c10d_functional.reduce_scatter_tensor")
    assert scattered.args[-1] == "g1"
    (reduced,) = captured.forward.find("_c10d_functional.all_reduce")
    assert reduced.args[1:] == ("sum", "g0")


def test_a_group_that_is_given_by_name() -> None:
    first, _ = groups(before=2)

    def reduced(x: Tensor) -> Tensor:
        y = torch.ops._c10d_functional.all_reduce(x, reduce_op="sum", group_name=name)
        return torch.ops._c10d_functional.wait_tensor(y)

    name = first.group_name
    captured = capture(reduced, torch.ones(4), via="dispatch")
    (node,) = captured.graphs[0].find("_c10d_functional.all_reduce")
    assert "g0" in (*node.args, *node.kwargs.values())


def ours(before: int, function: Callable[[Tensor, Groups], Tensor]) -> Callable[[Tensor], Tensor]:
    two_groups = groups(before)

    def call(x: Tensor) -> Tensor:
        return function(x, two_groups)

    return call


def functional(x: Tensor, two_groups: Groups) -> Tensor:
    y = collectives.all_reduce(x * 2, "sum", two_groups[1])
    return collectives.all_gather_tensor(y, 0, two_groups[0]).relu()


def in_place(x: Tensor, two_groups: Groups) -> Tensor:
    y = x * 2
    dist.all_reduce(y, group=two_groups[1])
    dist.all_reduce(y, group=two_groups[0])
    return y + 1


@pytest.mark.slow("further cases; a few are in every run", unless=["functional"])
@pytest.mark.parametrize("function", [functional, in_place])
def test_watched(function: Callable[[Tensor, Groups], Tensor]) -> None:
    texts = []
    for before in (0, 3):
        call = ours(before, function)
        torch._dynamo.reset()
        with watch() as seen:
            torch.compile(call, backend="aot_eager")(torch.ones(4, 4))
        texts.append(text(seen.at("dynamo")) + text(seen.at("aot")))
    assert texts[0] == texts[1]
    assert re.findall(r'"(g\d)"', texts[0]) == ["g0", "g1", "g0", "g1"]


@pytest.mark.parametrize("via", ["dispatch", "aot"])
def test_collectives_in_place(via: str) -> None:
    """Run eagerly, these ops take the group object."""
    few, many = (capture(ours(n, in_place), torch.ones(4, 4), via=via) for n in (0, 3))
    assert text(few) == text(many)
    assert re.findall(r'"(g\d)"', text(few)) == ["g0", "g1"]


def test_reduction_of_a_collective_is_compared() -> None:
    skip_before("2.10", "an in-place collective does not tell its reduction")

    def reduced_by(op: Any) -> Capture:
        def reduced(x: Tensor) -> Tensor:
            y = x * 2
            dist.all_reduce(y, op=op)
            return y

        return capture(reduced, torch.ones(4), via="dispatch")

    total, largest = reduced_by(dist.ReduceOp.SUM), reduced_by(dist.ReduceOp.MAX)
    assert total.graphs != largest.graphs
    assert "torch.distributed.ReduceOp.MAX" in text(largest)
