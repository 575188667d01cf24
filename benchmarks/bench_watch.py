"""What a watch costs: the time of compiling, and of a warm step.

`python benchmarks/bench_watch.py [--profile]`. The subject: a training step of a BERT of 12
layers, one thread, with aot_eager. Targets: at most 1.05 times for a step that compiles, at most
1.02 times for a warm one. The yardstick is the same step without a watch.
"""

from __future__ import annotations

import cProfile
import pstats
import sys
from collections.abc import Callable
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))

import torch
from torch import nn
from transformers import BertConfig, BertModel

import pytest_torchgraph
from benchmarks.timing import paired, table

COLD, WARM = 1.05, 1.02
STEPS = 10
"""Warm steps that are timed together: one alone is too short for the clock."""


def model() -> tuple[nn.Module, torch.Tensor]:
    torch.manual_seed(0)
    config = BertConfig(
        hidden_size=64, num_hidden_layers=12, num_attention_heads=4, intermediate_size=128
    )
    return BertModel(config).train(), torch.randint(0, 100, (2, 16))


def main() -> None:
    torch.set_num_threads(1)
    bert, ids = model()
    compiled = torch.compile(bert, backend="aot_eager")

    def step() -> None:
        compiled(input_ids=ids).last_hidden_state.square().mean().backward()

    def cold() -> None:
        torch._dynamo.reset()
        step()

    def watched(work: Callable[[], None]) -> Callable[[], None]:
        def run() -> None:
            with pytest_torchgraph.watch():
                work()

        return run

    def warm() -> None:
        for _ in range(STEPS):
            step()

    rows = []
    rows.append(["a step that compiles", *paired(cold, watched(cold)), COLD])
    cold()
    name = f"{STEPS} warm steps, with opening the watch"
    rows.append([name, *paired(warm, watched(warm), repeat=21), WARM])
    table(["", "plain (s)", "watched (s)", "ratio", "of CPU time", "target"], rows)
    if "--profile" in sys.argv:
        profile = cProfile.Profile()
        profile.runcall(watched(cold))
        pstats.Stats(profile).sort_stats("tottime").print_stats("pytest_torchgraph", 20)


if __name__ == "__main__":
    main()
