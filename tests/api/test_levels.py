"""`capture.at(level)` gives the same run at another level."""

from __future__ import annotations

import gc

import pytest
import torch
from mechanisms.models import example

from pytest_torchgraph import CaptureError, CompiledAutograd, capture, from_fx, load, watch
from pytest_torchgraph.mechanisms.dispatch import DispatchRecorder


def test_at_returns_another_level_of_the_same_run() -> None:
    layer = torch.nn.Linear(4, 4)
    seen = capture(layer, example(3, 4), via="compiled_autograd")
    other = seen.at("aot")
    assert other.output is seen.output
    other.assert_matches_eager()
    assert other.executions == seen.executions
    assert repr(other).startswith("<Capture via compiled_autograd: ")


def test_at_gives_the_reason_for_a_missing_output_or_module(tmp_path: object) -> None:
    torch._dynamo.reset()  # an earlier test may have compiled the forward of Linear
    with watch() as seen:
        torch.compile(torch.nn.Linear(4, 4), backend="aot_eager")(example(3, 4))
    for level_capture in (seen, seen.at("dynamo")):
        with pytest.raises(CaptureError, match=r"on a capture made by watch\(\): use graph_cap"):
            _ = level_capture.output
    part = seen.at("dynamo")
    assert part.forward is part.forward  # the same object each time
    with pytest.raises(CaptureError, match=r"torch\.fx graphs .* made by watch\(\): use"):
        part.fx(part.forward)
    path = f"{tmp_path}/stored.tgraph"
    with open(path, "w") as file:
        file.write(seen.to_text())
    loaded = load(path)
    with pytest.raises(CaptureError, match="is not available on a capture loaded from a file: use"):
        _ = loaded.output
    with pytest.raises(CaptureError, match=r"torch\.fx graphs .* loaded from a file: use"):
        loaded.fx(loaded.graphs[0])


def test_a_graph_of_another_level_has_its_live_module() -> None:
    seen = capture(torch.nn.Linear(4, 4), example(3, 4))
    assert seen.at("aot").graphs == seen.graphs
    for graph in seen.at("aot").graphs:
        assert from_fx(seen.at("aot").fx(graph), kind=graph.kind) == graph
    backward = capture(torch.nn.Linear(4, 4), example(3, 4), via="compiled_autograd").at("aot")
    assert [graph.kind for graph in backward.graphs] == ["forward", "backward"]
    for graph in backward.graphs:
        assert from_fx(backward.fx(graph), kind=graph.kind) == graph


@pytest.mark.slow("compiles many times")
def test_at_keeps_records_other_than_graphs() -> None:
    seen = capture(torch.nn.Linear(4, 4), example(3, 4))
    assert seen.at("aot").joint is seen.joint
    generated = capture(torch.relu, example(3, 4), via="inductor")
    assert generated.at("post_grad").kernels == generated.kernels
    assert generated.kernels
    assert seen.at("aot").breaks == seen.breaks == ()
    dispatched = capture(lambda x: x * x.sum().item(), example(3, 4), via="dispatch")
    assert dispatched.at("dispatch").syncs == dispatched.syncs
    assert dispatched.syncs


def test_at_is_available_from_every_level() -> None:
    seen = capture(torch.nn.Linear(4, 4), example(3, 4), via=CompiledAutograd())
    there_and_back = seen.at("aot").at("compiled_autograd")
    assert there_and_back.graphs == seen.at("compiled_autograd").graphs
    assert [graph.level for graph in there_and_back.graphs] == ["compiled_autograd"]
    with pytest.raises(
        CaptureError,
        match=r"'fx' was not captured \(captured levels: aot, compiled_a.*: use via='fx'",
    ):
        seen.at("aot").at("fx")


def test_part_of_a_watch_has_all_levels() -> None:
    def one(x: torch.Tensor) -> torch.Tensor:
        return x.sin()

    def other(x: torch.Tensor) -> torch.Tensor:
        return x.cos()

    with watch() as seen:
        for function in (one, other):
            torch.compile(function, backend="aot_eager")(example(3, 4))
    part = seen.at("dynamo").only(function="one")
    assert [graph.level for graph in part.graphs] == ["dynamo"]
    assert part.graphs == seen.only(function="one").at("dynamo").graphs
    assert [node.op for graph in part.graphs for node in graph.nodes if node.is_call] == [
        "Tensor.sin"
    ]


def test_records_are_freed_once_the_graphs_are_read() -> None:
    seen = capture(torch.nn.Linear(4, 4), example(3, 4), via="dispatch")
    assert seen.graphs
    gc.collect()
    assert not [recorder for recorder in gc.get_objects() if type(recorder) is DispatchRecorder]
    assert seen.syncs == ()
