"""Layers of several stages share a block if the stages differ only in sizes."""

from __future__ import annotations

import pytest
from graph.build import written
from graph.strategies import checked
from hypothesis import given
from hypothesis import strategies as st

from pytest_torchgraph import Graph, GraphFormatError
from pytest_torchgraph.graph.text.expand import expand
from pytest_torchgraph.graph.text.fold import fold

STAGES = [(2, 32), (2, 16), (4, 8)]
OPS = 24


def layer(path: str, before: str, width: int, ops: int = OPS, extra: str = "") -> list[str]:
    """Return the lines of a layer.

    Args:
        extra: op that is added after the fourth op.
    """
    lines = []
    for k in range(ops):
        name = f"%{path}.act/view.{k}"
        lines.append(f"{name} = aten.view.default({before}, [{width}]) : f32[{width}]")
        before = name
        if extra and k == 3:
            lines.append(f"%{path}/new = {extra}({before}, 1) : f32[{width}]")
            before = f"%{path}/new"
    return lines


def staged(
    stages: list[tuple[int, int]], *, extra: tuple[int, int] | None = None, ops: int = OPS
) -> str:
    """Return a network of stages, each with its number of layers and its width.

    Args:
        extra: stage and layer that have one more op.
    """
    lines = ["%x = input : f32[2]"]
    before = "%x"
    for stage, (layers, width) in enumerate(stages):
        # An op per stage: otherwise the stages themselves could be folded.
        lines.append(f"%net.{stage}/op.{stage} = aten.op{stage}.default({before}) : f32[2]")
        before = f"%net.{stage}/op.{stage}"
        for number in range(layers):
            op = "aten.sin.default" if extra == (stage, number) else ""
            lines += layer(f"net.{stage}.{number}", before, width, ops, op)
            before = f"%net.{stage}.{number}.act/view.{ops - 1}"
    return written("\n".join([*lines, f"return {before}"]))


def instance_lines(folded: str) -> list[str]:
    """Return the lines that list instances."""
    return [line for line in folded.split("\n") if line.startswith("  net.")]


def test_layers_of_all_stages_share_a_block_with_sizes() -> None:
    flat = staged(STAGES)
    folded = fold(flat)
    assert folded.startswith("torchgraph 4\n")
    assert folded.count("each ") == folded.count("each net.*.* {") == 1
    assert instance_lines(folded) == [
        "  net.0.0: $1 = %net.0/op.0, $2 = 32",
        "  net.0.1: $1 = %net.0.0.act/view.23, $2 = 32",
        "  net.1.0: $1 = %net.1/op.1, $2 = 16",
        "  net.1.1: $1 = %net.1.0.act/view.23, $2 = 16",
        "  net.2.0: $1 = %net.2/op.2, $2 = 8",
        "  net.2.1 .. 3: $1 = %net.2.[n-1].act/view.23, $2 = 8",
    ]
    assert expand(folded).partition("\n")[2] == flat.partition("\n")[2]
    assert Graph.from_text(folded).to_text(fold=False) == flat


def test_stages_of_equal_sizes_share_a_block_in_version_4() -> None:
    folded = fold(staged([(3, 8), (6, 8), (2, 8)]))
    assert folded.startswith("torchgraph 4\n")
    assert "  each net.*.* {\n" in folded
    assert "$2" not in folded


def test_a_layer_with_another_op_is_an_exception_with_its_sizes_as_numbers() -> None:
    flat = staged(STAGES, extra=(1, 1))
    folded = fold(flat)
    assert (
        "  net.1.1: $1 = %net.1.0.act/view.23, $2 = 16\n"
        "  but net.1.1 {\n"
        "    @ %.act/view.3\n"
        "    + %/new = aten.sin.default(%.act/view.3, 1) : f32[16]\n"
        "    ~ %.act/view.4 = aten.view.default(%/new, [16]) : f32[16]\n"
        "  }\n"
    ) in folded
    assert Graph.from_text(folded).to_text(fold=False) == flat


def test_stages_with_little_in_common_have_their_own_blocks() -> None:
    folded = fold(staged([(5, 8), (5, 16)], ops=8))
    assert "  each net.0.* {\n" in folded
    assert "  each net.1.* {\n" in folded


def test_of_two_blocks_the_later_one_applies() -> None:
    lines = written(
        "%x = input : f32[2]\n"
        "each net.*.* {\n  %/a = aten.sin.default(%x) : f32[2]\n}\n"
        "net.0.1\n"
        "each net.1.* {\n  %/a = aten.cos.default(%x) : f32[2]\n}\n"
        "net.1.0\n"
        "net.2.0\n"
        "each net.*.* {\n  %/a = aten.exp.default(%x) : f32[2]\n}\n"
        "net.1.1\n"
        "return %x"
    )
    ops = [(node.name, node.op) for node in Graph.from_text(lines).nodes if node.op]
    assert ops[1:5] == [
        ("net.0.1/a", "aten.sin.default"),
        ("net.1.0/a", "aten.cos.default"),
        ("net.2.0/a", "aten.sin.default"),
        ("net.1.1/a", "aten.exp.default"),
    ]


def test_the_block_of_stages_does_not_apply_to_other_containers() -> None:
    wrong = fold(staged(STAGES)).replace("  net.1.1: ", "  net.1.sub.1: ")
    with pytest.raises(GraphFormatError, match=r"missing block 'each net\.1\.sub\.\* \{'"):
        Graph.from_text(wrong)


@checked
@given(
    st.lists(st.tuples(st.integers(0, 3), st.integers(-3, 99)), min_size=1, max_size=5),
    st.tuples(st.integers(0, 4), st.integers(0, 2)),
    st.sampled_from((3, 9, 24)),
)
def test_any_stages_read_back(
    stages: list[tuple[int, int]], extra: tuple[int, int], ops: int
) -> None:
    flat = staged(stages, extra=extra, ops=ops)
    assert expand(fold(flat)).partition("\n")[2] == flat.partition("\n")[2]
