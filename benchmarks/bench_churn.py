"""How much of a stored text changes when one op of a 12-layer model is edited.

`python benchmarks/bench_churn.py [mechanism ...] [--detail=full] [--class] [--show]`. The
subject: a BERT of 12 layers, and for fx, which cannot trace that, an encoder of 12 layers written
by hand. At ten places, in ten layers, an op is inserted; with `--class` at the same place of all
layers, where it is in one. Counted are the lines that `diff` shows as removed and as added, in the
text with one line a node and ("folded") in the stored one; "changed" counts a line that was
replaced once.

Targets: at most 1% of the lines changed at each place, and one finding; in the folded text, removed
and added, at most 35 lines for an op in one layer and 30 for one in the class. The least possible
for an op with n users is n + 1 changed lines, since each user names it.

A mechanism that optimises (inductor) may remove the inserted op again: then nothing changes, and
there is nothing to find.
"""

from __future__ import annotations

import copy
import re
import sys
from collections.abc import Callable
from difflib import unified_diff
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1]))

import torch
from torch import Tensor, nn
from transformers import AttentionInterface, BertConfig, BertModel

import pytest_torchgraph
from benchmarks.timing import table
from pytest_torchgraph import Capture
from pytest_torchgraph.snapshot import program_of

MECHANISMS = ("dispatch", "dynamo", "aot", "compiled_autograd", "export", "inductor", "fx")
LAYERS = 12
Op = Callable[[Tensor], Tensor]


def scaled(x: Tensor) -> Tensor:
    """Times a constant."""
    return x * 1.25


def shifted(x: Tensor) -> Tensor:
    """Plus a constant."""
    return x + 0.5


def cast(x: Tensor) -> Tensor:
    """To another dtype; the sum that takes it has the former one again."""
    return x.to(torch.bfloat16)


def turned(x: Tensor) -> Tensor:
    """Transposed twice."""
    return x.transpose(0, 1).transpose(0, 1)


def attention(op: Op | None) -> Callable[..., tuple[Tensor, None]]:
    """Attention in single ops, with one more between the softmax and the product."""

    def forward(
        module: Any, query: Tensor, key: Tensor, value: Tensor, *args: Any, **kwargs: Any
    ) -> tuple[Tensor, None]:
        weights = torch.softmax(torch.matmul(query, key.transpose(2, 3)) * module.scaling, -1)
        weights = op(weights) if op else weights
        return torch.matmul(weights, value).transpose(1, 2).contiguous(), None

    return forward


AttentionInterface.register("plain", attention(None))
AttentionInterface.register("edited", attention(torch.relu))


BERT_PLACES: tuple[tuple[str, Op], ...] = (
    ("embeddings.LayerNorm", torch.clone),
    ("encoder.layer.0.attention.self.query", shifted),
    ("encoder.layer.2.attention.self", torch.relu),
    ("encoder.layer.4.attention.output.dense", torch.tanh),
    ("encoder.layer.5.output.dense", cast),
    ("encoder.layer.7.intermediate.intermediate_act_fn", scaled),
    ("encoder.layer.8.output.LayerNorm", torch.clone),
    ("encoder.layer.9.output.dense", turned),
    ("encoder.layer.11.output.LayerNorm", torch.sigmoid),
    ("pooler.activation", shifted),
)


def bert(
    path: str = "", op: Op | None = None, *, everywhere: bool = False
) -> tuple[nn.Module, dict[str, Tensor]]:
    """The model and its inputs, with an op behind the submodule at `path`, or in all layers."""
    torch.manual_seed(0)
    config = BertConfig(
        hidden_size=64,
        num_hidden_layers=LAYERS,
        num_attention_heads=4,
        intermediate_size=128,
        vocab_size=100,
        attn_implementation="plain" if path.endswith("attention.self") else "sdpa",
    )
    model = BertModel(config).eval()
    if op is not None:
        for number in range(LAYERS) if everywhere else [None]:
            at = path if number is None else re.sub(r"\d+", str(number), path)
            behind(model.get_submodule(at), op)
    return model, {"input_ids": torch.arange(32).reshape(2, 16)}


def behind(module: Any, op: Op) -> None:
    """Let the module apply the op to what it gives; in attention, to the weights."""
    if type(module).__name__ == "BertSelfAttention":
        module.config = copy.copy(module.config)
        module.config._attn_implementation = "edited"
        return
    kind = type(module)

    def forward(self: nn.Module, *args: Any, **kwargs: Any) -> Any:
        return op(kind.forward(self, *args, **kwargs))

    module.__class__ = type(kind.__name__, (kind,), {"forward": forward})


# -- for fx ----------------------------------------------------------------------------------------


