"""The collectives of captures, against `CommDebugMode` in an eager run of the same rank."""

from __future__ import annotations

import warnings
from collections import Counter
from collections.abc import Iterable, Mapping
from typing import Any

import pytest
from ranks.parallel_models import DIM, MODELS, ROWS, stages
from torch.distributed.tensor.debug import CommDebugMode

from pytest_torchgraph import Capture, Graph, capture_ranks
from pytest_torchgraph.ops.collectives import collective_kinds
from pytest_torchgraph.ranks.fake_group import fake_rank

MESH = {"dp": 2, "tp": 4}
RANK = 6


def kinds_of(counts: Mapping[Any, int]) -> Counter[str]:
    """The kinds that `CommDebugMode` counted; it counts an op of either API by its packet."""
    found: Counter[str] = Counter()
    for packet, count in counts.items():
        (kind,) = collective_kinds(f"{str(packet).replace('::', '.')}.default", ())
        found[kind] += count
    return found


def by_torch(name: str) -> tuple[Counter[str], Counter[str]]:
    """What torch counts in the forward and in the backward."""
    with fake_rank(RANK, MESH, "cpu") as mesh, warnings.catch_warnings():
        warnings.simplefilter("ignore")  # hooks of CommDebugMode make views, and fire early
        target, args = MODELS[name](mesh)
        with CommDebugMode() as forward:
            output = target(*args)
        with CommDebugMode() as backward:
            if output.requires_grad:
                output.sum().backward()
        return kinds_of(forward.get_comm_counts()), kinds_of(backward.get_comm_counts())


def by_us(graphs: Iterable[Graph]) -> Counter[str]:
    return Counter(each.kind for graph in graphs for each in graph.collectives)


def counted(made: Capture) -> tuple[Counter[str], Counter[str]]:
    """What a capture has in the forward and in the backward, compiled or not."""
    forward = [graph for graph in made.program if graph.kind != "backward"]
    backward = [graph for graph in made.program if graph.kind == "backward"]
    return by_us(forward), by_us(backward)


@pytest.mark.parametrize("via", ["dispatch", "aot"])
@pytest.mark.parametrize("name", MODELS)
def test_as_many_as_torch_counts(name: str, via: str) -> None:
    (made,) = capture_ranks(MODELS[name], ranks=(RANK,), via=via, **MESH)
    forward, backward = counted(made)
    expected = by_torch(name)
    if via == "aot" and "sharded" in name:
        # Compiled blocks keep what they gathered, or gather again, at other places of the step.
        assert forward + backward == expected[0] + expected[1]
    else:
        assert (forward, backward) == expected
    assert made.collectives


@pytest.mark.parametrize("via", ["inductor", "compiled_autograd"])
@pytest.mark.parametrize("name", ["tensor parallel", "sequence parallel", "experts"])
def test_as_many_in_what_is_compiled_further(name: str, via: str) -> None:
    (made,) = capture_ranks(MODELS[name], ranks=(RANK,), via=via, **MESH)
    assert counted(made) == by_torch(name)


def parameters() -> int:
    """Numbers in the parameters of an `MLP`."""
    return DIM * 2 * DIM + 2 * DIM + 2 * DIM * DIM + DIM


FLOAT = 4
FORMULAS = {
    "tensor parallel": {("all_reduce", "tp"): 2 * ROWS * DIM * FLOAT},
    "sequence parallel": {
        ("all_gather", "tp"): 2 * MESH["tp"] * ROWS * DIM * FLOAT,
        ("reduce_scatter", "tp"): 2 * MESH["tp"] * ROWS * DIM * FLOAT,
    },
    "fully sharded": {
        ("all_gather", "dp"): 6 * parameters() * FLOAT,
        ("reduce_scatter", "dp"): 3 * parameters() * FLOAT,
    },
    "hybrid sharded": {
        ("all_gather", "tp"): 6 * parameters() * FLOAT,
        ("reduce_scatter", "tp"): 3 * parameters() * FLOAT,
        ("all_reduce", "dp"): 3 * parameters() * FLOAT // MESH["tp"],
    },
    "experts": {("all_to_all", "tp"): 4 * ROWS * DIM * FLOAT},
    "in place": {
        ("all_reduce", "tp"): ROWS * DIM * FLOAT,
        ("all_gather", "tp"): MESH["tp"] * ROWS * DIM * FLOAT,
    },
    "coalesced": {("all_reduce", "dp"): (ROWS + 1) * DIM * FLOAT},
}


@pytest.mark.parametrize("name", MODELS)
def test_bytes_are_those_of_a_formula(name: str) -> None:
    (made,) = capture_ranks(MODELS[name], ranks=(RANK,), via="dispatch", **MESH)
    found: Counter[tuple[str, str]] = Counter()
    for each in made.collectives:
        assert each.bytes is not None
        found[each.kind, each.group] += each.bytes
    assert found == FORMULAS[name]
    assert {each.dtype for each in made.collectives} == {"float32"}


def test_the_stages_of_a_pipeline_send_and_receive() -> None:
    ranks = capture_ranks(stages, dp=4, via="dispatch")
    sent = [[(each.kind, each.group) for each in made.collectives] for made in ranks]
    receives, sends = ("recv", "dp"), ("send", "dp")
    assert sent == [[sends], [receives, sends], [receives, sends], [receives]]
    assert {each.bytes for made in ranks for each in made.collectives} == {ROWS * DIM * FLOAT}
