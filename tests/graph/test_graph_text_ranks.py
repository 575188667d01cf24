"""The text of several ranks has equal graphs once, reads back unchanged, and has clear errors."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import replace
from difflib import ndiff
from fnmatch import fnmatchcase
from typing import Any

import pytest
from graph.strategies import checked, eager_graphs, graphs
from hypothesis import given, settings
from hypothesis import strategies as st

from pytest_torchgraph import GraphFormatError
from pytest_torchgraph.graph import (
    Graph,
    Header,
    Program,
    format_document,
    format_sections,
    parse_document,
    parse_text,
)
from pytest_torchgraph.graph.text.ranks import parse_ranks
from pytest_torchgraph.words import format_ranks

HEADER = Header(via="aot", torch="2.13.0")
OK = """torchgraph 3
via aot, torch 2.13.0
mesh dp=2, tp=4

ranks 0-3, 7

forward {
  %x = input : f32[2]
  %relu = aten.relu.default(%x) : f32[2]
  return %relu
}

rank 5

forward {
  %x = input : f32[2]
  return %x
}
"""


def network(layers: int, act: str = "relu") -> Graph:
    """Return a graph of equal layers."""
    lines, last = ["  %x = input : f32[2]"], "x"
    for i in range(layers):
        for op in ("mul", act, "add", "neg", "sin"):
            lines.append(f"  %layer.{i}/{op} = aten.{op}.default(%{last}) : f32[2]")
            last = f"layer.{i}/{op}"
    head = "torchgraph 1\nvia aot, torch 2.13.0\n\nforward {"
    return Graph.from_text("\n".join([head, *lines, f"  return %{last}", "}", ""]))


@st.composite
def partitions(draw: st.DrawFn, size: int = 64) -> list[list[int]]:
    """Draw groups of ranks, sorted by their first rank."""
    classes: dict[int, list[int]] = {}
    for rank in sorted(draw(st.sets(st.integers(0, size - 1), min_size=1, max_size=20))):
        classes.setdefault(draw(st.integers(0, 3)), []).append(rank)
    return [*classes.values()]


MESHES = st.sampled_from([{"tp": 64}, {"dp": 2, "tp": 32}, {"a b": 4, 'x"=2, ': 16}])
DETAILS = st.sampled_from(["dataflow", "full"])
PROGRAMS = st.lists(st.one_of(graphs(depth=0), eager_graphs()), min_size=1, max_size=2)


@pytest.mark.slow("many random graphs")
@settings(checked, max_examples=15)
@given(partitions(), MESHES, st.lists(PROGRAMS, min_size=2, max_size=2), DETAILS)
def test_ranks_text_reads_back(
    classes: list[list[int]], mesh: dict[str, int], programs: Any, detail: Any
) -> None:
    sections = [(ranks, programs[number % 2]) for number, ranks in enumerate(classes)]
    text = format_sections(mesh, sections, HEADER, detail)
    document = parse_ranks(text)
    assert [*document.mesh.items()] == [*mesh.items()]
    assert document.header == replace(HEADER, detail=detail)
    assert [[*ranks] for ranks, _ in document.sections] == classes
    for (_, own), (_, program) in zip(sections, document.sections, strict=True):
        alone = parse_document(format_document(own, HEADER, detail))
        assert program.graphs == alone.graphs
        assert program.runs.items() >= alone.runs.items()
    assert document.ranks == tuple(sorted(rank for ranks in classes for rank in ranks))
    again = [(ranks, program.graphs) for ranks, program in document.sections]
    assert format_sections(document.mesh, again, document.header, detail) == text


@checked
@given(st.sets(st.integers(0, 2000), min_size=1))
def test_ranks_are_read_as_they_are_written(ranks: set[int]) -> None:
    text = OK.partition("\nrank 5")[0].replace("dp=2", "dp=2001")
    text = text.replace("ranks 0-3, 7", format_ranks(ranks))
    assert parse_ranks(text).ranks == tuple(sorted(ranks))


def test_change_of_one_rank_changes_only_its_lines() -> None:
    old, new = network(layers=4), network(layers=4, act="gelu")
    before, after = (
        format_sections({"tp": 8}, sections, HEADER)
        for sections in ([(range(8), [old])], [([0, 1, 2, 3, 4, 6, 7], [old]), ([5], [new])])
    )
    lines = [*ndiff(before.splitlines(), after.splitlines())]
    assert [line for line in lines if line.startswith("- ")] == ["- ranks 0-7"]
    assert "+ ranks 0-4, 6-7" in lines
    assert parse_ranks(after).of_rank[5].graphs == (new,)


def test_modules_are_folded_in_each_section() -> None:
    graph = network(layers=6)
    text = format_sections({"tp": 2}, [([0], [graph]), ([1], [graph])], HEADER)
    assert text.count("each layer.*") == 2
    document = parse_ranks(text)
    assert all(program.folded for _, program in document.sections)
    flat = format_sections({"tp": 2}, [([0], [graph]), ([1], [graph])], HEADER, fold=False)
    assert "each" not in flat
    assert parse_ranks(flat).graphs == document.graphs == (graph, graph)


def test_op_counts_of_ranks_read_back() -> None:
    graph = network(layers=2)
    text = format_sections({"tp": 2}, [([0, 1], [graph])], HEADER, "ops")
    document = parse_ranks(text)
    assert document.graphs == ()
    assert document.of_rank[1].counts == ((graph.name, dict(graph.op_counts)),)


def test_windows_line_ends_and_no_origin() -> None:
    assert parse_text(OK.replace("\n", "\r\n")) == parse_text(OK)
    bare = parse_ranks(OK.replace("via aot, torch 2.13.0\n", "").replace(" {", " @ aot {"))
    assert bare.header == Header()
    assert bare.ranks == (0, 1, 2, 3, 5, 7)


ERRORS = {
    "no mesh": ("mesh dp=2, tp=4\n", "", "3:1: expected 'mesh' and its sizes"),
    "no size": ("dp=2, tp=4", "", "3:6: expected a size of the mesh, such as 'tp=4'"),
    "an open size": ("tp=4", "tp=", "3:15: expected a size"),
    "a size of 0": ("tp=4", "tp=0", "3:15: expected a size"),
    "a comma": ("tp=4", "tp=4, ", "3:18: expected a size"),
    "a dimension twice": ("tp=4", "dp=4", "3:12: duplicate dimension 'dp'"),
    "a bad string": ("tp=4", '"\\q"=4', "3:12: expected a JSON string, found an invalid escape"),
    "a rank too many": (
        "0-3, 7",
        "0-3, 8",
        "5:12: rank 8 is out of range: the mesh has ranks 0 to 7",
    ),
    "a rank twice": ("rank 5", "rank 7", "13:6: duplicate rank 7"),
    "an overlap": ("0-3, 7", "0-3, 2-7", "5:12: duplicate ranks 2-3"),
    "unsorted": (
        "0-3, 7",
        "7, 0-3",
        "5:7: ranks must be ascending, and consecutive ranks a range: 'ranks 0-3, 7'",
    ),
    "backwards": ("0-3, 7", "3-0, 7", "5:*"),
    "no range": ("0-3, 7", "0, 1-3, 7", "5:7: ranks must be ascending"),
    "singular": ("ranks 0-3", "rank 0-3", "5:6: ranks must be ascending"),
    "a word": ("0-3, 7", "0-3, x", "5:12: expected ranks"),
    "a graph before all ranks": ("ranks 0-3, 7\n", "", "6:1: expected the ranks"),
    "no section": (
        OK.partition("ranks 0")[1] + OK.partition("ranks 0")[2],
        "",
        "5:1: the file contains",
    ),
    "no rank": (OK.partition("ranks")[2], "", "5:1: expected the ranks"),
    "no graph": (OK.partition("rank 5\n")[2], "", "*: the file contains no graph"),
    "an undefined name": ("return %relu", "return %gelu", "10:3: %gelu is used before"),
    "truncated": ("  return %x\n}\n", "", "17:1: graph 'forward' has no closing"),
    "a bad origin": ("via aot", "viva aot", "2:1: expected 'via'"),
    "a later line": ("return %x\n", "return %y\n", "17:3: %y is used before"),
    "a conflict": ("ranks 0-3, 7\n", "<<<<<<< HEAD\nranks 0-3, 7\n", "5:1: merge conflict"),
    "endless": (
        "dp=2, tp=4\n\nranks 0-3",
        "a=999999999\n\nranks 0-99999999",
        "*at most 1,000,000 ranks",
    ),
}


@pytest.mark.parametrize("name", ERRORS)
def test_error_in_a_text_of_ranks_has_its_position(name: str) -> None:
    old, new, message = ERRORS[name]
    assert OK.count(old) >= 1
    head, _, tail = OK.rpartition(old) if name == "a later line" else OK.partition(old)
    with pytest.raises(GraphFormatError) as caught:
        parse_text(head + new + tail)
    found = f"{caught.value.line}:{caught.value.column}: {caught.value.problem}"
    pattern = message if message.endswith("*") else f"{message}*"
    assert fnmatchcase(found, pattern.replace("[", "[[]")), found


@checked
@given(st.data())
def test_malformed_ranks_text_raises_only_format_errors(data: st.DataObject) -> None:
    """Lines are moved or doubled."""
    lines = OK.split("\n")
    for _ in range(data.draw(st.integers(1, 3))):
        at, to = (data.draw(st.integers(0, len(lines) - 1)) for _ in range(2))
        lines.insert(to, lines.pop(at) if data.draw(st.booleans()) else lines[at])
    with suppress(GraphFormatError):
        assert parse_text("\n".join(lines)).graphs


def test_load_of_one_capture_refuses_ranks() -> None:
    for read in (parse_document, Graph.from_text):
        with pytest.raises(GraphFormatError, match=r"the graphs of several ranks.*load"):
            read(OK)
    assert isinstance(parse_text(format_document([network(layers=1)], HEADER)), Program)
