"""What each mechanism costs over doing the same by hand with torch's own functions.

`python benchmarks/bench_overhead.py [mechanism ...] [--width=64] [--repeat=7] [--profile]`.
The subject: a BERT of 12 layers, forward and backward, one thread; for fx, which cannot trace that
model, an encoder of 12 layers written by hand. Target: at most 1.10 times for each.

By hand means: what somebody writes who knows torch, in order to hold the same graphs in a list. For
dispatch that is a mode that notes each op with its operands, constants and the metadata of what it
gives. What a capture gives beyond that is in its time: names, module paths, source lines, effects,
the state that it puts back, and what `assert_matches_eager` compares.
"""

from __future__ import annotations

import cProfile
import pstats
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1]))

import torch
import torch._dynamo.compiled_autograd as engine
import torch.utils._pytree as pytree
from torch import Tensor, nn
from torch._dynamo.backends.common import aot_autograd
from torch._functorch.aot_autograd import make_boxed_func
from torch._inductor.graph import GraphLowering
from torch.fx.passes.shape_prop import ShapeProp
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils.weak import WeakIdKeyDictionary
from transformers import BertConfig, BertModel

import pytest_torchgraph
from benchmarks.timing import paired, table


class Records(TorchDispatchMode):
    """Notes each op with its operands, its constants and what it gives."""

    def __init__(self) -> None:
        super().__init__()
        self.ops: list[tuple[str, Any, Any]] = []
        self.numbers: Any = WeakIdKeyDictionary()

    def __torch_dispatch__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Any = None
    ) -> Any:
        kwargs = kwargs or {}
        operands = pytree.tree_map_only(Tensor, self.described, (args, kwargs))
        out = func(*args, **kwargs)
        self.ops.append((str(func), operands, pytree.tree_map_only(Tensor, self.described, out)))
        return out

    def described(self, tensor: Tensor) -> tuple[Any, ...]:
        number = self.numbers.setdefault(tensor, len(self.numbers))
        return number, tensor.dtype, tensor.shape, tensor.stride(), tensor.device


