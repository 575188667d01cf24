"""What many ranks in one process cost: `bench_ranks.py [via] [rounds]`, by default dispatch and 50.

The model is a transformer of four layers with a tensor-parallel plan, captured forward and
backward. Ranks are compared with one rank of the same mesh; 1,024 ranks, of which three are chosen,
with three of eight. Targets: eight ranks take at most 8 times the time of one, and three of 1,024
at most 1.1 times that of three of eight. After the first tenth of the rounds memory must not grow
by more than it does without us: eight times the model made, split and run under the fake group.
"""

from __future__ import annotations

import gc
import multiprocessing
import sys
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1]))

import psutil

from benchmarks.timing import paired, table

LAYERS = 4
WIDTH = 64


def build(mesh: Any) -> tuple[Any, ...]:
    """The model, split, and its input."""
    import torch
    from torch.distributed.tensor.parallel import (
        ColwiseParallel,
        RowwiseParallel,
        parallelize_module,
    )

    class Block(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.norm = torch.nn.LayerNorm(WIDTH)
            self.query, self.key, self.value = (torch.nn.Linear(WIDTH, WIDTH) for _ in range(3))
            self.out = torch.nn.Linear(WIDTH, WIDTH)
            self.up = torch.nn.Linear(WIDTH, 4 * WIDTH)
            self.down = torch.nn.Linear(4 * WIDTH, WIDTH)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            y = self.norm(x)
            heads = [
                each(y).unflatten(-1, (-1, 8)).transpose(1, 2)
                for each in (self.query, self.key, self.value)
            ]
            attended = torch.nn.functional.scaled_dot_product_attention(*heads)
            x = x + self.out(attended.transpose(1, 2).flatten(2))
            return x + self.down(torch.nn.functional.gelu(self.up(x)))

    columns, rows = ColwiseParallel(), RowwiseParallel()
    inside = {"query": columns, "key": columns, "value": columns, "out": rows}
    plan = {f"*.{name}": how for name, how in {**inside, "up": columns, "down": rows}.items()}
    model = torch.nn.Sequential(*(Block() for _ in range(LAYERS)))
    return parallelize_module(model, mesh["tp"], plan), (torch.randn(2, 16, WIDTH),)


def step(via: str, ranks: tuple[int, ...], world: int) -> Callable[[], Any]:
    """Some ranks of a mesh, captured; or run without us."""
    from pytest_torchgraph import capture_ranks
    from pytest_torchgraph.ranks.fake_group import fake_rank

    mesh = {"dp": world // 4, "tp": 4}

    def alone() -> None:
        import torch

        for rank in ranks:
            torch._dynamo.reset()
            with fake_rank(rank, mesh, "cpu") as device_mesh:
                target, args = build(device_mesh)
                target(*args).sum().backward()

    return alone if via == "eager" else lambda: capture_ranks(build, ranks=ranks, via=via, **mesh)


def times(via: str) -> None:
    """Print the table of times."""
    rows = []
    for what, against, ranks, world in (
        ("8 of 8, beside one", step(via, (5,), 8), tuple(range(8)), 8),
        ("3 of 1,024, beside 3 of 8", step(via, (0, 1, 7), 8), (0, 1, 1023), 1024),
    ):
        repeat = 7 if via == "dispatch" else 3
        one, many, ratio, busy = paired(against, step(via, ranks, world), repeat)
        rows.append((via, what, round(1000 * one), round(1000 * many), ratio, busy))
    heads = "via", "ranks", "yardstick, ms", "ranks, ms", "ratio", "of processor time"
    table(heads, rows)


def measure(via: str, ranks: tuple[int, ...], world: int, rounds: int, results: Any) -> None:
    """Resident megabytes after the first round, after a tenth of them, and after the last."""
    prepare()
    run = step(via, ranks, world)
    process = psutil.Process()
    resident = []
    kept = None
    for number in range(1, rounds + 1):
        kept = run()
        if number in (1, max(2, rounds // 10), rounds):
            gc.collect()
            resident.append(process.memory_info().rss / 2**20)
    del kept
    results.put(resident)


def memory(via: str, rounds: int) -> None:
    """Print the table of memory, each line from a process of its own."""
    context = multiprocessing.get_context("spawn")
    rows = []
    for how, ranks, world in (
        ("eager", tuple(range(8)), 8),
        (via, (5,), 8),
        (via, tuple(range(8)), 8),
        (via, (0, 1, 7), 8),
        (via, (0, 1, 1023), 1024),
    ):
        results = context.Queue()
        process = context.Process(target=measure, args=(how, ranks, world, rounds, results))
        process.start()
        first, tenth, last = results.get()
        process.join()
        said = f"{len(ranks)} of {world:,}"
        rows.append((how, said, rounds, round(first), round(tenth), f"{last - tenth:+.1f}"))
    table(("via", "ranks", "rounds", "MB after 1", "MB after 1/10", "MB grown"), rows)


def prepare() -> None:
    """One thread, and none of torch's warnings."""
    import torch

    warnings.simplefilter("ignore")
    torch.set_num_threads(1)


if __name__ == "__main__":
    prepare()
    asked, repeats = (*sys.argv[1:], *("dispatch", "50")[len(sys.argv) - 1 :])
    times(asked)
    memory(asked, int(repeats))
