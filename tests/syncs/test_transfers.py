"""Copies between devices, with the meta device in place of an accelerator."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor

from pytest_torchgraph import Capture, Transfer, capture, watch
from pytest_torchgraph.graph import TensorMeta
from pytest_torchgraph.syncs.op_calls import SyncCall, device_copy_of, may_sync_or_copy, sync_kind

pytestmark = pytest.mark.gpu


def moved(x: Tensor) -> Tensor:
    y = x * 2
    return y.to("meta") + 1


def without_waiting(x: Tensor) -> Tensor:
    return (x * 2).to("meta", non_blocking=True) + 1


def copied_into(x: Tensor) -> Tensor:
    return torch.empty(3, device="meta").copy_(x) + 1


def copied_at_once(x: Tensor) -> Tensor:
    into = [torch.empty(3), torch.empty(3, device="meta")]
    torch._foreach_copy_(into, [torch.ones(3), x])
    return into[1] + 1


def indexed(x: Tensor) -> Tensor:
    return x[torch.tensor([2, 0])]


def cast(x: Tensor) -> Tensor:
    return x.to(torch.float64).to("cpu") + torch.zeros_like(x, device="cpu")


def branching(x: Tensor) -> Tensor:
    x = x * 2
    print("seen")
    return x + 1


def example(device: str = "cpu") -> Tensor:
    return torch.ones(3, device=device)


def watched(x: Tensor) -> Capture:
    torch._dynamo.reset()
    with watch() as seen:
        torch.compile(moved, backend="aot_eager")(x)
    return seen


@pytest.mark.parametrize("via", ["dispatch", "aot", "dynamo", "watch"])
def test_transfer_is_found_on_its_line(via: str) -> None:
    seen = watched(example()) if via == "watch" else capture(moved, example(), via=via)
    (transfer,) = seen.transfers
    assert isinstance(transfer, Transfer)
    line = moved.__code__.co_firstlineno + 2
    assert (transfer.source, transfer.target, transfer.line) == ("cpu", "meta", line)
    assert (transfer.code, transfer.function) == ('return y.to("meta") + 1', "moved")
    with pytest.raises(
        AssertionError, match=r"transfers between devices: expected none, found 1\n  1\. "
    ) as failure:
        seen.assert_no_transfers()
    assert f"test_transfers.py:{line} in moved: return y.to" in str(failure.value)
    assert f"from cpu to meta: {transfer.op} (in graph 'inference')" in str(failure.value)
    seen.assert_no_transfers(allow="from cpu to meta")


@pytest.mark.parametrize("via", ["dispatch", "aot"])
def test_transfer_is_a_sync_unless_non_blocking(via: str) -> None:
    blocking, free = (capture(f, example(), via=via) for f in (moved, without_waiting))
    assert blocking.transfers[0].blocking
    (sync,) = blocking.syncs
    assert sync.kind == "copies between host and device"
    assert not free.transfers[0].blocking
    free.assert_no_syncs()
    with pytest.raises(AssertionError, match="Python does not wait"):
        free.assert_no_transfers()


@pytest.mark.parametrize("via", ["dispatch", "aot"])
@pytest.mark.parametrize("function", [copied_into, copied_at_once, indexed])
def test_copy_into_another_tensor_or_of_indices_is_a_transfer_and_a_sync(
    function: Any, via: str
) -> None:
    seen = capture(function, example("meta" if function is indexed else "cpu"), via=via)
    (transfer,) = seen.transfers
    assert (transfer.source, transfer.target) == ("cpu", "meta")
    assert transfer.blocking
    assert (transfer.op == "aten.index.Tensor") == (function is indexed)
    (sync,) = seen.syncs
    assert (sync.kind, sync.op) == ("copies between host and device", transfer.op)
    for check in (seen.assert_no_syncs, seen.assert_no_transfers):
        with pytest.raises(AssertionError, match=f"in {function.__name__}: "):
            check()


@pytest.mark.parametrize("device", ["cpu", "cuda"])
def test_fill_reads_a_value_back_unless_the_host_has_it(device: str) -> None:
    tensor, mask = TensorMeta("f32", (3,), (1,), "cuda"), TensorMeta("bool", (3,), (1,), "cuda")
    value = TensorMeta("f32", (), (), device)
    call = SyncCall("aten.masked_fill.Tensor", (tensor, mask, value), {}, tensor)
    assert may_sync_or_copy(call.op)
    assert sync_kind(call) == ("reads a value back" if device == "cuda" else "")


def test_tensor_from_python_numbers_on_a_device_is_a_transfer() -> None:
    """Dispatch records this for `torch.tensor([1.0], device="cuda")`, but not on CPU and meta."""

    def lifted(device: str) -> SyncCall:
        tensor = TensorMeta("f32", (1,), (1,), device)
        return SyncCall("aten.lift_fresh.default", (tensor,), {}, tensor)

    assert device_copy_of(lifted("cuda")) == ("cpu", "cuda", True)
    assert sync_kind(lifted("cuda")) == "copies between host and device"
    for device in ("cpu", "meta"):
        assert device_copy_of(lifted(device)) is None
        assert sync_kind(lifted(device)) == ""
    assert may_sync_or_copy("aten.lift_fresh.default")


@pytest.mark.parametrize("via", ["dispatch", "aot", "dynamo", "export"])
def test_copy_on_the_same_device_is_not_a_transfer(via: str) -> None:
    seen = capture(cast, example(), via=via)
    assert seen.transfers == ()
    seen.assert_no_transfers()


def test_copy_that_ran_eagerly_is_found() -> None:
    @torch.compiler.disable
    def disabled(x: Tensor) -> Tensor:
        return x.to("meta")

    def moving(x: Tensor) -> Tensor:
        x = x * 2
        return x * len(disabled(x))

    seen = capture(moving, example(), via="aot")
    transfer, unknown = seen.transfers
    assert (transfer.source, transfer.target, transfer.seen) == ("cpu", "meta", "eager_0")
    assert (transfer.code, transfer.function) == ('return x.to("meta")', "disabled")
    assert not unknown.certain
    assert [sync.kind for sync in seen.syncs if sync.certain] == ["copies between host and device"]


def test_transfers_at_a_graph_break_are_unknown() -> None:
    seen = capture(branching, example())
    (transfer,) = seen.transfers
    assert not transfer.certain
    assert str(transfer).endswith(
        "\nran eagerly at a graph break: Failed to trace builtin operator"
    )
    with pytest.raises(AssertionError, match="0 certain and 1 possible"):
        seen.assert_no_transfers()
    seen.assert_no_transfers(allow="print")
    capture(branching, example(), via="dispatch").assert_no_transfers()
