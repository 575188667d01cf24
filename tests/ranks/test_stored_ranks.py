"""Store ranks of parallel models, load them and compare them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from ranks.parallel_models import MODELS
from torch.distributed.device_mesh import DeviceMesh

from pytest_torchgraph import capture_ranks, load
from pytest_torchgraph.snapshot import program_of, read_stored
from pytest_torchgraph.snapshot.compare import compare


def odd_one(mesh: DeviceMesh) -> tuple[Any, ...]:
    return (torch.sin if mesh.get_rank() == 5 else torch.cos), (torch.ones(4),)


def test_ranks_equal_their_stored_text(tmp_path: Path) -> None:
    ranks = capture_ranks(MODELS["experts"], dp=2, tp=4, ranks=(0, 1, 7), via="dispatch")
    text = program_of(ranks).to_text("dataflow")
    assert text.count("\nranks 0-1, 7\n") == 1
    path = tmp_path / "ranks.tgraph"
    path.write_text(text)
    assert load(path) == ranks
    again = capture_ranks(MODELS["experts"], dp=2, tp=4, ranks=(7, 0, 1), via="dispatch")
    assert compare(read_stored(text), program_of(again), "dataflow") is None
    assert program_of(again).to_text("full") == program_of(ranks).to_text("full")


def test_differing_rank_has_a_section() -> None:
    ranks = capture_ranks(odd_one, tp=8, via="dispatch")
    subject = program_of(ranks)
    text = subject.to_text("dataflow")
    assert [line for line in text.splitlines() if line.startswith("rank")] == [
        "ranks 0-4, 6-7",
        "rank 5",
    ]
    without = program_of(ranks[:5])
    mismatch = compare(read_stored(text), without, "dataflow")
    assert mismatch is not None
    assert (mismatch.problem, mismatch.details) == (
        "captured ranks differ from the stored ranks",
        ("stored:  ranks 0-7 of tp=8", "now:     ranks 0-4 of tp=8"),
    )
    with pytest.raises(AssertionError, match="nothing to compare: no rank was captured"):
        program_of(ranks[:0])