class Layer(nn.Module):
    """One layer of an encoder that fx can trace, with places for an op more."""

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.split = (2, 16, heads, width // heads)
        self.query, self.key, self.value, self.out = (nn.Linear(width, width) for _ in range(4))
        self.up, self.down = nn.Linear(width, 2 * width), nn.Linear(2 * width, width)
        self.first, self.second = nn.LayerNorm(width), nn.LayerNorm(width)
        self.ops: dict[str, Op] = {}

    def at(self, place: str, x: Tensor) -> Tensor:
        """The value, or what the op that was put here makes of it."""
        return self.ops[place](x) if place in self.ops else x

    def forward(self, x: Tensor) -> Tensor:
        query = self.at("query", self.query(x)).view(self.split).transpose(1, 2)
        key = self.at("key", self.key(x)).view(self.split).transpose(1, 2)
        value = self.value(x).view(self.split).transpose(1, 2)
        weights = self.at("softmax", torch.softmax(query @ key.transpose(2, 3) * 0.25, -1))
        mixed = (weights @ value).transpose(1, 2).reshape(2, 16, -1)
        x = self.at("first", self.first(x + self.at("out", self.out(mixed))))
        inner = self.at("gelu", nn.functional.gelu(self.at("up", self.up(x))))
        return self.at("second", self.second(x + self.at("down", self.down(inner))))


FX_PLACES: tuple[tuple[str, Op], ...] = (
    ("0.query", scaled),
    ("1.up", torch.clone),
    ("2.softmax", torch.relu),
    ("3.key", torch.clone),
    ("4.out", torch.tanh),
    ("5.down", cast),
    ("7.gelu", shifted),
    ("8.second", torch.neg),
    ("9.down", turned),
    ("11.second", torch.sigmoid),
)


def encoder(path: str = "", op: Op | None = None) -> tuple[nn.Module, dict[str, Tensor]]:
    """The model for fx and its inputs, with an op at `path`."""
    torch.manual_seed(0)
    layers = nn.Sequential(*(Layer(64, 4) for _ in range(LAYERS)))
    model = nn.Sequential(nn.Embedding(100, 64), layers, nn.Linear(64, 2))
    if op is not None:
        number, _, place = path.partition(".")
        layers[int(number)].ops[place] = op
    return model, {"input": torch.arange(32).reshape(2, 16)}


# -- counting --------------------------------------------------------------------------------------


def captured(
    via: str, path: str = "", op: Op | None = None, *, everywhere: bool = False
) -> Capture:
    """The capture of the model, edited or not."""
    model, inputs = encoder(path, op) if via == "fx" else bert(path, op, everywhere=everywhere)
    if via == "fx":
        return pytest_torchgraph.capture(model, *inputs.values(), via=via)
    return pytest_torchgraph.capture(model, via=via, **inputs)


def text(capture: Capture, detail: str, *, fold: bool) -> list[str]:
    """The lines of a snapshot of the capture, as they are stored or with one line a node."""
    return program_of(capture).to_text(detail, fold).splitlines()  # type: ignore[arg-type]


def differing(capture: Capture, other: Capture, detail: str, *, fold: bool) -> list[str]:
    """The lines of the difference of two captures' texts."""
    old, new = (text(each, detail, fold=fold) for each in (capture, other))
    return list(unified_diff(old, new, n=0, lineterm=""))[2:]


def counts(lines: list[str]) -> tuple[int, int, int]:
    """Added, removed and changed lines of a difference; a replaced one is one changed."""
    hunks = [[0, 0]]
    for line in lines:
        if line.startswith("@@"):
            hunks.append([0, 0])
        else:
            hunks[-1][line.startswith("-")] += 1
    return sum(h[0] for h in hunks), sum(h[1] for h in hunks), sum(map(max, hunks))


def main() -> None:
    """Print the table."""
    options = [word for word in sys.argv[1:] if word.startswith("--")]
    detail = next((o.partition("=")[2] for o in options if o.startswith("--detail=")), "dataflow")
    everywhere = "--class" in options
    for via in [word for word in sys.argv[1:] if word not in options] or MECHANISMS:
        rows: list[tuple[object, ...]] = []
        bases: dict[str, Capture] = {}
        for path, op in FX_PLACES if via == "fx" else BERT_PLACES:
            if everywhere and not re.search(r"\d", path):
                continue
            attention = path if path.endswith("attention.self") else ""
            base = bases.setdefault(attention, captured(via, attention))
            edited = captured(via, path, op, everywhere=everywhere)
            lines = differing(base, edited, detail, fold=False)
            added, removed, changed = counts(lines)
            came, went, _ = counts(differing(base, edited, detail, fold=True))
            total = len(text(base, detail, fold=False))
            found = pytest_torchgraph.diff(base, edited)
            shares = (100 * changed / total, 100 * (added + removed) / total)
            row = (via, path, op.__name__, removed, added, changed, total, *shares)
            rows.append((*row, f"-{went} +{came}", len(found.findings)))
            if "--show" in options:
                print(f"== {via} {path} {op.__name__}", *lines, found, sep="\n")
        heads = ("via", "place", "op", "-", "+", "changed", "of", "changed %", "-+ %")
        heads = (*heads, "folded", "findings")
        table(heads, rows)


if __name__ == "__main__":
    main()
