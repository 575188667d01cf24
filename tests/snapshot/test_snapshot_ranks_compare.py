"""Ranks compared by pairs of classes give the same result as each rank compared separately."""

from __future__ import annotations

import pytest
from graph.strategies import checked
from hypothesis import given
from hypothesis import strategies as st

from pytest_torchgraph.graph import Detail, Graph, Header, Program
from pytest_torchgraph.snapshot import program_of, read_stored
from pytest_torchgraph.snapshot.compare import compare, is_stored, same_text
from pytest_torchgraph.words import format_ranks

MESH = {"dp": 2, "tp": 4}
DETAILS: tuple[Detail, ...] = ("ops", "dataflow", "full")


def program(ops: str) -> Program:
    lines, last = ["  %x = input : f32[2]"], "x"
    for i, op in enumerate(ops.split()):
        op, _, stride = op.partition("@")
        end = f" stride [{stride}]" if stride else ""
        lines.append(f"  %layer.{i}/{op} = aten.{op}.default(%{last}) : f32[2]{end}")
        last = f"layer.{i}/{op}"
    head = "torchgraph 1\nvia aot, torch 2.13.0, detail full\n\nforward {"
    graph = Graph.from_text("\n".join([head, *lines, f"  return %{last}", "}", ""]))
    return Program(Header("aot", "2.13.0"), (graph,))


POOL = [program(ops) for ops in ("relu", "relu@1", "relu@2", "sin cos", "cos sin", "relu sin")]


def subject(numbers: list[int]) -> Program:
    return Program.of_ranks(MESH, [((rank,), POOL[number]) for rank, number in enumerate(numbers)])


EIGHT = st.lists(st.integers(0, len(POOL) - 1), min_size=8, max_size=8)


@checked
@given(EIGHT, st.sampled_from(DETAILS))
def test_ranks_equal_their_stored_text_at_each_detail(numbers: list[int], detail: Detail) -> None:
    own = subject(numbers)
    for fold in (True, False):
        text = own.to_text(detail, fold=fold)
        assert compare(read_stored(text), own, detail) is None
        assert is_stored(text, own, detail)
        assert same_text(text, text.replace("torch 2.13.0", "torch 2.15.0"))
        assert not same_text(text, text.replace("dp=2, tp=4", "tp=4, dp=2"))
    assert sorted(rank for ranks, _ in own.classes(detail) for rank in ranks) == [*range(8)]


@pytest.mark.slow("a search for a second")
@checked
@given(EIGHT, EIGHT, st.sampled_from(DETAILS))
def test_ranks_differ_if_they_differ_separately(
    old: list[int], new: list[int], detail: Detail
) -> None:
    stored, own = read_stored(subject(old).to_text(detail)), subject(new)
    alone = [
        rank
        for rank, (before, after) in enumerate(zip(old, new, strict=True))
        if compare(read_stored(POOL[before].to_text(detail)), POOL[after], detail) is not None
    ]
    mismatch = compare(stored, own, detail)
    assert (mismatch is None) is (not alone)
    if mismatch is not None:
        assert sorted(rank for part in mismatch.parts for rank in part.ranks) == alone
        assert mismatch.problem.startswith(f"{format_ranks(alone)} differ")
        ranks_of_findings = [finding.ranks for finding in mismatch.diff.findings]
        assert {rank for ranks in ranks_of_findings for rank in ranks or ()} <= {*alone}
        assert bool(ranks_of_findings) == any(part.diff for part in mismatch.parts)


@checked
@given(EIGHT, st.integers(0, 7), st.integers(0, len(POOL) - 1))
def test_change_of_one_rank_is_reported_for_that_rank(
    numbers: list[int], rank: int, number: int
) -> None:
    new = [*numbers[:rank], number, *numbers[rank + 1 :]]
    mismatch = compare(read_stored(subject(numbers).to_text("full")), subject(new), "full")
    parts = mismatch.parts if mismatch is not None else ()
    assert [part.ranks for part in parts] == ([(rank,)] if number != numbers[rank] else [])


def test_ranks_file_with_less_detail_is_refused() -> None:
    own = subject([0] * 8)
    stored = read_stored(own.to_text("ops"))
    mismatch = compare(stored, own, "dataflow")
    assert mismatch is not None
    assert "only detail 'ops'" in mismatch.problem
    assert not mismatch.parts


def test_list_of_other_objects_is_not_ranks() -> None:
    class Ranks(list[object]):
        mesh = MESH
        ranks = ()
        world_size = property(lambda self: 8)

    with pytest.raises(AssertionError, match="nothing to compare: no rank was captured"):
        program_of(Ranks())
    with pytest.raises(TypeError, match="graph_snapshot cannot compare a type"):
        program_of(Ranks)
