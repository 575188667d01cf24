"""Blocks that differ only in sizes are written once, and each instance lists its sizes."""

from __future__ import annotations

import pytest
from graph.build import written
from graph.strategies import checked
from hypothesis import given
from hypothesis import strategies as st

from pytest_torchgraph import Graph, GraphFormatError
from pytest_torchgraph.graph.text.expand import expand
from pytest_torchgraph.graph.text.fold import fold
from pytest_torchgraph.graph.text.series import MAX_SIZES

STAGES = [(8, 32), (16, 16), (32, 8), (64, 4)]


def stages(sizes: list[tuple[int, int]], ops: int = 8) -> str:
    """Return stages of some ops, each with its own width and height."""
    lines = ["%x = input : f32[1, 3, 64, 64]"]
    before = "%x"
    for n, (width, height) in enumerate(sizes):
        shape = f"f32[1, {width}, {height}, {height}]"
        lines.append(f"%net.{n}.conv/conv2d = aten.conv2d.default({before}, [2, 2]) : {shape}")
        before = f"%net.{n}.conv/conv2d"
        for k in range(ops):
            lines.append(
                f"%net.{n}.act/relu.{k} = aten.view.default({before}, [-1, {width}], 0.5) : {shape}"
            )
            before = f"%net.{n}.act/relu.{k}"
    return written("\n".join([*lines, f"return {before}"]))


def test_each_instance_gives_its_sizes() -> None:
    lines = fold(stages(STAGES)).split("\n")[4:]
    assert lines[:3] == [
        "  each net.* {",
        "    %.conv/conv2d = aten.conv2d.default($1, [2, 2]) : f32[1, $2, $3, $3]",
        "    %.act/relu.0 = aten.view.default(%.conv/conv2d, [-1, $2], 0.5) : f32[1, $2, $3, $3]",
    ]
    assert lines[11:15] == [
        "  net.0: $1 = %x, $2 = 8, $3 = 32",
        "  net.1: $1 = %net.0.act/relu.7, $2 = 16, $3 = 16",
        "  net.2: $1 = %net.1.act/relu.7, $2 = 32, $3 = 8",
        "  net.3: $1 = %net.2.act/relu.7, $2 = 64, $3 = 4",
    ]


def test_a_text_with_sizes_is_version_4_and_reads_back() -> None:
    flat = stages(STAGES)
    folded = fold(flat)
    assert folded.startswith("torchgraph 4\n")
    assert expand(folded) == flat
    assert Graph.from_text(folded).to_text(fold=False) == flat


def test_two_equal_instances_share_the_block_of_those_with_other_sizes() -> None:
    flat = stages([(8, 32), (8, 32), (16, 16), (32, 8)], ops=24)
    folded = fold(flat)
    assert folded.count("each net.*") == 1
    assert "  net.3: $1 = %net.2.act/relu.23, $2 = 32, $3 = 8\n" in folded
    assert Graph.from_text(folded).to_text(fold=False) == flat


def test_equal_instances_are_folded_as_before() -> None:
    """Sizes become values of a block only if nothing else folds, so a small edit stays small."""
    folded = fold(stages([(8, 32)] * 5))
    assert "  net.1 .. 4: $1 = %net.[n-1].act/relu.7\n" in folded
    assert "$2" not in folded
    assert "$2" not in fold(stages([(8, 32)] * 4 + [(8, 31)]))


def test_instances_of_the_same_sizes_share_a_line() -> None:
    folded = fold(stages([(8, 32), (16, 16), (16, 16), (32, 8)]))
    assert "  net.1 .. 2: $1 = %net.[n-1].act/relu.7, $2 = 16, $3 = 16\n" in folded


def test_two_instances_are_folded_only_if_they_save_much() -> None:
    other = "%net.9.fc/mm = aten.mm.default(%x, %x) : f32[2]\n  return"
    few, many = (stages(STAGES[:2], ops).replace("return", other) for ops in (6, 40))
    assert fold(few) == few
    assert "  each net.* {\n" in fold(many)


def test_blocks_with_many_sizes_are_written_out() -> None:
    lines = ["%x = input : f32[2]"]
    for n in range(4):
        for k in range(MAX_SIZES + 1):
            lines.append(f"%net.{n}/a.{k} = aten.foo(%x, {10**n * 7 + k * (n + 2)}) : f32[2]")
    flat = written("\n".join([*lines, "return %x"]))
    assert fold(flat) == flat


@checked
@given(st.lists(st.tuples(st.integers(-3, 99), st.integers(0, 2**70)), min_size=2, max_size=6))
def test_any_sizes_read_back(sizes: list[tuple[int, int]]) -> None:
    flat = stages(sizes)
    assert expand(fold(flat)).partition("\n")[2] == flat.partition("\n")[2]


def test_error_in_a_line_with_sizes_has_its_column() -> None:
    folded = fold(stages(STAGES))
    wrong = folded.replace(", 0.5) : f32[1, $2, $3, $3]", ", 0.5?) : f32[1, $2, $3, $3]", 1)
    line = next(line for line in wrong.split("\n") if "?" in line)
    row = wrong.split("\n").index(line) + 1
    with pytest.raises(GraphFormatError) as error:
        Graph.from_text(wrong)
    assert (error.value.line, error.value.column) == (row, line.index("0.5?") + 4)


def test_a_size_where_a_name_belongs_is_refused() -> None:
    wrong = (
        fold(stages(STAGES)).replace("$1 = %x,", "$1 = 7,").replace("%.conv/conv2d = ", "$1 = ", 1)
    )
    with pytest.raises(GraphFormatError, match="expected a node"):
        Graph.from_text(wrong)
