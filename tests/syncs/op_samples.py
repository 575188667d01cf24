"""Ops that read a value back, by torch's own sample inputs of each op, under the profiler on a CPU.

`python tests/syncs/op_samples.py` prints a row for each op on which the profiler and the plugin do
not agree: the op, the calls that read by the profiler, and those that are syncs by the plugin.
"""

from __future__ import annotations

import itertools
import warnings
from collections import Counter
from collections.abc import Iterator
from typing import Any

import torch
from syncs import profiled

from pytest_torchgraph import capture

MOST_SAMPLES = 40
CPU_KERNELS = {
    "aten.cholesky_solve.default": "the CPU's LAPACK call checks its status",
    "aten.embedding_renorm_.default": "the CPU's loop reads each norm",
    "aten.histogram.bin_ct": "implemented for the CPU only",
    "aten.histogram.bins_tensor": "implemented for the CPU only",
    "aten._histogramdd_from_bin_cts.default": "implemented for the CPU only",
    "aten._histogramdd_from_bin_tensors.default": "implemented for the CPU only",
    "aten.linalg_inv_ex.default": "checks the pivots, as linalg_lu_solve does",
    "aten.linalg_ldl_solve.default": "the CPU's LAPACK call checks its status",
    "aten.linalg_lu_solve.default": "the CPU's kernel checks the pivots before LAPACK uses them",
    "aten._linalg_solve_ex.default": "checks the pivots, as linalg_lu_solve does",
    "aten.multilabel_margin_loss_forward.default": "the CPU's kernel checks the range of targets",
    "aten.rrelu_with_noise.default": "reads a tensor made from a number, on the CPU everywhere",
    "aten._scaled_mm.default": "the CPU's kernel reads the scales",
    "aten._scaled_mm_v2.default": "the CPU's kernel reads the scales",
    "aten.std.correction": "the CPU's kernel for one element",
    "aten.var.correction": "the CPU's kernel for one element",
}
"""Ops in which only the kernel of a CPU reads a value back, each with the reason."""
OTHER_DEVICES = {
    "aten._ctc_loss.Tensor",
    "aten._unique2.default",
    "aten.bincount.default",
    "aten.equal.default",
    "aten.unique_consecutive.default",
    "aten.unique_dim.default",
}
"""Ops that read a value back on a GPU, while the kernel of a CPU has it in its own memory."""
NOT_FOR_EMPTY = {
    "aten.cholesky.default",
    "aten._linalg_eigh.default",
    "aten._linalg_svd.default",
    "aten.linalg_matrix_exp.default",
    "aten.linalg_pinv.atol_rtol_tensor",
    "aten.searchsorted.Tensor",
}
"""Ops of which some calls read nothing on a CPU: of empty tensors, or of a batch."""


def disagreements() -> Iterator[tuple[str, int, int]]:
    """Yield each op with its calls that read by the profiler, and those that are syncs."""
    from torch.testing._internal.common_methods_invocations import op_db

    reads: Counter[str] = Counter()
    syncs: Counter[str] = Counter()
    for info in op_db:
        runs = list(_samples(info))
        if not runs:
            continue

        def run(x: torch.Tensor, info=info, runs=runs) -> torch.Tensor:
            for sample in runs:
                info(sample.input, *sample.args, **sample.kwargs)
            return x + 1

        x = torch.zeros(1)
        [ops] = profiled.reads_of([lambda run=run, x=x: run(x)])
        reads.update(op for op, reads_inside in ops if reads_inside)
        for sync in capture(run, x, via="dispatch").syncs:
            syncs[sync.op] += sync.occurrences
    for op in sorted(reads | syncs):
        if reads[op] != syncs[op]:
            yield op, reads[op], syncs[op]


def _samples(info: Any) -> Iterator[Any]:
    """Yield the first sample inputs with which an op runs here."""
    dtypes = sorted(info.dtypes, key=lambda dtype: (dtype != torch.float32, str(dtype)))
    try:
        for sample in itertools.islice(
            info.sample_inputs("cpu", (*dtypes, torch.float32)[0]), MOST_SAMPLES
        ):
            info(sample.input, *sample.args, **sample.kwargs)
            yield sample
    except Exception:  # an op of another device, or a sample without a compiler
        return


if __name__ == "__main__":
    warnings.simplefilter("ignore")
    for row in disagreements():
        print(*row)
