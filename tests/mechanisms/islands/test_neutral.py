"""Recording eager ops does not change compiled code, results or random draws."""

from __future__ import annotations

import contextlib
import re
from collections.abc import Callable
from typing import Any

import pytest
import torch
from mechanisms.islands.cases import CASES, Target
from mechanisms.islands.unrecorded import unrecorded
from mechanisms.models import example
from torch import Tensor, nn
from torch_releases import skip_before

from pytest_torchgraph import Capture, capture, torch_private
from pytest_torchgraph.mechanisms.islands.island_recorder import IslandRecorder
from pytest_torchgraph.mechanisms.step.named_tensors import NamedTensors

_ADDRESS = re.compile(r" at 0x[0-9a-f]+")
_NUMBER = re.compile(r"\d{5,}|0x[0-9a-f]+")


class Seen:
    """Everything that a capture reports, without its islands."""

    def __init__(self, make: Callable[[], Target]) -> None:
        torch.manual_seed(0)
        target, args = make()
        torch.manual_seed(1)
        guards: list[str] = []

        def emit(metadata: dict[str, Any], payload: str) -> None:
            # A guard names each object by its address.
            guards.append(_NUMBER.sub("N", payload) if "dynamo_guards" in metadata else "started")

        records = frozenset({"dynamo_guards", "dynamo_start"})
        with torch_private.structured_trace(emit, records):
            self.capture: Capture = capture(target, *args)
        self.guards = guards
        comparison = self.capture._contents.comparison
        assert comparison is not None
        self.outcome = comparison.captured()
        self.rng = torch.get_rng_state()
        named = NamedTensors(target, args, {})
        self.state = [tensor.detach().clone() for tensor in named.all_tensors()]

    def said(self) -> dict[str, Any]:
        found = self.capture
        return {
            "texts": [graph.to_text("full") for graph in found.graphs],
            "breaks": found.breaks,
            "recompiles": found.recompiles,
            "executions": dict(found.executions),
            "counters": _ADDRESS.sub("", repr({k: dict(of) for k, of in found.counters.items()})),
            "guards": self.guards,
        }


def bits(tensor: Tensor) -> tuple[Any, ...]:
    plain = tensor.detach().contiguous()
    return (
        tensor.dtype,
        tuple(tensor.shape),
        plain.view(torch.uint8).tolist() if plain.dim() else (plain.item()),
    )


@pytest.mark.slow(
    "long models; short ones are in every run", unless=["an_argument_written_on_both_sides"]
)
@pytest.mark.parametrize("name", [*CASES][::2])
def test_recording_changes_no_result_of_a_capture(name: str) -> None:
    found = []
    # One loop, because the line of the call is in the stack of each break.
    for with_recording in (True, False):
        with contextlib.nullcontext() if with_recording else unrecorded():
            found.append(Seen(CASES[name]))
    recorded, plain = found
    assert plain.capture.eager == ()
    assert recorded.said() == plain.said()
    assert torch.equal(recorded.rng, plain.rng)
    for of in ("outputs", "grads"):
        one, other = getattr(recorded.outcome, of), getattr(plain.outcome, of)
        assert one.keys() == other.keys()
        assert {key: bits(value) for key, value in one.items()} == {
            key: bits(value) for key, value in other.items()
        }
    pairs = zip(recorded.state, plain.state, strict=True)
    assert all(torch.equal(one, other) for one, other in pairs)


@pytest.mark.filterwarnings("ignore:::torch")
@pytest.mark.parametrize("first", ["inside", "outside"])
def test_code_compiled_under_the_mode_equals_code_without_it(first: str) -> None:
    skip_before("2.10", "Dynamo compiles again when the dispatch modes are others")
    compiled: list[torch.fx.GraphModule] = []

    def backend(graph: torch.fx.GraphModule, _inputs: Any) -> Callable[..., Any]:
        compiled.append(graph)
        return graph.forward

    model = nn.Sequential(nn.Linear(4, 4), nn.ReLU())

    def target(x: Tensor) -> Tensor:
        x = model(x)
        torch._dynamo.graph_break()
        return x.sin()

    torch._dynamo.reset()
    call = torch.compile(target, backend=backend)
    recorder = IslandRecorder(NamedTensors(target, (), {}))
    for place in (first, "inside", "outside", "inside"):
        with recorder.recording(backward=False) if place == "inside" else contextlib.nullcontext():
            call(example(2, 4))
    assert len(compiled) == 2
    torch._dynamo.reset()
