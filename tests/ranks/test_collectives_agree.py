"""Collectives of captures equal those that `CommDebugMode` counts in an eager run of the rank."""

from __future__ import annotations

from collections import Counter

import pytest
from ranks.counts import by_torch, by_us
from ranks.formulas import FLOAT, FORMULAS, MESH, RANK
from ranks.parallel_models import DIM, MODELS, ROWS, broken_blocks

from pytest_torchgraph import CompiledAutograd, capture_ranks


@pytest.mark.slow(
    "further cases; a few are in every run", only=["sequence parallel", "tensor parallel"]
)
@pytest.mark.parametrize("name", MODELS)
def test_collective_counts_and_bytes_equal_torchs(name: str) -> None:
    """`docs/measured/collectives.md` has the other mechanisms."""
    (rank_capture,) = capture_ranks(MODELS[name], ranks=(RANK,), via="dispatch", **MESH)
    assert by_us(rank_capture) == by_torch(MODELS[name], RANK, MESH)
    moved: Counter[tuple[str, str]] = Counter()
    for collective in rank_capture.collectives:
        assert collective.bytes is not None
        moved[collective.kind, collective.group] += collective.bytes
    assert moved == FORMULAS[name]
    assert {collective.dtype for collective in rank_capture.collectives} == {"float32"}


def test_collective_counts_of_a_compiled_rank_equal_torchs() -> None:
    build = MODELS["experts"]
    (rank_capture,) = capture_ranks(build, ranks=(RANK,), via="compiled_autograd", **MESH)
    assert by_us(rank_capture) == by_torch(build, RANK, MESH)


@pytest.mark.slow("compiles several models")
def test_collectives_of_a_python_backward_equal_torchs() -> None:
    """Without a compiled forward, Dynamo traces the backward of each `autograd.Function`."""
    via = CompiledAutograd(forward="eager")
    (rank_capture,) = capture_ranks(MODELS["tensor parallel"], ranks=(RANK,), via=via, **MESH)
    _, of_torch = by_torch(MODELS["tensor parallel"], RANK, MESH)
    rank_capture.assert_collectives(of_torch)
    with pytest.raises(AssertionError, match="collectives differ"):
        rank_capture.assert_collectives({})


@pytest.mark.slow("further cases; a few are in every run", unless=["dispatch"])
@pytest.mark.parametrize("via", ["dispatch", "aot"])
def test_collective_counts_are_multiplied_by_runs(via: str) -> None:
    (rank_capture,) = capture_ranks(broken_blocks, ranks=(RANK,), via=via, **MESH)
    assert by_us(rank_capture) == by_torch(broken_blocks, RANK, MESH)
    rank_capture.assert_collectives({"all_reduce": 8}, bytes=8 * ROWS * DIM * FLOAT)
    with pytest.raises(AssertionError, match="all_reduce: expected 3, found 8"):
        rank_capture.assert_collectives({"all_reduce": 3})
    if via == "aot":  # the blocks share a graph
        assert [len(graph.collectives) for graph in rank_capture.graphs] == [1] * len(
            rank_capture.graphs
        )
