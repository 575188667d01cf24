"""Ops with kernels that read a value back, compared with the profiler as an independent account."""

from __future__ import annotations

import os
import subprocess
import sys
import warnings
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from syncs import op_samples
from torch import Tensor

from pytest_torchgraph import capture

READS = {"aten::item", "aten::_local_scalar_dense", "aten::nonzero", "aten::_linalg_check_errors"}
P, E, N = torch.rand(5), torch.eye(3) + 0.1, torch.arange(3)
F = torch.ones(2, 2)
CASES: dict[str, Callable[[Tensor], Tensor]] = {
    "multinomial": lambda x: x.multinomial(2),
    "multinomial, one with replacement": lambda x: x.multinomial(1, True),
    "multinomial, with replacement": lambda x: x.multinomial(3, True),
    "normal, deviations": lambda x: torch.normal(0.0, x),
    "normal, both": lambda x: torch.normal(x, x),
    "normal, means": lambda x: torch.normal(x, 1.0),
    "matrix_exp": lambda x: torch.matrix_exp(x[:4].view(2, 2)),
    "matrix_exp, numbers": lambda x: torch.matrix_exp(x[:1].view(1, 1)),
    "index_fill, tensor": lambda x: x.index_fill(0, N, x.sum()),
    "index_fill, number": lambda x: x.index_fill(0, N, 1.0),
    "masked_fill, tensor": lambda x: x.masked_fill(x > 0.5, x.sum()),
    "masked_fill, number": lambda x: x.masked_fill(x > 0.5, 1.0),
    "fill_, tensor": lambda x: x.clone().fill_(x.sum()),
    "segment_reduce, unsafe": lambda x: torch.segment_reduce(
        x[:3], "sum", lengths=torch.ones(3, dtype=torch.int64), unsafe=True
    ),
    "searchsorted": lambda x: torch.searchsorted(x, x),
    "searchsorted, sorter": lambda x: torch.searchsorted(x, x, sorter=x.argsort()),
    "cholesky_ex": lambda x: torch.linalg.cholesky_ex(E * x[0].abs().clamp(1))[0],
    "cholesky_ex, checked": lambda x: torch.linalg.cholesky_ex(
        E * x[0].abs().clamp(1), check_errors=True
    )[0],
    "inv_ex, checked": lambda x: torch.linalg.inv_ex(E + x[0], check_errors=True)[0],
    "lstsq": lambda x: torch.linalg.lstsq(E + x[0], E)[0],
    "poisson": torch.poisson,
}


def reads(function: Callable[[Tensor], Tensor]) -> bool:
    """Return True if the profiler sees that a value is read back."""
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU]) as profile:
        function(P)
    return bool(READS & {event.name for event in profile.events()})


@pytest.mark.parametrize("name", CASES)
def test_op_is_a_sync_exactly_if_the_profiler_sees_a_read(name: str) -> None:
    function = CASES[name]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        expected = reads(function)
        seen = capture(function, P, via="dispatch")
    assert [sync.kind for sync in seen.syncs] == ["reads a value back"] * expected
    if expected:
        with pytest.raises(AssertionError, match="reads a value back"):
            seen.assert_no_syncs()
    else:
        seen.assert_no_syncs()


def test_value_that_only_a_cpu_kernel_reads_is_no_sync() -> None:
    assert reads(lambda x: x.var())
    capture(lambda x: x.var(), P, via="dispatch").assert_no_syncs()


@pytest.mark.parametrize("via", ["dispatch", "aot", "dynamo"])
def test_sampling_of_a_distribution_is_a_sync(via: str) -> None:
    def sample(x: Tensor) -> Tensor:
        return torch.multinomial(x.softmax(0), 1)

    (sync,) = capture(sample, P, via=via).syncs
    assert "multinomial" in sync.op


@pytest.mark.slow("the sample inputs of all of torch's ops, under the profiler")
def test_ops_that_read_back_are_those_of_torchs_own_samples() -> None:
    # In a process of its own: the import of torch's samples changes torch's global flags.
    tests = Path(__file__).parents[1]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(tests), str(tests.parent)])}
    script = [sys.executable, op_samples.__file__]
    printed = subprocess.run(
        script, env=environment, stdout=subprocess.PIPE, text=True, check=True
    ).stdout
    cells = [line.split() for line in printed.splitlines()]
    rows = [(op, int(reads), int(syncs)) for op, reads, syncs in cells]
    unseen = {op for op, reads, syncs in rows if reads > syncs}
    assert unseen - op_samples.CPU_KERNELS.keys() == set()
    unread = {op for op, reads, syncs in rows if syncs > reads}
    assert unread - op_samples.OTHER_DEVICES - op_samples.NOT_FOR_EMPTY == set()
    assert "aten.var.correction" in unseen, "the samples show no read of a CPU kernel"
    assert "aten.equal.default" in unread, "the samples show no sync of another device"
