"""Whether captures leave anything behind: memory of one process over many of them.

`python benchmarks/bench_memory.py [aot captures] [dispatch captures]`, by default 300 and
1000. Target: less than 10 MB between the 100th capture and the last, and no more than the same step
without us, under torch.compile with a backend that keeps nothing, or eagerly.

What stays of a capture by aot stays of every compilation, with nothing but torch: in torch 2.13 the
source of each GraphModule (`torch.fx.graph_module._loader.eval_cache`, and its line in linecache),
and the stacks in `torch._dynamo.utils.get_metrics_context()._edits`. No reset drops them.
"""

from __future__ import annotations

import gc
import multiprocessing
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1]))

import psutil

from benchmarks.timing import table

FIRST = 100


def step(kind: str) -> Callable[[], Any]:
    """One capture, or the same step without us."""
    import torch
    from torch._dynamo.backends.common import aot_autograd
    from torch._functorch.aot_autograd import make_boxed_func

    import pytest_torchgraph

    torch.set_num_threads(1)
    model = torch.nn.Sequential(
        torch.nn.Linear(32, 64), torch.nn.LayerNorm(64), torch.nn.GELU(), torch.nn.Linear(64, 8)
    )
    x = torch.randn(4, 32)

    def compiled() -> None:
        def forget(gm: torch.fx.GraphModule, _inputs: Any) -> Any:
            return make_boxed_func(gm.forward)

        torch._dynamo.reset()
        backend = aot_autograd(fw_compiler=forget, bw_compiler=forget)
        torch.compile(model, backend=backend)(x).sum().backward()
        torch._dynamo.reset()

    def eager() -> None:
        model(x).sum().backward()

    return {
        "torch.compile": compiled,
        "eager": eager,
        "capture(via='aot')": lambda: pytest_torchgraph.capture(model, x, via="aot"),
        "capture(via='dispatch')": lambda: pytest_torchgraph.capture(model, x, via="dispatch"),
    }[kind]


def measure(kind: str, count: int, results: Any) -> None:
    """Resident megabytes after the first hundred and after the last."""
    run = step(kind)
    process = psutil.Process()
    resident = []
    for number in range(1, count + 1):
        run()
        if number in (FIRST, count):
            gc.collect()
            resident.append(process.memory_info().rss / 2**20)
    results.put(resident)


def main() -> None:
    """Print the table."""
    aot, dispatch = (int(n) for n in (*sys.argv[1:], "300", "1000")[:2])
    counts = {
        "torch.compile": aot,
        "capture(via='aot')": aot,
        "eager": dispatch,
        "capture(via='dispatch')": dispatch,
    }
    context = multiprocessing.get_context("spawn")
    rows = []
    grown: dict[str, float] = {}
    without = {"capture(via='aot')": "torch.compile", "capture(via='dispatch')": "eager"}
    for kind, count in counts.items():
        results = context.Queue()
        process = context.Process(target=measure, args=(kind, count, results))
        process.start()
        first, last = results.get()
        process.join()
        grown[kind] = last - first
        alone = grown.get(without.get(kind, ""), 0)
        ratio = f"{grown[kind] / alone:.2f}" if alone > 1 else "-"
        rows.append((kind, count, round(first, 1), round(last, 1), f"{grown[kind]:+.1f}", ratio))
    heads = "in one process", "runs", f"MB after {FIRST}", "MB after all", "MB grown", "of it alone"
    table(heads, rows)


if __name__ == "__main__":
    main()
