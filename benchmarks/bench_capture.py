"""What a capture costs, against the same step by the cheapest means that give the same graphs.

`python benchmarks/bench_capture.py [--profile]`. The subject: a BERT of 12 layers, forward
and backward, one thread. Targets: aot at most 1.10 times a hand-written backend, dispatch at most 3
times a mode that only calls through. `--profile` shows where the time goes in each.
"""

from __future__ import annotations

import cProfile
import pstats
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1]))

import graphviz
import torch
import torch.utils._pytree as pytree
from torch._dynamo.backends.common import aot_autograd
from torch._functorch.aot_autograd import make_boxed_func
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils.weak import WeakIdKeyDictionary
from transformers import BertConfig, BertModel

import pytest_torchgraph
from benchmarks.timing import medians, table


class CallsThrough(TorchDispatchMode):
    """The least that a mode can do."""

    def __torch_dispatch__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Any = None
    ) -> Any:
        return func(*args, **(kwargs or {}))


class Recipe(TorchDispatchMode):
    """The recipe that people copy: a graphviz node for each op and each tensor."""

    def __init__(self) -> None:
        super().__init__()
        self.graph = graphviz.Digraph(format="svg")
        self.tensors: Any = WeakIdKeyDictionary()
        self.count = 0

    def __torch_dispatch__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Any = None
    ) -> Any:
        out = func(*args, **(kwargs or {}))
        op = f"{func}_{self.count}"
        self.count += 1
        self.graph.node(op, str(func), fillcolor="green")
        self.add((args, kwargs), op, is_in=True)
        self.add(out, op, is_in=False)
        return out

    def add(self, values: Any, op: str, *, is_in: bool) -> None:
        for t in pytree.tree_flatten(values)[0]:
            if not torch.is_tensor(t):
                continue
            if t not in self.tensors:
                self.tensors[t] = f"tensor_{len(self.tensors)}"
                self.graph.node(self.tensors[t], fillcolor="skyblue")
            self.graph.edge(*((self.tensors[t], op) if is_in else (op, self.tensors[t])))


def cotangents(output: Any) -> tuple[list[torch.Tensor], list[torch.Tensor]]:
    """Where the backward starts: as in a capture."""
    tensors = [output.last_hidden_state, output.pooler_output]
    return tensors, [torch.linspace(0.5, 1.5, t.numel()).reshape(t.shape) for t in tensors]


def works() -> dict[str, dict[str, Callable[[], Any]]]:
    """What is compared, by mechanism; the first is the yardstick."""
    torch.manual_seed(0)
    config = BertConfig(
        hidden_size=64,
        num_attention_heads=4,
        intermediate_size=128,
        vocab_size=100,
        num_hidden_layers=12,
    )
    model = BertModel(config).eval()
    tokens = torch.randint(0, 100, (2, 16))

    def step(call: Callable[..., Any], mode: Any = None) -> None:
        for parameter in model.parameters():
            parameter.grad = None
        if mode is None:
            torch.autograd.backward(*cotangents(call(input_ids=tokens)))
            return
        with mode:
            output = call(input_ids=tokens)
        start = cotangents(output)
        with mode:
            torch.autograd.backward(*start)

    def by_hand() -> None:
        graphs: list[torch.fx.GraphModule] = []

        def keep(gm: torch.fx.GraphModule, _inputs: Any) -> Any:
            graphs.append(gm)
            return make_boxed_func(gm.forward)

        torch._dynamo.reset()
        backend = aot_autograd(fw_compiler=keep, bw_compiler=keep)
        step(torch.compile(model, backend=backend))
        torch._dynamo.reset()
        assert len(graphs) == 2

    def captured(via: str, read: bool = True) -> Callable[[], Any]:
        def capture() -> None:
            for parameter in model.parameters():
                parameter.grad = None
            found = pytest_torchgraph.capture(model, input_ids=tokens, via=via)
            if read:
                assert len(found.graphs) == 2

        return capture

    return {
        "aot": {"torch.compile, graphs in a list": by_hand, "capture(via='aot')": captured("aot")},
        "dispatch": {
            "mode that calls through": lambda: step(model, CallsThrough()),
            "no mode": lambda: step(model),
            "recipe with graphviz": lambda: step(model, Recipe()),
            "capture(via='dispatch')": captured("dispatch", read=False),
            "the same, graphs read": captured("dispatch"),
        },
    }


def main() -> None:
    """Print the tables."""
    torch.set_num_threads(1)
    for mechanism, each in works().items():
        times = medians(each)
        unit = next(iter(times.values()))
        table(
            (mechanism, "ms", "ratio"),
            [(name, 1000 * taken, taken / unit) for name, taken in times.items()],
        )
        if "--profile" in sys.argv:
            profile = cProfile.Profile()
            profile.runcall(each[f"capture(via={mechanism!r})"])
            pstats.Stats(profile).sort_stats("tottime").print_stats(25)


if __name__ == "__main__":
    main()
