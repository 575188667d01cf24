"""Where Python waits for the GPU: what a capture on the CPU says is what CUDA does."""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_map

from pytest_torchgraph import capture

WAITS = "called a synchronizing CUDA operation"
STATEMENTS: dict[str, Callable[[Tensor], object]] = {
    "add": lambda x: x + 1,
    "sum": lambda x: x.sum(),
    "softmax": lambda x: x.softmax(-1),
    "std": lambda x: x.std(),
    "sort": lambda x: x.sort(),
    "topk": lambda x: x.topk(2),
    "cumsum": lambda x: x.cumsum(0),
    "where with three": lambda x: torch.where(x > 0, x, 0),
    "masked_fill": lambda x: x.masked_fill(x > 0, 1.0),
    "clamp": lambda x: x.clamp(-1, 1),
    "norm": lambda x: x.norm(),
    "rand": lambda x: x + torch.rand_like(x),
    "dropout": lambda x: nn.functional.dropout(x, 0.5),
    "tensor of a number": lambda x: x + torch.tensor(1.0, device=x.device),
    "full": lambda x: x + torch.full((4, 4), 2.0, device=x.device),
    "index by a list": lambda x: x[[0, 1]],
    "index by a tensor": lambda x: x[torch.arange(2, device=x.device)],
    "index by a mask": lambda x: x[x > 0],
    "write by a mask": lambda x: x.clone().index_put_((x > 0,), torch.zeros((), device=x.device)),
    "write by an index": lambda x: x.clone().index_put_(
        (torch.arange(2, device=x.device),), torch.zeros((), device=x.device)
    ),
    "item": lambda x: x + x.sum().item(),
    "if": lambda x: x + 1 if x.sum() > 0 else x,
    "int": lambda x: x + int(x.sum()),
    "tolist": lambda x: x + x[0, 0].tolist(),
    "cpu": lambda x: x.cpu() + 1,
    "nonzero": lambda x: x.nonzero(),
    "where with one": lambda x: torch.where(x > 0),
    "masked_select": lambda x: x.masked_select(x > 0),
    "unique": lambda x: x.unique(),
    "bincount": lambda x: x.long().abs().flatten().bincount(),
    "equal": lambda x: x + torch.equal(x, x + 1),
    "allclose": lambda x: x + torch.allclose(x, x + 1),
    "repeat_interleave": lambda x: x.repeat_interleave(torch.tensor(2, device=x.device), 0),
    "repeats of a known size": lambda x: x.repeat_interleave(
        torch.ones(4, dtype=torch.int64, device=x.device), 0, output_size=4
    ),
    "solve": lambda x: torch.linalg.solve(x, x),
    "solve_ex": lambda x: torch.linalg.solve_ex(x, x),
    "cholesky": lambda x: torch.linalg.cholesky(x @ x.T + 4 * torch.eye(4, device=x.device)),
    "inv": lambda x: torch.linalg.inv(x),
    "svd": lambda x: torch.linalg.svd(x),
    "eigh": lambda x: torch.linalg.eigh(x + x.T),
    "qr": lambda x: torch.linalg.qr(x),
    "clip_grad_norm": lambda x: nn.utils.clip_grad_norm_([nn.Parameter(x.clone())], 1.0),
    "cross_entropy": lambda x: nn.functional.cross_entropy(x, torch.arange(4, device=x.device)),
    "embedding": lambda x: nn.functional.embedding(torch.arange(2, device=x.device), x),
    "one_hot of known classes": lambda x: nn.functional.one_hot(
        torch.arange(2, device=x.device), 4
    ),
    "one_hot": lambda x: nn.functional.one_hot(torch.arange(2, device=x.device)),
    "multinomial": lambda x: x.softmax(-1).multinomial(1),
    "histc": lambda x: x.histc(4),
    "histc with a range": lambda x: x.histc(4, 0, 1),
}


@contextmanager
def waiting_is_an_error() -> Iterator[None]:
    before = torch.cuda.get_sync_debug_mode()
    torch.cuda.set_sync_debug_mode("error")
    try:
        yield
    finally:
        torch.cuda.set_sync_debug_mode(before)


def waits(function: Callable[[Tensor], object], x: Tensor) -> bool:
    """Return True if Python waits for the GPU in a call."""
    function(x)  # the first call of a library may wait to start it
    torch.cuda.synchronize()
    try:
        with waiting_is_an_error():
            function(x)
    except RuntimeError as error:
        if WAITS not in str(error):
            raise
        return True
    return False


