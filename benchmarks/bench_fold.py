"""How long a folded text is, how much of it an edit changes, and what folding costs.

`python benchmarks/bench_fold.py [model ...]`, by default all. Small models of transformers
via aot, forward and backward, as they are stored; a few minutes. Edits: another activation in the
class of all layers, an op before the activation of all layers and of one in the middle, one more
layer, another name for a module. Counted are the lines that a diff shows as removed and as added,
in the flat text and in the folded one. Then times by size, for the text of BERT with more layers.

Targets: at most 12% of the characters for BERT of 12 layers, and as many lines for 24 as for 12; an
op in one layer changes at most 35 lines, one in the class at most 30; writing and reading take at
most 1.5 times as long as without folding.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Callable, Mapping
from difflib import unified_diff
from pathlib import Path
from typing import Any, NamedTuple

sys.path.insert(0, str(Path(__file__).parents[1]))

import torch
import transformers
from torch import nn

import pytest_torchgraph
from benchmarks.timing import medians, table
from pytest_torchgraph.graph import format_document, parse_document
from pytest_torchgraph.graph.text.expand import expand
from pytest_torchgraph.graph.text.fold import fold
from pytest_torchgraph.snapshot import program_of

IDS = torch.arange(32).reshape(2, 16)
IMAGES = torch.ones(2, 3, 64, 64)
SMALL = {"vocab_size": 100, "hidden_size": 64, "num_attention_heads": 4}
MLP = SMALL | {"intermediate_size": 128}
GROUPED = MLP | {"num_key_value_heads": 2, "use_cache": False}
NO_CACHE = {"vocab_size": 100, "use_cache": False}


class Model(NamedTuple):
    """A model of any depth.

    Attributes:
        make: the model with so many layers.
        layers: the usual number.
        inputs: its arguments.
        activation: a regular expression of the paths of its activations.
        renamed: a part of a path, and what it is called instead.
    """

    make: Callable[[int], nn.Module]
    layers: int
    inputs: Mapping[str, torch.Tensor]
    activation: str
    renamed: tuple[str, str]


def _made(model: str, layers: str, **settings: Any) -> Callable[[int], nn.Module]:
    def make(count: int) -> nn.Module:
        torch.manual_seed(0)
        config = getattr(transformers, f"{model}Config")(**{layers: count}, **settings)
        return getattr(transformers, f"{model}Model")(config).eval()

    return make


def _t5(count: int) -> nn.Module:
    settings = {"d_model": 64, "d_kv": 16, "d_ff": 128, "num_heads": 4, **NO_CACHE}
    return _made("T5", "num_layers", num_decoder_layers=count, **settings)(count)


def _resnet(count: int) -> nn.Module:
    sizes = {"embedding_size": 16, "hidden_sizes": [16, 32, 48, 64], "layer_type": "basic"}
    return _made("ResNet", "num_channels", depths=[count] * 4, **sizes)(3)


_BERT = Model(
    _made("Bert", "num_hidden_layers", **MLP),
    *(12, {"input_ids": IDS}, r".*intermediate_act_fn", (".intermediate.", ".inner.")),
)
MODELS = {
    "BERT, 12": _BERT,
    "BERT, 24": _BERT._replace(layers=24),
    "GPT-2, 6": Model(
        _made("GPT2", "n_layer", n_positions=32, n_embd=64, n_head=4, **NO_CACHE),
        *(6, {"input_ids": IDS}, r".*\.mlp\.act", (".mlp.", ".inner.")),
    ),
    "Llama, 8": Model(
        _made("Llama", "num_hidden_layers", **GROUPED),
        *(8, {"input_ids": IDS}, r".*\.mlp\.act_fn", (".mlp.", ".inner.")),
    ),
    "T5, 4+4": Model(
        _t5,
        *(4, {"input_ids": IDS, "decoder_input_ids": IDS}, r".*DenseReluDense\.act"),
        (".DenseReluDense.", ".inner."),
    ),
    "Mixtral, 4": Model(
        _made("Mixtral", "num_hidden_layers", num_local_experts=4, **GROUPED),
        *(4, {"input_ids": IDS}, r".*\.act_fn", (".mlp", ".inner")),
    ),
    "ViT, 6": Model(
        _made("ViT", "num_hidden_layers", image_size=64, patch_size=16, **MLP | {"vocab_size": 1}),
        *(6, {"pixel_values": IMAGES}, r".*act\w*", (".mlp.", ".inner.")),
    ),
    "ResNet, 4x2": Model(
        _resnet,
        *(2, {"pixel_values": IMAGES}, r".*layers\.1\.layer\.0\.activation"),
        (".shortcut.", ".short."),
    ),
}


def stored(model: nn.Module, inputs: Mapping[str, torch.Tensor]) -> str:
    """The text that a comparison would store."""
    capture = pytest_torchgraph.capture(model, **inputs, via="aot", backward=True)
    return program_of(capture).to_text("dataflow", fold=False)


def replaced(model: nn.Module, path: str) -> None:
    """Give a module another activation."""
    parent, _, name = path.rpartition(".")
    old = model.get_submodule(path)
    setattr(model.get_submodule(parent), name, nn.Tanh() if type(old) is nn.ReLU else nn.ReLU())


def preceded(model: nn.Module, path: str) -> None:
    """Compute tanh before an activation."""
    module = model.get_submodule(path)
    forward = module.forward
    module.forward = lambda x: forward(torch.tanh(x))


def edited(model: Model, edit: Callable[[nn.Module, str], None], *, one: bool) -> str:
    """The text after an edit of all activations, or of the one in the middle."""
    made = model.make(model.layers)
    paths = [path for path, _ in made.named_modules() if re.fullmatch(model.activation, path)]
    for path in [paths[len(paths) // 2]] if one else paths:
        edit(made, path)
    return stored(made, model.inputs)


def changed(before: str, after: str) -> str:
    """The lines that are removed and added, in the flat texts and in the folded ones."""
    counts = []
    for old, new in ((before, after), (fold(before), fold(after))):
        lines = list(unified_diff(old.splitlines(), new.splitlines(), n=0, lineterm=""))[2:]
        counts.append(f"-{sum(s[0] == '-' for s in lines)} +{sum(s[0] == '+' for s in lines)}")
    return " -> ".join(counts)


def sizes(names: list[str]) -> str:
    """Print the table of models; the folded text of the first one."""
    rows = []
    first = ""
    for name, model in MODELS.items():
        if names and not any(name.lower().startswith(each.lower()) for each in names):
            continue
        base = stored(model.make(model.layers), model.inputs)
        folded = fold(base)
        first = first or folded
        row = [name, f"{base.count(chr(10))} -> {folded.count(chr(10))}"]
        row.append(f"{100 * len(folded) / len(base):.1f}%")
        if name != "BERT, 24":
            row += [
                changed(base, edited(model, replaced, one=False)),
                changed(base, edited(model, preceded, one=False)),
                changed(base, edited(model, preceded, one=True)),
                changed(base, stored(model.make(model.layers + 1), model.inputs)),
                changed(base, base.replace(*model.renamed)),
            ]
        rows.append(row + [""] * (8 - len(row)))
    heads = ("model", "lines", "size", "class", "op in class", "op in one", "N + 1", "renamed")
    table(heads, rows)
    return first


def times(folded: str) -> None:
    """Print what folding and expanding cost, by size.

    Args:
        folded: the text of a BERT of 12 layers, which stands for any other number of them after
            an edit of its ranges.
    """
    rows = []
    for layers in (4, 45, 215):
        text = re.sub(r"(layer\.|\.\. )11\b", rf"\g<1>{layers - 1}", folded)
        text = re.sub(r"(?<=layer\.)10 \.\.", f"{layers - 2} ..", text)
        flat = expand(text)
        assert fold(flat) == text
        graphs = parse_document(flat).graphs
        taken = medians(
            {
                "write": lambda g=graphs: format_document(g, fold=False),
                "write folded": lambda g=graphs: format_document(g, fold=True),
                "read": lambda t=flat: parse_document(t),
                "read folded": lambda t=text: parse_document(t),
                "fold": lambda t=flat: fold(t),
                "expand": lambda t=text: expand(t),
            }
        )
        ratio = (taken["write folded"] + taken["read folded"]) / (taken["write"] + taken["read"])
        rows.append((sum(len(graph.nodes) for graph in graphs), *taken.values(), ratio))
    table(("nodes", *taken, "ratio"), rows)


def main() -> None:
    """Print both tables."""
    folded = sizes(sys.argv[1:])
    if "encoder.layer.0 .. 11" in folded:
        times(folded)


if __name__ == "__main__":
    main()
