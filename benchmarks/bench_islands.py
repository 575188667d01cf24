"""What recording the eager ops costs: captures via aot with and without it, in turns.

`python benchmarks/bench_islands.py [PAIRS]`. Targets: at most 1.02 times on BERT and GPT-2 of
12 layers, where little or nothing runs eagerly, and 1.2 where nearly all does.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1]))
sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))

import torch
from mechanisms.islands.unrecorded import unrecorded
from torch import Tensor, nn
from transformers import BertConfig, BertModel, GPT2Config, GPT2Model

import pytest_torchgraph
from benchmarks.timing import paired, table


class Recurrent(nn.Module):
    """Three LSTMs and hundreds of small ops that run eagerly, and one compiled block."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.ModuleList(nn.LSTM(32, 32, batch_first=True) for _ in range(3))
        self.head = Head()

    def forward(self, x: Tensor) -> Tensor:
        for layer in self.layers:
            x, _ = layer(x)
            for _ in range(50):
                x = torch.tanh(x) * 2 - x
        return self.head(x)


class Head(nn.Module):
    """One linear layer."""

    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(32, 32)

    def forward(self, x: Tensor) -> Tensor:
        return self.linear(x).relu()


def subjects() -> dict[str, Callable[[], Any]]:
    """Captures, by the name of what they are of."""
    torch.manual_seed(0)
    ids = torch.randint(0, 100, (2, 16))
    sizes: dict[str, Any] = {"vocab_size": 100}
    bert = BertConfig(
        hidden_size=64, num_attention_heads=4, intermediate_size=128, num_hidden_layers=12, **sizes
    )
    gpt2 = GPT2Config(n_embd=64, n_head=4, n_layer=12, n_positions=32, **sizes)
    calls: dict[str, tuple[nn.Module, Tensor]] = {
        "BERT-12": (BertModel(bert).eval(), ids),
        "GPT-2": (GPT2Model(gpt2).eval(), ids),
        "nearly all eager": (Recurrent(), torch.randn(2, 8, 32)),
    }

    def captured(model: nn.Module, x: Tensor, *, read: bool) -> Callable[[], Any]:
        def capture() -> None:
            found = pytest_torchgraph.capture(model, x)
            if read:
                _ = found.program

        return capture

    return {
        f"{name}, {'read' if read else 'until it returns'}": captured(*call, read=read)
        for name, call in calls.items()
        for read in (False, True)
    }


def main() -> None:
    """Print the table."""
    torch.set_num_threads(1)
    pairs = int(sys.argv[1]) if sys.argv[1:] else 5
    rows = []
    for name, capture in subjects().items():

        def plain(capture: Callable[[], Any] = capture) -> None:
            with unrecorded():
                capture()

        without, with_it, ratio, busy = paired(plain, capture, pairs)
        rows.append((name, 1000 * without, 1000 * with_it, ratio, busy))
    table(("subject", "without, ms", "with, ms", "ratio", "of processor time"), rows)


if __name__ == "__main__":
    main()
