"""Findings, places, seconds and changed lines of an edit made in the layers of real models.

`python benchmarks/bench_places.py [FOLDER] [MODEL ...] [VIA ...]`, by default all models, via
aot and via dispatch; a few seconds for each capture. Captures are kept in FOLDER, as `.tgraph`
files, and read from there the next time. Changed lines are those that a diff removes and adds, in
the flat text and in the folded one. Target: one finding for one edit, with a place for each layer;
two for two edits; none for a module that was renamed. A ReLU that a block of the ResNet calls twice
may be two.
"""

from __future__ import annotations

import itertools
import re
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass
from difflib import unified_diff
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1]))

import torch
from torch import nn

import pytest_torchgraph
from benchmarks.timing import table
from pytest_torchgraph.graph import diff_graphs, find_changes, parse_document
from pytest_torchgraph.graph.text.fold import fold

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


def mixtral(layers: int) -> Any:
    """The decoder without its head, four experts in each layer."""
    from transformers import MixtralConfig, MixtralModel

    config = MixtralConfig(
        **SIZES,
        num_hidden_layers=layers,
        num_key_value_heads=2,
        num_local_experts=4,
        use_cache=False,
    )
    return MixtralModel(config), {"input_ids": ids()}


def swin(layers: int) -> Any:
    """Two stages, and so many blocks in each."""
    from transformers import SwinConfig, SwinModel

    sizes = {"image_size": 32, "patch_size": 2, "embed_dim": 16, "window_size": 4}
    config = SwinConfig(**sizes, depths=[layers] * 2, num_heads=[2, 4])
    return SwinModel(config), {"pixel_values": torch.ones(2, 3, 32, 32)}


class Block(nn.Module):
    """A block of a ResNet, that calls its activation twice."""

    def __init__(self, before: int, width: int):
        super().__init__()
        stride = 1 if before == width else 2
        self.conv1 = nn.Conv2d(before, width, 3, stride, 1, bias=False)
        self.bn1 = nn.BatchNorm2d(width)
        self.relu = nn.ReLU(inplace=True)
        self.conv2 = nn.Conv2d(width, width, 3, 1, 1, bias=False)
        self.bn2 = nn.BatchNorm2d(width)
        self.downsample = None
        if before != width:
            down = nn.Conv2d(before, width, 1, stride, bias=False)
            self.downsample = nn.Sequential(down, nn.BatchNorm2d(width))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """The activation of the sum of both branches."""
        out = self.bn2(self.conv2(self.relu(self.bn1(self.conv1(x)))))
        return self.relu(out + (x if self.downsample is None else self.downsample(x)))


class ResNet(nn.Sequential):
    """A ResNet of four stages, and so many blocks in each."""

    def __init__(self, layers: int):
        super().__init__()
        self.stem = nn.Sequential(nn.Conv2d(3, 8, 7, 2, 3, bias=False), nn.BatchNorm2d(8))
        widths = [8, 8, 16, 24, 32]
        for k in range(1, 5):
            blocks = [Block(widths[k - (b == 0)], widths[k]) for b in range(layers)]
            self.add_module(f"layer{k}", nn.Sequential(*blocks))
        self.avgpool = nn.AdaptiveAvgPool2d(1)


def resnet(layers: int) -> Any:
    """As torchvision's of 18 layers, narrow, without its head."""
    return ResNet(layers), {"input": torch.ones(2, 3, 64, 64)}


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
        renamed: a part of the paths in its layers, for another name.
    """

    make: Callable[[int], Any]
    layers: int
    linear: str
    act: str
    renamed: str


MODELS = {
    "bert": Model(bert, 12, "intermediate.dense", "intermediate_act_fn", "intermediate"),
    "gpt2": Model(gpt2, 6, "mlp.c_fc", "mlp.act", "mlp"),
    "llama": Model(llama, 8, "mlp.up_proj", "mlp.act_fn", "mlp"),
    "t5": Model(t5, 4, "DenseReluDense.wi", "DenseReluDense.act", "DenseReluDense"),
    "mixtral": Model(mixtral, 4, "self_attn.o_proj", "experts.act_fn", "experts"),
    "vit": Model(vit, 6, "mlp.fc1", "mlp.activation_fn", "mlp"),
    "swin": Model(swin, 2, "mlp.fc1", "mlp.activation_fn", "mlp"),
    "resnet": Model(resnet, 2, "conv2", "relu", "conv2"),
}
VIAS = ("aot", "dispatch")


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
    "renamed": "nothing",
}


def text_of(folder: Path, name: str, via: str, case: str) -> str:
    """The text of a model with an edit, from the folder or captured."""
    kind = MODELS[name]
    if case == "renamed":
        return re.sub(rf"\b{kind.renamed}\b", "renamed", text_of(folder, name, via, "base"))
    path = folder / f"{name}-{via}-{case.replace(' ', '-')}.tgraph"
    if not path.exists():
        layers = kind.layers + (case == "one more") + (case == "twice") * kind.layers
        torch.manual_seed(0)
        model, inputs = kind.make(layers)
        capture = pytest_torchgraph.capture(edited(model.eval(), kind, case), **inputs, via=via)
        path.write_text(capture.to_text(fold=False), encoding="utf-8")
    return path.read_text(encoding="utf-8")


def changed(before: str, after: str) -> str:
    """How many lines a diff removes and adds."""
    lines = [*unified_diff(before.splitlines(), after.splitlines(), n=0, lineterm="")][2:]
    return f"-{sum(line[0] == '-' for line in lines)} +{sum(line[0] == '+' for line in lines)}"


def main() -> None:
    """Print the table, and the heading of each difference."""
    names = [name for name in sys.argv[1:] if name in MODELS]
    vias = [via for via in sys.argv[1:] if via in VIAS]
    folders = [name for name in sys.argv[1:] if name not in names and name not in vias]
    folder = Path(*folders) if folders else Path(tempfile.mkdtemp())
    folder.mkdir(exist_ok=True)
    rows, headings = [], []
    for name, via in itertools.product(names or MODELS, vias or VIAS):
        base_text = text_of(folder, name, via, "base")
        base = parse_document(base_text).graphs
        for case, expected in CASES.items():
            text = text_of(folder, name, via, case)
            other = parse_document(text).graphs
            start = time.perf_counter()
            alone = len(find_changes(base, other)[0])
            middle = time.perf_counter()
            found = diff_graphs(base, other)
            took = time.perf_counter() - middle
            places = "+".join(str(len(finding.places)) for finding in found.findings)
            row = (name, via, case, expected, alone, len(found.findings), places)
            lines = (changed(base_text, text), changed(fold(base_text), fold(text)))
            rows.append((*row, middle - start, took, *lines))
            headings.append(f"{name} {via} {case}: {found.heading()}")
    heads = ("model", "via", "case", "made", "before", "findings", "places")
    table((*heads, "ungrouped s", "diff s", "lines", "folded"), rows)
    print("\n".join(headings))


if __name__ == "__main__":
    main()
