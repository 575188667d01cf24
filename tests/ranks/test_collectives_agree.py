"""The collectives of captures, against `CommDebugMode` in an eager run of the same rank."""

from __future__ import annotations

from collections import Counter

import pytest
from ranks.counts import by_torch, by_us
from ranks.formulas import FLOAT, FORMULAS, MESH, RANK
from ranks.parallel_models import DIM, MODELS, ROWS, broken_blocks, stages

from pytest_torchgraph import CaptureError, CompiledAutograd, capture_ranks


@pytest.mark.slow(
    "further cases; a few are in every run",
    only=["*aot", "sequence parallel-dispatch", "tensor parallel-dispatch"],
)
@pytest.mark.parametrize("via", ["dispatch", "aot"])
@pytest.mark.parametrize("name", MODELS)
def test_collective_counts_equal_torchs(name: str, via: str) -> None:
    (made,) = capture_ranks(MODELS[name], ranks=(RANK,), via=via, **MESH)
    forward, backward = by_us(made)
    expected = by_torch(MODELS[name], RANK, MESH)
    if via == "aot" and "sharded" in name:
        # Compiled blocks save gathered parameters, or gather again, at other points of the step.
        assert forward + backward == expected[0] + expected[1]
    else:
        assert (forward, backward) == expected
    assert made.collectives


@pytest.mark.slow("runs pytest in a new process", unless=["experts-compiled_autograd"])
@pytest.mark.parametrize("via", ["inductor", "compiled_autograd"])
@pytest.mark.parametrize("name", ["tensor parallel", "sequence parallel", "experts"])
def test_collective_counts_of_compiled_ranks_equal_torchs(name: str, via: str) -> None:
    (made,) = capture_ranks(MODELS[name], ranks=(RANK,), via=via, **MESH)
    assert by_us(made) == by_torch(MODELS[name], RANK, MESH)


@pytest.mark.slow("two mechanisms are in every run", unless=["tensor parallel"])
@pytest.mark.parametrize("name", ["tensor parallel", "experts"])
def test_collectives_of_a_python_backward_are_refused(name: str) -> None:
    """Compiled autograd without a compiled forward calls it, including its collectives."""
    via = CompiledAutograd(forward="eager")
    (made,) = capture_ranks(MODELS[name], ranks=(RANK,), via=via, **MESH)
    with pytest.raises(CaptureError, match=r"runs a backward in Python|first graph break"):
        made.assert_collectives({})


@pytest.mark.slow("further cases; a few are in every run", unless=["dispatch"])
@pytest.mark.parametrize("via", ["dispatch", "aot"])
def test_collective_counts_are_multiplied_by_runs(via: str) -> None:
    (made,) = capture_ranks(broken_blocks, ranks=(RANK,), via=via, **MESH)
    assert by_us(made) == by_torch(broken_blocks, RANK, MESH)
    made.assert_collectives({"all_reduce": 8}, bytes=8 * ROWS * DIM * FLOAT)
    with pytest.raises(AssertionError, match="all_reduce: expected 3, found 8"):
        made.assert_collectives({"all_reduce": 3})
    if via == "aot":  # a single graph has their places
        assert [len(graph.collectives) for graph in made.graphs] == [1] * len(made.graphs)


@pytest.mark.slow(
    "further cases; a few are in every run", only=["hybrid sharded", "sequence parallel"]
)
@pytest.mark.parametrize("name", MODELS)
def test_collective_bytes_equal_the_formula(name: str) -> None:
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