def example() -> Tensor:
    return torch.linspace(-1, 2, 16).reshape(4, 4) + 2 * torch.eye(4)


@pytest.mark.parametrize("name", STATEMENTS)
def test_cpu_says_what_cuda_does(name: str, gpu: torch.device) -> None:
    function = STATEMENTS[name]
    says = bool(capture(function, example(), via="dispatch").syncs)
    on_gpu = bool(capture(function, example(), via="dispatch", device=gpu).syncs)
    assert on_gpu == says
    if gpu.type != "cuda":
        pytest.skip("the rehearsal has no GPU")
    assert waits(function, example().to(gpu)) == says


COPIES: dict[str, tuple[Callable[[Tensor, str], Tensor], bool]] = {
    "to the device": (lambda x, device: x.to(device), False),
    "to the device without waiting": (lambda x, device: x.to(device, non_blocking=True), False),
    "pinned, without waiting": (
        lambda x, device: x.pin_memory().to(device, non_blocking=True) if device != "cpu" else x,
        False,
    ),
    "to the host": (lambda x, device: x.to("cpu"), True),
    "to the host without waiting": (lambda x, device: x.to("cpu", non_blocking=True), True),
}


@pytest.mark.parametrize("name", COPIES)
def test_copies_are_transfers_and_wait_as_cuda_does(name: str, gpu: torch.device) -> None:
    function, from_gpu = COPIES[name]
    x = torch.randn(4, 4).to(gpu if from_gpu else "cpu")

    def target(x: Tensor) -> object:
        return function(x, gpu.type) + 1

    captured = capture(target, x, via="dispatch")
    if gpu.type != "cuda":
        pytest.skip("the rehearsal has no GPU")
    (transfer,) = captured.transfers
    pair = (transfer.source.partition(":")[0], transfer.target.partition(":")[0])
    assert pair == (("cuda", "cpu") if from_gpu else ("cpu", "cuda"))
    assert bool(captured.syncs) == waits(target, x)


class Waiting(TorchDispatchMode):
    """Counts the calls of each op, and those in which Python waits for the GPU."""

    def __init__(self) -> None:
        super().__init__()
        self.calls: Counter[str] = Counter()
        self.waits: Counter[str] = Counter()

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        self.calls[str(func)] += 1
        try:
            with waiting_is_an_error():
                return func(*args, **(kwargs or {}))
        except RuntimeError as error:
            if WAITS not in str(error):
                raise
        self.waits[str(func)] += 1
        return func(*args, **(kwargs or {}))


MOST_SAMPLES = 6


def samples_of(info: Any) -> list[Any]:
    """Return the first of torch's sample inputs of an op, on the CPU."""
    dtypes = sorted(info.dtypes, key=lambda dtype: (dtype != torch.float32, str(dtype)))
    samples = info.sample_inputs("cpu", (*dtypes, torch.float32)[0])
    return list(itertools.islice(samples, MOST_SAMPLES))


def on(device: torch.device, value: Any) -> Any:
    return tree_map(lambda x: x.detach().to(device) if isinstance(x, Tensor) else x, value)


def test_torchs_samples_wait_where_the_cpu_says(cuda: torch.device) -> None:
    """Each op of torch's sample inputs: where it waits on CUDA, a capture on the CPU says so."""
    pytest.importorskip("expecttest")
    from torch.testing._internal.common_methods_invocations import op_db

    says: Counter[str] = Counter()
    does: Counter[str] = Counter()
    ran: Counter[str] = Counter()
    for info in op_db:
        try:
            for sample in samples_of(info):
                call = (sample.input, tuple(sample.args), dict(sample.kwargs))
                own, other = on(torch.device("cpu"), call), on(cuda, call)
                info(other[0], *other[1], **other[2])  # the first call may start a library
                with Waiting() as waiting:
                    info(other[0], *other[1], **other[2])
                captured = capture(lambda x, c=own: (info(c[0], *c[1], **c[2]), x + 1)[1],  # noqa: B023
                                   torch.zeros(1), via="dispatch")  # fmt: skip
                ran.update(waiting.calls)
                does.update(waiting.waits)
                for sync in captured.syncs:
                    says[sync.op] += sync.occurrences
        except Exception:  # an op of another device, or one that a capture refuses
            continue
    assert len(ran) > 300
    unlike = {op: (does[op], says[op]) for op in ran if bool(does[op]) != bool(says[op])}
    assert unlike == {}, "op: (calls that wait on CUDA, syncs that the CPU's capture lists)"
