"""A capture via inductor with and without compiling its code, each in a new process and cache.

`python benchmarks/bench_codegen.py 2`: a stack of that many transformer blocks, forward and
backward. Both print the same kernels.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))

from benchmarks.timing import table

STEP = """
import sys, time
import torch
from pytest_torchgraph import Inductor, capture

torch.manual_seed(0)
layer = torch.nn.TransformerEncoderLayer(32, 4, 64, dropout=0.0, batch_first=True)
model = torch.nn.TransformerEncoder(layer, int(sys.argv[1]), enable_nested_tensor=False)
via = Inductor(codegen=sys.argv[2] == "compiled")
for _ in range(2):
    start = time.perf_counter()
    found = capture(model, torch.randn(2, 8, 32), via=via)
    print(time.perf_counter() - start)
print(found.op_counts.total())
print(*(kernel.name for kernel in found.kernels))
"""


def measured(layers: int, how: str) -> list[str]:
    """Seconds of the first capture and of the second, number of ops, names of the kernels."""
    with tempfile.TemporaryDirectory() as folder:
        environment = {
            **os.environ,
            "PYTHONPATH": str(Path(__file__).parents[1]),
            "TORCHINDUCTOR_CACHE_DIR": folder,
        }
        command = [sys.executable, "-W", "ignore", "-c", STEP, str(layers), how]
        done = subprocess.run(command, env=environment, capture_output=True, text=True, check=True)
    return done.stdout.splitlines()


def main() -> None:
    """Print the table."""
    layers = int(sys.argv[1]) if len(sys.argv) > 1 else 2
    written, compiled = (measured(layers, how) for how in ("written", "compiled"))
    assert written[2:] == compiled[2:], "the kernels differ"
    rows = [
        (how, int(found[2]), len(found[3].split()), float(found[0]), float(found[1]))
        for how, found in (("codegen=False", written), ("codegen=True", compiled))
    ]
    table(("Inductor", "ops", "kernels and calls", "cold s", "again s"), rows)


if __name__ == "__main__":
    main()
