"""Failures name ranks whose collectives disagree, with both orders and the source lines."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.distributed as dist
import torch.distributed._functional_collectives as functional
from ranks.parallel_models import DIM, ROWS, in_place, stages
from torch import Tensor, nn
from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.fsdp import fully_shard
from torch_releases import skip_before

from pytest_torchgraph import Ranks, capture_ranks

Step = Callable[[Tensor, Callable[[str], Any]], Tensor]
ORDER = "the ranks communicate in different orders"
NUMBERS = "the ranks run different numbers of collectives, which deadlocks if they share"
SAME_ORDER = (
    "the ranks communicate in the same order, but send different data, which hangs or gives wrong "
    "results. The first difference is at collective 0 (rank 1 vs. rank 0):"
)
WAITING = "so they would deadlock"


def ranks_of(step: Step, ranks: Any = None, via: str = "dispatch", **mesh: int) -> Ranks:
    """Capture ranks of a step that is called with a tensor and a function returning groups."""

    def build(mesh: DeviceMesh) -> tuple[Any, ...]:
        return lambda x: step(x, mesh.get_group), (torch.ones(4),)

    return capture_ranks(build, ranks=ranks, via=via, **(mesh or {"dp": 2, "tp": 2}))


def reduce(x: Tensor, group: Any, by: str = "sum") -> Tensor:
    return functional.all_reduce(x * 2, by, group)


def test_in_place_collective_agrees_with_a_functional_one() -> None:
    skip_before("2.10", "an in-place collective does not tell its reduction")

    def step(x: Tensor, group: Any) -> Tensor:
        if dist.get_rank() % 2:
            return functional.all_reduce(x, "sum", group("tp"))
        x = x.clone()
        dist.all_reduce(x, group=group("tp"))
        return x

    ranks_of(step, tp=2).assert_same_collectives()
    with pytest.raises(AssertionError, match=r"\(float32 max\)  vs\. .*\(float32 sum\)"):
        ranks_of(another_way, tp=2).assert_same_collectives()


def another_way(x: Tensor, group: Any) -> Tensor:
    if dist.get_rank() % 2:
        return functional.all_reduce(x, "max", group("tp"))
    x = x.clone()
    dist.all_reduce(x, group=group("tp"))
    return x


def message(check: Callable[[], None]) -> str:
    with pytest.raises(AssertionError) as error:
        check()
    return str(error.value)


def missing(x: Tensor, group: Any) -> Tensor:
    return x + 1 if dist.get_rank() == 1 else reduce(x, group("tp"))


def another_group(x: Tensor, group: Any) -> Tensor:
    return reduce(x, group("dp" if dist.get_rank() == 1 else "tp"))


def another_size(x: Tensor, group: Any) -> Tensor:
    return reduce(x[:2] if dist.get_rank() == 1 else x, group("tp"))


def another_dtype(x: Tensor, group: Any) -> Tensor:
    return reduce(x.int() if dist.get_rank() == 1 else x, group("tp"))


def another_reduction(x: Tensor, group: Any) -> Tensor:
    return reduce(x, group("tp"), "max" if dist.get_rank() == 1 else "sum")


def another_root(x: Tensor, group: Any) -> Tensor:
    return functional.broadcast(x * 2, int(dist.get_rank() == 1), group("tp"))


@pytest.mark.slow("runs pytest in a new process", unless=["*dispatch"])
@pytest.mark.parametrize("via", ["dispatch", "aot"])
@pytest.mark.parametrize(
    ("step", "row"),
    [
        (missing, "0  nothing  vs.  all_reduce over tp, 16 bytes"),
        (another_group, "0  all_reduce over dp, 16 bytes  vs.  all_reduce over tp, 16 bytes"),
        (another_size, "0  all_reduce over tp, 8 bytes  vs.  all_reduce over tp, 16 bytes"),
        (
            another_dtype,
            "0  all_reduce over tp, 16 bytes (int32 sum)  vs.  all_reduce over tp, 16 bytes "
            "(float32 sum)",
        ),
        (another_reduction, "16 bytes (float32 max)  vs.  all_reduce over tp, 16 bytes (float"),
        (another_root, "broadcast over tp, 16 bytes (float32 1)  vs.  broadcast over tp, 16 by"),
    ],
    ids=lambda value: getattr(value, "__name__", ""),
)
def test_disagreeing_rank_is_named(step: Step, row: str, via: str) -> None:
    ranks = ranks_of(step, ranks=(0, 1), via=via)
    for check in (ranks.assert_same_graphs, ranks.assert_same_collectives):
        text = message(check)
        assert "rank 1 (dp=0, tp=1) compared with rank 0 (dp=0, tp=0):" in text
        assert {missing: NUMBERS, another_group: ORDER}.get(step, SAME_ORDER) in text
        assert row in text
        assert "collective 0 of rank 0: %" in text
        assert "test_agreement.py:" in text
    matching = message(ranks.assert_matching_collectives)
    assert "rank 0 waits forever" in matching
    details = "" if step in (missing, another_group, another_size) else " (float32 "
    assert f"over tp, 16 bytes{details}" in matching
    assert " forever for rank 1 in " in matching
    assert "test_agreement.py:" in matching


def test_deadlock_is_reported_if_certain() -> None:
    """A rank continues once all ranks of the group have entered the collective."""

    def turned(x: Tensor, group: Any) -> Tensor:
        names = ("dp", "tp") if dist.get_rank() in others else ("tp", "dp")
        return reduce(reduce(x, group(names[0])), group(names[1]))

    others = {0, 3}
    waiting = ranks_of(turned)
    assert WAITING in message(waiting.assert_same_graphs)
    text = message(waiting.assert_matching_collectives)
    assert text.count("waits forever for") == 4
    assert "rank 0 waits forever for rank 2 in all_reduce over dp, 16 bytes: %" in text
    assert "rank 1 waits forever for rank 0 in all_reduce over tp, 16 bytes: %" in text
    # 0 and 1 reduce over tp, then 1 and 3 over dp, then 2 and 3 over tp, then 0 and 2 over dp.
    others = {3}
    going = ranks_of(turned)
    text = message(going.assert_same_graphs)
    assert WAITING not in text
    assert f"{ORDER}, which deadlocks if they share a group. The first" in text
    going.assert_matching_collectives()


def test_ranks_without_a_common_group_do_not_deadlock() -> None:
    def half(x: Tensor, group: Any) -> Tensor:
        return reduce(x, group("tp")) if dist.get_rank() < 2 else x + 1

    ranks = ranks_of(half)
    assert WAITING not in message(ranks.assert_same_collectives)
    ranks.assert_matching_collectives()
    ranks.assert_same_collectives(across="tp")


def test_ranks_that_agree_match() -> None:
    ranks = capture_ranks(in_place, dp=2, tp=2, via="dispatch")
    ranks.assert_matching_collectives()
    ranks.assert_same_collectives()


def test_roots_have_more_tensors_than_others_and_agree() -> None:
    def step(x: Tensor, group: Any) -> Tensor:
        tp = group("tp")
        root = tp.rank() == 0
        y = x * 2
        dist.scatter(y, [x, x] if root else None, group_src=0, group=tp)
        dist.gather(y, [torch.empty(4), torch.empty(4)] if root else None, group_dst=0, group=tp)
        return y + 1

    ranks = ranks_of(step, tp=2)
    assert [[c.bytes for c in each.collectives] for each in ranks] == [[32, 32], [16, 16]]
    ranks.assert_same_collectives()
    ranks.assert_matching_collectives()


@pytest.mark.parametrize("kind", ["scatter", "gather"])
def test_ranks_that_disagree_on_the_root_do_not_match(kind: str) -> None:
    def step(x: Tensor, group: Any) -> Tensor:
        y, parts, root = x * 2, [torch.ones(4), torch.ones(4)], dist.get_rank()
        if kind == "scatter":
            dist.scatter(y, parts, group_src=root, group=group("tp"))
        else:
            dist.gather(y, parts, group_dst=root, group=group("tp"))
        return y

    ranks = ranks_of(step, tp=2)
    assert f"{kind} over tp (float32 [4] 1)  vs.  {kind}" in message(ranks.assert_same_collectives)
    assert "rank 0 waits forever for rank 1" in message(ranks.assert_matching_collectives)


def test_all_to_all_may_be_uneven() -> None:
    def step(x: Tensor, group: Any) -> Tensor:
        rows = [1, 3] if dist.get_rank() == 0 else [3, 3]
        x = torch.ones(sum(rows)) * x.sum()
        return functional.all_to_all_single(x, rows, rows, group("tp"))

    ranks = ranks_of(step, tp=2)
    assert [rank_capture.collectives[0].bytes for rank_capture in ranks] == [16, 24]
    ranks.assert_matching_collectives()
    assert "24 bytes  vs.  all_to_all over tp, 16 b" in message(ranks.assert_same_collectives)


# -- sends and receives ----------------------------------------------------------------------------


@pytest.mark.parametrize("via", ["dispatch", "aot"])
def test_all_to_all_with_other_split_sizes_than_expected_does_not_match(via: str) -> None:
    def step(x: Tensor, group: Any) -> Tensor:
        return functional.all_to_all_single(x * 2, [1, 3], [2, 2], group("tp")) + 1

    text = message(ranks_of(step, tp=2, via=via).assert_matching_collectives)
    assert "rank 0 sends 2 to rank 1, which expects 1:" in text
    assert text.count("test_agreement.py:") == 2


def test_pipeline_with_different_stages_matches() -> None:
    ranks = capture_ranks(stages, dp=4, via="dispatch")
    ranks.assert_matching_collectives()
    assert [[(c.kind, c.group, c.peer) for c in each.collectives] for each in ranks] == [
        [("send", "dp", 1)],
        [("recv", "dp", 0), ("send", "dp", 2)],
        [("recv", "dp", 1), ("send", "dp", 3)],
        [("recv", "dp", 2)],
    ]
    assert {c.bytes for each in ranks for c in each.collectives} == {ROWS * DIM * 4}
    text = message(ranks.assert_same_collectives)
    assert f"{ORDER}. The first difference is at collective 0 (rank 1 vs. rank 0):" in text


def exchanged(
    *, sends: int, receives: int, size: int = 4, dtype: torch.dtype = torch.float32
) -> Ranks:
    def step(x: Tensor, group: Any) -> Tensor:
        if dist.get_rank() == 0:
            for _ in range(sends):
                dist.send(x, group_dst=1, group=group("pp"))
        else:
            for _ in range(receives):
                dist.recv(x[:size].to(dtype), group_src=0, group=group("pp"))
        return x + 1

    return ranks_of(step, pp=2)


def test_send_and_receive_in_one_batch_match() -> None:
    def step(x: Tensor, group: Any) -> Tensor:
        pp, y = group("pp"), torch.empty_like(x)
        other = 1 - dist.get_rank()
        ends = [dist.P2POp(dist.isend, x, group_peer=other, group=pp)]
        ends.append(dist.P2POp(dist.irecv, y, group_peer=other, group=pp))
        for work in dist.batch_isend_irecv(ends):
            work.wait()
        return x + y

    ranks = ranks_of(step, pp=2)
    ranks.assert_matching_collectives()
    assert [[c.peer for c in each.collectives] for each in ranks] == [[1, 1], [0, 0]]


def test_send_without_a_receive_fails() -> None:
    exchanged(sends=2, receives=2).assert_matching_collectives()
    text = message(exchanged(sends=2, receives=1).assert_matching_collectives)
    assert (
        "rank 0 sends to rank 1 without a matching receive (1 time, first 16 bytes float32):"
        in text
    )
    assert "test_agreement.py:" in text
    text = message(exchanged(sends=0, receives=2).assert_matching_collectives)
    assert "rank 1 receives from rank 0 without a matching send (2 times, first " in text
    text = message(exchanged(sends=1, receives=1, size=2).assert_matching_collectives)
    assert "send 0 from rank 0 to rank 1 differs from its receive:" in text
    assert "16 bytes float32: %send" in text
    assert "8 bytes float32: %recv_" in text
    ranks = exchanged(sends=1, receives=1, dtype=torch.int32)
    text = message(ranks.assert_matching_collectives)
    assert "send 0 from rank 0 to rank 1 differs from its receive:" in text
    assert "16 bytes int32: %recv_" in text


def test_ranks_without_collectives_fail() -> None:
    def apart(x: Tensor, group: Any) -> Tensor:
        return reduce(x, group("tp"))

    with pytest.raises(ValueError, match="no two of these ranks communicate with each other"):
        ranks_of(apart, ranks=(0, 2)).assert_matching_collectives()
    with pytest.raises(AssertionError, match="no rank runs a collective, a send or a receive"):
        ranks_of(lambda x, group: x + 1).assert_matching_collectives()


class Block(nn.Module):
    def __init__(self, width: int, out: int):
        super().__init__()
        self.fc = nn.Linear(width, out)

    def forward(self, x: Tensor) -> Tensor:
        return torch.relu(self.fc(x))


class Sharded(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.down, self.up = Block(8, 16), Block(16, 8)
        self.first, self.second = Block(16, 16), Block(16, 16)
        self.between = nn.Linear(16, 16)

    def forward(self, x: Tensor) -> Tensor:
        return self.up(self.second(self.between(self.first(self.down(x)))))


def prefetching(mesh: DeviceMesh) -> tuple[Any, ...]:
    """Shard with FSDP2. One rank gathers the last block too early."""
    net = Sharded()
    for block in (net.down, net.first, net.second, net.up):
        fully_shard(block, mesh=mesh["dp"])
    fully_shard(net, mesh=mesh["dp"])
    if dist.get_rank() == 1:
        net.first.set_modules_to_forward_prefetch([net.up, net.second])  # type: ignore[operator]
    return net, (torch.randn(4, 8),)


def test_collective_order_follows_the_run_across_graph_breaks() -> None:
    """Equal layers share a compiled graph. Other graphs run between the runs of this graph."""
    ranks = capture_ranks(prefetching, dp=2, via="dispatch")
    assert "in the same order" in message(ranks.assert_same_collectives)
    assert "in all_gather" in message(ranks.assert_matching_collectives)


@pytest.mark.slow("compiles many times")
def test_collectives_across_graph_breaks_equal_the_eager_run() -> None:
    def sent(via: str) -> list[tuple[str, int]]:
        (rank,) = capture_ranks(prefetching, dp=2, ranks=(0,), via=via)
        return [(collective.kind, collective.bytes) for collective in rank.collectives]

    assert sent("aot") == sent("dispatch")
    assert len(sent("aot")) > 6
