"""The cost of `assert_cacheable`, and of `restart` against two compilations by hand.

`python benchmarks/bench_warm_start.py [PAIRS [SUBJECT...]]`, time on the processor. Targets:
50 ms a graph; a restart at most 1.05 times the compilations by hand. C++ kernels are left out of
both: their compiler takes most of the time and would hide the rest.
"""

from __future__ import annotations

import os
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from shutil import rmtree
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1]))

import torch
from subjects.cache_cases import kernels_left_out
from torch import nn
from torch._inductor.utils import clear_caches
from transformers import BertConfig, BertModel, GPT2Config, GPT2Model

import pytest_torchgraph as tg
from benchmarks.timing import paired, table


class Autocast(nn.Module):
    """A model under autocast, inside the compiled function."""

    def __init__(self, model: nn.Module) -> None:
        super().__init__()
        self.model = model

    def forward(self, ids: torch.Tensor) -> Any:
        with torch.autocast("cpu", dtype=torch.bfloat16):
            return self.model(ids)


def models() -> dict[str, tuple[nn.Module, torch.Tensor]]:
    """Models with their input, by name."""
    torch.manual_seed(0)
    ids = torch.randint(0, 100, (2, 16))
    sizes: dict[str, Any] = {"vocab_size": 100}
    bert = BertConfig(
        hidden_size=64, num_attention_heads=4, intermediate_size=128, num_hidden_layers=12, **sizes
    )
    gpt2 = GPT2Config(n_embd=64, n_head=4, n_layer=4, n_positions=32, use_cache=False, **sizes)
    mlp = nn.Sequential(nn.Linear(16, 32), nn.GELU(), nn.Linear(32, 16))
    return {
        "MLP": (mlp, torch.ones(4, 16)),
        "GPT-2, 4 layers": (GPT2Model(gpt2), ids),
        "BERT, 12 layers": (BertModel(bert), ids),
        "BERT, 12 layers, autocast": (Autocast(BertModel(bert)), ids),
    }


def asked(model: nn.Module, x: torch.Tensor) -> tuple[int, int, float]:
    """Return the number of graphs and Dynamo nodes, and ms a graph of `cache_bypasses`."""
    taken = []
    for _ in range(4):
        capture = tg.capture(model, x)
        busy = time.process_time()
        _ = capture.cache_bypasses
        taken.append(time.process_time() - busy)
    dynamo = tg.capture(model, x, via="dynamo").graphs
    nodes = sum(len(graph.nodes) for graph in dynamo)
    return len(dynamo), nodes, 1000 * min(taken) / len(dynamo)


def by_hand(model: nn.Module, x: torch.Tensor) -> Callable[[], None]:
    """Return two compilations with a cache directory of their own, without any record."""

    def work() -> None:
        directory, before = tempfile.mkdtemp(), os.environ.get("TORCHINDUCTOR_CACHE_DIR")
        os.environ["TORCHINDUCTOR_CACHE_DIR"] = directory
        for _ in range(2):
            torch._dynamo.reset()
            clear_caches()
            first_value(torch.compile(model)(x)).backward()
            model.zero_grad()
        rmtree(directory)
        del os.environ["TORCHINDUCTOR_CACHE_DIR"]
        if before is not None:
            os.environ["TORCHINDUCTOR_CACHE_DIR"] = before

    return work


def first_value(outputs: Any) -> torch.Tensor:
    """Return the sum of the first output."""
    values = [outputs] if isinstance(outputs, torch.Tensor) else outputs.values()
    return next(iter(values)).sum()  # type: ignore[no-any-return]


def main() -> None:
    """Print both tables."""
    torch.set_num_threads(1)
    pairs = int(sys.argv[1]) if sys.argv[1:] else 5
    subjects = {name: it for name, it in models().items() if name in (sys.argv[2:] or [name])}
    rows: list[tuple[Any, ...]] = [(name, *asked(*model)) for name, model in subjects.items()]
    table(("subject", "graphs", "nodes", "assert_cacheable, ms a graph"), rows)
    rows = []
    with kernels_left_out():
        for name, (model, x) in subjects.items():

            def work(model: nn.Module = model, x: torch.Tensor = x) -> None:
                tg.restart(model, (x,), loss_fn=first_value)

            hand, ours, ratio, busy = paired(by_hand(model, x), work, pairs)
            rows.append((name, hand, ours, ratio, busy))
    table(("subject", "by hand, s", "restart, s", "ratio", "of processor time"), rows)


if __name__ == "__main__":
    main()
