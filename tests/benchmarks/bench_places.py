"""Findings, places and seconds of the same edit made in many layers of real models.

`python tests/benchmarks/bench_places.py [FOLDER] [MODEL ...]`, about ten seconds for each capture;
captures are kept in FOLDER, as `.tgraph` files, and read from there the next time. Target: one
finding for one edit, with a place for each layer; two for two edits.
"""

from __future__ import annotations

import re
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1]))

import torch
from benchmarks.timing import table
from torch import nn

import pytest_torchgraph
from pytest_torchgraph.graph.diff.report import diff_graphs, find_changes
from pytest_torchgraph.graph.text.parse import parse_document

SIZES = {
    "hidden_size": 32,
    "num_attention_heads": 4,
    "intermediate_size": 64,
    "vocab_size": 64,
    "pad_token_id": 0,
}


def ids() -> torch.Tensor:
    """Tokens of two texts."""
    return torch.arange(32).reshape(2, 16)


def bert(layers: int) -> Any:
    """The encoder, with its pooler."""
    from transformers import BertConfig, BertModel

    return BertModel(BertConfig(**SIZES, num_hidden_layers=layers)), {"input_ids": ids()}


def gpt2(layers: int) -> Any:
    """The decoder without its head."""
    from transformers import GPT2Config, GPT2Model

    config = GPT2Config(n_embd=32, n_layer=layers, n_head=4, vocab_size=64, n_positions=16)
    config.use_cache = False
    return GPT2Model(config), {"input_ids": ids()}


def llama(layers: int) -> Any:
    """The decoder without its head."""
    from transformers import LlamaConfig, LlamaModel

    config = LlamaConfig(**SIZES, num_hidden_layers=layers, num_key_value_heads=2, use_cache=False)
    return LlamaModel(config), {"input_ids": ids()}


def t5(layers: int) -> Any:
    """Encoder and decoder, as many layers each."""
    from transformers import T5Config, T5ForConditionalGeneration

    config = T5Config(vocab_size=64, d_model=32, d_kv=8, d_ff=64, num_layers=layers, num_heads=4)
    config.use_cache = False
    config.decoder_start_token_id = 0
    return T5ForConditionalGeneration(config), {"input_ids": ids(), "labels": ids()}


def vit(layers: int) -> Any:
    """The encoder of images."""
    from transformers import ViTConfig, ViTModel

    sizes = {key: SIZES[key] for key in ("hidden_size", "num_attention_heads", "intermediate_size")}
    config = ViTConfig(**sizes, num_hidden_layers=layers, image_size=16, patch_size=8)
    return ViTModel(config), {"pixel_values": torch.ones(2, 3, 16, 16)}


@dataclass(frozen=True)
class Model:
    """A model, how many layers it has, and what is edited in these.

    Attributes:
        make: makes it with a number of layers.
        layers: how many it has.
        linear, act: how the paths of the edited modules in its layers end.
    """

    make: Callable[[int], Any]
    layers: int
    linear: str
    act: str


MODELS = {
    "bert": Model(bert, 12, "intermediate.dense", "intermediate_act_fn"),
    "gpt2": Model(gpt2, 6, "mlp.c_fc", "mlp.act"),
    "llama": Model(llama, 6, "mlp.up_proj", "mlp.act_fn"),
    "t5": Model(t5, 3, "DenseReluDense.wi", "DenseReluDense.act"),
    "vit": Model(vit, 6, "mlp.fc1", "mlp.activation_fn"),
}


def tanh_behind(module: nn.Module) -> None:
    """Make a module one whose class ends with a tanh."""
    kind = type(module)

    def forward(self: Any, x: torch.Tensor) -> torch.Tensor:
        return torch.tanh(kind.forward(self, x))

    module.__class__ = type(f"Bounded{kind.__name__}", (kind,), {"forward": forward})


def edited(model: nn.Module, kind: Model, case: str) -> nn.Module:
    """The model with one of the edits."""
    linear = [m for name, m in model.named_modules() if name.endswith(kind.linear)]
    acts = [name for name, _ in model.named_modules() if name.endswith(kind.act)]
    if case == "inserted":
        for module in linear:
            tanh_behind(module)
    elif case in ("first", "middle", "last"):
        tanh_behind(linear[{"first": 0, "middle": len(linear) // 2, "last": -1}[case]])
    elif case in ("class", "halves"):
        for k, name in enumerate(acts):
            half = case == "halves" and k >= len(acts) // 2
            model.set_submodule(name, nn.ELU() if half else nn.Softplus())
    return model


CASES = {
    "class": "1 edit",
    "inserted": "1 edit",
    "halves": "2 edits",
    "first": "1 edit",
    "middle": "1 edit",
    "last": "1 edit",
    "one more": "1 module",
    "twice": "N modules",
}


def graphs_of(folder: Path, name: str, case: str) -> Any:
    """The graphs of a model with an edit, from the folder or captured."""
    path = folder / f"{name}-{case.replace(' ', '-')}.tgraph"
    if not path.exists():
        kind = MODELS[name]
        layers = kind.layers + (case == "one more") + (case == "twice") * kind.layers
        torch.manual_seed(0)
        model, inputs = kind.make(layers)
        capture = pytest_torchgraph.capture(edited(model.eval(), kind, case), **inputs)
        path.write_text(capture.to_text(), encoding="utf-8")
    return parse_document(path.read_text(encoding="utf-8")).graphs


def main() -> None:
    """Print the table, and the heading of each difference."""
    folder = Path(sys.argv[1] if len(sys.argv) > 1 else tempfile.mkdtemp())
    folder.mkdir(exist_ok=True)
    rows, headings = [], []
    for name in sys.argv[2:] or MODELS:
        base = graphs_of(folder, name, "base")
        for case, expected in CASES.items():
            other = graphs_of(folder, name, case)
            start = time.perf_counter()
            alone = len(find_changes(base, other)[0])
            middle = time.perf_counter()
            found = diff_graphs(base, other)
            took = time.perf_counter() - middle
            places = "+".join(str(len(finding.places)) for finding in found.findings)
            row = (name, case, expected, alone, len(found.findings), places)
            rows.append((*row, middle - start, took))
            headings.append(f"{name} {case}: {re.sub(chr(10), ' ', found.heading())}")
    heads = ("model", "case", "made", "before", "findings", "places", "ungrouped s", "diff s")
    table(heads, rows)
    print("\n".join(headings))


if __name__ == "__main__":
    main()