class Layer(nn.Module):
    """One layer of an encoder, without anything that fx cannot trace."""

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.query, self.key, self.value, self.out = (nn.Linear(width, width) for _ in range(4))
        self.up, self.down = nn.Linear(width, 2 * width), nn.Linear(2 * width, width)
        self.first, self.second = nn.LayerNorm(width), nn.LayerNorm(width)
        self.dropout = nn.Dropout(0.1)

    def forward(self, x: Tensor) -> Tensor:
        batch, length, width = x.shape
        split = (batch, length, self.heads, width // self.heads)
        query = self.query(x).view(split).transpose(1, 2)
        key = self.key(x).view(split).transpose(1, 2)
        value = self.value(x).view(split).transpose(1, 2)
        mixed = nn.functional.scaled_dot_product_attention(query, key, value)
        mixed = mixed.transpose(1, 2).reshape(batch, length, width)
        x = self.first(x + self.dropout(self.out(mixed)))
        return self.second(x + self.dropout(self.down(nn.functional.gelu(self.up(x)))))


class Encoder(nn.Module):
    """What fx traces in the place of BERT."""

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.embed = nn.Embedding(100, width)
        self.layers = nn.ModuleList(Layer(width, heads) for _ in range(12))
        self.norm = nn.LayerNorm(width)

    def forward(self, input_ids: Tensor) -> Tensor:
        x = self.embed(input_ids)
        for layer in self.layers:
            x = layer(x)
        return self.norm(x)


Work = Callable[[], int]
"""Runs one step and gives the number of graphs."""


class ByHand:
    """Each mechanism as one writes it without the package."""

    def __init__(self, model: nn.Module, tokens: Tensor) -> None:
        self.model = model
        self.tokens = tokens

    def forward(self, call: Callable[..., Any]) -> tuple[list[Tensor], list[Tensor]]:
        """Run the forward; gives where the backward starts, as in a capture."""
        for parameter in self.model.parameters():
            parameter.grad = None
        output = call(input_ids=self.tokens)
        tensors = [output] if isinstance(output, Tensor) else list(output.values())
        return tensors, [torch.linspace(0.5, 1.5, t.numel()).reshape(t.shape) for t in tensors]

    def step(self, call: Callable[..., Any]) -> None:
        torch.autograd.backward(*self.forward(call))

    def dispatch(self) -> int:
        modes = Records(), Records()
        with modes[0]:
            start = self.forward(self.model)
        with modes[1]:
            torch.autograd.backward(*start)
        return sum(bool(mode.ops) for mode in modes)

    def fx(self) -> int:
        graph = torch.fx.symbolic_trace(self.model)
        self.step(lambda input_ids: ShapeProp(graph).propagate(input_ids))
        return 1

    def dynamo(self) -> int:
        graphs: list[torch.fx.GraphModule] = []

        def backend(gm: torch.fx.GraphModule, _inputs: Any) -> Any:
            graphs.append(gm)
            return gm.forward

        torch._dynamo.reset()
        self.step(torch.compile(self.model, backend=backend))
        torch._dynamo.reset()
        return len(graphs)

    def aot(self) -> int:
        graphs: list[torch.fx.GraphModule] = []
        torch._dynamo.reset()
        self.step(torch.compile(self.model, backend=_into(graphs)))
        torch._dynamo.reset()
        return len(graphs)

    def compiled_autograd(self) -> int:
        graphs: list[torch.fx.GraphModule] = []

        def compiler(gm: torch.fx.GraphModule) -> Any:
            graphs.append(gm)
            return gm

        torch._dynamo.reset()
        with engine._enable(compiler):
            self.step(torch.compile(self.model, backend=_into(graphs)))
        torch._dynamo.reset()
        return len(graphs)

    def export(self) -> int:
        program = torch.export.export(self.model, (), {"input_ids": self.tokens})
        program.module()(input_ids=self.tokens)
        return 1

    def inductor(self) -> int:
        graphs: list[torch.fx.Graph] = []
        codes: list[str] = []

        def keep(graph: torch.fx.Graph) -> None:
            copy = torch.fx.Graph()
            copy.graph_copy(graph, {})
            graphs.append(copy)

        torch._dynamo.reset()
        before = GraphLowering.save_output_code
        GraphLowering.save_output_code = codes.append
        try:
            with (
                torch._inductor.config.patch(fx_graph_cache=False, post_grad_custom_post_pass=keep),
                torch._functorch.config.patch(enable_autograd_cache=False),
            ):
                self.step(torch.compile(self.model))
        finally:
            GraphLowering.save_output_code = before
        torch._dynamo.reset()
        assert len(codes) == len(graphs)
        return len(graphs)


def _into(graphs: list[torch.fx.GraphModule]) -> Any:
    def keep(gm: torch.fx.GraphModule, _inputs: Any) -> Any:
        graphs.append(gm)
        return make_boxed_func(gm.forward)

    return aot_autograd(fw_compiler=keep, bw_compiler=keep)


def works(via: str, width: int = 64) -> tuple[Work, Work]:
    """The step by hand and as a capture; 768 is the width of BERT base."""
    torch.manual_seed(0)
    config = BertConfig(
        hidden_size=width,
        num_attention_heads=max(4, width // 64),
        intermediate_size=4 * width if width > 64 else 2 * width,
        vocab_size=100,
        num_hidden_layers=12,
    )
    heads = config.num_attention_heads
    model = (Encoder(width, heads) if via == "fx" else BertModel(config)).eval()
    tokens = torch.randint(0, 100, (2, 16))

    def captured() -> int:
        for parameter in model.parameters():
            parameter.grad = None
        return len(pytest_torchgraph.capture(model, input_ids=tokens, via=via).graphs)

    return getattr(ByHand(model, tokens), via), captured


def main() -> None:
    """Print the table."""
    torch.set_num_threads(1)
    known = ("dispatch", "fx", "dynamo", "aot", "compiled_autograd", "export", "inductor")
    chosen = [word for word in sys.argv[1:] if not word.startswith("--")] or known
    options = dict(word[2:].split("=") for word in sys.argv[1:] if "=" in word)
    rows: list[tuple[object, ...]] = []
    for via in chosen:
        by_hand, captured = works(via, int(options.get("width", 64)))
        assert by_hand() == captured()
        repeat = int(options.get("repeat", 3 if via == "inductor" else 7))
        hand, ours, wall, busy = paired(by_hand, captured, repeat)
        rows.append((via, round(1000 * hand), round(1000 * ours), wall, busy))
        if "--profile" in sys.argv:
            profile = cProfile.Profile()
            profile.runcall(captured)
            pstats.Stats(profile).sort_stats("tottime").print_stats(25)
    table(("mechanism", "by hand, ms", "capture, ms", "ratio", "of processor time"), rows)


if __name__ == "__main__":
    main()
